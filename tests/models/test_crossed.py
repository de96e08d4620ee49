"""Mixed models with several large factors: the blocked Gibbs sampler leaves the posterior as it is, and its public face."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import scirocco as sc
from scirocco.errors import InvalidValueError
from scirocco.model import Model
from scirocco.models import GLMM
from scirocco.models.glmm import blocks, crossed, density
from scirocco.models.glmm.density import Factor

pytestmark = [
    pytest.mark.compile,
    pytest.mark.usefixtures("quick_compiler"),
    pytest.mark.filterwarnings("ignore::scirocco.errors.SciroccoWarning"),
]

# -- the moves ---------------------------------------------------------------------------------------------------------

ROWS, COPIES = 40, 4_000
FACTORS = (Factor(0, 2, True, True), Factor(1, 1, True, True), Factor(2, 1, True, True))
LEVELS = (6, 4, 3)


def small_layout(family):
    """Two crossed factors, the first with a slope, and a third in which the second is nested."""
    rng = np.random.default_rng(0)
    x = np.stack([np.ones(ROWS), rng.normal(size=ROWS)], axis=1).astype(np.float32)
    level = rng.integers(0, LEVELS[1], ROWS).astype(np.int32)
    arrays = {"x": x, "y": np.zeros(ROWS, np.float32), "z_0": x, "z_1": x[:, :1], "z_2": x[:, :1]}
    arrays |= {"level_0": np.arange(ROWS, dtype=np.int32) % LEVELS[0], "level_1": level, "level_2": level // 2}
    start = {"coef": np.zeros(2, np.float32), "root_0": np.eye(2, dtype=np.float32)}
    start |= {f"sd_{f.number}": np.ones(f.size, np.float32) for f in FACTORS}
    if family in density.CONTINUOUS:
        start["noise"] = np.float32(1)
    if family == "student":
        start["freedom"] = np.float32(5)
    row = density.RowLikelihood(family, None, FACTORS)
    prior = density.GlobalPrior(family, FACTORS)
    model = Model(density.PlainRow(row), prior, transforms=density.constraints(start))
    layout, data = crossed.arranged((family, model, FACTORS), arrays, LEVELS, (0, 0, 0))
    assert layout.shifted == ((0, 1), (0,), (0,))
    assert layout.nested == ((2, 1, 0, 0),)
    return layout, data, start


def from_the_prior(layout, data, rng):
    """Global parameters, effects and responses of many copies."""
    theta = {"coef": 2.5 * rng.normal(size=(COPIES, 2))}
    for f in FACTORS:
        theta[f"sd_{f.number}"] = np.abs(2.5 * rng.normal(size=(COPIES, f.size)))
    correlation = rng.uniform(-1, 1, COPIES)
    root = np.zeros((COPIES, 2, 2))
    root[:, 0, 0], root[:, 1, 0], root[:, 1, 1] = 1, correlation, np.sqrt(1 - correlation**2)
    theta["root_0"] = root
    if layout.family in density.CONTINUOUS:
        theta["noise"] = rng.exponential(size=COPIES)
    if layout.family == "student":
        theta["freedom"] = rng.gamma(2.0, 10.0, COPIES)
    effects = []
    for f, count in zip(FACTORS, LEVELS, strict=True):
        u = rng.normal(size=(COPIES, f.size, count))
        u = root @ u if f.size == 2 else u
        effects.append(theta[f"sd_{f.number}"][:, :, None] * u)
    eta = theta["coef"] @ np.asarray(data["x"])
    for f, own in zip(FACTORS, effects, strict=True):
        z, level = np.asarray(data[f"z_{f.number}"]), np.asarray(data[f"level_{f.number}"])
        eta += np.einsum("qn,cqn->cn", z, own[:, :, level])
    if layout.family == "bernoulli":
        y = rng.random(eta.shape) < 1 / (1 + np.exp(-eta))
    else:
        scale = theta["noise"][:, None]
        t = theta["freedom"][:, None] if layout.family == "student" else None
        y = eta + scale * (rng.normal(size=eta.shape) if t is None else rng.standard_t(t, eta.shape))
    theta = {name: jnp.asarray(leaf, jnp.float32) for name, leaf in theta.items()}
    return theta, [jnp.asarray(own, jnp.float32) for own in effects], jnp.asarray(y, jnp.float32)


def statistics(layout, data, theta, effects):
    """Functions of parameters, effects and responses, that are bounded or have light tails."""
    found = {f"coef {k}": theta["coef"][k] for k in range(2)}
    found |= {f"coef {k} squared": theta["coef"][k] ** 2 for k in range(2)}
    for f in FACTORS:
        found |= {f"sd {f.number} {k}": theta[f"sd_{f.number}"][k] for k in range(f.size)}
        found |= {f"log sd {f.number} {k}": jnp.log(theta[f"sd_{f.number}"][k]) for k in range(f.size)}
        found[f"effect {f.number}"] = jnp.tanh(effects[f.number][0, 0])
        found[f"spread {f.number}"] = jnp.log(jnp.sum(effects[f.number] ** 2))
        found[f"size {f.number}"] = jnp.log(jnp.sum(effects[f.number][-1] ** 2) / theta[f"sd_{f.number}"][-1] ** 2)
    found["correlation"] = theta["root_0"][1, 0]
    found |= {name: jnp.log(theta[name]) for name in ("noise", "freedom") if name in theta}
    eta = blocks._predictor(layout, data, theta, effects)
    if layout.family == "bernoulli":
        found["fit"] = jnp.mean(data["y"] * jax.nn.sigmoid(eta))
    else:
        found["fit"] = jnp.mean(1.0 / (1.0 + ((data["y"] - eta) / theta["noise"]) ** 2))
    return found


@pytest.mark.law
@pytest.mark.parametrize("family", ["normal", "student"])
def test_sweeps_keep_the_joint_distribution_of_parameters_effects_and_responses(family, seed):
    """(θ, b, y) from the model, then a sweep given y: all means of functions of (θ', b', y) stay the same."""
    layout, data, start = small_layout(family)
    rng = np.random.default_rng(seed)
    theta, effects, y = from_the_prior(layout, data, rng)
    size = sum(np.size(leaf) for leaf in jax.tree.leaves(layout.model.unconstrain(start)))

    def one(theta, effects, y, key):
        own = {**data, "y": y}
        state = blocks.State(
            layout.model.unconstrain(theta),
            tuple(effects),
            0.05 * jnp.eye(size),
            jnp.float32(0.0),
            jnp.zeros(2),
        )
        before = statistics(layout, own, theta, effects)
        state = blocks.sweep(layout, own, state, key, jnp.asarray(blocks.TUNED))
        after = statistics(layout, own, layout.model.constrain(state.position), state.effects)
        return {name: after[name] - before[name] for name in before}, state.accepted

    change, accepted = jax.jit(jax.vmap(one))(theta, effects, y, jax.random.split(jax.random.key(seed), COPIES))
    assert 0.3 < float(accepted[:, 0].mean()), accepted.mean(0)
    assert 0.2 < float(accepted[:, 1].mean()), accepted.mean(0)
    for name, values in change.items():
        values = np.asarray(values, np.float64)
        assert np.all(np.isfinite(values)), name
        assert np.mean(values == 0) < 0.9, f"{name} does not move"
        z = values.mean() / (values.std() / np.sqrt(COPIES))
        assert abs(z) < 5, f"{name}: z = {z:.1f}"
