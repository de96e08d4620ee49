"""Conversion of PyMC models, and of bambi's, to the arguments of `sc.sample`.

The log likelihood of each row is the log probability of the observed variables, element by element, as PyMC derives it;
the terms of the free variables are the log prior. That is correct only for a model whose rows are independent, so the
terms of single rows and of small batches are first compared, at random points, with those of PyMC's graph of all rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks
from scirocco._extras import require
from scirocco.bridges import _pymc_locals as _locals
from scirocco.bridges._common import ConvertedModel, close, said
from scirocco.bridges._pymc_forward import Forward, find_forward
from scirocco.bridges._pymc_graph import (
    GraphFunction,
    TermGraph,
    Terms,
    all_rows,
    find_leaves,
    find_transform,
    split,
    whole,
)
from scirocco.bridges._pymc_walk import PURPOSE, Variable, copy, data_of, evaluate, toposort
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.model import Model
from scirocco.types import Array, Params, Rows

_PROBE_ROWS = 8  # rows that are compared with PyMC's density
_SMALL = 1_000  # observations of another variable that every step may compute


def from_pymc(model: Any, *, max_groups: int = 1_000, seed: int = 0) -> ConvertedModel:
    """Convert a PyMC model with independent observations, or a bambi model, for `sc.sample`.

    Parameters
    ----------
    model
        A `pm.Model` with all of its data in it, as for `pm.sample`: NumPy arrays or `pm.Data`. Arrays with as many
        entries along an axis as there are observations become the rows of the data. Of a `bambi.Model`, which is built
        if necessary, the PyMC model is converted.
    max_groups
        Varying effects (`a[group]`) are parameters like others, up to this number of groups. Those of more groups, and
        variables with a value for each row, are integrated out: the result is a `sc.HierarchicalModel`, and
        `run.locals(groups)` draws them after the run.
    seed
        Seed for the points at which the model is checked.

    Returns
    -------
    ConvertedModel
        `(model, data, params)`. The names of the free variables are the names of the parameters, in PyMC's units, and
        start at PyMC's initial point; the samplers move where PyMC's transforms put them. Deterministic variables that
        do not depend on the rows are computed after the run, for `run.summary()` and `run.to_arviz()`, which has the
        dims and coords of the model, too. PyMC draws new observations for `sc.analysis.predictive_check(run)` and
        `run.predict()`.

    Raises
    ------
    InvalidValueError
        If the model cannot be converted, with the name of the variable: observations that depend on each other (time
        series, Gaussian processes), latent variables of rows or many groups that depend on each other, discrete or
        imputed ones, minibatches, potentials that sum over the rows.

    Examples
    --------
    >>> import numpy as np, pymc as pm, scirocco as sc  # doctest: +SKIP
    >>> x = np.random.default_rng(0).normal(3.0, 2.0, size=1000)
    >>> with pm.Model() as model:  # doctest: +SKIP
    ...     mean = pm.Normal("mean", 0.0, 10.0)
    ...     scale = pm.HalfNormal("scale", 2.0)
    ...     pm.Normal("x", mean, scale, observed=x)
    >>> run = sc.sample(*sc.from_pymc(model), progress=False)  # doctest: +SKIP
    >>> sorted(run.draws)  # doctest: +SKIP
    ['mean', 'scale']
    """
    pymc = require("pymc", PURPOSE)
    _checks.positive_int(max_groups, "max_groups")
    model = _pymc_model(pymc, model)
    _check_variables(model)
    values = {rv.name: rv.type(name=rv.name) for rv in model.free_RVs}
    terms, num_rows = _terms(model, values)
    graph, data = split(values, terms.rows, num_rows)
    start = {rv.name: model.rvs_to_values[rv].name for rv in model.free_RVs}
    initial = model.initial_point()
    position = {name: jnp.asarray(initial[value], float) for name, value in start.items()}
    deterministic = _deterministic(model, values)
    converted = _as_model(model, graph, terms.whole, deterministic, find_forward(model, values, terms, data, num_rows))
    params = converted.constrain(position)
    grouping = _locals.find_grouping(graph, data, params, max_groups)
    if grouping is None:
        try:
            _check_rows(graph, all_rows(values, terms.rows, num_rows), converted, data, position, seed)
            return ConvertedModel(converted, data, params)
        except InvalidValueError:
            grouping = _locals.rows_as_groups(graph, params)
            if grouping is None:
                raise
    index = None if grouping.by is None else data[grouping.by]
    return _locals.convert(model, converted, values, terms, deterministic, num_rows, grouping, index, position, seed)


def _pymc_model(pymc: Any, model: Any) -> Any:
    """The model itself, or that of a bambi model."""
    if type(model).__module__.partition(".")[0] == "bambi":
        if not getattr(model, "built", True):
            model.build()
        model = model.backend.model
    if not isinstance(model, pymc.Model):
        raise InvalidTypeError(f"`model` must be a pm.Model or a bambi.Model, got {model!r}.")
    return model


def _as_model(
    model: Any,
    graph: TermGraph,
    others: Mapping[str, Variable],
    deterministic: Mapping[str, Variable],
    forward: Forward | None,
) -> Model:
    transforms = {rv.name: find_transform(model, rv, graph.values) for rv in model.free_RVs}
    prior = whole(graph.values, others)

    def log_likelihood(params: Params, rows: Rows) -> Array:
        return sum(graph.rowwise(params, rows).values(), jnp.zeros(()))

    def log_prior(params: Params) -> Array:
        return sum((jnp.sum(term) for term in prior(params).values()), jnp.zeros(()))

    name = model.name or "pymc"
    log_likelihood.__name__, log_prior.__name__ = f"{name}.log_likelihood", f"{name}.log_prior"
    derived = {name: each for name, each in deterministic.items() if not find_leaves([each], graph.num_rows)[0]}
    return Model(
        log_likelihood,
        log_prior,
        vectorized=True,
        transforms=transforms if any(each is not None for each in transforms.values()) else None,
        derived=whole(graph.values, derived) if derived else None,
        dims=model.named_vars_to_dims,
        coords={name: list(labels) for name, labels in model.coords.items() if labels is not None},
        simulate=forward,
        observed=None if forward is None else forward.observed,
    )


def _deterministic(model: Any, values: Mapping[str, Variable]) -> dict[str, Variable]:
    found = copy(model.deterministics, _at_values(model, values))
    return dict(zip((each.name for each in model.deterministics), found, strict=True))


def _at_values(model: Any, values: Mapping[str, Variable]) -> dict[Variable, Variable]:
    """All random variables, with the variables or the data that stand for their values."""
    observed = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
    return {rv: values[rv.name] for rv in model.free_RVs} | observed


# -- which terms belong to rows ----------------------------------------------------------------------------------------


def _terms(model: Any, values: Mapping[str, Variable]) -> tuple[Terms, int]:
    """The terms of the log density and the number of rows: the largest number of observations."""
    logprob = require("pymc.logprob.basic", PURPOSE)
    at_values = _at_values(model, values)
    variables = [*model.free_RVs, *model.observed_RVs]
    found = logprob.transformed_conditional_logp(
        rvs=variables, rvs_to_values=at_values, rvs_to_transforms=dict.fromkeys(variables), jacobian=False
    )
    terms = dict(zip((rv.name for rv in variables), found, strict=True))
    whole = {rv.name: terms[rv.name] for rv in model.free_RVs}
    potentials = dict(zip((each.name for each in model.potentials), copy(model.potentials, at_values), strict=True))
    shapes = {rv.name: _shape(at_values[rv]) for rv in model.observed_RVs}
    lengths = [shape[0] for shape in shapes.values() if shape]
    if not lengths:
        lengths = [each.type.shape[0] for each in potentials.values() if each.ndim and each.type.shape[0]]
    if not lengths:
        raise InvalidValueError(
            "the PyMC model has no observed variable with an axis over the observations: there are no rows to draw "
            "batches from. Pass the data as observed=..., or give a pm.Potential with one value per observation."
        )
    num_rows = max(lengths)
    rows: dict[str, Variable] = {}
    for name, shape in shapes.items():
        into = rows if shape and shape[0] == num_rows else whole
        into[name] = _checked_term(name, terms[name], shape, num_rows)
    for name, potential in potentials.items():
        into = rows if find_leaves([potential], num_rows)[0] else whole
        into[name] = potential if into is whole else _checked_potential(name, potential)
    return Terms(rows, whole), num_rows


def _shape(value: Variable) -> tuple[int, ...]:
    array = data_of(value)
    return tuple(int(size) for size in (evaluate(value.shape) if array is None else array.shape))


def _checked_term(name: str, term: Variable, shape: tuple[int, ...], num_rows: int) -> Variable:
    if (not shape or shape[0] != num_rows) and np.prod(shape, dtype=int) > _SMALL:
        raise InvalidValueError(
            f"observed variable `{name}` has {shape[0]:,} observations, and another has {num_rows:,}: rows must have "
            "one observation of each. Arrange the data in rows of one kind, or fit the parts separately."
        )
    if shape and shape[0] == num_rows and term.ndim == 0:
        raise InvalidValueError(
            f"observed variable `{name}` has one density for all of its {num_rows:,} observations "
            "(a time series, a Gaussian process or a multivariate distribution over the rows), not one for each: "
            "minibatches require independent rows. Use pm.sample for this model."
        )
    return term


def _checked_potential(name: str, potential: Variable) -> Variable:
    if potential.ndim == 0:
        raise InvalidValueError(
            f"pm.Potential `{name}` is one number that depends on the rows. Return one value per observation, "
            "without .sum(), so that minibatches can use the terms of their rows."
        )
    return potential


# -- what cannot be sampled --------------------------------------------------------------------------------------------


def _check_variables(model: Any) -> None:
    """Raise an error for what gradient samplers or minibatches cannot use, by name."""
    if not model.free_RVs:
        raise InvalidValueError("the PyMC model has no free variable: there is nothing to sample.")
    observed = {rv.name for rv in model.observed_RVs}
    for rv in model.free_RVs:
        _check_free(rv, observed)
    for rv in model.observed_RVs:
        operations = {type(node.op).__name__ for node in toposort([rv, model.rvs_to_values[rv]])}
        if operations & {"MinibatchRandomVariable", "MinibatchOp", "MinibatchIndexRV"}:
            raise InvalidValueError(
                f"observed variable `{rv.name}` uses pm.Minibatch or total_size. scirocco draws the minibatches: pass "
                "the whole arrays, without total_size."
            )
        if "Sparse" in type(model.rvs_to_values[rv].type).__name__:
            raise InvalidValueError(f"observed variable `{rv.name}` has sparse data; pass a dense array.")


def _check_free(rv: Variable, observed: set[str]) -> None:
    name = rv.name.removesuffix("_unobserved")
    if name != rv.name and f"{name}_observed" in observed:
        raise InvalidValueError(
            f"variable `{rv.name}` holds the missing values of `{name}`, one parameter for each. Drop these rows, or "
            "impute the values before, several times, and combine the runs."
        )
    if not rv.dtype.startswith("float"):
        raise InvalidValueError(
            f"variable `{rv.name}` is discrete ({rv.owner.op}). Gradient samplers require continuous parameters: sum "
            "it out of the likelihood (e.g. pm.Mixture)."
        )


# -- consistency check -------------------------------------------------------------------------------------------------


def _check_rows(
    graph: TermGraph,
    original: tuple[GraphFunction, list[np.ndarray]],
    model: Model,
    data: Mapping[str, np.ndarray],
    position: Params,
    seed: int,
) -> None:
    """Compare the terms of a few rows, alone and together, with PyMC's graph of all rows, at three points."""
    rng = np.random.default_rng(seed)
    chosen = np.unique(rng.choice(graph.num_rows, min(_PROBE_ROWS, graph.num_rows), replace=False))
    some = {name: array[chosen] for name, array in data.items()}

    @jax.jit
    def everything(position: Params, arrays: list[Array]) -> Sequence[Array]:
        return original[0](*graph.ordered(model.constrain(position)), *arrays)

    @jax.jit
    def pieces(position: Params, rows: Rows) -> tuple[dict[str, Array], dict[str, Array]]:
        point = model.constrain(position)
        ends = (jax.tree.map(lambda leaf: leaf[:1], rows), jax.tree.map(lambda leaf: leaf[-1:], rows))
        alone = [graph.rowwise(point, end) for end in ends]
        return graph.rowwise(point, rows), jax.tree.map(lambda *each: jnp.concatenate(each), *alone)

    for spread in (0.0, 0.5, 0.5):
        shifted = {
            name: leaf + (spread * rng.standard_normal(leaf.shape)).astype(leaf.dtype)
            for name, leaf in position.items()
        }
        try:
            full = dict(zip(graph.rows, everything(shifted, original[1]), strict=True))
            together, alone = pieces(shifted, some)
        except Exception as error:
            raise _failure(graph, error) from error
        for name in graph.rows:
            terms = (np.asarray(each[name], np.float64) for each in (full, together, alone))
            _judge(graph, name, chosen, *terms)


