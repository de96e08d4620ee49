"""Leave-one-out: the closed form of a conjugate model, the difference estimator by enumeration, comparisons."""

from __future__ import annotations

import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import scirocco as sc
from scirocco.analysis import LogPredictive, compare, loo
from scirocco.analysis.loo import difference
from scirocco.errors import InvalidTypeError, InvalidValueError, SciroccoWarning

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("quick_compiler")]

PRIOR_SD = 3.0


def log_density(mu, x):
    return -0.5 * (x - mu) ** 2 - 0.5 * math.log(2 * math.pi)


MODEL = sc.Model(log_density)


def posterior(x):
    """The mean and the variance of mu given x: mu ~ N(0, 3²), x_i ~ N(mu, 1)."""
    precision = PRIOR_SD**-2 + len(x)
    return x.sum() / precision, 1.0 / precision


def exact(x):
    """log p(x_i | all other rows)."""
    each = []
    for k in range(len(x)):
        mean, variance = posterior(np.delete(x, k))
        each.append(norm.logpdf(x[k], mean, math.sqrt(1.0 + variance)))
    return np.array(each)


def draws_of(x, rng, count):
    mean, variance = posterior(x)
    return rng.normal(mean, math.sqrt(variance), (1, count)).astype(np.float32)


def test_closed_form_of_a_conjugate_model(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(1.0, 1.0, 20).astype(np.float32)
    true = exact(x.astype(float))
    found = [loo(draws_of(x, rng, 500), x, model=MODEL) for _ in range(30)]
    totals = np.array([each.elpd for each in found])
    assert abs(totals.mean() - true.sum()) / (totals.std(ddof=1) / math.sqrt(len(totals))) < 5
    assert totals.std() < 0.2
    assert found[0].standard_error == pytest.approx(math.sqrt(20) * true.std(), rel=0.1)
    assert found[0].sampling_error == 0.0
    mean, variance = posterior(x.astype(float))
    fitted = norm.logpdf(x, mean, math.sqrt(1.0 + variance)).sum()
    assert np.mean([each.p_loo for each in found]) == pytest.approx(fitted - true.sum(), abs=0.1)


def test_the_difference_estimator_is_unbiased():
    """Over all samples of 3 of 7 rows: the total, its variance, and the spread of the population."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=7) - 100.0
    approximate = values + 0.3 * rng.normal(size=7)
    found = [
        difference(approximate, np.array(rows), values[list(rows)]) for rows in itertools.combinations(range(7), 3)
    ]
    totals = np.array([each.total for each in found])
    assert totals.mean() == pytest.approx(values.sum(), abs=1e-9)
    assert np.mean([each.sampling_variance for each in found]) == pytest.approx(totals.var(), rel=1e-9)
    assert np.mean([each.spread for each in found]) == pytest.approx(7 * values.var(), rel=1e-9)
    whole = difference(approximate, np.arange(7), values)
    assert whole == pytest.approx((values.sum(), 0.0, 7 * values.var()))


def test_a_sample_of_rows_is_near_all_of_them(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(1.0, 1.0, 600).astype(np.float32)
    draws = draws_of(x, rng, 400)
    whole = loo(draws, x, model=MODEL)
    parts = [loo(draws, x, model=MODEL, num_rows=60, seed=k) for k in range(10)]
    z = [(part.elpd - whole.elpd) / part.sampling_error for part in parts]
    assert np.max(np.abs(z)) < 8 and np.abs(np.mean(z)) < 5 / math.sqrt(10) + 1
    assert parts[0].sampling_error < 0.2 * parts[0].standard_error, "the approximation is of use"
    assert not np.array_equal(parts[0].rows, parts[1].rows)
    again = loo(draws, x, model=MODEL, num_rows=60, seed=0)
    np.testing.assert_array_equal(again.rows, parts[0].rows)
    assert "60 of 600 rows weighted" in parts[0].words


def test_constrained_parameters_have_their_mean_on_the_real_line(seed):
    def scaled(sd, x):
        return -0.5 * (x / sd) ** 2 - jnp.log(sd)

    model = sc.Model(scaled, transforms=sc.transforms.positive)
    rng = np.random.default_rng(seed)
    x, sd = rng.normal(size=50).astype(np.float32), rng.gamma(5e3, 2e-4, (2, 100)).astype(np.float32)
    found = loo(sd, x, model=model)
    centre = np.exp(np.log(sd).mean())
    np.testing.assert_allclose(found.approximate, -0.5 * (x / centre) ** 2 - np.log(centre), rtol=1e-4, atol=1e-5)


def test_rows_that_the_weights_cannot_leave_out_are_named(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=10).astype(np.float32)
    x[3] = 25.0
    with pytest.warns(SciroccoWarning, match="not reliable for .* row 3"):
        found = loo(draws_of(x, rng, 400), x, model=MODEL)
    assert not found.ok and found.k_hat.argmax() == 3 and "not reliable in" in found.words
    with pytest.warns(SciroccoWarning):
        told = compare({"a": loo(draws_of(x, rng, 400), x, model=MODEL)})
    assert "k-hat of a" in told.warnings[0]


def test_a_difference_has_a_paired_standard_error(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(1.0, 1.0, 300).astype(np.float32)
    near, far = draws_of(x, rng, 400), draws_of(x, rng, 400) - np.float32(0.3)
    scores = {"far": loo(far, x, model=MODEL), "near": loo(near, x, model=MODEL)}
    found = compare(scores)
    assert [row.name for row in found.table] == ["near", "far"]
    each = scores["far"].each - scores["near"].each
    assert found.table[0].difference == 0.0 == found.table[0].difference_error
    assert found.table[1].difference == pytest.approx(each.sum())
    assert found.table[1].difference_error == pytest.approx(math.sqrt(300) * each.std())
    assert found.table[1].difference_error < 0.5 * found.table[1].standard_error
    assert found.words.startswith("far: ") and "far" in repr(found)
    assert list(found.frame.index) == ["near", "far"]
    held_out = {name: LogPredictive(0.0, 0.0, score.each) for name, score in scores.items()}
    again = compare(held_out)
    assert again.method == "held-out"
    assert again.table[1].difference_error == pytest.approx(found.table[1].difference_error)
    assert math.isnan(again.table[1].p_loo)


def test_a_difference_of_sampled_scores_uses_the_same_rows(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(1.0, 1.0, 500).astype(np.float32)
    near, far = draws_of(x, rng, 400), draws_of(x, rng, 400) - np.float32(0.3)
    whole = compare({"near": loo(near, x, model=MODEL), "far": loo(far, x, model=MODEL)}).table[1]
    some = {name: loo(draws, x, model=MODEL, num_rows=100) for name, draws in (("near", near), ("far", far))}
    part = compare(some).table[1]
    assert abs(part.difference - whole.difference) / max(part.sampling_error, 1e-9) < 8
    assert part.sampling_error < 0.2 * part.difference_error
    with pytest.raises(InvalidValueError, match="same `num_rows` and `seed`"):
        compare({"a": some["near"], "b": loo(far, x, model=MODEL, num_rows=100, seed=1)})


def test_what_is_refused(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=30).astype(np.float32)
    draws = draws_of(x, rng, 100)
    with pytest.raises(InvalidValueError, match="pass both"):
        loo(draws)
    with pytest.raises(InvalidValueError, match="at least 25 draws"):
        loo(draws[:, :10], x, model=MODEL)
    with pytest.raises(InvalidValueError, match="at least 2 rows"):
        loo(draws, x[:1], model=MODEL)
    with pytest.raises(InvalidTypeError, match="a dict of runs"):
        compare([draws])
    with pytest.raises(InvalidTypeError, match="`a` must be a run"):
        compare({"a": draws})
    found = loo(draws, x, model=MODEL)
    with pytest.raises(InvalidValueError, match="30 rows and `b` on 20"):
        compare({"a": found, "b": loo(draws, x[:20], model=MODEL)})
    with pytest.raises(InvalidTypeError, match="cannot be compared"):
        compare({"a": found, "b": LogPredictive(0.0, 0.0, found.each)})
    with pytest.raises(InvalidValueError, match="each=True"):
        compare({"a": LogPredictive(0.0, 0.0)})
