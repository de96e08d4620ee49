"""The reference: a ```{names} block becomes a table of names and their docstrings.

```{names}
scirocco.transforms
interval
positive: The description of a value, which has no docstring.
```

The first line is the module that contains the names. With ``:inherited:`` after the module, inherited members are
shown too; models need this, samplers do not.
"""

import importlib
import inspect


def names(code: str) -> tuple[str, dict[str, str], list[str]]:
    """Return the module of a block, its names with their descriptions, and its options."""
    head, *rest = [line.strip() for line in code.splitlines() if line.strip()]
    module, *options = head.split()
    return module, {name: text.strip() for name, _, text in (line.partition(":") for line in rest)}, options


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
