"""From the user's arguments to the inputs of the loop: checks of what goes together, and the composition."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks, _tree
from scirocco._expansion import Expansion
from scirocco._programs import setup_program
from scirocco.data import ArraySource, Devices, Resident, Streamed, Table, as_source, spread_over, to_device
from scirocco.data.arrays import RowSource
from scirocco.data.values import Frame, as_numpy
from scirocco.errors import BadStartError, InvalidTypeError, InvalidValueError
from scirocco.estimators import Estimator, Referenced
from scirocco.estimators.newton import vector
from scirocco.model import Model, Posterior
from scirocco.model.checks import look_swapped, only_swapped
from scirocco.model.density import NO_ROW
from scirocco.run import setup
from scirocco.run.loop import Parts, Start
from scirocco.run.schemes import Scheme, scheme_of
from scirocco.samplers import Sampler
from scirocco.samplers.base import has_one_scale
from scirocco.types import Array, Data, Params, PyTree


class Problem(NamedTuple):
    """Model, data and method, composed and arranged, before any parameter is known."""

    model: Posterior
    source: RowSource
    parts: Parts
    """Without rows for streamed data: each segment brings its own."""
    table: Table


class Ready(NamedTuple):
    """The results of the set-up; they can be used in other processes."""

    sampler: Sampler
    """With all automatic choices filled in."""
    estimator: Estimator
    """With all automatic choices filled in."""
    start: Start
    report: dict[str, Any]
    thin: int | None = None
    """Steps after which the sampler has forgotten where it was, where that can be foreseen."""
    resumed: bool = False
    """Whether `start` only has the right shapes, because the chains' states come from a store."""


class _NoRows(ArraySource):
    """The data of a model without rows: one row, which it does not read."""


def compose(
    model: Posterior, data: Data, sampler: Sampler, estimator: Estimator, seed: int, devices: Devices | None = None
) -> Problem:
    """Check that the parts fit together, and arrange the data on the device or devices."""
    setup.check_kind(model, Posterior, "model", "sc.Model(log_likelihood, log_prior)")
    setup.check_kind(sampler, Sampler, "sampler", "sc.SGLD(step_size=1e-5)")
    setup.check_kind(estimator, Estimator, "estimator", "sc.Minibatch(batch_size=500)")
    source, scheme = source_of(model, data), scheme_of(sampler)
    model = scheme.adapt(model, sampler)
    setup.check_value(model, sampler)
    spread = devices is not None and bool(devices.row_axes)
    _checks.note_run()
    if source.wild_scales and has_one_scale(sampler):
        _checks.warn(source.wild_scales)
    resident = isinstance(source, ArraySource)
    scheme.check(model, estimator, not resident, spread, source.num_rows)
    setup.check_independence(sampler, estimator, source.num_rows if resident else 0)
    setup.check_auxiliary(sampler, estimator, spread)
    setup.check_rows(model, estimator, spread)
    setup.check_trajectory(model, sampler, estimator, resident and not spread)
    setup.check_correction(model, sampler, estimator, resident and not spread)
    setup.check_expansion(model, sampler, estimator, resident and not spread)
    automatic = estimator.traits.sampling == "auto"
    estimator = with_reference(sampler, estimator)
    if devices is not None and spread:
        return _spread(model, source, sampler, estimator, scheme, seed, devices)
    if devices is not None and not resident:
        raise InvalidValueError(
            "chains on separate devices require the data in memory: load them first, or use a mesh with an axis for "
            "rows, whose devices read parts of the folder."
        )
    batching = scheme.batching(sampler, estimator, source.num_rows)
    if isinstance(source, ArraySource):
        arranged = jax.tree.map(to_device, batching.arrange(source.arrays, seed))
        parts = Parts(sampler, estimator, batching, arranged, scheme)
        return Problem(model, source, parts, Resident(arranged, batching))
    table = Streamed(source, batching, automatic, estimator.traits.needs_index)
    return Problem(model, source, Parts(sampler, estimator, table.batching, None, scheme), table)


