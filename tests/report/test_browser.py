"""Reports, and the styles of the documentation, in a real browser without a window: Chromium and Playwright."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys

import numpy as np
import pytest

import scirocco as sc
from fitted_topics import model_of
from report.reading import made_run, noise
from scirocco import report

CHROMIUM = os.environ.get("SCIROCCO_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
playwright = pytest.importorskip("playwright.sync_api", reason="Playwright's Python driver is not installed")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not os.path.exists(CHROMIUM), reason=f"there is no Chromium at {CHROMIUM}"),
]

NAMES = ("run", "topics", "clusters")
CONTRAST = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const line = (v) => v <= 10 ? v / 3294.6 : ((v / 255 + 0.055) / 1.055) ** 2.4;
  const light = (c) => c.slice(0, 3).map(line).reduce((sum, v, k) => sum + v * [0.2126, 0.7152, 0.0722][k], 0);
  const under = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || e.closest("script, style, title, [hidden]")) continue;
    const style = getComputedStyle(e);
    const [a, b] = [light(parse(e.closest("svg") ? style.fill : style.color)), light(under(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push(`${e.tagName} ${e.textContent.slice(0, 30)}: ${ratio.toFixed(2)}`);
  }
  return found;
}"""

HALF_EMPTY = """() => {
  const whole = document.querySelector("main").getBoundingClientRect().width;
  const found = [];
  for (const row of document.querySelectorAll(".charts, .cards, .pair")) {
    const ends = {};
    for (const each of row.children) {
      const box = each.getBoundingClientRect();
      const key = row.matches(".charts") ? Math.round(box.bottom) : Math.round(box.top);
      ends[key] = Math.max(ends[key] || 0, box.right);
    }
    const right = row.getBoundingClientRect();
    if (right.width < whole - 1) found.push(`${row.className} is ${right.width} wide`);
    for (const end of Object.values(ends)) if (end < right.right - 1) found.push(`${row.className} ends at ${end}`);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        # a container has no name spaces for Chromium's sandbox; the pages are our own
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=1_200_000)
        yield started
        started.close()


def new_page(browser, **options):
    """With patience: how long something takes says how busy the machine is."""
    page = browser.new_page(**options)
    page.set_default_timeout(1_200_000)  # milliseconds
    return page


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A report of a run, one of topics whose numbers are 0 to 3 by falling certainty, and one of two clusters."""
    folder = tmp_path_factory.mktemp("browser")
    tuning = {"chosen": {"step_size": 0.1}, "num_steps": 100, "trials": []}
    tuning["trials"] = [{"settings": {"step_size": 0.1 * k}, "ksd": [1.0 / k]} for k in (1, 2, 4)]
    run = made_run(
        {"x": noise(0, 4, 800, 3), "y": 10 * noise(1, 4, 800)},
        stats={"gradient_norm": noise(2, 4, 800)},
        preparation={"tuning": tuning},
        scores=[(1, {"loss": 2.0}), (2, {"loss": 1.0})],
    )
    rng = np.random.default_rng(0)
    weights = 1 + 9 * np.eye(4)
    draws = [[[rng.dirichlet(w * s) for w, s in zip(weights, (300, 100, 30, 10), strict=True)]] for _ in range(40)]
    model = model_of(folder / "lda", np.swapaxes(draws, 0, 1), ("sun", "moon", "star", "sea"))
    rows = np.concatenate([rng.poisson([6, 6, 0], (60, 3)), rng.poisson([0, 6, 6], (30, 3))])
    mixture = sc.models.DPMixture("multinomial", num_samples=25).fit(rows, num_epochs=50, progress=False)
    return {
        "run": report.write(run, folder / "run.html"),
        "topics": report.write(model, folder / "topics.html"),
        "clusters": report.write(mixture, folder / "clusters.html", names=["tea", "milk", "rum"]),
    }


@pytest.fixture
def open_page(browser, files):
    """Opens a report; at the end nothing must have been asked for, nor complained about."""
    heard, pages = [], []

    def opened(name, **options):
        page = new_page(browser, **options)
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        own = files[name].as_uri()

        def asked(route):
            if route.request.url == own:
                route.continue_()
            else:
                heard.append(route.request.url)
                route.abort()

        page.route("**/*", asked)
        page.goto(own)
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.close()
    assert heard == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [390, 1280])
