"""How a step is made, for each kind of sampler: of all parameters together, or of block after block.

The blocks of `sc.Blocks` move in turn, each driven by an estimate at the current values of the others. The rows of a
sweep are drawn as one batch, which is divided among the blocks that read data. A sweep therefore needs one plan,
whether the rows are in memory or streamed.
"""

from __future__ import annotations

import abc
import dataclasses
import importlib.util
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp

from scirocco import _checks
from scirocco.data import Table
from scirocco.data.batching import AllRows, Batch, Batching
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.estimators import Estimate, Estimator, Prepared, find_mode
from scirocco.estimators.base import full_sum, next_pass, products_of, serving
from scirocco.model import BlockModel, BlockView, Posterior, WithValue, without_value
from scirocco.model.base import valued
from scirocco.model.checks import used_inputs
from scirocco.run.loop import Draws, KernelState, Parts, as_gradient, context_of, known_gradient
from scirocco.samplers import Blocks, Events, Gibbs, Gradient, Mover, Proposer, Sampler, Trajectory
from scirocco.types import Array, Key, Params, PyTree


class Scheme(abc.ABC):
    """How sampler, estimator and model make a step: one scheme for each kind of sampler (`scheme_of`).

    It is chosen once, by `setup.compose`, and is part of the structure of `Parts`: everything that differs between the
    kinds is a method here. (The model cannot have these methods, because it knows neither samplers nor estimators.)
    Here all parameters move together, driven by one estimate; `InTurn` is for blocks.
    """

    def __hash__(self) -> int:
        return hash(type(self))

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    @abc.abstractmethod
    def move(self, model: Posterior, parts: Parts, state: KernelState, draws: Draws) -> KernelState:
        """The state after a step, with the estimate for the next one."""

    def only_moves(self, model: Posterior, parts: Parts) -> bool:
        """Whether a step is `sampler.step` followed by an estimate at the new position that needs only its batch."""
        return False

    def adapt(self, model: Posterior, sampler: Sampler) -> Posterior:
        """The model as this scheme needs it; raises an error if it does not fit the sampler."""
        _check_drive(model, sampler)
        return model

    def check(self, model: Posterior, estimator: Estimator, streamed: bool, spread: bool, num_rows: int) -> None:
        """Raise an error if the estimator does not support the rows, or keeps a sum that is random."""
        if model.facts.takes_key and estimator.traits.keeps_one_sum:
            raise InvalidValueError(
                f"{type(estimator).__name__} keeps one sum over all rows for the whole run; for random sums "
                "(counts or a log likelihood that take a key) this is one random draw, and the chain would settle "
                "around it. Use sc.Minibatch, sc.SVRG or sc.SCIRCV."
            )

    def check_moves(  # noqa: B027
        self, model: Posterior, sampler: Sampler, params: Params, row_spec: PyTree
    ) -> None:
        """Raise an error if a move fails when traced on shapes; most samplers check themselves."""

    def batching(self, sampler: Sampler, estimator: Estimator, num_rows: int) -> Batching:
        """How the rows of a step are drawn."""
        return estimator.batching(num_rows)

    def prepare(self, model: Posterior, parts: Parts, table: Table, position: Params, key: Key) -> Prepared:
        """The estimator's work, at the mode if the sampler starts there."""
        estimator, target = parts.estimator, parts.target(model)
        if not parts.sampler.needs.mode or estimator.traits.finds_mode or not importlib.util.find_spec("optax"):
            return estimator.prepare(target, table, position, key)
        mode = find_mode(model, table, position, key)
        prepared = estimator.prepare(target, table, mode.position, key)
        return prepared._replace(near_mode=True, report=mode.report | prepared.report)

    def blank_memory(self, model: Posterior, parts: Parts, position: Params, num_rows: int, row_spec: PyTree) -> PyTree:
        """Something with the structure and shapes of the estimator's memory."""
        total = parts.target(model).blank_total(position, row_spec)
        return parts.estimator.blank_memory(position, total, num_rows)

    def evaluate(
        self,
        model: Posterior,
        parts: Parts,
        position: Params,
        memory: PyTree,
        number: Array,
        plan: Any,
        probe: PyTree | None,
        key: Key | None,
    ) -> tuple[Gradient, PyTree]:
        """What drives the next move at `position` (∇ log posterior), and the estimator's memory after it."""
        target = parts.target(model)
        context = context_of(parts, parts.batching.take(parts.data, plan), number, key)
        summand = target.summand
        more: dict[str, PyTree] = {}
        if parts.sampler.needs.auxiliary:  # the same key gives each row the same draw as in the estimate
            drawn = model.facts.auxiliary
            if drawn is None:
                raise InvalidTypeError(f"a {type(model).__name__} has no auxiliary draws: use a sc.Model.")
            more["auxiliary"] = drawn(model.constrain(position), context.batch.rows, key)
        of = (memory, context, parts.sampler.needs.noise)
        with products_of(parts.estimator):
            if probe is None:
                estimate, updated = parts.estimator.estimate(summand, position, *of)
                drive = target.combine(position, estimate.total)
            else:

                def total(at: Params) -> tuple[PyTree, tuple[Estimate, PyTree]]:
                    estimate, updated = parts.estimator.estimate(summand, at, *of)
                    return target.combine(at, estimate.total), (estimate, updated)

                drive, tangent, (estimate, updated) = jax.jvp(total, (position,), (probe,), has_aux=True)
                more["curvature"] = jax.tree.map(jnp.multiply, probe, without_value(tangent))
        return as_gradient(target, position, drive, estimate)._replace(**more), updated


