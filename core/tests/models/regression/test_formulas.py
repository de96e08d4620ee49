"""Regressions from formulas, and regressions of counts and of responses with outliers."""

import importlib.util
import os
import pickle
import time
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import scirocco as sc
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models import (
    LinearRegression,
    LogisticRegression,
    NegativeBinomialRegression,
    PoissonRegression,
    SoftmaxRegression,
    StudentRegression,
)
from scirocco.models.inputs.formulas import Design
from scirocco.models.regression import approximation, density
from scirocco.models.regression.approximation import in_own_units

pytestmark = pytest.mark.compile

QUICK = {"num_samples": 40, "num_burnin": 20, "num_chains": 2, "thin": 1}


def table(num_rows=120, seed=8):
    rng = np.random.default_rng(seed)
    found = {name: rng.normal(size=num_rows).round(3) for name in "abc"}
    found |= {"hours": rng.uniform(1, 5, num_rows), "weight": rng.uniform(0, 2, num_rows)}
    found |= {"city": rng.choice(["Bern", "Graz", "Ulm"], num_rows), "day": rng.integers(0, 30, num_rows)}
    found["calls"] = rng.poisson(found["hours"] * np.exp(0.5 * found["a"]))
    found["y"] = 50.0 + 3 * found["a"] + 5 * rng.standard_t(3, num_rows)
    found["buys"] = found["a"] + rng.logistic(size=num_rows) > 0
    return pd.DataFrame(found)


FRAME = table()


def composed(model, frame, y=None, **more):
    """What a fit samples, without sampling it."""
    found = model._given(frame, y, more.get("offset"), more.get("weights"))
    return model._composed(found)


# -- formulas ----------------------------------------------------------------------------------------------------------


def test_a_formula_gives_the_draws_of_the_table_built_by_hand(quick_compiler):
    by_hand = LogisticRegression(**QUICK).fit(FRAME[["a", "b", "c"]], FRAME["buys"], progress=False)
    model = LogisticRegression.from_formula("buys ~ a + b + c", FRAME, progress=False, **QUICK)
    np.testing.assert_array_equal(model.draws_["coef"], by_hand.draws_["coef"])
    assert model.classes_.tolist() == [False, True]
    assert list(model.named_draws()) == ["coef[a]", "coef[b]", "coef[c]", "intercept"]
    few = FRAME.drop(columns="buys").iloc[:5]  # predictions need no response
    np.testing.assert_array_equal(model.predict_proba(few), by_hand.predict_proba(few[["a", "b", "c"]]))
    assert model.score(FRAME) == by_hand.score(FRAME[["a", "b", "c"]], FRAME["buys"])
    # two classes of a softmax regression are the same model
    softmax = SoftmaxRegression.from_formula("buys ~ a + b + c", FRAME, progress=False, **QUICK)
    np.testing.assert_array_equal(softmax.draws_["coef"], by_hand.draws_["coef"])


def test_interactions_splines_categories_and_offsets():
    model = LinearRegression(formula="y ~ a*b + C(day) + city + bs(c, df=4) + offset(log(hours))")
    found = composed(model, FRAME)
    names = model._given(FRAME, None, None, None).table.names
    x = {name: found.rows["x"][:, place] for place, name in enumerate(names)}
    assert len(x) == 3 + 29 + 2 + 4
    np.testing.assert_allclose(x["a:b"], FRAME.a * FRAME.b - np.mean(FRAME.a * FRAME.b), atol=1e-5)
    for name, wanted in (("C(day)[T.3]", FRAME.day == 3), ("city[T.Ulm]", FRAME.city == "Ulm")):
        np.testing.assert_allclose(x[name], wanted - np.mean(wanted), atol=1e-6)
    shifted = FRAME.y - np.log(FRAME.hours)
    np.testing.assert_allclose(found.rows["y"], shifted - shifted.mean(), atol=1e-4)
    assert found.model.log_likelihood({"coef": np.zeros(38, np.float32), "noise": np.float32(1)}, found.rows).shape == (
        120,
    )
    without = composed(LinearRegression(formula="y ~ 0 + city"), FRAME)
    assert "intercept" not in without.method.start
    np.testing.assert_array_equal(without.rows["x"].sum(axis=1), 1.0)


