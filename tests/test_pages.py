"""The pages: code runs, links lead somewhere, every page is in the contents."""

import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
sys.path[:0] = [str(ROOT / "tools"), str(DOCS / "_ext")]

import check_words  # noqa: E402
from page_blocks import LANGUAGES, blocks, check_examples, run_shell  # noqa: E402

pytestmark = pytest.mark.unit

GUIDES = sorted(DOCS.glob("*.md"))
READMES = [ROOT / folder / "README.md" for folder in (".", "core", "latent", "papers", "benchmarks")]
PAGES = [*READMES, *GUIDES]
REFERENCE = sorted((DOCS / "api").glob("*.md"))
LINK = re.compile(r"(?<!`)\]\((?P<target>[^)\s]+)\)")
SHOWN = {"", "text", "toml", "r", "json"}
"""What cannot be run here, or is not code; all else is `python` or `sh`, and runs or says why not."""


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def prose(page):
    """The page without its fenced blocks."""
    lines = page.read_text(encoding="utf-8").splitlines()
    for block in blocks("\n".join(lines)):
        lines[block.line - 1 : block.end] = [""] * (min(block.end, len(lines)) - block.line + 1)
    return "\n".join(lines)


# ------------------------------------------------------------------------------------------------------ code


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_on_a_page_runs_or_says_why_not(page):
    for block in blocks(page.read_text(encoding="utf-8")):
        where = f"{name_of(page)}, line {block.line}"
        known = block.language in (*LANGUAGES, *SHOWN) or block.language.startswith("{")
        assert known, f"{where}: write ```python or ```sh in place of ```{block.language}, which does not run"
        if block.language in LANGUAGES:
            assert block.reason != "", f"{where}: `no-run` needs a reason, ```{block.language} no-run REASON"
            assert not block.indent, f"{where}: an indented block does not run when the page is built"


def test_python_on_the_pages_compiles():
    for page in PAGES:
        for block in blocks(page.read_text(encoding="utf-8")):
            if block.language == "python" and not block.examples:
                compile(block.code, f"{page}:{block.line}", "exec")


def test_blocks_are_found_with_their_lines_and_reasons():
    text = "a\n```python\nx = 1\n```\n\n````text\n```python\nnot code\n```\n````\n"
    text += "  ```sh no-run no network \n  ls\n  ```\n"
    python, shown, shell = blocks(text)
    assert (python.language, python.code, python.line, python.end, python.runs) == ("python", "x = 1\n", 2, 4, True)
    assert shown.language == "text" and "not code" in shown.code and not shown.runs
    assert (shell.reason, shell.code, shell.indent, shell.runs) == ("no network", "ls\n", "  ", False)
    assert blocks("```sh no-run\nls\n```")[0].reason == ""


def test_a_shell_block_prints_without_colours_and_fails_at_its_first_failure(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_shell("printf '\\033[31mred\\033[0m\\n'; echo to-stderr >&2; touch here")
    assert capsys.readouterr().out == "red\nto-stderr\n" and (tmp_path / "here").exists()
    for code in ("false; echo on", "false | true; echo on", "echo $not_set"):
        with pytest.raises(RuntimeError, match="status"):
            run_shell(code)


def test_examples_are_checked_and_leave_their_names():
    found = {}
    check_examples(">>> a = 2\n>>> a + 1\n3\n", found)
    assert found["a"] == 2
    with pytest.raises(AssertionError, match="Expected"):
        check_examples(">>> 1 + 1\n3\n", {})


# ----------------------------------------------------------------------------------------------------- pages


def contents(page):
    """The pages that a page's tables of contents name."""
    found = []
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language == "{toctree}":
            lines = (line.strip() for line in block.code.splitlines())
            found += [page.parent / f"{line}.md" for line in lines if line and not line.startswith(":")]
    return found


def test_every_page_is_in_the_table_of_contents_once():
    listed = contents(DOCS / "index.md") + contents(DOCS / "api" / "index.md")
    assert sorted(listed) == sorted({*GUIDES, *REFERENCE} - {DOCS / "index.md"})


def anchors(page):
    """What `#...` may be after a link to a page: GitHub's slugs of its headings."""
    headings = re.findall(r"(?m)^#+ (.*)$", prose(page))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "page", [*PAGES, *REFERENCE, ROOT / "CHANGELOG.md", DOCS / "results" / "README.md"], ids=name_of
)
def test_links_lead_somewhere(page):
    for link in LINK.finditer(prose(page)):
        target, _, anchor = link["target"].partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        aim = (page.parent / target).resolve() if target else page
        assert aim.exists(), f"{name_of(page)}: no {link['target']}"
        if anchor and aim.suffix == ".md":
            assert anchor in anchors(aim), f"{name_of(page)}: {name_of(aim)} has no heading #{anchor}"


