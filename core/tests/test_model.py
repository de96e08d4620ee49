"""A model: three ways to write a likelihood, one meaning."""

from __future__ import annotations

import collections
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import helpers
import scirocco as sc
from helpers import log_likelihood, log_prior

pytestmark = pytest.mark.compile


@pytest.fixture(autouse=True, scope="module")
def _hurry(quick_compiler):
    """Programs of a few steps."""


def rows_likelihood(params, rows):
    return jax.vmap(log_likelihood, (None, 0))(params, rows)


def total_likelihood(params, rows):
    return jnp.sum(rows_likelihood(params, rows))


FORMS = {
    "datum": sc.Model(log_likelihood, log_prior),
    "rows": sc.Model(rows_likelihood, log_prior, vectorized=True),
    "total": sc.Model.from_total(total_likelihood, log_prior),
}
ROWS = helpers.make_data(num_rows=7)
PARAMS = helpers.make_params()
PAIRS = zip(ROWS["x"], ROWS["y"], strict=True)
VALUES = np.array([float(log_likelihood(PARAMS, {"x": x, "y": y})) for x, y in PAIRS])


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_numbers(form):
    model = FORMS[form]
    weights = np.linspace(0.5, 2.0, 7, dtype=np.float32)
    np.testing.assert_allclose(model.log_likelihoods(PARAMS, ROWS), VALUES, rtol=1e-5)
    np.testing.assert_allclose(model.log_likelihood_sum(PARAMS, ROWS), VALUES.sum(), rtol=1e-5)
    np.testing.assert_allclose(model.log_likelihood_sum(PARAMS, ROWS, weights), weights @ VALUES, rtol=1e-5)
    one = jax.tree.map(lambda leaf: leaf[3], ROWS)
    np.testing.assert_allclose(model.log_likelihood_of_one(PARAMS, one), VALUES[3], rtol=1e-5)
    prior = float(log_prior(PARAMS))
    np.testing.assert_allclose(model.log_density(PARAMS, ROWS), prior + VALUES.sum(), rtol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_gradients(form):
    summand = FORMS[form].summand
    exact = helpers.exact_gradient(PARAMS, ROWS)
    expected = {name: exact[name] + PARAMS[name] for name in exact}  # less the prior's part
    helpers.assert_close(summand.total(PARAMS, ROWS), expected)
    each = summand.each(PARAMS, ROWS)
    assert each["weights"].shape == (7, 2, 2)
    helpers.assert_close(jax.tree.map(lambda leaf: leaf.sum(axis=0), each), expected)
    weights = np.linspace(0.5, 2.0, 7, dtype=np.float32)
    weighted = jax.tree.map(lambda leaf: np.tensordot(weights, leaf, axes=1), each)
    helpers.assert_close(summand.total(PARAMS, ROWS, weights), weighted)


@pytest.mark.rotates(2, "the same chain")
def test_every_form_gives_the_same_chain():
    """With SAGA, which asks for the gradient of each row."""
    runs = [helpers.draw("SGLD", "SAGA", model=model).draws for model in FORMS.values()]
    helpers.assert_close(runs[1], runs[0])
    helpers.assert_close(runs[2], runs[0])


def test_without_a_prior_the_density_is_the_likelihood():
    model = sc.Model(log_likelihood)
    assert float(model.log_prior_density(PARAMS)) == 0.0
    np.testing.assert_allclose(model.log_density(PARAMS, ROWS), VALUES.sum(), rtol=1e-5)


def test_models_of_the_same_functions_are_equal():
    """So that what was compiled for one serves the other."""
    assert sc.Model(log_likelihood, log_prior) == FORMS["datum"]
    assert hash(sc.Model(log_likelihood, log_prior)) == hash(FORMS["datum"])
    assert sc.Model(log_likelihood) != FORMS["datum"]
    assert sc.Model(log_likelihood, log_prior, vectorized=True) != FORMS["datum"]
    positive = sc.transforms.positive
    assert sc.Model(log_likelihood, log_prior, transforms=positive) != FORMS["datum"]
    assert FORMS["datum"] != "a model"


@pytest.mark.parametrize("form", FORMS)
def test_a_model_of_importable_functions_can_be_pickled(form):
    model = FORMS[form]
    with_transform = sc.Model(log_likelihood, log_prior, transforms={"bias": sc.transforms.positive, "weights": None})
    for one in (model, with_transform):
        copy = pickle.loads(pickle.dumps(one))
        assert copy == one
        assert repr(copy) == repr(one)


def test_repr_names_the_functions():
    assert repr(FORMS["datum"]) == "Model(log_likelihood=log_likelihood, log_prior=log_prior, form='datum')"
    assert "flat" in repr(sc.Model(log_likelihood))


def test_a_function_object_without_a_name_will_do():
    class Likelihood:
        def __call__(self, params, datum):
            return log_likelihood(params, datum)

    model = sc.Model(Likelihood())
    assert "Likelihood" in repr(model)
    np.testing.assert_allclose(model.log_likelihood_sum(PARAMS, ROWS), VALUES.sum(), rtol=1e-5)


def test_a_vectorized_likelihood_is_traced_for_each_number_of_rows_and_no_more():
    """A batch, one row (to compare with), a pass over the data. (A likelihood of one row: test_battery.)"""
    seen = collections.Counter()

    def likelihood(params, rows):
        seen[rows["y"].shape] += 1
        return rows_likelihood(params, rows)

    helpers.draw("SGLD", "ControlVariates", model=sc.Model(likelihood, log_prior, vectorized=True))
    assert max(seen.values()) <= 2, seen
    assert len(seen) <= 3, seen


def test_derived_quantities_dims_and_coords(tmp_path):
    """They are computed from the draws, for summaries and ArviZ; the chain does not depend on them."""
    options = {"num_samples": 6, "num_chains": 2, "sampler": sc.SGLD(1e-4), "progress": False}
    model = sc.Model(
        lambda params, x: -0.5 * jnp.sum((x - params["m"]) ** 2),
        derived=lambda params: {"ratio": params["m"][0] / params["m"][1], "twice": 2.0 * params["m"]},
        dims={"m": ("column",), "twice": (None,)},
        coords={"column": ["a", "b"], "unused": ["c"]},
    )
    x, start = np.ones((20, 2), np.float32), {"m": np.array([1.0, 2.0], np.float32)}
    run = sc.sample(model, x, start, estimator=sc.Minibatch(5), **options)
    found = run.derived()
    np.testing.assert_allclose(found["ratio"], run.draws["m"][..., 0] / run.draws["m"][..., 1], rtol=1e-6)
    assert found["twice"].shape == (2, 6, 2)
    assert list(run.summary().index) == ["m[0]", "m[1]", "ratio", "twice[0]", "twice[1]"]
    posterior = run.to_arviz().posterior
    assert posterior["m"].dims == ("chain", "draw", "column") and list(posterior["column"].values) == ["a", "b"]
    assert posterior["twice"].dims == ("chain", "draw", "twice_dim_0") and "unused" not in posterior.coords
    run.save(tmp_path / "run")
    loaded = sc.load(tmp_path / "run")  # without the model, unless it is passed
    assert loaded.derived() == {}
    assert loaded.to_arviz(model=model).posterior.equals(posterior)
    with pytest.raises(TypeError, match="`derived` must be a function"):
        sc.Model(lambda params, x: 0.0, derived=3)
