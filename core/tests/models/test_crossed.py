"""Mixed models with several large factors: exact moves of the blocked Gibbs sampler, and its public face."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import scirocco as sc
from scirocco.errors import InvalidValueError
from scirocco.model import Model
from scirocco.model.families import FAMILIES
from scirocco.models import GLMM
from scirocco.models.glmm import blocks, crossed, density, moves
from scirocco.models.glmm.density import Factor, predictor, solve

pytestmark = [
    pytest.mark.compile,
    pytest.mark.usefixtures("quick_compiler"),
    pytest.mark.filterwarnings("ignore::scirocco.errors.SciroccoWarning"),
]

# -- the moves ---------------------------------------------------------------------------------------------------------

ROWS, COPIES = 40, 2_500
FACTORS = (Factor(0, 2, True), Factor(1, 1, True), Factor(2, 1, True))
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
    if FAMILIES[family].continuous:
        start["noise"] = np.float32(1)
    if family == "student":
        start["freedom"] = np.float32(5)
    row = density.RowLikelihood(family, None, FACTORS)
    prior = density.GlobalPrior(family, FACTORS)
    model = Model(density.PlainRow(row), prior, transforms=density.constraints(start))
    layout, data = crossed.arranged((family, model, FACTORS), arrays, LEVELS, (0, 0, 0))
    assert layout.shifted == ((0, 1), (0,), (0,))
    assert layout.nested == ((2, 1, 0, 0),)
    assert (layout.small, layout.large) == ((1, 2), (0,))
    return layout, data, start


def from_the_prior(layout, data, rng, copies=COPIES):
    """Global parameters, effects and responses of many copies."""
    theta = {"coef": density.PRIOR.scale * rng.normal(size=(copies, 2))}
    for f in FACTORS:
        theta[f"sd_{f.number}"] = np.abs(density.PRIOR.scale * rng.normal(size=(copies, f.size)))
    correlation = rng.uniform(-1, 1, copies)
    root = np.zeros((copies, 2, 2))
    root[:, 0, 0], root[:, 1, 0], root[:, 1, 1] = 1, correlation, np.sqrt(1 - correlation**2)
    theta["root_0"] = root
    if FAMILIES[layout.family].continuous:
        theta["noise"] = rng.exponential(size=copies)
    if layout.family == "student":
        theta["freedom"] = rng.gamma(2.0, 10.0, copies)
    effects = []
    for f, count in zip(FACTORS, LEVELS, strict=True):
        u = rng.normal(size=(copies, f.size, count))
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
    eta = predictor(layout, data, theta, effects)
    if layout.family == "bernoulli":
        found["fit"] = jnp.mean(data["y"] * jax.nn.sigmoid(eta))
    else:
        found["fit"] = jnp.mean(1.0 / (1.0 + ((data["y"] - eta) / theta["noise"]) ** 2))
    return found


def together_of(layout, data, start):
    """How small factors are drawn together, measured at some other place: it must not matter where."""
    effects = [jnp.full((f.size, count), 0.3) for f, count in zip(FACTORS, LEVELS, strict=True)]
    theta = {name: jnp.asarray(leaf) for name, leaf in start.items()}
    return moves.measured(layout, data, theta, effects, predictor(layout, data, theta, effects))


def references():
    """Effects at which the likelihood is expanded: it must not matter where."""
    noise = jax.random.normal(jax.random.key(7), (9,))
    own = [noise[: f.size, None] * jnp.ones((1, count)) for f, count in zip(FACTORS, LEVELS, strict=True)]
    return tuple(0.5 * part for part in own)


def each_copy(function, *copies):
    """One copy after the other: jaxlib 0.10's batched calls of LAPACK wait for each other for ever on two cores."""
    return jax.jit(lambda copies: jax.lax.map(lambda one: function(*one), copies))(copies)


