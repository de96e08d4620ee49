"""The size of the house in numbers: files, small modules, loose types, contracts, and the way of one call through it.

    python tools/house_numbers.py                  # the counts
    python tools/house_numbers.py --rooms          # loose types, small modules and attribute look-ups by room
    python tools/house_numbers.py --list small     # the modules with one importer and under 120 lines; see --help
    python tools/house_numbers.py --trace sample   # the files of one call
    python tools/house_numbers.py --trace all      # files, depth and crossings between rooms of all calls in `journeys`

It measures the installed `scirocco` (the core) and `scirocco_latent`; PYTHONPATH names another checkout. Nothing here
judges.
"""

from __future__ import annotations

import argparse
import ast
import collections
import pathlib
import sys
import tempfile
from typing import Any

import scirocco
import scirocco_latent

PACKAGES = {package.__name__: pathlib.Path(package.__file__).parent for package in (scirocco, scirocco_latent)}
TESTS = [pathlib.Path(__file__).parents[1] / folder for folder in ("core/tests", "latent/tests", "tests")]
SMALL = 120
"""Lines of a module that could be part of its only importer."""
CONTRACTS = {"samplers.base": "Sampler", "estimators.base": "Estimator", "model.base": "Posterior"}
"""The abstract classes whose members are counted."""


def modules() -> dict[str, pathlib.Path]:
    """Every module of the packages by its dotted name."""
    found = {}
    for name, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = [name, *path.relative_to(folder).with_suffix("").parts]
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(name: str, path: pathlib.Path, known: dict[str, pathlib.Path]) -> set[str]:
    """The modules of the packages that a module imports."""
    out = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            targets = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for target in targets:
            while target and target not in known:
                target = target.rpartition(".")[0]
            if target and target != name:
                out.add(target)
    return out


def small_modules(known: dict[str, pathlib.Path]) -> list[str]:
    """Modules of under 120 lines that one other module imports (packages' own files apart)."""
    importers = collections.Counter()
    for name, path in known.items():
        importers.update(imported(name, path, known))
    return [
        name
        for name, path in known.items()
        if path.name != "__init__.py" and importers[name] == 1 and len(path.read_text().splitlines()) < SMALL
    ]


def arguments(tree: ast.AST) -> tuple[int, int]:
    """Annotated arguments, and those whose annotation is a bare `Any`."""
    total = loose = 0
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            args = node.args
            for arg in [*args.posonlyargs, *args.args, *args.kwonlyargs]:
                if arg.annotation is not None:
                    total += 1
                    loose += isinstance(arg.annotation, ast.Name) and arg.annotation.id == "Any"
    return total, loose


def lookups(tree: ast.AST) -> int:
    """Calls of `getattr` and `hasattr`."""
    return sum(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr")
        for node in ast.walk(tree)
    )


def looks_public(name: str) -> bool:
    """Whether no part of a dotted name begins with an underscore."""
    return not any(part.startswith("_") for part in name.split("."))


def constants_without_a_word(path: pathlib.Path) -> tuple[list[str], int]:
    """Numeric constants of a module that neither a comment nor a string below explains, and how many it has."""
    lines, body = path.read_text().splitlines(), ast.parse(path.read_text()).body
    silent, total = [], 0
    for node, following in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        names = [target.id for target in ast.walk(node) if isinstance(target, ast.Name) and target.id.isupper()]
        if not names or not any(_is_number(part) for part in ast.walk(node.value)):
            continue
        total += 1
        explained = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
        commented = any("#" in line for line in lines[node.lineno - 1 : node.end_lineno])
        above = lines[node.lineno - 2].startswith("#") if node.lineno > 1 else False
        if not (explained or commented or above):
            silent += names
    return silent, total


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def repeated_classes(known: dict[str, pathlib.Path]) -> dict[str, int]:
    """Names of classes that several modules define."""
    found = collections.Counter(
        node.name
        for path in known.values()
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    )
    return {name: number for name, number in found.most_common() if number > 1}


