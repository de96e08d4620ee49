"""Thesis, figure 4.6.3: the log loss of test images along six samplers of a Bayesian neural network, on MNIST.

The network of (4.6.3), 784 pixels, a hidden layer of 100 units with a softmax, ten classes, on the first 55,000
training images; standard normal starting weights; minibatches of 500; the R package's α = a = 0.01 and L = 5.

different from the thesis
    The log loss is taken every 50 steps, not every 10. The precisions λ are integrated out
    (`scirocco.models.network.problem`), not moved by gradients. Five seeds, not one. As in the thesis there are 10,000
    steps after 10,000 of burn-in (control variates: of Adam), sghmc's with five to an iteration; on a machine without
    an accelerator 1,500 after 1,500, in which not every chain burns in.
the centre
    With the precisions integrated out, the density is largest where all weights of a layer are nearly 0 and its
    precision is huge (78,400 weights that agree to be small): Adam gets there, to a network that predicts badly. So it
    climbs the posterior with all precisions at their prior mean, 1. That was settled after a look at numbers: over
    1,500 steps, the first centre had a log loss of 0.29 to 2.3 on the left-over images, depending on the learning rate,
    and this one 0.19 to 0.25; with the first, sgldcv was behind sgld. An estimate is unbiased with any centre.
step sizes
    The thesis' are lost in our copy. Ours have the least log loss of the 5,000 training images that are left, averaged
    over chains of full length with three seeds that are not among the five, of grids of five values with factors of
    about 3; none is at the edge of its grid. They are R's, h for sgld and η for the others: our ε is h/2 and √η.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco._extras import require
from scirocco._tree import pytree_dataclass
from scirocco.analysis import scores
from scirocco.data.arrays import ArraySource
from scirocco.datasets import Digits, mnist
from scirocco.estimators import ControlVariates, Minibatch
from scirocco.model import Model
from scirocco.models.network.networks import TwoLayers
from scirocco.models.network.problem import LabelledRows, LogLikelihood, Probabilities, WeightPrior
from scirocco.run import Kernel, sample
from scirocco.samplers import SGHMC, SGLD, SGNHT
from scirocco.types import Params
from scirocco_papers.base import Outcome, Settings
from scirocco_papers.bnn_mnist.claims import METHODS, STANDARD, judge, notes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = dict(zip(STANDARD, ("#7b3294", "#0072b2", "#d55e00"), strict=True))


def draw(figure: Figure, numbers: dict[str, Any]) -> None:
    """Left, middle: the log loss along the chains. Right: draws and their average."""
    figure.set_size_inches(13.0, 4.2)
    left, middle, right = figure.subplots(1, 3)
    found, every = numbers["methods"], numbers["every"]
    middle.sharey(left)
    for axes, suffix, title in ((left, "", "standard"), (middle, "cv", "with control variates")):
        for name in STANDARD:
            losses = np.array([each["losses"] for each in found[name + suffix]])
            steps = every * np.arange(1, losses.shape[1] + 1)
            axes.plot(steps, losses.T, color=COLOURS[name], alpha=0.25, linewidth=0.8)
            axes.plot(steps, losses.mean(axis=0), color=COLOURS[name], label=name + suffix)
        axes.set(title=title, xlabel="gradient steps after burn-in or optimisation")
        axes.legend(fontsize=8)
    left.set_ylabel(f"log loss of {numbers['num_test']:,} test images")
    places = np.arange(len(METHODS))
    for shift, part, marker in ((-0.12, "single", "o"), (0.12, "average", "s")):
        for place, name in zip(places, METHODS, strict=True):
            values = [each[part]["log_loss"] for each in found[name]]
            colour = COLOURS[name.removesuffix("cv")]
            face = colour if part == "average" else "white"
            right.plot([place + shift] * len(values), values, marker, color=colour, markerfacecolor=face, markersize=5)
    for part, marker, face in (("last draw", "o", "white"), ("average over draws", "s", "grey")):
        right.plot([], [], marker, color="grey", markerfacecolor=face, label=part)
    right.set_xticks(places, METHODS, rotation=30)
    right.set(title="a draw, and the average over draws", ylabel="log loss")
    right.legend(fontsize=8)


NUM_TRAINING, HIDDEN, CLASSES, BATCH = 55_000, 100, 10, 500
NUM_STEPS, SHORT, EVERY, NUM_SEEDS, FIRST_SEED = 10_000, 1_500, 50, 5, 1
LEARNING_RATE = 0.03
"""Step size of Adam for the control variates' centre: the best of 0.003, 0.01, 0.03, chosen like the step sizes."""
STEP_SIZES = {"sgld": 3e-4, "sghmc": 1e-4, "sgnht": 3e-6, "sgldcv": 3e-5, "sghmccv": 3e-6, "sgnhtcv": 3e-7}
"""h or η of each, see above."""

NETWORK = Probabilities(TwoLayers("softmax"))
MODEL = Model(LogLikelihood(NETWORK), WeightPrior(), vectorized=True)


def standard_normal(params: Params) -> Any:
    """The log prior when every precision is 1."""
    return sum(-0.5 * jnp.sum(leaf * leaf) for leaf in jax.tree.leaves(params))


CLIMBED = Model(LogLikelihood(NETWORK), standard_normal, vectorized=True)


class Seen(NamedTuple):
    """What `Watch` remembers."""

    count: Any
    losses: Any
    """One for each draw, in order."""
    mean: Any
    """The mean of the probabilities."""
    last: Any
    """The probabilities of the last draw."""