def test_every_section_renders(open_page, name, width):
    page = open_page(name, viewport={"width": width, "height": 800})
    found = page.locator("main > section")
    links = page.eval_on_selector_all("nav a", "all => all.map(e => e.getAttribute('href').slice(1))")
    assert page.eval_on_selector_all("main > section", "all => all.map(e => e.id)") == links
    assert len(links) >= 8
    for place in range(found.count()):
        box = found.nth(place).bounding_box()
        assert box["width"] > 200 and box["height"] > 50
    shown = "all => all.map(e => e.getBoundingClientRect().height).filter(h => h > 0)"
    sizes = page.eval_on_selector_all("figure > svg, figure .rows > div", shown)
    assert len(sizes) >= 8 and min(sizes) > 20
    assert page.evaluate("document.documentElement.scrollWidth") <= width  # nothing sticks out of a phone
    assert page.evaluate(HALF_EMPTY) == []
    assert min(page.eval_on_selector_all("svg text", shown)) >= 9


def cards_of(page):
    return page.locator(".card:visible h3").all_inner_texts()


def test_the_topic_browser_filters_and_sorts(open_page):
    page = open_page("topics")
    assert cards_of(page) == [f"Topic {k}" for k in range(4)]
    page.get_by_label("Sort by").select_option("least certain")
    assert cards_of(page) == [f"Topic {k}" for k in (3, 2, 1, 0)]
    page.get_by_label("Sort by").select_option("number")
    assert cards_of(page) == [f"Topic {k}" for k in range(4)]
    box = page.get_by_label("Find a word")
    box.fill("TOPIC 2")
    assert cards_of(page) == ["Topic 2"]
    assert page.locator("#topics-status").inner_text() == "1 of 4 shown"
    assert page.locator(".bubble.off").count() == 3
    box.fill("moo")
    assert page.locator(".card:visible mark").all_inner_texts() == ["moo"] * 4


def test_a_topic_that_is_chosen_shows_the_traces_of_its_words(open_page):
    page = open_page("topics")
    traces = page.locator(".more:visible svg")
    assert traces.count() == 0
    name = page.get_by_role("button", name="Topic 2")
    name.click()
    assert traces.first.is_visible() and name.get_attribute("aria-expanded") == "true"
    assert page.locator("#topic-2-more path.line").count() == 4  # a line for each word of the one chain
    name.click()
    assert traces.count() == 0
    page.locator('.bubble[href="#topic-1"]').click()
    assert page.evaluate("document.activeElement.id") == "topic-1"
    assert page.locator("#topic-1-more").is_visible()


def test_the_topic_browser_by_the_keyboard_alone(open_page):
    page = open_page("topics")

    def focused():
        return page.evaluate("document.activeElement.textContent || document.activeElement.id")

    page.keyboard.press("/")
    assert focused() == "topics-search"
    page.keyboard.type("topic 3")
    assert cards_of(page) == ["Topic 3"]
    page.keyboard.press("Control+A")
    page.keyboard.press("Delete")
    page.keyboard.press("Tab")
    page.keyboard.type("least")  # chooses by the first letters, as in every list
    assert cards_of(page) == [f"Topic {k}" for k in (3, 2, 1, 0)]
    page.keyboard.press("Tab")
    assert focused() == "Topic 3"
    page.keyboard.press("ArrowRight")
    assert focused() == "Topic 2"
    page.keyboard.press("End")
    page.keyboard.press("ArrowRight")
    assert focused() == "Topic 0"
    page.keyboard.press("Enter")
    assert page.locator("#topic-0-more").is_visible()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('.cards')") is None  # one stop for all cards
    page.locator('.bubble[href="#topic-1"]').focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "topic-1"


def test_clusters_filter_and_sort(open_page):
    page = open_page("clusters")
    names = cards_of(page)
    assert names[:2] == ["Cluster 0", "Cluster 1"]
    page.get_by_label("Find a column").fill("cluster 1")
    assert cards_of(page) == ["Cluster 1"]
    page.get_by_label("Find a column").fill("")
    page.get_by_label("Sort by").select_option("number")
    assert cards_of(page) == sorted(names, key=lambda name: int(name.split()[1]))
    page.locator(".card").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "cluster-1"


