"""Small arithmetic on pytrees, and pytree dataclasses."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeGuard, TypeVar, cast, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks
from scirocco._random import normal, normals_in_pairs
from scirocco.errors import InvalidValueError
from scirocco.types import Array, ArrayLike, Key, PyTree

T = TypeVar("T")
MANY_NORMALS = 1 << 19  # numbers from which the normals of a tree are made leaf by leaf


def on_host(tree: PyTree) -> PyTree:
    """The same tree with NumPy arrays, which can be pickled and sent; Python numbers are unchanged."""
    return jax.tree.map(lambda leaf: np.asarray(leaf) if is_array(leaf) else leaf, tree)


def is_array(value: object) -> bool:
    """Whether it has a shape: an array of NumPy or JAX, a tracer, a stored array, a `jax.ShapeDtypeStruct`."""
    return hasattr(value, "shape")


def dtype_of(value: object) -> np.dtype | None:
    """The dtype of an array, or of anything that has one; None of other objects."""
    return getattr(value, "dtype", None)


def is_named_tuple(value: Any) -> TypeGuard[NamedTuple]:
    """Whether it is a tuple with named fields, which is a structure and not a list."""
    return isinstance(value, tuple) and hasattr(value, "_fields")


def fields_of(node: Any) -> dict[str, Any]:
    """The fields of a dataclass by name."""
    return {field.name: getattr(node, field.name) for field in dataclasses.fields(node)}


def name_of(function: object, otherwise: str | None = None) -> str:
    """The name of a function; of what has none (a partial, a callable object) its repr, or another word."""
    return str(getattr(function, "__name__", repr(function) if otherwise is None else otherwise))


def static(*, default: Any = dataclasses.MISSING) -> Any:
    """A dataclass field that is part of the structure (shapes, switches), not of the data.

    Changing a static field recompiles; changing any other field does not.
    """
    return dataclasses.field(default=default, metadata={"static": True})


def derived(*, default: Any = None, init: bool = False) -> Any:
    """A static field that is not an argument: the library sets it with `rebuilt`; it is neither shown nor stored."""
    return dataclasses.field(default=default, init=init, repr=False, metadata={"static": True})


@dataclass_transform(frozen_default=True, field_specifiers=(static, derived, dataclasses.field))
def pytree_dataclass(cls: type[T]) -> type[T]:
    """A frozen dataclass whose ordinary fields are pytree children and whose `static` fields are structure.

    `jax.tree_util.register_dataclass` rebuilds by calling the constructor, so that the argument checks in
    `__post_init__` would see tracers, axis numbers and sentinels; here rebuilding skips the constructor, and the
    checks see only the users' arguments.
    """
    cls = dataclasses.dataclass(frozen=True)(cls)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    flags = [field.name for field in fields if field.type == "bool"]
    make = cls.__init__

    @functools.wraps(make)
    def init(self: T, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        for name in flags:
            _checks.flag(getattr(self, name), name, cls.__name__)

    cls.__init__ = _checks.known_arguments(cast(Any, init), cls.__name__)  # type: ignore[method-assign]
    meta = [field.name for field in fields if field.metadata.get("static")]
    data = [field.name for field in fields if not field.metadata.get("static")]

    def flatten(node: T) -> tuple[list[Any], tuple[Any, ...]]:
        children = [(jax.tree_util.GetAttrKey(name), getattr(node, name)) for name in data]
        return children, tuple(getattr(node, name) for name in meta)

    def unflatten(aux: tuple[Any, ...], children: Iterable[Any]) -> T:
        node = object.__new__(cls)
        for name, value in (*zip(data, children, strict=True), *zip(meta, aux, strict=True)):
            object.__setattr__(node, name, value)
        return node

    jax.tree_util.register_pytree_with_keys(cls, flatten, unflatten)
    return cls


def cited(phrase: str, keys: str) -> Callable[[T], T]:
    """What `scirocco cite` says of a class or function: a phrase for a methods section, and keys of the bibliography.

    It is read from the source, so that the command need not import JAX; both must be literal strings.
    """
    assert phrase and keys
    return lambda thing: thing


def leaf_names(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> list[str]:
    """A readable name for each leaf: `beta`, `layers[0].weight`, or `params` for a bare array."""
    paths = jax.tree_util.tree_flatten_with_path(tree, is_leaf)[0]
    return [_path_name(path) for path, _ in paths]


def _path_name(path: tuple[Any, ...]) -> str:
    name = ""
    for entry in path:
        if isinstance(entry, jax.tree_util.DictKey):
            name += f".{entry.key}"
        elif isinstance(entry, jax.tree_util.GetAttrKey):
            name += f".{entry.name}"
        elif isinstance(entry, jax.tree_util.SequenceKey):
            name += f"[{entry.idx}]"
        else:
            name += str(entry)
    return name.lstrip(".") or "params"


def same_structure(a: PyTree, b: PyTree) -> bool:
    """Whether two trees have the same nodes."""
    return bool(jax.tree.structure(a) == jax.tree.structure(b))  # type: ignore[operator]


def size(tree: PyTree) -> int:
    """Number of scalars in all leaves."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))