def _judge(
    graph: TermGraph, name: str, chosen: np.ndarray, full: np.ndarray, together: np.ndarray, alone: np.ndarray
) -> None:
    """Check that the terms of rows are the same in every batch."""
    if full.shape[:1] != (graph.num_rows,):
        raise InvalidValueError(
            f"`{name}` has a log density of shape {full.shape}, not one value for each of the {graph.num_rows:,} "
            "observations along the first axis. Put the observations along the first axis of all arrays."
        )
    expected = full.reshape(graph.num_rows, -1)[chosen].sum(axis=1)
    ends = expected[[0, -1]]
    for batch, found, should in ((len(chosen), together, expected), (1, alone, ends)):
        if found.shape != should.shape or not close(found, should, np.abs(should)):
            raise _failure(graph, None, name, batch)


def _failure(graph: TermGraph, error: Exception | None, name: str | None = None, batch: int = 0) -> InvalidValueError:
    """The error for a model whose rows cannot be separated."""
    if error is not None:
        return InvalidValueError(
            f"the log likelihood of {_listed(graph.rows)} cannot be computed for a batch of rows: {said(error)} Its "
            "observations must be independent, with the observations along the first axis of all arrays."
        )
    return InvalidValueError(
        f"the observations of `{name}` depend on each other: in a batch of {batch} they have other log likelihoods "
        f"than among all {graph.num_rows:,}. Minibatches require independent rows; compute means, sums and scales of "
        "the data before, with NumPy, and use pm.sample for time series and Gaussian processes."
    )


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(f"`{name}`" for name in names)
