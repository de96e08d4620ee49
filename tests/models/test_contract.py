"""One battery for all models of `sc.models`: what a user of one of them may expect of any other."""

import functools
import inspect
import pickle
import re
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import sklearn.base
import sklearn.exceptions

import scirocco as sc
from scirocco.analysis.diagnosis.report import Diagnosis
from scirocco.errors import InvalidTypeError, NoDrawsError, SciroccoError, SciroccoWarning

pytestmark = [
    pytest.mark.compile,
    pytest.mark.usefixtures("quick_compiler"),
    pytest.mark.filterwarnings("ignore::scirocco.errors.SciroccoWarning"),
]

RNG = np.random.default_rng(7)
X = RNG.normal(size=(60, 2)).astype(np.float32)
ROWS = np.concatenate([X - 3, X + 3])
COUNTS = np.concatenate([RNG.poisson([4, 4, 0.1, 0.1], (30, 4)), RNG.poisson([0.1, 0.1, 4, 4], (30, 4))])
COUNTS[:, 0] += 1
SERIES = np.concatenate([RNG.normal(mean, 1.0, 40) for mean in (0.0, 6.0, 0.0)])
EDGES = [
    (i, j) for i in range(16) for j in range(i) if (i + j) % 2 == 0 or RNG.random() < 0.1
]  # two groups, even and odd
GROUPS = RNG.integers(0, 8, 150)
TABLE = pd.DataFrame({"x": RNG.normal(size=150), "g": GROUPS, "h": RNG.integers(0, 6, 150)})
TABLE["y"] = TABLE["x"] + RNG.normal(size=8)[GROUPS] + RNG.normal(size=150)
USERS, ITEMS, RATINGS = RNG.integers(0, 9, 200), RNG.integers(0, 7, 200), 3 + RNG.normal(size=200)
CLASSES = np.array(["a", "b", "c"])[(X[:, 0] > 0.5) + (X[:, 0] > -0.5).astype(int)]


class Case(NamedTuple):
    """A small fit of a model."""

    settings: dict[str, Any]
    data: tuple[Any, ...]
    num_epochs: float
    use: Callable[[Any], Any]
    """Something that follows from all draws."""
    misuse: Callable[[Any], Any]
    """A call with rows of another shape than those of the fit."""
    steps: int = 1
    """Steps of a pass over the rows."""


def _regression(y: Any, **settings: Any) -> Case:
    return Case(
        {"num_samples": 30, "num_chains": 2, **settings},
        (X, y),
        60,
        lambda model: model.predict(X[:5]),
        lambda model: model.predict(np.ones((3, 5))),
    )


