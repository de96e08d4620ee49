"""Run the Python code on Markdown pages, so that what a reader copies is known to work.

usage: run_pages.py PAGE.md ...

The ```python blocks of a page run in order as one program, in a process and an empty folder of their own; blocks
that start with ``>>>`` are checked as doctests. A block marked ```python no-run is only shown. Exits 1 when a
page fails.
"""

import doctest
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import time

FENCE = re.compile(r"(?ms)^(?P<indent>[ \t]*)```python[ \t]*\n(?P<code>.*?)^(?P=indent)```[ \t]*$")


def blocks(text: str) -> list[tuple[int, str]]:
    """Return the first line's number and the code of each block that is meant to run."""
    return [
        (text.count("\n", 0, match.start("code")) + 1, textwrap.dedent(match["code"]))
        for match in FENCE.finditer(text)
    ]


def run_page(page: pathlib.Path) -> int:
    """Run one page in this process; return the number of failed doctest examples."""
    names: dict[str, object] = {"__name__": "__main__"}
    failed = 0
    for line, code in blocks(page.read_text(encoding="utf-8")):
        if code.lstrip().startswith(">>>"):
            test = doctest.DocTestParser().get_doctest(code, names, page.name, str(page), line - 1)
            flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
            failed += doctest.DocTestRunner(optionflags=flags).run(test, clear_globs=False).failed
            names.update(test.globs)
        else:  # the blank lines in front make a traceback point at the page's own lines
            exec(compile("\n" * (line - 1) + code, str(page), "exec"), names)
    return failed


def main(arguments: list[str]) -> int:
    """Run each page in a process of its own and say which failed."""
    if arguments[:1] == ["--one"]:
        return min(run_page(pathlib.Path(arguments[1])), 1)
    status = 0
    for page in map(pathlib.Path, arguments):
        if not blocks(page.read_text(encoding="utf-8")):
            continue
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, __file__, "--one", str(page.resolve())]
            result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        print(f"{page}: {'failed' if result.returncode else 'ok'} ({time.perf_counter() - start:.0f} s)")
        if result.returncode:
            print(result.stdout + result.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