def test_frames_of_all_kinds_give_the_same_rows():
    pyarrow = pytest.importorskip("pyarrow")
    model = PoissonRegression(formula="calls ~ a:city + offset(log(hours))")
    wanted = composed(model, FRAME, weights="weight").data
    plain = {name: FRAME[name].to_numpy() for name in FRAME}
    categories = FRAME.assign(city=FRAME.city.astype("category"))
    prices = FRAME.assign(hours=[Decimal(value) for value in FRAME.hours])  # as databases have them
    frames = [pyarrow.table(FRAME), plain, categories, prices]
    if importlib.util.find_spec("polars"):
        polars = importlib.import_module("polars")
        frames.append(polars.DataFrame(plain))
        frames.append(polars.DataFrame(plain).with_columns(polars.col("city").cast(polars.Categorical)))
        with pytest.raises(TypeError, match=r"got a LazyFrame: pass its \.collect\(\)"):
            composed(model, frames[-1].lazy())
        gap = frames[-1].with_columns(
            polars.when(polars.int_range(len(FRAME)) == 5).then(None).otherwise("city").alias("city")
        )
        with pytest.raises(ValueError, match=r"column `city` has 1 missing .* in row 5"):
            composed(model, gap)
    for frame in frames:
        for name, column in composed(model, frame, weights="weight").data.items():
            np.testing.assert_array_equal(column, wanted[name])


def test_levels_of_numbers_and_knots_come_back_from_json():
    design = Design("C(day) + bs(a, df=5)", FRAME)
    again = Design.read(design.written())
    assert again.names == design.names
    np.testing.assert_allclose(again.matrix(FRAME.iloc[50:60]), design.matrix(FRAME.iloc[50:60]))


@pytest.mark.parametrize(
    ("kind", "formula", "change", "words"),
    [
        (LinearRegression, "y ~ a + nothing", {}, "has no column 'nothing'; it has a, b, c, hours"),
        (LinearRegression, "y ~ a", {"a": np.nan}, "column `a` has 120 missing or infinite values, the first in row 0"),
        (LinearRegression, "y ~ a", {"y": None}, "column `y` has 120 missing"),
        (LinearRegression, "y ~ a + (1 | city)", {}, "use sc.models.GLMM"),
        (LinearRegression, "y ~ 1", {}, "has no columns"),
        (LinearRegression, "y ~ a + b", {"b": 1.0}, r"column 1 \(`b`\) of X has the single value 1"),
        (LinearRegression, "city ~ a", {}, "^city contains .* in row 0: targets must be numbers"),
        (LogisticRegression, "y ~ a", {}, "LogisticRegression requires classes"),
        (LogisticRegression, "buys ~ a", {"buys": 1}, "at least two classes"),
        (SoftmaxRegression, "city ~ a + offset(b)", {}, "an offset is added to the log odds of two classes"),
        (PoissonRegression, "y ~ a", {}, r"the response `y` of a poisson model must be a count \(0, 1, 2, ...\)"),
        (NegativeBinomialRegression, "a ~ b", {}, "must be a count"),
        (StudentRegression, "y ~ a", {"y": 2.0}, "the response `y` is 2 in all rows"),
        (PoissonRegression, "calls ~ a + offset(city)", {}, "column `city` must have numbers"),
    ],
)
def test_tables_that_do_not_suit(kind, formula, change, words):
    with pytest.raises((InvalidValueError, InvalidTypeError), match=words):
        kind(formula=formula).fit(FRAME.assign(**change), progress=False)


