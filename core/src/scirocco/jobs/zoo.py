"""Regressions by name, for rows {x, y}: densities of `models.regression`, starting points, example configuration files.

All coefficients are N(0, scale²), the intercept N(0, (10 scale)²). For more (other priors, standardised columns, labels
that are words, predictions) see `sc.models`.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import transforms
from scirocco._checks import did_you_mean, positive, positive_int
from scirocco.data import open as open_folder
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.model import Model
from scirocco.model.families import FAMILIES, Family
from scirocco.models.regression import density
from scirocco.models.regression.density import Likelihood, NormalPrior
from scirocco.types import Array, Data, Params, Rows

_LOOKED_AT = 100_000  # first rows, of which classes are counted and checked


class NamedModel(NamedTuple):
    """A model and its starting point."""

    model: Model
    params: dict[str, Array]


class RowFacts(NamedTuple):
    """Facts about the rows."""

    num_columns: int
    y: np.ndarray
    """The `y` of the first rows."""


def linear(table: RowFacts, scale: float = 1.0, intercept: bool = True, noise_scale: float = 1.0) -> NamedModel:
    """y ~ N(xᵀβ + b, σ²), σ half-normal with scale `noise_scale`."""
    positive(noise_scale, "noise_scale", "linear")
    params = _start((table.num_columns,), intercept) | {"noise": jnp.asarray(float(noise_scale))}
    kinds = dict.fromkeys(params, None) | {"noise": transforms.positive}
    positive(scale, "scale", "the model")
    prior = NormalPrior(float(scale), 10.0 * scale, float(noise_scale), noise_floor=0.0)
    return NamedModel(Model(density.linear, prior, vectorized=True, transforms=kinds), params)


def softmax(table: RowFacts, num_classes: int | None = None, scale: float = 1.0, intercept: bool = True) -> NamedModel:
    """y in {0, ..., K-1}, probabilities ∝ exp(xᵀβ_k + b_k)."""
    _whole(table.y, "softmax", num_classes)
    number = int(table.y.max()) + 1 if num_classes is None else positive_int(num_classes, "num_classes")
    return NamedModel(_model(Likelihood("softmax"), scale), _start((number, table.num_columns), intercept))


_OWN_NAMES = {"bernoulli": "logistic", "normal": "linear"}
"""Names of models that differ from those of their families."""
_WITH_OPTIONS: dict[str, Callable[..., NamedModel]] = {"linear": linear, "softmax": softmax}
"""Models with options of their own."""


def families() -> dict[str, Family]:
    """The families of the models, by the names of the models."""
    listed = {name: family for name, family in FAMILIES.items() if not family.has_trials}
    return {_OWN_NAMES.get(name, name): family for name, family in listed.items()}


def of_name(name: str) -> Callable[..., NamedModel]:
    """The function that makes the model from facts about the rows, and options."""
    return _WITH_OPTIONS.get(name) or functools.partial(_of_family, families()[name])


def make(name: str, options: dict[str, Any], data: Data) -> NamedModel:
    """The model of a name for these rows."""
    return of_name(name)(_table(name, data), **options)


def options_of(name: str) -> list[str]:
    """The options of a built-in model."""
    return list(inspect.signature(of_name(name)).parameters)[1:]


def _table(name: str, data: Data) -> RowFacts:
    if isinstance(data, (str, os.PathLike)):
        source = open_folder(data)
        first = source.read(0, min(_LOOKED_AT, source.num_rows))
    else:  # arrays, which the run will check
        first = jax.tree.map(lambda leaf: leaf[:_LOOKED_AT] if np.ndim(leaf) else leaf, data)
    if not isinstance(first, dict) or {"x", "y"} - set(first):
        held = ", ".join(sorted(first)) if isinstance(first, dict) else "one array without a name"
        raise InvalidValueError(
            f'`model = "{name}"` needs data with the arrays `x` (rows, columns) and `y`; these hold {held}. '
            "Make them with: scirocco data convert FILE FOLDER --array x=COLUMNS --array y=COLUMN"
        )
    x, y = np.asarray(first["x"]), np.asarray(first["y"])
    if x.ndim != 2 or y.ndim != 1:
        raise InvalidValueError(
            f'`model = "{name}"` needs `x` of shape (rows, columns) and `y` of shape (rows,); got {x.shape} and '
            f"{y.shape}."
        )
    if y.dtype.kind not in "biuf":
        raise InvalidValueError(
            f'`model = "{name}"` needs numbers in `y`; it holds values of type {y.dtype}. Number the classes 0, 1, ...'
        )
    if not len(y):
        raise InvalidValueError(f'`model = "{name}"`: the data have no rows.')
    return RowFacts(x.shape[1], y)


def column_names(data: Data) -> list[str]:
    """The names of the columns of `x` in a data folder, if it has them."""
    if not isinstance(data, (str, os.PathLike)):
        return []
    return list(open_folder(data).header.arrays["x"].columns)


def _whole(y: np.ndarray, name: str, classes: int | None) -> None:
    wrong = np.flatnonzero((y < 0) | (y != np.floor(y)) | (y >= (np.inf if classes is None else classes)))
    if wrong.size:
        wanted = "whole numbers >= 0" if classes is None else f"classes from 0 to {classes - 1}"
        raise InvalidValueError(f'`model = "{name}"` needs {wanted} in `y`; row {wrong[0]} holds {y[wrong[0]]:g}.')


def _start(shape: tuple[int, ...], intercept: bool) -> dict[str, Array]:
    if not isinstance(intercept, bool):
        raise InvalidTypeError(f"`intercept` must be true or false, got {intercept!r}.")
    start = {"coef": jnp.zeros(shape)}
    return start | {"intercept": jnp.zeros(shape[:-1])} if intercept else start


def _of_family(family: Family, table: RowFacts, scale: float = 1.0, intercept: bool = True) -> NamedModel:
    """Its parameters have the priors of the family."""
    family.check(table.y, "y")
    params = _start((table.num_columns,), intercept)
    more = {key: jnp.asarray(value) for key, value in family.start.items()}
    kinds = dict.fromkeys(params, None) | dict.fromkeys(more, transforms.positive) if more else None
    return NamedModel(_model(Likelihood(family.name), scale, kinds), params | more)


def _model(likelihood: Callable[[Params, Rows], Array], scale: float, kinds: dict[str, Any] | None = None) -> Model:
    positive(scale, "scale", "the model")
    return Model(likelihood, NormalPrior(float(scale), 10.0 * scale), vectorized=True, transforms=kinds)


# -- `scirocco sample --example logistic > job.toml` -------------------------------------------------------------------

_NAMED = """\
# {title}
# The rows: scirocco data convert table.csv rows --array x=A,B,C --array y=D
# The draws: scirocco sample THIS_FILE. Paths are relative to this file.

