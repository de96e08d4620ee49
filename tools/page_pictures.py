"""Make the small pictures of the first page and of the gallery, and the picture of the README.

usage: page_pictures.py [FOLDER] [NAME ...]      (default: docs/pictures, all)

`front` and `task-*` are runs made here, of data simulated from a seed; `gallery` runs docs/gallery.md and keeps a small
copy of the last figure below each of its headings. Needs matplotlib and Pillow; takes about two minutes.
"""

import io
import pathlib
import re
import sys
from collections.abc import Callable

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import scirocco as sc
from scirocco.demo import save_figure

BLUE, ORANGE, GREEN, PINK = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
COLOURS = np.array([BLUE, ORANGE, GREEN, PINK])


def readme_run() -> tuple[sc.Run, np.ndarray, np.ndarray]:
    """The README's example; mode and standard deviations of its exact posterior."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((100_000, 10)).astype(np.float32)
    truth = np.linspace(-1, 1, 10)
    y = (rng.random(100_000) < 1 / (1 + np.exp(-x @ truth))).astype(np.float32)

    def log_likelihood(beta, row):
        return jax.nn.log_sigmoid((2 * row["y"] - 1) * (row["x"] @ beta))

    model = sc.Model(log_likelihood, log_prior=lambda beta: -0.05 * (beta**2).sum())
    run = sc.sample(model, {"x": x, "y": y}, np.zeros(10), num_samples=2_000, progress=False)
    mode, wide = truth.copy(), x.astype(np.float64)
    for _ in range(8):
        chance = 1 / (1 + np.exp(-wide @ mode))
        curvature = (wide * (chance * (1 - chance))[:, None]).T @ wide + 0.1 * np.eye(10)
        mode += np.linalg.solve(curvature, wide.T @ (y - chance) - 0.1 * mode)
    return run, mode, np.sqrt(np.diag(np.linalg.inv(curvature)))


def front(figure: Figure) -> None:
    """The README's example beside the exact posterior: intervals of all coefficients, marginals of three."""
    figure.set_size_inches(9.6, 3.4)
    run, mode, sd = readme_run()
    draws = np.asarray(run.draws, np.float64)
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.25])
    flat = (draws.reshape(-1, 10) - mode) / sd
    rows = np.arange(10)[::-1]
    left.hlines(rows, *np.quantile(flat, [0.05, 0.95], axis=0), color=BLUE, linewidth=2, alpha=0.6)
    left.hlines(rows, *np.quantile(flat, [0.25, 0.75], axis=0), color=BLUE, linewidth=5)
    for bound in (-1.645, -0.674, 0.674, 1.645):
        left.axvline(bound, color="black", linewidth=1, linestyle="--", zorder=0)
    left.plot(flat.mean(axis=0), rows, "o", color="white", markeredgecolor=BLUE)
    left.set_yticks(rows, [f"beta[{k}]" for k in range(10)])
    left.set(title="Mean and intervals of 50 % and 90 %", xlabel="exact standard deviations from the exact mode")
    for k, colour in zip((0, 4, 9), COLOURS, strict=False):
        z = ((draws[..., k] - mode[k]) / sd[k]).ravel()
        right.hist(z, bins=60, density=True, histtype="stepfilled", alpha=0.25, color=colour)
        right.hist(z, bins=60, density=True, histtype="step", color=colour, label=f"beta[{k}]")
    grid = np.linspace(-4, 4, 200)
    exact = np.exp(-0.5 * grid**2) / np.sqrt(2 * np.pi)
    right.plot(grid, exact, color="black", linestyle="--", label="exact")
    right.set(title="All draws of three coefficients", yticks=[])
    right.set_xlabel("exact standard deviations from the exact mode")
    right.legend(loc="upper left")


def density(axes: Axes, rng: np.random.Generator) -> None:
    """Draws of a log likelihood of one's own: two correlated parameters."""
    x = rng.normal(size=(2_000, 2)).astype(np.float32)
    x[:, 1] += x[:, 0]
    y = (x @ [0.5, -0.3] + rng.standard_t(3, 2_000)).astype(np.float32)
    model = sc.Model(lambda beta, row: -2 * jax.numpy.log1p((row["y"] - row["x"] @ beta) ** 2 / 3))
    run = sc.sample(model, {"x": x, "y": y}, np.zeros(2), progress=False)
    axes.plot(*np.asarray(run.draws).reshape(-1, 2).T, ".", ms=1.5, alpha=0.3, color=BLUE)


