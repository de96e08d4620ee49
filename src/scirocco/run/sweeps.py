"""A step of `sc.Blocks`: one block after the other, each driven by an estimate at what the blocks before it moved to.

The rows of a sweep are drawn as one batch and shared out: every block that reads data gets its own. So a sweep takes
one plan, whether the rows are in memory or streamed.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from scirocco import _checks, _tree
from scirocco.data import Table
from scirocco.data.batching import AllRows, Batch, Batching
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.estimators import Context, ControlVariates, Estimator, Full, Minibatch, Prepared, Weighted
from scirocco.model import BlockModel, Model, Posterior
from scirocco.model.dependence import used_inputs
from scirocco.samplers import Blocks, Gibbs, Gradient
from scirocco.types import Array, Key, Params, PyTree

_ESTIMATORS = (Full, Minibatch, Weighted, ControlVariates)


def as_block_model(model: Posterior, sampler: Blocks) -> BlockModel:
    """The model for a sampler of blocks, after looking whether each block has what its sampler needs."""
    if isinstance(model, Model):
        model = BlockModel(model)
    if not isinstance(model, BlockModel):
        raise InvalidTypeError(f"Blocks needs a joint sc.Model or a sc.BlockModel, got {model!r}.")
    named = {name for names in sampler.names for name in names}
    unknown = sorted(set(model.blocks) - named)
    if unknown:
        raise InvalidValueError(
            f"BlockModel names {unknown}, for which Blocks has no sampler. It has {sorted(named)}."
        )
    for names, one in zip(sampler.names, sampler.samplers, strict=True):
        _check_pair(names, one, model)
    return model


def try_updates(model: BlockModel, sampler: Blocks, params: Params, row_spec: PyTree) -> None:
    """Trace every update of the user, on shapes alone: what is wrong with one is said before anything compiles."""
    key = jax.eval_shape(jax.random.key, 0)
    for names, one in zip(sampler.names, sampler.samplers, strict=True):
        if not isinstance(one, Gibbs):
            continue
        label = ", ".join(f"`{name}`" for name in names)
        totals: tuple[Any, ...] = ()
        if one.takes_total:
            rows = jax.tree.map(lambda s: jax.ShapeDtypeStruct((1, *s.shape), s.dtype), row_spec)
            view: Any = model.view(names)
            totals = (jax.eval_shape(lambda p, r, k, v=view: v.total(p, r, None, k), params, rows, key),)
        try:
            graph = jax.make_jaxpr(one.update)(key, params, *totals).jaxpr
        except Exception as error:
            raise InvalidTypeError(
                f"the Gibbs update of {label} failed when it was traced as update(key, params"
                f"{', total' if totals else ''}): {type(error).__name__}: {error}"
            ) from error
        if not any(used_inputs(graph, [True] * len(graph.outvars))[:1]):
            _checks.warn(
                f"the Gibbs update of {label} does not use its key: if it draws, it draws once and for all when it is "
                "traced (NumPy's random numbers do that). Draw with jax.random and the key."
            )


def _check_pair(names: tuple[str, ...], sampler: Any, model: BlockModel) -> None:
    label, kind = ", ".join(f"`{name}`" for name in names), type(sampler).__name__
    special = [name for name in names if name in model.blocks]
    if special and len(names) > 1:
        raise InvalidTypeError(
            f"`{special[0]}` has counts or statistics of its own: give it a block of its own."
        )
    follows = model.view(names).follows
    if isinstance(sampler, Gibbs):
        if follows == "counts":
            raise InvalidTypeError(
                f"the block {label} is a sc.CountModel: use sc.SCIR, or sc.Statistics with sc.Gibbs."
            )
        if (follows == "statistics") != sampler.takes_total:
            need = (
                "takes no sum: write update(key, params, total)"
                if special
                else "asks for a sum of statistics"
            )
            hint = (
                ""
                if special
                else f": name it in the model, sc.BlockModel(model, {names[0]}=sc.Statistics(...))"
            )
            raise InvalidTypeError(f"the Gibbs update of {label} {need}{hint}.")
        return
    if sampler.driven_by != follows:
        needs = {
            "counts": f"is driven by counts: sc.BlockModel(model, {names[0]}=sc.CountModel(concentration, counts))",
            "gradient": "follows a gradient; the model has counts or statistics for it",
        }[sampler.driven_by]
        raise InvalidTypeError(f"{kind} of the block {label} {needs}.")


def reading(sampler: Blocks) -> list[int]:
    """The blocks that read data."""
    return [i for i, one in enumerate(sampler.samplers) if not isinstance(one, Gibbs) or one.takes_total]


def batching(estimator: Estimator, num_rows: int, count: int) -> Batching:
    """How the rows of a sweep are drawn: `count` batches at once."""
    if not isinstance(estimator, _ESTIMATORS):
        kinds = ", ".join(f"sc.{kind.__name__}" for kind in _ESTIMATORS)
        raise InvalidTypeError(f"{type(estimator).__name__} cannot serve sc.Blocks; use one of {kinds}.")
    single = estimator.batching(num_rows)
    if isinstance(single, AllRows) or count <= 1 or single.size == num_rows:
        return single
    size = single.size * count
    if size > num_rows:
        raise InvalidValueError(
            f"a sweep over {count} blocks that read data takes {count} batches of {single.size} rows, and there are "
            f"{num_rows} rows: use at most batch_size={num_rows // count}, or sc.Full()."
        )
    return dataclasses.replace(estimator, batch_size=size).batching(num_rows)  # type: ignore[arg-type]


def _serving(estimator: Estimator, view: Any) -> Estimator:
    """The estimator of one block: sums that are drawn have no exact value at a centre, and are estimated plainly."""
    if isinstance(estimator, ControlVariates) and view.takes_key:
        return Minibatch(estimator.batch_size, estimator.sampling)
    return estimator


def _share(batch: Batch, place: int, count: int, single: Batching) -> Batch:
    """The rows of one block, with weights as if they had been drawn alone."""
    drawn = jax.tree.leaves(batch.rows)[0].shape[0]
    if count <= 1 or single.size == single.num_rows:
        return batch  # all rows: there are no others
    size = drawn // count

    def cut(leaf: Array) -> Array:
        return leaf[place * size : (place + 1) * size]

    return Batch(
        jax.tree.map(cut, batch.rows),
        None if batch.index is None else cut(batch.index),
        None if batch.weights is None else cut(batch.weights) * count,
        batch.scale * count if batch.weights is None else batch.scale,
        single.correction,
        batch.num_rows,
    )


def evaluate(
    model: BlockModel,
    parts: Any,
    index: int,
    position: Params,
    memory: tuple[PyTree, ...],
    number: Array,
    plan: Any,
    key: Key | None,
) -> tuple[Gradient, tuple[PyTree, ...]]:
    """What drives block `index` at `position`; nothing for an update that reads no data."""
    readers = reading(parts.sampler)
    if index not in readers:
        return Gradient(()), memory
    place = readers.index(index)
    view: Any = model.view(parts.sampler.names[index])
    batch = parts.batching.take(parts.data, plan)
    single = parts.estimator.batching(batch.num_rows)
    everything = parts.data if parts.resident else None
    own = None if key is None else jax.random.fold_in(key, index)
    context = Context(everything, _share(batch, place, len(readers), single), number, own)
    kind = getattr(parts.sampler.samplers[index], "noise_kind", "none")
    estimate, updated = _serving(parts.estimator, view).estimate(view, position, memory[place], context, kind)
    drive = Gradient(view.combine(position, estimate.total), estimate.noise)
    return drive, (*memory[:place], updated, *memory[place + 1 :])


def sweep(
    model: BlockModel, parts: Any, state: Any, noise: PyTree, plan: Any, key: Key | None
) -> tuple[Any, Gradient, tuple[PyTree, ...]]:
    """Move every block; returns the sampler's state, what drives the first block next, and the memory."""
    sampler, moved, drive, memory = parts.sampler, state.sampler, state.gradient, state.memory
    units = (model.constrain, model.unconstrain)
    count, number = len(sampler.names), state.number + 1
    for index in range(count):
        moved = sampler.step_block(index, moved, drive, noise[index], state.number, units)
        following = (index + 1) % count
        drive, memory = evaluate(model, parts, following, moved.position, memory, number, plan, key)
    return moved, drive, memory


