"""Zero-variance estimates: exact where theory says so, honest errors elsewhere, blocks of any size, refusals."""

import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc
from scirocco.analysis.zero_variance import MOST_FEATURES, zero_variance
from scirocco.diagnostics import mcse
from scirocco.errors import InvalidTypeError, InvalidValueError

pytestmark = pytest.mark.compile

PRECISION = np.array([[2.0, 0.8, 0.0], [0.8, 1.0, -0.3], [0.0, -0.3, 5.0]])
CENTRE = np.array([1.0, -2.0, 30.0])


@pytest.fixture(autouse=True, scope="module")
def _hurry(quick_compiler):
    """Programs that run for less than a second."""


def autoregression(rng, num_chains, num_draws, dimension, rho):
    x = rng.normal(size=(num_chains, num_draws, dimension))
    for step in range(1, num_draws):
        x[:, step] = rho * x[:, step - 1] + (1 - rho**2) ** 0.5 * x[:, step]
    return x


@pytest.fixture
def gaussian(seed):
    """Draws of N(CENTRE, PRECISION⁻¹) along two slow chains, and their gradients."""
    x = autoregression(np.random.default_rng([seed, 1]), 2, 500, 3, 0.8)
    x = x @ np.linalg.cholesky(np.linalg.inv(PRECISION)).T
    return x + CENTRE, -x @ PRECISION


def make_run(draws, gradients, model="Model()"):
    configuration = {
        "model": model,
        "sampler": {"name": "SGLD"},
        "estimator": {"name": "Full"},
        "dimension": 3,
        "num_rows": 10,
        "num_burnin": 0,
        "thin": 1,
        "num_samples": draws.shape[1],
    }
    stats = {"gradient_norm": np.zeros(draws.shape[:2], np.float32)}
    return sc.Run(draws, gradients, stats, configuration, {}, {}, "complete", [])


# -- exact ---------------------------------------------------------------------------------------------------


def test_mean_of_a_gaussian_is_exact(gaussian):
    found = zero_variance(gaussian)
    np.testing.assert_allclose(found.value, CENTRE, rtol=1e-9)
    np.testing.assert_allclose(found.plain, gaussian[0].mean(axis=(0, 1)), rtol=1e-12)
    assert np.all(found.reduction > 1e12) and np.all(found.plain_error > 0.01)
    # x = centre - Σ s: the coefficients are the covariance
    np.testing.assert_allclose(found.coefficients, np.linalg.inv(PRECISION), atol=1e-8)
    assert (found.num_draws, found.num_features, found.degree, found.ridge) == (1_000, 3, 1, 0.0)


def test_second_moments_of_a_gaussian_are_exact_with_degree_2(gaussian):
    def products(x):
        return (x - CENTRE)[:, None] * (x - CENTRE)

    found = zero_variance(gaussian, products, degree=2)
    np.testing.assert_allclose(found.value, np.linalg.inv(PRECISION), atol=1e-4)  # g itself is of float32
    assert found.value.shape == (3, 3) and found.reduction.min() > 1e4
    assert zero_variance(gaussian, products).reduction.max() < 3, "degree 1 cannot"


def test_coefficients_of_degree_2_are_for_positions_that_are_not_centred(gaussian):
    """x_1 x_2 = a·z + intercept with z = (s, 1 + x_i s_i, x_i s_j + x_j s_i) at every draw."""
    x, s = (part.reshape(-1, 3) for part in gaussian)
    found = zero_variance(gaussian, lambda x: x[0] * x[1], degree=2)
    pairs = [(i, j) for i in range(3) for j in range(i, 3)]
    z = [1 + x[:, i] * s[:, i] if i == j else x[:, i] * s[:, j] + x[:, j] * s[:, i] for i, j in pairs]
    each = x[:, 0] * x[:, 1] + np.column_stack([s, *z]) @ found.coefficients[:, 0]
    exact = np.linalg.inv(PRECISION)[0, 1] + CENTRE[0] * CENTRE[1]
    np.testing.assert_allclose(each, exact, atol=2e-4)