def private_names_of_tests() -> dict[str, tuple[set[str], list[str]]]:
    """Of each file of tests that has some: private names of the library it uses, and what it patches of the library."""
    found = {}
    for path in sorted(file for folder in TESTS for file in folder.rglob("*.py")):
        tree, used = ast.parse(path.read_text()), set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("scirocco"):
                dotted = [f"{node.module}.{alias.name}" for alias in node.names]
                used.update(name for name in dotted if not looks_public(name.replace("._core", "")))
            elif isinstance(node, ast.Attribute) and _is_private(node.attr):
                owner = node.value.id if isinstance(node.value, ast.Name) else ""
                used.update({node.attr} if owner not in ("self", "cls", "os") else ())
        if used or patches_of(tree):
            found[str(path.relative_to(TESTS[-1].parent))] = used, patches_of(tree)
    return found


def _is_private(name: str) -> bool:
    """Whether it is private: not of Python itself, of named tuples, or what notebooks ask for."""
    documented = name in ("_replace", "_asdict", "_fields", "_make") or name.startswith("_repr_")
    return name.startswith("_") and not name.startswith("__") and not documented


def patches_of(tree: ast.AST) -> list[str]:
    """What a file of tests replaces in the library: by `setattr`, or by an assignment to what it imports from it.

    What it replaces in other libraries is not counted: `jax.default_backend`, `os.fsync`, `time` as a module knows it.
    """
    ours, others = set[str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            own = isinstance(node, ast.ImportFrom) and (node.module or "").startswith("scirocco")
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                (ours if own or alias.name.startswith("scirocco") else others).add(name)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "setattr":
            target = ast.unparse(node.args[0]).strip("'")
            words = target.split(".") + [part.value for part in node.args[1:2] if isinstance(part, ast.Constant)]
            if words[0] not in others and _OTHERS.isdisjoint(words) and isinstance(node.func, ast.Attribute):
                found.append(ast.unparse(node))
        elif isinstance(node, ast.Assign):
            places = [part for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Attribute)]
            stored = [part for part in places if isinstance(part.ctx, ast.Store) and part.attr not in _OTHERS]
            owners = {ast.unparse(part.value) for part in stored}
            found += [ast.unparse(node)] * (not ours.isdisjoint(owners))
    return found


_OTHERS = {*sys.stdlib_module_names, "jax", "numpy", "rich", "rich_console", "open"}
"""Modules and functions of others, by whose names a patch is known as one of theirs."""