def test_arguments_that_do_not_suit():
    X, y = FRAME[["a"]], FRAME["calls"]
    for call, words in (
        (lambda: PoissonRegression(formula="calls ~ a").fit(FRAME, y), "names the response"),
        (lambda: PoissonRegression(formula="calls ~ a", intercept=False).fit(FRAME), "write `0 [+]` in the formula"),
        (lambda: PoissonRegression(formula="calls ~ a").fit(FRAME, weights=y), "must be the name of a column"),
        (lambda: PoissonRegression().fit(X, y, weights="weight"), "requires a formula"),
        (lambda: PoissonRegression().fit(X, y, weights=-y), "weights` must be at least 0"),
        (lambda: PoissonRegression().fit(X, y, offset=y[:3]), "`offset` of PoissonRegression must be 120 numbers"),
        (lambda: PoissonRegression().fit(X, y, offset=y / 0.0), "is inf in row|is nan in row"),
        (lambda: PoissonRegression("horseshoe").fit(X, y), "has the priors 'normal' and 'laplace'"),
        (lambda: PoissonRegression(slab=2.0), "has no argument `slab`"),
        (lambda: SoftmaxRegression(clases=[1]), "SoftmaxRegression has no argument `clases`: use `classes`"),
    ):
        with pytest.raises((InvalidValueError, InvalidTypeError), match=words):
            call()


# -- weights and offsets ----------------------------------------------------------------------------------------------


@pytest.mark.unit
@pytest.mark.parametrize(("classes", "baseline"), [(2, False), (3, False), (3, True)])
def test_a_weight_of_two_is_a_row_twice(classes, baseline):
    rng = np.random.default_rng(3)
    X, codes, weight = rng.normal(size=(20, 2)), rng.integers(0, classes, 20), rng.integers(0, 3, 20)
    offset = rng.normal(size=20) if classes == 2 else None
    rows = approximation.DesignRows(X, codes, classes, True, baseline, offset, weight.astype(float))
    again = np.repeat(np.arange(20), weight)
    twice = approximation.DesignRows(
        X[again], codes[again], classes, True, baseline, None if offset is None else offset[again]
    )
    theta = rng.normal(size=rows.shape)
    for found, wanted in zip(rows.look(theta), twice.look(theta), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-10)
    y = rng.normal(size=20)
    factors = [approximation.reduced(X, y, True, weight.astype(float)), approximation.reduced(X[again], y[again], True)]
    np.testing.assert_allclose(*(factor.T @ factor for factor in factors), rtol=1e-10)


def exact(kind, eta, theta):
    """The distribution of the responses."""
    if kind is NegativeBinomialRegression:
        shape = 1 / theta["dispersion"]
        return stats.nbinom(shape, shape / (shape + np.exp(eta)))
    if kind is StudentRegression:
        return stats.t(theta["freedom"], eta, theta["noise"])
    if kind is LinearRegression:
        return stats.norm(eta, theta["noise"])
    return stats.poisson(np.exp(eta)) if kind is PoissonRegression else stats.bernoulli(1 / (1 + np.exp(-eta)))


