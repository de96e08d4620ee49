"""Plain Markdown pages as notebooks: blocks fenced as python or sh run when the documentation is built.

Pages contain no cells and no metadata, so GitHub shows them as they are. tools/page_blocks.py defines which blocks run.
This module splits a page into notebook cells for myst-nb, which executes them; a failing cell fails the build.
"""

import os
import pathlib
import re
from typing import Any

import nbformat
from docutils import nodes
from page_blocks import Block, blocks, changed_pages, choice
from public_names import entries
from sphinx.application import Sphinx
from sphinx.util.parallel import make_chunks

# Files outside docs/ that have a page in the built documentation.
MIRRORED = {
    "../benchmarks/README.md": "/benchmarks.md",
    "../CHANGELOG.md": "/changelog.md",
    "../CONTRIBUTING.md": "/contributing.md",
    "../README.md": "/index.md",
}
LINK = re.compile(r"\]\((" + "|".join(map(re.escape, MIRRORED)) + r")(#[^)]*)?\)")
UNSEEN = "remove-input"
TIMES = re.compile(
    r"^.*effective draws per second.*\n?"
    r"| ·? ?[\d.,]+[kM]? it/s [· ]*(?:\d+ s|[\d:]+)[· ]* (?:\d+ s left|left [\d:]+)"
    r"| \(\d+(?:\.\d+)? s\)",
    re.MULTILINE,
)
"""What a block prints about time, which depends on the machine that builds the documentation."""
# CPU seconds of the longest pages; all others have about five
SECONDS = {
    "tour": 60,
    "scaling": 45,
    "topics": 40,
    "simplex": 35,
    "hierarchical": 35,
    "trust": 30,
    "gallery": 30,
    "coming_from_blackjax": 30,
    "coming_from_r": 30,
    "models": 25,
    "numpyro": 25,
    "hmm": 20,
    "command_line": 20,
    "reports": 20,
    "large_data": 20,
    "mixtures": 20,
    "networks": 15,
}


def read(text: str) -> nbformat.NotebookNode:
    """Return the notebook of a page."""
    notebook = nbformat.v4.new_notebook()
    lines = text.splitlines()
    source_map: list[int] = []

    def prose(begin: int, end: int) -> None:
        if any(line.strip() for line in lines[begin:end]):
            # myst-nb adds one too many to the lines of prose
            add(begin - 1, nbformat.v4.new_markdown_cell(with_local_links("\n".join(lines[begin:end]))))

    def add(line: int, *cells: nbformat.NotebookNode) -> None:
        notebook.cells.extend(cells)
        source_map.extend([line] * len(cells))

    done, ran = 0, False
    for block in blocks(text):
        follows = not any(line.strip() for line in lines[done : block.line - 1])
        if ran and follows and block.language == "text":  # recorded output, replaced by the current one
            done = block.end
            continue
        ran = block.runs
        cells = cells_of(block, "\n".join(lines[block.line - 1 : block.end]))
        if cells:
            prose(done, block.line - 1)
            add(block.line - 1, *cells)
            done = block.end
    prose(done, len(lines))
    notebook.metadata["source_map"] = source_map
    notebook.metadata["kernelspec"] = {"name": "page", "display_name": "page", "language": "python"}
    return notebook


def cells_of(block: Block, source: str) -> list[nbformat.NotebookNode]:
    """Return the cells of a block; none if the block is prose."""
    if block.language == "{names}":
        return [nbformat.v4.new_markdown_cell(entries(block.code))]
    if block.language in ("python", "sh") and block.reason is not None:
        note = f'<p class="not-run">Not run when this page was built: {block.reason}.</p>'
        return [nbformat.v4.new_markdown_cell(source), nbformat.v4.new_markdown_cell(note)]
    if not block.runs:
        return []
    if block.indent:
        raise ValueError(f"line {block.line}: a block that runs must not be indented")
    if block.language == "sh":
        call = f"__import__('page_blocks').run_shell({block.code!r})"
        return [nbformat.v4.new_markdown_cell(source), hidden(call)]
    if block.examples:
        call = f"__import__('page_blocks').check_examples({block.code!r}, globals(), line={block.line})"
        shown = source.replace("```python", "```pycon", 1)
        return [nbformat.v4.new_markdown_cell(shown), hidden(call)]
    return [hidden(block.code) if block.hidden else nbformat.v4.new_code_cell(block.code.rstrip("\n"))]


def hidden(code: str) -> nbformat.NotebookNode:
    """Return a cell that runs without being shown."""
    return nbformat.v4.new_code_cell(code, metadata={"tags": [UNSEEN]})


def with_local_links(text: str) -> str:
    """Turn links to files that are mirrored in the documentation into links to their pages."""
    return LINK.sub(lambda found: f"]({MIRRORED[found[1]]}{found[2] or ''})", text)


def without_code(folder: pathlib.Path) -> list[str]:
    """Return patterns of the pages without code to run; they need no kernel."""
    pages = sorted(folder.rglob("*.md"))
    return [
        page.relative_to(folder.parent).as_posix()
        for page in pages
        if not any(block.runs for block in blocks(page.read_text(encoding="utf-8")))
    ]


def waiting() -> list[str]:
    """Return patterns of the pages that are left to other commits: two of three of those that have not changed.

    The first page always runs. None are left unless SCIROCCO_DOCS_RUN=some, as in CI; SCIROCCO_TEST_ALL=1 runs all
    pages there, too.
    """
    if os.environ.get("SCIROCCO_DOCS_RUN") != "some" or os.environ.get("SCIROCCO_TEST_ALL"):
        return []
    changed = changed_pages()
    folder = pathlib.Path(__file__).resolve().parents[1]
    idle = {pathlib.PurePosixPath(page).stem for page in without_code(folder)} | {"index"}
    others = sorted(page.stem for page in folder.glob("*.md") if page.stem not in idle | SECONDS.keys())
    pages = enumerate([*SECONDS, *others])
    later = [page for number, page in pages if (number - choice()) % 3 and page not in changed]
    return [f"docs/{page}.md" for page in later]


def without_times(app: Sphinx, doctree: nodes.document) -> None:
    """Leave out of the output of blocks how long they took."""
    for block in doctree.findall(nodes.literal_block):
        if "output" in block["classes"] and TIMES.search(block.astext()):
            text = TIMES.sub("", block.astext())
            block.children[:] = []
            block.rawsource = text  # without that of old, which Sphinx would not highlight
            block += nodes.Text(text)


def spread_out(app: Sphinx, env: Any, docnames: list[str]) -> None:
    """Give each process about the same work: Sphinx passes neighbouring pages, some ten at a time.

    The longest pages come first, each with the process that has the least to do; pages without code fill up the rest.
    """
    idle = {page.removeprefix("docs/").removesuffix(".md") for page in app.config.nb_execution_excludepatterns}
    others = [name for name in docnames if name in idle]
    running = sorted((name for name in docnames if name not in idle), key=_seconds, reverse=True)
    hands: list[list[str]] = [[] for _ in range(max(app.parallel, 1))]
    for name in running:
        min(hands, key=lambda hand: sum(map(_seconds, hand))).append(name)
    size = len(make_chunks(docnames, len(hands))[0]) if docnames else 0
    for hand in hands:
        free = max(size - len(hand), 0)
        hand += others[:free]
        del others[:free]
    docnames[:] = [name for hand in hands for name in hand] + others


def _seconds(page: str) -> int:
    return SECONDS.get(page, 5)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the event handlers; conf.py registers `read` in ``nb_custom_formats``."""
    app.connect("env-before-read-docs", spread_out)
    app.connect("doctree-read", without_times)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
