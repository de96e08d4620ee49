"""`num_samples`, `num_burnin`, `thin` mean the same in topic models and mixtures."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba", reason="topic models and mixtures need numba (the extra `compiled`)")

from scirocco.errors import InvalidValueError
from scirocco.models import LDA, DPMixture

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.poisson([4, 4, 1, 0, 0], (60, 5)), RNG.poisson([0, 0, 1, 4, 4], (60, 5))])
MODELS = {
    "topics": lambda **options: LDA(2, beta=0.5, batch_size=30, seed=1, **options),
    "topics without memory": lambda **options: LDA(
        2, beta=0.5, batch_size=30, seed=1, memory="none", sweeps=4, **options
    ),
    "clusters": lambda **options: DPMixture("multinomial", batch_size=30, seed=1, keep_clusters=40, **options),
}
each = pytest.mark.parametrize("name", MODELS)


def leaf(model):
    return np.asarray(next(iter(model.draws_.values())))


def plan(model):
    return [model.run_.configuration[name] for name in ("num_samples", "num_burnin", "thin")]


@each
def test_steps_of_burn_in_and_between_draws(name):
    fitted = MODELS[name](num_samples=5, num_burnin=20, thin=3, num_chains=2)
    options = {"growth": None} if isinstance(fitted, LDA) else {}
    fitted.set_params(**options).fit(X, progress=False)
    assert plan(fitted) == [5, 20, 3] and leaf(fitted).shape[:2] == (2, 5)
    longer = MODELS[name](num_samples=5, num_burnin=20, thin=3).set_params(**options)
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


def test_growth_belongs_to_the_burn_in():
    model = LDA(2, growth=[(40, 5), (120, 2)], batch_size=30, num_samples=4, num_burnin=3, thin=2)
    assert plan(model.fit(X, progress=False)) == [4, 10 + 8 + 4, 2]
