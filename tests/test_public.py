"""Public is what `__all__` of a public module names; the reference shows all of it, and nothing else.

The public modules are `scirocco` and those that docs/api takes names from. Every other import path is private
(docs/ARCHITECTURE.md, "What is public").
"""

import ast
import importlib
import pathlib
import re
import subprocess
import sys
import tomllib
from types import ModuleType

import pytest

import scirocco

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
sys.path[:0] = [str(ROOT / "tools"), str(DOCS / "_ext")]

from page_blocks import blocks  # noqa: E402
from public_names import names  # noqa: E402

pytestmark = pytest.mark.unit

INNER = {"store", "demo", "jobs", "drawing"}
"""Rooms without public names."""
FOR_CONTRIBUTORS = {"add_a_model.md"}
"""Pages about code inside the library, which is private."""


def documented():
    """(module, name) of everything that the reference shows."""
    for page in sorted((DOCS / "api").glob("*.md")):
        for block in blocks(page.read_text(encoding="utf-8")):
            if block.language == "{names}":
                module, listed, _ = names(block.code)
                yield from ((module, name) for name in listed)


SHOWN = list(documented())
MODULES = sorted({module for module, _ in SHOWN})


def rooms():
    """The parts of the package, by the house's own list; `types` are for annotations, `cli` is a program."""
    layers = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["house"]["layers"]
    listed = [room for layer in layers for room in (layer if isinstance(layer, list) else [layer])]
    return [room for room in listed if not room.startswith("_") and room not in ("types", "cli")]


def test_every_room_is_in_the_reference_or_has_no_public_names():
    inside = {module.split(".")[1] for module in MODULES if "." in module}
    for room in rooms():
        assert (room in inside) != (room in INNER), room


@pytest.mark.parametrize("room", rooms())
def test_every_room_says_what_it_offers(room):
    module = importlib.import_module(f"scirocco.{room}")
    assert len(module.__all__) == len(set(module.__all__)), "a name stands twice"
    for name in module.__all__:
        assert hasattr(module, name), f"scirocco.{room}.__all__ names {name}, which is not there"


def test_the_other_names_of_a_module_are_those_that_no_page_names():
    assert names("scirocco.simplex\n...") == ("scirocco.simplex", {"GammaState": "", "LazySCIR": ""}, [])
    assert list(names("scirocco.report :inherited:\nshow: In a browser.\n...")[1]) == [
        "show", "Html", "Report", "Section", "View"
    ]  # fmt: skip


def test_no_name_stands_twice_in_the_reference():
    assert len(SHOWN) == len(set(SHOWN))


@pytest.mark.parametrize("path", MODULES)
def test_what_the_reference_shows_is_public(path):
    module = importlib.import_module(path)
    for name in (name for shown, name in SHOWN if shown == path):
        assert name in module.__all__, f"docs/api shows {path}.{name}, which is not in its __all__"
        assert hasattr(module, name), f"docs/api shows {path}.{name}, which cannot be imported"


@pytest.mark.parametrize("path", MODULES)
def test_what_is_public_is_in_the_reference(path):
    """Under this path or another public one."""
    shown = {id(getattr(importlib.import_module(module), name)) for module, name in SHOWN}
    module = importlib.import_module(path)
    for name in (name for name in module.__all__ if not name.startswith("_")):
        value = getattr(module, name)
        if isinstance(value, ModuleType):
            assert value.__name__ in MODULES or value.__name__.rpartition(".")[0] in MODULES, value.__name__
        else:
            assert id(value) in shown, f"{path}.{name} is not in docs/api"


def imported(code):
    """The dotted names that some code imports from this package."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_pages_import_public_names_alone():
    public = {f"{module}.{name}" for module in MODULES for name in importlib.import_module(module).__all__}
    public |= {*MODULES, "scirocco"}
    pages = [page for page in sorted(DOCS.glob("*.md")) if page.name not in FOR_CONTRIBUTORS]
    for page in [ROOT / "README.md", *pages]:
        for block in blocks(page.read_text(encoding="utf-8")):
            if block.language == "python":
                code = re.sub(r"(?m)^(>>> |\.\.\. )", "", block.code) if block.examples else block.code
                lines = [line.strip() for line in code.splitlines()]
                found = imported("\n".join(line for line in lines if re.match(r"(from|import) scirocco\b", line)))
                for path in found:
                    assert path in public, f"{page.name} imports {path}, which is private"


def test_dir_lists_what_is_public_and_no_imports():
    """Before anything is used: subpackages and bridges too, which are imported when they are first used."""
    program = "import scirocco as sc; print(*dir(sc))"
    listed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert {"models", "analysis", "datasets", "from_numpyro", "sample", "transforms"} <= set(listed)
    assert not {"importlib", "Any", "TYPE_CHECKING"} & set(listed)
    for name in ("analysis", "data", "datasets", "errors", "models", "reducers", "schedules", "transforms"):
        assert dir(getattr(scirocco, name)) == sorted(getattr(scirocco, name).__all__)
    with pytest.raises(AttributeError, match=r"Did you mean `sc.NUTS`"):
        getattr(scirocco, "nuts")  # noqa: B009