model = "{name}"
# model = {{name = "{name}", scale = 2.5, intercept = false{more}}}
data = "rows"              # a data folder, or an .npz file with x and y
store = "run"              # the folder for the draws
"""
_OWN = """\
# Your own model. Next to this file, in regression.py:
#
#   import jax.numpy as jnp
#   import scirocco as sc
#
#   def log_likelihood(beta, row):                  # of ONE row
#       logit = row["x"] @ beta
#       return row["y"] * logit - jnp.logaddexp(0.0, logit)
#
#   model = sc.Model(log_likelihood, lambda beta: -0.5 * jnp.sum(beta**2))
#   start = jnp.zeros(2)
#
# The draws: scirocco sample THIS_FILE. Paths are relative to this file.

model = "regression:model"    # module:object, next to this file or installed
params = "regression:start"   # where to start; or numbers: params = [0.0, 0.0]
data = "rows"                 # a data folder, or an .npz or .npy file
store = "run"                 # the folder for the draws
"""
_REST = """
[sampler]                  # any sampler of the library; its arguments are keys
name = "SGLD"
# step_size = 1e-5         # default: chosen from the curvature and the noise

[estimator]                # any estimator of the library
name = "ControlVariates"
batch_size = 100           # rows per step

[run]                      # any other argument of sc.sample
num_samples = 2_000        # draws per chain
num_burnin = 500
num_chains = 2
thin = 5                   # steps from one draw to the next
seed = 0
"""
_MORE_OPTIONS = {"linear": ", noise_scale = 1.0", "softmax": ", num_classes = 3"}
"""Options that the examples of some models show."""


def examples() -> tuple[str, ...]:
    """Names that `example` knows."""
    return (*families(), "own")


def example(name: str) -> str:
    """A configuration file with every part explained, which works as soon as its data exist."""
    if name not in examples():
        hint = did_you_mean(name, examples())
        raise InvalidValueError(f"there is no example `{name}`: they are {', '.join(examples())}.{hint}")
    if name == "own":
        return _OWN + _REST
    title, more = families()[name].title, _MORE_OPTIONS.get(name, "")
    return _NAMED.format(title=title, name=name, more=more) + _REST