def assert_unchanged(change, copies=COPIES):
    """Means of changes are 0."""
    for name, values in change.items():
        values = np.asarray(values, np.float64)
        assert np.all(np.isfinite(values)), name
        assert np.mean(values == 0) < 0.9, f"{name} does not move"
        z = values.mean() / (values.std() / np.sqrt(copies))
        assert abs(z) < 5, f"{name}: z = {z:.1f}"


@pytest.mark.rotates(2)
@pytest.mark.law
@pytest.mark.parametrize("family", ["normal", "student"])
def test_sweeps_keep_the_joint_distribution_of_parameters_effects_and_responses(family, seed):
    """(θ, b, y) from the model, then a sweep given y: all means of functions of (θ', b', y) stay the same."""
    layout, data, start = small_layout(family)
    rng = np.random.default_rng(seed)
    theta, effects, y = from_the_prior(layout, data, rng)
    size = sum(np.size(leaf) for leaf in jax.tree.leaves(layout.model.unconstrain(start)))
    together = together_of(layout, data, start)

    def one(theta, effects, y, key):
        own = {**data, "y": y}
        state = blocks.SweepState(
            layout.model.unconstrain(theta),
            tuple(effects),
            0.05 * jnp.eye(size),
            jnp.float32(0.0),
            together,
            references(),
            jnp.ones(3),
            jnp.zeros(len(blocks.rates(layout))),
        )
        before = statistics(layout, own, theta, effects)
        state = blocks.sweep(layout, own, state, key, jnp.asarray(blocks.TUNED))
        after = statistics(layout, own, layout.model.constrain(state.position), state.effects)
        return {name: after[name] - before[name] for name in before}, state.accepted

    keys = jax.random.split(jax.random.key(seed), COPIES)
    change, accepted = each_copy(one, theta, effects, y, keys)
    accepted = dict(zip(blocks.rates(layout), np.asarray(accepted.mean(0)), strict=True))
    least = {"acceptance_rate": 0.2, "joint_acceptance_rate": 0.9 if family == "normal" else 0.1}
    assert all(accepted[name] > rate for name, rate in least.items()), accepted
    assert accepted["deviations_acceptance_rate"] > (0.9 if family == "normal" else 0.1), accepted
    assert_unchanged(change)


@pytest.mark.law
def test_factors_drawn_together_keep_the_joint_distribution(seed):
    """The same for this move alone, three times, with binary responses."""
    layout, data, start = small_layout("bernoulli")
    theta, effects, y = from_the_prior(layout, data, np.random.default_rng(seed))
    (together,) = together_of(layout, data, start)

    def one(theta, effects, y, key):
        own, coef, moved = {**data, "y": y}, theta["coef"], effects
        eta = predictor(layout, own, theta, effects)
        for each in jax.random.split(key, 3):
            coef, moved, eta, _ = moves.draw_together(layout, own, theta, coef, moved, eta, 0, together, each)
        after = {**theta, "coef": coef}
        names = ("coef", "effect", "spread", "size", "fit")
        before, found = (
            {k: v for k, v in statistics(layout, own, *at).items() if k.startswith(names)}
            for at in ((theta, effects), (after, moved))
        )
        return {k: found[k] - before[k] for k in before}, eta - predictor(layout, own, after, moved)

    keys = jax.random.split(jax.random.key(seed), COPIES)
    change, off = each_copy(one, theta, effects, y, keys)
    assert float(jnp.median(jnp.abs(off))) < 1e-4
    assert_unchanged(change)