def source_of(model: Any, data: Data) -> RowSource:
    """The data as a source of what the model's data are: rows, groups of rows, or none."""
    if isinstance(model, Posterior) and not isinstance(data, _NoRows):
        if not model.facts.has_rows and data is not None:
            raise InvalidTypeError(
                f"a sc.Model(log_density=...) has no rows: its data are None, got a {type(data).__name__}. Call "
                "sc.sample(model, None, params)."
            )
        if model.facts.has_rows and data is None:
            raise InvalidTypeError(
                "`data` is None, but this model is a sum over the rows of its data. For a posterior that is not, use "
                "sc.Model(log_density=...)."
            )
        data = _NoRows(NO_ROW) if data is None else data
    return as_source(data, model.facts.groups if isinstance(model, Posterior) else None)


def _spread(
    model: Posterior,
    source: RowSource,
    sampler: Sampler,
    estimator: Estimator,
    scheme: Scheme,
    seed: int,
    devices: Devices,
) -> Problem:
    """Rows shared by several devices."""
    if not estimator.traits.can_spread:
        who = sampler if sampler.needs.reference else estimator.core
        raise InvalidValueError(
            f"{type(who).__name__} requires all rows on one device. Only sc.Full, sc.Minibatch, "
            "sc.ControlVariates and sc.SVRG support rows spread over a mesh; all support a mesh with only `chains`."
        )
    # its defaults depend on the total number of rows, not on that of a device
    estimator = estimator.resolved(source.num_rows)
    table = spread_over(source, scheme.batching(sampler, estimator, source.num_rows), devices, seed)
    return Problem(model, source, Parts(sampler, estimator, table.own, table.data, scheme), table)


def blank_memory(model: Posterior, parts: Parts, table: Table, position: Params, num_rows: int) -> PyTree:
    """Something with the structure and shapes of the estimator's memory."""
    return parts.scheme.blank_memory(model, parts, position, num_rows, table.row_spec)


def with_reference(sampler: Sampler, estimator: Estimator) -> Estimator:
    """The estimator, with a reference if the sampler compares its estimates with one."""
    renewals = sampler.needs.reference
    if renewals is None:
        return estimator
    return Referenced(estimator.core, renewals.every or None, renewals.size)


def check_first(problem: Problem, params: Params, density: Array, gradient: PyTree) -> None:
    """Check that the first log density and gradient are finite; if not, find out why and raise an error."""
    names, leaves = _tree.leaf_names(gradient), jax.tree.leaves(gradient)
    unhappy = [name for name, leaf in zip(names, leaves, strict=True) if not np.all(np.isfinite(leaf))]
    if not unhappy and np.all(np.isfinite(density)):
        return
    problem.model.explain_bad_start(problem.model.unconstrain(setup.check_params(params)), problem.table, unhappy)
    raise BadStartError(
        "the log density is not finite at the starting point for some rows. Start elsewhere, or check for rows for "
        "which the likelihood is not defined."
    )


_SWAPPED = "`data` and `params` are swapped: the order is model, data, params."
_MOST_LOOKS = 10_000  # at single rows for each draw of `Events`, if the data have fewer


def check_kind(value: Any, kind: type, name: str, example: str) -> None:
    """Raise an error if the value is not of this kind, with a hint if it is a class instead of an instance."""
    if isinstance(value, kind):
        return
    called = (
        " (a class; an instance is required: add parentheses)"
        if isinstance(value, type) and issubclass(value, kind)
        else ""
    )
    raise InvalidTypeError(f"`{name}` must be a scirocco {name} such as {example}; got {value!r}{called}.")