CASES = {
    "LDA": Case(
        {"num_topics": 2, "num_samples": 40},
        (COUNTS,),
        80,
        lambda model: model.transform(COUNTS[:5]),
        lambda model: model.transform(np.ones((3, 9), int)),
    ),
    "DynamicTopics": Case(
        {"num_topics": 2, "num_samples": 40},
        (COUNTS, np.arange(60) % 3),
        80,
        lambda model: model.transform(COUNTS[:5], np.zeros(5)),
        lambda model: model.transform(np.ones((3, 9), int), np.zeros(3)),
    ),
    "CorrelatedTopics": Case(
        {"num_topics": 2, "num_samples": 40},
        (COUNTS,),
        80,
        lambda model: model.transform(COUNTS[:5]),
        lambda model: model.transform(np.ones((3, 9), int)),
    ),
    "DPMixture": Case(
        {"num_samples": 20, "initial_clusters": 3},
        (COUNTS,),
        40,
        lambda model: model.log_predictive(COUNTS[:5]),
        lambda model: model.predict(np.ones((3, 9), int)),
    ),
    "HMM": Case(
        {"num_states": 2, "num_starts": 2, "num_samples": 20},
        (SERIES,),
        40,
        lambda model: model.predict_proba(SERIES[:9]),
        lambda model: model.predict(np.ones((9, 3))),
    ),
    "StochasticBlockModel": Case(
        {"num_blocks": 2, "num_samples": 20},
        (EDGES,),
        40,
        lambda model: model.predict_proba([(0, 1), (2, 4)]),
        lambda model: model.predict_proba([(0, 1, 2)]),
    ),
    "MixedMembership": Case(
        {"num_communities": 2, "num_samples": 20},
        (EDGES,),
        40,
        lambda model: model.predict_proba([(0, 1), (2, 4)]),
        lambda model: model.predict_proba([(0, 1, 2)]),
    ),
    "GLMM": Case(
        {"formula": "y ~ x + (1 | g)", "num_samples": 30, "num_chains": 2},
        (TABLE,),
        60,
        lambda model: model.predict(TABLE[:5]),
        lambda model: model.predict(pd.DataFrame({"x": [1.0]})),
    ),
    "GLMM crossed": Case(
        {"formula": "y ~ x + (1 | g) + (1 | h)", "num_samples": 30, "num_chains": 2, "num_burnin": 60},
        (TABLE,),
        120,
        lambda model: model.predict(TABLE[:5]),
        lambda model: model.predict(pd.DataFrame({"x": [1.0]})),
    ),
    "BPMF": Case(
        {"num_factors": 2, "num_samples": 20},
        (USERS, ITEMS, RATINGS),
        40,
        lambda model: model.predict([0, 3, 8], [1, 2, 6]),
        lambda model: model.predict([0, 3, 8], [1, 2]),
    ),
    "BPMF by gradients": Case(
        {"num_factors": 2, "num_samples": 40, "batch_size": 50, "num_chains": 2},
        (USERS, ITEMS, RATINGS),
        60,
        lambda model: model.predict([0, 3, 8], [1, 2, 6]),
        lambda model: model.predict([0, 3, 8], [1, 2]),
        steps=4,
    ),
    "GaussianMixture": Case(
        {"num_components": 2, "num_samples": 30, "num_burnin": 10},
        (ROWS,),
        60,
        lambda model: model.score_samples(ROWS[:5]),
        lambda model: model.predict(np.ones((3, 5))),
    ),
    "BNN": Case(
        {"hidden": 3, "num_samples": 30, "thin": 2, "batch_size": 20},
        (X, CLASSES),
        60,
        lambda model: model.predict_proba(X[:5]),
        lambda model: model.predict(np.ones((3, 5), np.float32)),
        steps=3,
    ),
    "LinearRegression": _regression(X[:, 1] + RATINGS[:60]),
    "LogisticRegression": _regression(X[:, 0] + X[:, 1] > 0),
    "SoftmaxRegression": _regression(CLASSES),
    "PoissonRegression": _regression(RNG.poisson(np.exp(X[:, 0]))),
    "NegativeBinomialRegression": _regression(RNG.poisson(np.exp(X[:, 0]))),
    "StudentRegression": _regression(X[:, 1] + RATINGS[:60]),
}
NAMES = tuple(CASES)
VOCABULARY = ("num_samples", "num_burnin", "thin", "num_chains", "seed")
OPTIONS = (*("num_steps", "num_epochs", "max_seconds"), *("store", "resume", "overwrite", "callbacks", "progress"))
SEED = 7
QUIET = Diagnosis([], {})


def made(name: str, **changes: Any) -> Any:
    return getattr(sc.models, name.split()[0])(**{**CASES[name].settings, "seed": SEED, **changes})


def fitted(name: str, **how: Any) -> Any:
    how = {"num_epochs": CASES[name].num_epochs} | how if "max_seconds" not in how else how
    return made(name).fit(*CASES[name].data, progress=False, **how)


