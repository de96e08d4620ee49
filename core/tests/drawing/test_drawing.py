"""Markup that nothing breaks, charts of few numbers, and traces that keep their extremes."""

import re
from importlib import resources

import numpy as np
import pytest

from scirocco.drawing import svg
from scirocco.drawing.charts import envelope, forest, scores, sparks, spoken
from scirocco.drawing.markup import Html, facts, interval_cell, join, number, shorten, sortable, tag

pytestmark = pytest.mark.unit


def test_a_thinned_trace_keeps_every_extreme(seed):
    values = np.random.default_rng(seed).normal(size=10_007)
    places, kept = envelope(values, 150)
    assert len(kept) == 300 and np.all(np.diff(places) >= 0)
    assert (kept.min(), kept.max()) == (values.min(), values.max())
    np.testing.assert_array_equal(values[places.astype(int)], kept)


def test_text_is_escaped_and_markup_is_not():
    assert tag("td", "<b>", Html("<i>x</i>"), title='"a"') == '<td title="&quot;a&quot;">&lt;b&gt;<i>x</i></td>'
    assert join(["a", "<"], ", ") == "a, &lt;"
    assert "&lt;script&gt;" in sortable("t", ["name"], [["<script>"]], "A table")


def test_numbers_and_names_as_readers_want_them():
    assert [number(value) for value in (1.0, 1 / 3, float("nan"))] == ["1", "0.3333", "–"]
    assert shorten("abcdefghij", 5) == "ab…ij" and spoken("log_loss") == "Log loss"
    assert spoken("num_clusters") == "Number of clusters"
    assert "--m:100.0%" in interval_cell(5.0, 1.0, 9.0, 4.0)  # what is beyond the axis ends at its end


def test_axes_hold_what_is_drawn():
    low, high = svg.extent([1.0, np.nan, 3.0], [np.inf])
    assert low < 1.0 and high > 3.0
    assert svg.extent([np.nan]) == (0.0, 1.0)
    assert svg.ticks(0.0, 10.0) == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    frame = svg.ChartFrame((1.0, 100.0), (0.0, 1.0), logs="x")
    np.testing.assert_allclose(frame.across([1.0, 10.0, 100.0]), [0.0, 0.5, 1.0])
    assert svg.line(frame, [1.0, 10.0, 100.0], [0.0, np.nan, 1.0], "c0").count("M") == 2  # broken in the middle


def test_rows_without_numbers_are_named_but_not_drawn():
    means, ends = np.array([0.0, np.nan]), np.array([[-1.0, 1.0], [np.nan, np.nan]])
    drawn = forest(["known", "<unknown>"], means, ends, ends, "Intervals", "")
    assert drawn.count("<circle") == 1 and "&lt;unknown&gt;" in drawn


def test_a_curve_for_each_score():
    assert scores([]) is None
    drawn = scores([(1, {"loss": 2.0}), (2, {"loss": 1.0, "error": 0.5})])
    assert drawn.count("<figure>") == 2 and "Loss, 1 at the end" in drawn


def test_a_chart_is_as_wide_as_its_place_and_its_text_keeps_its_size():
    frame = svg.ChartFrame((0.0, 2.0), (0.0, 1.0))
    parts = [svg.axes(frame, "draw"), svg.line(frame, [0, 1], [0, 1], "c0"), svg.dots(frame, [1.0], [0.5])]
    drawn = svg.figure(frame, parts, "A chart")
    outer, stretched = drawn.split('preserveAspectRatio="none">')
    assert "viewBox" not in outer[: outer.index("<text")]  # which would scale the text
    assert "<path" not in outer and "<text" not in stretched
    assert 'cx="50.00%"' in stretched and 'x2="100%"' in outer


def test_long_names_are_whole_and_break_at_their_signs():
    name = "income_after_taxes and a very long name of a column"
    ends = np.array([[-1.0, 1.0]])
    for drawn in (
        forest([name], np.zeros(1), ends, ends, "Intervals", ""),
        sparks([name], np.zeros((1, 3, 1)), "Traces"),
        sortable("t", ["name"], [[name]], "A table"),
    ):
        assert "income_<wbr>after_<wbr>taxes and a very long name of a column<" in drawn


def test_the_dot_of_a_narrow_interval_does_not_hide_it():
    """The dot is lower than the thick line, and drawn after it."""
    means = np.array([0.0, 100.0])
    drawn = forest(["a", "b"], means, np.stack([means, means + 1e-3], 1), means[:, None] + [[-1, 1]], "I", "")
    style = resources.files("scirocco.report").joinpath("style.css").read_text("utf-8")
    height = float(re.search(r"\.inner {[^}]*stroke-width: ([\d.]+)", style)[1])
    assert 2 * float(re.search(r'r="([\d.]+)" class="middle"', drawn)[1]) < height
    assert drawn.index('class="inner"') < drawn.index('class="middle"')


def test_facts_that_belong_to_the_one_above_are_indented():
    drawn = facts([("mean", 1), ("  its error", 2)], "Facts")
    assert '<th scope="row">mean</th>' in drawn and '<th scope="row" class="under">its error</th>' in drawn
