"""From the last chunk to the result: the `Run`, or an error that holds it."""

from __future__ import annotations

from typing import Any, cast

import jax
import numpy as np

from scirocco import _tree
from scirocco.errors import DataChangedError, DivergenceError
from scirocco.model import Model
from scirocco.run import pilot, setup
from scirocco.run.result import Origin, Run
from scirocco.run.session import Session


def conclude(
    session: Session,
    problem: setup.Problem,
    ready: setup.Ready,
    record: dict[str, Any],
    timing: dict[str, Any],
) -> Run:
    """Drive the session to its end and gather what it kept."""
    try:
        session.drive()
    except DataChangedError as error:
        session.status = "stopped"
        error.run = _gather(session, problem, ready, record, timing)
        raise
    run = _gather(session, problem, ready, record, timing)
    if session.bad is not None:
        raise _divergence(session, problem, ready, run)
    return run


def _gather(
    session: Session,
    problem: setup.Problem,
    ready: setup.Ready,
    record: dict[str, Any],
    timing: dict[str, Any],
) -> Run:
    kept = session.sink.collect()
    return Run(
        kept.draws,
        kept.gradients,
        kept.stats,
        record["configuration"],
        ready.report,
        timing | session.timing,
        session.status,
        session.scores,
        kept.traces,
        jax.tree.map(np.asarray, session.results()),
        session.sink.path,
        _origin(problem, ready),
    )


def _origin(problem: setup.Problem, ready: setup.Ready) -> Origin:
    parts, memory = ready.parts, ready.start.memory
    # others' memory is of before the first step: it has moved on with the chains
    keep = not ready.resumed and parts.estimator.keeps_one_sum
    return Origin(problem.model, problem.source, parts.sampler, parts.estimator, memory if keep else None)


def _divergence(session: Session, problem: setup.Problem, ready: setup.Ready, run: Run) -> DivergenceError:
    """Where it happened, why it is likely, and a step size that should work."""
    chain, step, leaf = session.bad or (0, 0, 0)
    chain += session.plan.first_chain
    name = _tree.leaf_names(ready.start.position)[leaf]
    sampler = ready.parts.sampler
    if not problem.model.has_density:
        return DivergenceError(
            f"chain {chain} left the finite numbers at step {step}: parameter `{name}` is NaN or infinite. "
            + sampler.divergence_advice,
            run=run if run.num_draws else None,
            chain=chain,
            step=step,
        )
    limit = pilot.curvature_limit(
        cast(Model, problem.model),
        problem.table,
        ready.start.position,
        jax.random.key(0),
        sampler.factor,
    )
    order = sampler.step_order / 2  # with a momentum the step is in units of θ, not of θ²
    advice = (
        f"try step_size={0.1 / limit**order:.2g} (a tenth of the scale that the curvature at the start allows)"
        if np.isfinite(limit) and limit > 0
        else "try a smaller step size"
    )
    kept = (
        f"The {run.num_draws} draws before it are in `error.run`."
        if run.num_draws
        else "There is no draw before it."
    )
    message = (
        f"chain {chain} left the finite numbers at step {step}: parameter `{name}` is NaN or infinite. The step size "
        f"({_show(sampler.step_size)}) is probably too large: {advice}, standardise the data, or use a prior that "
        f"keeps the parameters finite. {kept}"
    )
    return DivergenceError(message, run=run if run.num_draws else None, chain=chain, step=step)


def _show(step_size: Any) -> str:
    leaves = [f"{float(leaf):.3g}" for leaf in jax.tree.leaves(step_size) if np.ndim(leaf) == 0]
    return ", ".join(leaves[:4])