@jax.tree_util.register_static
class OneMove(Scheme):
    """The step of a `Mover`: it moves, then its drive is estimated at the new position."""

    def move(self, model: Posterior, parts: Parts, state: KernelState, draws: Draws) -> KernelState:
        """The move, and the estimate at the new position."""
        sampler, number = cast(Mover, parts.sampler), state.number + 1
        moved = sampler.step(state.sampler, state.gradient, draws.noise, state.number)
        return state.after(
            number, moved, *self.evaluate(model, parts, moved.position, state.memory, number, *draws[1:])
        )

    def only_moves(self, model: Posterior, parts: Parts) -> bool:
        """Unless the estimate is random beyond its batch."""
        return not (parts.sampler.needs.curvature or model.facts.takes_key or parts.estimator.traits.is_random)


@jax.tree_util.register_static
class ProposedMove(Scheme):
    """The step of a `Proposer`: its drive is estimated at the new position, then it accepts the move or not."""

    def move(self, model: Posterior, parts: Parts, state: KernelState, draws: Draws) -> KernelState:
        """The proposal, the estimate there, and what the sampler chooses."""
        sampler, noise, number = cast(Proposer, parts.sampler), draws.noise, state.number + 1
        proposal = sampler.step(state.sampler, state.gradient, noise, state.number)
        there, memory = self.evaluate(model, parts, proposal.position, state.memory, number, *draws[1:])
        if sampler.needs.exact_value_every:
            due = number % sampler.needs.exact_value_every == 0
            exact = partial(_exact_value, model, parts)
            spec = jax.eval_shape(exact, proposal.position)
            value = jax.lax.cond(due, exact, lambda _: jnp.zeros((), spec.dtype), proposal.position)
            there = there._replace(value=value)
        moved, gradient = sampler.accept(state.sampler, state.gradient, proposal, there, noise, state.number)
        return state.after(number, moved, gradient, memory)


def _exact_value(model: Posterior, parts: Parts, position: Params) -> Array:
    """The log posterior, up to a constant, by a pass over all rows."""
    target, batching = valued(model), parts.batching
    with products_of(parts.estimator):
        total = full_sum(target.summand, position, batching.rows(parts.data), batching.num_rows)
        return cast(WithValue, target.combine(position, total)).value


@jax.tree_util.register_static
class AlongTrajectory(Scheme):
    """The step of a `Trajectory`, which asks for exact gradients where it goes."""

    def move(self, model: Posterior, parts: Parts, state: KernelState, draws: Draws) -> KernelState:
        """The end of the trajectory, and the gradient there."""
        number = state.number + 1

        def evaluate(position: Params) -> Gradient:
            return self.evaluate(model, parts, position, state.memory, number, *draws[1:])[0]

        sampler = cast(Trajectory, parts.sampler)
        end = sampler.step(state.sampler, state.gradient, evaluate, draws.noise, number)
        return state.after(number, *end, state.memory)


