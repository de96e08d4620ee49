"""Run the code on Markdown pages, so that what a reader copies is known to work.

usage: run_pages.py PAGE.md ...

Which blocks run is said in page_blocks.py. Each page has a process and an empty folder of its own. Exits 1 when
a page fails. (The pages in docs/ are run by the build of the documentation, `make docs`; this is for all others.)

With SCIROCCO_DOCS_RUN=some, as in CI, of the pages after the first every third is run, and those that the last commit
changed; SCIROCCO_TEST_ALL=1 runs all of them there, too.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

from page_blocks import Block, blocks, changed_files, check_examples, choice, environment, run_shell


def run_block(block: Block, page: pathlib.Path, names: dict[str, object]) -> None:
    """Run one block; what it defines is added to ``names``."""
    if block.language == "sh":
        run_shell(block.code)
    elif block.examples:
        check_examples(block.code, names, str(page), block.line)
    else:  # the blank lines in front make a traceback point at the page's own lines
        exec(compile("\n" * block.line + block.code, str(page), "exec"), names)


def run_page(page: pathlib.Path) -> None:
    """Run one page in this process and in the current folder."""
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.runs:
            run_block(block, page, names)


def chosen(pages: list[str]) -> list[str]:
    """Return the pages to run: all, or some of them."""
    if os.environ.get("SCIROCCO_DOCS_RUN") != "some" or os.environ.get("SCIROCCO_TEST_ALL"):
        return pages
    changed = changed_files()
    return pages[:1] + [
        page for number, page in enumerate(pages[1:]) if page in changed or (number - choice()) % 3 == 0
    ]


def main(arguments: list[str]) -> int:
    """Run each page in a process of its own and say which failed."""
    if arguments[:1] == ["--one"]:
        run_page(pathlib.Path(arguments[1]))
        return 0
    status = 0
    for page in map(pathlib.Path, chosen(arguments)):
        if not any(block.runs for block in blocks(page.read_text(encoding="utf-8"))):
            continue
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, __file__, "--one", str(page.resolve())]
            result = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment()
            )
        print(f"{page}: {'failed' if result.returncode else 'ok'} ({time.perf_counter() - start:.0f} s)")
        if result.returncode:
            print(result.stdout + result.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
