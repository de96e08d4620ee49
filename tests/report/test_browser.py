"""Reports in a real browser, without a window: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest

from fitted_topics import model_of
from report.reading import made_run, noise
from scirocco import report

CHROMIUM = os.environ.get("SCIROCCO_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
playwright = pytest.importorskip("playwright.sync_api", reason="Playwright's Python driver is not installed")
pytestmark = pytest.mark.skipif(not os.path.exists(CHROMIUM), reason=f"there is no Chromium at {CHROMIUM}")


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        # a container has no name spaces for Chromium's sandbox; the pages are our own
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A report of a run, and one of topics whose numbers are 0 to 3 by falling certainty."""
    folder = tmp_path_factory.mktemp("browser")
    run = made_run(
        {"x": noise(0, 4, 800, 3), "y": 10 * noise(1, 4, 800)}, stats={"gradient_norm": noise(2, 4, 800)}
    )
    rng = np.random.default_rng(0)
    weights = 1 + 9 * np.eye(4)
    draws = [
        [[rng.dirichlet(w * s) for w, s in zip(weights, (300, 100, 30, 10), strict=True)]] for _ in range(40)
    ]
    model = model_of(folder / "lda", np.swapaxes(draws, 0, 1), ("sun", "moon", "star", "sea"))
    return {
        "run": report.write(run, folder / "run.html"),
        "topics": report.write(model, folder / "topics.html"),
    }


@pytest.fixture
def open_page(browser, files):
    """Opens a report; at the end nothing must have been asked for, nor complained about."""
    heard, pages = [], []

    def opened(name, **options):
        page = browser.new_page(**options)
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on("request", lambda asked: asked.url == files[name].as_uri() or heard.append(asked.url))
        page.goto(files[name].as_uri())
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.close()
    assert heard == []


@pytest.mark.parametrize("name", ["run", "topics"])
@pytest.mark.parametrize("width", [360, 1280])
def test_every_section_renders(open_page, name, width):
    page = open_page(name, viewport={"width": width, "height": 800})
    found = page.locator("main > section")
    assert found.count() >= 8
    for place in range(found.count()):
        box = found.nth(place).bounding_box()
        assert box["width"] > 200 and box["height"] > 50
    sizes = page.eval_on_selector_all("figure svg", "all => all.map(e => e.getBoundingClientRect().height)")
    assert sizes and min(sizes) > 20
    assert page.evaluate("document.documentElement.scrollWidth") <= width  # nothing sticks out of a phone
    smallest = page.eval_on_selector_all(
        "svg text", "all => Math.min(...all.map(e => e.getBoundingClientRect().height))"
    )
    assert smallest >= 9


def test_the_topic_browser_filters_and_sorts(open_page):
    page = open_page("topics")
    shown = page.locator(".card:visible h3")
    assert shown.all_inner_texts() == [f"Topic {k}" for k in range(4)]
    page.get_by_label("Sort by").select_option("least certain")
    assert shown.all_inner_texts() == [f"Topic {k}" for k in (3, 2, 1, 0)]
    page.get_by_label("Sort by").select_option("number")
    assert shown.all_inner_texts() == [f"Topic {k}" for k in range(4)]
    box = page.get_by_label("Find a word")
    box.fill("TOPIC 2")
    assert shown.all_inner_texts() == ["Topic 2"]
    assert page.locator("#topics-status").inner_text() == "1 of 4 shown"
    assert page.locator(".bubble.off").count() == 3
    box.fill("moo")
    assert page.locator(".card:visible mark").all_inner_texts() == ["moo"] * 4
    box.fill("")
    page.locator('.bubble[href="#topic-1"]').focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "topic-1"


def test_the_table_filters_and_sorts(open_page):
    page = open_page("run")
    names = page.locator("#parameters tbody tr:visible th")
    head = page.locator("#parameters thead button", has_text="sd")
    for way in ("ascending", "descending"):
        head.click()
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

    before = lightness()
    assert (before > 200) == (scheme == "light")
    page.get_by_role("button", name="Dark colours").click()
    assert (lightness() > 200) != (before > 200)
    page.reload()
    assert (lightness() > 200) != (before > 200)  # remembered


def test_the_keyboard_reaches_the_report(open_page):
    page = open_page("run")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "report"
    page.locator("nav a", has_text="Traces").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "traces"


def test_a_notebook_shows_the_page_in_a_frame(browser, files):
    shown = report.Report(files["topics"].read_text("utf-8"))
    page = browser.new_page()
    page.set_content(shown._repr_html_())
    frame = page.frames[1]
    frame.get_by_label("Find a word").fill("topic 3")
    assert frame.locator(".card:visible h3").all_inner_texts() == ["Topic 3"]
    frame.locator("nav a", has_text="Prevalence").click()
    assert frame.evaluate("document.activeElement.id") == "prevalence"
    page.close()