def curve(axes: Axes, rng: np.random.Generator) -> None:
    """A spline from a formula."""
    x = np.sort(rng.uniform(0, 6, 300))
    table = {"x": x, "y": np.sin(x) + 0.4 * np.sin(3 * x) + 0.35 * rng.normal(size=300)}
    model = sc.models.LinearRegression.from_formula("y ~ bs(x, df=12)", table, progress=False)
    mean, low, high = model.predict_frame(table, interval=0.9).to_numpy().T[-3:]
    axes.plot(x, table["y"], ".", ms=2, color="grey")
    axes.fill_between(x, low, high, color=BLUE, alpha=0.25, lw=0)
    axes.plot(x, mean, color=BLUE)


def groups(axes: Axes, rng: np.random.Generator) -> None:
    """Effects of shops, with intervals."""
    shop = rng.integers(0, 12, 600)
    effects = np.sort(rng.normal(0, 1, 12))
    table = {"y": effects[shop] + rng.normal(size=600), "shop": [f"{k:02d}" for k in shop]}
    model = sc.models.GLMM("y ~ 1 + (1 | shop)", family="normal").fit(table, progress=False)
    found = model.random_effects(interval=0.9)
    mean, low, high = (found[name].to_numpy() for name in ("mean", "low", "high"))
    axes.hlines(np.arange(12), low, high, color=BLUE, linewidth=2, alpha=0.6)
    axes.plot(mean, np.arange(12), "o", color=BLUE, ms=4)
    axes.axvline(0, color="grey", linewidth=0.8)


def topics(axes: Axes, rng: np.random.Generator) -> None:
    """Words of two topics, with intervals."""
    words = np.array([["sun", "moon", "star", "comet"], ["cow", "horse", "sheep", "goat"]])
    chance = np.array([0.4, 0.3, 0.2, 0.1])
    texts = [" ".join(rng.choice(words[k % 2], 8, p=chance)) for k in range(80)]
    model = sc.models.LDA(2, seed=0).fit(texts, progress=False)
    for number, topic in enumerate(model.top_words(4, interval=0.9)):
        names, mean, low, high = zip(*topic[::-1], strict=True)
        rows = np.arange(4) + 4.6 * number
        errors = [np.subtract(mean, low), np.subtract(high, mean)]
        axes.barh(rows, mean, xerr=errors, color=COLOURS[number], alpha=0.6)
        for row, name in zip(rows, names, strict=True):
            axes.text(0.01, row, name, va="center", fontsize=9)


def clusters(axes: Axes, rng: np.random.Generator) -> None:
    """Rows in clusters whose number is not given."""
    rows = np.array([[-3, 0], [0, 2.5], [2.5, -0.5]])[rng.integers(0, 3, 300)] + 0.7 * rng.normal(size=(300, 2))
    labels = sc.models.DPMixture("gaussian", seed=0).fit(rows, progress=False).predict(rows)
    axes.scatter(*rows.T, c=COLOURS[labels % 4], s=7)


def series(axes: Axes, rng: np.random.Generator) -> None:
    """States of a series."""
    states = np.repeat(np.arange(8) % 2, rng.integers(15, 45, 8))
    values = np.where(states == 1, 2.5, 0.0) + rng.normal(0, 0.6, len(states))
    found = sc.models.HMM(2, emissions="gaussian", seed=0).fit(values, progress=False).predict(values)
    axes.plot(values, color="grey", linewidth=0.7)
    axes.scatter(np.arange(len(values)), values, c=COLOURS[np.asarray(found).ravel() % 4], s=7, zorder=3)


def network(axes: Axes, rng: np.random.Generator) -> None:
    """Blocks of a network."""
    block = np.repeat([0, 1, 2], 16)
    chance = np.where(block[:, None] == block[None, :], 0.45, 0.02)
    edges = np.argwhere(np.triu(rng.random((48, 48)) < chance, 1))
    model = sc.models.StochasticBlockModel(3, seed=0).fit(edges, progress=False)
    labels = dict(zip(model.nodes_.listed(), np.asarray(model.memberships()).argmax(axis=1), strict=True))
    centres = np.array([[0, 1.4], [-1.4, -0.8], [1.4, -0.8]])
    angle = rng.uniform(0, 2 * np.pi, 48)
    places = centres[block] + np.sqrt(rng.random((48, 1))) * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    for a, b in edges:
        axes.plot(*places[[a, b]].T, color="grey", linewidth=0.4, zorder=1)
    kept = [node for node in range(48) if node in labels]
    axes.scatter(*places[kept].T, c=[COLOURS[labels[node]] for node in kept], s=26, zorder=2)