def test_the_papers_sign_doubles_the_spread(gaussian):
    """The paper has g + aᵀz with a = +Var⁻¹ Cov: then g̃ - E g is twice g - E g."""
    x, s = (part.reshape(-1, 3) for part in gaussian)
    a = np.linalg.solve(np.cov(s.T), np.cov(s.T, x.T)[:3, 3:])
    found = zero_variance(gaussian)
    np.testing.assert_allclose(found.coefficients, -a, rtol=1e-6, atol=1e-8)
    assert np.all((x + s @ found.coefficients).var(axis=0) < 1e-12)
    np.testing.assert_allclose((x + s @ a).var(axis=0), 4 * x.var(axis=0), rtol=1e-9)


def test_sgld_with_long_steps(seed):
    """ε = 1/(3λ) makes the variance 1/(1 - ελ/2) = 1.2 times too large; degree 2 mends it. Minibatches of 50."""
    data = jax.random.normal(jax.random.key(seed + 100), (1_000,)) + 3.0
    mean = float(np.mean(np.asarray(data, np.float64)))
    model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)
    run = sc.sample(
        model,
        data,
        jnp.array(0.0),
        sampler=sc.SGLD(1 / 3_000),
        estimator=sc.ControlVariates(50),
        num_samples=20_000,
        num_burnin=100,
        keep_gradients=True,
        seed=seed,
        progress=False,
    )
    found = zero_variance(run)
    assert isinstance(found.value, float) and found.num_draws == 20_000
    assert found.reduction > 100 and abs(found.value - mean) < 1e-4
    square = zero_variance(run, lambda mu: 1_000 * (mu - mean) ** 2, degree=2, model=model)
    assert abs(square.plain - 1.2) < 5 * square.plain_error and square.plain - 1.0 > 5 * square.plain_error
    assert abs(square.value - 1.0) < 0.005 and square.reduction > 100


# -- honest errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("degree", "num_draws", "dimension"), [(1, 500, 3), (2, 60, 8)])
def test_standard_errors_cover(seed, degree, num_draws, dimension):
    """Noisy gradients, slow chains; with 44 features for 48 draws the errors are as honest."""
    rng = np.random.default_rng([seed, degree])
    rho = 0.8 if degree == 1 else 0.0
    scores, plain = [], []
    for _ in range(40):
        x = autoregression(rng, 1, num_draws, dimension, rho)
        found = zero_variance((x, -x + rng.normal(size=x.shape)), degree=degree)
        scores.append(found.value[:2] / found.standard_error[:2])
        plain.append(found.reduction)
    square = np.mean(np.square(scores))  # over 80 z-scores: 1 ± 0.16, somewhat more for short chains
    assert 0.3 < square < 2.2
    if degree == 1:
        assert np.median(plain) > 1.5


def test_useless_gradients_do_no_harm(seed):
    rng = np.random.default_rng([seed, 3])
    x, noise = rng.normal(size=(2, 1, 400, 10))
    found = zero_variance((x, noise))
    assert np.all(found.reduction < 1.3) and np.all(found.reduction > 0.7)
    assert np.all(np.abs(found.value) < 6 * found.standard_error)


def test_more_features_than_draws(seed):
    """35 gradients and 30 draws, of which 2 matter: a ridge is chosen, and the result says so."""
    x = np.random.default_rng([seed, 4]).normal(size=(1, 30, 35))
    found = zero_variance((x, -x), lambda x: x[:2])
    assert found.ridge > 0 and "ridge" in repr(found) and "no ridge" not in repr(found)
    assert np.all(np.abs(found.value) < 8 * found.standard_error)
    assert zero_variance((x, -x), lambda x: x[:2], ridge=0.7).ridge == 0.7
    none = zero_variance((x, -x), ridge=1e9)
    np.testing.assert_allclose(none.value, none.plain, atol=1e-6)


