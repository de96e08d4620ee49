"""A fit whose chains disagree says so; one that is short, or whose chains agree or stand still, says nothing."""

import warnings
from typing import Unpack

import numpy as np
import pytest

import scirocco as sc
from scirocco.errors import NoDrawsError, SciroccoWarning
from scirocco.models._core.chain import Chain, Spec
from scirocco.models._core.model import FittedModel
from scirocco.models._core.program import FitOptions, OwnChains
from scirocco.models._core.registry import MODELS, ModelEntry

pytestmark = pytest.mark.unit


class Replay(Chain):
    """Returns given draws."""

    def __init__(self, draws, number):
        super().__init__(0, number)
        self.draws = draws[number]

    def move(self):
        pass

    def kept(self):
        return {name: values[self.step - 1] for name, values in self.draws.items()}, {"steps": self.step}


class Replayed(FittedModel):
    """A model whose draws are given."""

    ADVICE = "Draw more."

    def __init__(self, num_samples=50, num_burnin=0, thin=None, num_chains=2, seed=0):
        self.num_samples, self.num_burnin, self.thin = num_samples, num_burnin, thin
        self.num_chains, self.seed = num_chains, seed

    def fit(self, draws, **options: Unpack[FitOptions]):
        shapes = {name: values.shape[2:] for name, values in draws.items()}
        each = [{name: values[number] for name, values in draws.items()} for number in range(self.num_chains)]
        program = OwnChains(
            "given draws",
            {"sampler": "replay"},
            lambda: "none",
            10,
            Spec.of(shapes, {"steps": ()}),
            lambda number: Replay(each, number),
        )
        return self._run(program, options)


def fit(draws, **options):
    chains, number = next(iter(draws.values())).shape[:2]
    model = Replayed(num_samples=number, num_chains=chains)
    return model.fit(draws, num_steps=number, progress=False, **options)


def test_chains_that_disagree_are_named(seed):
    draws = np.random.default_rng(seed).normal(size=(2, 300, 3))
    apart = draws.copy()
    apart[0, :, 1] += 3.0
    with pytest.warns(SciroccoWarning, match=r"R-hat of `b\[1\]` is 1\.\d\d.* Draw more\.") as caught:
        model = fit({"a": draws, "b": apart})
    worst = model.summary(digits=None)["r_hat"].max()
    assert f"is {worst:.2f}," in str(caught[0].message), "one number for the warning and the summary"


def test_nothing_is_said_where_nothing_is_known_or_wrong(seed):
    draws = np.random.default_rng(seed).normal(size=(2, 301, 3))
    still = np.zeros((2, 301))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit({"a": draws, "still": still})
        fit({"short": draws[:, :18] + np.arange(2)[:, None, None]})
        fit({"few": draws[:, :40]})
        fit({"one chain": draws[:1]})


def test_chains_that_stand_still_at_different_places_are_named():
    still = np.zeros((2, 301))
    still[1] = 1.0
    with pytest.warns(SciroccoWarning, match="R-hat of `still`"):
        fit({"still": still})


def test_one_chain_that_still_moves_is_named(seed):
    draws = np.random.default_rng(seed).normal(size=(1, 40))
    with pytest.warns(SciroccoWarning, match="of this Replayed have not converged: R-hat of `a`"):
        fit({"a": draws + np.linspace(0, 8, 40)})


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_a_fit_without_draws_says_how_far_it_came(is_interrupted):
    def end(report):
        if is_interrupted:
            raise KeyboardInterrupt
        report.stop()

    model = Replayed(num_samples=5, num_burnin=40)
    kind = KeyboardInterrupt if is_interrupted else ValueError
    with pytest.raises(kind, match=r"in its burn-in after \d+ steps?, before its first draw") as caught:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit({"a": np.zeros((2, 50))}, num_steps=45, progress=False, callbacks=[end])
    assert isinstance(caught.value, NoDrawsError) and "run_" not in vars(model)


def test_a_model_that_is_defined_elsewhere_is_opened_by_its_name(monkeypatch, tmp_path, seed):
    model = fit({"a": np.random.default_rng(seed).normal(size=(2, 50))})
    model.save(tmp_path / "saved")
    with pytest.raises(TypeError, match="is a run, not a fitted model"):
        sc.models.load(tmp_path / "saved")
    monkeypatch.setitem(MODELS, "Replayed", ModelEntry(Replayed, "given draws", "scirocco"))
    again = sc.models.load(tmp_path / "saved")
    assert type(again) is Replayed and repr(again) == repr(model)
    np.testing.assert_array_equal(again.draws_["a"], model.draws_["a"])
