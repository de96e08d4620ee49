"""The size of the house in numbers: files, small modules, loose types, and the way of one call through it.

    python tools/house_numbers.py                 # the counts
    python tools/house_numbers.py --rooms         # loose types, small modules and attribute look-ups by room
    python tools/house_numbers.py --list small    # the modules with one importer and under 120 lines
    python tools/house_numbers.py --trace sample  # files and frames of sc.sample(store=); also: lda, regression

Nothing here judges.
"""

from __future__ import annotations

import argparse
import ast
import collections
import pathlib
import sys
import tempfile
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "scirocco"
SMALL = 120


def modules() -> dict[str, pathlib.Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ["scirocco", *path.relative_to(PACKAGE).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(name: str, path: pathlib.Path, known: dict[str, pathlib.Path]) -> set[str]:
    """The modules of the package that a module imports."""
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
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("getattr", "hasattr")
        for node in ast.walk(tree)
    )


def looks_public(name: str) -> bool:
    """Whether no part of a dotted name begins with an underscore."""
    return not any(part.startswith("_") for part in name.split("."))


def counts(by_room: bool) -> None:
    """Print the counts."""
    known = modules()
    small = small_modules(known)
    rows: dict[str, list[int]] = collections.defaultdict(lambda: [0] * 7)
    for name, path in known.items():
        parts = name.split(".")
        room = parts[1] if len(parts) > 1 and (PACKAGE / parts[1]).is_dir() else "(top)"
        text = path.read_text()
        tree = ast.parse(text)
        total, loose = arguments(tree)
        row = (
            1,
            len(text.splitlines()),
            name in small,
            looks_public(name),
            total,
            loose,
            lookups(tree),
        )
        for place in (room, "all"):
            rows[place] = [a + int(b) for a, b in zip(rows[place], row, strict=True)]
    print(
        f"{'':14}{'files':>6}{'lines':>8}{'small':>7}{'public':>8}{'Any':>7}{'of args':>9}{'%':>6}{'getattr':>9}"
    )
    for room in sorted(rows, key=lambda place: (place == "all", place)):
        if by_room or room == "all":
            files, lines, few, public, total, loose, looked = rows[room]
            share = 100 * loose / max(1, total)
            print(f"{room:14}{files:6}{lines:8}{few:7}{public:8}{loose:7}{total:9}{share:6.1f}{looked:9}")


def journeys() -> dict[str, Any]:
    """Calls whose way through the package is followed; each takes a folder to write to."""
    import numpy as np

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

    assert (
        sc.sample and sc.models.LDA
    )  # imported now: the way through the package is followed, not its imports
    return {"sample": sample, "lda": lda, "regression": regression}


def trace(which: str) -> None:
    """Print how many files of the package a call visits, and how deep it goes (frames of the package alone)."""
    call = journeys()[which]
    visited: collections.Counter[str] = collections.Counter()
    deepest, stack = 0, 0
    here = str(PACKAGE)

    def profile(frame: Any, event: str, arg: Any) -> None:
        nonlocal deepest, stack
        if not frame.f_code.co_filename.startswith(here):
            return
        if event == "call":
            stack += 1
            visited[frame.f_code.co_filename] += 1
            deepest = max(deepest, stack)
        elif event == "return":
            stack -= 1

    with tempfile.TemporaryDirectory() as folder:
        sys.setprofile(profile)
        try:
            call(folder)
        finally:
            sys.setprofile(None)
    print(f"{which}: {len(visited)} files, deepest frame {deepest}")
    for path in sorted(visited):
        print(f"  {pathlib.Path(path).relative_to(PACKAGE)} {visited[path]}")


def main() -> None:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rooms", action="store_true", help="by room")
    parser.add_argument("--list", choices=["small", "any", "getattr"], help="name them")
    parser.add_argument("--trace", choices=["sample", "lda", "regression"], help="follow a call")
    asked = parser.parse_args()
    if asked.trace:
        trace(asked.trace)
    elif asked.list == "small":
        print("\n".join(small_modules(modules())))
    elif asked.list:
        for name, path in modules().items():
            tree = ast.parse(path.read_text())
            number = arguments(tree)[1] if asked.list == "any" else lookups(tree)
            if number:
                print(f"{number:4} {name}")
    else:
        counts(asked.rooms)


if __name__ == "__main__":
    main()