def trust(axes: Axes, rng: np.random.Generator) -> None:
    """A step size ten times too large: the draws spread too widely."""
    y = rng.normal(0.0, 1.0, 20_000).astype(np.float32)
    model = sc.Model(lambda mean, y: -0.5 * (y - mean) ** 2)
    for factor, colour in ((0.1, BLUE), (8.0, ORANGE)):
        sampler = sc.SGLD(step_size=factor / 20_000 / 5)
        run = sc.sample(model, y, np.float32(0), sampler=sampler, estimator=sc.Minibatch(100), num_samples=4_000,
                        progress=False)  # fmt: skip
        axes.hist(np.ravel(run.draws), bins=50, density=True, histtype="stepfilled", alpha=0.4, color=colour)
    axes.set_xlim(-0.15, 0.15)


def simplex(axes: Axes, rng: np.random.Generator) -> None:
    """Three proportions, the third of a category that was never seen."""
    counted = sc.CountModel(0.5, lambda omega, category: jax.nn.one_hot(category, 3))
    options = {"estimator": sc.Full(), "num_samples": 1_500, "num_burnin": 200, "thin": 5, "progress": False}
    run = sc.sample(counted, np.repeat([0, 1, 2], [5, 3, 1]), np.full(3, 1 / 3), sampler=sc.SCIR(0.2), **options)
    corners = np.array([[0, 0], [1, 0], [0.5, np.sqrt(0.75)]])
    axes.plot(*corners[[0, 1, 2, 0]].T, color="grey", lw=0.8)
    axes.plot(*(np.asarray(run.draws[0]) @ corners).T, ".", ms=2, alpha=0.4, color=BLUE)
    axes.set_aspect("equal")


def thumbnail(draw: Callable[[Axes, np.random.Generator], None]) -> Callable[[Figure], None]:
    """A small figure without ticks."""

    def drawn(figure: Figure) -> None:
        figure.set_size_inches(2.6, 1.7)
        axes = figure.subplots()
        draw(axes, np.random.default_rng(0))
        axes.set(xticks=[], yticks=[])
        for side in axes.spines.values():
            side.set_visible(False)

    return drawn


THUMBNAILS = (density, curve, groups, topics, clusters, series, network, trust, simplex)
PICTURES = {"front": front} | {f"task-{draw.__name__}": thumbnail(draw) for draw in THUMBNAILS}


def gallery(folder: pathlib.Path) -> None:
    """Run the gallery; the figure below the heading `Words of topics` is kept as gallery-words-of-topics.png."""
    import matplotlib
    import matplotlib.pyplot as plt
    from page_blocks import blocks
    from PIL import Image

    matplotlib.use("Agg")
    page = pathlib.Path(__file__).resolve().parent.parent / "docs" / "gallery.md"
    text = page.read_text(encoding="utf-8")
    lines, names = text.splitlines(), {"__name__": "__main__"}
    for block in blocks(text):
        if not block.runs:
            continue
        exec(compile("\n" * block.line + block.code, str(page), "exec"), names)
        if plt.get_fignums():
            heading = next(line for line in reversed(lines[: block.line]) if line.startswith("### "))
            drawn = io.BytesIO()
            plt.gcf().savefig(drawn, format="png", dpi=90)
            plt.close("all")
            image = Image.open(drawn).convert("RGB")
            image.thumbnail((360, 220), Image.Resampling.LANCZOS)
            few = image.quantize(64, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
            few.save(folder / f"gallery-{slug(heading[4:])}.png", optimize=True)


def slug(heading: str) -> str:
    """The anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1] if sys.argv[1:] else "docs/pictures")
    for name in sys.argv[2:] or [*PICTURES, "gallery"]:
        if name == "gallery":
            gallery(folder)
            continue
        save_figure(PICTURES[name], folder / f"{name}.png")
        print(name, (folder / f"{name}.png").stat().st_size, flush=True)
