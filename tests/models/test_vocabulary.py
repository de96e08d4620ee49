"""What models fitted by `sc.sample` have in common, in addition to the contract of all models (`test_contract`)."""

import numpy as np
import pytest

import scirocco as sc
from scirocco import report
from scirocco.analysis.diagnosis.report import Diagnosis
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models import BNN, BPMF, GaussianMixture, LinearRegression, LogisticRegression

pytestmark = [
    pytest.mark.compile,
    pytest.mark.usefixtures("quick_compiler"),
    pytest.mark.filterwarnings("ignore::scirocco.errors.SciroccoWarning"),
]

RNG = np.random.default_rng(7)
X = RNG.normal(size=(60, 2)).astype(np.float32)
Y = X[:, 0] > 0
ROWS = np.concatenate([X - 3, X + 3])
USERS, ITEMS = RNG.integers(0, 9, 200), RNG.integers(0, 7, 200)
RATINGS = 3 + RNG.normal(size=200)

FITS = {
    "LogisticRegression": (LogisticRegression, {"num_samples": 30, "num_chains": 2}, (X, Y)),
    "LinearRegression": (LinearRegression, {"num_samples": 30, "num_chains": 2}, (X, X[:, 1] + RATINGS[:60])),
    "GaussianMixture": (GaussianMixture, {"num_samples": 30, "num_burnin": 10}, (ROWS,)),
    "BPMF": (BPMF, {"num_factors": 2, "num_samples": 20, "batch_size": 50}, (USERS, ITEMS, RATINGS)),
    "BNN": (BNN, {"hidden": 3, "num_samples": 10, "thin": 2, "batch_size": 20}, (X, Y)),
}
NAMES = tuple(FITS)


def fitted(name, **length):
    kind, options, data = FITS[name]
    return kind(**options).fit(*data, progress=False, **(length or {"num_epochs": 60}))


@pytest.fixture(scope="module")
def models():
    return {name: fitted(name) for name in NAMES}


def predicted(model):
    """Something that follows from all draws."""
    if isinstance(model, BPMF):
        return np.stack(model.predict([0, 3, 8], [1, 2, 6], interval=0.9))
    if isinstance(model, GaussianMixture):
        return model.score_samples(ROWS)
    return model.predict(X) if isinstance(model, LinearRegression) else model.predict_proba(X)


@pytest.mark.rotates(2)
@pytest.mark.parametrize("name", NAMES)
def test_epochs_are_passes_over_the_rows(models, name):
    run = models[name].run_
    known = run.configuration
    batch = known["estimator"].get("batch_size", known["num_rows"])
    assert known["num_burnin"] + known["num_samples"] * known["thin"] == 60 * known["num_rows"] / batch
    assert run.status == "complete"


def test_a_fit_by_the_clock_is_resumed_with_its_plan(tmp_path):
    kind, options, data = FITS["LinearRegression"]
    first = kind(**options).fit(*data, max_seconds=0.2, store=tmp_path / "a", progress=False)
    again = kind(**options)
    again.fit(*data, max_seconds=60, store=tmp_path / "a", resume=True, progress=False)
    for name in ("num_samples", "num_burnin", "thin"):
        assert again.run_.configuration[name] == first.run_.configuration[name]
    assert again.run_.num_draws == first.run_.configuration["num_samples"]


def test_one_length_is_enough():
    with pytest.raises(InvalidValueError, match="one of num_steps, num_epochs and max_seconds"):
        fitted("LinearRegression", num_epochs=3, max_seconds=3)
    with pytest.raises(InvalidValueError, match="`num_epochs` must be finite and > 0"):
        fitted("GaussianMixture", num_epochs=0)


def test_what_was_averaged_is_loaded_from_the_store(tmp_path):
    how = {"X_test": X[:7], "y_test": Y[:7], "num_steps": 40, "progress": False}
    net = BNN(hidden=3, thin=2, num_samples=5).fit(X, Y, store=tmp_path / "net", **how)
    again = sc.models.load(tmp_path / "net")
    np.testing.assert_array_equal(again.predictive_, net.predictive_)
    assert again.scores_ == net.scores_


@pytest.mark.rotates(2)
@pytest.mark.parametrize("name", NAMES)
def test_the_folder_of_a_saved_model_is_reported_as_the_model(models, name, tmp_path):
    models[name].save(tmp_path / "saved")
    given = Diagnosis([], {})
    text, own = (report.html(what, diagnosis=given) for what in (tmp_path / "saved", models[name]))
    assert f"<h1>{name}</h1>" in text
    for section in ("coefficients", "all"):
        assert (f'id="{section}"' in text) == (f'id="{section}"' in own)


def test_a_run_is_not_a_model(tmp_path):
    made = sc.sample(
        sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2),
        np.ones(20, np.float32),
        np.float32(1),
        sampler=sc.SGLD(1e-3),
        num_samples=5,
        progress=False,
    )
    made.save(tmp_path / "run")
    with pytest.raises(InvalidTypeError, match=r"open it with sc\.load"):
        sc.models.load(tmp_path / "run")


def test_a_network_of_ones_own_is_given_again(tmp_path):
    params = {"w": {"first": np.ones((2, 2), np.float32)}}

    def apply(params, x):
        return x @ params["w"]["first"]

    own = BNN(apply=apply, params=params, num_samples=5, thin=2).fit(X, Y.astype(int), num_steps=40, progress=False)
    own.save(tmp_path / "own")
    alone = BNN.load(tmp_path / "own")
    assert alone.run_.num_draws == own.run_.num_draws and len(alone.precisions_) == 1
    with pytest.raises(InvalidValueError, match="a file contains no code"):
        alone.predict(X)
    again = BNN.load(tmp_path / "own", apply=apply, params=params)
    np.testing.assert_array_equal(again.predict_proba(X), own.predict_proba(X))
    with pytest.raises(InvalidValueError, match="pass those of the fitted network"):
        BNN.load(tmp_path / "own", apply=apply, params={"v": np.ones(2)})


def test_what_was_averaged_while_the_chain_ran_is_saved(tmp_path):
    net = BNN(hidden=3, thin=2, num_samples=5).fit(X, Y, X_test=X[:7], y_test=Y[:7], num_steps=40, progress=False)
    net.save(tmp_path / "net")
    again = BNN.load(tmp_path / "net")
    np.testing.assert_array_equal(again.predictive_, net.predictive_)
    assert again.scores_ == net.scores_


def test_a_factorisation_remembers_who_has_rated_what(models, tmp_path):
    model = models["BPMF"]
    model.save(tmp_path / "films")
    again = BPMF.load(tmp_path / "films")
    for user in (0, 5):
        for seen in (True, False):
            np.testing.assert_array_equal(
                again.recommend(user, exclude_seen=seen).items, model.recommend(user, exclude_seen=seen).items
            )