def check_order(model: Any, data: Any, params: Any) -> None:
    """Raise an error if model and data, or data and params, are swapped."""
    if isinstance(data, Posterior) and not isinstance(model, Posterior):
        raise InvalidTypeError("`model` and `data` are swapped: the order is model, data, params.")
    if isinstance(params, (str, os.PathLike, RowSource, Frame)):
        raise InvalidTypeError(
            f"`params` must be the starting values, got a {type(params).__name__}. The order is model, data, params."
        )
    if isinstance(model, Model) and look_swapped(model, data, params):
        raise InvalidTypeError(
            f"{_SWAPPED} Every row of `params` is like the whole of `data`. If you mean it, pass "
            "sc.data.ArraySource(data)."
        )


@contextlib.contextmanager
def order_explained(model: Any, data: Any, params: Any) -> Iterator[None]:
    """If the arguments are rejected, say so where the log likelihood takes `data` and `params` swapped."""
    try:
        yield
    except (InvalidTypeError, InvalidValueError) as error:
        data = data.arrays if isinstance(data, ArraySource) else data
        if isinstance(model, Model) and only_swapped(model, data, params):
            raise InvalidTypeError(f"{_SWAPPED} As they are: {error}") from error
        raise


def flattened(params: Params) -> tuple[list[Any], Any]:
    """The leaves and the structure of the user's parameters."""
    try:
        return jax.tree.flatten(params)
    except (TypeError, ValueError) as error:  # keys that cannot be sorted
        raise InvalidTypeError(f"`params` is not a pytree: {error} Use strings as keys of dicts.") from error


def check_params(params: Params) -> Params:
    """The starting parameters as floating-point JAX arrays."""
    leaves, treedef = flattened(params)
    if not leaves:
        raise InvalidValueError("`params` contains no arrays: pass the starting value of every parameter.")
    named = zip(_tree.leaf_names(params), leaves, strict=True)
    return jax.tree.unflatten(treedef, [_check_leaf(name, leaf) for name, leaf in named])


def widened(params: Params) -> Params:
    """The starting values in double precision; what is no floating-point number is left to `check_params`."""

    def wide(leaf: Any) -> Any:
        is_real = isinstance(leaf, float) or jnp.issubdtype(_tree.dtype_of(leaf) or np.int32, jnp.floating)
        return np.asarray(leaf, np.float64) if is_real else leaf

    leaves, treedef = flattened(params)
    return jax.tree.unflatten(treedef, [wide(leaf) for leaf in leaves])


def _check_leaf(name: str, leaf: Any) -> Array:
    if isinstance(leaf, int) and not isinstance(leaf, bool):
        _checks.warn(f"parameter `{name}` starts at the integer {leaf}; it is converted to {float(leaf)}.")
        leaf = float(leaf)
    host = as_numpy(leaf, f"parameter `{name}`")
    if host.dtype.kind in "iub":
        raise InvalidTypeError(
            f"parameter `{name}` has the integer dtype {host.dtype}. Gradient samplers require continuous parameters: "
            "start from floats (e.g. .astype(float)), and marginalise discrete parameters. If these are your data: the "
            "order is model, data, params."
        )
    if host.dtype.kind != "f" and host.dtype.name != "bfloat16":
        raise InvalidTypeError(f"parameter `{name}` has dtype {host.dtype}; it must be a floating-point array.")
    if not np.all(np.isfinite(host)):
        count = int(np.sum(~np.isfinite(host)))
        raise InvalidValueError(
            f"the starting value of parameter `{name}` has {count} NaN or infinite entr{'y' if count == 1 else 'ies'}: "
            "start from finite numbers."
        )
    return jnp.asarray(leaf if isinstance(leaf, jax.Array) else host, jax.dtypes.canonicalize_dtype(host.dtype))


def check_value(model: Posterior, sampler: Sampler) -> None:
    """Raise an error if the sampler needs log densities and the model has none."""
    if sampler.needs.value and not model.facts.has_density:
        raise InvalidTypeError(
            f"{type(sampler).__name__} uses the value of the log density: it requires a sc.Model(log_likelihood, "
            f"log_prior), not a {type(model).__name__}."
        )


