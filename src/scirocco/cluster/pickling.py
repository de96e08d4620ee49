"""What is sent to workers, as bytes; and what to do about what cannot be sent."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import pickle
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax

from scirocco._extras import require
from scirocco.errors import InvalidTypeError, WorkerError

_DEEPEST = 12


class Parcel(NamedTuple):
    """A pickle, and the classes in it that JAX looks into."""

    pickled: bytes
    nodes: tuple[str, ...]


def packed(thing: Any, what: str) -> Parcel:
    """Anything as bytes; functions and classes of `__main__` are sent as code."""
    return Parcel(dumped(thing, what), tuple(sorted(_nodes(jax.tree.structure(_looked_into(thing))))))


def dumped(thing: Any, what: str) -> bytes:
    """The pickle, or an error that says which part has none."""
    try:
        return require("cloudpickle", "tasks on a cluster").dumps(thing)
    except Exception as error:
        name, part = _culprit(thing, what)
        raise InvalidTypeError(
            f"{name}, a {type(part).__name__}, cannot be sent to workers ({type(error).__name__}: {error}). Locks, "
            "open files, generators and connections stay in their process: keep them out of what the functions of a "
            "model refer to, or leave `client` out."
        ) from error


def unpacked(parcel: Parcel) -> Any:
    """What was packed, on a worker."""
    try:
        thing = pickle.loads(parcel.pickled)
    except (ImportError, AttributeError) as error:
        file = f"{(getattr(error, 'name', None) or 'mymodels').partition('.')[0]}.py"
        raise WorkerError(
            f"a worker cannot load what it was sent ({type(error).__name__}: {error}). Modules of your own must be "
            f"there too, and be the same: client.upload_file({file!r}) sends one, or install them on the workers."
        ) from error
    nodes = set(parcel.nodes)
    for leaf in jax.tree.leaves(_looked_into(thing)):
        if _name(type(leaf)) in nodes:
            raise InvalidTypeError(
                f"the class {_name(type(leaf))} is registered with JAX as a pytree where the work was started, but not "
                "on the worker, to which it was sent as code. Put it, with its registration, in a module that workers "
                "can import."
            )
    return thing


def _looked_into(thing: Any) -> Any:
    return (thing.args, thing.keywords) if isinstance(thing, functools.partial) else thing


def _nodes(tree: Any) -> set[str]:
    node = tree.node_data()
    if node is None:
        return set()
    own = set() if node[0].__module__ == "builtins" else {_name(node[0])}
    return own.union(*map(_nodes, tree.children()))


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _culprit(thing: Any, name: str, depth: int = 0) -> tuple[str, Any]:
    """The innermost part that cannot be pickled, and the way to it."""
    for inner, part in _parts(thing) if depth < _DEEPEST else ():
        if not _can_be_pickled(part):
            return _culprit(part, f"{name} → {inner}", depth + 1)
    return name, thing


def _can_be_pickled(part: Any) -> bool:
    try:
        require("cloudpickle", "tasks on a cluster").dumps(part)
    except Exception:  # whatever the classes of users raise
        return False
    return True


def _parts(thing: Any) -> Iterator[tuple[str, Any]]:
    """What a pickle of it would hold, by name, as far as that can be told from outside."""
    if isinstance(thing, functools.partial):
        yield from thing.keywords.items()
        thing = thing.func
    if inspect.isfunction(thing):
        named = inspect.getclosurevars(thing)
        yield from named.nonlocals.items()
        yield from named.globals.items() if thing.__module__ == "__main__" else ()
        yield from ((p.name, p.default) for p in inspect.signature(thing).parameters.values())
    elif hasattr(thing, "_fields"):
        yield from zip(thing._fields, thing, strict=True)
    elif isinstance(thing, dict):
        yield from ((repr(key), value) for key, value in thing.items())
    elif isinstance(thing, (list, tuple)):
        yield from ((f"[{number}]", value) for number, value in enumerate(thing))
    elif dataclasses.is_dataclass(thing):
        yield from ((field.name, getattr(thing, field.name)) for field in dataclasses.fields(thing))
    else:
        yield from ((name, value) for name, value in getattr(thing, "__dict__", {}).items() if name[0] != "_")
