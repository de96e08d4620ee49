"""`num_samples`, `num_burnin`, `thin` of mixtures, and their old names still work."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

pytest.importorskip("numba", reason="topic models and mixtures need numba (the extra `compiled`)")

from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models import DPMixture

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.poisson([4, 4, 1, 0, 0], (60, 5)), RNG.poisson([0, 0, 1, 4, 4], (60, 5))])
MODELS = {
    "clusters": lambda **options: DPMixture(
        "multinomial", batch_size=30, seed=1, keep_clusters=40, **options
    ),
}
each = pytest.mark.parametrize("name", MODELS)


def leaf(model):
    return np.asarray(next(iter(model.draws_.values())))


def plan(model):
    return [model.run_.configuration[name] for name in ("num_samples", "num_burnin", "thin")]


@each
def test_old_names_give_the_same_draws(name):
    make = MODELS[name]
    new = make(num_samples=5, num_burnin=0.3).fit(X, num_steps=40, progress=False)
    with pytest.warns(FutureWarning, match="is now") as caught:
        old = make(num_draws=5, discard=0.3)
    assert {str(warning.message).split("`")[3] for warning in caught} == {"num_samples", "num_burnin"}
    assert old.get_params() == new.get_params()
    np.testing.assert_array_equal(leaf(new), leaf(old.fit(X, num_steps=40, progress=False)))
    with pytest.raises(InvalidTypeError, match="`num_draws` is the old name of `num_samples`"):
        make(num_draws=5, num_samples=5)


@each
def test_steps_of_burn_in_and_between_draws(name):
    fitted = MODELS[name](num_samples=5, num_burnin=20, thin=3, num_chains=2)
    fitted.fit(X, progress=False)
    assert plan(fitted) == [5, 20, 3] and leaf(fitted).shape[:2] == (2, 5)
    longer = MODELS[name](num_samples=5, num_burnin=20, thin=3)
    assert plan(longer.fit(X, num_steps=50, progress=False)) == [5, 35, 3]
    assert plan(longer.fit(X, num_steps=30, progress=False)) == [3, 21, 3]
    assert plan(longer.set_params(thin=None).fit(X, num_steps=40, progress=False)) == [5, 20, 4]
    assert plan(longer.set_params(num_burnin=0.5, thin=4).fit(X, progress=False)) == [5, 20, 4]
    with pytest.raises(InvalidValueError, match="no draw after its burn-in"):
        longer.set_params(num_burnin=30).fit(X, num_steps=30, progress=False)


@each
def test_seconds(name):
    model = MODELS[name](num_samples=4, num_burnin=8, thin=1).fit(X, max_seconds=0.3, progress=False)
    assert 1 <= leaf(model).shape[1] <= 4 and model.run_.configuration["thin"] == 1


@each
def test_a_fit_stored_under_the_old_names_opens(name, tmp_path, monkeypatch):
    model = MODELS[name](num_samples=3, num_burnin=0.25).fit(X, num_steps=20, progress=False)
    params = model.get_params()
    older = {"num_draws": params.pop("num_samples"), "discard": params.pop("num_burnin")}
    del params["thin"]
    with monkeypatch.context() as patch:
        patch.setattr(type(model), "get_params", lambda self: params | older)
        model.save(tmp_path / "model")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = type(model).load(tmp_path / "model")
    assert again.get_params()["num_samples"] == 3 and again.get_params()["num_burnin"] == 0.25
    np.testing.assert_array_equal(leaf(again), leaf(model))


@each
def test_to_arviz(name, tmp_path):
    pytest.importorskip("arviz")
    model = MODELS[name](num_samples=4, num_chains=2).fit(X, num_steps=40, progress=False)
    model.save(tmp_path / "model")
    tree, again = model.to_arviz(), type(model).load(tmp_path / "model").to_arviz()
    for variable in model.draws_:
        assert tree["posterior"][variable].shape[:2] == (2, 4)
        np.testing.assert_array_equal(tree["posterior"][variable], again["posterior"][variable])


def test_clones():
    base = pytest.importorskip("sklearn.base")
    for make in MODELS.values():
        model = base.clone(make(num_samples=7, num_burnin=11, thin=2))
        assert [model.num_samples, model.num_burnin, model.thin] == [7, 11, 2]
