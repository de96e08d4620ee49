"""The path of every new run from its request to the first step: decide, set up, measure, decide again, adapt."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import TYPE_CHECKING, Any, cast

from scirocco import _checks
from scirocco.estimators import Estimator
from scirocco.run import setup
from scirocco.run.choose import adaptation, limits, methods, set_up
from scirocco.run.choose.decide import Again, Asked, Choice, batches_seconds, decide
from scirocco.run.choose.measure import Measured, after, measure
from scirocco.run.choose.methods import default_thin
from scirocco.run.progress import in_units
from scirocco.run.setup import Problem, Ready
from scirocco.samplers import Sampler
from scirocco.samplers.preconditioned import core_of

if TYPE_CHECKING:
    from scirocco.run.request import Request


def prepared(request: Request, say: Callable[[str], object] = str) -> tuple[Request, Problem, Ready]:
    """The set-up, unless it was made elsewhere, and the request with what was chosen for it.

    `say` gets the line about the choice before anything takes long.
    """
    if request.ready is not None:
        return _completed(request, request.ready), _composed(request, request.ready), request.ready
    asked = asked_of(request)
    request, problem, ready, measured, choice = _chosen(request, asked)
    request = _completed(request, ready)
    report = _report(request, ready, asked, measured, choice)
    say(report.get("chosen", ""))
    if request.sampler.needs.trajectory and request.sampler.is_open:
        problem, ready = adaptation.adapt(problem, ready, request.plan, request.params)
    elif "sampler" in request.left_out:
        ready = adaptation.spread_out(problem, ready, request.plan)
    return request, problem, ready._replace(report=report | ready.report)


def asked_of(request: Request) -> Asked:
    """What the user has named."""
    named, plan = {"sampler", "estimator"} - request.left_out, request.plan
    return Asked(
        sampler="sampler" in named,
        estimator="estimator" in named,
        exact="estimator" not in named or request.estimator.traits.is_exact,
        num_chains=plan.num_chains,
        num_samples=plan.num_samples,
        thin=None if "thin" in request.left_out else plan.thin,
    )


def _composed(request: Request, ready: Ready) -> Problem:
    method = ready.sampler, ready.estimator
    return setup.compose(request.model, request.source, *method, request.plan.seed, request.devices)


def _chosen(request: Request, asked: Asked) -> tuple[Request, Problem, Ready, Measured, Choice]:
    """The method that stays, set up; what was measured, and the choice with the limit that decided it."""
    params, key = request.params, request.plan.key
    measured = measure(request.model, request.source, params, request.devices)
    verdict = decide(asked, measured, limits.LIMITS)
    because, problem, ready = "", cast(Problem, None), cast(Ready, None)
    while isinstance(verdict, Again):
        choice, report = verdict.choice, dict[str, Any]()
        because = choice.because
        if measured.method:  # the first was chosen with the request
            method = methods.method_for(choice.method, request.model, request.source, params, request.devices)
            request = request._replace(sampler=method[0], estimator=method[1])
        if verdict.at_mode:
            mode = request.model.constrain(ready.start.position)
            request, report = request._replace(params=mode), {"roundness": measured.roundness}
        problem, ready = _set_up(request, asked, near_mode=verdict.at_mode)
        ready = ready._replace(report=ready.report | report)
        request = request._replace(params=params)
        measured = after(measured, choice.method, problem, ready, key)
        verdict = decide(asked, measured, limits.LIMITS)
    if ready.estimator.traits.is_exact and not request.estimator.traits.is_exact:  # rows in their own order
        problem = _composed(request, ready)
    if request.sampler.needs.trajectory and measured.rounding > limits.LIMITS.coarse:
        warn_of_coarse(ready.report["log_density"])
    return request, problem, ready, measured, Choice(verdict.method, because, verdict.seconds)


def _set_up(request: Request, asked: Asked, near_mode: bool) -> tuple[Problem, Ready]:
    plan, method = request.plan, (request.sampler, request.estimator)
    return set_up.prepare(
        setup.compose(request.model, request.source, *method, plan.seed, request.devices),
        request.params,
        num_steps=plan.num_steps,
        num_chains=plan.num_chains,
        key=plan.key,
        free=asked.free and request.devices is None,
        near_mode=near_mode,
    )


def _completed(request: Request, ready: Ready) -> Request:
    """With the lengths and the estimator that follow from the set-up."""
    plan, left_out = request.plan, request.left_out
    if "num_burnin" in left_out and ("sampler" in left_out or ready.sampler.known.is_exact):
        plan = plan._replace(num_burnin=methods.default_burnin(ready.sampler, ready.thin))
    if {"sampler", "thin"} <= left_out:
        plan = plan._replace(thin=methods.default_thin(ready.sampler, ready.thin))
    estimator = ready.estimator if "estimator" in left_out else request.estimator
    return request._replace(plan=plan, estimator=estimator)


def _report(
    request: Request, ready: Ready, asked: Asked, measured: Measured, choice: Choice
) -> dict[str, Any]:
    """The choice in words and in numbers, for `run.preparation`; empty if nothing was chosen."""
    plan, seconds = request.plan, choice.seconds
    if choice.method == "scaled":
        rows = request.source.num_rows
        batch = rows if ready.estimator.traits.is_exact else 2 * ready.estimator.batching(rows).size
        seconds = batches_seconds(asked, measured, plan.num_steps, batch)
    line = explain(
        request.sampler,
        ready.estimator,
        plan.num_burnin,
        plan.thin,
        request.source.num_rows,
        request.left_out,
        on_mesh=request.devices is not None,
        num_samples=plan.num_samples,
        unit=request.source.unit,
        seconds=seconds,
    )
    if not line:
        return {}
    report: dict[str, Any] = {"chosen": line, "left_out": sorted(request.left_out)}
    if not asked.sampler:
        report |= {"because": choice.because, "measured": measured.report()}
    if not asked.sampler and seconds is not None:
        report["predicted_seconds"] = seconds
    return report


def warn_of_coarse(log_density: float) -> None:
    """Say that a sampler which compares log densities cannot be exact."""
    _checks.warn(
        f"the log posterior is about {log_density:.2g} at its mode, and 32-bit numbers of this size are "
        "further apart than the changes of the log posterior that this sampler must tell apart: it is slow and not "
        "exact. Check the scale of the errors (a model whose errors are far smaller than those of the data has such a "
        "log likelihood), leave `sampler` out, or use 64-bit numbers (JAX_ENABLE_X64=1)."
    )


def explain(
    sampler: Sampler,
    estimator: Estimator,
    num_burnin: int,
    thin: int,
    num_rows: int,
    left_out: Set[str],
    on_mesh: bool = False,
    num_samples: int = limits.LIMITS.num_samples,
    unit: str = "rows",
    seconds: float | None = None,
) -> str:
    """What was chosen for the user, in one line; empty when nothing was."""
    said = []
    if "sampler" in left_out:
        each = {"diagonal": " one by one", "low_rank": " one by one and along correlated directions"}
        how = each.get(sampler.needs.metric, "")
        where = f" in coordinates scaled{how} at the mode" if sampler.needs.metric != "none" else ""
        if not where and default_thin(sampler, None) > 1:
            where = (
                " (the posterior is far from Gaussian: predictions can be averaged, single parameters cannot)"
            )
        said.append(f"{type(core_of(sampler)).__name__}{where}")
    if "estimator" in left_out:
        size = estimator.batching(num_rows).size
        every = "the only row" if (size, unit) == (1, "rows") else f"all {size:,} {unit}"
        which = f" ({every} at every step)" if estimator.traits.is_exact else f" of {size:,} {unit}"
        fixed = (
            " (not chosen: the batch size on a mesh is fixed)"
            if on_mesh and not estimator.traits.is_exact
            else ""
        )
        said.append(f"{type(estimator).__name__}{which}{fixed}")
    if said and "num_burnin" in left_out:
        said.append(f"{num_burnin:,} burn-in steps")
    if said and "thin" in left_out and thin > 1:
        said.append(f"one draw every {thin} steps")
    if {"sampler", "num_samples"} <= left_out and num_samples < limits.LIMITS.num_samples:
        said.append(f"only {num_samples} draws per chain, to save memory")
    if "sampler" in left_out and seconds is not None and seconds >= limits.LIMITS.told_from:
        said.append(f"about {in_units(seconds)}")
    return ", ".join(said)
