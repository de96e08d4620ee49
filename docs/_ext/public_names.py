"""The reference: a ```{names} block becomes a table of names and their docstrings.

```{names}
scirocco.transforms
interval
positive: The description of a value, which has no docstring.
```

The first line is the module that contains the names. With ``:inherited:`` after the module, inherited members are
shown too; models need this, samplers do not. A line ``...`` stands for all other names in the module's `__all__`: those
that no page names, here or under another module.
"""

import functools
import importlib
import inspect
import pathlib
import types

PAGES = pathlib.Path(__file__).resolve().parents[1] / "api"


def names(code: str) -> tuple[str, dict[str, str], list[str]]:
    """Return the module of a block, its names with their descriptions, and its options."""
    module, texts, options = written(code)
    found = {}
    for name, text in texts.items():
        found |= dict.fromkeys(others(module), "") if name == "..." else {name: text}
    return module, found, options


def written(code: str) -> tuple[str, dict[str, str], list[str]]:
    """Return what a block says, with ``...`` as a name."""
    head, *rest = [line.strip() for line in code.splitlines() if line.strip()]
    module, *options = head.split()
    return module, {name: text.strip() for name, _, text in (line.partition(":") for line in rest)}, options


def others(module: str) -> list[str]:
    """Return the public names of a module that no page names."""
    home = importlib.import_module(module)
    values = {name: getattr(home, name) for name in home.__all__}
    return [
        name
        for name, value in values.items()
        if not isinstance(value, types.ModuleType) and all(value is not known for known in named())
    ]


@functools.cache
def named() -> list[object]:
    """Return everything that a block on a page of the reference names."""
    texts = [page.read_text(encoding="utf-8") for page in sorted(PAGES.glob("*.md"))]
    codes = [part.partition("```")[0] for text in texts for part in text.split("```{names}\n")[1:]]
    blocks = [written(code)[:2] for code in codes]
    return [
        getattr(importlib.import_module(module), name) for module, listed in blocks for name in listed if name != "..."
    ]


def entries(code: str) -> str:
    """Return the Markdown (with reStructuredText for autodoc) that replaces a block of names."""
    module, texts, options = names(code)
    home = importlib.import_module(module)
    listed = [name for name in texts if callable(getattr(home, name))]
    lines = ["````{eval-rst}", f".. currentmodule:: {module}", ""]
    if len(listed) > 1:
        lines += [".. autosummary::", "   :nosignatures:", "", *(f"   {name}" for name in listed), ""]
    for name, text in texts.items():
        lines += entry(name, getattr(home, name), text, ":inherited:" in options)
    return "\n".join([*lines, "````"])


def entry(name: str, value: object, text: str, inherited: bool) -> list[str]:
    """Return the autodoc directive for a value."""
    if inspect.isclass(value):
        # members of tuples and exceptions are not documented here
        skipped = ["   :inherited-members: tuple, BaseException, object"] if inherited else []
        return [f".. autoclass:: {name}", "   :members:", *skipped, ""]
    if callable(value):
        return [f".. autofunction:: {name}", ""]
    if not text:
        raise ValueError(f"{name} is a value without a docstring: describe it with `{name}: ...`")
    return [f".. py:data:: {name}", "", f"   {text}", ""]
