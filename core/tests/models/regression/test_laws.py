"""Posteriors of regressions against exact ones: conjugate, by quadrature, by identities between densities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc
from scirocco.models.regression import approximation, density
from scirocco.models.regression.linear import LinearRegression
from scirocco.models.regression.logistic import LogisticRegression

pytestmark = pytest.mark.law

FAR = 30  # steps between draws, after which a chain of step 0.3 has forgotten all but 1 %
SLACK = 0.03  # of a standard deviation: second order in the step size


def flat(draws):
    return np.asarray(draws, np.float64).reshape(-1, *draws.shape[2:])


def logistic_rows(seed, num_rows, beta):
    rng = np.random.default_rng([seed, 11])
    X = rng.normal(size=(num_rows, len(beta))).astype(np.float32)
    return X, (rng.random(num_rows) < 1 / (1 + np.exp(-X @ beta))).astype(int)


def log_likelihood(X, y, beta):
    """Of a grid of coefficients (..., d)."""
    eta = beta @ X.T.astype(np.float64)
    return np.sum(y * eta - np.logaddexp(0.0, eta), axis=-1)


def assert_moments(draws, mean, sd):
    count = len(draws)
    np.testing.assert_array_less(abs(draws.mean(axis=0) - mean) / sd, 5 / count**0.5 + SLACK)
    np.testing.assert_array_less(abs(draws.std(axis=0) / sd - 1), 5 / (2 * count) ** 0.5 + SLACK)


def grid_moments(log_density, axes):
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    grids = np.meshgrid(*axes, indexing="ij")
    means = [np.sum(weights * grid) for grid in grids]
    return np.array(means), np.array(
        [np.sum(weights * (grid - m) ** 2) ** 0.5 for grid, m in zip(grids, means, strict=True)]
    )


def test_conjugate_linear_regression_is_exact(seed):
    rng = np.random.default_rng([seed, 5])
    X = (rng.normal(size=(40, 2)) @ [[1.0, 0.9], [0.0, 0.1]] * [1.0, 50.0]).astype(np.float32)
    y = (2.0 + X @ [0.5, 0.01] + 0.7 * rng.normal(size=40)).astype(np.float32)
    model = LinearRegression(scale=0.5, noise=0.7, intercept_scale=3.0, num_samples=700, thin=FAR, seed=seed)
    model.fit(X, y, progress=False)
    centre = X.mean(axis=0, dtype=np.float64)
    Z = np.c_[X - centre, np.ones(40)]  # the intercept's prior is on that at the means of the columns
    precision = Z.T @ Z / 0.49 + np.diag([4.0, 4.0, 1 / 9])
    mean = np.linalg.solve(precision, Z.T @ (y - y.mean()) / 0.49)
    mean[2] += y.mean()
    coef = flat(model.draws_["coef"])
    drawn = np.c_[coef, flat(model.draws_["intercept"]) + coef @ centre]
    centred = (drawn - mean) @ np.linalg.cholesky(precision)  # independent standard normals
    count = len(centred)
    assert np.abs(centred.mean(axis=0)).max() * count**0.5 < 5
    excess = centred.T @ centred / count - np.eye(3)
    assert np.abs(excess).max() < 5 * (2 / count) ** 0.5


def test_minibatches_of_logistic_regression_against_quadrature(seed):
    X, y = logistic_rows(seed, 3000, np.array([0.8, -0.3]))
    X[:, 1] += 3 * X[:, 0]
    model = LogisticRegression("normal", intercept=False, num_samples=600, thin=FAR, seed=seed)
    model.fit(X, y, progress=False)
    assert model.run_.configuration["estimator"]["name"] == "ControlVariates"
    axes = [
        m + s * np.linspace(-5, 5, 61) for m, s in zip(model.coef_[0], flat(model.draws_["coef"]).std(0), strict=True)
    ]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    log_density = np.stack([log_likelihood(X, y, part) for part in grid]) - 0.5 * np.sum(grid**2, axis=-1)
    assert_moments(flat(model.draws_["coef"]), *grid_moments(log_density, axes))


@pytest.mark.parametrize("prior", ["laplace", "horseshoe"])
def test_one_coefficient_of_few_rows_against_quadrature(prior, seed):
    X, y = logistic_rows(seed, 25, np.array([0.4]))
    model = LogisticRegression(prior, intercept=False, scale=0.5, num_samples=700, thin=2 * FAR, seed=seed)
    model.fit(X, y, progress=False)
    beta = np.linspace(-6, 6, 4001)
    log_density = log_likelihood(X, y, beta[:, None])
    if prior == "laplace":
        log_density -= np.abs(beta) / 0.5
    else:
        # log τ and log λ have the density sech; β is N(0, τ²λ²); the pole at 0 is averaged over a cell of the grid
        u = np.arange(-14.0, 14.0, 0.1)
        product = np.convolve(0.1 / np.cosh(u - np.log(0.5)), 1 / np.cosh(u))
        scales = np.exp(-28.0 + 0.1 * np.arange(len(product)))
        from scipy.special import ndtr

        edges = np.r_[beta - 0.0015, beta[-1] + 0.0015]
        mass = sum(w * np.diff(ndtr(edges / s)) for w, s in zip(product, scales, strict=True))
        log_density += np.log(mass)
    mean, sd = grid_moments(log_density, [beta])
    assert_moments(flat(model.draws_["coef"]), mean, sd)


def test_horseshoe_density_is_the_integral_over_local_scales():
    prior = density.HorseshoePrior(1.0, 10.0, None, (0.0,))
    u = np.arange(-25.0, 25.0, 0.01)

    def exact(beta, tau):
        scales = tau * np.exp(u)
        return np.log(np.sum(np.exp(-0.5 * (beta / scales) ** 2) / scales / np.cosh(u)))

    compiled = jax.jit(prior)
    for tau in (0.1, 1.0):
        at = [{"coef": jnp.array([beta]), "tau": jnp.array(tau)} for beta in (0.05, 0.3, 2.0, 10.0)]
        found = np.diff([float(compiled(params)) for params in at])
        np.testing.assert_allclose(found, np.diff([exact(float(p["coef"][0]), tau) for p in at]), atol=5e-3)


@pytest.mark.parametrize(
    "prior",
    [density.NormalPrior(0.7, 1.0), density.LaplacePrior(0.7, 1.0), density.HorseshoePrior(0.7, 1.0, None, (0.1, 0.2))],
)
def test_working_precision_is_the_slope_of_the_log_prior(prior):
    """E[1/variance | β] = -(d log p / dβ) / β for scale mixtures of normals."""
    beta = np.array([0.4, -1.5])
    working = prior.working(beta[None] ** 2)
    params = {"coef": jnp.array(beta)} | ({} if working.tau is None else {"tau": jnp.array(working.tau)})
    slope = np.asarray(jax.jit(jax.grad(prior))(params)["coef"])
    np.testing.assert_allclose(working.precision[0], -slope / beta, rtol=1e-4)


@pytest.mark.parametrize(("num_classes", "baseline"), [(2, False), (3, False), (3, True)])
def test_looks_on_the_host_are_the_derivatives_of_the_likelihood(num_classes, baseline, seed):
    rng = np.random.default_rng([seed, 2])
    X, codes = rng.normal(size=(30, 2)).astype(np.float32), rng.integers(0, num_classes, 30)
    rows = approximation.DesignRows(X, codes, num_classes, True, baseline)
    theta = rng.normal(size=rows.shape)

    def total(theta):
        if num_classes == 2:
            params = {"coef": theta[0, :2], "intercept": theta[0, 2]}
            return jnp.sum(density.Likelihood("bernoulli")(params, {"x": X, "y": codes.astype(np.float32)}))
        params = {"coef": theta[:, :2], "intercept": theta[:, 2]}
        return jnp.sum(density.Likelihood("softmax", baseline)(params, {"x": X, "y": codes.astype(np.int32)}))

    look, at = rows.look(theta), jnp.asarray(theta, jnp.float32)
    value, gradient, hessian = jax.jit(lambda at: (total(at), jax.grad(total)(at), jax.hessian(total)(at)))(at)
    np.testing.assert_allclose(look.value, value, rtol=1e-4)
    np.testing.assert_allclose(look.gradient, gradient, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(look.curvature, -hessian.reshape(theta.size, theta.size), rtol=1e-3, atol=1e-3)


def test_two_classes_of_the_softmax_are_the_binary_model(seed):
    """With normal priors of deviation s, the difference of the two has deviation √2 s and is independent of the sum."""
    rng = np.random.default_rng([seed, 4])
    X, codes = rng.normal(size=(20, 3)).astype(np.float32), rng.integers(0, 2, 20).astype(np.int32)
    softmax = sc.Model(density.Likelihood("softmax"), density.NormalPrior(0.5, 1.0), vectorized=True)
    single = sc.Model(density.Likelihood("bernoulli"), density.NormalPrior(0.5 * 2**0.5, 2**0.5), vectorized=True)
    gaps = []
    for _ in range(5):
        coef, intercept = rng.normal(size=(2, 3)).astype(np.float32), rng.normal(size=2).astype(np.float32)
        both = softmax.log_density({"coef": coef, "intercept": intercept}, {"x": X, "y": codes})
        difference = {"coef": coef[1] - coef[0], "intercept": intercept[1] - intercept[0]}
        alone = single.log_density(difference, {"x": X, "y": codes.astype(np.float32)})
        alone += -0.25 * np.sum(coef.sum(axis=0) ** 2) / 0.25 - 0.25 * intercept.sum() ** 2
        gaps.append(float(both - alone))
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-3)


def test_reduced_rows_have_the_same_squares(seed):
    rng = np.random.default_rng([seed, 6])
    X, y = rng.normal(size=(50, 3)), rng.normal(size=50)
    r = approximation.reduced(X, y, True)
    theta = rng.normal(size=4)
    wanted = np.sum((y - theta[0] - X @ theta[1:]) ** 2)
    np.testing.assert_allclose(np.sum((r[:, -1] - r[:, :4] @ theta) ** 2), wanted, rtol=1e-10)


def test_prediction_intervals_cover(seed):
    rng = np.random.default_rng([seed, 7])
    X = rng.normal(size=(4000, 2)).astype(np.float32)
    y = 1.0 + X @ [0.5, -1.0] + 0.3 * rng.normal(size=4000)
    model = LinearRegression(num_samples=250, thin=FAR, seed=seed).fit(X[:2000], y[:2000], progress=False)
    predicted = model.predict(X[2000:], interval=0.9)
    covered = np.mean((predicted.low < y[2000:]) & (y[2000:] < predicted.high))
    # 4.9 standard errors of the test rows; as much for the noise as 2000 rows show it, and the ends as 1000 draws do
    assert abs(covered - 0.9) < 4.9 * (0.09 / 2000) ** 0.5 * 3**0.5
    np.testing.assert_allclose((predicted.high - predicted.low) / (2 * 1.6449), 0.3, rtol=5 / 4000**0.5)
    np.testing.assert_array_equal(model.predict(X[2000:]), predicted.mean)