def check_path(sampler: Sampler) -> None:
    """Raise an error if a reducer averages along paths and the sampler has none."""
    if sampler.known.averaging is None:
        raise InvalidValueError(
            f"sc.reducers.PathMoments averages along a path, and {type(sampler).__name__} only makes draws: use "
            "sc.reducers.Moments(), or sampler=sc.ZigZag() or sc.BouncyParticle()."
        )


def check_auxiliary(sampler: Sampler, estimator: Estimator, spread: bool) -> None:
    """Raise an error if the sampler needs auxiliary draws that the estimator does not make."""
    if not sampler.needs.auxiliary:
        return
    name = type(sampler).__name__
    if spread:
        raise InvalidValueError(
            f"{name} requires the auxiliary draws of all rows of a batch, but a mesh spreads them over devices: omit "
            "its axis for rows."
        )
    if not estimator.traits.looks_once:
        raise InvalidValueError(
            f"{name} requires the auxiliary draws of an estimate. {type(estimator).__name__} computes it from passes "
            "or differences, not from one draw per row of a batch: use sc.Minibatch, sc.Weighted or sc.Stratified."
        )


def check_trajectory(model: Posterior, sampler: Sampler, estimator: Estimator, in_memory: bool) -> None:
    """Raise an error if the sampler needs exact gradients and gets estimates."""
    if not sampler.needs.trajectory:
        return
    name = type(sampler).__name__
    if model.facts.takes_key:
        raise InvalidValueError(f"{name} requires exact gradients, but this log likelihood is random (it takes a key).")
    if not estimator.traits.is_exact:
        raise InvalidValueError(
            f"{name} requires exact gradients: use estimator=sc.Full() in place of {type(estimator).__name__}, or a "
            "sampler for minibatches."
        )
    if not in_memory:
        raise InvalidValueError(
            f"{name} reads all rows many times in each step, so they must be in the memory of one device: load them, "
            "or use a sampler for minibatches."
        )


def check_rows(model: Posterior, estimator: Estimator, spread: bool) -> None:
    """Raise an error if the model has no rows and the estimator, or a mesh, divides them."""
    draws = not estimator.traits.is_exact and estimator.traits.remainder is None
    if not model.facts.has_rows and (spread or draws):
        what = "a mesh spreads rows over devices" if spread else f"{type(estimator).__name__} reads batches of rows"
        raise InvalidValueError(
            f"{what}, but a sc.Model(log_density=...) has none: "
            + ("omit the mesh's axis for rows." if spread else "omit `estimator`, or use sc.Full().")
        )


def check_correction(model: Posterior, sampler: Sampler, estimator: Estimator, in_memory: bool) -> None:
    """Raise an error if the sampler corrects its moves on all rows, and cannot do so exactly."""
    if not sampler.needs.exact_value_every:
        return
    name = type(sampler).__name__
    if model.facts.takes_key or not model.facts.has_density:
        raise InvalidValueError(
            f"{name} requires exact log densities, which a {type(model).__name__} of this kind has not."
        )
    if not in_memory:
        raise InvalidValueError(f"{name} requires all rows in the memory of one device: load them, or use sc.BAOAB().")
    if estimator.traits.learns:
        raise InvalidValueError(
            f"{name} requires estimates that do not depend on the path: use sc.ControlVariates(batch_size, "
            f'sampling="without_replacement") in place of {type(estimator).__name__}.'
        )


def check_independence(sampler: Sampler, estimator: Estimator, num_rows: int) -> None:
    """Raise an error if the sampler requires independent batches and the estimator has others.

    `num_rows`: in memory; 0: of streamed rows the source decides later.
    """
    if sampler.needs.independent_batches and estimator.traits.sampling in ("auto", "blocks"):
        if num_rows and estimator.batching(num_rows).epoch == 1:
            return
        raise InvalidValueError(
            f"this {type(sampler).__name__} requires independent batches: use estimator=sc.Minibatch(batch_size, "
            'sampling="without_replacement"). The default reads each row once in an epoch, so that errors of '
            "successive batches partly cancel."
        )


