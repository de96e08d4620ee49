"""How a step is made, for each kind of sampler: of all parameters together here, of block after block in `blocks`."""

from __future__ import annotations

import abc
import importlib.util
from typing import Any, cast

import jax
import jax.numpy as jnp

from scirocco.data import Table
from scirocco.data.batching import Batching
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.estimators import Estimate, Estimator, Prepared, find_mode
from scirocco.estimators.base import products_of
from scirocco.model import Posterior, without_value
from scirocco.run.loop import Draws, KernelState, Parts, as_gradient, context_of, known_gradient
from scirocco.samplers import Events, Gradient, Mover, Proposer, Sampler, Trajectory
from scirocco.types import Array, Key, Params, PyTree


class Scheme(abc.ABC):
    """How sampler, estimator and model make a step: one scheme for each kind of sampler (`blocks.scheme_of`).

    It is chosen once, by `setup.compose`, and is part of the structure of `Parts`: everything that differs between the
    kinds is a method here. (The model cannot have these methods, because it knows neither samplers nor estimators.)
    """

    def __hash__(self) -> int:
        return hash(type(self))

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    @abc.abstractmethod
    def adapt(self, model: Posterior, sampler: Sampler) -> Posterior:
        """The model as this scheme needs it; raises an error if it does not fit the sampler."""

    @abc.abstractmethod
    def check(
        self, model: Posterior, estimator: Estimator, streamed: bool, spread: bool, num_rows: int
    ) -> None:
        """Raise an error if the estimator does not support rows that are streamed or spread over devices."""

    @abc.abstractmethod
    def check_moves(self, model: Posterior, sampler: Sampler, params: Params, row_spec: PyTree) -> None:
        """Raise an error if a move fails when traced on shapes."""

    @abc.abstractmethod
    def batching(self, sampler: Sampler, estimator: Estimator, num_rows: int) -> Batching:
        """How the rows of a step are drawn."""

    @abc.abstractmethod
    def prepare(self, model: Posterior, parts: Parts, table: Table, position: Params, key: Key) -> Prepared:
        """The estimator's one-off work."""

    @abc.abstractmethod
    def blank_memory(
        self, model: Posterior, parts: Parts, position: Params, num_rows: int, row_spec: PyTree
    ) -> PyTree:
        """Something with the structure and shapes of the estimator's memory."""

    @abc.abstractmethod
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
        """The estimate that drives the next move at `position`, and the estimator's memory after it."""

    @abc.abstractmethod
    def move(
        self, model: Posterior, parts: Parts, state: KernelState, number: Array, draws: Draws
    ) -> tuple[Any, Gradient, PyTree]:
        """Step number `number`: the sampler's state after it, the estimate for the next step, and the memory."""

    def only_moves(self, model: Posterior, parts: Parts) -> bool:
        """Whether a step is `sampler.step` followed by an estimate at the new position that needs only its batch."""
        return False


