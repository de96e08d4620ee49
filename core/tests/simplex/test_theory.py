"""Moments and generating functions of SCIR and SCIR-CV: by simulation, by hand, and against each other."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.simplex import theory
from scirocco.simplex.theory import Counts, papers

pytestmark = pytest.mark.law

PAPER = Counts.hypergeometric(0.1, count=150, num_rows=1000, batch_size=100)
RARE = Counts.hypergeometric(0.1, count=3, num_rows=100, batch_size=20)  # every second b̂ is negative
STUCK = Counts.from_values([0.5, 1.0, 3.5], [0.3, 0.3, 0.4])  # b̂ < 0, b̂ = 0 and b̂ > 0
SPARSE = Counts.from_values([0.1, 1.3], [0.7, 0.3])  # a < 1
STEPS = (1, 5, 20, 100)
LIGHT, HEAVY = 5.5, 7.0
"""Largest z-scores, for a false alarm in a million tests. The squares of a law with b̂ < 0 or a < 1 have a skewness of
up to 30; a mean of 20,000 over its estimated error is then skewed by 0.4: beyond 7 as often as a normal beyond 5."""
BOTH = pytest.mark.parametrize("parametrization", [1, 2])


# -- simulation ----------------------------------------------------------------------------------------------


def chain(process, theta0, counts, step_size, num_steps, parametrization, rng, num_chains=20_000):
    """The transition as the papers write it, in b, μ and σ², by NumPy; yields θ after each step."""
    theta, a = np.full(num_chains, float(theta0)), counts.mean
    for h in np.broadcast_to(step_size, (num_steps,)):
        shape = rng.choice(counts.values, size=num_chains, p=counts.probabilities)
        shape = np.full(num_chains, a) if process == "exact" else shape
        cv = process == "scir_cv" and a > 1
        rate = (shape - 1) / (a - 1) if cv else np.ones(num_chains)
        first = (rate > 0) if parametrization == 1 else np.zeros(num_chains, bool)
        rate = np.where(rate == 0, 1e-9, rate)
        b, variance = np.where(first, 1.0, rate), np.where(first, 2 / rate, 2.0)
        kept, gone = np.exp(-b * h), -np.expm1(-b * h)
        degrees = 4 * b * (shape / rate) / variance
        noncentrality = 4 * b / variance * theta * kept / gone
        theta = gone * variance / (4 * b) * rng.noncentral_chisquare(degrees, noncentrality)
        yield theta


def z_scores(draws, moments):
    """Of the mean and of the variance; the latter by the fourth moment."""
    n, centred = len(draws), draws - draws.mean()
    of_mean = (draws.mean() - moments.mean) / (draws.std() / n**0.5)
    squares = centred**2
    return of_mean, (squares.mean() - moments.variance) / (squares.std() / n**0.5)


@pytest.mark.parametrize(
    ("process", "counts", "theta0", "parametrization"),
    [
        ("exact", PAPER, 7.67, 2),
        ("scir", PAPER, 7.67, 2),
        ("scir", SPARSE, 0.0, 2),
        ("scir_cv", PAPER, 7.67, 1),
        ("scir_cv", PAPER, 7.67, 2),
        ("scir_cv", RARE, 2.0, 1),
        ("scir_cv", RARE, 2.0, 2),
        ("scir_cv", STUCK, 1.0, 1),
        ("scir_cv", STUCK, 1.0, 2),
        ("scir_cv", SPARSE, 0.5, 1),
    ],
)
def test_moments_are_those_of_simulated_chains(process, counts, theta0, parametrization, seed):
    rng = np.random.default_rng([seed, 5])
    found = theory.moments(process, theta0, counts, 0.1, STEPS, parametrization)
    path = chain(process, theta0, counts, 0.1, max(STEPS), parametrization, rng)
    at = {number: theta for number, theta in enumerate(path, 1) if number in STEPS}
    for place, number in enumerate(STEPS):
        expected = theory.Moments(found.mean[place], found.variance[place])
        assert np.abs(z_scores(at[number], expected)).max() < (LIGHT if counts is PAPER else HEAVY), number


@BOTH
def test_moments_with_a_schedule(parametrization, seed):
    sizes = 0.8 * (1 + np.arange(6)) ** -0.5
    for process in ("exact", "scir", "scir_cv"):
        rng = np.random.default_rng([seed, 6])
        *_, theta = chain(process, 40.0, PAPER, sizes, 6, parametrization, rng)
        found = theory.moments(process, 40.0, PAPER, sizes, 6, parametrization)
        assert np.abs(z_scores(theta, found)).max() < LIGHT, process


def test_numbers_of_the_example():
    """θ₀ = 7.67, α = .1, h = .1, N = 1000, p = .15, n = 100; all known from an independent calculation."""
    exact = theory.moments("scir_cv", 7.67, PAPER, 0.1, [5, 300]).variance
    np.testing.assert_allclose(exact, [45.815, 150.857], atol=6e-4)
    within = theory.conditional_variance("scir_cv", 7.67, PAPER, 0.1, [5, 300])
    np.testing.assert_allclose(within, [26.882, 150.854], atol=6e-4)
    first = theory.moments("scir_cv", 7.67, PAPER, 0.1, [5, 300], parametrization=1)
    np.testing.assert_allclose(first.mean, [63.735, 150.159], atol=6e-4)
    np.testing.assert_allclose(first.variance, [28.506, 159.054], atol=6e-4)


# -- identities ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("process", ["scir", "scir_cv"])
@BOTH
def test_full_batches_are_the_exact_process(process, parametrization):
    full = Counts.hypergeometric(0.1, count=150, num_rows=1000, batch_size=1000)
    assert full.variance == 0 and full.mean == pytest.approx(150.1)
    exact = theory.moments("exact", 7.67, full, 0.1, STEPS)
    found = theory.moments(process, 7.67, full, 0.1, STEPS, parametrization)
    np.testing.assert_allclose(found, exact, rtol=1e-12)
    assert theory.inflation(process, full, 0.1, parametrization) == pytest.approx(1, rel=1e-12)


@BOTH
def test_one_step_by_hand(parametrization):
    counts, h, theta0 = Counts.from_values([2.0, 5.0], [0.25, 0.75]), 0.3, 1.7
    a = 0.25 * 2 + 0.75 * 5
    means, variances = [], []
    for shape in (2.0, 5.0):
        b = (shape - 1) / (a - 1)
        e = np.exp(-h) if parametrization == 1 else np.exp(-b * h)
        means.append(e * theta0 + shape / b * (1 - e))
        variances.append(theta0 * 2 / b * (e - e**2) + shape / b**2 * (1 - e) ** 2)
    found = theory.moments("scir_cv", theta0, counts, h, 1, parametrization)
    mean = 0.25 * means[0] + 0.75 * means[1]
    within = 0.25 * variances[0] + 0.75 * variances[1]
    assert found.mean == pytest.approx(mean, rel=1e-13)
    assert found.variance == pytest.approx(within + 0.25 * 0.75 * (means[0] - means[1]) ** 2, rel=1e-13)
    given = theory.conditional_variance("scir_cv", theta0, counts, h, 1, parametrization)
    assert given == pytest.approx(within, rel=1e-13)


def test_steps_of_the_exact_process_compose():
    once, many = (theory.moments("exact", 3.0, PAPER, h, m) for h, m in ((2.0, 1), (0.01, 200)))
    np.testing.assert_allclose(once, many, rtol=1e-12)
    assert theory.moments("exact", 3.0, PAPER, 0.01, 200) == pytest.approx(
        theory.moments("exact", 3.0, PAPER, np.linspace(0.001, 0.019, 200), 200), rel=1e-10
    )


@pytest.mark.parametrize("process", ["exact", "scir", "scir_cv"])
@BOTH
def test_a_constant_schedule_is_a_step_size(process, parametrization):
    steps = [[0, 3], [7, 20]]
    one = theory.moments(process, 7.67, RARE, 0.1, steps, parametrization)
    other = theory.moments(process, 7.67, RARE, np.full(20, 0.1), steps, parametrization)
    assert one.mean.shape == (2, 2) and one.mean[0, 0] == 7.67 and one.variance[0, 0] == 0
    np.testing.assert_allclose(one, other, rtol=1e-11)


@pytest.mark.parametrize("process", ["exact", "scir", "scir_cv"])
@pytest.mark.parametrize("counts", [PAPER, RARE, STUCK, SPARSE])
@BOTH
def test_the_limit_is_where_the_steps_lead(process, counts, parametrization):
    limit = theory.stationary(process, counts, 0.1, parametrization)
    late = theory.moments(process, 3.0, counts, 0.1, 5_000, parametrization)
    np.testing.assert_allclose(limit, late, rtol=1e-9)


def test_control_variates_do_nothing_without_a_mode_inside():
    for edge in (SPARSE, Counts.from_values([0.5, 1.5], [0.5, 0.5]), Counts.exact(0.1, 0)):
        assert edge.mean <= 1
        plain = theory.moments("scir", 0.4, edge, 0.2, STEPS)
        for parametrization in (1, 2):
            found = theory.moments("scir_cv", 0.4, edge, 0.2, STEPS, parametrization)
            np.testing.assert_allclose(found, plain, rtol=1e-11)


def test_steps_without_a_first_parametrisation_are_of_the_second():
    rate = np.array([-0.7, 0.0, 0.7])
    first, second = theory.transition(rate, 0.2, 1), theory.transition(rate, 0.2, 2)
    np.testing.assert_array_equal(np.array(first)[:, :2], np.array(second)[:, :2])
    assert first.decay[2] == np.exp(-0.2) and first.gain[2] == pytest.approx((1 - np.exp(-0.2)) / 0.7)
    assert np.all(first.gain > 0)


def test_small_rates_are_smooth():
    rate = np.array([-1e-3, -1e-9, -1e-300, 0.0, 1e-300, 1e-9, 1e-3])
    decay, gain = theory.transition(rate, 0.2)
    assert np.all(np.diff(decay) <= 0) and np.all(np.diff(gain) <= 0)
    np.testing.assert_allclose(gain, 0.2 * (1 - 0.1 * rate), rtol=1e-7)


def test_variances_that_do_not_exist_are_infinite():
    rare = Counts.hypergeometric(0.1, count=10, num_rows=1000, batch_size=10)
    assert theory.stationary("scir_cv", rare, 2.0) == (np.inf, np.inf)
    between = theory.stationary("scir_cv", rare, 0.9)
    assert np.isfinite(between.mean) and between.variance == np.inf
    assert np.all(np.isfinite(theory.stationary("scir_cv", rare, 0.3)))
    assert theory.stationary("scir_cv", rare, 2.0, parametrization=1) == (np.inf, np.inf), "b̂ < 0 is a step of (ii)"
    assert theory.moments("scir_cv", 1.0, rare, 2.0, 100_000) == (np.inf, np.inf)


# -- the papers ----------------------------------------------------------------------------------------------


def test_the_papers_scir_is_exact():
    for counts in (PAPER, RARE, SPARSE):
        ours = theory.moments("scir", 7.67, counts, 0.3, STEPS)
        np.testing.assert_allclose(papers.scir(7.67, counts, 0.3, STEPS), ours, rtol=1e-12)


@pytest.mark.parametrize(("printed", "parametrization"), [(papers.scir_cv_1, 1), (papers.scir_cv_2, 2)])
def test_the_papers_variance_is_what_is_left_given_the_batches(printed, parametrization):
    counts, steps = Counts.from_values([60.1, 150.1, 200.1], [0.3, 0.3, 0.4]), [0, 1, 2, 3, 4, 20, 300]
    mean, variance = printed(7.67, counts, 0.3, steps)
    np.testing.assert_allclose(
        mean, theory.moments("scir_cv", 7.67, counts, 0.3, steps, parametrization).mean, rtol=1e-12
    )
    given = theory.conditional_variance("scir_cv", 7.67, counts, 0.3, steps, parametrization)
    np.testing.assert_allclose(variance, given, rtol=1e-10, atol=1e-11)


def test_the_second_parametrisations_formula_holds_for_negative_rates():
    for counts in (RARE, STUCK):
        mean, variance = papers.scir_cv_2(2.0, counts, 0.1, STEPS)
        np.testing.assert_allclose(mean, theory.moments("scir_cv", 2.0, counts, 0.1, STEPS).mean, rtol=1e-11)
        given = theory.conditional_variance("scir_cv", 2.0, counts, 0.1, STEPS)
        np.testing.assert_allclose(variance, given, rtol=1e-9)


def test_the_papers_approximations_are_of_second_order():
    """For a symmetric law of â the error of (10) and (11) falls with the fourth power of its spread."""
    errors = []
    for spread in (8.0, 4.0):
        counts = Counts.from_values([50 - spread, 50 + spread], [0.5, 0.5])
        near = np.array(papers.scir_cv_1_approximate(7.67, counts, 0.1, 30))
        errors.append(np.abs(near - papers.scir_cv_1(7.67, counts, 0.1, 30)))
    assert np.all(errors[0] / errors[1] > 10)


def test_the_papers_bias_in_the_limit():
    counts = Counts.from_values([149.0, 151.0], [0.5, 0.5])
    for parametrization in (1, 2):
        bias = theory.stationary("scir_cv", counts, 0.5, parametrization).mean - counts.mean
        assert papers.stationary_bias(counts, 0.5, parametrization) == pytest.approx(bias, rel=1e-3)


def test_where_the_papers_formulas_do_not_reach():
    for function in (papers.scir_cv_1, papers.scir_cv_1_approximate, papers.scir_cv_2):
        with pytest.raises(InvalidValueError, match="a > 1"):
            function(1.0, SPARSE, 0.1, 3)
        with pytest.raises(InvalidValueError, match="one step size"):
            function(1.0, PAPER, [0.1] * 3, 3)
    with pytest.raises(InvalidValueError, match="divide by"):
        papers.scir_cv_1(1.0, STUCK, 0.1, 3)
    with pytest.raises(InvalidValueError, match="1 or 2"):
        papers.stationary_bias(PAPER, 0.1, 3)


# -- generating functions ------------------------------------------------------------------------------------


def cumulants(log_mgf):
    """Mean and variance from a log generating function, by a contour around zero: no cancellation."""
    points = 1e-3 * np.exp(2j * np.pi * np.arange(16) / 16)
    taylor = np.fft.fft(log_mgf(points)).real / 16
    return taylor[1] / 1e-3, 2 * taylor[2] / 1e-6


@pytest.mark.parametrize("process", ["exact", "scir"])
@pytest.mark.parametrize("counts", [RARE, STUCK, SPARSE])
def test_generating_functions_have_the_moments(process, counts):
    for step_size, number in ((0.1, 1), (0.1, 20), (np.linspace(0.1, 0.5, 7), 7)):
        found = cumulants(lambda s: np.log(theory.mgf(process, s, 1.5, counts, step_size, number)))  # noqa: B023
        np.testing.assert_allclose(found, theory.moments(process, 1.5, counts, step_size, number), rtol=1e-8)


@BOTH
def test_conditional_generating_functions_have_the_moments(parametrization):
    """Given the batches, the mean and the variance go step by step."""
    shapes = np.array([4.0, 0.6, 9.0, 1.0, 2.5])
    rate, sizes = theory.rates(shapes, 3.0), np.array([0.3, 0.1, 0.2, 0.4, 0.2])
    mean, variance = 1.5, 0.0
    for shape, e, g in zip(shapes, *theory.transition(rate, sizes, parametrization), strict=True):
        variance = e**2 * variance + 2 * e * g * mean + shape * g**2
        mean = e * mean + shape * g
    found = cumulants(lambda s: np.log(theory.conditional_mgf(s, 1.5, shapes, rate, sizes, parametrization)))
    np.testing.assert_allclose(found, (mean, variance), rtol=1e-8)


@BOTH
def test_averaged_conditional_generating_functions_have_the_moments(parametrization):
    """Two steps, all nine pairs of batches."""
    pairs = [(i, j) for i in range(3) for j in range(3)]
    rate = theory.rates(STUCK.values, STUCK.mean)

    def log_mgf(s):
        return np.log(
            sum(
                STUCK.probabilities[i]
                * STUCK.probabilities[j]
                * theory.conditional_mgf(s, 1.5, STUCK.values[[i, j]], rate[[i, j]], 0.3, parametrization)
                for i, j in pairs
            )
        )

    expected = theory.moments("scir_cv", 1.5, STUCK, 0.3, 2, parametrization)
    np.testing.assert_allclose(cumulants(log_mgf), expected, rtol=1e-8)


def test_generating_function_of_one_step_is_the_noncentral_chi_squares():
    shape, h, theta0, s = 2.5, 0.3, 1.5, 0.4
    scale = -np.expm1(-h) / 2
    law = stats.ncx2(2 * shape, theta0 * np.exp(-h) / scale, scale=scale)
    expected, _ = integrate.quad(lambda x: np.exp(s * x) * law.pdf(x), 0, 40, epsabs=1e-10)
    counts = Counts.from_values([shape], [1.0])
    assert theory.mgf("scir", s, theta0, counts, h, 1) == pytest.approx(expected, rel=1e-6)
    assert theory.mgf("exact", s, theta0, counts, h, 1) == pytest.approx(expected, rel=1e-6)
    assert theory.conditional_mgf(s, theta0, [shape], [1.0], h) == pytest.approx(expected, rel=1e-6)


def test_generating_functions_end_at_the_pole():
    pole = 1 / (1 - np.exp(-0.5))
    assert np.isfinite(theory.mgf("scir", 0.99 * pole, 1.0, RARE, 0.1, 5))
    assert theory.mgf("scir", np.array([[0.0], [-1.0]]), 1.0, RARE, 0.1, 5).shape == (2, 1)
    assert theory.mgf("scir", 0.3, 1.0, RARE, 0.1, 0) == pytest.approx(np.exp(0.3))
    for process in ("exact", "scir"):
        with pytest.raises(InvalidValueError, match=r"below the pole .* 2\.54149"):
            theory.mgf(process, pole * 1.0001, 1.0, RARE, 0.1, 5)
    with pytest.raises(InvalidValueError, match="below the pole"):
        theory.conditional_mgf(1.3, 1.0, [2.0, 3.0], [0.5, 0.5], 0.5)
    with pytest.raises(InvalidValueError, match="conditional_mgf"):
        theory.mgf("scir_cv", 0.1, 1.0, RARE, 0.1, 5)


# -- the law of the estimate ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "num_rows", "batch_size"), [(150, 1000, 100), (990, 1000, 100), (3, 1000, 10), (50_000, 10**6, 999)]
)
def test_laws_of_the_estimate(count, num_rows, batch_size):
    for made, law, replace in (
        (Counts.hypergeometric, stats.hypergeom(num_rows, count, batch_size), False),
        (Counts.binomial, stats.binom(batch_size, count / num_rows), True),
    ):
        counts = made(0.1, count, num_rows, batch_size)
        expected = law.pmf(np.rint((counts.values - 0.1) * batch_size / num_rows))
        np.testing.assert_allclose(counts.probabilities, expected, rtol=1e-8, atol=1e-300)
        assert counts.mean == pytest.approx(0.1 + count, rel=1e-11)
        variance = theory.variance_of_estimate(count, num_rows, batch_size, replace)
        assert counts.variance == pytest.approx(variance, rel=1e-9)
        assert counts.mgf(1e-3) == pytest.approx(counts.expect(lambda v: np.exp(1e-3 * v)), rel=1e-12)


def test_laws_at_the_ends():
    for made in (Counts.hypergeometric, Counts.binomial):
        for count in (0, 7):
            counts = made(0.5, count, 7, 3)
            assert counts.values == pytest.approx([0.5 + count]) and counts.probabilities == pytest.approx([1])
    assert theory.variance_of_estimate(1, 1, 1) == 0
    np.testing.assert_allclose(theory.variance_of_estimate([0, 5, 10], 10, 2), [0, 100 / 9, 0])


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: Counts.hypergeometric(0.1, 11, 10, 2), InvalidValueError, "at most `num_rows`"),
        (lambda: Counts.hypergeometric(0.1, 5, 10, 12), InvalidValueError, "with replacement"),
        (lambda: Counts.hypergeometric(0.1, 5.0, 10, 2), InvalidTypeError, "Write 5"),
        (lambda: Counts.hypergeometric(0.0, 5, 10, 2), InvalidValueError, "concentration"),
        (lambda: Counts.from_values([1.0, 2.0], [1.0]), InvalidValueError, "the same length"),
        (lambda: Counts.from_values([0.0, 2.0], [0.5, 0.5]), InvalidValueError, "> 0"),
        (lambda: Counts.from_values([1.0, 2.0], [0.5, 0.6]), InvalidValueError, "Divide them"),
        (lambda: Counts.from_values("ab", [0.5, 0.6]), InvalidTypeError, "sequence of numbers"),
        (lambda: theory.variance_of_estimate(11, 10, 2), InvalidValueError, "between 0"),
        (lambda: theory.moments("cir", 1.0, RARE, 0.1, 3), InvalidValueError, "'scir_cv'"),
        (lambda: theory.moments("scir", -1.0, RARE, 0.1, 3), InvalidValueError, "theta0"),
        (lambda: theory.moments("scir", 1.0, 3.0, 0.1, 3), InvalidTypeError, "Counts.hypergeometric"),
        (lambda: theory.moments("scir", 1.0, RARE, 0.0, 3), InvalidValueError, "step_size"),
        (lambda: theory.moments("scir", 1.0, RARE, [0.1, 0.2], 3), InvalidValueError, "each of the 3 steps"),
        (lambda: theory.moments("scir", 1.0, RARE, [0.1, -0.2], 2), InvalidValueError, "all steps"),
        (lambda: theory.moments("scir", 1.0, RARE, 0.1, 3.0), InvalidTypeError, "Write 3"),
        (lambda: theory.moments("scir", 1.0, RARE, 0.1, [1.5]), InvalidTypeError, "whole numbers"),
        (lambda: theory.moments("scir", 1.0, RARE, 0.1, [-1]), InvalidValueError, "at least 0"),
        (lambda: theory.moments("scir_cv", 1.0, RARE, 0.1, 3, 3), InvalidValueError, "1 or 2"),
        (lambda: theory.mgf("scir", 0.1, 1.0, RARE, 0.1, [3]), InvalidTypeError, "one whole number"),
        (lambda: theory.mgf("scir", "s", 1.0, RARE, 0.1, 3), InvalidTypeError, "array of numbers"),
        (lambda: theory.conditional_mgf(0.1, 1.0, [1.0], [1.0, 2.0], 0.1), InvalidValueError, "each step"),
        (lambda: theory.conditional_mgf(0.1, 1.0, [-1.0], [1.0], 0.1), InvalidValueError, "> 0"),
    ],
)
def test_bad_arguments(call, error, says):
    with pytest.raises(error, match=says):
        call()
