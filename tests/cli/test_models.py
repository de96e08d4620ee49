"""`scirocco show`, `predict` and `model fit` of models without commands of their own."""

import json
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

import scirocco as sc
from scirocco.models._core.registry import MODELS

pytestmark = [
    pytest.mark.compile,
    pytest.mark.usefixtures("quick_compiler"),
    pytest.mark.filterwarnings("ignore::scirocco.errors.SciroccoWarning"),
]

RNG = np.random.default_rng(3)
TABLE = pd.DataFrame(RNG.normal(size=(40, 2)), columns=["wide", "high"])
TABLE["kind"] = np.where(TABLE["wide"] > 0, "large", "small")
TABLE["weight"] = TABLE["high"] + RNG.normal(size=40)
TABLE["herd"] = np.arange(40) % 5
X = TABLE[["wide", "high"]]
RATINGS = pd.DataFrame({"user": np.arange(60) % 8, "film": np.arange(60) % 7, "stars": RNG.normal(3, 1, 60)})


class Case(NamedTuple):
    """A model, its data, the table to predict, and the columns that are written."""

    model: Any
    data: tuple[Any, ...]
    table: pd.DataFrame
    columns: list[str]


SHORT: dict[str, Any] = {"num_samples": 10, "num_chains": 2}
MEANS = ["mean", "low", "high"]
CASES = {
    "BNN": Case(
        sc.models.BNN(hidden=2, batch_size=20, thin=2, **SHORT),
        (X, TABLE["kind"]),
        TABLE,
        ["class", "P(large)", "P(small)"],
    ),
    "LogisticRegression": Case(
        sc.models.LogisticRegression(**SHORT), (X, TABLE["kind"]), TABLE, ["class", "P(large)", "P(small)"]
    ),
    "LinearRegression": Case(sc.models.LinearRegression(**SHORT), (X, TABLE["weight"]), TABLE, MEANS),
    "GLMM": Case(sc.models.GLMM("weight ~ wide + (1 | herd)", **SHORT), (TABLE,), TABLE, MEANS),
    "GaussianMixture": Case(
        sc.models.GaussianMixture(2, num_burnin=10, **SHORT), (X,), TABLE, ["component", "probability"]
    ),
    "BPMF": Case(
        sc.models.BPMF(2, **SHORT), tuple(RATINGS[name] for name in RATINGS), RATINGS, ["user", "film", *MEANS]
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_model_without_commands_is_shown_and_predicts(name, say, tmp_path):
    case = CASES[name]
    case.model.fit(*case.data, num_epochs=60, store=tmp_path / "run", progress=False)
    status, out, err = say("show", tmp_path / "run", "--json")
    assert status == 0, err
    shown = json.loads(out)
    assert shown["num_draws"] == case.model.run_.num_draws
    assert list(shown["summary"]) == list(case.model.summary(shown["interval"], None).index)
    assert name in say("show", tmp_path / "run")[1]
    case.table.to_csv(tmp_path / "rows.csv", index=False)
    written = tmp_path / "predicted.csv"
    status, out, err = say("predict", tmp_path / "run", tmp_path / "rows.csv", "--out", written)
    assert status == 0 and f"{len(case.table)} rows: {written}" in out, err
    found = pd.read_csv(written)
    assert list(found.columns) == case.columns and len(found) == len(case.table)
    if "mean" in found:
        assert (found["low"] < found["mean"]).all() and (found["mean"] < found["high"]).all()


def test_a_run_is_shown_and_has_no_predictions(place, say, tmp_path):
    shown = json.loads(say("show", place.run, "--json")[1])
    assert shown["num_draws"] == sc.load(place.run).num_draws and shown["summary"]
    status, out, err = say("predict", place.run, place.table, "--out", tmp_path / "none.csv")
    assert (status, out) == (2, "") and "not a fitted model" in err
    status, _, err = say("hmm", "show", place.run)
    assert status == 2 and "is not one of a hidden Markov model" in err


@pytest.mark.parametrize("name", ["CorrelatedTopics", "DynamicTopics"])
def test_topics_of_documents_are_predicted(name, say, tmp_path):
    """By the words of the fit; the times of documents are a column of the table."""
    pytest.importorskip("numba", reason="topic models need numba (the extra `compiled`)")
    words = [["sun moon star comet", "cow horse sheep goat"][k % 2] + " " + "and"[: k % 3] for k in range(40)]
    table = pd.DataFrame({"body": words, "year": 2000 + np.arange(40) % 3})
    table.to_csv(tmp_path / "texts.csv", index=False)
    timed = name == "DynamicTopics"
    getattr(sc.models, name)(2, num_chains=1, num_samples=10).fit(
        tmp_path / "texts.csv",
        *(["year"] if timed else []),
        column="body",
        num_epochs=10,
        store=tmp_path / "run",
        progress=False,
    )
    words = ["--column", "body", *(["--times", "year"] if timed else []), "--out", tmp_path / "shares.csv"]
    status, _, err = say("predict", tmp_path / "run", tmp_path / "texts.csv", *words)
    assert status == 0, err
    found = pd.read_csv(tmp_path / "shares.csv")
    assert list(found.columns) == ["topic_0", "topic_1"] and len(found) == 40
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-6)
    assert json.loads(say("show", tmp_path / "run", "--json")[1])["num_draws"] == 5


TEXTS = ["sun moon star comet and", "cow horse sheep goat an"] * 20
FILES = {
    "rows": TABLE.assign(count=np.arange(40) % 4),
    "pairs": RATINGS,
    "documents": pd.DataFrame({"body": TEXTS, "year": 2000 + np.arange(40) % 3}),
}
SHORTLY = ["--epochs", "60", "--chains", "2", "--draws", "10"]
NUMBERS = ["--columns", "wide,high", *SHORTLY]
FITS = {
    "BNN": ["--target", "kind", "--set", "hidden=2", "--set", "thin=2", "--batch-size", "20", *NUMBERS],
    "BPMF": ["--set", "num_factors=2", "--set", "prior=[1.0, 2.0]", *SHORTLY],
    "CorrelatedTopics": ["--column", "body", "--set", "num_topics=2", "--threads", "1", *SHORTLY],
    "DynamicTopics": ["--column", "body", "--times", "year", "--set", "num_topics=2", *SHORTLY],
    "GLMM": ["--formula", "count ~ wide + (1 | herd)", "--set", 'family="poisson"', *SHORTLY],
    "GaussianMixture": ["--set", "num_burnin=10", *NUMBERS],
    "LinearRegression": ["--formula", "weight ~ wide + high", *SHORTLY],
    "LogisticRegression": ["--target", "kind", "--set", 'prior="normal"', *NUMBERS],
    "NegativeBinomialRegression": ["--target", "count", *NUMBERS],
    "PoissonRegression": ["--target", "count", "--set", "standardise=false", *NUMBERS],
    "SoftmaxRegression": ["--target", "kind", *NUMBERS],
    "StudentRegression": ["--target", "weight", *NUMBERS],
}
"""A command for each model without a group of commands."""


def test_every_model_has_a_command_that_fits_it():
    assert set(FITS) == {name for name, entry in MODELS.items() if not entry.command}


@pytest.mark.parametrize("name", FITS)
def test_a_model_is_fitted_by_its_name_and_shown(name, say, tmp_path):
    if MODELS[name].reads == "documents":
        pytest.importorskip("numba", reason="topic models need numba (the extra `compiled`)")
    FILES[MODELS[name].reads].to_csv(tmp_path / "data.csv", index=False)
    words = ["model", "fit", name, tmp_path / "data.csv", *FITS[name], "--seed", "5", "--out", tmp_path / "run"]
    status, out, err = say(*words, "--json")
    assert status == 0, err
    fitted = json.loads(out)
    assert (fitted["num_chains"], fitted["status"]) == (2, "complete") and fitted["num_draws"] >= 4
    assert fitted == json.loads(say("show", tmp_path / "run", "--json")[1])
    model = sc.models.load(tmp_path / "run")
    assert type(model).__name__ == name and model.seed == 5 and model.num_samples == 10
    for key, value in (word.split("=", 1) for word in FITS[name] if "=" in word):
        wanted = json.loads(value)
        assert getattr(model, key) == (tuple(wanted) if isinstance(getattr(model, key), tuple) else wanted)
    status, _, err = say(*words)
    assert status == 2 and "--overwrite" in err and "--resume" in err
    status, out, err = say(*words, "--resume", "--json")
    assert status == 0 and json.loads(out) == fitted, err


def test_the_command_fits_as_python_does(say, tmp_path):
    """The same draws, and the target is not among the features."""
    TABLE.to_csv(tmp_path / "data.csv", index=False)
    words = ["--target", "weight", "--seed", "2", *NUMBERS, "--out", tmp_path / "run"]
    assert say("model", "fit", "LinearRegression", tmp_path / "data.csv", *words)[0] == 0
    model = sc.models.LinearRegression(seed=2, **SHORT)
    table = pd.read_csv(tmp_path / "data.csv")
    model.fit(table[["wide", "high"]], table["weight"], num_epochs=60, progress=False)
    shown = sc.models.load(tmp_path / "run")
    assert list(shown.feature_names_in_) == ["wide", "high"]
    for key, draws in model.draws_.items():
        np.testing.assert_array_equal(shown.draws_[key], draws)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("LinearRegresion data.csv", "Did you mean `LinearRegression`?"),
        ("HMM data.csv", "`scirocco hmm fit`"),
        ("LinearRegression data.csv", "give --target or --formula"),
        ("BNN data.csv", "give --target."),
        ("LinearRegression data.csv --target price", "no column 'price'. It has wide, high"),
        ("LinearRegression data.csv --target high --formula high~wide", "its formula names it"),
        ("GaussianMixture data.csv --target high", "it predicts no column"),
        ("GaussianMixture data.csv --formula high~wide", "no argument `formula`"),
        ("GLMM data.csv", "requires `formula`: give --formula"),
        ("GLMM data.csv --times high", "which --times is not for"),
        ("DynamicTopics data.csv --column kind", "requires `times`: give --times"),
        ("CorrelatedTopics data.csv --column kind --times high", "no argument `times`"),
        ("BPMF data.csv --columns wide,high", "must have three columns"),
        ("LinearRegression data.csv --target high --batch-size 5", "no argument `batch_size`"),
        ("LinearRegression data.csv --target high --threads 2", "no argument `num_threads`"),
        ("LinearRegression data.csv --target high --set scael=2", "`scale`"),
        ("LinearRegression data.csv --target high --set scale", "must be KEY=VALUE"),
        ("LinearRegression data.csv --target high --set prior=normal", "--set 'prior=\"normal\"'"),
        ("LinearRegression data.csv --target high --set seed=3", "`seed` is set already"),
        ('LinearRegression data.csv --target high --columns wide --set sampler="SGLD"', "`sampler` must be"),
        ("LinearRegression data.csv --target high --epochs 2 --steps 3", "one of --steps, --epochs"),
    ],
)
def test_what_cannot_be_fitted_is_refused_in_a_line(words, told, say, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    TABLE.to_csv("data.csv", index=False)
    status, out, err = say("model", "fit", *words.split(), "--out", "run")
    assert (status, out) == (2, "") and told in err and len(err.splitlines()) == 1, err
    assert not (tmp_path / "run").exists()
