"""A user's own sampler, in one file: everything that works with a built-in one works with it, too."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import helpers
import scirocco as sc
from own_samplers import MALA, Place, ScaledSGLD, Watching, WatchingNoise
from scirocco.errors import InvalidTypeError
from scirocco.run import encoding, setup
from scirocco.run import loop as _loop
from scirocco.run.choose import set_up

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]
STEP = 1e-3


def draw(sampler, estimator=None, **changes):
    arguments = {"num_samples": 12, "num_chains": 2, "seed": 5} | changes
    return helpers.draw(sampler, sc.Minibatch(16) if estimator is None else estimator, **arguments)


def test_same_chain_as_the_built_in_one():
    ours, theirs = draw(ScaledSGLD(STEP)), draw(sc.SGLD(STEP))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), ours.draws, theirs.draws)


@pytest.mark.rotates(3, "own samplers")
def test_a_race_for_the_step_size():
    """(One that is measured: `test_store_and_resume`.)"""
    run = draw(ScaledSGLD("auto"), num_samples=200)
    assert run.status == "complete"
    assert np.std(run.draws["bias"]) > 0


def test_diagnosis_and_report(tmp_path):
    run = draw(ScaledSGLD(STEP), num_samples=400, num_chains=2)
    found = sc.analysis.diagnose(run)
    assert "ScaledSGLD" in str(run.configuration["sampler"])
    assert found.measures["stein_inflation"] is not None
    run.report(tmp_path / "report.html")
    assert "ScaledSGLD" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("given", [False, True])
def test_store_and_resume(tmp_path, given):
    """The class is defined here, so a store can rebuild it, with the step size that was measured."""
    data, options = helpers.make_data(), {"estimator": sc.Minibatch(16), "seed": 3, "progress": False}
    whole = sc.sample(helpers.MODEL, data, helpers.make_params(), sampler=ScaledSGLD(), num_samples=40, **options)
    sc.sample(
        helpers.MODEL, data, helpers.make_params(), sampler=ScaledSGLD(), num_samples=20, store=tmp_path, **options
    )
    again = {"sampler": ScaledSGLD()} if given else {}
    run = sc.resume(tmp_path, helpers.MODEL, data, num_samples=40, progress=False, **again)
    jax.tree.map(np.testing.assert_array_equal, run.draws, whole.draws)


def test_encoding_of_a_class_that_is_not_defined():
    written = encoding.encode(ScaledSGLD(STEP))
    assert encoding.decode(written, "sampler") == ScaledSGLD(STEP)
    with pytest.raises(sc.errors.InvalidTypeError, match=r"pass sampler=\.\.\. \(the original\) to sc\.resume"):
        encoding.decode(written | {"module": "elsewhere"}, "sampler")


def test_a_resumed_run_with_another_sampler_is_refused(tmp_path):
    draw(ScaledSGLD(STEP), store=tmp_path)
    with pytest.raises(sc.errors.SciroccoError, match="sampler"):
        sc.resume(tmp_path, helpers.MODEL, helpers.make_data(), sampler=ScaledSGLD(2 * STEP), num_samples=20)


# -- the value of the log density ----------------------------------------------------------------------------------


def log_posterior(params):
    likelihoods = jax.vmap(helpers.log_likelihood, (None, 0))(params, helpers.make_data())
    return helpers.log_prior(params) + likelihoods.sum()


def along(run):
    """The exact log posterior at the draws of the first chain."""
    draws = jax.tree.map(lambda leaf: leaf[0], run.draws)
    return np.asarray(jax.vmap(log_posterior)(draws), np.float64)


VALUED = {
    "Full": sc.Full(),
    "Minibatch": sc.Minibatch(16, sampling="with_replacement"),
    "Weighted": sc.Weighted(16, np.linspace(1.0, 3.0, helpers.NUM_ROWS)),
    "Stratified": sc.Stratified(16, np.arange(helpers.NUM_ROWS) % 4),
    "ControlVariates": sc.ControlVariates(16, sampling="with_replacement"),
    "SVRG": sc.SVRG(16, refresh_every=3, sampling="with_replacement"),
    "SAGA": sc.SAGA(16),
}


def values_at(estimator, sampler, num_draws, params=None):
    """The parts of a problem, and estimates at one point from independent batches: (gradients, values, variances)."""
    problem = setup.compose(helpers.MODEL, helpers.make_data(), sampler, estimator, 0)
    params = helpers.make_params() if params is None else params
    parts, prepared = set_up.prepare_estimator(problem, params, num_chains=1, key=jax.random.key(1))
    at = jax.tree.map(lambda p: jnp.asarray(p) + 0.02, prepared.position)

    def one(number):
        plan = parts.batching.plan(jax.random.key(2), number)
        # SVRG moves its centre at multiples of refresh_every: not here
        return parts.scheme.evaluate(
            problem.model, parts, at, prepared.memory, 3 * number + 1, plan, None, jax.random.key(3)
        )[0]

    return at, jax.jit(jax.vmap(one))(jnp.arange(num_draws))


@pytest.mark.rotates(2)
@pytest.mark.parametrize("name", [name for name in VALUED if name not in ("Full", "SVRG")])
def test_the_value_is_unbiased(name):
    at, found = values_at(VALUED[name], WatchingNoise(STEP), 1_500)
    exact = float(log_posterior(at))
    values = np.asarray(found.value, np.float64)
    spread = values.std(ddof=1) / np.sqrt(len(values))
    assert abs(values.mean() - exact) <= 5 * spread + 1e-4 * abs(exact), (values.mean(), exact, spread)
    variance = np.asarray(found.value_variance, np.float64).mean()
    assert variance == pytest.approx(values.var(ddof=1), rel=0.35, abs=1e-6) or name == "Stratified"
    gradient = jax.grad(log_posterior)(at)
    for leaf, true in zip(jax.tree.leaves(found.total), jax.tree.leaves(gradient), strict=True):
        error = leaf.std(axis=0) / np.sqrt(len(leaf))
        assert np.all(np.abs(leaf.mean(axis=0) - true) <= 5 * error + 1e-3)


@pytest.mark.rotates(3)
@pytest.mark.parametrize("name", ["Full", "SVRG", "SAGA"])
def test_a_chain_that_asks_for_the_value_is_the_same_chain(name):
    estimator = VALUED[name]
    plain, watched = draw(ScaledSGLD(STEP), estimator), draw(Watching(STEP), estimator)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6), plain.draws, watched.draws)
    values = watched.stats["value"][0, 1:]
    exact = along(watched)[:-1]
    assert np.all(np.isfinite(values))
    if name == "Full":
        np.testing.assert_allclose(values, exact, rtol=1e-5)
        assert np.all(watched.stats["value_variance"] == 0)
    if name == "SVRG":  # near the centre
        np.testing.assert_allclose(values, exact, rtol=0.1)


class Rows:
    """A source of rows that are read as they are needed."""

    def __init__(self, arrays):
        self.arrays, self.num_rows, self.shuffled = arrays, len(arrays["y"]), False
        self.row_spec = {k: jax.ShapeDtypeStruct(v.shape[1:], v.dtype) for k, v in arrays.items()}

    def take(self, indices):
        return {k: v[indices] for k, v in self.arrays.items()}

    def read(self, start, stop):
        return {k: v[start:stop] for k, v in self.arrays.items()}

    def fingerprint(self):
        return "1"


@pytest.mark.rotates(3)
@pytest.mark.parametrize("name", ["Full", "SVRG", "SAGA"])
def test_the_value_of_streamed_data(name):
    """The same chain and the same values as in memory."""
    estimator = VALUED[name]
    here, streamed = (
        draw(Watching(STEP), estimator, data=data) for data in (helpers.make_data(), Rows(helpers.make_data()))
    )
    if name != "SAGA":  # its batches are drawn in another way there
        helpers.assert_close(streamed.draws, here.draws)
        helpers.assert_close(streamed.stats["value"], here.stats["value"], rtol=1e-3)
    assert np.all(np.isfinite(streamed.stats["value"]))
    if name == "Full":
        np.testing.assert_allclose(streamed.stats["value"][0, 1:], along(streamed)[:-1], rtol=1e-5)


def test_moves_are_refused_on_streamed_data_as_in_memory():
    data = {"y": np.ones(20, np.float32)}
    model = sc.Model(lambda theta, row: -0.05 * row["y"] * theta**4, lambda theta: -0.5 * theta**2)
    here, streamed = (
        sc.sample(
            model,
            source,
            jnp.array(0.3),
            sampler=MALA(0.6),
            estimator=sc.Full(),
            num_samples=30,
            seed=2,
            progress=False,
        )
        for source in (data, Rows(data))
    )
    np.testing.assert_allclose(streamed.draws, here.draws, rtol=1e-5)
    assert 0 < streamed.stats["accepted"].mean() < 1


def test_who_does_not_ask_pays_nothing():
    """The program of SGLD has no forward value in it: the same jaxpr as a sampler without the contract would have."""
    problem = setup.compose(helpers.MODEL, helpers.make_data(), sc.SGLD(STEP), sc.Minibatch(16), 0)
    parts, position = problem.parts, jax.tree.map(jnp.asarray, helpers.make_params())

    def one(sampler):
        def step(state, key):
            draws = _loop.draw(problem.model, own, position, key, state.batch_key, state.number)
            return _loop.move(problem.model, own, state, draws)

        own = parts._replace(sampler=sampler)
        begin = _loop.Start(position, (), None)
        state, _ = jax.eval_shape(lambda key: _loop.start_chain(problem.model, own, begin, key, 0), jax.random.key(0))
        return jax.make_jaxpr(step)(state, jax.random.key(1)), state

    def count(jaxpr):
        inner = [p.jaxpr for e in jaxpr.eqns for p in e.params.values() if hasattr(p, "jaxpr")]
        return len(jaxpr.eqns) + sum(count(i) for i in inner)

    def by_hand(state, key):
        """A step without the contract."""
        noise = parts.sampler.noise(key, position)
        plan = parts.batching.plan(state.batch_key, state.number + 1)
        moved = parts.sampler.step(state.sampler, state.gradient, noise, state.number)
        batch = parts.batching.take(parts.data, plan)
        total = problem.model.summand.total(moved.position, batch.rows, None, None)
        total = jax.tree.map(lambda leaf: batch.scale * leaf, total)
        gradient = state.gradient._replace(total=problem.model.combine(moved.position, total))
        state = state._replace(sampler=moved, gradient=gradient, number=state.number + 1)
        return state, _loop.inform(problem.model, parts, state)

    plain, state = one(sc.SGLD(STEP))
    assert state.gradient.value is None
    assert count(plain.jaxpr) == count(jax.make_jaxpr(by_hand)(state, jax.random.key(1)).jaxpr)
    assert count(one(Watching(STEP))[0].jaxpr) > count(plain.jaxpr)


def test_models_without_a_density_have_no_value():
    model = sc.CountModel(0.5, lambda omega, z: jax.nn.one_hot(z, 3))
    with pytest.raises(sc.errors.InvalidTypeError, match="CountModel"):
        sc.sample(model, np.zeros(10, int), np.full(3, 1 / 3), sampler=Watching(STEP), num_samples=2)
    with pytest.raises(sc.errors.InvalidTypeError, match="requires more than an estimate"):
        sc.Blocks({"weights": Watching(STEP)})
    with pytest.raises(sc.errors.InvalidTypeError, match="requires more than an estimate"):
        sc.Blocks({"weights": MALA(STEP)})


# -- moves that may be refused -------------------------------------------------------------------------------------

QUARTIC = sc.Model(lambda theta, x: -0.05 * x * theta**4, lambda theta: -0.5 * theta**2)
"""log posterior = -θ⁴ - θ²/2 with 20 rows of 1."""
ONES = np.ones(20, np.float32)


def quartic_cdf():
    grid = np.linspace(-4, 4, 20_001)
    density = np.exp(-(grid**4) - grid**2 / 2)
    cdf = np.cumsum(density) / density.sum()
    return lambda x: np.interp(x, grid, cdf)


def metropolis(sampler, seed, **changes):
    options = {"num_samples": 1_000, "num_burnin": 50, "thin": 10, "num_chains": 16} | changes
    return sc.sample(
        QUARTIC,
        ONES,
        jnp.array(0.3),
        sampler=sampler,
        estimator=sc.Full(),
        seed=seed,
        chain_method="vmap",
        progress=False,
        **options,
    )


def test_exact_metropolis_adjusted_langevin(seed):
    run = metropolis(MALA(0.15), seed)
    accepted = run.stats["accepted"].mean()
    assert 0.5 < accepted < 0.99
    draws = run.draws[:, ::5].ravel()
    assert stats.kstest(draws, quartic_cdf()).pvalue > 1e-4
    # a Metropolis step that is a little wrong has another law
    broken = metropolis(MALA(0.15, biased=0.5), seed).draws[:, ::5].ravel()
    assert stats.kstest(broken, quartic_cdf()).pvalue < 1e-6


def test_a_refused_move_leaves_the_gradient_where_it_was():
    run = metropolis(MALA(0.6), 0, num_samples=60, thin=1, num_burnin=0, num_chains=2, keep_gradients=True)
    accepted = run.stats["accepted"].astype(bool)
    assert accepted.any()
    assert not accepted.all()
    np.testing.assert_allclose(run.gradients, -4 * run.draws**3 - run.draws, rtol=1e-4, atol=1e-4)
    stayed = ~accepted[:, 1:]
    assert np.all((np.diff(run.draws, axis=1) == 0) == stayed)


def test_metropolis_with_an_open_step_size_and_in_a_store(tmp_path):
    whole = metropolis(MALA(), 1, num_samples=40)
    metropolis(MALA(), 1, num_samples=20, store=tmp_path)
    run = sc.resume(tmp_path, QUARTIC, ONES, num_samples=40, progress=False)
    np.testing.assert_array_equal(run.draws, whole.draws)


def test_a_sampler_of_no_kind_is_refused():
    @sc.samplers.pytree_dataclass
    class Still(sc.samplers.Sampler):
        step_size: float = 1.0

        def init(self, params, key):
            return Place(params)

    with pytest.raises(InvalidTypeError, match=r"Still is of no kind: derive it from sc\.samplers\.Mover"):
        draw(Still(), sc.Full())


def test_a_sampler_is_its_numbers():
    assert dataclasses.replace(MALA(0.1), biased=1.0).biased == 1.0
    assert isinstance(ScaledSGLD(0.1).init(jnp.zeros(2), jax.random.key(0)), Place)


def test_settings_that_a_sampler_does_not_have_are_refused():
    """A name with a mistake in it must not be lost; what has no value need not be a field."""
    sampler = sc.HMC(0.1)
    assert sampler.with_settings(length=2.0, momentum=None) == sc.HMC(0.1, length=2.0)
    with pytest.raises(TypeError, match=r"HMC has no fields \['lenght'\]; it has \['factor', "):
        sampler.with_settings(lenght=2.0)


# -- log likelihoods that take a key -------------------------------------------------------------------------------

WIDTH = 0.7


def log_joint(theta, x, key):
    """x | z ~ N(z, 1), z | θ ~ N(θ, 1) with z drawn from its conditional: Fisher's identity gives the gradient."""
    mean, variance = (theta + x) / 2, 0.5
    z = jax.lax.stop_gradient(mean + jnp.sqrt(variance) * jax.random.normal(key))
    return -0.5 * (x - z) ** 2 - 0.5 * (z - theta) ** 2