@jax.tree_util.register_static
class BetweenEvents(Scheme):
    """The step of `Events`, which use the estimator's expansion, and single batches for what that leaves out."""

    def move(self, model: Posterior, parts: Parts, state: KernelState, draws: Draws) -> KernelState:
        """The state after the events of a step, and the estimate there."""
        summand, memory, left_out = (parts.target(model).summand, state.memory, parts.estimator.traits.remainder)
        assert left_out is not None  # `setup.check_expansion`
        first = jnp.zeros((), jnp.int32)

        def remainder(position: Params, key: Key) -> Gradient:
            batch = parts.batching.take(parts.data, parts.batching.plan(key, first))
            with products_of(parts.estimator):
                return known_gradient(left_out(summand, position, memory, batch))

        sampler, number = cast(Events, parts.sampler), state.number + 1
        moved = sampler.step(state.sampler, memory.expansion, remainder, draws.noise, state.number)
        return state.after(number, moved, *self.evaluate(model, parts, moved.position, memory, number, *draws[1:]))


def _check_drive(model: Posterior, sampler: Sampler) -> None:
    if model.facts.drive == sampler.needs.drive:
        return
    name = type(sampler).__name__
    if model.facts.drive == "blocks":
        raise InvalidTypeError(
            f"a BlockModel requires sampler=sc.Blocks({{...}}) with a sampler for each block, not {name}."
        )
    if sampler.needs.drive == "counts":
        raise InvalidTypeError(
            f"{name} moves on the simplex and uses counts: it requires a sc.CountModel(concentration, counts), "
            "not a log likelihood. If yours takes proportions, compute them with jax.nn.softmax and use e.g. sc.SGLD."
        )
    raise InvalidTypeError(
        f"{name} requires the gradient of a log density, which a CountModel does not have: use sc.SCIR, sc.SCIRCV or "
        "sc.SimplexSGRLD."
    )