@pytest.mark.parametrize(
    "kind", [LinearRegression, LogisticRegression, PoissonRegression, NegativeBinomialRegression, StudentRegression]
)
def test_log_posteriors_are_those_of_scipy_in_the_users_units(kind):
    """Differences between points, of weighted rows with an offset; also the log likelihoods of rows themselves."""
    response = {LogisticRegression: "buys", LinearRegression: "y", StudentRegression: "y"}.get(kind, "calls")
    model = kind("normal", formula=f"{response} ~ a + b + offset(log(hours))", scale=0.7, standardise=False)
    made = composed(model, FRAME, weights="weight")
    rng, values = np.random.default_rng(4), []
    for _ in range(3):
        inner = {
            name: np.exp(0.3 * rng.normal())
            if name in ("noise", "dispersion", "freedom")
            else rng.normal(size=np.shape(part))
            for name, part in made.method.start.items()
        }
        inner = {name: np.asarray(part, np.float32) for name, part in inner.items()}
        theta = in_own_units({name: part[None, None] for name, part in inner.items()}, made.told)
        theta = {name: np.asarray(part, np.float64)[0, 0] for name, part in theta.items()}
        eta = FRAME[["a", "b"]].to_numpy() @ theta["coef"] + theta["intercept"] + np.log(FRAME.hours).to_numpy()
        law = exact(kind, eta, theta)
        y = FRAME[response].to_numpy().astype(float)
        each = law.logpdf(y) if response == "y" else law.logpmf(y)
        found = made.model.log_likelihood(inner, made.rows or made.data)
        np.testing.assert_allclose(found, FRAME.weight * each, rtol=2e-4, atol=2e-3)
        prior = stats.norm(0, 0.7).logpdf(theta["coef"]).sum()
        values.append((float(made.model.log_prior(inner)) - prior, inner, theta))
    spread = made.told.get("spread", 1.0)
    for rest, inner, _ in values[1:]:  # what is left of the prior: intercept and positive parameters
        wide = model.intercept_scale or 10.0 * 2.0 ** round(np.log2((FRAME.y - np.log(FRAME.hours)).std()))
        others = stats.norm(0, wide).logpdf(inner["intercept"])
        others -= stats.norm(0, wide).logpdf(values[0][1]["intercept"])
        if kind is LinearRegression:
            continue  # its prior of the noise is tested in test_laws
        for name, law in (
            ("noise", stats.expon()),
            ("dispersion", stats.expon()),
            ("freedom", stats.gamma(2, scale=10)),
        ):
            if name in inner:
                others += law.logpdf(inner[name]) - law.logpdf(values[0][1][name])
        np.testing.assert_allclose(rest - values[0][0], others, rtol=1e-3, atol=2e-3 * max(spread, 1.0))


@pytest.mark.unit
def test_softmax_against_a_class_has_the_likelihood_of_the_differences():
    rng = np.random.default_rng(6)
    rows = {"x": rng.normal(size=(9, 2)), "y": rng.integers(0, 3, 9)}
    coef, intercept = rng.normal(size=(3, 2)), rng.normal(size=3)
    whole = density.Likelihood("softmax")({"coef": coef, "intercept": intercept}, rows)
    against = {"coef": coef[1:] - coef[0], "intercept": intercept[1:] - intercept[0]}
    np.testing.assert_allclose(density.Likelihood("softmax", True)(against, rows), whole, rtol=1e-4)
    eta = rows["x"] @ coef.T + intercept
    both = (approximation.probabilities(eta, True), approximation.probabilities(eta[:, 1:] - eta[:, :1], True, True))
    np.testing.assert_allclose(*both)


# -- a fit ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def counts(quick_compiler, tmp_path_factory):
    folder = tmp_path_factory.mktemp("counts") / "run"
    model = PoissonRegression.from_formula(
        "calls ~ a + offset(log(hours))",
        table(60),
        weights="weight",
        scale=0.5,
        store=folder,
        seed=int(os.environ.get("SCIROCCO_TEST_SEED", "0")),  # the fixture `seed` is not one of a module
        progress=False,
    )
    return model, folder