def log_marginal(theta, x):
    return -0.25 * (x - theta) ** 2


LATENT, MARGINAL = sc.Model(log_joint), sc.Model(log_marginal)


def test_gradients_with_latent_draws_are_unbiased():
    rows, theta = jnp.array([0.5, -1.0, 2.0, 0.1]), jnp.array(0.4)
    assert LATENT.takes_key
    assert not MARGINAL.takes_key
    exact = MARGINAL.summand.total(theta, rows)
    keys = jax.random.split(jax.random.key(0), 20_000)
    totals = jax.jit(jax.vmap(lambda key: LATENT.summand.total(theta, rows, None, key)))(keys)
    assert abs(totals.mean() - exact) < 5 * totals.std() / np.sqrt(len(keys))
    assert totals.std() > 0.5
    key = jax.random.key(4)
    each = LATENT.summand.each(theta, rows, key)
    np.testing.assert_allclose(each.sum(), LATENT.summand.total(theta, rows, None, key), rtol=1e-5)


@pytest.mark.rotates(3, "own samplers")
def test_a_chain_with_latent_draws(seed):
    """Every step and row draws afresh: SGLD with the noise of the draws has the variance that theory says."""
    rng = np.random.default_rng(seed)
    data, eps = rng.normal(size=40).astype(np.float32), 0.01
    run = sc.sample(
        LATENT,
        data,
        jnp.array(0.0),
        sampler=sc.SGLD(eps),
        estimator=sc.Full(),
        num_samples=800,
        num_burnin=60,
        num_chains=128,
        seed=seed,
        chain_method="vmap",
        progress=False,
    )
    precision, noise = 40 / 2, 40 * 0.5  # ∇ log p(x, z | θ) = z - θ, whose variance given x is 1/2 a row
    exact = (2 + eps * noise) / (precision * (2 - eps * precision))
    per_chain = ((run.draws - data.mean()) ** 2).mean(axis=1)
    z = (per_chain.mean() - exact) / (per_chain.std(ddof=1) / np.sqrt(len(per_chain)))
    assert abs(z) < 5, z


def test_control_variates_are_refused_for_latent_draws():
    with pytest.raises(sc.errors.InvalidValueError, match="keeps one sum"):
        sc.sample(
            LATENT, np.zeros(40), jnp.array(0.0), sampler=sc.SGLD(0.01), estimator=sc.ControlVariates(10), num_samples=2
        )


@pytest.mark.rotates(3, "own samplers")
def test_latent_draws_with_open_step_size_minibatches_and_value():
    data = np.random.default_rng(0).normal(size=200).astype(np.float32)
    run = sc.sample(
        LATENT, data, jnp.array(0.0), sampler=Watching(), estimator=sc.Minibatch(50), num_samples=200, progress=False
    )
    assert np.all(np.isfinite(run.stats["value"]))
