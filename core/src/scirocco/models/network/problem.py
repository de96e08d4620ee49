r"""The posterior of a network's weights, from inputs of any shape and labels.

.. math:: y_i ∼ \text{Categorical}(\text{softmax}(\text{apply}(w, x_i))), \quad w_l | λ_l ∼ N(0, I/λ_l), \quad
    λ_l ∼ \text{Gamma}(α, β)

with one precision λ_l for each array l of weights (thesis section 4.6.3, α = β = 1). The chain samples only the
weights: given d weights w_l, their precision is Gamma(α + d/2, β + |w_l|²/2), so that it can be integrated out,

.. math:: p(w_l) ∝ (β + |w_l|²/2)^{-(α + d/2)},

and drawn from that distribution when requested. The pairs (w, λ) are draws from the joint posterior. If it were
sampled, log λ would have the curvature d/2, 39,200 for the first layer of the thesis, and limit the step size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks, _tree
from scirocco.data.arrays import check_finite
from scirocco.data.values import Frame, Sparse, as_numpy
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.model import Model
from scirocco.models import inputs
from scirocco.models.inputs import ColumnLike, TableLike, gamma_law
from scirocco.models.network.networks import Apply
from scirocco.types import Array, Params, PyTree


class LabelledRows(NamedTuple):
    """Inputs and class numbers."""

    x: Any
    """(n, ...), floating-point, or bytes that represent 0 ... 1."""
    y: Any


@dataclass(frozen=True)
class Probabilities:
    """Class probabilities of the network: `(params, x)` to (n, classes)."""

    apply: Apply

    def logits(self, params: Params, x: Array) -> Array:
        """Logits; bytes are converted here, because they take a quarter of the memory on the device."""
        return self.apply(params, jnp.asarray(x, jnp.float32) / 255 if x.dtype == jnp.uint8 else x)

    def __call__(self, params: Params, x: Array) -> Array:
        """Softmax of the logits."""
        return jax.nn.softmax(self.logits(params, x))


@dataclass(frozen=True)
class LogLikelihood:
    """log p(y_i | w, x_i) of several rows at once."""

    probabilities: Probabilities

    def __call__(self, params: Params, rows: LabelledRows) -> Array:
        """Log likelihood of each row, (n,)."""
        logits = self.probabilities.logits(params, rows.x)
        chosen = jnp.take_along_axis(logits, rows.y[:, None], axis=1)[:, 0]
        return chosen - jax.nn.logsumexp(logits, axis=1)


@dataclass(frozen=True)
class WeightPrior:
    """Normal prior of weights with Gamma(shape, rate) precisions, which are integrated out."""

    shape: float = 1.0
    rate: float = 1.0

    def __call__(self, params: Params) -> Array:
        """log p(w), without constants."""
        laws = [self.precision_law(leaf) for leaf in jax.tree.leaves(params)]
        return sum((-shape * jnp.log(rate) for shape, rate in laws[1:]), -laws[0][0] * jnp.log(laws[0][1]))

    def precision_law(self, weights: Array) -> tuple[float, Array]:
        """Shape and rate of the Gamma distribution of λ given its weights: α + d/2 and β + |w|²/2."""
        return self.shape + weights.size / 2, self.rate + 0.5 * (weights * weights).sum()

    def draw_precisions(self, params: Params, rng: np.random.Generator) -> PyTree:
        """Draw λ of each array of weights, given the weights (on the host)."""

        def one(weights: Array) -> float:
            shape, rate = self.precision_law(weights)
            return float(rng.gamma(shape) / rate)

        return jax.tree.map(one, params)


_PROBE = 3
"""Number of rows to test a user's function: few, and not a likely width of a layer."""
_LARGE = 50.0  # root mean square of inputs: pixels, ages and incomes are above, standardised columns below


class Form(NamedTuple):
    """Properties that inputs must have in common with those of the fit."""

    row: tuple[int, ...]
    """The shape of a row."""
    names: tuple[str, ...] | None
    """Names of the columns, if the fit had a table with names."""
    pixels: bool
    """Whether inputs are bytes, which represent 0 ... 1."""


class NetworkProblem(NamedTuple):
    """The data and model of a fit."""

    probabilities: Probabilities
    params: Params
    """Initial weights of the chains."""
    rows: LabelledRows
    form: Form
    classes: np.ndarray
    prior: WeightPrior

    @property
    def model(self) -> Model:
        """The posterior of the weights."""
        return Model(LogLikelihood(self.probabilities), self.prior, vectorized=True)


def check_network(apply: Apply, params: Params | None) -> None:
    """Raise an error for what is no pure function with initial weights."""
    if any(kind.__module__.partition(".")[0] == "torch" for kind in type(apply).__mro__):
        raise InvalidTypeError(
            "`apply` of BNN is a PyTorch module, which JAX cannot differentiate: write the network as a function "
            "(params, x) -> logits in jax.numpy, or as a module of Flax or Equinox (BNN.from_flax, BNN.from_equinox)."
        )
    if not callable(apply) or params is None:
        raise InvalidTypeError(
            "`apply` of BNN must be a function (params, x) -> logits, passed together with initial `params`; "
            f"got apply={apply!r} and params of type {type(params).__name__}."
        )


def gamma_prior(precision: tuple[float, float]) -> WeightPrior:
    """The prior from a pair (shape, rate)."""
    return WeightPrior(*gamma_law(precision, "precision", "BNN"))