def nbytes(tree: PyTree) -> int:
    """Bytes in all leaves."""
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def normal_like(key: Key, tree: PyTree, many_normals: int = MANY_NORMALS) -> PyTree:
    """Independent standard normals in the shape of `tree`.

    All leaves from one call to the generator; those of large networks leaf by leaf, in pairs of neighbours.
    """
    leaves, treedef = jax.tree.flatten(tree)
    total, dtype = size(tree), jnp.result_type(*leaves)
    threefry = str(jax.random.key_impl(key)).startswith("threefry")
    many = total >= many_normals and dtype == jnp.float32 and threefry
    flat = None if many else normal(key, total, dtype)
    out, start = [], 0
    for leaf in leaves:
        length = math.prod(leaf.shape)
        if flat is None:
            part, used = normals_in_pairs(key, start, leaf.shape), (length + 1) // 2
        else:
            part, used = flat[start : start + length].reshape(leaf.shape), length
        out.append(part.astype(leaf.dtype))
        start += used
    return jax.tree.unflatten(treedef, out)


def add(a: PyTree, b: PyTree) -> PyTree:
    """Leafwise a + b."""
    return jax.tree.map(jnp.add, a, b)


def subtract(a: PyTree, b: PyTree) -> PyTree:
    """Leafwise a - b."""
    return jax.tree.map(jnp.subtract, a, b)


def scale(factor: ArrayLike, tree: PyTree) -> PyTree:
    """Leafwise factor * leaf, in the leaf's own precision."""
    return jax.tree.map(lambda leaf: (factor * leaf).astype(leaf.dtype), tree)


def zeros_like(tree: PyTree) -> PyTree:
    """A tree of zeros."""
    return jax.tree.map(jnp.zeros_like, tree)


def vdot(a: PyTree, b: PyTree) -> Array:
    """Inner product over all leaves."""
    products = [jnp.vdot(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)]
    return sum(products[1:], products[0])


def norm(tree: PyTree) -> Array:
    """Euclidean norm over all leaves."""
    return jnp.sqrt(vdot(tree, tree))


def pick(tree: dict[str, Any], names: tuple[str, ...]) -> PyTree:
    """The named part of a dict: the entry itself for one name, a dict for several."""
    return tree[names[0]] if len(names) == 1 else {name: tree[name] for name in names}


def put(tree: dict[str, Any], names: tuple[str, ...], part: PyTree) -> dict[str, Any]:
    """The dict with the part that `pick` returns replaced."""
    return {**tree, **({names[0]: part} if len(names) == 1 else part)}


def broadcast_prefix(
    prefix: PyTree, tree: PyTree, name: str, is_leaf: Callable[[Any], bool] | None = None, hint: str = ""
) -> PyTree:
    """Repeat the leaves of `prefix` so that they match `tree` leaf by leaf.

    A single leaf (a number, a schedule) applies to every parameter; a dict applies to the parameters it names.
    """
    if isinstance(prefix, dict) and isinstance(tree, dict) and set(prefix) != set(tree):
        unknown, missing = sorted(set(prefix) - set(tree)), sorted(set(tree) - set(prefix))
        problem = f"names {unknown} that are not parameters" if unknown else f"lacks {missing}"
        raise InvalidValueError(f"`{name}` {problem}. The parameters are {sorted(tree)}.{hint}")
    try:
        leaves = jax.tree.map(lambda value, part: jax.tree.map(lambda _: value, part), prefix, tree, is_leaf=is_leaf)
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidValueError(
            f"`{name}` has the structure {jax.tree.structure(prefix, is_leaf=is_leaf)}, which does not match the "
            f"parameters {jax.tree.structure(tree)}. Give one value for all, or one for each named parameter."
        ) from error
    return leaves


def matrix(tree: PyTree, dtype: Any = np.float64) -> np.ndarray:
    """Leaves (row, ...) side by side, as a matrix."""
    leaves = [np.asarray(leaf, dtype) for leaf in jax.tree.leaves(tree)]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)
