"""The compiled CPU kernels have their exact laws: Kolmogorov-Smirnov at 250,000 draws over all sizes of the parameters.

The distance is taken at up to 500 order statistics. That is a lower bound of the supremum, so the
Dvoretzky-Kiefer-Wolfowitz inequality bounds the false alarms, and at most 1/500 of the distance is lost.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from scipy import stats

from scirocco.diffusions import host

pytestmark = pytest.mark.law

DRAWS = 250_000
POINTS = 500
SHAPES = (1e-4, 1e-2, 0.1, 0.499, 0.5, 0.7, 1.0, 3.0, 250.0, 1e6)
NONCENTRALITIES = (0.0, 1e-3, 1.0, 30.0, 1e3, 1e6)
FALSE_ALARM = 1e-6
CELLS = len(SHAPES) * len(NONCENTRALITIES)
Z_LIMIT = 5.5  # two-sided 4e-8


def assert_law(draws, cdf, smallest=1e-300, cells=CELLS):
    """DKW at the false-alarm probability of a cell; values below `smallest`, which may have underflowed, only count."""
    draws = np.sort(np.ravel(draws))
    assert draws[0] >= 0 and draws[-1] < np.inf  # NaN is sorted to the end and fails too
    ranks = np.unique(np.linspace(0, draws.size - 1, POINTS).astype(int))
    points = draws[ranks]
    points = points[points >= smallest]
    assert points.size > 0
    expected = cdf(points.astype(np.float64))
    assert np.isfinite(expected).all()
    above = np.searchsorted(draws, points, side="right") / draws.size
    distance = np.max(np.abs(above - expected))
    assert distance < math.sqrt(math.log(2 * cells / FALSE_ALARM) / (2 * draws.size))


def transition_cdf(x, theta, shape, time, rate=1.0):
    """The law of the process after `time`, in the textbook form: a scaled non-central χ²."""
    scale = time if rate == 0 else -math.expm1(-rate * time) / rate
    noncentrality = 2 * theta * math.exp(-rate * time) / scale
    if noncentrality == 0:
        return stats.gamma.cdf(x / scale, shape)
    return stats.ncx2.cdf(2 * x / scale, 2 * shape, noncentrality)


def start_for(noncentrality, time):
    return noncentrality / 2 * -math.expm1(-time) / math.exp(-time)


@pytest.mark.parametrize("noncentrality", NONCENTRALITIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_cir(seed, shape, noncentrality):
    time = 0.3
    theta = start_for(noncentrality, time)
    draws = host.cir((seed, 1), np.broadcast_to(theta, DRAWS), shape, time)
    assert_law(draws, lambda x: transition_cdf(x, theta, shape, time))


@pytest.mark.parametrize("noncentrality", [0.0, 1.0, 30.0, 1e6])
@pytest.mark.parametrize("shape", [1e-4, 0.1, 0.7, 250.0])
def test_cir_in_float32(seed, shape, noncentrality):
    time = np.float32(0.3)
    theta = np.float32(start_for(noncentrality, float(time)))
    draws = host.cir((seed, 2), np.full(DRAWS, theta), np.full(DRAWS, shape, np.float32), time)
    assert draws.dtype == np.float32
    cdf = functools.partial(transition_cdf, theta=float(theta), shape=float(np.float32(shape)), time=float(time))
    assert_law(draws, cdf, smallest=1e-37)


@pytest.mark.parametrize("rate", [2.5, 1e-9, 0.0, -0.7, 40.0])
@pytest.mark.parametrize("shape", [0.1, 0.5, 3.0])
def test_cir_of_any_rate(seed, rate, shape):
    """Every operand an array, another law an entry of four: none is taken for another."""
    theta, time = np.array([0.0, 0.2, 2.0, 50.0]), np.array([0.1, 0.5, 1.0, 2.0])
    size = (DRAWS // 4, 4)
    arrays = [np.array(np.broadcast_to(x, size)) for x in (theta, shape, time, rate)]
    draws = host.cir((seed, 3), *arrays)
    for column in range(4):
        cdf = functools.partial(transition_cdf, theta=theta[column], shape=shape, time=time[column], rate=rate)
        assert_law(draws[:, column], cdf)


@pytest.mark.parametrize("shape", [0.05, 2.0])
def test_two_half_steps_are_a_step(seed, shape):
    theta, time, rate = 0.8, 0.9, 1.3
    half = host.cir((seed, 4), np.full(DRAWS, theta), shape, time / 2, rate)
    draws = host.cir((seed, 5), half, shape, time / 2, rate)
    assert_law(draws, lambda x: transition_cdf(x, theta, shape, time, rate))


@pytest.mark.parametrize("rate", [1.0, 0.0, -0.5])
def test_mean_and_variance(seed, rate):
    theta, shape, time = 3.0, 0.4, 0.7
    draws = host.cir((seed, 6), np.full(DRAWS, theta), shape, time, rate)
    decay, scale = math.exp(-rate * time), time if rate == 0 else -math.expm1(-rate * time) / rate
    mean, variance = theta * decay + shape * scale, 2 * theta * decay * scale + shape * scale**2
    centred = draws - mean
    assert abs(centred.mean()) / math.sqrt(variance / DRAWS) < Z_LIMIT
    squares = centred**2
    assert abs(squares.mean() - variance) / (squares.std() / math.sqrt(DRAWS)) < Z_LIMIT


def test_entries_and_seeds_are_independent(seed):
    """Correlations at lag 1, across blocks, and between calls with neighbouring seeds; on ranks, which are uniform."""
    n = 1 << 19
    first, second = (host.cir((seed, step), np.full(n, 0.5), 0.3, 0.2) for step in (7, 8))
    u, v = (stats.rankdata(x) / n - 0.5 for x in (first, second))
    for x, y in ((u[1:], u[:-1]), (u[1024:], u[:-1024]), (u, v)):
        assert abs(np.mean(x * y)) * 12 * math.sqrt(x.size) < Z_LIMIT


@pytest.mark.parametrize("shape", SHAPES)
def test_gamma(seed, shape):
    assert_law(host.gamma((seed, 9), np.broadcast_to(shape, DRAWS)), functools.partial(stats.gamma.cdf, a=shape))


def test_gamma_of_a_huge_shape(seed):
    """Beyond 10¹² the plain form of the acceptance loses all digits; the law is normal to 10⁻⁸ by then."""
    shape = 1e16
    draws = (host.gamma((seed, 10), np.broadcast_to(shape, DRAWS)) - shape) / math.sqrt(shape)
    assert_law(draws - draws.min(), lambda x: stats.norm.cdf(x + draws.min()), smallest=0.0)


@pytest.mark.parametrize("mean", [1e-3, 0.3, 1.0, 7.0, 11.999, 12.0, 40.0, 1e3, 1e6, 1e12])
def test_poisson(seed, mean):
    counts = host.poisson((seed, 11), np.broadcast_to(mean, DRAWS))
    assert_law(counts, functools.partial(stats.poisson.cdf, mu=mean), smallest=0)


@pytest.mark.parametrize("mean", [0.5, 11.0, 13.0])
def test_poisson_mass_function(seed, mean):
    """χ² over all counts that are expected ten times or more; the tail is one cell."""
    counts = host.poisson((seed, 12), np.broadcast_to(mean, DRAWS))
    support = np.arange(stats.poisson.isf(10 / DRAWS, mean) + 1)
    expected = np.append(stats.poisson.pmf(support, mean), stats.poisson.sf(support[-1], mean)) * DRAWS
    observed = np.bincount(np.minimum(counts, support.size), minlength=support.size + 1)
    keep = expected >= 10
    distance = np.sum((observed[keep] - expected[keep]) ** 2 / expected[keep])
    assert distance < stats.chi2.isf(FALSE_ALARM / 10, keep.sum())


@pytest.mark.parametrize(
    ("sign", "law"), [(1, stats.norm), (-1, stats.norm), (1, stats.expon)], ids=["upper", "lower", "exponential"]
)
def test_the_tails_of_the_ziggurats(seed, sign, law):
    """Draws beyond the last layer and their distribution there: a KS distance over all draws would not see them."""
    draws = sign * _scalar_draws("normal" if law is stats.norm else "exponential", seed, 4_000_000)
    edge = 3.6541528853610088 if law is stats.norm else 7.697117470131050
    for level in (edge - 0.5, edge, edge + 0.3):
        count = int(np.sum(draws > level))
        probability = law.sf(level)
        assert stats.binom.cdf(count, draws.size, probability) > 1e-8
        assert stats.binom.sf(count - 1, draws.size, probability) > 1e-8
    beyond = draws[draws > edge] - edge
    assert_law(beyond, lambda x: 1 - law.sf(x + edge) / law.sf(edge), smallest=0.0)


@pytest.mark.parametrize(
    ("name", "law"), [("normal", stats.norm), ("exponential", stats.expon), ("uniform", stats.uniform)]
)
def test_scalar_routines(seed, name, law):
    draws = _scalar_draws(name, seed, DRAWS)
    low = draws.min()
    assert_law(draws - low, lambda x: law.cdf(x + low), smallest=0.0)


def _scalar_draws(name, seed, size):
    """As the kernels of models use the scalar routines: from compiled code of their own."""
    out = np.empty(size)
    _scalar_loop(name)(np.uint64(seed), out)
    return out


@functools.cache
def _scalar_loop(name):
    from numba import njit

    from scirocco.diffusions.host import _random

    draw, stream = getattr(_random, name), _random.stream

    @njit(nogil=True)
    def loop(seed, out):
        s0, s1 = stream(seed, np.uint64(13), np.uint64(0))
        for i in range(out.size):
            s0, s1, out[i] = draw(s0, s1)

    return loop
