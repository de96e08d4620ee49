"""Make the pictures of docs/reports.md and of the README: reports on real data, photographed in Chromium.

usage: report_pictures.py [FOLDER]      (default: docs/pictures)

Needs the data sets covertype and wikipedia (SCIROCCO_DATA), Playwright's Python driver, Chromium (SCIROCCO_CHROMIUM, or
on the PATH) and Pillow. Takes about five minutes; with KEEP=path in the environment the runs are kept there and
taken up again.
"""

import io
import os
import pathlib
import shutil
import sys
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

import scirocco as sc

MOST_BYTES = 250_000
COLOURS = 128


def log_likelihood(beta, datum):
    """Logistic regression: one row."""
    logit = sum(beta[name] * datum[name] for name in beta)
    return datum["forest"] * logit - jax.nn.softplus(logit)


def regression(path: pathlib.Path) -> None:
    """Lodgepole pine or not, from the ten measured columns of covertype."""
    data = sc.datasets.covertype()
    x = (data.X[:, :10] - data.X[:, :10].mean(axis=0)) / data.X[:, :10].std(axis=0)
    columns = dict(zip(data.names[:10], x.T.astype(np.float32), strict=True))
    rows = columns | {"intercept": np.ones(len(x), np.float32), "forest": data.y.astype(np.float32)}
    start = {name: jnp.array(0.0) for name in [*columns, "intercept"]}
    model = sc.Model(log_likelihood, lambda beta: -0.05 * sum(b**2 for b in beta.values()))
    sampler, estimator = sc.SGLD(step_size="auto"), sc.ControlVariates(1_000)
    run = sc.sample(
        model, rows, start, sampler=sampler, estimator=estimator, num_samples=4_000, num_chains=4, progress=False
    )
    run.report(path)


def topics(path: pathlib.Path, keep: pathlib.Path) -> None:
    """Fifty topics of 20,000 articles."""
    data = sc.datasets.wikipedia()
    documents = data.matrix[:20_000]
    if not (keep / "topics").exists():
        lda = sc.models.LDA(50, num_chains=1, num_samples=100, seed=1)
        lda.fit(
            documents,
            vocabulary=data.vocabulary,
            num_epochs=30,
            validation=data.matrix[20_000:20_500],
            store=keep / "topics",
            progress=False,
        )
    sc.report.write(keep / "topics", path, documents=documents[:2_000])


def photograph(page, target: pathlib.Path, clip=None) -> None:
    """A picture of few colours, and not larger than it may be."""
    raw = Image.open(io.BytesIO(page.screenshot(clip=clip))).convert("RGB")
    small = raw.quantize(COLOURS, dither=Image.Dither.NONE)
    small.save(target, optimize=True)
    size = target.stat().st_size
    print(f"{target}: {raw.width} × {raw.height}, {size / 1000:.0f} kB")
    if size > MOST_BYTES:
        raise SystemExit(f"{target} is larger than {MOST_BYTES:,} bytes")


def pictures(run: pathlib.Path, topic: pathlib.Path, folder: pathlib.Path) -> None:
    """All four."""
    chromium = os.environ.get("SCIROCCO_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])

        def at(file: pathlib.Path, place: str, width: int, height: int, scheme: str):
            page = browser.new_page(
                viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
            )
            page.goto(file.as_uri())
            page.evaluate("place => document.getElementById(place).scrollIntoView()", place)
            return page

        photograph(at(run, "intervals", 1200, 1000, "light"), folder / "report-light.png")
        photograph(at(run, "curves", 1200, 1000, "dark"), folder / "report-dark.png")
        photograph(at(topic, "map", 390, 844, "light"), folder / "report-phone.png")
        page = at(topic, "topic-browser", 1200, 1000, "light")
        page.locator(".card .pick").first.click()
        photograph(page, folder / "report-topics.png")
        browser.close()


def main() -> None:
    """Make reports, then pictures of them."""
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "docs/pictures")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        keep = pathlib.Path(os.environ.get("KEEP", temporary)).resolve()
        keep.mkdir(parents=True, exist_ok=True)
        for name, make in (("run", regression), ("topic", lambda path: topics(path, keep))):
            if not (keep / f"{name}.html").exists():
                make(keep / f"{name}.html")
        pictures(keep / "run.html", keep / "topic.html", folder)


if __name__ == "__main__":
    main()
