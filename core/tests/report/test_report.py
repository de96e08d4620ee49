"""Reports of runs: structure, numbers, escaping, sizes, and what cannot be reported."""

from __future__ import annotations

import re
from importlib import resources

import numpy as np
import pytest

import helpers
import scirocco as sc
from report.reading import Page, made_run, noise
from scirocco import report
from scirocco.analysis.diagnosis.report import Diagnosis, Finding
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.report import chains
from scirocco.store.stored import LazyArray

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]

SECTIONS = ["what", "diagnosis", "intervals", "traces", "ranks", "autocorrelation", "all", "curves"]
NASTY = "<script>alert('x')</script>\"&"


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A folder, and the run that was written to it; with a schedule and scores."""
    folder = tmp_path_factory.mktemp("report") / "run"
    sampler = sc.SGLD(sc.schedules.polynomial(1e-3, 100.0, 0.33))
    scores = [lambda told: {"loss": 1.0 / told.step}]
    return folder, helpers.draw(sampler, num_samples=200, num_chains=3, store=folder, callbacks=scores)


def test_a_report_has_every_section_and_asks_nobody(stored):
    page = Page(report.html(stored[0]))
    assert list(page.sections) == [*SECTIONS, "scores"]
    assert not page.problems
    assert len(page.ids) == len(set(page.ids))
    for link in page.links:
        assert link == "data:," or (link.startswith("#") and link[1:] in page.ids)
    assert set(page.controls) <= page.labels
    names = [tag for tag, _ in page.tags]
    assert (names.count("h1"), names.count("main"), names.count("style"), names.count("script")) == (1, 1, 1, 1)
    for tag, known in page.tags:
        if tag == "svg" and "preserveaspectratio" not in known:  # which is a part of one that says what it is
            assert known.get("aria-label") or known.get("aria-hidden")
        assert tag != "th" or known.get("scope") in ("row", "col")
        assert not any(name.startswith("on") for name in known)


def test_the_page_says_what_was_run(stored):
    folder, run = stored
    said = Page(report.html(folder)).sections
    for fact in ("SGLD with Minibatch", "3 chains × 200 draws", run.configuration["data"], str(folder)):
        assert fact in said["what"]
    for part, version in run.configuration["versions"].items():
        assert f"{part} {version}" in said["what"]
    assert "Step size at each step" in said["curves"] and "Gradient norm" in said["curves"]
    assert "Loss" in said["scores"]


def test_the_numbers_are_those_of_the_summary(stored):
    folder, run = stored
    head, *rows = Page(report.html(folder)).rows["parameters"]
    assert head[0] == "parameter"
    expected = run.summary()
    assert [row[0] for row in rows] == list(expected.index)
    for row, wanted in zip(rows, expected.to_numpy(), strict=True):
        error = wanted[4]  # whose first digit is the last one that is shown
        np.testing.assert_allclose([float(cell) for cell in row[1:5]], wanted[:4], atol=error)
        np.testing.assert_allclose([float(cell) for cell in row[5:]], wanted[4:], rtol=0.05)


def test_a_run_without_origin_says_what_could_not_be_judged(stored):
    said = Page(report.html(stored[0])).sections["diagnosis"]
    assert "R-hat" in said and "drift between halves" in said
    assert "What could not be checked" in said and "pass model=... and data=..." in said


def test_a_diagnosis_that_is_given_is_shown(stored):
    finding = Finding("step size too large", "the step is <too> large", "seen so", "halve it")
    said = Page(report.html(stored[0], diagnosis=Diagnosis([finding], {"r_hat": 1.234}))).sections["diagnosis"]
    for words in ("The step is <too> large", "seen so", "halve it", "1.234"):
        assert said.count(words) == 1


def test_measures_that_belong_together_are_in_one_table():
    """Two tables of about the same length; an indented row is below the row that it belongs to."""
    measures = {"ess_bulk": 10.0, "ess_tail": 5.0, "stein_inflation": 0.1, "stein_inflation_error": 0.2}
    measures |= {"ksd": 0.5, "ksd_of_exact_draws": 0.25}
    run = made_run({"x": noise(0, 2, 50)}, timing={"setup": {"wall": 1.0}, "sampling": {"wall": 2.0}})
    text = report.html(run, diagnosis=Diagnosis([], measures))
    halves = re.findall(r'<table class="facts" aria-label="Measured">(.*?)</table>', text)
    assert [half.count("<tr>") for half in halves] == [4, 2]
    assert "its standard error" in halves[0] and "exact draws" in halves[1]
    assert all(not half.split("<tr>")[1].startswith('<th scope="row" class="under"') for half in halves)
    assert text.count('class="under">') == 4  # two measures, and two phases of the run below its time


def test_nothing_that_is_shown_becomes_markup(seed):
    draws = {NASTY: noise(seed, 2, 50), "b": noise(seed, 2, 50, 3)}
    known = made_run(draws).configuration | {"model": NASTY, "versions": {NASTY: NASTY}}
    run = made_run(draws, configuration=known, scores=[(1, {NASTY: 1.0}), (2, {NASTY: 2.0})], status=NASTY)
    text = report.html(run)
    page = Page(text)
    assert not page.problems
    assert [tag for tag, _ in page.tags].count("script") == 1 and "<script>alert" not in text
    assert page.rows["parameters"][1][0] == NASTY


def test_one_chain_has_no_r_hat_and_ranks_of_its_halves(seed):
    page = Page(report.html(made_run({"x": noise(seed, 1, 100)})))
    assert page.rows["parameters"][1][-1] == "–"
    assert "first half" in page.sections["ranks"]


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (12, 25)])
def test_few_draws_and_many_chains(seed, shape):
    page = Page(report.html(made_run({"x": noise(seed, *shape, 2), "still": np.ones(shape)})))
    assert list(page.sections) == SECTIONS and not page.problems
    if shape[1] < 20:
        assert "at least 20 draws" in page.sections["diagnosis"]
    if shape[0] == 12:
        assert "first 8 of 12 chains" in page.sections["traces"]


def test_draws_that_are_not_finite_break_no_chart(seed):
    values = noise(seed, 2, 60)
    values[0, 5], values[1, 7] = np.nan, np.inf
    text = report.html(made_run({"x": values}))
    assert not Page(text).problems
    assert not any("nan" in path or "inf" in path for path in re.findall(r' d="([^"]*)"', text))


def test_unicode_and_long_names_are_kept(seed):
    name = "größe 漢字 " + "x" * 300
    page = Page(report.html(made_run({name: noise(seed, 2, 50)})))
    assert page.rows["parameters"][1][0] == name and not page.problems


class Watched(LazyArray):
    """An array on the disk that tells how much of it is read at once."""

    def __init__(self, values):
        self.values, self.shape, self.dtype, self.most = values, values.shape, values.dtype, 0

    def __getitem__(self, index):
        found = self.values[index]
        self.most = max(self.most, found.size)
        return found


def test_a_large_leaf_is_never_read_as_a_whole(seed):
    leaf = Watched(noise(seed, 2, 600, 10_000).astype(np.float32))
    page = Page(report.html(made_run({"w": leaf})))
    assert "of 10,000 parameters" in page.sections["all"]
    assert leaf.most <= leaf.size // 3


def test_a_long_run_is_thinned(seed):
    page = Page(report.html(made_run({"x": noise(seed, 2, 60_000)})))
    assert "Only one draw in 3 is included" in page.sections["all"]


def test_large_runs_make_small_reports(seed):
    """Four chains of 5,000 draws, and 30,000 parameters of which the largest are in the table."""
    values = noise(seed, 2, 40, 30_000).astype(np.float32)
    values[:, :, 12_345] += 50
    page_text = report.html(made_run({"w": values}))
    page = Page(page_text)
    assert len(page_text.encode()) < 1_000_000
    assert "w[12345]" in [row[0] for row in page.rows["parameters"]]
    assert f"of {30_000:,} parameters" in page.sections["all"]
    long = report.html(made_run({"x": noise(seed, 4, 5_000, 6)}))
    assert len(long.encode()) < 500_000 and "the smallest and the largest" in Page(long).sections["traces"]


# -- step sizes and gradient noise ------------------------------------------------------------------------------------


def curves_of(seed, step_size, **changes):
    known = made_run({"x": noise(seed, 2, 30)}).configuration
    run = made_run(
        {"x": noise(seed, 2, 30)},
        configuration=known | {"sampler": {"name": "SGLD", "step_size": step_size}},
        **changes,
    )
    return Page(report.html(run)).sections["curves"]


def test_step_sizes_of_every_kind_are_told(seed):
    assert "Step size was constant: 0.25." in curves_of(seed, 0.25)
    of_leaves = curves_of(seed, {"mu": 0.5, "sigma": {"name": "Polynomial", "start": 1.0, "tau": 9.0, "kappa": 0.5}})
    assert "Step size of mu was constant: 0.5." in of_leaves and "Step size of sigma at each step" in of_leaves
    assert "0.1 to 0.4, a number for each of 2 parameters" in curves_of(seed, [0.1, 0.4])


def test_the_search_for_a_step_size_is_drawn(seed):
    trials = [
        {"settings": {"step_size": 0.1}, "ksd": [0.5, 0.25]},
        {"settings": {"step_size": 0.4}, "ksd": [1.0]},
        {"settings": {"step_size": 9.0}, "ksd": [None]},
    ]
    tuning = {"chosen": {"step_size": 0.1}, "num_steps": 4_000, "trials": trials}
    said = curves_of(seed, 0.1, preparation={"tuning": tuning})
    for words in ("3 settings", "4,000 steps per round", "Chosen: step size 0.1", "1 diverged (NaN or inf)", "round 2"):
        assert words in said
    assert "Stein discrepancy against step size" in said


def test_gradient_noise_is_drawn_or_the_reason_told(stored):
    folder, run = stored
    assert "keep_gradients=True" in Page(report.html(folder)).sections["curves"]
    said = Page(report.html(run, diagnosis=Diagnosis([], {}))).sections["curves"]
    assert "Gradient noise over injected noise" in said and "Measured with four batches" in said


def test_style_and_script_are_in_the_package():
    files = resources.files("scirocco.report")
    for name, word in (("style.css", "prefers-color-scheme"), ("script.js", "use strict")):
        text = files.joinpath(name).read_text("utf-8")
        assert (
            word in text and "</" not in text and "http" not in text
        )  # nothing ends the element, nothing is asked for


def test_what_cannot_be_reported_is_refused(tmp_path, stored):
    empty = made_run({"x": np.zeros((2, 0))}, status="interrupted")
    with pytest.raises(InvalidValueError, match="requires draws, and this run has none"):
        report.html(empty)
    with pytest.raises(InvalidTypeError, match="folder of a stored run; got int"):
        report.html(3)
    with pytest.raises(InvalidValueError, match="is not fitted yet"):
        report.html(sc.models.LDA(3))
    with pytest.raises(InvalidValueError, match="is not fitted yet"):
        report.html(sc.models.LogisticRegression())
    with pytest.raises(InvalidValueError, match="is not fitted yet"):
        report.html(sc.models.BNN())
    with pytest.raises(sc.errors.SciroccoError):
        report.html(tmp_path / "nowhere")
    with pytest.raises(InvalidValueError, match=r"must end in \.html"):
        report.write(stored[0], tmp_path / "report.txt")
    with pytest.raises(InvalidValueError, match="no folder"):
        report.write(stored[0], tmp_path / "missing" / "report.html")
    assert not list(tmp_path.iterdir())


def test_a_report_is_written_replaced_and_shown(tmp_path, stored):
    path = report.write(stored[0], tmp_path)
    assert path == tmp_path / "report.html" and [path] == list(tmp_path.iterdir())
    assert path.read_text("utf-8") == report.html(stored[0])
    shown = report.show(stored[0], tmp_path / "report.html")
    assert shown.path == path and shown.html == path.read_text("utf-8")
    frame = shown._repr_html_()
    assert frame.startswith("<iframe srcdoc=") and "<script" not in frame and "report.html" in repr(shown)


# -- what the charts are made of --------------------------------------------------------------------------------------


def test_ranks_of_equal_draws_are_shared(seed):
    """Bins of all chains are equal for any ties; a chain below all others has the first ranks."""
    rng = np.random.default_rng(seed)
    for values in (rng.integers(0, 3, (3, 40)).astype(float), rng.normal(size=(3, 40))):
        counts = chains.rank_counts(values, 8)
        np.testing.assert_allclose(counts.sum(axis=0), 120 / 8)
        np.testing.assert_allclose(counts.sum(axis=1), 40)
    apart = chains.rank_counts(np.stack([np.zeros(40), np.ones(40)]), 4)
    np.testing.assert_allclose(apart, [[20, 20, 0, 0], [0, 0, 20, 20]])


def test_the_parameters_of_a_chart_are_the_worst_and_the_largest(seed):
    values = noise(seed, 3, 100, 12)
    values[0, :, 4] += 30.0  # chains disagree
    values[:, :, 7] += 100.0
    found = chains.gather({"a": values[:, :, :5], "b": values[:, :, 5:]})
    chosen = chains.choose(chains.summarise(found), 1, 1)
    assert {found.names[k]: why for k, why in chosen.items()} == {"a[4]": "mixed worst", "b[2]": "largest mean"}


def test_elements_of_a_parameter_share_an_axis_unless_one_would_not_be_seen(seed):
    """By the width of intervals: a coefficient near 0 is not apart, one in other units is."""
    near = np.array([1.0, -1.2, 0.02]) + 0.05 * noise(seed, 2, 200, 3)
    far = np.array([1.0, 500.0]) + np.array([0.05, 60.0]) * noise(seed, 2, 200, 2)
    page = Page(report.html(made_run({"beta": near, "gamma": far}), diagnosis=Diagnosis([], {})))
    labels = [known["aria-label"] for _, known in page.tags if known.get("role") == "group"]
    assert [label for label in labels if label.startswith("Posterior intervals")] == [
        "Posterior intervals of gamma[1]",
        "Posterior intervals of beta[0] and 3 more",
    ]


def test_statistics_that_only_count_or_are_charted_are_left_out(seed):
    size = noise(seed, 2, 50)
    passes = np.broadcast_to(3.0 * np.arange(50), (2, 50))
    run = made_run({"size": size}, stats={"passes": passes, "size_again": size, "energy": noise(seed + 1, 2, 50)})
    said = Page(report.html(run, diagnosis=Diagnosis([], {}))).sections["curves"]
    labels = [known.get("aria-label", "") for _, known in Page(report.html(run, diagnosis=Diagnosis([], {}))).tags]
    drawn = [label for label in labels if label.endswith("at each draw")]
    assert drawn == ["Energy at each draw"] and "Passes" not in said
