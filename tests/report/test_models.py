"""`.report()` of every model that has a run: it says what is judged, and charts what keeps its meaning."""

import pathlib
import re
import types

import numpy as np
import pytest

import scirocco as sc
from report.reading import Page, made_run, noise
from scirocco import report
from scirocco.analysis.diagnosis.report import Diagnosis
from scirocco.drawing.markup import number
from scirocco.models._core.registry import MODELS
from scirocco.models._core.view import with_draws

pytestmark = [
    pytest.mark.compile,
    pytest.mark.usefixtures("quick_compiler"),
    pytest.mark.filterwarnings("ignore::scirocco.errors.SciroccoWarning"),
]

GIVEN = Diagnosis([], {})
"""Saves what `diagnose` compiles; it has tests of its own."""


def page_of(model, **options):
    return Page(model.report(**options).html)


def names_of(page, table="parameters"):
    return [row[0] for row in page.rows[table][1:]]


@pytest.fixture(scope="module")
def regression():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(3)
    x = rng.normal(size=(300, 3))
    table = pandas.DataFrame(x, columns=["age", "<b>height", "größe"])
    y = x @ [0.0, 3.0, 0.3] + rng.logistic(size=300) > 0
    return sc.models.LogisticRegression(num_samples=100, num_chains=2, seed=1).fit(table, y, progress=False)


def test_coefficients_have_names_and_the_surest_comes_first(regression):
    page = page_of(regression, diagnosis=GIVEN)
    assert not page.problems and "coefficients" in page.sections
    rows = page.rows["coefficients"][1:]
    assert names_of(page, "coefficients")[0] == "<b>height"
    sure = [float(row[5]) for row in rows]
    assert sure == sorted(sure, reverse=True)
    summary = regression.summary(0.9, digits=None)
    for row in rows:
        found = summary.loc[f"coef[{row[0]}]"]
        assert row[1:5] == [number(found[name]) for name in ("mean", "sd", "5%", "95%")]
    assert names_of(page) == [f"coef[{row}]" for row in ("age", "<b>height", "größe")] + ["intercept"]


def test_a_regression_from_its_file(tmp_path, regression):
    """Its parameters have the names of the columns, also where they are diagnosed."""
    regression.save(tmp_path / "saved")
    for what in (tmp_path / "saved", sc.models.LogisticRegression.load(tmp_path / "saved")):
        page = Page(report.html(what))
        assert names_of(page, "coefficients")[0] == "<b>height"
        assert not any(re.search(r"coef\[\d", text) for text in page.sections.values())


def test_a_linear_regression(tmp_path, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(100, 2))
    model = sc.models.LinearRegression(num_samples=40, num_chains=2, seed=seed)
    page = page_of(model.fit(x, x[:, 1] + rng.normal(size=100), progress=False), diagnosis=GIVEN)
    model.save(tmp_path / "saved")
    for what in (model, tmp_path / "saved"):
        text = report.html(what, diagnosis=GIVEN)
        assert "100 rows, 2 columns" in text  # of the user, not the four that they are reduced to
        assert ["Rows of data", "100"] in Page(text).rows[None]
    assert names_of(page, "coefficients") == ["1", "0"]  # the second column matters
    assert "noise" in names_of(page) and "no gradient noise" in page.sections["curves"]


def rounded_to(shown, value):
    """Whether a number in a table, with the digits that its error supports, is this one."""
    return abs(float(shown) - value) <= 0.5001 * 10.0 ** -len(shown.partition(".")[2])


@pytest.mark.rotates(2, "long fits")
def test_components_of_a_mixture_are_in_one_order(seed):
    rng = np.random.default_rng(seed)
    rows = np.concatenate([rng.normal(-3, 1, (60, 2)), rng.normal(3, 1, (40, 2))])
    model = sc.models.GaussianMixture(2, num_samples=60, num_burnin=20, seed=seed).fit(rows, progress=False)
    page = page_of(model, diagnosis=GIVEN)
    assert "in one order" in page.sections["diagnosis"]
    rows = {row[0]: row[1] for row in page.rows["parameters"][1:]}
    for k in range(2):
        assert rounded_to(rows[f"means[{k}, 1]"], model.means_[k, 1])
        assert rounded_to(rows[f"weights[{k}]"], model.weights_[k])


