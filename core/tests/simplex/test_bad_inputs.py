"""What users of count models get wrong, and what the messages must say."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc
from scirocco.errors import BadStartError, DivergenceError, InvalidTypeError, InvalidValueError
from simplex import counting

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]
Z = counting.categories()


def run(counts=counting.observed, concentration=0.3, **changes):
    options = {name: changes.pop(name) for name in ("space", "rate") if name in changes}
    arguments = {
        "params": counting.UNIFORM,
        "data": Z,
        "sampler": sc.SCIR(0.1),
        "estimator": sc.Minibatch(5),
        "num_samples": 5,
        "progress": False,
    }
    model = changes.pop("model", None) or sc.CountModel(concentration, counts, **options)
    return sc.sample(model, **(arguments | changes))


def gaussian():
    return sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)


ROWS = {
    "off the simplex": (
        lambda: run(params=np.full(4, 0.3)),
        InvalidValueError,
        ("off the simplex", "sums to 1.2", "Divide"),
    ),
    "negative": (
        lambda: run(params=np.array([-0.1, 0.5, 0.3, 0.3])),
        InvalidValueError,
        ("off the simplex", "minimum is -0.1", ">= 0"),
    ),
    "a number for a simplex": (lambda: run(params=1.0), InvalidValueError, ("shape ()", "two components")),
    "zero concentration": (lambda: run(concentration=0.0), InvalidValueError, ("`concentration`", "> 0", "0.0")),
    "negative in an array": (
        lambda: run(concentration=np.array([1.0, -2.0, 1.0, 1.0])),
        InvalidValueError,
        ("`concentration`", "-2.0 among them"),
    ),
    "NaN concentration": (lambda: run(concentration=np.nan), InvalidValueError, ("`concentration`", "finite")),
    "concentration is a word": (lambda: run(concentration="flat"), InvalidTypeError, ("`concentration`", "'flat'")),
    "concentration of another length": (
        lambda: run(concentration=np.ones(3)),
        InvalidValueError,
        ("`concentration` has shape (3,)", "`params` of shape (4,)"),
    ),
    "concentration for unknown names": (
        lambda: run(concentration={"a": 1.0}),
        InvalidValueError,
        ("`concentration`", "does not match"),
    ),
    "counts is no function": (lambda: run(counts=3.0), InvalidTypeError, ("`counts`", "function", "3.0")),
    "counts of another shape": (
        lambda: run(counts=lambda omega, z: jnp.zeros(3)),
        InvalidValueError,
        ("like the parameters", "got shape (3,)", "one row, not a batch"),
    ),
    "counts of another structure": (
        lambda: run(counts=lambda omega, z: {"a": omega}),
        InvalidValueError,
        ("like the parameters", "structure"),
    ),
    "counts that fail": (
        lambda: run(counts=lambda omega, z: omega["a"]),
        InvalidValueError,
        ("counts failed", "of shape (4,)"),
    ),
    "a total that is not summed": (
        lambda: run(model=sc.CountModel.from_total(0.3, lambda omega, z: jax.nn.one_hot(z, 4))),
        InvalidValueError,
        ("some rows", "got shape (5, 4)", "Sum over the rows"),
    ),
    "negative counts": (
        lambda: run(counts=lambda omega, z: -jax.nn.one_hot(z, 4)),
        BadStartError,
        ("negative", "`counts`", ">= 0"),
    ),
    "NaN counts": (lambda: run(counts=lambda omega, z: omega * jnp.nan), BadStartError, ("NaN", "`counts`")),
    "unknown space": (lambda: run(space="sphere"), InvalidValueError, ("`space`", "'simplex', 'positive'", "'sphere'")),
    "zero for a positive parameter": (
        lambda: run(space="positive", params=np.zeros(4)),
        InvalidValueError,
        ("must be > 0", "minimum is 0"),
    ),
    "negative rate": (lambda: run(space="positive", rate=-1.0), InvalidValueError, ("`rate`", "> 0", "-1.0")),
    "gradient sampler on counts": (
        lambda: run(sampler=sc.SGLD(0.1)),
        InvalidTypeError,
        ("SGLD requires the gradient", "CountModel", "sc.SCIR"),
    ),
    "count sampler on a density": (
        lambda: run(model=gaussian(), params=jnp.array(0.0), data=np.ones(20, np.float32)),
        InvalidTypeError,
        ("SCIR", "sc.CountModel", "jax.nn.softmax"),
    ),
    "control variates twice": (
        lambda: run(sampler=sc.SCIRCV(0.1), estimator=sc.ControlVariates(5)),
        InvalidValueError,
        ("SCIRCV has its own", "sc.Minibatch", "not ControlVariates"),
    ),
    "control variates of drawn counts": (
        lambda: run(counts=counting.drawn, estimator=sc.ControlVariates(5)),
        InvalidValueError,
        ("one random draw", "sc.SVRG"),
    ),
    "automatic step with strata": (
        lambda: run(sampler=sc.SCIR(), estimator=sc.Stratified(5, Z)),
        InvalidValueError,
        ("Stratified", "step_size=0.1"),
    ),
    "rate of another length": (
        lambda: run(space="positive", rate=np.ones(3)),
        InvalidValueError,
        ("`rate` has shape (3,)", "(4,)"),
    ),
    "gradients of counts": (
        lambda: run(keep_gradients=True),
        InvalidValueError,
        ("no gradients to keep", "keep_gradients"),
    ),
    "negative step": (lambda: sc.SCIR(-0.1), InvalidValueError, ("`step_size`", "SCIR", "> 0", "-0.1")),
    "batches in epochs": (
        lambda: run(sampler=sc.SCIRCV(0.1, corrected=True), estimator=sc.Minibatch(5)),
        InvalidValueError,
        ("independent batches", 'sampling="without_replacement"'),
    ),
    "zero step": (lambda: sc.SCIRCV(0.0), InvalidValueError, ("`step_size`", "SCIRCV", "> 0")),
    "a word for a step": (lambda: sc.SimplexSGRLD("small"), InvalidTypeError, ("SimplexSGRLD", "'small'")),
    "third parametrisation": (lambda: sc.SCIRCV(0.1, parametrization=3), InvalidValueError, ("1 or 2", "3")),
    "parametrisation by name": (
        lambda: sc.SCIRCV(0.1, parametrization="ii"),
        InvalidTypeError,
        ("`parametrization`", "1 or 2", "'ii'"),
    ),
    "refresh every minus one": (
        lambda: sc.SCIRCV(0.1, refresh_every=-1),
        InvalidValueError,
        ("`refresh_every`", "at least 0"),
    ),
    "refresh with no rows": (
        lambda: sc.SCIRCV(0.1, refresh_size=0),
        InvalidValueError,
        ("`refresh_size`", "at least 1"),
    ),
    "strata of another length": (
        lambda: run(estimator=sc.Stratified(5, np.zeros(7))),
        InvalidValueError,
        ("`strata`", "one label per row", "(60,)", "(7,)"),
    ),
    "more strata than places": (
        lambda: run(estimator=sc.Stratified(5, np.arange(60))),
        InvalidValueError,
        ("`batch_size` is 5", "60 strata"),
    ),
    "strata by name": (lambda: sc.Stratified(5, "z"), InvalidTypeError, ("`strata`", "one label per row", "'z'")),
}


@pytest.mark.parametrize("name", ROWS)
def test_message(name):
    attempt, error, phrases = ROWS[name]
    with pytest.raises(error) as caught:
        attempt()
    for phrase in phrases:
        assert phrase in str(caught.value), str(caught.value)


def test_counts_that_turn_nan_under_way():
    """Fine at the start, NaN once omega leaves it: the run stops and says where to look."""
    start = np.array([0.4, 0.3, 0.2, 0.1], np.float32)

    def counts(omega, z):
        return jnp.where(omega[0] > 0.45, jnp.nan, jax.nn.one_hot(z, 4))

    with pytest.raises(DivergenceError, match=r"look whether `counts` returned NaN") as caught:
        run(counts=counts, params=start, num_samples=2_000)
    assert caught.value.run is None or np.all(np.isfinite(caught.value.run.draws))