def prepare(model: BlockModel, parts: Any, table: Table, position: Params, key: Key) -> Prepared:
    """The estimator's one-off work, for each block that reads data."""
    memory, report, start = [], {"passes": 0.0}, position
    for index in reading(parts.sampler):
        view = model.view(parts.sampler.names[index])
        prepared = _serving(parts.estimator, view).prepare(view, table, position, key)
        memory.append(prepared.memory)
        report["passes"] += prepared.report.get("passes", 0.0)
        start = (
            prepared.position
            if isinstance(parts.estimator, ControlVariates) and not view.takes_key
            else start
        )
    return Prepared(start, tuple(memory), report if report["passes"] else {})


def blank_memory(
    model: BlockModel, parts: Any, position: Params, num_rows: int, row_spec: PyTree
) -> tuple[PyTree, ...]:
    """Memories of the right structure and shapes."""
    out = []
    row = jax.tree.map(lambda s: jnp.zeros((1, *s.shape), s.dtype), row_spec)
    for index in reading(parts.sampler):
        view: Any = model.view(parts.sampler.names[index])
        estimator = _serving(parts.estimator, view)
        blank = estimator.blank_memory(position, num_rows)
        if isinstance(estimator, ControlVariates):
            shapes = jax.eval_shape(
                lambda view=view: view.summand.total(position, row, None, jax.random.key(0))
            )
            blank = blank._replace(total=jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes))
        out.append(blank)
    return tuple(out)


def place(model: BlockModel, table: Table, position: Params, key: Key, rows: int) -> Params:
    """Gamma variables of the right size for blocks that counts drive."""
    count = min(table.num_rows, rows)
    some = table.spread_rows(count)
    for name in model.counted:
        view: Any = model.view((name,))
        total = view.total(position, some, None, key)
        position = view.spread(position, _tree.scale(table.num_rows / count, total))
    return position
