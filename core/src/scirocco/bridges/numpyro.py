"""Conversion of NumPyro models to the arguments of `sc.sample`.

The user's function is run on the rows of a batch with given latent values. In its trace, the log
probabilities of the observed sites in the plate over the data, row by row, are the log likelihood; those of the latent
sites are the log prior. Latent sites inside that plate, with a value for every row, are integrated out, as the local
variables of a hierarchical model whose groups are the rows. That is correct only for a model whose rows are
independent, so the pieces are first compared, at random points, with the joint density that NumPyro itself computes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco._extras import require
from scirocco._tree import name_of
from scirocco.bridges._common import ConvertedModel, close
from scirocco.bridges._numpyro_sites import PURPOSE, Reader, failure, find_derived, find_latents
from scirocco.data import ArraySource, as_source
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.model import HierarchicalModel, Model
from scirocco.transforms import Transform
from scirocco.types import Array, Data, Key, Params, Rows

_PROBE_ROWS = 8  # rows that are compared with NumPyro's density
_ROWS = "rows"


def from_numpyro(
    model: Callable[..., Any],
    *model_args: Any,
    data: Data | None = None,
    plate: str | None = None,
    init_strategy: Callable[..., Any] | None = None,
    seed: int = 0,
    **model_kwargs: Any,
) -> ConvertedModel:
    """Convert a NumPyro model, whose likelihood is in a plate over the data, for `sc.sample`.

    Parameters
    ----------
    model
        The NumPyro model, a function. Its plate over the data must take its size from its data argument, as in
        `numpyro.plate("data", X.shape[0])`: it will be called with minibatches. A `subsample_size` is ignored.
    data
        Required: the arrays with one row per datum. A dict is passed to the model by keyword, a tuple or list by
        position (after `model_args`), anything else as one argument.
    *model_args, **model_kwargs
        All other arguments of the model.
    plate
        The name of the plate over the data. By default all plates whose size is the number of rows.
    init_strategy
        Starting point: one of `numpyro.infer.init_to_*`; by default near the origin of the real line for every
        parameter (so near 1 for positive ones), `init_to_uniform(radius=0.1)`.
    seed
        Seed for the starting point and for the points at which the model is checked.

    Returns
    -------
    ConvertedModel
        `(model, data, params)`: the names of the latent sites are the names of the parameters, in the model's own
        units; constrained ones are transformed for the samplers. Deterministic sites that do not depend on the rows,
        such as those that `numpyro.handlers.reparam` replaced, are computed after the run: `run.derived()`. For
        `sc.analysis.predictive_check(run)` and `run.predict()` the model itself draws new observations. With latent
        sites in the plate over the data, the model is a `sc.HierarchicalModel` whose groups are the rows, and `data`
        has their numbers as a column with the name of the plate. `run.locals([3, 7])` draws the sites of two rows.

    Raises
    ------
    InvalidValueError
        If the model cannot be converted, with the name of the site or plate: more than 4 numbers in latent variables
        for each row, discrete ones, supports without a transform, a plate of fixed size, a likelihood outside the
        plate, rows or a prior that depend on the other rows.

    Examples
    --------
    >>> import numpy as np, numpyro, numpyro.distributions as dist, scirocco as sc
    >>> def model(x):
    ...     mean = numpyro.sample("mean", dist.Normal(0.0, 10.0))
    ...     scale = numpyro.sample("scale", dist.HalfNormal(2.0))
    ...     with numpyro.plate("data", len(x)):
    ...         numpyro.sample("x", dist.Normal(mean, scale), obs=x)
    >>> x = np.random.default_rng(0).normal(3.0, 2.0, size=1000).astype(np.float32)
    >>> run = sc.sample(*sc.from_numpyro(model, data={"x": x}), num_samples=100, progress=False)
    >>> sorted(run.draws)
    ['mean', 'scale']
    """
    require("numpyro", PURPOSE)
    if not callable(model):
        raise InvalidTypeError(f"`model` must be a NumPyro model (a function), got {model!r}.")
    if data is None:
        raise InvalidTypeError(_without_data(model, model_args, model_kwargs))
    source: Any = as_source(data)
    reader = Reader(model, model_args, model_kwargs, seed)
    params, supports = find_latents(reader, source, plate, init_strategy)
    finished = _as_model(reader, source, params, supports)
    _check(reader, finished, source, params, seed)
    return ConvertedModel(finished, _with_numbers(reader, source), params)


def _without_data(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """What to write for a call as of the model itself."""
    names = [*list(inspect.signature(model).parameters)[: len(args)], *kwargs] or ["x"]
    rows = ", ".join(f"{name!r}: {name}" for name in names)
    return (
        "sc.from_numpyro needs `data`, the arrays of the model with one row per datum, which are read in batches: "
        f"sc.from_numpyro(model, data={{{rows}}}). Other arguments of the model are passed as they are."
    )


def _as_model(reader: Reader, source: ArraySource, params: Params, supports: dict[str, Transform | None]) -> Model:
    """The log likelihood of each row of a batch, and the prior as it is when the model is run on one row."""
    one_row = source.read(0, 1)

    def log_likelihood(params: Params, rows: Rows) -> Array:
        return reader.rowwise(params, rows)

    def log_prior(params: Params) -> Array:
        return reader.outside(params, one_row)

    name = name_of(reader.model, type(reader.model).__name__)
    log_likelihood.__name__, log_prior.__name__ = f"{name}.log_likelihood", f"{name}.log_prior"
    constrained = any(transform is not None for transform in supports.values())
    transforms, derived = supports if constrained else None, find_derived(reader, source, params)
    simulate, observed = _outcomes(reader, source, params)
    if not reader.locals:
        return Model(
            log_likelihood,
            log_prior,
            vectorized=True,
            transforms=transforms,
            derived=derived,
            simulate=simulate,
            observed=observed,
        )

    def of_one(params: Params, local: Params, row: Rows) -> Array:
        """Of the row and its latent sites, whose prior may depend on the row."""
        row = row if isinstance(source.arrays, dict) else row[_ROWS]
        local, rows = jax.tree.map(lambda leaf: leaf[None], (local, row))
        return reader.rowwise(reader.with_locals(params, local), rows)[0]

    of_one.__name__ = log_likelihood.__name__
    return HierarchicalModel(
        of_one,
        lambda local, params: jnp.zeros(()),
        log_prior,
        groups=_numbers_of(reader),
        local={name: each.start for name, each in reader.locals.items()},
        transforms=transforms,
        local_transforms={name: each.transform for name, each in reader.locals.items()},
        derived=derived,
        simulate=simulate,
        observed=observed,
    )


def _outcomes(
    reader: Reader, source: ArraySource, params: Params
) -> tuple[Callable[..., Any] | None, Callable[..., Any] | None]:
    """How new values of the observed sites are drawn, and those of rows; nothing if one of them is a plain factor."""

    def own(rows: Rows) -> Rows:
        if not reader.locals:
            return rows
        if not isinstance(source.arrays, dict):
            return rows[_ROWS]
        return {name: each for name, each in rows.items() if name != _numbers_of(reader)}

    def simulate(params: Params, row: Rows, key: Key) -> dict[str, Array]:
        return reader.simulate(params, own(row), key)

    def observed(rows: Rows) -> dict[str, Array]:
        return reader.observed(own(rows))

    first = jax.tree.map(lambda leaf: leaf[0], source.read(0, 1))
    shapes = jax.eval_shape(reader.simulate, params, first, jax.eval_shape(jax.random.key, 0))
    is_factor = any(0 in each.shape for each in shapes.values())
    return (None, None) if is_factor or not shapes else (simulate, observed)


def _numbers_of(reader: Reader) -> str:
    """The name of the column with the numbers of the rows."""
    return min(reader.plates)


def _with_numbers(reader: Reader, source: ArraySource) -> Data:
    """The data; with latent sites for each row, also the numbers of the rows."""
    if not reader.locals:
        return source.arrays
    rows = source.arrays if isinstance(source.arrays, dict) else {_ROWS: source.arrays}
    name = _numbers_of(reader)
    if name in rows:
        raise InvalidValueError(
            f"plate `{name}` has the name of a part of `data`: rename one of them. The numbers of the rows get the "
            "name of the plate, because the model has latent variables for each row."
        )
    return {**rows, name: np.arange(source.num_rows)}


# -- consistency check -------------------------------------------------------------------------------------


class _Pieces(NamedTuple):
    joint: Any
    """NumPyro's log density of everything."""
    outside: Any
    """The terms outside the plate over the data."""
    prior: Any
    """The same when the model is run on one row: the prior that is sampled."""
    together: Any
    """Each row's log likelihood when run with the others, ..."""
    alone: Any
    """... and alone."""