class Together(Scheme):
    """All parameters move together, driven by one estimate."""

    def adapt(self, model: Posterior, sampler: Sampler) -> Posterior:
        """The model, unchanged."""
        _check_drive(model, sampler)
        return model

    def check(
        self, model: Posterior, estimator: Estimator, streamed: bool, spread: bool, num_rows: int
    ) -> None:
        """Random sums cannot be kept; rows on several devices require an estimator that sums over devices."""
        if model.facts.takes_key and estimator.traits.keeps_one_sum:
            raise InvalidValueError(
                f"{type(estimator).__name__} keeps one sum over all rows for the whole run; for random sums "
                "(counts or a log likelihood that take a key) this is one random draw, and the chain would settle "
                "around it. Use sc.Minibatch, sc.SVRG or sc.SCIRCV."
            )

    def check_moves(self, model: Posterior, sampler: Sampler, params: Params, row_spec: PyTree) -> None:
        """Samplers check themselves."""

    def batching(self, sampler: Sampler, estimator: Estimator, num_rows: int) -> Batching:
        """The batches of the estimator."""
        return estimator.batching(num_rows)

    def prepare(self, model: Posterior, parts: Parts, table: Table, position: Params, key: Key) -> Prepared:
        """The estimator's work, at the mode if the sampler starts there."""
        estimator, target = parts.estimator, parts.target(model)
        if (
            not parts.sampler.needs.mode
            or estimator.traits.finds_mode
            or not importlib.util.find_spec("optax")
        ):
            return estimator.prepare(target, table, position, key)
        mode = find_mode(model, table, position, key)
        prepared = estimator.prepare(target, table, mode.position, key)
        return prepared._replace(near_mode=True, report=mode.report | prepared.report)

    def blank_memory(
        self, model: Posterior, parts: Parts, position: Params, num_rows: int, row_spec: PyTree
    ) -> PyTree:
        """The estimator's own."""
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
        """What drives the sampler at `position` (∇ log posterior): the exact prior part and the estimated sum."""
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
class OneMove(Together):
    """The step of a `Mover`: it moves, then its drive is estimated at the new position."""

    def move(
        self, model: Posterior, parts: Parts, state: KernelState, number: Array, draws: Draws
    ) -> tuple[Any, Gradient, PyTree]:
        """The move, and the estimate at the new position."""
        sampler = cast(Mover, parts.sampler)
        moved = sampler.step(state.sampler, state.gradient, draws.noise, state.number)
        return moved, *self.evaluate(model, parts, moved.position, state.memory, number, *draws[1:])

    def only_moves(self, model: Posterior, parts: Parts) -> bool:
        """Unless the estimate is random beyond its batch."""
        return not (
            parts.sampler.needs.curvature or model.facts.takes_key or parts.estimator.traits.is_random
        )


@jax.tree_util.register_static
class ProposedMove(Together):
    """The step of a `Proposer`: its drive is estimated at the new position, then it accepts the move or not."""

    def move(
        self, model: Posterior, parts: Parts, state: KernelState, number: Array, draws: Draws
    ) -> tuple[Any, Gradient, PyTree]:
        """The proposal, the estimate there, and what the sampler chooses."""
        sampler, noise = cast(Proposer, parts.sampler), draws.noise
        proposal = sampler.step(state.sampler, state.gradient, noise, state.number)
        there, memory = self.evaluate(model, parts, proposal.position, state.memory, number, *draws[1:])
        moved, gradient = sampler.accept(state.sampler, state.gradient, proposal, there, noise, state.number)
        return moved, gradient, memory


@jax.tree_util.register_static
class AlongTrajectory(Together):
    """The step of a `Trajectory`, which asks for exact gradients where it goes."""

    def move(
        self, model: Posterior, parts: Parts, state: KernelState, number: Array, draws: Draws
    ) -> tuple[Any, Gradient, PyTree]:
        """The end of the trajectory, and the gradient there."""

        def evaluate(position: Params) -> Gradient:
            return self.evaluate(model, parts, position, state.memory, number, *draws[1:])[0]

        sampler = cast(Trajectory, parts.sampler)
        return *sampler.step(state.sampler, state.gradient, evaluate, draws.noise, number), state.memory


@jax.tree_util.register_static
class BetweenEvents(Together):
    """The step of `Events`, which use the estimator's expansion, and single batches for what that leaves out."""

    def move(
        self, model: Posterior, parts: Parts, state: KernelState, number: Array, draws: Draws
    ) -> tuple[Any, Gradient, PyTree]:
        """The state after the events of a step, and the estimate there."""
        summand, memory, left_out = (
            parts.target(model).summand,
            state.memory,
            parts.estimator.traits.remainder,
        )
        assert left_out is not None  # `arguments.check_expansion`
        first = jnp.zeros((), jnp.int32)

        def remainder(position: Params, key: Key) -> Gradient:
            batch = parts.batching.take(parts.data, parts.batching.plan(key, first))
            with products_of(parts.estimator):
                return known_gradient(left_out(summand, position, memory, batch))

        sampler = cast(Events, parts.sampler)
        moved = sampler.step(state.sampler, memory.expansion, remainder, draws.noise, state.number)
        return moved, *self.evaluate(model, parts, moved.position, memory, number, *draws[1:])


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