def test_features_that_are_sums_of_others(gaussian):
    """The same gradient twice, and one that is always 0."""
    x, s = gaussian
    doubled = np.concatenate([s, s[..., :1], np.zeros_like(s[..., :1])], axis=-1).astype(np.float32)
    found = zero_variance((x, doubled))
    np.testing.assert_allclose(found.value, CENTRE, atol=1e-4)


@pytest.mark.parametrize(("num_chains", "num_draws"), [(1, 40), (1, 999), (3, 200)])
@pytest.mark.parametrize("rho", [-0.5, 0.0, 0.9])
def test_errors_are_those_of_arviz(seed, num_chains, num_draws, rho):
    arviz, xarray = pytest.importorskip("arviz"), pytest.importorskip("xarray")
    x = autoregression(np.random.default_rng([seed, 5]), num_chains, num_draws, 4, rho)
    data = xarray.DataArray(x, dims=("chain", "draw", "k"), name="x").to_dataset()
    np.testing.assert_allclose(mcse(x), arviz.mcse(data, method="mean")["x"], rtol=1e-9)


# -- structure, blocks, stores ----------------------------------------------------------------------------------


def test_structure_is_that_of_g(gaussian):
    x, s = gaussian
    draws, gradients = {"a": x[..., 0], "b": x[..., 1:]}, {"a": s[..., 0], "b": s[..., 1:]}
    default = zero_variance((draws, gradients))
    assert isinstance(default.value["a"], float) and default.value["b"].shape == (2,)
    found = zero_variance((draws, gradients), lambda p: (p["a"], {"up": p["b"] > 0, "one": jnp.ones(())}))
    assert found.value[1]["up"].shape == (2,) and found.value[1]["one"] == 1.0
    assert found.reduction[1]["one"] == 1.0 and found.standard_error[1]["one"] == 0.0, "nothing to reduce"
    assert "[1].up[1]" in repr(found) and "variance divided by" in repr(found)


def test_table():
    x = np.random.default_rng(0).normal(size=(1, 50, 12))
    lines = repr(zero_variance((x, -x))).splitlines()
    assert lines[0] == "ZeroVariance: 50 draws, 12 features of degree 1, no ridge"
    assert lines[1].split() == ["without", "with", "variance", "divided", "by"]
    assert lines[2].startswith("params[0]") and lines[-1] == "... and 4 more"


@pytest.mark.parametrize("degree", [1, 2])
def test_blocks_of_any_size(gaussian, degree):
    x, s = gaussian
    noisy = (x.astype(np.float32), s + np.sin(50 * x))
    whole = zero_variance(noisy, degree=degree)
    for block in (7, 101, 10_000):
        part = zero_variance(noisy, degree=degree, block=block)
        np.testing.assert_allclose(part.value, whole.value, rtol=1e-7)
        np.testing.assert_allclose(part.standard_error, whole.standard_error, rtol=1e-6)


def test_transformed_parameters(seed):
    """u = log x ~ N(1, 4): gradients are kept for u, draws are x."""
    model = sc.Model(lambda x, datum: datum, transforms=sc.transforms.positive)
    u = 1 + 2 * np.random.default_rng(seed).normal(size=(1, 400))
    pair = (np.exp(u).astype(np.float32), -(u - 1) / 4)
    found = zero_variance(pair, lambda x: (jnp.log(x) - 1) ** 2, degree=2, model=model)
    assert abs(found.value - 4) < 1e-3 and found.reduction > 1e6


def test_stored_run_is_read_in_blocks(tmp_path, seed):
    """The same as in memory; four times the draws take no more memory, and less than the draws themselves."""
    rng = np.random.default_rng(seed)
    peaks = []
    for num_draws in (10_000, 40_000):
        x = rng.normal(size=(1, num_draws, 25)).astype(np.float32)
        run = make_run(x, -x + rng.normal(size=x.shape).astype(np.float32))
        run.save(tmp_path / str(num_draws))
        loaded = sc.load(tmp_path / str(num_draws))
        tracemalloc.start()
        found = zero_variance(loaded, block=500)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    np.testing.assert_allclose(found.value, zero_variance(run).value, rtol=1e-7)
    # a chunk of the store is 1 MB, and is in memory twice while it is read
    assert peaks[1] < 1.15 * peaks[0] and peaks[1] < 8e6 < 40_000 * 25 * 8 * 2