@jax.tree_util.register_static
class InTurn(Scheme):
    """The blocks move in turn, each driven by an estimate at the current values of the others."""

    def adapt(self, model: Posterior, sampler: Blocks) -> BlockModel:  # type: ignore[override]
        """Return the model as a model of blocks; check that each block has what its sampler needs."""
        return as_block_model(model, sampler)

    def check(self, model: Posterior, estimator: Estimator, streamed: bool, spread: bool, num_rows: int) -> None:
        """Require all rows on one device and, for streamed rows, an estimator that reads batches."""
        if spread:
            raise InvalidValueError(
                "sc.Blocks requires all rows on one device: use a mesh with only the axis `chains`."
            )
        if not estimator.traits.serves_blocks:
            raise InvalidTypeError(
                f"sc.Blocks does not support {type(estimator).__name__}; use sc.Full, sc.Minibatch, sc.Weighted or "
                "sc.ControlVariates."
            )
        if streamed and next_pass(estimator, 0, num_rows) is not None:
            raise InvalidValueError(
                "sc.Blocks on streamed data requires an estimator that reads batches: sc.Minibatch, not sc.Full."
            )

    def check_moves(  # type: ignore[override]
        self, model: BlockModel, sampler: Blocks, params: Params, row_spec: PyTree
    ) -> None:
        """Trace the user's updates."""
        try_updates(model, sampler, params, row_spec)

    def batching(self, sampler: Blocks, estimator: Estimator, num_rows: int) -> Batching:  # type: ignore[override]
        """One batch for each block that reads data, drawn together."""
        return batching(estimator, num_rows, len(sampler.reading))

    def prepare(  # type: ignore[override]
        self, model: BlockModel, parts: Parts, table: Table, position: Params, key: Key
    ) -> Prepared:
        """The one-off work of the estimator, for each block that reads data."""
        memory, report, start = [], {"passes": 0.0}, position
        for view in _views(model, parts):
            estimator = serving(parts.estimator, view.facts.takes_key)
            prepared = estimator.prepare(view, table, position, key)
            memory.append(prepared.memory)
            report["passes"] += prepared.report.get("passes", 0.0)
            start = prepared.position if estimator.traits.keeps_one_sum else start
        return Prepared(start, tuple(memory), report if report["passes"] else {})

    def blank_memory(  # type: ignore[override]
        self, model: BlockModel, parts: Parts, position: Params, num_rows: int, row_spec: PyTree
    ) -> tuple[PyTree, ...]:
        """One memory for each block that reads data."""
        return tuple(
            serving(parts.estimator, view.facts.takes_key).blank_memory(
                position, view.blank_total(position, row_spec), num_rows
            )
            for view in _views(model, parts)
        )

    def evaluate(  # type: ignore[override]
        self,
        model: BlockModel,
        parts: Parts,
        position: Params,
        memory: tuple[PyTree, ...],
        number: Array,
        plan: Any,
        probe: PyTree | None,
        key: Key | None,
        index: int = 0,
    ) -> tuple[Gradient, tuple[PyTree, ...]]:
        """The estimate that drives block `index` at `position`; None for an update that reads no data."""
        sampler: Blocks = parts.sampler  # type: ignore[assignment]
        readers = sampler.reading
        if index not in readers:
            return Gradient(()), memory
        place = readers.index(index)
        view = model.view(sampler.names[index])
        batch = parts.batching.take(parts.data, plan)
        single = _alone(parts, batch.num_rows)
        own = None if key is None else jax.random.fold_in(key, index)
        context = context_of(parts, share_of(batch, place, len(readers), single), number, own)
        estimator, kind = serving(parts.estimator, view.facts.takes_key), sampler.samplers[index].needs.noise
        with products_of(estimator):
            estimate, updated = estimator.estimate(view, position, memory[place], context, kind)
        drive = Gradient(view.combine(position, estimate.total), estimate.noise)
        return drive, (*memory[:place], updated, *memory[place + 1 :])

    def move(  # type: ignore[override]
        self, model: BlockModel, parts: Parts, state: KernelState, draws: Draws
    ) -> KernelState:
        """Move every block; the estimate that drives the first block is made after the last block has moved."""
        sampler: Blocks = parts.sampler  # type: ignore[assignment]
        moved, drive, memory = state.sampler, state.gradient, state.memory
        units = (model.constrain, model.unconstrain)
        count, number = len(sampler.names), state.number + 1
        for index in range(count):
            moved = sampler.step(index, moved, drive, draws.noise[index], state.number, units)
            following = (index + 1) % count
            drive, memory = self.evaluate(model, parts, moved.position, memory, number, *draws[1:], index=following)
        return state.after(number, moved, drive, memory)


SCHEMES: dict[type, Scheme] = {
    Mover: OneMove(),
    Proposer: ProposedMove(),
    Trajectory: AlongTrajectory(),
    Events: BetweenEvents(),
    Blocks: InTurn(),
}
"""The kinds of samplers, and how each makes a step."""


def scheme_of(sampler: Sampler) -> Scheme:
    """How a sampler of this kind makes a step."""
    for kind in type(sampler).__mro__:
        if kind in SCHEMES:
            return SCHEMES[kind]
    raise InvalidTypeError(
        f"{type(sampler).__name__} is of no kind: derive it from sc.samplers.Mover (one move), Proposer (a move that "
        "can be rejected), Trajectory or Events."
    )


def _views(model: BlockModel, parts: Parts) -> list[BlockView]:
    """The model as seen by each block that reads data."""
    sampler: Blocks = parts.sampler  # type: ignore[assignment]
    return [model.view(sampler.names[index]) for index in sampler.reading]


def as_block_model(model: Posterior, sampler: Blocks) -> BlockModel:
    """Return the model as a model of blocks; check that each block has what its sampler needs."""
    if model.facts.has_density:
        model = BlockModel(model)  # type: ignore[arg-type]
    if model.facts.drive != "blocks":
        raise InvalidTypeError(f"Blocks requires a joint sc.Model or a sc.BlockModel, got {model!r}.")
    assert isinstance(model, BlockModel)
    named = {name for names in sampler.names for name in names}
    unknown = sorted(set(model.blocks) - named)
    if unknown:
        raise InvalidValueError(
            f"BlockModel names {unknown}, but Blocks has no sampler for it. Blocks has samplers for {sorted(named)}."
        )
    for names, one in zip(sampler.names, sampler.samplers, strict=True):
        _check_pair(names, one, model)
    return model


