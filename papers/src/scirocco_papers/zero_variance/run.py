"""Thesis, figures 3.5.2 and 3.5.4 in shape: test scores along SGLD-CV, with and without zero-variance control variates.

Logistic regression on covertype with a Laplace prior of scale 1, a tenth of the rows for testing, minibatches of 500.

the boxes
    As in the thesis: one step size for all coefficients, tuned there for 0.01 N, 0.1 N and N (their h is our 2ε), five
    seeds, the mean log predictive density of the test rows at every tenth of 10,000 steps, and the same plus aᵀ∇. The
    second figure is of matrix factorisation; here 1 % of the rows takes its place.
the scaling
    Theorem 3.4.2 speaks of draws of the posterior, and the thesis' steps leave rare soil types where they began. So
    these chains run in the coordinates of the Laplace approximation (for degree 1 the same features), without the soil
    types that fewer than 1 % of the rows have. At the same draws three kinds of gradients: of all rows, by control
    variates, by plain minibatches; g are the coefficients.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import datasets
from scirocco.analysis.zero_variance import ZeroVariance, zero_variance
from scirocco.estimators import ControlVariates
from scirocco.model import Model
from scirocco.run import Kernel, sample
from scirocco.samplers import SGLD
from scirocco.types import Params, PyTree
from scirocco_papers.base import Outcome, Settings
from scirocco_papers.covertype_rows import MODEL, Rows, common, first, laplace, log_likelihood, log_prior, scores, split
from scirocco_papers.zero_variance.claims import KINDS, judge, notes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"without": "#7b3294", "with": "#009e73"}
COLOURS |= dict(zip(KINDS, ("#0072b2", "#009e73", "#7b3294"), strict=True))


def draw(figure: Figure, numbers: dict[str, Any]) -> None:
    """A pair of boxes for each run; medians and quartiles of the coefficients."""
    shown = sorted(numbers["boxes"], reverse=True)
    figure.set_size_inches(4.4 * (len(shown) + 1), 4.2)
    *panels, right = figure.subplots(1, len(shown) + 1)
    for axes, size in zip(panels, shown, strict=True):
        found = numbers["boxes"][size]
        for name, shift in (("without", -0.2), ("with", 0.2)):
            places = [number + shift for number in range(1, len(found) + 1)]
            style = {"color": COLOURS[name], "linewidth": 1.2}
            parts = ("boxprops", "whiskerprops", "capprops", "medianprops")
            axes.boxplot(
                [each[name] for each in found],
                positions=places,
                widths=0.3,
                flierprops={"markersize": 2, "markeredgecolor": COLOURS[name]},
                **dict.fromkeys(parts, style),
            )
            axes.plot([], [], color=COLOURS[name], label=f"{name} zero variance")
        axes.set(title=f"SGLD-CV along the chain, {size:,} rows", xlabel="run")
        axes.set_xticks(range(1, len(found) + 1), [str(number) for number in range(1, len(found) + 1)])
        axes.ticklabel_format(axis="y", useOffset=False)
        axes.margins(y=0.15)
        axes.legend(fontsize=8, loc="upper left", ncols=2)
    panels[0].set_ylabel("mean log predictive density of the test rows")
    scaling = numbers["scaling"]
    sizes = sorted(scaling)
    for name in KINDS:
        each = [scaling[size][name] for size in sizes]
        right.fill_between(
            sizes, *np.array([e["quartiles"] for e in each]).T, color=COLOURS[name], alpha=0.15, linewidth=0
        )
        right.plot(sizes, [e["reduction"] for e in each], "o-", color=COLOURS[name], label=name)
    right.axhline(1.0, color="grey", linewidth=0.8)
    right.set(xscale="log", yscale="log", xlabel="rows N", title="variance of a coefficient's mean, divided by")
    right.legend(title="gradients from", fontsize=8, title_fontsize=8)


BATCH, THIN, NUM_SEEDS = 500, 10, 5
NUM_DRAWS, NUM_BURNIN = 1_000, 1_000
PAPER_H = {0.01: 5e-4, 0.1: 5e-5, 1.0: 5e-6}
BOXES, QUICK_BOXES = (1.0, 0.01), (0.1, 0.01)
SCALED_STEP, SCALED_THIN, NUM_CHAINS, SCALED_DRAWS = 0.1, 20, 4, 1_000
"""In units of posterior standard deviations: draws so far apart are nearly independent."""
_DRAWS_AT_ONCE = 50


def mode(train: Rows) -> Any:
    """As the set-up of control variates finds it."""
    kernel = Kernel(MODEL, train, SGLD(1e-6), ControlVariates(BATCH))
    return kernel.position(kernel.init(jax.random.key(0), jnp.zeros(train.x.shape[1])))


# -- the boxes -----------------------------------------------------------------------------------------------


def box(train: Rows, test: Rows, centre: Params, step_size: float, num_draws: int, seed: int) -> dict[str, Any]:
    """One chain: its scores without and with control variates, thinned to a hundred for the picture."""
    run = sample(
        MODEL,
        train,
        centre,
        sampler=SGLD(step_size),
        estimator=ControlVariates(BATCH, centre=centre),
        num_samples=num_draws,
        thin=THIN,
        seed=seed,
        num_burnin=NUM_BURNIN,
        keep_gradients=True,
        progress=False,
    )
    values = np.asarray(scores(run.draws[0], test), np.float64)
    gradients = np.asarray(run.gradients, np.float64)
    found = zero_variance((values[None], gradients))
    after = values + gradients[0] @ found.coefficients[:, 0]
    few = slice(None, None, max(1, num_draws // 100))
    return {
        "without": values[few],
        "with": after[few],
        "variance_ratio": values.var() / after.var(),
        "estimate": {
            "without": [found.plain, found.plain_error],
            "with": [found.value, found.standard_error],
            "reduction": found.reduction,
        },
    }


# -- the scaling ---------------------------------------------------------------------------------------------


def scaled(train: Rows, num_draws: int, seed: int) -> dict[str, ZeroVariance]:
    """The coefficients from draws in equilibrium, with each kind of gradients at the same draws."""
    centre, factor = laplace(train)
    model = Model(lambda u, row: log_likelihood(centre + factor @ u, row), lambda u: log_prior(centre + factor @ u))
    start = jnp.zeros(len(centre))
    run = sample(
        model,
        train,
        start,
        sampler=SGLD(SCALED_STEP),
        estimator=ControlVariates(BATCH, centre=start),
        num_samples=num_draws // NUM_CHAINS,
        thin=SCALED_THIN,
        num_chains=NUM_CHAINS,
        seed=seed,
        num_burnin=NUM_BURNIN,
        keep_gradients=True,
        progress=False,
    )
    flat = jnp.asarray(run.draws).reshape(-1, len(centre))
    exact = _exact(model, train, flat)
    numbers = np.random.default_rng([seed, len(train.y)]).integers(len(train.y), size=(len(flat), BATCH))
    plain = _plain(model, train, flat, numbers)
    gradients = dict(zip(KINDS, (exact, run.gradients, plain), strict=True))
    betas = np.asarray(centre + flat @ factor.T).reshape(run.draws.shape)
    return {name: zero_variance((betas, np.asarray(each).reshape(betas.shape))) for name, each in gradients.items()}


@partial(jax.jit, static_argnums=0)
def _exact(model: Model, rows: Rows, draws: PyTree) -> Any:
    def one(u: Any) -> Any:
        return model.combine(u, model.summand.total(u, rows))

    return jax.lax.map(one, draws, batch_size=_DRAWS_AT_ONCE)


@partial(jax.jit, static_argnums=0)
def _plain(model: Model, rows: Rows, draws: PyTree, numbers: Any) -> Any:
    """N/n times the sum over the n rows of these numbers, others for each draw."""

    def one(pair: Any) -> Any:
        u, chosen = pair
        total = model.summand.total(u, jax.tree.map(lambda leaf: leaf[chosen], rows))
        return model.combine(u, (len(rows.y) / BATCH) * total)

    return jax.lax.map(one, (draws, numbers), batch_size=_DRAWS_AT_ONCE)


def _describe(found: ZeroVariance) -> dict[str, Any]:
    moved = (found.value - found.plain) / found.plain_error
    return {
        "reduction": float(np.median(found.reduction)),
        "quartiles": np.quantile(found.reduction, [0.25, 0.75]),
        "moved": float(np.sqrt(np.mean(moved**2))),
        "ridge": found.ridge,
        "num_draws": found.num_draws,
    }


def run(settings: Settings) -> Outcome:
    """A quick run has a tenth of the rows at most, two seeds and fewer draws."""
    seed, quick = settings.seed or 0, settings.quick
    num_seeds, num_draws, scaled_draws = (2, 300, 480) if quick else (NUM_SEEDS, NUM_DRAWS, SCALED_DRAWS)
    shares = [share for share in PAPER_H if share <= (0.1 if quick else 1.0)]
    train, test = split(datasets.covertype(settings.data_dir), seed)
    test, often = first(test, 0.1 if quick else 1.0), common(train)
    numbers: dict[str, Any] = {"num_training": len(train.y), "num_test": len(test.y), "boxes": {}, "scaling": {}}
    for share in shares:
        rows = first(train, share)
        size = len(rows.y)
        if share in (QUICK_BOXES if quick else BOXES):
            centre, step = mode(rows), PAPER_H[share] / 2
            numbers["boxes"][size] = [box(rows, test, centre, step, num_draws, seed + k) for k in range(num_seeds)]
        found = scaled(first(often, share), scaled_draws, seed)
        numbers["scaling"][size] = {name: _describe(each) for name, each in found.items()}
    return Outcome(judge(numbers, quick), numbers, lambda figure: draw(figure, numbers), notes(numbers))