def test_what_blocks_print_about_time_is_left_out():
    plain_pages = pytest.importorskip("plain_pages", reason="the documentation's packages are not installed")
    printed = (
        "Verdict: all well.\n  effective draws per second    7,723.5\n  effective draws    10\n"
        "sampling ━━━ 20250/20250 steps 20.2k it/s 0:00:06 left 0:00:00 \n"
        " sampling · 2000/2000 steps · 146.1k it/s · 3 s · 0 s left\n"
        "sampling ━ 185/185 steps 95 it/s 0:00:02 left 0:00:00 perplexity 532.87\n"
        "the best of 56 settings (16.6 s)\n"
    )
    assert plain_pages.TIMES.sub("", printed) == (
        "Verdict: all well.\n  effective draws    10\n"
        "sampling ━━━ 20250/20250 steps \n sampling · 2000/2000 steps\n"
        "sampling ━ 185/185 steps perplexity 532.87\nthe best of 56 settings\n"
    )


def test_formulas_have_low_letters_below_superscripts_and_bars_alike():
    """Otherwise superscripts are too high with fonts that have no measures for formulas, and one bar of |x| is tall."""
    mathml = pytest.importorskip("mathml", reason="the documentation's packages are not installed")
    drawn = mathml.drawn(r"|x|^2 + \theta^2 + S_f^2")
    assert drawn.count('<mpadded height="0.45em">') == 3
    assert drawn.count('<mo stretchy="false">&#x0007C;</mo>') == 2 and "<mo>&#x0007C;" not in drawn


def test_pages_do_not_measure_time():
    for page in GUIDES:
        shown = (block for block in blocks(page.read_text(encoding="utf-8")) if block.runs and not block.hidden)
        assert not any(re.search(r"perf_counter|process_time|%time", block.code) for block in shown), page


def test_a_search_finds_hierarchical_models():
    """By the words that people have for them: Sphinx's search knows the words of headings and of pages, no others."""
    assert "hierarchical-models" in anchors(DOCS / "tour.md")
    for words in ("hierarchical", "multilevel", "mixed-effects", "non-centred"):
        assert words in prose(DOCS / "tour.md")


# ----------------------------------------------------------------------------------------------------- words

PROGRAM = '''"""A run goes
on with its store."""
# goes on with: a comment is not shown
name = f"it is seldom {len('seldom')} and is " "of no use " 'without' + "judged"
'''
MARKDOWN = "It is seldom.\n```text\nseldom\n```\n```python\nx = 'seldom'\n```\nGo\non with\n"


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        (
            "program.py",
            PROGRAM,
            [(1, "goes on with"), (4, "seldom"), (4, "seldom"), (4, "of no use without"), (4, "judged")],
        ),
        ("page.md", MARKDOWN, [(1, "seldom"), (6, "seldom"), (8, "Go on with")]),
        ("clean.md", "Seldomly; lawful; judgemental.", []),
    ],
)
def test_phrases_to_avoid_are_found_where_readers_meet_them(tmp_path, capsys, name, text, wanted):
    """In prose, code blocks that readers copy, docstrings and strings, also across lines and neighbouring strings."""
    file = tmp_path / name
    file.write_text(text)
    found = [(line, words) for line, words, _ in check_words.findings(file)]
    assert found == wanted
    assert check_words.main([str(tmp_path)]) == bool(wanted)
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == len(wanted) and all(" write " in line for line in shown)
    assert check_words.main(["--report", str(tmp_path)]) == 0


def test_exceptions_from_the_words_are_used():
    """What is allowed in a file occurs there, and would be found otherwise."""
    for name, pieces in check_words.ALLOWED.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        assert all(piece in text for piece in pieces), name