@pytest.mark.law
def test_deviations_drawn_with_effects_keep_the_joint_distribution(seed, changed):
    """The same for this move alone, of two factors in turn, with binary responses and small deviations."""
    changed(density.PRIOR, scale=0.7)
    layout, data, _ = small_layout("bernoulli")
    theta, effects, y = from_the_prior(layout, data, np.random.default_rng(seed))

    def one(theta, effects, y, key):
        own, position, moved = {**data, "y": y}, layout.model.unconstrain(theta), list(effects)
        eta, chances = predictor(layout, own, theta, effects), []
        for number, each in enumerate(jax.random.split(key, 2)):
            position, moved[number], eta, chance = moves.with_effects(
                *(layout, own, position, FACTORS[number], moved[number], eta, references()[number], each)
            )
            chances.append(chance)
        after = layout.model.constrain(position)
        names = ("sd 0", "sd 1", "log sd 0", "log sd 1", "correlation", "fit")
        names += tuple(f"{word} {k}" for word in ("effect", "spread", "size") for k in range(2))
        before, found = (
            {k: v for k, v in statistics(layout, own, *at).items() if k.startswith(names)}
            for at in ((theta, effects), (after, moved))
        )
        off = eta - predictor(layout, own, after, moved)
        return {k: found[k] - before[k] for k in before}, off, jnp.stack(chances)

    keys = jax.random.split(jax.random.key(seed), COPIES)
    change, off, chances = each_copy(one, theta, effects, y, keys)
    assert float(jnp.median(jnp.abs(off))) < 1e-4
    assert float(chances.mean(0).min()) > 0.15, chances.mean(0)
    assert_unchanged(change)


@pytest.mark.law
@pytest.mark.parametrize("nested", [False, True])
def test_shifts_keep_the_prior_and_the_linear_predictor(nested, seed):
    """Coefficients and effects from their prior: standardised sizes and products keep their means, and η its values."""
    layout, data, _ = small_layout("normal")
    copies = 40_000
    theta, effects, _ = from_the_prior(layout, data, np.random.default_rng(seed), copies)

    def sizes(theta, effects):
        u = [solve(layout.root(theta, f.number), effects[f.number]) for f in FACTORS]
        found = {f"size {k}": jnp.sum(u[k] ** 2) for k in range(3) if k or not nested}
        if nested:
            return found | {"outer × inner": u[2][0, 0] * u[1][0, 0]}
        found |= {f"coef {k}": theta["coef"][k] ** 2 for k in range(2)}
        return found | {f"coef × {k}": theta["coef"][0] * jnp.mean(u[k][0]) for k in range(3)}

    def one(theta, effects, key):
        coef, moved = theta["coef"], list(effects)
        for number, each in enumerate(jax.random.split(key, 3)):
            if nested:
                moved[2], moved[1] = moves.shift_nested(layout, data, theta, layout.nested[0], moved, each)
            else:
                factor = FACTORS[number]
                coef, moved[number] = moves.shift(layout, data, theta, coef, factor, moved[number], each)
        after = {**theta, "coef": coef}
        change = jax.tree.map(jnp.subtract, sizes(after, moved), sizes(theta, effects))
        return change, predictor(layout, data, after, moved) - predictor(layout, data, theta, effects)

    change, off = each_copy(one, theta, effects, jax.random.split(jax.random.key(seed), copies))
    assert float(jnp.max(jnp.abs(off))) < 1e-2
    assert_unchanged(change, copies)


# -- the public face ---------------------------------------------------------------------------------------------------

FORMULA = "y ~ x + (1 + x | user) + (1 | film)"
LENGTHS = {"num_samples": 60, "num_chains": 2, "thin": 2, "num_burnin": 70, "num_prediction_draws": 120}


def ratings(seed=0, num_users=200, num_films=150, num_rows=4_000):
    """Users × films, the second in a table sorted by name; every film has a rating."""
    rng = np.random.default_rng(seed)
    user, film = rng.integers(0, num_users, num_rows), rng.integers(0, num_films, num_rows)
    user[:num_users], film[:num_films] = np.arange(num_users), np.arange(num_films)
    effects = {"user": rng.normal(size=(num_users, 2)) * [8.0, 0.5], "film": 5 * rng.normal(size=(num_films, 1))}
    x = 50 + 10 * rng.normal(size=num_rows)
    y = 100 + 3 * x + effects["user"][user, 0] + effects["user"][user, 1] * x + effects["film"][film, 0]
    y = y + 10 * rng.normal(size=num_rows)
    return pd.DataFrame({"y": y, "x": x, "user": user, "film": [f"film {k:03d}" for k in film]}), effects


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    frame, effects = ratings()
    path = tmp_path_factory.mktemp("crossed") / "run"
    return GLMM(FORMULA, **LENGTHS).fit(frame, store=path, progress=False), frame, effects, path