# -- inputs and labels, checked ----------------------------------------------------------------------------------------


def checked_inputs(X: TableLike, like: Form | None = None) -> tuple[np.ndarray, Form]:
    """Check inputs (n, ...): finite floating-point numbers, or bytes that represent 0 ... 1 (with a warning).

    Bytes that are all zeros and ones are not pixels but numbers, e.g. one-hot categories. Also returns their form;
    `like` is the form of the fit.
    """
    pixels = _is_pixels(X, like)
    array, names = (as_numpy(X, "X of BNN"), None) if pixels else _numbers_of(X, like)
    if array.dtype.kind not in "fiub":
        raise InvalidTypeError(f"X of BNN must be numbers, got the type {array.dtype}.")
    if array.ndim < 2 or not len(array):
        raise InvalidValueError(
            f"X of BNN must have at least one row and the shape (rows, ...), got shape {array.shape}."
        )
    form = Form(array.shape[1:], names, pixels)
    if like is not None:
        _refuse_other_form(array, form, like)
    elif pixels:
        _checks.warn("BNN divides the bytes (uint8) of X by 255: inputs are between 0 and 1.")
    if pixels:
        return array, form
    array = array.astype(inputs.float_type(array.dtype), copy=False)
    check_finite(array, "X")
    if like is None:
        _remark_scale(array)
    return array, form


def _is_pixels(X: TableLike, like: Form | None) -> bool:
    if _tree.dtype_of(X) != np.uint8 or isinstance(X, Sparse):
        return False
    return (like is not None and like.pixels) or bool(np.max(as_numpy(X, "X of BNN"), initial=0) > 1)


def _numbers_of(X: TableLike, like: Form | None) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Inputs that are not pixels, and the names of their columns."""
    if not _is_table(X):
        return as_numpy(X, "X of BNN"), None
    columns = None if like is None or len(like.row) != 1 else (like.row[0], like.names)
    return inputs.features(X, "BNN", constant="keep", like=columns)[:2]


def _is_table(X: TableLike) -> bool:
    """Whether X is a table (data frame, sparse, list), not an array of several axes."""
    return isinstance(X, (Frame, Sparse)) or np.ndim(X) == 2


def _remark_scale(array: np.ndarray) -> None:
    """Warn about large inputs (pixels of 0 ... 255, incomes in dollars): the default step size would be too large."""
    size = float(np.sqrt(np.mean(np.square(array[:: max(1, len(array) // 1000)], dtype=np.float64))))
    if size > _LARGE:
        _checks.warn(
            f"the inputs of BNN are large (root mean square {size:.3g}): scale them to about 1, e.g. divide pixels by "
            "255 or use `sc.data.standardise`."
        )


def _refuse_other_form(x: np.ndarray, form: Form, like: Form) -> None:
    """Raise an error if the form differs from the fit: bytes are divided by 255, other numbers are not."""
    if form.row != like.row:
        raise InvalidValueError(
            f"a row of X has the shape {form.row}, but this BNN was fitted to rows of shape {like.row}."
        )
    if form.pixels != like.pixels:
        fitted = "bytes" if like.pixels else "other numbers"
        raise InvalidTypeError(
            f"these inputs are {x.dtype}, but this BNN was fitted to {fitted}: bytes (uint8) above 1 are "
            "divided by 255, other numbers are not. Use the same form for both."
        )


def num_classes_of(apply: Apply, params: Params, x: np.ndarray) -> int:
    """Number of classes of a user's function; an error if it does not return a row of logits for each input."""
    probe = jax.ShapeDtypeStruct((_PROBE, *x.shape[1:]), np.float32 if x.dtype == np.uint8 else x.dtype)
    try:
        found = jax.eval_shape(apply, params, probe)
    except Exception as error:
        raise InvalidTypeError(
            f"`apply` of BNN failed for params and an array of {_PROBE} inputs of shape {probe.shape}: {error}"
        ) from error
    shape = found.shape if _tree.is_array(found) else None
    if shape is None or len(shape) != 2 or shape[0] != _PROBE or shape[1] < 2:
        got = f"shape {shape}" if shape is not None else f"{type(found).__name__}"
        raise InvalidValueError(
            "`apply` of BNN must return logits of the shape (rows, classes), at least two classes: for "
            f"{_PROBE} inputs of shape {probe.shape[1:]} it returned {got}."
        )
    return int(shape[1])


def checked_labels(
    y: ColumnLike, num_rows: int, classes: Sequence[object] | None, num_classes: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Codes 0, 1, ... and the classes; `num_classes` (of a user's function) must be equal to their number."""
    codes, found = inputs.labels(y, classes, num_rows=num_rows, who="BNN")
    if num_classes is None:
        return codes, found
    if classes is None and found.dtype.kind in "iu":
        # labels are indices of logits, and some classes may have no row
        return _numbers(found[codes], num_classes), np.arange(num_classes)
    if len(found) != num_classes:
        raise InvalidValueError(
            f"`apply` has logits for {num_classes} classes, but there are {len(found)} in y or declared: "
            "pass `classes`, one per logit."
        )
    return codes, found


def _numbers(values: np.ndarray, num_classes: int) -> np.ndarray:
    wrong = (values < 0) | (values >= num_classes)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InvalidValueError(
            f"the label {values[row]} in row {row} of y is not one of the {num_classes} classes of `apply`, "
            f"0 ... {num_classes - 1}. Pass `classes` if the labels are different."
        )
    return values.astype(np.int32)
