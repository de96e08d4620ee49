"""The posteriors of `posteriors.py`: models, data made from fixed seeds, and starting points.

Each function below returns a `Problem`; `POSTERIORS` has all of them by name. Data are single precision, and the
references (`posteriors_truth.py`) are those of the rounded data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

import scirocco as sc
from scirocco.transforms import above, interval, ordered, positive


class Problem(NamedTuple):
    """The arguments of `sc.sample`."""

    model: sc.Model
    data: Any
    start: dict[str, np.ndarray]
    facts: dict[str, Any] | None = None
    """Numbers of the prior that the reference needs."""


@dataclass(frozen=True)
class Posterior:
    """One posterior of the battery."""

    name: str
    build: Callable[[], Problem] = field(repr=False)
    about: str
    hard: str = ""
    """Why a warning is expected; empty where the answer should be right."""


POSTERIORS: dict[str, Posterior] = {}


def posterior(about: str, hard: str = "") -> Callable[[Callable[[], Problem]], Callable[[], Problem]]:
    """Enter a posterior into the table."""

    def enter(build: Callable[[], Problem]) -> Callable[[], Problem]:
        POSTERIORS[build.__name__] = Posterior(build.__name__, build, about, hard)
        return build

    return enter


# -- densities, up to constants -------------------------------------------------------------------------------------


def normal(x: Any, mean: Any = 0.0, sd: Any = 1.0) -> jax.Array:
    return jnp.sum(-0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd))


def student(x: Any, df: float, mean: Any = 0.0, sd: Any = 1.0) -> jax.Array:
    return jnp.sum(-0.5 * (df + 1) * jnp.log1p(((x - mean) / sd) ** 2 / df) - jnp.log(sd))


def bernoulli(y: Any, logit: Any) -> jax.Array:
    return jnp.sum(y * logit - jnp.logaddexp(0.0, logit))


def poisson(y: Any, log_rate: Any) -> jax.Array:
    return jnp.sum(y * log_rate - jnp.exp(log_rate) - gammaln(y + 1))


def _f(values: Any) -> np.ndarray:
    return np.asarray(values, np.float32)


def _start(**values: Any) -> dict[str, np.ndarray]:
    return {name: _f(value) for name, value in values.items()}


def _chance(logits: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-logits))


def _with_ones(x: np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones(len(x)), x])


# -- linear regression ----------------------------------------------------------------------------------------------


def _linear(x: np.ndarray, y: np.ndarray, prior_sd: float, noise_scale: float, start: dict | None = None) -> Problem:
    """y ~ N(xβ, noise²), β ~ N(0, prior_sd²), noise ~ Exponential with mean noise_scale."""

    def log_likelihood(params, row):
        return normal(row["y"], row["x"] @ params["beta"], params["noise"])

    def log_prior(params):
        return normal(params["beta"], 0.0, prior_sd) - params["noise"] / noise_scale

    model = sc.Model(log_likelihood, log_prior, transforms={"beta": None, "noise": positive})
    start = _start(beta=np.zeros(x.shape[1]), noise=1.0) if start is None else start
    return Problem(model, {"x": _f(x), "y": _f(y)}, start, {"prior_sd": prior_sd, "noise_scale": noise_scale})


@posterior("linear regression, seven columns with scales from 1e-3 to 1e5 and an age, N = 500")
def linear_raw_units() -> Problem:
    rng = np.random.default_rng(1)
    scales = np.array([1e-3, 1e-1, 1.0, 1e1, 1e3, 1e5])
    x = rng.normal(size=(500, 6)) * scales
    x = np.column_stack([np.ones(500), rng.normal(45, 12, 500), x])
    beta = np.concatenate([[20.0, 0.8], np.array([3, -5, 8, 2, -6, 4]) / scales])
    return _linear(x, x @ beta + rng.normal(0, 12, 500), 1e5, 100.0)


@posterior("a trend over calendar years 1980–2020, not centred, N = 200")
def linear_years() -> Problem:
    rng = np.random.default_rng(2)
    year = rng.integers(1980, 2021, 200)
    return _linear(_with_ones(year), -350 + 0.18 * year + rng.normal(0, 1.5, 200), 1e4, 10.0)


@posterior("linear regression with two pairs of columns whose correlation is 0.999, N = 1,000")
def linear_collinear() -> Problem:
    rng = np.random.default_rng(3)
    a = rng.normal(size=(1_000, 2))
    x = np.column_stack([a, a + np.sqrt(2e-3) * rng.normal(size=a.shape), rng.normal(size=(1_000, 2))])
    return _linear(_with_ones(x), x @ [1.0, -0.5, 0.0, 0.5, 0.3, 0.0] + 2 + rng.normal(size=1_000), 10.0, 10.0)


@posterior("linear regression, five columns that are not centred with all products of two, N = 2,000")
def linear_interactions() -> Problem:
    rng = np.random.default_rng(4)
    a = rng.normal([2, 5, -3, 1, 8], [1, 2, 1, 0.5, 3], (2_000, 5))
    pairs = [a[:, i] * a[:, j] for i in range(5) for j in range(i)]
    x = _with_ones(np.column_stack([a, *pairs]))
    return _linear(x, x @ rng.normal(0, 0.3, x.shape[1]) + rng.normal(0, 2, 2_000), 10.0, 10.0)


@posterior("linear regression with 100 columns, correlated like a series (0.9), N = 5,000")
def linear_hundred() -> Problem:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(5_000, 100))
    for j in range(1, 100):
        x[:, j] = 0.9 * x[:, j - 1] + np.sqrt(1 - 0.81) * x[:, j]
    beta = rng.normal(size=100) * (rng.random(100) < 0.3)
    return _linear(x, x @ beta + rng.normal(size=5_000), 5.0, 10.0)


@posterior("linear regression, N = 1,000, from a start 100 posterior standard deviations away")
def linear_far_start() -> Problem:
    rng = np.random.default_rng(6)
    x = _with_ones(rng.normal(size=(1_000, 2)))
    start = _start(beta=[1 + 3.2, -2 - 3.2, 0.5 + 3.2], noise=1.0)
    return _linear(x, x @ [1, -2, 0.5] + rng.normal(size=1_000), 10.0, 10.0, start)


# -- normal samples -------------------------------------------------------------------------------------------------


def _sample(y: np.ndarray, prior_sd: float, noise_scale: float, mean: float, noise: float) -> Problem:
    """y ~ N(mean, noise²), priors as in `_linear`."""

    def log_likelihood(params, y):
        return normal(y, params["mean"], params["noise"])

    def log_prior(params):
        return normal(params["mean"], 0.0, prior_sd) - params["noise"] / noise_scale

    model = sc.Model(log_likelihood, log_prior, transforms={"mean": None, "noise": positive})
    facts = {"prior_sd": prior_sd, "noise_scale": noise_scale}
    return Problem(model, _f(y), _start(mean=mean, noise=noise), facts)


@posterior("mean and sd of y ~ N(87, 20), N = 434, started at mean 0, sd 1")
def normal_start_zero() -> Problem:
    return _sample(np.random.default_rng(11).normal(87, 20, 434), 100.0, 50.0, 0.0, 1.0)


@posterior("mean and sd of eight values")
def normal_eight_rows() -> Problem:
    return _sample(np.random.default_rng(12).normal(2, 1.5, 8), 10.0, 5.0, 0.0, 1.0)


@posterior("mean and sd of one million values")
def normal_million() -> Problem:
    return _sample(np.random.default_rng(13).normal(-3, 2, 1_000_000), 10.0, 5.0, 0.0, 1.0)


@posterior("mean and sd of 300 values, started at mean 1e4, sd 1e4")
def normal_start_1e4() -> Problem:
    return _sample(np.random.default_rng(14).normal(0.5, 1, 300), 100.0, 10.0, 1e4, 1e4)


@posterior("one row: the mean of one measurement with known error")
def one_row() -> Problem:
    def log_likelihood(params, y):
        return normal(y, params["mean"], 2.0)

    model = sc.Model(log_likelihood, lambda params: normal(params["mean"], 0.0, 5.0))
    return Problem(model, _f([3.2]), _start(mean=0.0))


@posterior("two means whose posterior sds are 1e-4 and 1, N = 400, from 0")
def normal_two_scales() -> Problem:
    rng = np.random.default_rng(15)

    def log_likelihood(params, y):
        return normal(y[0], params["small"], 2e-3) + normal(y[1], params["large"], 20.0)

    def log_prior(params):
        return normal(params["small"], 0.0, 10.0) + normal(params["large"], 0.0, 1_000.0)

    rows = np.column_stack([rng.normal(0.05, 2e-3, 400), rng.normal(300, 20, 400)])
    return Problem(sc.Model(log_likelihood, log_prior), _f(rows), _start(small=0.0, large=0.0))


# -- generalised linear models --------------------------------------------------------------------------------------


def _logistic(x: np.ndarray, y: np.ndarray, prior_sd: float, start: np.ndarray | None = None) -> Problem:
    def log_likelihood(params, row):
        return bernoulli(row["y"], row["x"] @ params["beta"])

    model = sc.Model(log_likelihood, lambda params: normal(params["beta"], 0.0, prior_sd))
    start = np.zeros(x.shape[1]) if start is None else start
    return Problem(model, {"x": _f(x), "y": _f(y)}, _start(beta=start), {"prior_sd": prior_sd})


def _simulated_logistic(seed: int, rows: int, columns: int, start: np.ndarray | None = None) -> Problem:
    rng = np.random.default_rng(seed)
    x = _with_ones(rng.normal(size=(rows, columns - 1)))
    beta = rng.normal(size=columns) / np.sqrt(columns)
    return _logistic(x, rng.random(rows) < _chance(x @ beta), 3.0, start)


@posterior("logistic regression, N = 10,000, d = 20")
def logistic_ten_thousand() -> Problem:
    return _simulated_logistic(21, 10_000, 20)


@posterior("logistic regression, N = 100,000, d = 20")
def logistic_hundred_thousand() -> Problem:
    return _simulated_logistic(22, 100_000, 20)


@posterior("logistic regression, N = 1,000,000, d = 5")
def logistic_million() -> Problem:
    return _simulated_logistic(23, 1_000_000, 5)


@posterior("logistic regression, N = 5,000, d = 5, started at 10 in every coefficient")
def logistic_far_start() -> Problem:
    return _simulated_logistic(24, 5_000, 5, np.full(5, 10.0))


@posterior("logistic regression, N = 100,000, four columns with 5–20 ones, 1 % events")
def logistic_rare() -> Problem:
    rng = np.random.default_rng(25)
    rows = 100_000
    common = rng.random((rows, 3)) < [0.5, 0.3, 0.1]
    rare = np.zeros((rows, 4))
    for column, ones in enumerate((5, 10, 15, 20)):
        rare[rng.choice(rows, ones, replace=False), column] = 1
    x = _with_ones(np.column_stack([common, rare]))
    y = rng.random(rows) < _chance(x @ [-5.0, 0.6, -0.4, 0.8, 2.0, 3.5, 1.0, 3.0])
    return _logistic(x, y, 2.5)


@posterior("logistic regression that almost separates the classes, N = 50, d = 3")
def logistic_separated() -> Problem:
    rng = np.random.default_rng(26)
    x = rng.normal(size=(50, 2))
    y = x @ [2.0, -1.0] + 0.15 * rng.normal(size=50) > 0.3
    return _logistic(_with_ones(x), y, 5.0)


@posterior("dose and response: four rows of five animals, binomial")
def dose_response() -> Problem:
    def log_likelihood(params, row):
        logit = params["intercept"] + params["slope"] * row["dose"]
        return row["deaths"] * logit - row["animals"] * jnp.logaddexp(0.0, logit)

    def log_prior(params):
        return normal(params["intercept"], 0.0, 5.0) + normal(params["slope"], 0.0, 20.0)

    data = {"dose": _f([-0.9, -0.3, 0.0, 0.8]), "deaths": _f([0, 2, 3, 5]), "animals": _f([5, 5, 5, 5])}
    return Problem(sc.Model(log_likelihood, log_prior), data, _start(intercept=0.0, slope=0.0))


@posterior("Poisson regression with a log offset, N = 2,000, d = 5")
def poisson_regression() -> Problem:
    rng = np.random.default_rng(31)
    x, offset = _with_ones(rng.normal(size=(2_000, 4))), rng.normal(1, 0.5, 2_000)
    y = rng.poisson(np.exp(x @ [0.5, 0.4, -0.3, 0.2, 0.0] + offset))

    def log_likelihood(params, row):
        return poisson(row["y"], row["x"] @ params["beta"] + row["offset"])

    model = sc.Model(log_likelihood, lambda params: normal(params["beta"], 0.0, 5.0))
    return Problem(model, {"x": _f(x), "y": _f(y), "offset": _f(offset)}, _start(beta=np.zeros(5)))


@posterior("negative binomial regression, N = 1,000, d = 3, and its size")
def negative_binomial() -> Problem:
    rng = np.random.default_rng(32)
    x = _with_ones(rng.normal(size=(1_000, 2)))
    y = rng.poisson(np.exp(x @ [1.0, 0.5, -0.5]) * rng.gamma(1.5, 1 / 1.5, 1_000))

    def log_likelihood(params, row):
        size, log_mean = params["size"], row["x"] @ params["beta"]
        total = jnp.logaddexp(jnp.log(size), log_mean)
        chances = row["y"] * (log_mean - total) + size * (jnp.log(size) - total)
        return gammaln(row["y"] + size) - gammaln(size) - gammaln(row["y"] + 1) + chances

    def log_prior(params):
        return normal(params["beta"], 0.0, 5.0) - params["size"] / 5

    model = sc.Model(log_likelihood, log_prior, transforms={"beta": None, "size": positive})
    return Problem(model, {"x": _f(x), "y": _f(y)}, _start(beta=np.zeros(3), size=1.0))


@posterior("probit regression, N = 500, d = 4")
def probit() -> Problem:
    rng = np.random.default_rng(33)
    x = _with_ones(rng.normal(size=(500, 3)))
    y = x @ [0.3, 1.0, -0.7, 0.0] + rng.normal(size=500) > 0

    def log_likelihood(params, row):
        return jax.scipy.stats.norm.logcdf((2 * row["y"] - 1) * (row["x"] @ params["beta"]))

    model = sc.Model(log_likelihood, lambda params: normal(params["beta"], 0.0, 3.0))
    return Problem(model, {"x": _f(x), "y": _f(y)}, _start(beta=np.zeros(4)))


@posterior("softmax regression, three classes, N = 1,000, 2 × 4 coefficients")
def softmax() -> Problem:
    rng = np.random.default_rng(34)
    x = _with_ones(rng.normal(size=(1_000, 3)))
    true = np.array([[0.0, 0, 0, 0], [0.5, 1, -1, 0], [-0.5, 0, 1, 0.5]])
    y = np.argmax(x @ true.T + rng.gumbel(size=(1_000, 3)), axis=1)

    def log_likelihood(params, row):
        scores = jnp.concatenate([jnp.zeros(1), params["beta"] @ row["x"]])
        return row["one_hot"] @ jax.nn.log_softmax(scores)

    model = sc.Model(log_likelihood, lambda params: normal(params["beta"], 0.0, 3.0))
    return Problem(model, {"x": _f(x), "one_hot": _f(np.eye(3)[y])}, _start(beta=np.zeros((2, 4))))


@posterior("gamma regression with log link, N = 500, d = 3, and its shape")
def gamma_regression() -> Problem:
    rng = np.random.default_rng(35)
    x = _with_ones(rng.normal(size=(500, 2)))
    y = rng.gamma(2.5, np.exp(x @ [3.0, 0.4, -0.2]) / 2.5)

    def log_likelihood(params, row):
        shape, log_mean = params["shape"], row["x"] @ params["beta"]
        log_rate = jnp.log(shape) - log_mean
        y = row["y"]
        return shape * log_rate - gammaln(shape) + (shape - 1) * jnp.log(y) - jnp.exp(log_rate) * y

    def log_prior(params):
        return normal(params["beta"], 0.0, 5.0) - params["shape"] / 5

    model = sc.Model(log_likelihood, log_prior, transforms={"beta": None, "shape": positive})
    return Problem(model, {"x": _f(x), "y": _f(y)}, _start(beta=np.zeros(3), shape=1.0))


@posterior("zero-inflated Poisson counts with one column, N = 500")
def zero_inflated() -> Problem:
    rng = np.random.default_rng(36)
    x = rng.normal(size=500)
    y = rng.poisson(np.exp(0.8 + 0.5 * x)) * (rng.random(500) > 0.3)

    def log_likelihood(params, row):
        log_rate = params["intercept"] + params["slope"] * row["x"]
        empty = params["empty"]
        counted = jnp.log1p(-empty) + poisson(row["y"], log_rate)
        return jnp.where(row["y"] == 0, jnp.logaddexp(jnp.log(empty), counted), counted)

    def log_prior(params):
        return normal(params["intercept"], 0.0, 3.0) + normal(params["slope"], 0.0, 3.0)

    transforms = {"intercept": None, "slope": None, "empty": interval(0, 1)}
    model = sc.Model(log_likelihood, log_prior, transforms=transforms)
    return Problem(model, {"x": _f(x), "y": _f(y)}, _start(intercept=0.0, slope=0.0, empty=0.5))


@posterior("beta-binomial counts, 30 rows: mean and concentration")
def beta_binomial() -> Problem:
    rng = np.random.default_rng(37)
    trials = rng.integers(5, 40, 30)
    y = rng.binomial(trials, rng.beta(0.2 * 8, 0.8 * 8, 30))

    def log_likelihood(params, row):
        a, b = params["mean"] * params["size"], (1 - params["mean"]) * params["size"]
        y, n = row["y"], row["n"]
        return gammaln(a + y) + gammaln(b + n - y) - gammaln(a + b + n) - gammaln(a) - gammaln(b) + gammaln(a + b)

    def log_prior(params):
        return normal(jnp.log(params["size"]), 2.0, 1.0) - jnp.log(params["size"])

    model = sc.Model(log_likelihood, log_prior, transforms={"mean": interval(0, 1), "size": positive})
    return Problem(model, {"y": _f(y), "n": _f(trials)}, _start(mean=0.5, size=1.0))


@posterior("ordinal regression, four grades, cutpoints by increments, N = 400")
def ordinal() -> Problem:
    rng = np.random.default_rng(38)
    x = rng.normal(size=(400, 2))
    y = np.digitize(x @ [1.0, -0.5] + rng.logistic(size=400), [-1.0, 0.3, 2.0])

    def log_likelihood(params, row):
        cuts = params["first"] + jnp.concatenate([jnp.zeros(1), jnp.cumsum(params["gaps"])])
        below = jax.nn.sigmoid(cuts - row["x"] @ params["beta"])
        chances = jnp.diff(jnp.concatenate([jnp.zeros(1), below, jnp.ones(1)]))
        return jnp.log(row["one_hot"] @ chances)

    def log_prior(params):
        return normal(params["beta"], 0.0, 3.0) + normal(params["first"], 0.0, 5.0) - jnp.sum(params["gaps"]) / 5

    model = sc.Model(log_likelihood, log_prior, transforms={"beta": None, "first": None, "gaps": positive})
    start = _start(beta=np.zeros(2), first=0.0, gaps=np.ones(2))
    return Problem(model, {"x": _f(x), "one_hot": _f(np.eye(4)[y])}, start)


# -- robust and sparse regression -----------------------------------------------------------------------------------


@posterior("robust regression: Student-t errors, 4 degrees of freedom, 5 % outliers, N = 200")
def student_regression() -> Problem:
    rng = np.random.default_rng(41)
    x = _with_ones(rng.normal(size=(200, 2)))
    y = x @ [1.0, 2.0, -1.0] + rng.standard_t(4, 200)
    y[:10] += rng.normal(0, 30, 10)

    def log_likelihood(params, row):
        return student(row["y"], 4.0, row["x"] @ params["beta"], params["noise"])

    def log_prior(params):
        return normal(params["beta"], 0.0, 10.0) - params["noise"] / 5

    model = sc.Model(log_likelihood, log_prior, transforms={"beta": None, "noise": positive})
    return Problem(model, {"x": _f(x), "y": _f(y)}, _start(beta=np.zeros(3), noise=1.0))


@posterior("Student-t location with Cauchy errors, N = 10: heavy tails, outliers on both sides")
def student_location() -> Problem:
    y = _f([-14.0, -0.9, -0.4, -0.1, 0.3, 0.8, 1.2, 3.1, 9.0, 26.0])

    def log_likelihood(params, y):
        return student(y, 1.0, params["location"], params["scale"])

    def log_prior(params):
        return normal(params["location"], 0.0, 20.0) - params["scale"] / 5

    model = sc.Model(log_likelihood, log_prior, transforms={"location": None, "scale": positive})
    return Problem(model, y, _start(location=0.0, scale=1.0))


def _lasso(seed: int, rows: int, prior_scale: float) -> Problem:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 8))
    y = x @ [2.0, 0, 0, -1.0, 0, 0, 0.05, 0] + rng.normal(0, 1.5, rows)

    def log_likelihood(params, row):
        return normal(row["y"], row["x"] @ params["beta"], params["noise"])

    def log_prior(params):
        return -jnp.sum(jnp.abs(params["beta"])) / prior_scale - params["noise"] / 5

    model = sc.Model(log_likelihood, log_prior, transforms={"beta": None, "noise": positive})
    return Problem(model, {"x": _f(x), "y": _f(y)}, _start(beta=np.zeros(8), noise=1.0))


@posterior("Laplace priors (lasso) of scale 0.1, N = 100, d = 8: kinks at 0")
def lasso_hundred() -> Problem:
    return _lasso(42, 100, 0.1)


@posterior("Laplace priors (lasso) of scale 0.01, N = 10,000, d = 8: kinks at 0")
def lasso_ten_thousand() -> Problem:
    return _lasso(43, 10_000, 0.01)


@posterior(
    "horseshoe regression, not centred, scales by their logarithms, N = 100, d = 10",
    hard="z is narrow where its scale is large; NUTS has one effective draw in thirty",
)
def horseshoe() -> Problem:
    rng = np.random.default_rng(44)
    x = rng.normal(size=(100, 10))
    y = x @ np.array([2.0, -1.5, 0.4, 0, 0, 0, 0, 0, 0, 0]) + rng.normal(size=100)

    def log_likelihood(params, row):
        beta = params["z"] * jnp.exp(params["log_local"] + params["log_global"])
        return normal(row["y"], row["x"] @ beta, jnp.exp(params["log_noise"]))

    def half_cauchy(log_scale, size=1.0):  # with the Jacobian of the logarithm
        return jnp.sum(log_scale - jnp.log1p(jnp.exp(2 * log_scale) / size**2))

    def log_prior(params):
        scales = half_cauchy(params["log_local"]) + half_cauchy(params["log_global"], 0.2)
        return normal(params["z"]) + scales + normal(params["log_noise"], 0.0, 1.0)

    start = _start(z=np.zeros(10), log_local=np.zeros(10), log_global=-1.0, log_noise=0.0)
    return Problem(sc.Model(log_likelihood, log_prior), {"x": _f(x), "y": _f(y)}, start)


# -- time series ----------------------------------------------------------------------------------------------------


def _series(seed: int, length: int, constant: float, coefficients: list[float], noise: float) -> np.ndarray:
    rng = np.random.default_rng(seed)
    order = len(coefficients)
    values = [0.0] * order
    for _ in range(length + 200):
        values.append(constant + np.dot(coefficients, values[: -order - 1 : -1]) + noise * rng.normal())
    return np.array(values[-length:])


@posterior("AR(1), rows are pairs of neighbours, N = 500")
def ar1_pairs() -> Problem:
    y = _series(51, 501, 1.0, [0.8], 0.5)
    return _linear(_with_ones(y[:-1]), y[1:], 5.0, 5.0)


@posterior("AR(2), rows are triples of neighbours, N = 1,000")
def ar2_triples() -> Problem:
    y = _series(52, 1_002, 0.5, [1.3, -0.4], 1.0)
    return _linear(_with_ones(np.column_stack([y[1:-1], y[:-2]])), y[2:], 5.0, 5.0)


def _whole_series(y: np.ndarray, order: int) -> Problem:
    """The model of `_linear` with one row: the series."""
    prior_sd, noise_scale = 5.0, 5.0

    def log_likelihood(params, series):
        lagged = [series[order - lag : len(series) - lag] for lag in range(1, order + 1)]
        x = jnp.stack([jnp.ones(len(series) - order), *lagged], axis=1)
        return normal(series[order:], x @ params["beta"], params["noise"])

    def log_prior(params):
        return normal(params["beta"], 0.0, prior_sd) - params["noise"] / noise_scale

    model = sc.Model(log_likelihood, log_prior, transforms={"beta": None, "noise": positive})
    facts = {"prior_sd": prior_sd, "noise_scale": noise_scale, "order": order}
    return Problem(model, _f(y)[None], _start(beta=np.zeros(order + 1), noise=1.0), facts)


@posterior("AR(1), one row: the series of 200 values")
def ar1_one_row() -> Problem:
    return _whole_series(_series(53, 200, 1.0, [0.7], 0.5), 1)


@posterior("AR(2), one row: the series of 300 values")
def ar2_one_row() -> Problem:
    return _whole_series(_series(54, 300, 0.0, [0.5, 0.3], 2.0), 2)


@posterior("stationary AR(1) with coefficient in (-1, 1) and close to 1, N = 150 pairs")
def ar1_near_one() -> Problem:
    y = _series(55, 151, 0.0, [0.98], 1.0)

    def log_likelihood(params, row):
        return normal(row[1], params["phi"] * row[0], params["noise"])

    model = sc.Model(
        log_likelihood, lambda params: -params["noise"] / 5, transforms={"phi": interval(-1, 1), "noise": positive}
    )
    return Problem(model, _f(np.column_stack([y[:-1], y[1:]])), _start(phi=0.0, noise=1.0))


# -- mixtures, several modes ----------------------------------------------------------------------------------------


@posterior("mixture of two normals, ordered means, unknown weight and sd, N = 500")
def mixture_ordered() -> Problem:
    rng = np.random.default_rng(61)
    y = rng.normal(np.where(rng.random(500) < 0.35, -1.5, 1.0), 0.8)

    def log_likelihood(params, y):
        first = jnp.log(params["weight"]) + normal(y, params["means"][0], params["sd"])
        second = jnp.log1p(-params["weight"]) + normal(y, params["means"][1], params["sd"])
        return jnp.logaddexp(first, second)

    def log_prior(params):
        weight = jnp.log(params["weight"]) + jnp.log1p(-params["weight"])
        return normal(params["means"], 0.0, 5.0) + weight - params["sd"] / 2

    transforms = {"means": ordered, "weight": interval(0, 1), "sd": positive}
    model = sc.Model(log_likelihood, log_prior, transforms=transforms)
    return Problem(model, _f(y), _start(means=[-0.5, 0.5], weight=0.5, sd=1.0))


def _two_means(y: np.ndarray, weight: float, start: list[float]) -> Problem:
    def log_likelihood(params, y):
        first = jnp.log(weight) + normal(y, params["means"][0])
        return jnp.logaddexp(first, jnp.log1p(-weight) + normal(y, params["means"][1]))

    model = sc.Model(log_likelihood, lambda params: normal(params["means"], 0.0, 5.0))
    return Problem(model, _f(y), _start(means=start))


@posterior("mixture of two normals with weights 0.2 and 0.8, means from (0, 0), N = 300")
def mixture_known_weights() -> Problem:
    rng = np.random.default_rng(62)
    return _two_means(rng.normal(np.where(rng.random(300) < 0.2, -2.0, 1.5), 1.0), 0.2, [0.0, 0.0])


@posterior("mixture of two normals with equal weights, N = 100", hard="two modes: labels may be exchanged")
def mixture_symmetric() -> Problem:
    rng = np.random.default_rng(63)
    return _two_means(rng.normal(np.where(rng.random(100) < 0.5, -2.0, 2.0), 1.0), 0.5, [-0.5, 0.5])


@posterior("y ~ N(θ², 1), N = 20", hard="two modes: the sign of θ")
def square() -> Problem:
    rng = np.random.default_rng(64)

    def log_likelihood(params, y):
        return normal(y, params["theta"] ** 2)

    model = sc.Model(log_likelihood, lambda params: normal(params["theta"], 0.0, 3.0))
    return Problem(model, _f(rng.normal(4.0, 1.0, 20)), _start(theta=0.5))


# -- hierarchies ----------------------------------------------------------------------------------------------------

SCHOOLS = {"y": _f([28, 8, -3, 7, -1, 1, 18, 12]), "error": _f([15, 10, 16, 11, 9, 11, 10, 18])}
"""Rubin (1981)."""


def _schools(centred: bool) -> Problem:
    """Effects y_j ~ N(θ_j, error_j²), θ_j ~ N(mean, sd²), mean ~ N(0, 5²), sd ~ half-Cauchy(5)."""

    def log_likelihood(params, row):
        theta = params["theta"] if centred else params["mean"] + params["sd"] * params["theta"]
        return normal(row["y"], row["school"] @ theta, row["error"])

    def log_prior(params):
        scale = normal(params["mean"], 0.0, 5.0) - jnp.log1p((params["sd"] / 5) ** 2)
        if centred:
            return scale + normal(params["theta"], params["mean"], params["sd"])
        return scale + normal(params["theta"])

    model = sc.Model(log_likelihood, log_prior, transforms={"mean": None, "sd": positive, "theta": None})
    return Problem(model, SCHOOLS | {"school": _f(np.eye(8))}, _start(mean=0.0, sd=1.0, theta=np.zeros(8)))


@posterior("eight schools, not centred")
def schools_noncentred() -> Problem:
    return _schools(centred=False)


@posterior("eight schools, centred", hard="a funnel: no mode, and scales that depend on the sd of the effects")
def schools_centred() -> Problem:
    return _schools(centred=True)


@posterior("logistic regression with 20 groups of 30, not centred")
def hierarchical_logistic() -> Problem:
    rng = np.random.default_rng(71)
    group, x = np.repeat(np.arange(20), 30), rng.normal(size=600)
    y = rng.random(600) < _chance(-0.5 + 0.8 * x + rng.normal(0, 0.7, 20)[group])

    def log_likelihood(params, row):
        effect = params["sd"] * params["z"][row["group"]]
        return bernoulli(row["y"], params["intercept"] + effect + params["slope"] * row["x"])

    def log_prior(params):
        scale = normal(params["intercept"], 0.0, 2.0) + normal(params["slope"], 0.0, 2.0)
        return scale + normal(params["z"]) + normal(params["sd"])

    transforms = {"intercept": None, "slope": None, "sd": positive, "z": None}
    model = sc.Model(log_likelihood, log_prior, transforms=transforms)
    data = {"x": _f(x), "y": _f(y), "group": group.astype(np.int32)}
    return Problem(model, data, _start(intercept=0.0, slope=0.0, sd=1.0, z=np.zeros(20)))


@posterior("random intercepts, centred, 50 groups of 20 rows, well informed")
def random_intercepts() -> Problem:
    rng = np.random.default_rng(72)
    group = np.repeat(np.arange(50), 20)
    y = rng.normal(rng.normal(10, 2, 50)[group], 1.5)

    def log_likelihood(params, row):
        return normal(row["y"], params["effects"][row["group"]], params["noise"])

    def log_prior(params):
        scale = normal(params["mean"], 0.0, 20.0) - params["sd"] / 5 - params["noise"] / 5
        return scale + normal(params["effects"], params["mean"], params["sd"])

    transforms = {"effects": None, "mean": None, "noise": positive, "sd": positive}
    model = sc.Model(log_likelihood, log_prior, transforms=transforms)
    data = {"y": _f(y), "group": group.astype(np.int32)}
    return Problem(model, data, _start(effects=np.zeros(50), mean=0.0, noise=1.0, sd=1.0))


@posterior("Neal's funnel in three dimensions with two weak measurements", hard="a funnel")
def funnel() -> Problem:
    def log_likelihood(params, row):
        return normal(row["y"], row["which"] @ params["x"], 2.0)

    def log_prior(params):
        return normal(params["v"], 0.0, 3.0) + normal(params["x"], 0.0, jnp.exp(params["v"] / 2))

    data = {"y": _f([1.0, -0.5]), "which": _f(np.eye(2))}
    return Problem(sc.Model(log_likelihood, log_prior), data, _start(v=0.0, x=np.zeros(2)))


# -- survival, bounds, skewness, curved and nonlinear posteriors ------------------------------------------------------


@posterior("exponential survival times with one column, 40 % censored, N = 100")
def exponential_censored() -> Problem:
    rng = np.random.default_rng(81)
    x = rng.normal(size=100)
    time, limit = rng.exponential(np.exp(1.0 + 0.5 * x)), rng.uniform(0.5, 8.0, 100)

    def log_likelihood(params, row):
        log_rate = -(params["intercept"] + params["slope"] * row["x"])
        return row["died"] * log_rate - jnp.exp(log_rate) * row["time"]

    def log_prior(params):
        return normal(params["intercept"], 0.0, 5.0) + normal(params["slope"], 0.0, 5.0)

    data = {"x": _f(x), "time": _f(np.minimum(time, limit)), "died": _f(time < limit)}
    return Problem(sc.Model(log_likelihood, log_prior), data, _start(intercept=0.0, slope=0.0))


@posterior("Weibull survival times in days, half of them censored, N = 80")
def weibull_censored() -> Problem:
    rng = np.random.default_rng(82)
    time, limit = 400 * rng.weibull(1.7, 80), rng.uniform(100, 700, 80)

    def log_likelihood(params, row):
        shape, ratio = params["shape"], jnp.log(row["time"]) - jnp.log(params["scale"])
        log_hazard = jnp.log(shape) - jnp.log(params["scale"]) + (shape - 1) * ratio
        return row["died"] * log_hazard - jnp.exp(shape * ratio)

    def log_prior(params):
        return -params["shape"] / 3 - params["scale"] / 1_000

    model = sc.Model(log_likelihood, log_prior, transforms={"shape": positive, "scale": positive})
    data = {"time": _f(np.minimum(time, limit)), "died": _f(time < limit)}
    return Problem(model, data, _start(shape=1.0, scale=1.0))


@posterior("shape and rate of a gamma law from five values: skewed and correlated")
def gamma_five_rows() -> Problem:
    def log_likelihood(params, y):
        shape, rate = params["shape"], params["rate"]
        return shape * jnp.log(rate) - gammaln(shape) + (shape - 1) * jnp.log(y) - rate * y

    def log_prior(params):
        return -params["shape"] / 5 - params["rate"] / 2

    model = sc.Model(log_likelihood, log_prior, transforms={"shape": positive, "rate": positive})
    return Problem(model, _f([1.1, 2.9, 1.7, 4.6, 2.2]), _start(shape=1.0, rate=1.0))


@posterior("a proportion next to its bound: one success in 300 rows")
def proportion_near_zero() -> Problem:
    def log_likelihood(params, y):
        return y * jnp.log(params["p"]) + (1 - y) * jnp.log1p(-params["p"])

    model = sc.Model(log_likelihood, transforms={"p": interval(0, 1)})
    return Problem(model, _f(np.arange(300) == 7), _start(p=0.5))


@posterior("a mean that must exceed 0 while the data average −0.1, N = 100: piled up at its bound")
def mean_at_bound() -> Problem:
    rng = np.random.default_rng(83)
    y = rng.normal(size=100)

    def log_likelihood(params, y):
        return normal(y, params["mean"])

    model = sc.Model(log_likelihood, transforms={"mean": above(0.0)})
    return Problem(model, _f(y - y.mean() - 0.1), _start(mean=1.0))


@posterior("banana: y ~ N(a + b², 1) with standard normal priors, N = 5")
def banana() -> Problem:
    rng = np.random.default_rng(84)

    def log_likelihood(params, y):
        return normal(y, params["a"] + params["b"] ** 2)

    def log_prior(params):
        return normal(params["a"], 0.0, 1.0) + normal(params["b"], 0.0, 1.0)

    return Problem(sc.Model(log_likelihood, log_prior), _f(rng.normal(0.0, 1.0, 5)), _start(a=0.0, b=0.5))


@posterior("Michaelis–Menten kinetics, N = 24")
def michaelis_menten() -> Problem:
    rng = np.random.default_rng(85)
    x = np.repeat([0.02, 0.06, 0.11, 0.22, 0.56, 1.1], 4)
    y = 210 * x / (0.09 + x) + rng.normal(0, 12, 24)

    def log_likelihood(params, row):
        return normal(row["y"], params["top"] * row["x"] / (params["half"] + row["x"]), params["noise"])

    def log_prior(params):
        return normal(params["top"], 0.0, 500.0) - params["half"] - params["noise"] / 50

    transforms = {"top": positive, "half": positive, "noise": positive}
    model = sc.Model(log_likelihood, log_prior, transforms=transforms)
    return Problem(model, {"x": _f(x), "y": _f(y)}, _start(top=100.0, half=1.0, noise=10.0))


@posterior("logistic growth, N = 30")
def logistic_growth() -> Problem:
    rng = np.random.default_rng(86)
    t = np.linspace(0, 12, 30)
    y = 50 / (1 + np.exp(-0.9 * (t - 5))) + rng.normal(0, 2, 30)

    def log_likelihood(params, row):
        mean = params["top"] * jax.nn.sigmoid(params["rate"] * (row["t"] - params["middle"]))
        return normal(row["y"], mean, params["noise"])

    def log_prior(params):
        return (
            normal(params["top"], 0.0, 100.0)
            + normal(params["middle"], 0.0, 20.0)
            - params["rate"]
            - params["noise"] / 10
        )

    transforms = {"top": positive, "rate": positive, "middle": None, "noise": positive}
    model = sc.Model(log_likelihood, log_prior, transforms=transforms)
    start = _start(top=10.0, rate=1.0, middle=1.0, noise=5.0)
    return Problem(model, {"t": _f(t), "y": _f(y)}, start)


@posterior("a dense normal law of 50 parameters with condition 1e6, 50 rows")
def gaussian_condition_1e6() -> Problem:
    rng = np.random.default_rng(87)
    q, _ = np.linalg.qr(rng.normal(size=(50, 50)))
    rows = q * np.sqrt(np.geomspace(1, 1e6, 50))[:, None]  # Σ rowᵀ row has these eigenvalues

    def log_likelihood(params, row):
        return -0.5 * (row @ (params["theta"] - 1.0)) ** 2

    return Problem(sc.Model(log_likelihood), _f(rows), _start(theta=np.zeros(50)))


# -- as newcomers write them ----------------------------------------------------------------------------------------


@posterior("mean and sd of two values")
def normal_two_rows() -> Problem:
    return _sample(np.array([3.1, 4.4]), 10.0, 5.0, 0.0, 1.0)


@posterior("mean and sd of three values, started at mean 0, sd 100")
def normal_three_rows() -> Problem:
    return _sample(np.array([101.0, 98.5, 104.0]), 200.0, 20.0, 0.0, 100.0)


@posterior("logistic regression that separates the classes completely, wide prior, N = 40, d = 3")
def logistic_complete() -> Problem:
    rng = np.random.default_rng(91)
    x = _with_ones(rng.normal(size=(40, 2)))
    y = x @ [0.2, 1.0, -1.0] > 0

    def log_likelihood(params, row):
        return bernoulli(row["y"], row["x"] @ params["beta"])

    model = sc.Model(log_likelihood, lambda params: normal(params["beta"], 0.0, 10.0))
    return Problem(model, {"x": _f(x), "y": _f(y)}, _start(beta=np.zeros(3)))


@posterior("logistic regression with an income and a rate in raw units, N = 20,000, started at -3 in every coefficient")
def logistic_saturated_start() -> Problem:
    rng = np.random.default_rng(92)
    x = np.column_stack([rng.normal(5e4, 2e4, 20_000), rng.normal(0, 1e-3, 20_000), rng.normal(size=20_000)])
    x = _with_ones(x)
    y = rng.random(20_000) < _chance(x @ [-2.0, 3e-5, 400.0, 0.3])

    def log_likelihood(params, row):
        return bernoulli(row["y"], row["x"] @ params["beta"])

    model = sc.Model(log_likelihood, lambda params: normal(params["beta"], 0.0, 1e3))
    return Problem(model, {"x": _f(x), "y": _f(y)}, _start(beta=np.full(4, -3.0)))


@posterior("Student-t regression, 3 degrees of freedom, a column in thousands, N = 300, started at noise 1,000")
def student_three() -> Problem:
    rng = np.random.default_rng(93)
    x = _with_ones(np.column_stack([rng.normal(3_000, 800, 300), rng.normal(size=300)]))
    y = x @ [5.0, 0.01, -2.0] + 3 * rng.standard_t(3, 300)

    def log_likelihood(params, row):
        return student(row["y"], 3.0, row["x"] @ params["beta"], params["noise"])

    def log_prior(params):
        return normal(params["beta"], 0.0, 100.0) - params["noise"] / 10

    model = sc.Model(log_likelihood, log_prior, transforms={"noise": positive})
    return Problem(model, {"x": _f(x), "y": _f(y)}, _start(beta=np.zeros(3), noise=1_000.0))


@posterior("ordinal regression, five grades of which one has three rows, ordered cutpoints, N = 150")
def ordinal_rare_grade() -> Problem:
    rng = np.random.default_rng(94)
    x = rng.normal(size=150)
    y = np.digitize(1.2 * x + rng.logistic(size=150), [-3.8, -1.0, 0.5, 2.5])

    def log_likelihood(params, row):
        below = jax.nn.sigmoid(params["cuts"] - row["x"] * params["slope"])
        chances = jnp.diff(jnp.concatenate([jnp.zeros(1), below, jnp.ones(1)]))
        return jnp.log(chances[row["y"]])

    def log_prior(params):
        return normal(params["slope"], 0.0, 3.0) + normal(params["cuts"], 0.0, 5.0)

    model = sc.Model(log_likelihood, log_prior, transforms={"cuts": ordered})
    start = _start(slope=0.0, cuts=[-2.0, -1.0, 1.0, 2.0])
    return Problem(model, {"x": _f(x), "y": y.astype(np.int32)}, start)


@posterior("negative binomial regression, very over-dispersed (size 0.3), N = 5,000, d = 3")
def negative_binomial_sparse() -> Problem:
    rng = np.random.default_rng(95)
    x = _with_ones(rng.normal(size=(5_000, 2)))
    y = rng.poisson(np.exp(x @ [0.5, 1.0, -0.5]) * rng.gamma(0.3, 1 / 0.3, 5_000))

    def log_likelihood(params, row):
        size, log_mean = params["size"], row["x"] @ params["beta"]
        total = jnp.logaddexp(jnp.log(size), log_mean)
        chances = row["y"] * (log_mean - total) + size * (jnp.log(size) - total)
        return gammaln(row["y"] + size) - gammaln(size) - gammaln(row["y"] + 1) + chances

    def log_prior(params):
        return normal(params["beta"], 0.0, 5.0) - params["size"]

    model = sc.Model(log_likelihood, log_prior, transforms={"size": positive})
    return Problem(model, {"x": _f(x), "y": _f(y)}, _start(beta=np.zeros(3), size=10.0))


@posterior("hurdle model: zeros by a logit, other counts by a Poisson law without 0, N = 800")
def hurdle() -> Problem:
    rng = np.random.default_rng(96)
    x = _with_ones(rng.normal(size=(800, 1)))
    rate = np.exp(x @ [0.3, 0.5])
    counts = np.maximum(rng.poisson(rate), 1)
    y = np.where(rng.random(800) < _chance(x @ [0.4, -1.0]), counts, 0)

    def log_likelihood(params, row):
        logit, log_rate = row["x"] @ params["any"], row["x"] @ params["count"]
        positive_part = poisson(row["y"], log_rate) - jnp.log(-jnp.expm1(-jnp.exp(log_rate)))
        some = row["y"] > 0
        return bernoulli(some, logit) + jnp.where(some, positive_part, 0.0)

    def log_prior(params):
        return normal(params["any"], 0.0, 3.0) + normal(params["count"], 0.0, 3.0)

    model = sc.Model(log_likelihood, log_prior)
    return Problem(model, {"x": _f(x), "y": _f(y)}, _start(any=np.zeros(2), count=np.zeros(2)))


@posterior("random effects without any variance: their sd, half-normal, is at its bound; the effects integrated out")
def variance_at_zero() -> Problem:
    rng = np.random.default_rng(97)
    error = rng.uniform(0.5, 2.0, 20)

    def log_likelihood(params, row):
        return normal(row["y"], params["mean"], jnp.sqrt(params["sd"] ** 2 + row["error"] ** 2))

    def log_prior(params):
        return normal(params["mean"], 0.0, 5.0) - 0.5 * params["sd"] ** 2

    model = sc.Model(log_likelihood, log_prior, transforms={"sd": positive})
    data = {"y": _f(0.8 * error * rng.normal(size=20)), "error": _f(error)}
    return Problem(model, data, _start(mean=0.0, sd=1.0))


@posterior("mixture of three normals with equal weights, N = 150", hard="six modes: labels may be exchanged")
def mixture_three() -> Problem:
    rng = np.random.default_rng(98)
    y = rng.normal(rng.choice([-4.0, 0.0, 5.0], 150), 1.0)

    def log_likelihood(params, y):
        return jax.nn.logsumexp(-0.5 * (y - params["means"]) ** 2)

    model = sc.Model(log_likelihood, lambda params: normal(params["means"], 0.0, 5.0))
    return Problem(model, _f(y), _start(means=[-1.0, 0.0, 1.0]))


@posterior("Poisson regression of one million rows, d = 3")
def poisson_million() -> Problem:
    rng = np.random.default_rng(99)
    x = _with_ones(rng.normal(size=(1_000_000, 2)))
    y = rng.poisson(np.exp(x @ [0.5, 0.2, -0.1]))

    def log_likelihood(params, row):
        return poisson(row["y"], row["x"] @ params["beta"])

    model = sc.Model(log_likelihood, lambda params: normal(params["beta"], 0.0, 5.0))
    return Problem(model, {"x": _f(x), "y": _f(y)}, _start(beta=np.zeros(3)))


@posterior("shape (about 200) and rate of a gamma law, N = 2,000: correlation 0.999")
def gamma_narrow() -> Problem:
    y = np.random.default_rng(100).gamma(200, 1 / 40, 2_000)

    def log_likelihood(params, y):
        a, b = params["shape"], params["rate"]
        return a * jnp.log(b) - gammaln(a) + (a - 1) * jnp.log(y) - b * y

    def log_prior(params):
        return -params["shape"] / 1_000 - params["rate"] / 1_000

    model = sc.Model(log_likelihood, log_prior, transforms={"shape": positive, "rate": positive})
    return Problem(model, _f(y), _start(shape=1.0, rate=1.0))


@posterior("location and scale with double exponential errors, N = 25: kinks at the values")
def laplace_location() -> Problem:
    y = np.random.default_rng(101).laplace(10.0, 2.0, 25)

    def log_likelihood(params, y):
        return -jnp.abs(y - params["location"]) / params["scale"] - jnp.log(params["scale"])

    def log_prior(params):
        return normal(params["location"], 0.0, 50.0) - params["scale"] / 10

    model = sc.Model(log_likelihood, log_prior, transforms={"scale": positive})
    return Problem(model, _f(y), _start(location=0.0, scale=1.0))