def _check(reader: Reader, model: Model, source: ArraySource, params: Params, seed: int) -> None:
    """Compare with NumPyro's joint density on the first and the last rows, at the start and at two points near it."""

    @jax.jit
    def evaluate(shift: Params, local: Params, rows: Rows) -> _Pieces:
        point = model.constrain(jax.tree.map(jnp.add, model.unconstrain(params), shift))
        values = reader.with_locals(point, local)

        def of_one(both: tuple[Params, Rows]) -> Array:
            own, row = jax.tree.map(lambda leaf: leaf[None], both)
            return reader.rowwise(reader.with_locals(point, own), row)[0]

        alone = jax.vmap(of_one)((local, rows))
        joint, outside = reader.joint(values, rows), reader.outside(values, rows)
        prior = reader.outside(point, source.read(0, 1))
        return _Pieces(joint, outside, prior, reader.rowwise(values, rows), alone)

    size = min(source.num_rows, _PROBE_ROWS)
    row_sets = [source.read(0, size), source.read(source.num_rows - size, source.num_rows)]
    rng, position = np.random.default_rng(seed), jax.eval_shape(model.unconstrain, params)
    for spread in (0.0, 0.5, 0.5):
        shift = {name: (spread * rng.standard_normal(leaf.shape)).astype(leaf.dtype) for name, leaf in position.items()}
        local = {name: each.spread(size, spread, rng) for name, each in reader.locals.items()}
        for rows in row_sets:
            try:
                pieces = evaluate(shift, local, rows)
            except Exception as error:
                raise failure(f"compiled for {size} rows", error) from error
            found = jax.tree.map(lambda piece: np.asarray(piece, np.float64), pieces)
            if spread == 0.0 and np.isnan(found.together).any():  # NaN, together and alone, would look like agreement
                raise InvalidValueError(
                    f"the log likelihood of {int(np.isnan(found.together).sum())} of the first or last {size} rows of "
                    "the NumPyro model is NaN at the start. Does it divide by the deviation of its rows? Compute that "
                    "before, and pass it as a further argument."
                )
            _judge(found)