@pytest.mark.law
def test_a_poisson_posterior_against_quadrature(counts):
    model, frame = counts[0], table(60)
    a, deviation = frame.a.to_numpy(), frame.a.std(ddof=0)
    centre = np.log(np.sum(frame.weight * frame.calls) / np.sum(frame.weight * frame.hours))
    slope = model.coef_[0] + model.draws_["coef"].std() * np.linspace(-6, 6, 121)
    middle = model.intercept_ + model.coef_[0] * a.mean() + 0.3 * np.linspace(-3, 3, 121)  # at the mean of the column
    grid, level = np.meshgrid(slope, middle, indexing="ij")
    eta = level[..., None] + grid[..., None] * (a - a.mean()) + np.log(frame.hours.to_numpy())
    value = np.sum(frame.weight.to_numpy() * (frame.calls.to_numpy() * eta - np.exp(eta)), axis=-1)
    value += -0.5 * (grid * deviation / 0.5) ** 2 - 0.5 * ((level - centre) / 10) ** 2
    weights = np.exp(value - value.max())
    weights /= weights.sum()
    drawn = {
        "slope": model.draws_["coef"][..., 0],
        "level": model.draws_["intercept"] + model.draws_["coef"][..., 0] * a.mean(),
    }
    effective = model.summary(digits=None)["ess_bulk"].min()
    assert model.run_.preparation["chosen"]
    for name, values in (("slope", grid), ("level", level)):
        mean = np.sum(weights * values)
        sd = np.sqrt(np.sum(weights * (values - mean) ** 2))
        assert abs(drawn[name].mean() - mean) / sd < 5 / effective**0.5
        assert abs(drawn[name].std() / sd - 1) < 5 / effective**0.5


