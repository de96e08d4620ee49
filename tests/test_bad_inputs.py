"""One row for each thing that users get wrong: the class of the error, and what the message must say.

The phrases are what a user needs from a message: the culprit's name, the number or shape that was got, the fix.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest

import scirocco as sc
from scirocco.errors import (
    BadStartError,
    DivergenceError,
    InvalidTypeError,
    InvalidValueError,
    SciroccoError,
    SciroccoWarning,
)

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("quick_compiler")]

N = 20
_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(N, 3)).astype(np.float32)
Y = _RNG.normal(size=N).astype(np.float32)
START = {"beta": np.zeros(3, np.float32), "bias": np.float32(0.0)}


def log_likelihood(params, datum):
    return -0.5 * (datum["y"] - datum["x"] @ params["beta"] - params["bias"]) ** 2


def log_prior(params):
    return -0.5 * jnp.sum(params["beta"] ** 2) - 0.5 * params["bias"] ** 2


def run(**changes):
    """A run that works, but for the changes."""
    arguments = {
        "model": sc.Model(log_likelihood, log_prior),
        "data": {"x": X, "y": Y},
        "params": START,
        "sampler": sc.SGLD(1e-4),
        "estimator": sc.Minibatch(5),
        "num_samples": 5,
        "progress": False,
    }
    return sc.sample(**(arguments | changes))


TORCH_MODULE = type("Linear", (), {"__module__": "torch.nn.modules.linear", "__call__": lambda self, x: x})


def data(**changes):
    return lambda: run(data={"x": X, "y": Y} | changes)


def params(**changes):
    return lambda: run(params=START | changes)


def likelihood(function, **options):
    return lambda: run(model=sc.Model(function, log_prior, **options))


def prior(function):
    return lambda: run(model=sc.Model(log_likelihood, function))


def transforms(**named):
    return lambda: run(model=sc.Model(log_likelihood, log_prior, transforms=named))


def sampler(make, *arguments, **options):
    """Refused when it is made, or when it meets the parameters."""
    return lambda: run(sampler=make(*arguments, **options))


def estimator(make, *arguments, **options):
    return lambda: run(estimator=make(*arguments, **options))


def sample(**arguments):
    return lambda: run(**arguments)


def in_pairs(params, datum):
    (beta, bias), (x, y) = params, datum
    return -0.5 * (y - x @ beta - bias) ** 2


def squares(mean, x):
    return -0.5 * jnp.sum((x - mean) ** 2)


def swapped(rows, start, function=log_likelihood):
    """A call with the rows where the starting values belong."""
    return lambda: run(model=sc.Model(function), data=start, params=rows)


def spoiled(array, index, value):
    array = np.array(array)
    array[index] = value
    return array


@dataclasses.dataclass
class Row:
    """What is tried, and the complaint."""

    name: str
    attempt: Callable[[], Any]
    error: type[Exception]
    phrases: tuple[str, ...]


def row(name, attempt, error, *phrases):
    return Row(name, attempt, error, phrases)


DATA = [
    row(
        "NaN",
        data(y=spoiled(Y, 3, np.nan)),
        InvalidValueError,
        "data `y`",
        "1 missing (NaN)",
        "1 of 20 rows",
        "row 3",
        "Drop",
    ),
    row("infinite", data(x=spoiled(X, (7, 1), np.inf)), InvalidValueError, "`x`", "row 7, index (1,)"),
    row("many NaN", data(x=spoiled(X, slice(3, 5), np.nan)), InvalidValueError, "6 missing (NaN)", "2 of 20 rows"),
    row(
        "NaN in a bare array",
        sample(data=spoiled(Y, 0, np.nan)),
        InvalidValueError,
        "`data` holds 1 missing (NaN)",
        "row 0",
    ),
    row("unequal lengths", data(y=Y[:12]), InvalidValueError, "`x`: 20", "`y`: 12", "must be equal"),
    row("no arrays", sample(data={}), InvalidValueError, "`data` holds no arrays", "one row per datum"),
    row("None", sample(data=None), InvalidTypeError, "`data` is None", "log_density"),
    row("no rows", data(x=X[:0], y=Y[:0]), InvalidValueError, "empty", "0 rows"),
    row("strings", data(y=np.array(["a"] * N)), InvalidTypeError, "data `y`", "<U1", "Encode"),
    row("objects", data(y=np.array([None] * N)), InvalidTypeError, "data `y`", "object", "Encode"),
    row("ragged", data(y=np.array([[1.0], [2.0, 3.0]], object)), InvalidTypeError, "`y`", "ragged"),
    row(
        "ragged lists", sample(data=[[1.0], [2.0, 3.0]]), InvalidTypeError, "`[0][0]` is a single number", "np.asarray"
    ),
    row("list of numbers", data(y=[1.0] * N), InvalidTypeError, "`y[0]` is a single number", "np.asarray"),
    row("one number", sample(data=3.0), InvalidTypeError, "`data` is a single number", "one row per datum"),
    row("complex", data(y=Y.astype(complex)), InvalidTypeError, "`y`", "complex128", "real numbers"),
    row("dates", data(y=np.arange(N).astype("datetime64[D]")), InvalidTypeError, "`y`", "datetime64", "Encode"),
    row(
        "data frame with a column of strings",
        data(x=pd.DataFrame({"age": Y, "city": ["Rome"] * N})),
        InvalidTypeError,
        *("column `city` of data `x`", "'Rome' in row 0", "Encode"),
    ),
    row(
        "masked values",
        data(x=np.ma.masked_greater(X, X[7].max() - 1e-6)),
        InvalidValueError,
        *("data `x` is a masked array", "masked value", "filled"),
    ),
    row(
        "one masked value",
        data(y=np.ma.array(Y, mask=np.arange(N) == 7)),
        InvalidValueError,
        *("data `y`", "1 masked value,", "row 7", "impute"),
    ),
    row(
        "missing value of a nullable column",
        sample(data=pd.DataFrame({"x": Y, "y": pd.array([1] * 4 + [None] * 2 + [3] * 14, "Int64")})),
        InvalidValueError,
        *("column `y` of the data", "2 missing (NaN)", "row 4"),
    ),
    row(
        "missing boolean",
        sample(data=pd.DataFrame({"x": Y, "y": pd.array([None] + [True] * 19, "boolean")})),
        InvalidTypeError,
        *("column `y` of the data", "<NA> in row 0", "impute"),
    ),
    row(
        "data frame with missing values",
        data(x=pd.DataFrame({"age": Y, "size": spoiled(Y, 5, np.nan)})),
        InvalidValueError,
        *("data `x`", "row 5, column `size`"),
    ),
    row(
        "two columns of one name",
        sample(data=pd.DataFrame(X, columns=["x", "y", "x"])),
        InvalidValueError,
        *("'x'", "rename"),
    ),
    row("generator", sample(data=(x for x in X)), InvalidTypeError, "generator", "only once", "np.stack(list"),
    row("iterator in a dict", data(x=iter(X)), InvalidTypeError, "iterator", "Collect"),
    row("integers beyond 32 bits", data(y=np.full(N, 2**40)), InvalidValueError, "`y`", "32 bits", "enable_x64"),
    row("numbers beyond float32", data(y=np.full(N, 1e300)), InvalidValueError, "`y`", "1e+300", "float32", "Rescale"),
]

PLACES = [
    row("number as store", sample(store=3), InvalidTypeError, "`store` must be a path", "got 3"),
    row("bytes as store", sample(store=b"run"), InvalidTypeError, "`store` must be a path"),
    row("store inside a file", sample(store=f"{__file__}/run"), InvalidValueError, "`store`", "is a file"),
    row("null character", sample(store="a\0b"), InvalidValueError, "`store`", "null character"),
    row("very long name", sample(store="/tmp/" + "a" * 5000), InvalidValueError, "`store`", "too long"),
    row("number as notes", sample(notes=3), InvalidTypeError, "`notes` must be a dict", "int"),
    row("text as notes", sample(notes="a run"), InvalidTypeError, "`notes` must be a dict", "str"),
    row("number as callbacks", sample(callbacks=3), InvalidTypeError, "`callbacks`", "[my_function]"),
    row("load a number", lambda: sc.load(3), InvalidTypeError, "`path` must be a path"),
    row("write into a file", lambda: sc.data.write(f"{__file__}/x", X), InvalidValueError, "is a file"),
    row("open nothing", lambda: sc.data.open(None), InvalidTypeError, "`path` must be a path", "None"),
    row("convert a number", lambda: sc.data.convert(3, "x"), InvalidTypeError, "`source` must be a path"),
    row("data with a long name", sample(data="a" * 5000), InvalidValueError, "too long"),
]

PARAMETERS = [
    *(
        row(
            f"{dtype} for the default",
            sample(params={"beta": jnp.zeros(3, dtype), "bias": jnp.zeros((), dtype)}, sampler=None, estimator=None),
            InvalidTypeError,
            *("parameter `beta`", dtype, "32 bits", "float32"),
        )
        for dtype in ("float16", "bfloat16")
    ),
    row("NaN", params(beta=np.array([0, np.nan, np.inf], np.float32)), InvalidValueError, "`beta`", "2 NaN", "finite"),
    row("integer array", params(beta=np.zeros(3, int)), InvalidTypeError, "`beta`", "int64", ".astype(float)"),
    row("boolean", params(bias=True), InvalidTypeError, "`bias`", "bool", "continuous"),
    row("string", params(bias="0"), InvalidTypeError, "`bias`", "floating-point"),
    row("complex", params(bias=1j), InvalidTypeError, "`bias`", "complex128", "floating-point"),
    row("nothing", sample(params={}), InvalidValueError, "`params` contains no arrays", "starting value"),
    row("None", sample(params=None), InvalidValueError, "`params` contains no arrays"),
    row("list", params(beta=[0.0, 0.0, 0.0]), InvalidValueError, "log_prior failed", "beta[0] ()", "np.array"),
    row(
        "wrong dimension",
        params(beta=np.zeros(4, np.float32)),
        InvalidValueError,
        *("log_likelihood failed", "beta (4,)", "x (3,)", "got (3,) and (4,)"),
    ),
    row("one is missing", sample(params={"beta": np.zeros(3, np.float32)}), InvalidValueError, "KeyError", "'bias'"),
]

MODELS = [
    row("likelihood is no function", lambda: sc.Model(3.0), InvalidTypeError, "`log_likelihood`", "function", "3.0"),
    row("prior is no function", lambda: sc.Model(log_likelihood, 1.0), InvalidTypeError, "`log_prior`", "1.0"),
    row(
        "likelihood returns a vector",
        likelihood(lambda p, d: -0.5 * (d["x"] * p["beta"]) ** 2),
        InvalidValueError,
        *("log_likelihood must return a scalar for one datum", "x (3,), y ()", "got shape (3,)"),
        *("called with one row, not a batch", "vectorized=True"),
    ),
    row(
        "bare rows, vector",
        lambda: run(model=sc.Model(lambda p, x: p["beta"] * x), data=X),
        InvalidValueError,
        *("scalar for one datum", "of shape (3,)", "got shape (3,)"),
    ),
    row(
        "y of shape (N, 1)", data(y=Y[:, None]), InvalidValueError, "got shape (1,)", "`y` have shape (N, 1)", "y[:, 0]"
    ),
    row(
        "likelihood written for a batch",
        likelihood(lambda p, d: jnp.sum(-0.5 * (d["y"] - d["x"] @ p["beta"]) ** 2, axis=1)),
        InvalidValueError,
        *("log_likelihood failed", "x (3,)", "axis 1 is out of bounds"),
    ),
    row("likelihood returns nothing", likelihood(lambda p, d: None), InvalidValueError, "scalar", "got a NoneType"),
    row("likelihood returns two", likelihood(lambda p, d: (0.0, 1.0)), InvalidValueError, "scalar", "got a tuple"),
    row(
        "likelihood returns an int", likelihood(lambda p, d: jnp.array(1)), InvalidTypeError, "floating-point", "int32"
    ),
    row("unknown column", likelihood(lambda p, d: d["z"]), InvalidValueError, "log_likelihood", "KeyError", "'z'"),
    row(
        "Python if",
        likelihood(lambda p, d: p["bias"] if p["bias"] > 0 else -p["bias"]),
        InvalidValueError,
        *("log_likelihood", "jnp.where for if"),
    ),
    row("NumPy", likelihood(lambda p, d: np.exp(p["bias"])), InvalidValueError, "log_likelihood", "use jnp for np"),
    row("one argument", likelihood(lambda p: 0.0), InvalidValueError, "log_likelihood", "2 were given"),
    row("empty assertion", likelihood(lambda p, d: _refuse()), InvalidValueError, "log_likelihood", "AssertionError"),
    row("prior returns a vector", prior(lambda p: -(p["beta"] ** 2)), InvalidValueError, "log_prior", "got shape (3,)"),
    row("prior without argument", prior(lambda: 0.0), InvalidValueError, "log_prior failed", "1 was given"),
    row(
        "vectorized returns the mean",
        likelihood(lambda p, d: jnp.mean(d["y"] * p["bias"]), vectorized=True),
        InvalidValueError,
        *("vectorized=True", "one value per row", "shape (5,)", "got shape ()", "not their sum"),
    ),
    row(
        "vectorized returns a column",
        likelihood(lambda p, d: (d["y"] * p["bias"])[:, None], vectorized=True),
        InvalidValueError,
        *("one value per row", "got shape (5, 1)", "axes"),
    ),
    row(
        "vectorized mixes rows",
        likelihood(lambda p, d: -0.5 * (d["y"] - d["y"].mean() - p["bias"]) ** 2, vectorized=True),
        InvalidValueError,
        *("different values in a batch and alone", "row ", "independently"),
    ),
]

STARTS = [
    row(
        "outside the prior's support",
        prior(lambda p: jnp.where(p["bias"] > 1, 0.0, -jnp.inf)),
        BadStartError,
        *("log prior is -inf", "outside the support", "transforms"),
    ),
    row("prior is NaN", prior(lambda p: jnp.log(p["bias"] - 1)), BadStartError, "log prior is nan", "transforms"),
    row(
        "log of a negative parameter",
        likelihood(lambda p, d: jnp.log(p["bias"] - 1) * d["y"]),
        BadStartError,
        *("log likelihood is nan", "20 of the 20 rows", "log or root of a negative", "transforms"),
    ),
    row(
        "some rows impossible",
        likelihood(lambda p, d: jnp.where(d["y"] > 0, p["bias"], -jnp.inf)),
        BadStartError,
        *("log likelihood is -inf", f"{int(np.sum(Y <= 0))} of the 20 rows"),
    ),
    row(
        "gradient is infinite",
        likelihood(lambda p, d: jnp.sqrt(p["bias"]) * d["y"]),
        BadStartError,
        *("gradient", "`bias`", "not finite", "Start elsewhere"),
    ),
]

TRANSFORMS = [
    row(
        "a string",
        transforms(bias="positive"),
        InvalidTypeError,
        "`transforms`",
        "'positive'",
        "sc.transforms.positive",
    ),
    row("a function", transforms(bias=jnp.exp, beta=None), InvalidTypeError, "`transforms`", "sc.transforms"),
    row(
        "unknown name",
        transforms(scale=sc.transforms.positive),
        InvalidValueError,
        "names 'scale', which is not a parameter",
        "['beta', 'bias']",
    ),
    row("misspelt name", transforms(bais=sc.transforms.positive), InvalidValueError, "Did you mean 'bias'?"),
    row("outside", transforms(bias=sc.transforms.positive), InvalidValueError, "`bias`", "positive", "0.0"),
    row(
        "outside an interval",
        transforms(bias=sc.transforms.interval(2, 3), beta=None),
        InvalidValueError,
        *("`bias`", "between 2.0 and 3.0"),
    ),
    row("not ordered", transforms(beta=sc.transforms.ordered, bias=None), InvalidValueError, "`beta`", "increase"),
    row("ordered number", transforms(bias=sc.transforms.ordered, beta=None), InvalidValueError, "`bias`", "axis"),
    row(
        "a list",
        lambda: run(model=sc.Model(log_likelihood, log_prior, transforms=[sc.transforms.positive, None])),
        InvalidValueError,
        *("`transforms` is a list", "name those", "['beta', 'bias']"),
    ),
    row("reversed interval", lambda: sc.transforms.interval(3, 2), InvalidValueError, "low < high", "3.0", "2.0"),
    row("interval of NaN", lambda: sc.transforms.interval(np.nan, 2), InvalidValueError, "low < high", "nan"),
    row("interval of strings", lambda: sc.transforms.interval("a", 2), InvalidTypeError, "interval", "'a'"),
    row("off the simplex", transforms(beta=sc.transforms.simplex), InvalidValueError, "`beta`", "sum to 1"),
    row("not a matrix", transforms(beta=sc.transforms.cholesky_correlation), InvalidValueError, "square matrix"),
    row("multiplier", lambda: sc.transforms.affine(0.0, -1.0), InvalidValueError, "`multiplier`", "> 0"),
    row("no bounds", lambda: sc.transforms.Bounded(), InvalidValueError, "bound"),
]

STEP_SIZES = [
    row("negative", sampler(sc.SGLD, -1e-4), InvalidValueError, "`step_size` of SGLD", "> 0", "-0.0001"),
    row("zero", sampler(sc.SGLD, 0.0), InvalidValueError, "`step_size` of SGLD", "> 0", "got 0.0"),
    row("NaN", sampler(sc.SGHMC, np.nan), InvalidValueError, "`step_size` of SGHMC", "finite", "got nan"),
    row("infinite", sampler(sc.BAOAB, np.inf), InvalidValueError, "`step_size` of BAOAB", "finite", "got inf"),
    row("NumPy number", sampler(sc.SGNHT, np.float32(-1)), InvalidValueError, "`step_size` of SGNHT", "-1.0"),
    row("JAX number", sampler(sc.BADODAB, jnp.float32(0)), InvalidValueError, "`step_size` of BADODAB", "0.0"),
    row("string", sampler(sc.SGLD, "1e-4"), InvalidTypeError, "`step_size` of SGLD must be a number", "'1e-4'"),
    row("boolean", sampler(sc.PSGLD, True), InvalidTypeError, "`step_size` of PSGLD must be a number", "True"),
    row("complex", sampler(sc.SGLD, 1 + 1j), InvalidTypeError, "must be a number", "complex"),
    row("None", sampler(sc.PSGLD, None), InvalidTypeError, "`step_size` of PSGLD", "number", "schedule"),
    row("empty dict", sampler(sc.SGLD, {}), InvalidTypeError, "`step_size` of SGLD", "dict of numbers"),
    row("None in a dict", sampler(sc.SGLD, {"beta": None, "bias": 1.0}), InvalidTypeError, "`step_size` of SGLD"),
    row(
        "negative in a dict",
        sampler(sc.SGLD, {"beta": -1.0, "bias": 1e-4}),
        InvalidValueError,
        *("step_size", "beta", "> 0", "-1.0"),
    ),
    row(
        "unknown name",
        sampler(sc.SGLD, {"beta": 1e-4, "bias": 1e-4, "gamma": 1e-4}),
        InvalidValueError,
        *("`step_size` names ['gamma']", "The parameters are ['beta', 'bias']"),
    ),
    row("missing name", sampler(sc.SGLD, {"beta": 1e-4}), InvalidValueError, "`step_size` lacks ['bias']"),
    row(
        "wrong tree",
        sampler(sc.SGLD, (1e-4, 1e-4)),
        InvalidValueError,
        "`step_size` has the structure",
        "one value for all",
    ),
    row("array", sampler(sc.SGLD, np.full(2, 1e-4)), InvalidTypeError, "`step_size` of SGLD must be a number"),
    row(
        "schedule that reaches 0",
        sampler(sc.SGLD, lambda step: 1e-4 * (1 - step / 3)),
        InvalidValueError,
        *("schedule", "gives 0.0 at step 3", "5 steps"),
    ),
    row(
        "schedule that becomes NaN",
        sampler(sc.SGLD, {"beta": lambda step: jnp.where(step > 3, jnp.nan, 1e-4), "bias": 1e-4}),
        InvalidValueError,
        *("schedule", "gives nan at step 4"),
    ),
    row("schedule of a vector", sampler(sc.SGLD, lambda step: jnp.ones(2)), InvalidValueError, "schedule", "(2,)"),
    row(
        "schedule with if",
        sampler(sc.SGLD, lambda step: 1.0 if step < 3 else 0.1),
        InvalidValueError,
        "schedule",
        "jnp.where",
    ),
    row("schedule without argument", sampler(sc.SGLD, lambda: 1e-4), InvalidValueError, "schedule", "argument"),
    row(
        "polynomial from below 0",
        lambda: sc.schedules.polynomial(-1.0),
        InvalidValueError,
        "`start` of polynomial",
        "-1.0",
    ),
    row("polynomial, tau 0", lambda: sc.schedules.polynomial(1.0, tau=0), InvalidValueError, "`tau` of polynomial"),
    row("cycle of 0 steps", lambda: sc.schedules.cyclical(1.0, length=0), InvalidValueError, "`length`", "at least 1"),
    row("cycle of 2.5 steps", lambda: sc.schedules.cyclical(1.0, length=2.5), InvalidTypeError, "`length`", "2.5"),
]

SAMPLERS = [
    row(
        "friction < 0",
        sampler(sc.SGHMC, 1e-2, friction=-1.0),
        InvalidValueError,
        "`friction` of SGHMC",
        "> 0, got -1.0",
    ),
    row("friction 0", sampler(sc.BAOAB, 1e-2, friction=0), InvalidValueError, "`friction` of BAOAB", "> 0, got 0"),
    row("friction a string", sampler(sc.SGHMC, 1e-2, friction="a"), InvalidTypeError, "`friction` of SGHMC", "'a'"),
    row(
        "friction of an unknown parameter",
        sampler(sc.SGHMC, 1e-2, friction={"gamma": 1.0}),
        InvalidValueError,
        *("`friction` names ['gamma']", "['beta', 'bias']"),
    ),
    row(
        "friction × step > 1",
        sampler(sc.SGHMC, 1e-2, friction=200.0),
        InvalidValueError,
        *("`step_size` × `friction` of SGHMC is 2", "not exceed 1", "Lower"),
    ),
    row(
        "diffusion × step > 1",
        sampler(sc.SGNHT, 1e-2, diffusion=200.0),
        InvalidValueError,
        *("`step_size` × `diffusion` of SGNHT is 2", "not exceed 1"),
    ),
    row(
        "diffusion < 0", sampler(sc.BADODAB, 1e-2, diffusion=-1), InvalidValueError, "`diffusion` of BADODAB", "got -1"
    ),
    row(
        "gradient noise < 0",
        sampler(sc.SGHMC, 1e-2, gradient_noise=-1.0),
        InvalidValueError,
        "`gradient_noise` of SGHMC",
    ),
    row(
        "resample_every 0",
        sampler(sc.SGHMC, 1e-2, resample_every=0),
        InvalidValueError,
        "`resample_every`",
        "at least 1",
    ),
    row(
        "thermostat", sampler(sc.SGNHT, 1e-2, thermostat="each"), InvalidValueError, "`thermostat`", "'leaf'", "'each'"
    ),
    row(
        "temperature < 0", sampler(sc.SGLD, 1e-2, temperature=-1.0), InvalidValueError, "`temperature` of SGLD", ">= 0"
    ),
    row(
        "decay > 1", sampler(sc.PSGLD, 1e-2, decay=1.5), InvalidValueError, "`decay` of PSGLD", "between 0 and 1", "1.5"
    ),
    row("damping 0", sampler(sc.PSGLD, 1e-2, damping=0), InvalidValueError, "`damping` of PSGLD", "> 0"),
    row(
        "step too large for the noise",
        sampler(sc.SGHMC, 10.0),
        InvalidValueError,
        *("step size of SGHMC is too large", "below 0.", "sc.ControlVariates"),
    ),
    row(
        "covariance of one row",
        lambda: run(sampler=sc.SGHMC(1e-2), estimator=sc.Minibatch(1)),
        InvalidValueError,
        *("one row has no covariance", "`batch_size` >= 2"),
    ),
]

ESTIMATORS = [
    *(
        row(f"{make.__name__} of {size}", estimator(make, size), error, "`batch_size`", phrase)
        for make in (sc.Minibatch, sc.ControlVariates, sc.SVRG, sc.SAGA)
        for size, error, phrase in (
            (0, InvalidValueError, "at least 1, got 0"),
            (-3, InvalidValueError, "at least 1, got -3"),
            (N + 1, InvalidValueError, "is 21, but the data have only 20 rows. Use sc.Full()"),
            (5.0, InvalidTypeError, "got 5.0. Write 5."),
            (2.5, InvalidTypeError, "whole number (int), got 2.5"),
            ("5", InvalidTypeError, "whole number (int), got '5'"),
            (True, InvalidTypeError, "whole number (int), got True"),
            (None, InvalidTypeError, "whole number (int), got None"),
        )
    ),
    row(
        "sampling",
        estimator(sc.Minibatch, 5, sampling="random"),
        InvalidValueError,
        "`sampling`",
        "'blocks'",
        "'random'",
    ),
    row("no probabilities", estimator(sc.Weighted, 5, probabilities=None), InvalidTypeError, "`probabilities`", "None"),
    row(
        "probabilities a string",
        estimator(sc.Weighted, 5, probabilities="p"),
        InvalidTypeError,
        "`probabilities`",
        "'p'",
    ),
    row(
        "too few probabilities",
        estimator(sc.Weighted, 5, probabilities=np.ones(19)),
        InvalidValueError,
        "(20,)",
        "(19,)",
    ),
    *(
        row(
            f"probability {value}", estimator(sc.Weighted, 5, probabilities=p), InvalidValueError, "entry 4", str(value)
        )
        for value, p in ((v, spoiled(np.ones(N), 4, v)) for v in (0.0, -1.0, np.nan, np.inf))
    ),
    row(
        "probability below the resolution",
        estimator(sc.Weighted, 5, probabilities=spoiled(np.ones(N), 4, 1e-15)),
        InvalidValueError,
        *("row 4", "never be drawn", "0.1 / len(p)"),
    ),
    row(
        "SAGA that does not fit",
        lambda: run(estimator=sc.SAGA(5, max_memory=1_000), num_chains=3),
        InvalidValueError,
        *("20 rows × 4 parameters × 3 chains", "`max_memory`", "sc.ControlVariates or sc.SVRG"),
    ),
    row(
        "SAGA in blocks",
        estimator(sc.SAGA, 5, sampling="blocks"),
        InvalidValueError,
        *("`sampling`", "'without_replacement', 'with_replacement'"),
    ),
    row("SAGA without memory", estimator(sc.SAGA, 5, max_memory=0), InvalidValueError, "`max_memory`", "at least 1"),
    row(
        "SVRG never refreshed",
        estimator(sc.SVRG, 5, refresh_every=0),
        InvalidValueError,
        "`refresh_every`",
        "at least 1",
    ),
    row(
        "no optimiser steps",
        estimator(sc.ControlVariates, 5, num_optimizer_steps=0),
        InvalidValueError,
        "`num_optimizer_steps`",
    ),
    row(
        "optimiser that diverges",
        estimator(sc.ControlVariates, 5, optimizer=optax.sgd(1e9)),
        InvalidValueError,
        *("posterior mode", "smaller learning rate", "`centre`"),
    ),
    row(
        "optimiser by name",
        estimator(sc.ControlVariates, 5, optimizer="adam"),
        InvalidTypeError,
        "`optimizer`",
        "optax",
        "'adam'",
    ),
    row(
        "centre without a parameter",
        estimator(sc.ControlVariates, 5, centre={"beta": np.zeros(3)}),
        InvalidValueError,
        *("`centre` of ControlVariates", "bias"),
    ),
    row(
        "centre of another shape",
        estimator(sc.ControlVariates, 5, centre={"beta": np.zeros(4), "bias": 0.0}),
        InvalidValueError,
        *("`centre` of ControlVariates", "beta", "(4,)", "(3,)"),
    ),
    row(
        "centre of NaN",
        estimator(sc.ControlVariates, 5, centre={"beta": np.full(3, np.nan), "bias": 0.0}),
        InvalidValueError,
        *("centre", "`beta`", "NaN"),
    ),
]

RUNS = [
    *(
        row(f"{name} = {value!r}", sample(**{name: value}), error, f"`{name}`", phrase)
        for name, least in (("num_samples", 1), ("num_chains", 1), ("thin", 1), ("num_burnin", 0), ("seed", 0))
        for value, error, phrase in (
            (least - 1, InvalidValueError, f"at least {least}, got {least - 1}"),
            (2.5, InvalidTypeError, "whole number (int), got 2.5"),
            (10.0, InvalidTypeError, "got 10.0. Write 10."),
            ("10", InvalidTypeError, "got '10'"),
            (True, InvalidTypeError, "got True"),
        )
    ),
    row("seed beyond 32 bits", sample(seed=2**32), InvalidValueError, "`seed`", "4294967296"),
    row(
        "more steps than can be counted",
        sample(num_burnin=2**31, callbacks=[lambda report: report.stop()]),
        InvalidValueError,
        "steps",
        "2147483653",
    ),
    row(
        "chain_method",
        sample(chain_method="processes"),
        InvalidValueError,
        "`chain_method`",
        "'threads'",
        "'processes'",
    ),
    row("one callback", sample(callbacks=print), InvalidTypeError, "`callbacks`", "callbacks=[my_function]"),
    row("no callbacks", sample(callbacks=["print"]), InvalidTypeError, "`callbacks`", "functions"),
    row("class for a sampler", sample(sampler=sc.SGLD), InvalidTypeError, "`sampler`", "add parentheses"),
    row("class for an estimator", sample(estimator=sc.Full), InvalidTypeError, "`estimator`", "add parentheses"),
    row(
        "number for a sampler", sample(sampler=1e-4), InvalidTypeError, "`sampler`", "sc.SGLD(step_size=1e-5)", "0.0001"
    ),
    row(
        "number for an estimator",
        sample(estimator=500),
        InvalidTypeError,
        "`estimator`",
        "sc.Minibatch(batch_size=500)",
    ),
    row(
        "swapped",
        sample(sampler=sc.Minibatch(5), estimator=sc.SGLD(1e-4)),
        InvalidTypeError,
        *("`sampler`", "sc.SGLD(step_size=1e-5)", "Minibatch(batch_size=5"),
    ),
    *(
        row(f"{theirs} for {ours}", sample(**{theirs: 7}), InvalidTypeError, f"`{theirs}`: use `{ours}`")
        for theirs, ours in (
            ("num_warmup", "num_burnin"),
            ("warmup", "num_burnin"),
            ("tune", "num_burnin"),
            ("draws", "num_samples"),
            ("n_samples", "num_samples"),
            ("num_sample", "num_samples"),
            ("chains", "num_chains"),
            ("n_chains", "num_chains"),
            ("random_seed", "seed"),
            ("batch_size", "estimator=sc.Minibatch(batch_size=...)"),
            ("cores", "chain_method"),
            ("target_accept", "sampler=sc.NUTS(target_acceptance=...)"),
        )
    ),
    row("an unknown word", sample(zebra=1), InvalidTypeError, "no argument `zebra`", "model, data, params"),
    row(
        "words of resume",
        lambda: sc.resume("folder", None, None, draws=7),
        InvalidTypeError,
        "sc.resume has no argument `draws`: use `num_samples`",
    ),
    row(
        "words of a model",
        lambda: sc.models.LinearRegression(chains=2),
        InvalidTypeError,
        "LinearRegression has no argument `chains`: use `num_chains`",
    ),
    *(
        row(f"words of {owner}", call, InvalidTypeError, f"{owner} has no argument `{theirs}`: use `{ours}`")
        for owner, theirs, ours, call in (
            ("sc.Model", "logp", "log_likelihood", lambda: sc.Model(logp=log_likelihood)),
            ("SGLD", "lr", "step_size", lambda: sc.SGLD(lr=1e-3)),
            ("Minibatch", "batchsize", "batch_size", lambda: sc.Minibatch(batchsize=3)),
            ("NUTS", "target_accept", "target_acceptance", lambda: sc.NUTS(target_accept=0.9)),
            ("LDA", "n_components", "num_topics", lambda: sc.models.LDA(n_components=3)),
            ("BPMF", "rank", "num_factors", lambda: sc.models.BPMF(rank=3)),
        )
    ),
    row(
        "words of fit",
        lambda: sc.models.LinearRegression().fit(X, Y, draws=2),
        InvalidTypeError,
        "`num_samples` is an argument of LinearRegression(...)",
    ),
    row("no run to certify", lambda: sc.analysis.certify("run"), InvalidTypeError, "`run` must be a run", "sc.load"),
    row(
        "a torch module",
        lambda: sc.models.BNN(apply=TORCH_MODULE(), params={}).fit(X, np.arange(N) % 2),
        InvalidTypeError,
        "PyTorch module",
        "BNN.from_flax",
    ),
    row(
        "model and data swapped",
        sample(model={"x": X, "y": Y}, data=sc.Model(log_likelihood)),
        InvalidTypeError,
        "swapped",
        "model, data, params",
    ),
    *(
        row(f"data and params swapped: {how}", swapped(*given), InvalidTypeError, *words)
        for how, given, words in (
            ("other names", ({"x": X, "y": Y}, START), ("`data` and `params` are swapped", "model, data, params")),
            ("no common length", ((X, Y), (START["beta"], START["bias"]), in_pairs), ("are swapped",)),
            ("one vector", (X, START["beta"], squares), ("are swapped", "row of `params`", "ArraySource")),
            ("one number", (X[:, :1], np.zeros(1), squares), ("are swapped", "row of `params`")),
            ("a frame", (pd.DataFrame(X), START["beta"]), ("starting values, got a DataFrame", "model, data, params")),
            ("a folder", ("rows", START), ("starting values, got a str", "model, data, params")),
            ("counts", (X.astype(int), START["beta"], squares), ("are swapped", "row of `params`")),
        )
    ),
    row("whole numbers for params", sample(params=X.astype(int)), InvalidTypeError, "integer", "data, params"),
    row("function for a model", sample(model=log_likelihood), InvalidTypeError, "`model`", "sc.Model(log_likelihood"),
    row(
        "step too large",
        lambda: run(sampler=sc.SGLD(10.0), num_samples=200, num_chains=2),
        DivergenceError,
        *("chain ", "at step ", "`beta`", "step size (10)", "try step_size=0.00", "error.run"),
    ),
    row(
        "step too large, in burn-in",
        lambda: run(sampler=sc.SGLD(10.0), num_burnin=200),
        DivergenceError,
        *("at step ", "no draw"),
    ),
]

TABLE = {
    "data": DATA,
    "places": PLACES,
    "parameters": PARAMETERS,
    "model": MODELS,
    "start": STARTS,
    "transforms": TRANSFORMS,
    "step size": STEP_SIZES,
    "sampler": SAMPLERS,
    "estimator": ESTIMATORS,
    "run": RUNS,
}
CASES = [pytest.param(one, id=f"{room}: {one.name}") for room, rows in TABLE.items() for one in rows]


def _refuse():
    raise AssertionError


@pytest.mark.parametrize("case", CASES)
def test_complaint(case):
    with pytest.raises(case.error) as caught:
        case.attempt()
    message = str(caught.value)
    assert isinstance(caught.value, SciroccoError)
    missing = [phrase for phrase in case.phrases if phrase.lower() not in message.lower()]
    assert not missing, f"{missing} not in: {message}"
    assert message.endswith((".", ")")), f"not a sentence: {message}"


@pytest.mark.parametrize("how", ["", "full"])
def test_an_error_ends_at_the_line_of_the_user(monkeypatch, how):
    """One frame of the library, not those below it, unless they are asked for."""
    monkeypatch.setenv("SCIROCCO_TRACEBACK", how)
    for attempt in (data(y=spoiled(Y, 3, np.nan)), lambda: sc.models.LinearRegression().fit(X[:1], Y[:1])):
        with pytest.raises(SciroccoError) as caught:
            attempt()
        own = [
            entry for entry in caught.traceback if "scirocco" in str(entry.path) and entry.path.parent.name != "tests"
        ]
        assert (len(own) == 1) == (how != "full")


@pytest.mark.parametrize(
    ("rows", "start", "function"),
    [
        (X[:2], X, lambda mean, x: -0.5 * jnp.sum((x - mean[:2]) ** 2)),  # rows of several numbers
        (X, X[0], squares),
        (np.zeros((2, 3, 3)), np.zeros((3, 3)), squares),  # pictures, fewer than they have lines
        (np.zeros(1), np.zeros((10, 1)), lambda weights, x: -0.5 * jnp.sum(weights**2)),  # rows that do not matter
        (sc.data.ArraySource(np.zeros(3, np.float32)), X, squares),  # says that it is meant
    ],
    ids=["tables", "vector", "pictures", "no data", "on purpose"],
)
def test_what_only_resembles_swapped_arguments_is_sampled(rows, start, function):
    assert run(model=sc.Model(function), data=rows, params=start, estimator=sc.Full(), num_samples=2).num_draws == 2


# -- what works, with a remark ----------------------------------------------------------------------------------


def scale_likelihood(params, datum):
    return -0.5 * (datum["y"] / params["scale"]) ** 2 - jnp.log(params["scale"])


REMARKS = [
    row(
        "a scale below 0",
        sample(
            model=sc.Model(scale_likelihood),
            params={"scale": np.float32(5.0)},
            sampler=sc.SGLD(5.0),
            estimator=sc.Full(),
        ),
        SciroccoWarning,
        "`scale` is -",
        "transforms={'scale': sc.transforms.positive}",
    ),
    row(
        "digits that 32 bits do not hold",
        data(y=0.1 + 1e-7 * Y.astype(float)),
        SciroccoWarning,
        *("data `y`", "near 0.1", "32 bits", "Subtract the mean", "enable_x64"),
    ),
    row(
        "bytes as features",
        data(x=(10 + X).astype(np.uint8)),
        SciroccoWarning,
        "`x` is uint8",
        "float32",
        "standardise",
    ),
    row(
        "columns of very different scales",
        lambda: run(data={"x": X * np.array([1, 1e5, 1], np.float32), "y": Y}, sampler=sc.SGLD(1e-16)),
        SciroccoWarning,
        *("columns of data `x`", "standard deviations from", "`sc.data.standardise`"),
    ),
    row(
        "integer columns of very different scales",
        lambda: run(data={"x": (X * np.array([10, 1e6, 10])).astype(np.int32), "y": Y}, sampler=sc.SGLD(1e-16)),
        SciroccoWarning,
        *("columns of data `x`", "`sc.data.standardise`"),
    ),
    row("Python int", params(bias=0), SciroccoWarning, "`bias`", "integer 0", "converted to 0.0"),
    row(
        "too little friction",
        lambda: run(sampler=sc.SGHMC(1e-2, friction=1.0), estimator=sc.Minibatch(5, sampling="with_replacement")),
        SciroccoWarning,
        *("friction of SGHMC", "inflated by about", "%", "Use friction >=", "sc.ControlVariates"),
    ),
]


@pytest.mark.parametrize("case", REMARKS, ids=lambda case: case.name)
def test_remark(case):
    """A warning, once, at the user's line; the draws are made."""
    with pytest.warns(case.error) as caught:
        result = case.attempt()
    assert result.num_draws == 5
    ours = [warning for warning in caught if issubclass(warning.category, case.error)]
    assert len(ours) == 1, [str(warning.message) for warning in ours]
    message = str(ours[0].message)
    missing = [phrase for phrase in case.phrases if phrase not in message]
    assert not missing, f"{missing} not in: {message}"
    assert ours[0].filename == __file__, "the warning must point at the user's code"


def test_a_parameter_that_may_be_negative_gets_no_remark(recwarn):
    """It starts above 0 and crosses it, and the density is finite there."""
    found = run(params={"beta": np.full(3, 0.01, np.float32), "bias": np.float32(0.01)}, sampler=sc.SGLD(1e-2))
    assert found.draws["bias"].min() < 0
    assert not [warning for warning in recwarn if issubclass(warning.category, SciroccoWarning)]


def test_the_number_of_rows_is_never_asked_for():
    """A wrong N is the classic mistake; here it is always that of the data."""
    result = run(num_samples=2)
    assert result.configuration["num_rows"] == N


@pytest.mark.filterwarnings("error::scirocco.errors.SciroccoWarning")
def test_ordinary_inputs_cause_no_remarks():
    assert run().num_draws == 5


def test_each_row_has_a_name_of_its_own():
    names = [case.id for case in CASES]
    assert len(set(names)) == len(names)
    assert all(re.search(r"\S", name) for name in names)