def _judge(pieces: _Pieces) -> None:
    """Check that rows are independent, the prior does not depend on rows, and terms sum to the joint density."""
    joint, outside, prior, together, alone = pieces
    if not close(together, alone, np.abs(alone)):
        apart = np.abs(together - alone)  # NaN for a row that alone is divided by its own deviation, 0
        row = int(np.argmax(np.where(np.isnan(apart), np.inf, apart)))
        raise InvalidValueError(
            f"the rows of the NumPyro model depend on each other: one has log likelihood {together[row]:.6g} together "
            f"with {len(together) - 1} others and {alone[row]:.6g} by itself. Compute means, sums and scalings of the "
            "data before, and pass them as further arguments."
        )
    if not close(outside, prior, np.abs(prior)):
        raise InvalidValueError(
            f"the terms outside the plate depend on the data: they are {outside:.6g} with {len(together)} rows and "
            f"{prior:.6g} with another one. Likelihood terms (obs=..., numpyro.factor) belong inside the plate, and "
            "priors must not be computed from the rows."
        )
    total = outside + together.sum()
    if not close(joint, total, np.abs(together).sum() + np.abs(outside)):
        raise InvalidValueError(
            f"prior and rows of the NumPyro model add up to {total:.6g}, but its joint density is {joint:.6g}: some "
            "term is neither a prior nor the likelihood of one row."
        )