def test_effects_coefficients_and_predictions_in_the_units_of_the_columns(fitted):
    model, frame, effects, _ = fitted
    assert "blocked Gibbs sampler" in model.run_.preparation["chosen"]
    summary = model.summary()
    for name, truth in (
        ("x", 3.0),
        ("sigma", 10.0),
        ("sd(user: x)", 0.5),
        ("correlation(user: Intercept, x)", 0.0),
        ("sd(film: Intercept)", np.std(effects["film"])),
    ):
        assert abs(summary.loc[name, "mean"] - truth) < 6 * summary.loc[name, "sd"], name
    for factor, truth in effects.items():
        table = model.random_effects(interval=0.9, factor=factor)
        inside = np.mean((table["low"] < truth.ravel()) & (truth.ravel() < table["high"]))
        assert 0.8 < inside < 0.98, factor
    seen = model.predict(frame, interval=0.9, kind="observation")
    assert 0.86 < np.mean((seen.low < frame["y"]) & (frame["y"] < seen.high)) < 0.95
    new = pd.DataFrame({"x": [50.0], "user": [999], "film": ["another"]})
    narrow, wide = (model.predict(new, interval=0.9, new_groups=how) for how in ("population", "sample"))
    assert wide.high - wide.low > 5 * (narrow.high - narrow.low)
    assert model.to_arviz().posterior["sd_film"].shape == (2, 60, 1)


@pytest.mark.rotates(3, "resumed runs")
def test_a_fit_that_was_interrupted_continues_bit_for_bit_and_a_finished_one_is_opened(fitted, tmp_path):
    model, frame, _, path = fitted

    def stop(report):
        if report.step >= 120:
            report.stop()

    part = GLMM(FORMULA, **LENGTHS).fit(frame, store=tmp_path / "run", callbacks=[stop], progress=False)
    assert part.run_.num_draws < 60
    whole = GLMM(FORMULA, **LENGTHS).fit(frame, store=tmp_path / "run", resume=True, progress=False)
    for name, leaf in model.run_.draws.items():
        np.testing.assert_array_equal(np.asarray(whole.run_.draws[name]), np.asarray(leaf), err_msg=name)
    opened = sc.models.load(path)
    pd.testing.assert_frame_equal(opened.random_effects(), model.random_effects())
    with pytest.raises(InvalidValueError, match="seed"):
        GLMM(FORMULA, **LENGTHS, seed=1).fit(frame, store=path, resume=True, progress=False)


def test_a_saved_model_predicts_the_same(fitted, tmp_path):
    model, frame, _, _ = fitted
    model.save(tmp_path / "model")
    again = sc.models.load(tmp_path / "model")
    np.testing.assert_allclose(again.predict(frame.iloc[:9]), model.predict(frame.iloc[:9]), rtol=1e-5)
    assert again.get_params() == model.get_params()


@pytest.mark.unit
def test_columns_that_effects_can_replace():
    rng = np.random.default_rng(0)
    level = np.repeat(np.arange(5), 4)
    x = np.stack([np.ones(20), rng.normal(size=20), rng.normal(size=5)[level], rng.normal(size=20)], axis=1)
    z = np.stack([np.ones(20), 2 * x[:, 1] - 1], axis=1)
    found = crossed.replaced(x, z, level, 5, 0)
    assert list(found) == [0, 1, 2]
    for place, effects in found.items():
        np.testing.assert_allclose(np.sum(z * effects[:, level].T, axis=1), x[:, place], atol=1e-6)
    assert list(crossed.replaced(x, z[:, 1:], level, 5, None)) == []
