"""`scirocco show` and `scirocco predict` of models without commands of their own."""

import json
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

import scirocco as sc

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
        sc.models.BPMF(2, **SHORT),
        tuple(RATINGS[name] for name in RATINGS),
        RATINGS,
        ["user", "film", *MEANS],
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