# -- refusals -------------------------------------------------------------------------------------------------


def refused(message, *args, error=InvalidValueError, **options):
    with pytest.raises(error, match=message):
        zero_variance(*args, **options)


def test_runs_that_cannot(tmp_path, gaussian):
    x, s = (part.astype(np.float32) for part in gaussian)
    refused(r"no gradients.*keep_gradients=True", make_run(x, None))
    refused("CountModel has none", make_run(x, None, "CountModel(counts=f)"))
    refused("at least 10 draws per chain, got 9", make_run(x[:, :9], s[:, :9]))
    refused("a run, or a pair", x, error=InvalidTypeError)
    make_run(x, s).save(tmp_path / "run")
    loaded = sc.load(tmp_path / "run")
    refused(r"degree 2 requires positions.*model=", loaded, degree=2)
    model = sc.Model(lambda x, datum: datum)
    np.testing.assert_allclose(zero_variance(loaded, degree=2, model=model).value, CENTRE, rtol=1e-4)
    log = sc.Model(lambda x, datum: datum, transforms=sc.transforms.positive)
    refused("domain the draws are not in", loaded, degree=2, model=log)
    refused("`model` must be", loaded, model=3, error=InvalidTypeError)


def test_arguments(gaussian):
    x, s = gaussian
    for degree in (0, 3, True, 1.5, "2"):
        refused("`degree` of zero_variance must be 1 or 2", gaussian, degree=degree)
    refused("`ridge` of zero_variance must be finite and >= 0", gaussian, ridge=-1.0)
    refused("`block` must be at least 1", gaussian, block=0)
    refused("same chains and draws", (x, s[:, 1:]))
    refused(r"\(chain, draw, ...\)", (x[0, 0], s[0, 0]))
    refused("as many gradients as positions", (x, s[..., :2]), degree=2)
    assert zero_variance((x, s[..., :2])).num_features == 2, "some gradients do for degree 1"
    large = np.broadcast_to(x[..., :1], (2, 500, MOST_FEATURES + 1))
    refused("2,001 features; zero_variance allows at most 2,000", (large, large))


def test_functions(gaussian):
    x, s = gaussian
    refused("`g` must be a function", gaussian, 3, error=InvalidTypeError)
    refused("cannot be traced with the parameters of ONE draw.*jax.numpy", gaussian, lambda x: float(x[0]))
    refused("cannot be traced", gaussian, lambda x: x["a"])
    refused("must return real numbers.*nothing", gaussian, lambda x: ())
    refused("must return real numbers.*complex64", gaussian, lambda x: x + 1j)
    late = x.copy()
    late[1, 77] = 1e30
    refused(r"values of `g`, must be finite; at chain 1, draw 77", (late, s), lambda x: jnp.exp(x[0] * 1e-20))
    bad = s.copy()
    bad[0, 3, 1] = np.nan
    refused("gradients must be finite; at chain 0, draw 3", (x, bad))


def test_a_colder_run_is_corrected_towards_its_own_law(seed):
    """posterior^(1/T) has gradients 1/T times the posterior's: second moments are T times as large."""
    x = np.random.default_rng(seed).standard_normal(1_000).astype(np.float32)
    model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)
    run = sc.sample(
        model,
        x,
        jnp.array(0.0),
        sampler=sc.SGLD(1e-4, temperature=0.5),
        num_samples=2_000,
        keep_gradients=True,
        progress=False,
        seed=seed,
    )
    found = zero_variance(run, lambda mu: (mu - x.mean()) ** 2, degree=2)
    assert float(found.value) == pytest.approx(0.5 / 1_000, rel=0.01)
