"""The path of every new run from its request to the first step: decide, set up, measure, decide again, adapt."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from jax.flatten_util import ravel_pytree

from scirocco import _checks
from scirocco.run import setup
from scirocco.run.choose import adaptation, limits, methods, set_up
from scirocco.run.choose.decide import Again, Asked, batches_seconds, decide
from scirocco.run.choose.measure import Measured, after, measure
from scirocco.run.progress import in_units
from scirocco.run.setup import Problem, Ready
from scirocco.samplers import Trajectory
from scirocco.samplers.preconditioned import core_of

if TYPE_CHECKING:
    from scirocco.run.request import Request


def prepared(request: Request, say: Callable[[str], object] = str) -> tuple[Request, Problem, Ready]:
    """The set-up, unless it was made elsewhere, and the request with what was chosen for it.

    `say` gets the line about the choice before anything takes long.
    """
    if request.ready is not None:
        return _completed(request, request.ready), _composed(request, request.ready), request.ready
    plan, asked, key = request.plan, asked_of(request), request.plan.key
    measured = measure(request.model, request.source, request.params, request.devices)
    verdict = decide(asked, measured, limits.LIMITS)
    because, problem, ready = "", cast(Problem, None), cast(Ready, None)
    while isinstance(verdict, Again):
        choice, start, report = verdict.choice, request.params, dict[str, Any]()
        because = choice.because
        if measured.method:  # the first was chosen with the request
            of = (request.model, request.source, request.params, request.devices)
            sampler, estimator = methods.method_for(choice.method, *of)
            request = request._replace(sampler=sampler, estimator=estimator)
        if verdict.at_mode:
            start, report = request.model.constrain(ready.start.position), {"roundness": measured.roundness}
        problem, ready = set_up.prepare(
            _composed(request, request),
            start,
            num_steps=plan.num_steps,
            num_chains=plan.num_chains,
            key=key,
            free=asked.free and request.devices is None,
            near_mode=verdict.at_mode,
        )
        ready = ready._replace(report=ready.report | report)
        measured = after(measured, choice.method, problem, ready, key)
        verdict = decide(asked, measured, limits.LIMITS)
    if ready.estimator.traits.is_exact and not request.estimator.traits.is_exact:  # rows in their own order
        problem = _composed(request, ready)
    if request.sampler.needs.trajectory and measured.rounding_by_row is not None:
        sampler = cast(Trajectory, ready.sampler).with_settings(
            reference=np.asarray(ravel_pytree(ready.start.position)[0])
        )
        problem = problem._replace(parts=problem.parts._replace(sampler=sampler))
        ready = ready._replace(sampler=sampler)
    if request.sampler.needs.trajectory and measured.least_rounding > limits.LIMITS.coarse:
        _warn_of_coarse(ready.report["log_density"])
    request, seconds = _completed(request, ready), verdict.seconds
    if verdict.method == "scaled":
        rows = request.source.num_rows
        batch = rows if ready.estimator.traits.is_exact else 2 * ready.estimator.batching(rows).size
        seconds = batches_seconds(asked, measured, request.plan.num_steps, batch)
    report = _report(request, ready, measured, because, seconds)
    say(report.get("chosen", ""))
    if request.sampler.needs.trajectory and request.sampler.is_open:
        problem, ready = adaptation.adapt(problem, ready, request.plan, request.params)
    elif not asked.sampler:
        ready = adaptation.spread_out(problem, ready, request.plan)
    return request, problem, ready._replace(report=report | ready.report)


def asked_of(request: Request) -> Asked:
    """What the user has named."""
    left_out, plan = request.left_out, request.plan
    return Asked(
        sampler="sampler" not in left_out,
        estimator="estimator" not in left_out,
        exact="estimator" in left_out or request.estimator.traits.is_exact,
        num_chains=plan.num_chains,
        num_samples=plan.num_samples,
        thin=None if "thin" in left_out else plan.thin,
    )


def _composed(request: Request, method: Request | Ready) -> Problem:
    parts = (request.model, request.source, method.sampler, method.estimator)
    return setup.compose(*parts, request.plan.seed, request.devices)


def _completed(request: Request, ready: Ready) -> Request:
    """With the lengths and the estimator that follow from the set-up."""
    plan, left_out = request.plan, request.left_out
    if "num_burnin" in left_out and ("sampler" in left_out or ready.sampler.known.is_exact):
        plan = plan._replace(num_burnin=methods.default_burnin(ready.sampler, ready.thin))
    if {"sampler", "thin"} <= left_out:
        plan = plan._replace(thin=methods.default_thin(ready.sampler, ready.thin))
    estimator = ready.estimator if "estimator" in left_out else request.estimator
    return request._replace(plan=plan, estimator=estimator)


def _report(request: Request, ready: Ready, measured: Measured, because: str, seconds: float | None) -> dict[str, Any]:
    """The choice in words and in numbers, for `run.preparation`; empty if nothing was chosen."""
    line = explain(request, ready, seconds)
    report: dict[str, Any] = {"chosen": line, "left_out": sorted(request.left_out)} if line else {}
    if line and "sampler" in request.left_out:
        report |= {"because": because, "measured": measured.report()}
        report |= {} if seconds is None else {"predicted_seconds": seconds}
    return report


def explain(request: Request, ready: Ready, seconds: float | None) -> str:
    """What was chosen for the user, in one line; empty when nothing was."""
    said, plan, left_out, sampler = list[str](), request.plan, request.left_out, request.sampler
    if "sampler" in left_out:
        each = {"diagonal": " one by one", "low_rank": " one by one and along correlated directions"}
        how = each.get(sampler.needs.metric, "")
        where = f" in coordinates scaled{how} at the mode" if sampler.needs.metric != "none" else ""
        if not where and methods.default_thin(sampler, None) > 1:
            where = " (the posterior is far from Gaussian: predictions can be averaged, single parameters cannot)"
        said.append(f"{type(core_of(sampler)).__name__}{where}")
    if "estimator" in left_out:
        size, unit = ready.estimator.batching(request.source.num_rows).size, request.source.unit
        every = "the only row" if (size, unit) == (1, "rows") else f"all {size:,} {unit}"
        exact = ready.estimator.traits.is_exact
        every = every if request.model.facts.has_rows else "the whole density"
        which = f" ({every} at every step)" if exact else f" of {size:,} {unit}"
        if request.devices is not None and not exact:
            which += " (not chosen: the batch size on a mesh is fixed)"
        said.append(f"{type(ready.estimator).__name__}{which}")
    if said and "num_burnin" in left_out:
        said.append(f"{plan.num_burnin:,} burn-in steps")
    if said and "thin" in left_out and plan.thin > 1:
        said.append(f"one draw every {plan.thin} steps")
    if {"sampler", "num_samples"} <= left_out and plan.num_samples < limits.LIMITS.num_samples:
        said.append(f"only {plan.num_samples} draws per chain, to save memory")
    if "sampler" in left_out and seconds is not None and seconds >= limits.LIMITS.told_from:
        said.append(f"about {in_units(seconds)}")
    return ", ".join(said)


def _warn_of_coarse(log_density: float) -> None:
    """Say that a sampler which compares log densities cannot be exact."""
    _checks.warn(
        f"the log posterior is about {log_density:.2g} at its mode, and 32-bit numbers of this size are "
        "further apart than the changes of the log posterior that this sampler must tell apart: it is slow and not "
        "exact. Check the scale of the errors (a model whose errors are far smaller than those of the data has such a "
        'log likelihood), leave `sampler` out, or pass precision="float64".'
    )