def keys_of(name: str, path: pathlib.Path) -> set[str]:
    """The keys of a dict literal that a module assigns to a name."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            if getattr(node.targets[0], "id", "") == name:
                return {ast.literal_eval(key) for key in node.value.keys if isinstance(key, ast.Constant)}
    return set()


def contracts() -> None:
    """Print the numbers of the contracts and of their words."""
    known = modules()
    for module, name in CONTRACTS.items():
        (body,) = (
            node.body
            for node in ast.parse(known[f"scirocco.{module}"].read_text()).body
            if isinstance(node, ast.ClassDef) and node.name == name
        )
        kinds = (ast.FunctionDef, ast.AnnAssign, ast.Assign)
        print(f"members of {name}: {sum(isinstance(node, kinds) for node in body)}")
    pairs = [constants_without_a_word(path) for path in known.values()]
    silent, total = sum(len(names) for names, _ in pairs), sum(number for _, number in pairs)
    print(f"numeric constants without a word: {silent} of {total}")
    repeated = repeated_classes(known)
    most = ", ".join(f"{name} {number}" for name, number in list(repeated.items())[:4])
    print(f"names of classes in several modules: {len(repeated)} ({most})")
    choosing = [path for name, path in known.items() if name.startswith("scirocco.run.choose.")]
    outside = sum(constants_without_a_word(path)[1] for path in choosing if path.stem != "limits")
    print(f"files that choose a method: {len(choosing)}; numeric constants in them outside limits.py: {outside}")
    covered, models = keys_of("CASES", TESTS[-1] / "models" / "test_contract.py"), set[str]()
    for module in ("scirocco.models._core.registry", "scirocco_latent.registry"):
        models |= keys_of("MODELS", known[module])
    missing = ", ".join(sorted(models - covered)) or "none"
    print(f"models under the contract test: {len(models & covered)} of {len(models)} (missing: {missing})")
    of_tests = private_names_of_tests().values()
    names, files = sum(len(used) for used, _ in of_tests), sum(bool(used) for used, _ in of_tests)
    print(f"private names in tests: {names} in {files} files; patches: {sum(len(made) for _, made in of_tests)}")


def _room_of_module(path: pathlib.Path) -> str:
    """The folder of its package that a module is in."""
    parts = pathlib.Path(inside(str(path)) or "").parts
    return parts[1] if len(parts) > 2 else "(top)"


def inside(file: str) -> str:
    """A file from its package on, `scirocco/run/loop.py`; empty if it is in none of the packages."""
    for name, folder in PACKAGES.items():
        if file.startswith(f"{folder}/"):
            return f"{name}/{pathlib.Path(file).relative_to(folder)}"
    return ""


def counts(by_room: bool) -> None:
    """Print the counts."""
    known = modules()
    small = small_modules(known)
    rows: dict[str, list[int]] = collections.defaultdict(lambda: [0] * 7)
    for name, path in known.items():
        distribution, room = name.partition(".")[0], _room_of_module(path)
        text = path.read_text()
        tree = ast.parse(text)
        total, loose = arguments(tree)
        row = (1, len(text.splitlines()), name in small, looks_public(name), total, loose, lookups(tree))
        for place in (f"{distribution}.{room}", distribution, "all"):
            rows[place] = [a + int(b) for a, b in zip(rows[place], row, strict=True)]
    print(f"{'':32}{'files':>6}{'lines':>8}{'small':>7}{'public':>8}{'Any':>7}{'of args':>9}{'%':>6}{'getattr':>9}")
    for room in sorted(rows, key=lambda place: (place == "all", place)):
        if by_room or "." not in room:
            files, lines, few, public, total, loose, looked = rows[room]
            share = 100 * loose / max(1, total)
            print(f"{room:32}{files:6}{lines:8}{few:7}{public:8}{loose:7}{total:9}{share:6.1f}{looked:9}")


def journeys() -> dict[str, Any]:
    """Calls whose way through the package is followed; each takes a folder to write to."""
    import numpy as np
    import pandas as pd

    import scirocco as sc

    rng = np.random.default_rng(0)
    x = rng.standard_normal((2_000, 3)).astype(np.float32)
    y = (rng.random(2_000) < 0.5).astype(np.float32)

    def sample(folder: str) -> None:
        model = sc.Model(lambda mu, row: -0.5 * ((row - mu) ** 2).sum(), lambda mu: -0.5 * (mu**2).sum())
        sc.sample(
            model,
            x,
            np.zeros(3),
            sampler=sc.SGLD(step_size=1e-5),
            estimator=sc.ControlVariates(batch_size=100),
            num_samples=500,
            store=f"{folder}/run",
            progress=False,
        )

    def lda(folder: str) -> None:
        counts = rng.poisson(0.3, (60, 40))
        counts[:, 0] += 1
        sc.models.LDA(3, seed=0, batch_size=10).fit(counts, num_epochs=2, progress=False)

    def regression(folder: str) -> None:
        sc.models.LogisticRegression().fit(x, y)

    def plain(folder: str) -> None:
        model = sc.Model(lambda mu, row: -0.5 * ((row - mu) ** 2).sum(), lambda mu: -0.5 * (mu**2).sum())
        sc.sample(model, x, np.zeros(3), progress=False)

    def hmm(folder: str) -> None:
        sc.models.HMM(2, num_starts=2).fit(x[:80, 0], num_epochs=4, progress=False)

    def blocks(folder: str) -> None:
        edges = [(i, j) for i in range(16) for j in range(i) if (i + j) % 2 == 0]
        sc.models.StochasticBlockModel(2).fit(edges, num_epochs=4, progress=False)

    def glmm(folder: str) -> None:
        table = pd.DataFrame({"x": x[:150, 0], "g": np.arange(150) % 8, "y": x[:150, 1]})
        sc.models.GLMM("y ~ x + (1 | g)").fit(table, num_epochs=4, progress=False)

    models = sc.models
    assert (  # imported now: the way through the package is followed, not its imports
        sc.sample and models.LDA and models.HMM and models.StochasticBlockModel and models.GLMM
    )
    return {
        "sample": sample,
        "plain": plain,
        "lda": lda,
        "hmm": hmm,
        "blocks": blocks,
        "glmm": glmm,
        "regression": regression,
    }


def trace(which: str) -> tuple[collections.Counter[str], int, int]:
    """The files of the packages that a call visits, its deepest frame, and its crossings between rooms."""
    call = journeys()[which]
    visited: collections.Counter[str] = collections.Counter()
    deepest, crossings, stack = 0, 0, list[str]()
    rooms: dict[str, str] = {}

    def room_of(file: str) -> str:
        """The folder of the package, or the file; a model of the other distribution is in the folder `models`."""
        if file not in rooms:
            package, *parts = pathlib.Path(inside(file)).parts or ("",)
            rooms[file] = "models" if package == "scirocco_latent" else parts[0] if parts else ""
        return rooms[file]

    def profile(frame: Any, event: str, arg: Any) -> None:
        nonlocal deepest, crossings
        file = frame.f_code.co_filename
        room = room_of(file)
        if not room:
            return
        if event == "call":
            crossings += bool(stack) and stack[-1] != room
            stack.append(room)
            visited[file] += 1
            deepest = max(deepest, len(stack))
        elif event == "return" and stack:
            stack.pop()

    with tempfile.TemporaryDirectory() as folder:
        sys.setprofile(profile)
        try:
            call(folder)
        finally:
            sys.setprofile(None)
    return visited, deepest, crossings


def main() -> None:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rooms", action="store_true", help="by room")
    parser.add_argument(
        "--list", choices=["small", "any", "getattr", "constants", "classes", "tests"], help="name them"
    )
    parser.add_argument("--trace", help="follow a call, or all of them")
    asked = parser.parse_args()
    if asked.trace:
        for which in journeys() if asked.trace == "all" else [asked.trace]:
            visited, deepest, crossings = trace(which)
            print(f"{which}: {len(visited)} files, deepest frame {deepest}, {crossings} crossings")
            for path in sorted(visited) if asked.trace != "all" else ():
                print(f"  {inside(path)} {visited[path]}")
    elif asked.list == "small":
        print("\n".join(small_modules(modules())))
    elif asked.list == "tests":
        for name, (used, made) in private_names_of_tests().items():
            print(f"{name}: {', '.join(sorted(used))}", *made, sep="\n    ")
    elif asked.list == "classes":
        print("\n".join(f"{number:4} {name}" for name, number in repeated_classes(modules()).items()))
    elif asked.list == "constants":
        for name, path in modules().items():
            if silent := constants_without_a_word(path)[0]:
                print(f"{name}: {', '.join(silent)}")
    elif asked.list:
        for name, path in modules().items():
            tree = ast.parse(path.read_text())
            number = arguments(tree)[1] if asked.list == "any" else lookups(tree)
            if number:
                print(f"{number:4} {name}")
    else:
        counts(asked.rooms)
        contracts()


if __name__ == "__main__":
    main()