def test_predictions_of_counts(counts):
    model, frame = counts[0], table(60)
    eta = model.draws_["coef"].reshape(-1, 1) * frame.a[:3].to_numpy() + model.draws_["intercept"].reshape(-1, 1)
    each = np.exp(eta + np.log(frame.hours[:3].to_numpy()))
    chosen = np.unique(np.linspace(0, len(each) - 1, model.num_prediction_draws).round().astype(int))
    found = model.predict(frame[:3], interval=0.8, kind="mean")
    np.testing.assert_allclose(found.mean, each[chosen].mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(found.low, np.quantile(each[chosen], 0.1, axis=0, method="weibull"), rtol=1e-6)
    new = model.predict(frame[:3], interval=0.8)
    assert np.all(new.low <= found.low) and np.all(new.high >= found.high) and np.all(new.low == np.floor(new.low))
    assert list(model.predict_frame(frame[:3])) == ["mean", "low", "high"]
    for change, words in (({"a": np.nan}, "column `a` has 3 missing"), ({"hours": "long"}, "cannot be computed")):
        with pytest.raises(InvalidValueError, match=words):
            model.predict(frame[:3].assign(**change))
    with pytest.raises(InvalidValueError, match="has no column 'hours'"):
        model.predict(frame[["a"]])
    with pytest.raises(InvalidValueError, match="pass none to predict"):
        model.predict(frame, offset=frame.a)


def test_a_level_that_the_fit_has_not_seen(quick_compiler):
    model = LogisticRegression.from_formula("buys ~ a + C(city)", FRAME, progress=False, **QUICK)
    with pytest.raises(InvalidValueError, match="column `city` has 'Rome' in row 0, which the fit did not have"):
        model.predict(FRAME[:2].assign(city="Rome"))


@pytest.mark.rotates(2, "long fits")
def test_files_pickles_clones_and_arviz(counts, tmp_path):
    model, folder = counts
    frame = table(60)
    model.save(tmp_path / "saved")
    loaded = [sc.models.load(tmp_path / "saved"), sc.models.load(folder), pickle.loads(pickle.dumps(model))]
    for again in loaded:
        np.testing.assert_allclose(again.predict(frame, interval=0.9), model.predict(frame, interval=0.9))
        assert again.formula == model.formula
    resumed = PoissonRegression(**model.get_params()).fit(
        frame, weights="weight", store=folder, resume=True, progress=False
    )
    np.testing.assert_array_equal(resumed.draws_["coef"], model.draws_["coef"])
    assert list(model.to_arviz()["posterior"]["coef_dim_0"].values) == ["a"]
    base = pytest.importorskip("sklearn.base")
    assert base.clone(model).get_params() == model.get_params() and base.is_regressor(model)
    model.report(tmp_path / "report.html")
    assert "Find a coefficient" in (tmp_path / "report.html").read_text()


@pytest.mark.rotates(2, "long fits")
def test_a_length_in_epochs(quick_compiler):
    model = StudentRegression(num_samples=10).fit(FRAME[["a"]], FRAME["y"], num_epochs=50, progress=False)
    known = model.run_.configuration
    assert known["num_burnin"] + known["num_samples"] * known["thin"] == 50
    assert {"coef[a]", "intercept", "noise", "freedom"} == set(model.named_draws())
    assert model.noise_ > 0.1 and np.isfinite(model.predict(FRAME[["a"]], interval=0.8)).all()


@pytest.mark.parametrize("part", [{"sampler": sc.BAOAB(0.01)}, {"estimator": sc.Minibatch(40)}])
def test_a_length_changes_neither_sampler_nor_estimator(part, quick_compiler):
    model = PoissonRegression(num_samples=10, num_chains=1, **part)
    known = model.fit(FRAME[["a"]], FRAME["calls"], num_epochs=6, progress=False).run_.configuration
    (name,) = part
    assert known[name]["name"] == type(part[name]).__name__
    steps = known["num_burnin"] + known["num_samples"] * known["thin"]
    assert steps == 6 * (3 if name == "estimator" else 1)


def test_rows_have_normalised_log_likelihoods(counts, quick_compiler):
    found = sc.analysis.loo(counts[0].run_, num_draws=400)
    assert found.ok and 0.5 < found.p_loo < 6
    line = LinearRegression.from_formula("y ~ a + b + c", FRAME, progress=False, **QUICK)
    first = {name: np.asarray(leaf, np.float64)[0, 0] for name, leaf in line.draws_.items()}
    eta = FRAME[["a", "b", "c"]].to_numpy() @ first["coef"] + first["intercept"]
    each = line.run_.log_likelihood()[:, 0]
    np.testing.assert_allclose(each, stats.norm(eta, first["noise"]).logpdf(FRAME.y), rtol=1e-3, atol=1e-3)


# -- numbers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint64, np.float16])
def test_a_formula_computes_in_double_precision_whatever_the_columns_are(kind):
    k, m = np.array([0, 1, 2, 100, 120]), np.array([3, 50, 7, 90, 100])
    frame = pd.DataFrame({"k": k.astype(kind), "m": m.astype(kind)})
    formula = "0 + I(k - 1) + I(k**2) + I(k**5) + I(-k) + k:m + I(k + m) + I(k / m) + center(k) + C(m)"
    found = Design(formula, frame)
    k, m = k.astype(float), m.astype(float)
    columns = dict(zip(found.names, found.matrix(frame).T, strict=True))
    wanted = {"I(k - 1)": k - 1, "I(k ** 2)": k**2, "I(k ** 5)": k**5, "I(-k)": -k, "k:m": k * m}
    wanted |= {"I(k + m)": k + m, "I(k / m)": k / m, "center(k)": k - k.mean()}
    for name, values in wanted.items():
        np.testing.assert_array_equal(columns[name], values, name)
    both = Design("0 + C(k) + I(k**12)", frame)  # 120**12 is more than 64 bits hold
    np.testing.assert_array_equal(both.matrix(frame)[:, -1], k**12)


@pytest.mark.parametrize("term", ["center(a)", "scale(a)", "poly(a, 1)", "a", "log(hours) - a"])
def test_an_offset_has_the_numbers_of_the_fit(tmp_path, quick_compiler, term):
    term = term if " " not in term else f"I({term})"
    formula = f"y ~ b + offset({term})"
    model = LinearRegression.from_formula(formula, FRAME, progress=False, **QUICK)
    model.save(tmp_path / "model")
    few = FRAME.iloc[:4].assign(a=[5.0, 5.0, 105.0, 7.0])
    wanted = model.predict(pd.concat([FRAME, few]))[len(FRAME) :]
    for one in (model, LinearRegression.load(tmp_path / "model")):
        np.testing.assert_allclose(one.predict(few), wanted, rtol=1e-12)
        alone = np.concatenate([one.predict(few.iloc[[row]]) for row in range(len(few))])
        np.testing.assert_allclose(alone, wanted, rtol=1e-12)
    rest = model.predict(FRAME.assign(b=0.0)) - Design(f"0 + {term}", FRAME).matrix(FRAME)[:, 0]
    assert np.ptp(rest) < 1e-9


# -- formulas that stand for too much ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("term", "words"),
    [
        ("I(9**9**9)", "an exponent is a number up to 100"),
        ("I(x**(9**9))", "an exponent is a number up to 100"),
        ("I(x**999999)", "an exponent is a number up to 100"),
        ("I((9**99)**99)", "the base of a power is a number or has a column"),
        ("I(x << 10**10)", "is not supported"),
        ("I(1 << 9999999999)", "is not supported"),
        ("C(x, levels=['a' * 10**10])", "plain numbers|only columns and numbers"),
        ("x**99999999", "a power of terms is a whole number"),
        ("x**x", "a power of terms is a whole number"),
        ("(x+z+b)**30", "stands for .* products of columns"),
        ("(x+z+b)^30", "stands for .* products of columns"),
        ("((x+z+b)**9)**9", "stands for .* products of columns"),
        ("*".join(f"I(x+{k})" for k in range(30)), "stands for .* products of columns"),
        (":".join(["(x+z+b)"] * 30), "stands for .* products of columns"),
        ("x" * 1_000_000, "at most 10,000 characters, got 1,000,0"),
        ("+".join(["x"] * 10_000), "at most 10,000 characters"),
        ("-" * 9000 + "x", "cannot be read"),
        ("(" * 4000 + "x" + ")" * 4000, "cannot be read"),
        ("bs(x, df=999999999)", "df of bs is at most 1000"),
        ("bs(x, df=10**9)", "plain numbers"),
        ("bs(x, degree=5000)", "degree of bs is at most 20"),
        ("poly(x, 999999)", "the argument of poly is at most 20"),
        ("offset(I(9**9**9))", "an exponent is a number up to 100"),
        ("(I(9**9**9) | b)", "an exponent is a number up to 100"),
    ],
)
def test_a_formula_that_would_never_end_is_refused_at_once(term, words):
    frame = pd.DataFrame({"y": np.ones(9), "x": np.arange(9.0), "z": np.arange(9.0) ** 2, "b": np.arange(9)})
    before = time.process_time()
    for model in (LinearRegression, sc.models.GLMM):
        if model is LinearRegression and "|" in term:
            continue
        with pytest.raises(InvalidValueError, match=words):
            model(formula=f"y ~ x + {term}").fit(frame, progress=False)
    assert time.process_time() - before < 5


@pytest.mark.parametrize(
    "term",
    [
        "I(x**2)",
        "I(2**z)",
        "I(x**-0.5)",
        "(x + z + b)**3",
        "x*z*b",
        "x:z + x/b",
        "poly(x, 3, raw=True)",
        "C(b, levels=['u', 'v'])",
    ],
)
def test_ordinary_formulas_are_within_the_limits(term):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.uniform(1, 2, 20), "z": rng.normal(size=20), "b": rng.choice(["u", "v"], 20)})
    assert len(Design(term, frame).matrix(frame)) == 20


def test_more_levels_than_memory_holds_are_refused():
    frame = pd.DataFrame({"g": np.arange(100_000).astype(str), "y": np.ones(100_000)})
    with pytest.raises(InvalidValueError, match=r"column `g` has 100,000 levels. Use sc.models.GLMM with \(1 \| g\)"):
        LinearRegression(formula="y ~ g").fit(frame, progress=False)


def test_a_list_of_levels_that_lacks_one():
    frame = pd.DataFrame({"x": [1, 2, 1, 2, 3]})
    with pytest.raises(InvalidValueError, match=r"`levels` of a C\(...\) lacks a level that the column has"):
        Design("C(x, levels=[1])", frame)