def test_the_table_filters_and_sorts(open_page):
    page = open_page("run")
    names = page.locator("#parameters tbody tr:visible th")
    head = page.locator("#parameters thead button", has_text="sd")
    for way in ("ascending", "descending"):
        head.focus()
        page.keyboard.press("Enter")
        assert page.locator("#parameters thead th[aria-sort]").get_attribute("aria-sort") == way
        assert names.all_inner_texts()[-1 if way == "ascending" else 0] == "y"
    page.get_by_label("Find a parameter").fill("x[")
    assert sorted(names.all_inner_texts()) == ["x[0]", "x[1]", "x[2]"]
    assert page.locator("#parameters-status").inner_text() == "3 of 4 shown"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(open_page, scheme):
    page = open_page("run", color_scheme=scheme)

    def lightness():
        return page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]")

    def printed():
        page.emulate_media(media="print")
        found = lightness()
        page.emulate_media(media="screen")
        return found

    before = lightness()
    assert printed() > 200  # ink on paper
    assert (before > 200) == (scheme == "light")
    names = {"light": "Dark colours", "dark": "Light colours"}
    page.get_by_role("button", name=names.pop(scheme)).click()
    assert page.get_by_role("button", name=names.popitem()[1]).is_visible()  # what the next click does
    assert (lightness() > 200) != (before > 200)
    page.reload()
    assert (lightness() > 200) != (before > 200)  # remembered
    assert printed() > 200
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_every_text_has_contrast(open_page, name, scheme):
    assert open_page(name, color_scheme=scheme).evaluate(CONTRAST) == []


def test_the_keyboard_reaches_the_report(open_page):
    page = open_page("run", reduced_motion="reduce")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
    assert page.locator(".skip").bounding_box()["x"] >= 0  # seen when it has the focus
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "report"
    link = page.locator("nav a", has_text="Traces")
    link.focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    assert link.evaluate("e => getComputedStyle(e).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "traces"
    assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"


def test_a_notebook_shows_the_page_in_a_frame(browser, files):
    shown = report.Report(files["topics"].read_text("utf-8"))
    page = new_page(browser)
    page.set_content(shown._repr_html_())
    frame = page.frames[1]
    frame.get_by_label("Find a word").fill("topic 3")
    assert frame.locator(".card:visible h3").all_inner_texts() == ["Topic 3"]
    frame.locator("nav a", has_text="Prevalence").click()
    assert frame.evaluate("document.activeElement.id") == "prevalence"
    page.close()


# -- the documentation ------------------------------------------------------------------------------------------------

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
BROKEN = """() => {
  const found = [];
  for (const cell of document.querySelectorAll("td")) {
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    for (let node = texts.nextNode(); node; node = texts.nextNode()) {
      for (const word of node.textContent.matchAll(/\\S+/g)) {
        const range = document.createRange();
        range.setStart(node, word.index);
        range.setEnd(node, word.index + word[0].length);
        const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
        if (lines.size > 1) found.push(word[0]);
      }
    }
  }
  return found;
}"""
ABOVE = """all => all.map((e) => {
  const [base, script] = [e.querySelector("mi, mo"), e.lastElementChild].map((e) => e.getBoundingClientRect());
  return (script.bottom - base.top) / base.height;
})"""


def documented(*codes):
    """A page of the documentation with a table of code and sentences, code in a wide line, and formulas."""
    sys.path[:0] = [str(DOCS / "_ext")]
    theme = pytest.importorskip("pydata_sphinx_theme", reason="the documentation's packages are not installed")
    mathml = pytest.importorskip("mathml")
    theirs = next(pathlib.Path(theme.__file__).parent.rglob("pydata-sphinx-theme.css")).read_text("utf-8")
    styles = [theirs, (DOCS / "_static/scirocco.css").read_text("utf-8")]
    styles.append("math { font-family: 'DejaVu Sans'; }")  # which has no measures for formulas
    literal = '<code class="docutils literal"><span class="pre">{}</span></code>'
    cells = [f"<td><p>{literal.format(code)}</p></td><td>{'many words ' * 30}</td><td>Full</td>" for code in codes]
    table = "".join(f"<tr>{cell}</tr>" for cell in cells)
    wide = f'<div class="highlight"><pre>{"x = a_long_line(of, code) " * 9}</pre></div>'
    formulas = mathml.drawn(r"\theta^2 + (1 + x)^2")
    body = f'<div class="pst-scrollable-table-container"><table class="table">{table}</table></div>{wide}{formulas}'
    head = "".join(f"<style>{style}</style>" for style in styles)
    return f"<!doctype html>{head}<article class='bd-article'>{body}</article>"


def test_pages_of_the_documentation(browser):
    """No word of a table is broken, wide lines scroll in their place, and superscripts are at their height."""
    text = documented("sc.ControlVariates", "--keep-gradients-of-every-draw", "sc.Preconditioned(sc.BAOAB())")
    for width in (390, 1280):
        page = new_page(browser, viewport={"width": width, "height": 800})
        page.set_content(text)
        assert page.evaluate(BROKEN) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        wide = page.locator("pre")
        assert wide.evaluate("e => e.scrollWidth > e.clientWidth && getComputedStyle(e).overflowX === 'auto'")
        assert min(page.eval_on_selector_all("msup", ABOVE)) > 0.15
        page.close()