@functools.cache
def ready(name: str) -> Any:
    """The fitted model; tests must not change it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SciroccoWarning)
        model = fitted(name)
    return model, [str(each.message) for each in caught if issubclass(each.category, SciroccoWarning)]


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


@pytest.fixture
def model(name):
    return ready(name)[0]


@pytest.mark.parametrize("argument", ["num_samples", "num_chains"])
def test_none_has_a_default_or_is_refused_by_name(name, argument):
    """Never an error of arithmetic with None."""
    if inspect.signature(type(made(name))).parameters[argument].default is None:
        return  # every other test fits with it
    try:
        assert made(name, **{argument: None}).fit(*CASES[name].data, progress=False).run_.num_draws
    except InvalidTypeError as error:
        assert f"`{argument}` must be a whole number (int), got None" in str(error)


def same(name: str, model: Any, other: Any) -> None:
    np.testing.assert_array_equal(np.stack(CASES[name].use(other)), np.stack(CASES[name].use(model)))


def test_every_model_is_here():
    listed = {kind for kind in sc.models.__all__ if inspect.isclass(getattr(sc.models, kind))}
    assert {name.split()[0] for name in NAMES} == listed


def test_the_constructor_has_the_common_arguments(name):
    kind = type(made(name))
    parameters = inspect.signature(kind).parameters
    assert set(VOCABULARY) <= set(parameters)
    asked = made(name, num_samples=17)
    copy = sklearn.base.clone(asked)
    assert copy is not asked and copy.get_params() == asked.get_params() and copy.num_samples == 17
    assert type(asked).__name__ in repr(asked) and "num_samples=17" in repr(asked)


def test_fit_has_the_common_options(name):
    kind = type(made(name))
    assert set(OPTIONS) <= set(inspect.signature(kind.fit).parameters)
    with pytest.raises(sc.errors.InvalidTypeError, match="has no argument `num_epoch`: use `num_epochs`"):
        made(name).fit(*CASES[name].data, num_epoch=3)


def test_a_model_that_is_not_fitted_says_so(name, tmp_path):
    case, new = CASES[name], made(name)
    calls = [new.summary, new.to_arviz, functools.partial(new.save, tmp_path / "saved"), new.report]
    for call in [*calls, functools.partial(case.use, new)]:
        with pytest.raises(sklearn.exceptions.NotFittedError, match="call fit"):
            call()


def stop(report):
    report.stop()


def interrupt(report):
    raise KeyboardInterrupt


@pytest.mark.parametrize("end", [stop, interrupt])
def test_a_run_that_ends_in_its_burn_in_is_an_error(name, end):
    """One error for all, which says how many steps were made; after Ctrl-C also a KeyboardInterrupt."""
    case = CASES[name]
    burnin = {} if name == "GLMM crossed" or "num_burnin" in case.settings else {"num_burnin": 0.9}
    new, how = made(name, **burnin), {"num_epochs": case.num_epochs, "progress": False}
    status = "stopped" if end is stop else "interrupted"
    with pytest.raises(NoDrawsError, match=status + r" in its burn-in after [\d,]+ steps?") as caught:
        new.fit(*case.data, callbacks=[end], **how)
    assert isinstance(caught.value, KeyboardInterrupt) == (end is interrupt)
    with pytest.raises(sklearn.exceptions.NotFittedError):
        case.use(new)


def test_a_model_comes_back_from_a_file(name, model, tmp_path):
    model.save(tmp_path / "saved")
    run = sc.load(tmp_path / "saved")
    for key in ("seed", "num_rows", "num_burnin", "thin", "num_chains", "versions", "sampler"):
        assert run.configuration[key] == model.run_.configuration[key], key
    assert run.configuration["seed"] == SEED and run.configuration["num_rows"] > 1
    for again in (type(model).load(tmp_path / "saved"), sc.models.load(tmp_path / "saved")):
        assert type(again) is type(model) and again.get_params() == model.get_params()
        assert again.run_.num_draws == model.run_.num_draws and again.run_.status == model.run_.status
        same(name, model, again)
        pd.testing.assert_frame_equal(again.summary(), model.summary())
    with pytest.raises(SciroccoError, match="overwrite"):
        model.save(tmp_path / "saved")
    model.save(tmp_path / "saved", overwrite=True)
    other = sc.models.HMM if name != "HMM" else sc.models.LDA
    with pytest.raises(sc.errors.InvalidTypeError, match="is not one of"):
        other.load(tmp_path / "saved")


def test_a_stored_fit_is_loaded_resumed_and_saved(name, model, tmp_path):
    case, folder = CASES[name], tmp_path / "store"

    def stop(report):
        if report.draws is not None:
            report.stop()

    part = fitted(name, store=folder, callbacks=[stop])
    assert part.run_.status == "stopped"
    same(name, part, sc.models.load(folder))
    whole = fitted(name, store=folder, resume=True)
    assert whole.run_.status == "complete" and whole.run_.num_draws == model.run_.num_draws
    same(name, model, whole)
    loaded = sc.models.load(folder)
    same(name, model, loaded)
    assert sc.load(folder).configuration["seed"] == loaded.run_.configuration["seed"] == SEED
    with pytest.raises(SciroccoError, match=r"resume|overwrite"):
        made(name).fit(*case.data, num_epochs=case.num_epochs, store=folder, progress=False)


def test_the_summary_is_a_table_of_what_is_interpretable(name, model):
    table = model.summary()
    assert type(table).__name__ == "SummaryFrame" and len(table)
    assert {"mean", "sd", "5%", "95%", "ess_bulk", "r_hat"} <= set(table.columns)
    assert np.isfinite(table["mean"]).all()


def test_one_number_says_whether_the_chains_agree(name):
    """The R-hat of the warning is the largest of the summary and of the report; without a warning none is large."""
    model, said = ready(name)
    worst = model.summary(digits=None)["r_hat"].max()
    assert model.report_view().to_judge.summary(digits=None)["r_hat"].max() == pytest.approx(worst, nan_ok=True)
    found = [re.search(r"R-hat of `?([^`]+)`? is ([\d.,]+)", text) for text in said]
    numbers = [float(match[2].rstrip(".").replace(",", "")) for match in found if match]
    if numbers:
        assert numbers == [pytest.approx(worst, abs=0.006)]
    else:
        chance = (1 + 12 / (model.run_.num_draws // 2)) ** 0.5  # of 20 independent draws R-hat may be 1.48
        assert not worst > max(1.1, chance), said


def test_arviz_gets_the_draws(name, model):
    found = model.to_arviz()
    shape = (model.run_.num_chains, model.run_.num_draws)
    assert (found.posterior.sizes["chain"], found.posterior.sizes["draw"]) == shape


def test_the_report_has_the_name_of_the_model(name, model):
    assert f"<h1>{name.split()[0]}" in sc.report.html(model, diagnosis=QUIET)
    page = model._repr_html_()
    assert name.split()[0] in page and "draws" in page


def test_a_fitted_model_is_pickled(name, model):
    same(name, model, pickle.loads(pickle.dumps(model)))


@pytest.mark.rotates(2)
def test_seconds_are_for_sampling(name):
    run = fitted(name, max_seconds=0.2).run_
    assert run.num_draws >= 1 and run.status in ("complete", "stopped")
    assert run.timing["sampling"]["wall"] < 20  # the limit is far below; machines may be slow


def test_epochs_are_passes_and_steps_are_steps(name, model):
    """So many epochs are so many passes; `num_steps` says the number of steps itself."""
    case = CASES[name]
    steps = _steps(model)
    assert steps == case.num_epochs * case.steps
    assert _steps(fitted(name, num_epochs=130)) == 130 * case.steps
    same(name, model, made(name).fit(*case.data, num_steps=steps, progress=False))
    if "passes" in model.run_.stats:
        assert np.asarray(model.run_.stats["passes"])[:, -1] == pytest.approx(case.num_epochs)


def _steps(model: Any) -> int:
    known = model.run_.configuration
    return known["num_burnin"] + known["num_samples"] * known["thin"]


def test_rows_of_another_shape_are_refused(name, model):
    with pytest.raises(SciroccoError):
        CASES[name].misuse(model)