def check_expansion(model: Posterior, sampler: Sampler, estimator: Estimator, in_memory: bool) -> None:
    """Raise an error if the sampler needs bounds that the model, or an expansion that the estimator, does not have."""
    if not sampler.needs.expansion:
        return
    name = type(sampler).__name__
    if estimator.traits.remainder is None:
        raise InvalidValueError(
            f"{name} requires bounds on what an estimate leaves out: use estimator=sc.Taylor() in place of "
            f"{type(estimator).__name__}, or omit it."
        )
    if not in_memory:
        raise InvalidValueError(
            f"{name} looks at single rows at random, so they must be in the memory of one device: load them, or use a "
            "sampler for minibatches."
        )
    if not isinstance(model, Model) or model.curvature_bound is None:
        raise InvalidValueError(
            f"{name} requires a bound on the curvature of a row's log likelihood. Use sc.Model.linear(family, ...), "
            "which knows the bounds of common regressions, or pass curvature_bound=... to sc.Model. Some "
            "likelihoods have none, for example Poisson counts with a log link (their curvature e^η grows without "
            "limit), or an unknown noise scale: sc.NUTS(), sc.HMC() and sc.MALA() need no bound, nor do samplers for "
            "minibatches."
        )
    if max(sampler.needs.expansion, estimator.traits.order or 1) == 2 and model.third_bound is None:
        raise InvalidValueError(
            f"{name} uses an expansion of second order here: pass third_bound=... to sc.Model as well, or use "
            "sc.ZigZag() with sc.Taylor(order=1)."
        )
    if sampler.needs.expansion == 2 and estimator.traits.order == 1:
        raise InvalidValueError(f"{name} requires an expansion of second order: use sc.Taylor(order=2).")


@setup_program(1)
def _prior_slopes(model: Any, points: Params) -> PyTree:
    return jax.vmap(jax.grad(model.log_prior_density))(points)


def check_cost_and_prior(model: Any, sampler: Sampler, expansion: Expansion, num_rows: int) -> None:
    """Raise an error if draws would cost more than passes, or unless gradients show that the log prior is quadratic."""
    flat, back = vector(expansion.centre)
    looks = float(expansion.bound) * flat.size ** ((expansion.order + 1) / 2)
    if looks > max(_MOST_LOOKS, num_rows):
        raise InvalidValueError(
            f"{type(sampler).__name__} would read about {looks:.1e} rows for each draw, because the bound on the "
            "curvature of rows is large compared with the curvature of the log posterior. Use sc.NUTS() or a sampler "
            "for minibatches; with a narrower prior in directions that the data do not determine, it would read fewer."
        )
    lower = np.asarray(expansion.factor, np.float64)
    directions = np.random.default_rng(0).standard_normal((4, flat.size))
    places = [flat + lower @ (far * each) for far in (0.0, 1.0, 3.0, 30.0) for each in directions]
    points = jax.tree.map(lambda *leaves: np.stack(leaves), *(back(place) for place in places))
    gradients = _prior_slopes(model, points)
    slopes = np.concatenate(
        [np.asarray(leaf, np.float64).reshape(len(places), -1) for leaf in jax.tree.leaves(gradients)], axis=1
    )
    near, far = slopes[4:8] - slopes[:4], slopes[12:] - slopes[:4]
    error = np.abs((far - 30.0 * near) @ lower).max()
    if not error <= 1e-2 * max(1.0, np.abs(far @ lower).max()):
        raise InvalidValueError(
            f"{type(sampler).__name__} requires a normal or a flat prior: the gradient of this log prior is not "
            "linear in the parameters. sc.NUTS(), sc.HMC() and samplers for minibatches support any prior."
        )