def try_updates(model: BlockModel, sampler: Blocks, params: Params, row_spec: PyTree) -> None:
    """Trace every update of the user on shapes alone, so that errors appear before anything is compiled."""
    key = jax.eval_shape(jax.random.key, 0)
    for names, one in sampler.updates:
        label = ", ".join(f"`{name}`" for name in names)
        totals: tuple[Any, ...] = ()
        if one.takes_total:
            rows = jax.tree.map(lambda s: jax.ShapeDtypeStruct((1, *s.shape), s.dtype), row_spec)
            view = model.view(names)
            totals = (jax.eval_shape(lambda p, r, k, v=view: v.total(p, r, None, k), params, rows, key),)
        try:
            graph = jax.make_jaxpr(one.update)(key, params, *totals).jaxpr
        except Exception as error:
            raise InvalidTypeError(
                f"the Gibbs update of {label} raised an error when traced as update(key, params"
                f"{', total' if totals else ''}): {type(error).__name__}: {error}"
            ) from error
        if not any(used_inputs(graph, [True] * len(graph.outvars))[:1]):
            _checks.warn(
                f"the Gibbs update of {label} does not use its key: random numbers from NumPy are drawn only once, "
                "when the function is traced. Draw with jax.random and the key."
            )


def _check_pair(names: tuple[str, ...], sampler: Sampler | Gibbs, model: BlockModel) -> None:
    label, kind = ", ".join(f"`{name}`" for name in names), type(sampler).__name__
    special = [name for name in names if name in model.blocks]
    if special and len(names) > 1:
        raise InvalidTypeError(f"`{special[0]}` has its own counts or statistics: put it in a block of its own.")
    follows = model.view(names).follows
    if isinstance(sampler, Gibbs):
        if follows == "counts":
            raise InvalidTypeError(
                f"the block {label} is a sc.CountModel: use sc.SCIR, or sc.Statistics with sc.Gibbs."
            )
        if (follows == "statistics") != sampler.takes_total:
            need = (
                "does not take the sum of statistics: write update(key, params, total)"
                if special
                else "requires a sum of statistics"
            )
            hint = "" if special else f": add it to the model, sc.BlockModel(model, {names[0]}=sc.Statistics(...))"
            raise InvalidTypeError(f"the Gibbs update of {label} {need}{hint}.")
        return
    if sampler.needs.drive != follows:
        needs = {
            "counts": f"is driven by counts: sc.BlockModel(model, {names[0]}=sc.CountModel(concentration, counts))",
            "gradient": "requires a gradient, but the model has counts or statistics for this block",
        }[sampler.needs.drive]
        raise InvalidTypeError(f"{kind} of the block {label} {needs}.")


def batching(estimator: Estimator, num_rows: int, count: int) -> Batching:
    """How the rows of a sweep are drawn: `count` batches together."""
    single = estimator.batching(num_rows)
    if isinstance(single, AllRows) or count <= 1 or single.size == num_rows:
        return single
    size = single.size * count
    if size > num_rows:
        raise InvalidValueError(
            f"a sweep over {count} blocks that read data needs {count} batches of {single.size} rows, but there are "
            f"{num_rows} rows: use at most batch_size={num_rows // count}, or sc.Full()."
        )
    return dataclasses.replace(estimator, batch_size=size).batching(num_rows)  # type: ignore[type-var]


def _alone(parts: Parts, num_rows: int) -> Batching:
    """How the rows of one block would be drawn alone. Probabilities are traced here, and cannot be checked again."""
    if parts.estimator.traits.is_uniform:
        return parts.estimator.batching(num_rows)
    return dataclasses.replace(parts.batching, size=parts.estimator.batch_size)  # type: ignore[type-var]


def share_of(batch: Batch, place: int, count: int, single: Batching) -> Batch:
    """The rows of one block, with the weights that they would have if drawn alone."""
    drawn = jax.tree.leaves(batch.rows)[0].shape[0]
    if count <= 1 or single.size == single.num_rows:
        return batch  # all rows
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
