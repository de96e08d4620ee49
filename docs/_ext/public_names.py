"""The reference: a ```{names} block becomes a table of names and their docstrings.

```{names}
scirocco.transforms
interval
positive: What a value stands for, which has no docstring of its own.
```

The first line is the module to take the names from. ``:inherited:`` after the module also shows what classes
inherit, which models need and samplers do not.
"""

import importlib
import inspect


def names(code: str) -> tuple[str, dict[str, str], list[str]]:
    """Return the module of a block, its names with what is said of them, and its options."""
    head, *rest = [line.strip() for line in code.splitlines() if line.strip()]
    module, *options = head.split()
    return module, {name: text.strip() for name, _, text in (line.partition(":") for line in rest)}, options


def entries(code: str) -> str:
    """Return the Markdown (with reStructuredText for autodoc inside) that a block of names stands for."""
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
    """Return the directive that suits a value."""
    if inspect.isclass(value):
        # what tuples and exceptions bring along is not ours to document
        skipped = ["   :inherited-members: tuple, BaseException, object"] if inherited else []
        return [f".. autoclass:: {name}", "   :members:", *skipped, ""]
    if callable(value):
        return [f".. autofunction:: {name}", ""]
    if not text:
        raise ValueError(f"{name} is a value and has no docstring: say what it is, `{name}: ...`")
    return [f".. py:data:: {name}", "", f"   {text}", ""]