def test_a_factorisation_is_judged_by_its_predictions(seed):
    rng = np.random.default_rng(seed)
    users, items = rng.integers(0, 12, 300), rng.integers(0, 9, 300)
    model = sc.models.BPMF(2, num_samples=25)
    model.fit(users, items, 3 + rng.normal(size=300), num_steps=100, progress=False)
    page = page_of(model, diagnosis=GIVEN)
    assert "may rotate" in page.sections["diagnosis"]
    rows = {row[0]: row[1] for row in page.rows["parameters"][1:]}
    expected = model.predict([0, 11], [0, 8])
    assert rounded_to(rows["rating of item 0 by user 0"], expected[0])
    assert rounded_to(rows["rating of item 8 by user 11"], expected[1])
    assert "precision of user factors" in rows
    assert model.run_.method == "BPMF by gibbs"
    assert not any(name in text for text in page.sections.values() for name in ("WithPrecisions", "RatingModel"))


def test_a_network_is_judged_by_its_arrays(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(80, 2)).astype(np.float32)
    model = sc.models.BNN(hidden=3, estimator=sc.Full(), thin=2, num_samples=25, seed=seed)
    page = page_of(model.fit(x, x[:, 0] > 0, num_steps=80, progress=False))
    assert "can be permuted" in page.sections["diagnosis"]
    names = names_of(page)
    assert sum(name.startswith("size of ") for name in names) == 4
    assert sum(name.startswith("precision of ") for name in names) >= 2


class Own:
    """A model of a user's own, with sections of its own."""

    def __init__(self, run):
        self.run = run

    def report_view(self, run=None, **options):
        rows = [report.Section("own", "Own <section>", report.Html("<p>mine</p>"))]
        rows.append(report.Section("options", "Options", repr(sorted(options))))

        def sections(seen):
            return [*rows, report.Section("seen", "Seen", f"{seen.names} & {seen.summary['mean'].round()}")]

        judged = with_draws(self.run, {"level": self.run.draws["x"][:, :, 0]})
        return report.View(self.run, "My model", judged=judged, about="By its level.", sections=sections)


def test_a_model_of_a_users_own_has_sections_of_its_own(seed):
    run = made_run({"x": noise(seed, 2, 60, 3) + 5.0}, scores=[(1, {"loss": 2.0}), (2, {"loss": 1.0})])
    page = Page(report.html(Own(run), names=["a", "b"], diagnosis=GIVEN))
    assert not page.problems
    assert list(page.sections)[:5] == ["what", "diagnosis", "own", "options", "seen"]
    assert list(page.sections)[-2:] == ["curves", "scores"]
    assert "By its level." in page.sections["diagnosis"] and "mine" in page.sections["own"]
    assert "['names']" in page.sections["options"]  # what was not given is not handed on
    assert "['level'] & [5.]" in page.sections["seen"]
    assert names_of(page) == ["level"]


def test_a_class_that_only_has_a_run_is_reported_by_it(seed):
    own = types.SimpleNamespace(run_=made_run({"x": noise(seed, 2, 60)}))
    page = Page(report.html(own, diagnosis=GIVEN))
    assert names_of(page) == ["x"] and not page.problems


def test_reports_import_no_model():
    """They ask the object: a new model changes nothing here."""
    folder = pathlib.Path(report.__file__).parent
    text = "".join(path.read_text() for path in folder.glob("*.py"))
    assert set(re.findall(r"scirocco\.models[.\w]*", text)) == {"scirocco.models._core.view"}
    assert not any(name in text for name in MODELS)
