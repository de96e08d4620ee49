"""The fenced blocks of a Markdown page: which of them run, and how one is run.

```python blocks run in order as one program, in an empty folder; those that start with ``>>>`` are checked as
doctests. ```sh blocks run in the same folder, in their turn. Blocks of other languages are only shown, as are
```python no-run REASON and ```sh no-run REASON. A Python block whose first line is ``# hide`` runs, but a built
page does not show it. A ```text block right after one that runs is what that printed once, for who reads the plain
file; a built page shows what it prints now.
"""

import doctest
import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys
from typing import Any, NamedTuple

LANGUAGES = ("python", "sh")
OPENING = re.compile(r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^`]*)$")
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


class Block(NamedTuple):
    """A fenced block; lines count from 1, ``line`` is that of the opening fence and ``end`` that of the closing one."""

    language: str
    reason: str | None  # why it is not run; None where nothing was said
    code: str
    indent: str
    line: int
    end: int

    @property
    def runs(self) -> bool:
        """Whether it is a block of a language that is run, and is meant to be."""
        return self.language in LANGUAGES and self.reason is None

    @property
    def hidden(self) -> bool:
        """Whether it runs without being shown."""
        return self.language == "python" and self.code.split("\n", 1)[0].strip() == "# hide"

    @property
    def examples(self) -> bool:
        """Whether it is a session to be checked, prompts and answers."""
        return self.language == "python" and self.code.lstrip().startswith(">>>")


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a page in order, also those that are only shown."""
    found = []
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        opening = OPENING.match(lines[number])
        if opening is None:
            number += 1
            continue
        closing = re.compile(rf"^[ \t]*{opening['fence'][0]}{{{len(opening['fence'])},}}[ \t]*$")
        end = next((n for n in range(number + 1, len(lines)) if closing.match(lines[n])), len(lines))
        indent = len(opening["indent"])
        code = "".join(line[min(indent, len(line) - len(line.lstrip())) :] + "\n" for line in lines[number + 1 : end])
        language, _, rest = opening["info"].strip().partition(" ")
        mark, _, reason = rest.strip().partition(" ")
        said = reason.strip() if mark == "no-run" else None
        found.append(Block(language, said, code, opening["indent"], number + 1, end + 1))
        number = end + 1
    return found


def quick_compiler() -> str:
    """Return the XLA_FLAGS that halve what compiling costs; newer versions lack them, and stop at unknown ones."""
    known = importlib.metadata.version("jaxlib").startswith("0.10.")
    return "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1" if known else ""


def choice() -> int:
    """Return the number that picks cases and pages where some are run: SCIROCCO_TEST_PAIRS, or one from the commit."""
    if "SCIROCCO_TEST_PAIRS" in os.environ:
        return int(os.environ["SCIROCCO_TEST_PAIRS"])
    commit = _git("rev-parse", "HEAD")
    return int(commit[:8], 16) % 100 if commit else 0


def seed() -> int:
    """Return the seed of random tests, 0 to 99: SCIROCCO_TEST_SEED, or one from the commit."""
    if "SCIROCCO_TEST_SEED" in os.environ:
        return int(os.environ["SCIROCCO_TEST_SEED"])
    commit = _git("rev-parse", "HEAD")
    return int(commit[8:16], 16) % 100 if commit else 0


def changed_files() -> set[str]:
    """Return the files that the last commit or merge changed, or that have changed since."""
    return set(_git("diff", "--name-only", "HEAD~1").split())


def changed_pages() -> set[str]:
    """Return the names of the pages in docs/ that the last commit changed, or that have changed since."""
    return {pathlib.Path(file).stem for file in _git("diff", "--name-only", "HEAD~1", "--", "docs").split()}


def _git(*words: str) -> str:
    """Return what a command of git prints; nothing where it fails."""
    command = ["git", "-C", str(pathlib.Path(__file__).resolve().parents[1]), *words]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


def environment() -> dict[str, str]:
    """Return the environment that blocks run in: this interpreter's commands first, a CPU, no colours."""
    root = pathlib.Path(__file__).resolve().parents[1]
    own = pathlib.Path(__file__).resolve().parent
    return os.environ | {
        "PATH": os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(own), os.environ.get("PYTHONPATH", "")])),
        "SCIROCCO_DOCS": str(root / "docs"),
        "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu"),
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", quick_compiler()),
        "JAX_TRACEBACK_IN_LOCATIONS_LIMIT": "0",  # no lines of Python in compiled programs
        "MPLBACKEND": os.environ.get("MPLBACKEND", "Agg"),
        "PYTHONUNBUFFERED": "1",
        "PYTHONWARNINGS": "ignore:IProgress not found",  # tqdm, of a notebook without widgets
        "NO_COLOR": "1",
        "TERM": "dumb",
        "COLUMNS": "100",
    }


def run_shell(code: str) -> None:
    """Run a ```sh block in the current folder and print what it prints; the first command that fails ends it.

    Paths in that folder are printed as seen from it: its name is another one each time.
    """
    result = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(),
    )
    print(COLOURS.sub("", result.stdout).replace(os.getcwd() + os.sep, ""), end="")
    if result.returncode:
        raise RuntimeError(f"a shell block ended with status {result.returncode}:\n{code}\n{result.stdout}")


def check_examples(code: str, names: dict[str, Any], page: str = "page", line: int = 1) -> None:
    """Check a block of ``>>>`` examples; ``names`` is read and changed, as by a block without prompts."""
    test = doctest.DocTestParser().get_doctest(code, names, page, page, line)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    failed = runner.run(test, out=report.append, clear_globs=False).failed
    names.update(test.globs)
    if failed:
        raise AssertionError(f"{failed} of the examples gave something else:\n{''.join(report)}")