@pytree_dataclass
class Watch:
    """The log loss of some rows at every draw, and their predictive probabilities, averaged as the chain runs."""

    rows: LabelledRows
    losses: Any
    """Zeros, one for each draw to come."""

    def init(self, params: Params) -> Seen:
        """Nothing seen."""
        nothing = jnp.zeros((len(self.rows.y), CLASSES))
        return Seen(jnp.zeros((), jnp.int32), self.losses, nothing, nothing)

    def update(self, state: Seen, params: Params) -> Seen:
        """One more draw."""
        found, count = NETWORK(params, self.rows.x), state.count + 1
        loss = -jnp.mean(MODEL.log_likelihood(params, self.rows))
        mean = state.mean + (found - state.mean) / count
        return Seen(count, state.losses.at[state.count].set(loss), mean, found)

    def result(self, state: Seen) -> Seen:
        """All of it."""
        return state


class Parts(NamedTuple):
    """The thesis' split, and what it leaves over."""

    train: LabelledRows
    test: LabelledRows
    left: LabelledRows


def split(digits: Digits) -> Parts:
    """The first 55,000 training images, the test images, the last training images."""
    train, left = slice(None, NUM_TRAINING), slice(NUM_TRAINING, None)
    parts = ((digits.X[train], digits.y[train]), (digits.X_test, digits.y_test), (digits.X[left], digits.y[left]))
    return Parts(*(LabelledRows(x.reshape(len(x), -1), y.astype(np.int32)) for x, y in parts))


def start(width: int, seed: int) -> dict[str, Any]:
    """Standard normal weights."""
    rng = np.random.default_rng(seed)
    shapes = {"A": (HIDDEN, CLASSES), "B": (width, HIDDEN), "a": (CLASSES,), "b": (HIDDEN,)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def sampler(method: str, step_size: float) -> Any:
    """The R package's sampler of that name."""
    if method.startswith("sgld"):
        return SGLD(step_size / 2)
    if method.startswith("sgnht"):
        return SGNHT.from_r(step_size)
    return dataclasses.replace(SGHMC.from_r(step_size), gradient_noise=0.0)


def centre(train: LabelledRows, seed: int, num_steps: int) -> Any:
    """Where Adam ends, from the same start; of the posterior with all precisions at 1, see above."""
    adam = require("optax", "bnn-mnist").adam(LEARNING_RATE)
    estimator = ControlVariates(BATCH, optimizer=adam, num_optimizer_steps=num_steps, polish=False)
    kernel = Kernel(CLIMBED, ArraySource(train), SGLD(1e-6), estimator, seed=seed)
    return kernel.position(kernel.init(jax.random.key(seed), start(train.x.shape[1], seed)))


def chain(
    method: str, step_size: float, digits: Parts, scored: LabelledRows, seed: int, num_steps: int, found: Any
) -> Seen:
    """One run of one sampler; `found` is the centre that the control variates of this seed share."""
    controlled = method.endswith("cv")
    run = sample(
        MODEL,
        ArraySource(digits.train),
        found if controlled else start(digits.train.x.shape[1], seed),
        sampler=sampler(method, step_size),
        estimator=ControlVariates(BATCH, centre=found) if controlled else Minibatch(BATCH),
        num_burnin=0 if controlled else num_steps,
        num_samples=num_steps // EVERY,
        thin=EVERY,
        seed=seed,
        keep_draws=False,
        reducers={"seen": Watch(jax.tree.map(jnp.asarray, scored), jnp.zeros(num_steps // EVERY))},
        progress=False,
    )
    return jax.tree.map(lambda leaf: leaf[0], run.reduced["seen"])


def describe(seen: Seen, labels: np.ndarray) -> dict[str, Any]:
    """The trace, and scores of the average over all draws and of the last one."""
    out: dict[str, Any] = {"losses": np.asarray(seen.losses, np.float64)}
    for name, given in (("average", seen.mean), ("single", seen.last)):
        p = np.asarray(given, np.float64)
        p /= p.sum(axis=1, keepdims=True)
        out[name] = {
            "log_loss": scores.log_loss(p, labels),
            "accuracy": scores.accuracy(p, labels),
            "brier": scores.brier(p, labels),
            "calibration_error": scores.calibration(p, labels).error,
        }
    return out


def run(settings: Settings) -> Outcome:
    """A quick run has two seeds, 2,000 test images and a fifth of the steps of a short one."""
    first = FIRST_SEED if settings.seed is None else settings.seed
    whole = SHORT if jax.default_backend() == "cpu" else NUM_STEPS
    num_seeds, num_steps = (2, SHORT // 5) if settings.quick else (NUM_SEEDS, whole)
    digits = split(mnist(settings.data_dir))
    scored = jax.tree.map(lambda leaf: leaf[:2_000], digits.test) if settings.quick else digits.test
    found: dict[str, list[dict[str, Any]]] = {method: [] for method in METHODS}
    for seed in range(first, first + num_seeds):
        middle = centre(digits.train, seed, num_steps)
        for method in METHODS:
            seen = chain(method, STEP_SIZES[method], digits, scored, seed, num_steps, middle)
            found[method].append(describe(seen, scored.y))
    numbers = {
        "methods": found,
        "step_sizes": STEP_SIZES,
        "num_steps": num_steps,
        "every": EVERY,
        "num_training": len(digits.train.y),
        "num_test": len(scored.y),
    }
    return Outcome(judge(numbers, num_steps < NUM_STEPS), numbers, lambda figure: draw(figure, numbers), notes(numbers))
