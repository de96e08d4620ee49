"""Mixed models from a formula: formulas, tables, units, predictions, files, and what is wrong with an input."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import scirocco as sc
from scirocco.errors import InvalidTypeError, InvalidValueError, SciroccoError
from scirocco.models import GLMM
from scirocco.models.glmm import problem
from scirocco.models.glmm.problem import MIXED
from scirocco.models.inputs.formulas import Design, parse

pytestmark = [
    pytest.mark.compile,
    pytest.mark.filterwarnings("ignore::scirocco.errors.SciroccoWarning"),
    pytest.mark.usefixtures("quick_compiler"),
]

FORMULA = "y ~ x + colour + offset(o) + (1 | shop) + (1 | day)"


def table(seed=0, num_shops=40, rows_each=15):
    rng = np.random.default_rng(seed)
    shop = np.repeat(np.arange(num_shops), rows_each)
    size = len(shop)
    x, day = 50 + 10 * rng.normal(size=size), rng.integers(0, 6, size)
    colour = rng.choice(["blue", "green", "red"], size)
    effects = 20.0 * rng.normal(size=num_shops)
    o = rng.normal(size=size)
    y = 100 + 3 * x + 5 * (colour == "red") + o + effects[shop]
    y = y + 10 * rng.normal(size=6)[day] + 4 * rng.normal(size=size)
    names = np.array([f"shop {k:02d}" for k in shop])
    return pd.DataFrame({"y": y, "x": x, "colour": colour, "shop": names, "day": day, "o": o}), effects


@pytest.mark.unit
def test_formulas_are_split_into_their_parts():
    found = parse(
        "y ~ 0 + a*b + C(d, contr.sum) - c + offset(e) + (1 + a || g) + (x | h/k) + (1|u:v)".replace(", contr.sum", "")
    )
    assert (found.response, found.fixed, found.offset) == ("y", "0 + a*b + C(d) - c", "e")
    assert [tuple(term) for term in found.groups] == [
        ("1 + a", "g", False),
        ("x", "h", True),
        ("x", "h:k", True),
        ("1", "u:v", True),
    ]
    assert parse("proportion(wins, games) ~ (1 | team)")[:3] == ("wins", "games", "1")


@pytest.mark.unit
@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("y + x", "with one ~"),
        ("log(y) ~ x + (1 | g)", "name of a column"),
        ("y ~ x + (1 | g", "check its brackets"),
        ("y ~ x + (1 | f(g))", "must have the form"),
        ("y ~ offset(a) + offset(b) + (1 | g)", "at most one offset"),
    ],
)
def test_formulas_that_cannot_be_read(formula, words):
    with pytest.raises(InvalidValueError, match=words):
        parse(formula)


@pytest.mark.unit
@pytest.mark.parametrize(
    "text", ["__import__('os').getcwd()", "x.__class__", "open('f')", "[k for k in x]", "np.log(x)"]
)
def test_formulas_are_not_code(text):
    with pytest.raises(InvalidValueError):
        Design(text, pd.DataFrame({"x": [1.0, 2.0]}))


@pytest.mark.unit
def test_a_design_comes_back_from_json():
    frame, _ = table()
    design = Design("x + bs(x, df=4) + C(colour) + center(x):colour", frame)
    again = Design.read(design.written())
    np.testing.assert_allclose(again.matrix(frame.iloc[5:9]), design.matrix(frame.iloc[5:9]))
    assert again.names == design.names


@pytest.mark.unit
def test_tables_of_all_kinds_give_the_same_problem(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    frame, _ = table()
    numbers = frame[["y", "x", "day"]]
    formula = "y ~ x + (1 | day)"
    sc.data.write(tmp_path / "folder", {name: numbers[name].to_numpy() for name in numbers})
    found = [
        problem.compose(formula, "normal", one, None, "error", parse(formula)).source.fingerprint()
        for one in (numbers, pyarrow.table(dict(numbers)), {n: numbers[n].to_numpy() for n in numbers})
    ]
    assert len(set(found)) == 1
    streamed = problem.compose(formula, "normal", tmp_path / "folder", None, "error", parse(formula))
    assert streamed.num_rows == len(frame)


@pytest.fixture(scope="module")
def fitted():
    """One factor integrated out, the levels of the other global parameters, as of tables with many rows."""
    frame, effects = table(num_shops=20)
    model = GLMM(FORMULA, num_samples=150, num_chains=2, num_prediction_draws=100)
    with MIXED.changed(most_rows=0):
        return model.fit(frame, progress=False), frame, effects


def test_coefficients_are_those_of_least_squares_in_the_units_of_the_columns(fitted):
    model, _, _ = fitted
    found = model.fixed_effects()
    assert list(found.index) == ["Intercept", "x", "colour[T.green]", "colour[T.red]"]
    assert abs(found.loc["colour[T.red]", "mean"] - 5) < 5 * found.loc["colour[T.red]", "sd"]
    assert abs(found.loc["x", "mean"] - 3) < 5 * found.loc["x", "sd"]
    summary = model.summary()
    assert {"sd(shop: Intercept)", "sd(day: Intercept)", "sigma"} <= set(summary.index)
    assert 3.5 < summary.loc["sigma", "mean"] < 4.5
    assert model.to_arviz().posterior["coef"].coords["coef_dim_0"].values[1] == "x"


def test_effects_of_levels_and_predictions(fitted):
    model, frame, effects = fitted
    found = model.random_effects(levels=["shop 03", "shop 07"])
    difference = found["mean"].to_numpy() @ [1.0, -1.0]
    assert abs(difference - (effects[3] - effects[7])) < 5 * 4 * np.sqrt(2 / 15)
    assert len(model.random_effects(factor="day")) == 6
    residual = frame["y"] - model.predict(frame)
    assert 3 < residual.std() < 5
    new = frame.iloc[:4].copy()
    new["shop"] = "elsewhere"
    narrow, wide = (model.predict(new, interval=0.9, new_groups=how) for how in ("population", "sample"))
    np.testing.assert_allclose(narrow.mean, model.predict(new))
    np.testing.assert_allclose(model.predict_frame(new, 0.9, new_groups="sample")["low"], wide.low)
    assert np.all(wide.high - wide.low > narrow.high - narrow.low)
    with pytest.raises(InvalidValueError, match="not in the data of the fit"):
        model.predict(new, new_groups="error")
    observed = model.predict(frame, interval=0.9, kind="observation")
    assert 0.8 < np.mean((observed.low < frame["y"]) & (frame["y"] < observed.high)) < 0.99


def test_a_saved_model_predicts_the_same(fitted, tmp_path):
    model, frame, _ = fitted
    model.save(tmp_path / "model")
    again = sc.models.load(tmp_path / "model")
    assert again.get_params() == model.get_params()
    np.testing.assert_allclose(again.predict(frame.iloc[:9]), model.predict(frame.iloc[:9]), rtol=1e-5)
    pd.testing.assert_frame_equal(again.fixed_effects(), model.fixed_effects())
    assert "GLMM" in str(again.report(tmp_path / "report.html")) or (tmp_path / "report.html").exists()


@pytest.mark.rotates(3, "resumed runs")
def test_a_stored_fit_is_opened_and_resumed(tmp_path, changed):
    """With the effects of all levels, unless they are too many."""
    changed(MIXED, most_saved=12 * 20 - 1)
    frame, _ = table(num_shops=12, rows_each=5)
    model = GLMM("y ~ x + (1 | shop)", num_samples=30, num_chains=1, num_prediction_draws=20)
    first = model.fit(frame, store=tmp_path / "run", progress=False).random_effects()
    with pytest.raises(InvalidValueError, match="were not saved with this model"):
        GLMM.load(tmp_path / "run").random_effects()
    changed(MIXED, most_saved=12 * 20)
    again = GLMM(**model.get_params()).fit(frame, store=tmp_path / "run", resume=True, progress=False)
    pd.testing.assert_frame_equal(again.random_effects(), first)
    pd.testing.assert_frame_equal(GLMM.load(tmp_path / "run").random_effects(), first)


@pytest.mark.unit
@pytest.mark.parametrize(
    ("formula", "family", "change", "words"),
    [
        ("y ~ x", "normal", {}, "no group term"),
        ("y ~ x + (1 | nothing)", "normal", {}, "no column 'nothing'"),
        ("y ~ w + (1 | shop)", "normal", {}, "no column 'w'"),
        ("y ~ x + (1 | shop)", "normal", {"shop": "one"}, "has one level"),
        ("y ~ x + (1 | shop)", "normal", {"x": np.nan}, "600 missing or infinite values"),
        ("y ~ x + (1 | shop)", "bernoulli", {}, "must be 0 or 1"),
        ("y ~ x + (1 | shop)", "poisson", {}, "must be a count"),
        ("y ~ x + (1 | shop)", "binomial", {}, r"requires proportion\(successes, trials\)"),
        ("y ~ x + (1 | shop)", "normal", {"x": 1.0}, "is constant"),
        ("y ~ x + I(2*x) + (1 | shop)", "normal", {}, "linearly dependent"),
        ("y ~ x + (1 | shop) + (x | shop)", "normal", {}, "has two group terms"),
        ("y ~ x + (1 | shop)", "gamma", {}, "family"),
        ("y ~ x + (1 | shop)", "normal", {"y": 3.0}, "nothing to explain"),
    ],
)
def test_bad_inputs_have_clear_errors(formula, family, change, words):
    frame, _ = table()
    with pytest.raises(SciroccoError, match=words):
        GLMM(formula, family).fit(frame.assign(**change), progress=False)


@pytest.mark.unit
def test_missing_rows_are_dropped_on_request():
    frame, _ = table()
    frame.loc[3, "x"] = np.nan
    formula = "y ~ x + (1 | shop)"
    found = problem.compose(formula, "normal", frame, None, "drop", parse(formula))
    assert found.num_rows == len(frame) - 1


@pytest.mark.unit
@pytest.mark.parametrize("many_rows", [False, True])
def test_which_models_are_drawn_in_blocks(changed, many_rows):
    """Several factors, unless there are many rows and few levels of all factors but one; many effects of a level."""
    if many_rows:
        changed(MIXED, most_rows=0, clearly=0.0)
    frame, _ = table()
    frame["many"] = np.arange(len(frame)) % 150
    for formula, expected in (
        ("y ~ x + (1 | shop)", False),
        ("y ~ x + (1 | shop) + (1 | day)", not many_rows),
        ("y ~ x + (1 | shop) + (1 | many)", not many_rows),
        ("y ~ x + (1 | many) + (1 | many:day)", True),
        ("y ~ x + (1 + x + colour + o | shop)", True),
    ):
        found = problem.compose(formula, "normal", frame, None, "error", parse(formula))
        assert found.by_blocks == expected, formula
        assert ("effects_0" in found.start) == (expected or formula.endswith("many)")), formula


@pytest.mark.unit
@pytest.mark.parametrize("family", ["bernoulli", "poisson", "normal"])
def test_few_levels_are_parameters_only_if_they_differ(family):
    """Else the density of effects and deviation has no mode; a column that is constant in levels explains them here."""
    rng = np.random.default_rng(0)
    level, x = np.arange(12_000) % 10, rng.normal(size=12_000)
    between = np.linspace(-1, 1, 10)[level]
    for formula, size, expected in (
        ("y ~ x + (1 | g)", 0.7, False),
        ("y ~ x + (1 | g)", 0.0, True),
        ("y ~ x + between + (1 | g)", 0.7, True),
    ):
        eta = 0.5 * x - 1 + size * between
        y = {
            "bernoulli": rng.random(12_000) < 1 / (1 + np.exp(-eta)),
            "poisson": rng.poisson(np.exp(eta)),
            "normal": eta + rng.normal(size=12_000),
        }[family]
        frame = {"y": y.astype(float), "x": x, "between": between, "g": level}
        found = problem.compose(formula, family, frame, None, "error", parse(formula))
        assert found.by_blocks == expected, formula
        assert isinstance(found.model, sc.Model) and "effects_0" in found.start
        with MIXED.changed(most_numbers=15_000):  # the same from some of the rows
            assert problem.compose(formula, family, frame, None, "error", parse(formula)).by_blocks == expected


@pytest.mark.unit
def test_columns_of_a_term_that_are_nearly_the_same_have_a_warning():
    frame, _ = table()
    frame["many"], frame["year"] = np.arange(len(frame)) % 150, 2000 + np.arange(len(frame)) % 7
    for slope, few in (("year", 1), ("center(year)", 0)):
        formula = f"y ~ x + (1 + {slope} | many) + (1 | many:day)"
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            problem.compose(formula, "normal", frame, None, "error", parse(formula))
        assert sum("Subtract the mean" in str(one.message) for one in found) == few


@pytest.mark.unit
def test_not_fitted_and_wrong_tables():
    with pytest.raises(sc.errors.NotFittedError):
        GLMM("y ~ (1 | g)").summary()
    with pytest.raises(InvalidTypeError, match="named columns"):
        GLMM("y ~ (1 | g)").fit(np.ones((3, 2)), progress=False)


def test_an_offset_has_the_numbers_of_the_fit(tmp_path):
    frame, _ = table()
    model = GLMM("y ~ x + offset(scale(o)) + (1 + o | shop)", num_samples=20, num_chains=2, seed=3)
    model.fit(frame, num_epochs=30, progress=False)
    few = frame.iloc[:5].assign(o=[1.0, 1.0, 50.0, 1.0, 2.0])
    for options in ({}, {"random_effects": False}):
        wanted = model.predict(pd.concat([frame, few]), **options)[len(frame) :]
        alone = [model.predict(few.iloc[[row]], **options)[0] for row in range(5)]
        np.testing.assert_allclose(alone, wanted, rtol=1e-6)
    model.save(tmp_path / "model")
    np.testing.assert_allclose(GLMM.load(tmp_path / "model").predict(few), model.predict(few), rtol=1e-5)


def test_levels_of_several_columns_are_tuples(tmp_path):
    """Times have colons: joined by them, ("10", "30:5") and ("10:30", "5") would be one level."""
    pairs = [("10", "30:5", 7), ("10:30", "5", 7), ("9", "8", 7), ("9", "8", 11)]
    p, q, k = (np.tile(part, 30) for part in zip(*pairs, strict=True))
    height = np.tile([-30.0, 30.0, 5.0, 12.0], 30)
    frame = pd.DataFrame({"p": p, "q": q, "k": k.astype(np.int64)})
    frame["y"] = height + np.random.default_rng(0).normal(size=120)
    model = GLMM("y ~ 1 + (1 | p:q:k)", num_samples=40, num_chains=2, seed=1).fit(frame, progress=False)
    model.save(tmp_path / "model")
    for one in (model, GLMM.load(tmp_path / "model")):
        effects = one.random_effects()
        assert effects.index.get_level_values(0).unique().tolist() == sorted(pairs)
        np.testing.assert_allclose(one.predict(frame.iloc[:4]), height[:4], atol=2)
        some = one.random_effects(levels=[("9", "8", 11), ("10", "30:5", 7)])
        np.testing.assert_array_equal(some["mean"].to_numpy(), effects["mean"].to_numpy()[[3, 0]])
    with pytest.raises(InvalidValueError, match=r"has no level \('9', '8', 12\)"):
        model.random_effects(levels=[("9", "8", 12)])
    new = frame.iloc[:1].assign(k=8)
    with pytest.raises(InvalidValueError, match=r"the level \('10', '30:5', 8\) of `p:q:k`"):
        model.predict(new, new_groups="error")
