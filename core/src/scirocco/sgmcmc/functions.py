"""R's six functions: a whole chain in one call. Their arguments are explained in `scirocco.sgmcmc`.

Each function turns its arguments into a job; `whole_chain` samples from the job, and `step_by_step` turns it into
R's set-up.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from scirocco import _checks
from scirocco.errors import DivergenceError, InvalidTypeError, InvalidValueError
from scirocco.estimators import ControlVariates
from scirocco.run import Kernel, Run, sample
from scirocco.run.loop import KernelState, step_key
from scirocco.sgmcmc.arguments import (
    ChainJob,
    Descent,
    NamedArrays,
    PerParameter,
    both_spellings,
    compose,
    hamiltonian,
    langevin,
    thermostat,
)
from scirocco.types import LogLikelihood, LogPrior, Params

_FAR_FROM_MODE = 3.0  # posterior standard deviations


def whole_chain(job: Callable[..., ChainJob]) -> Callable[..., dict[str, np.ndarray]]:
    """The chain of a job, in either spelling of its arguments, among them `nIters`."""
    signature = inspect.signature(job)

    @both_spellings
    @functools.wraps(job)
    def drawn(*args: Any, **kwargs: Any) -> dict[str, np.ndarray]:
        made, given = job(*args, **kwargs), signature.bind(*args, **kwargs)
        given.apply_defaults()
        return draw(made, given.arguments["nIters"])

    drawn.__signature__ = signature.replace(return_annotation="dict[str, np.ndarray]")  # type: ignore[attr-defined]
    drawn.job = job  # type: ignore[attr-defined]
    return drawn


def draw(job: ChainJob, nIters: int) -> dict[str, np.ndarray]:
    """The whole chain, without the chain axis, in the order of the user's dict."""
    num_iters = _checks.positive_int(nIters, "nIters")
    try:
        run = sample(
            job.model,
            job.data,
            job.params,
            sampler=job.sampler,
            estimator=job.estimator,
            num_samples=num_iters,
            thin=job.inner,
            seed=job.seed,
            progress=job.verbose,
        )
    except DivergenceError as error:
        raise diverged(job, error.step, error.run) from error
    if run.draws is None:  # interrupted before the first draw: there is nothing to return
        raise KeyboardInterrupt
    warn_of_distance(job, run.preparation)
    return {name: run.draws[name][0] for name in job.params}


def diverged(job: ChainJob, step: int, run: Run | None = None) -> DivergenceError:
    """The error in R's terms: the advice of the run itself is about ε, not about h or η."""
    kept = " The draws before it are in `error.run.draws` (with a chain axis in front)." if run is not None else ""
    return DivergenceError(
        f"{job.name}: the chain diverged (NaN, inf or far too wide) in iteration {step // job.inner + 1}. The "
        "stepsize is probably too large: divide it by 10 (repeatedly if necessary), standardise the data, or let "
        f"scirocco choose: sc.sample(model, data, params, sampler=sc.{type(job.sampler).__name__}()).{kept}",
        run=run,
        step=step,
    )


def warn_of_distance(job: ChainJob, report: dict[str, Any]) -> None:
    """Warn if the user's gradient descent stopped far from the mode: control variates then reduce little noise."""
    distance = report.get("distance_to_mode_in_sd", 0.0)
    if isinstance(job.estimator, ControlVariates) and job.estimator.optimizer is not None and distance > _FAR_FROM_MODE:
        _checks.warn(
            f"{job.name}: the optimisation stopped about {distance:.1f} posterior standard deviations from the mode, "
            "so the control variates help little. Change `optStepsize`, raise `nItersOpt`, or omit `optStepsize`."
        )


@whole_chain
def sgld(
    logLik: LogLikelihood,
    dataset: NamedArrays,
    params: NamedArrays,
    stepsize: PerParameter,
    logPrior: LogPrior | None = None,
    minibatchSize: float = 0.01,
    nIters: int = 10_000,
    verbose: bool = True,
    seed: int | None = None,
) -> ChainJob:
    """Stochastic gradient Langevin dynamics: θ' = θ + (h/2) ĝ(θ) + N(0, h), with h the `stepsize`.

    The same chain as `sc.sample` with `sc.SGLD(h / 2)` and `sc.Minibatch`. The arguments are explained in
    `scirocco.sgmcmc`; R draws independent rows for each step, here they come in shuffled blocks.

    Returns
    -------
    dict
        An array (nIters, ...) for each parameter.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np
    >>> from scirocco import sgmcmc
    >>> def log_lik(params, dataset):
    ...     return jnp.sum(-0.5 * (dataset["x"] - params["theta"]) ** 2)
    >>> x = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    >>> output = sgmcmc.sgld(log_lik, {"x": x}, {"theta": 0.0}, 1e-4, nIters=500, verbose=False, seed=13)
    >>> output["theta"].shape
    (500,)
    """
    return compose("sgld", langevin(stepsize), logLik, dataset, params, logPrior, minibatchSize, verbose, seed)


@whole_chain
def sghmc(
    logLik: LogLikelihood,
    dataset: NamedArrays,
    params: NamedArrays,
    stepsize: PerParameter,
    logPrior: LogPrior | None = None,
    minibatchSize: float = 0.01,
    alpha: PerParameter | None = 0.01,
    L: int = 5,
    nIters: int = 10_000,
    verbose: bool = True,
    seed: int | None = None,
) -> ChainJob:
    """Stochastic gradient Hamiltonian Monte Carlo: L steps of ν' = (1-α)ν + η ĝ + N(0, 2αη), θ' = θ + ν' per iteration.

    The same chain as `sc.sample` with `sc.SGHMC.from_r(stepsize, alpha, L)` and `thin=L`. R's α = 0.01 is far too small
    for the gradient noise of most models: a warning then says by how much the variance will be too large, and
    `alpha=None` sets it from the measured noise. The kick after a new momentum is halved, as in leapfrog; R's full kick
    would shrink the variance by about L/(L+1), for any step size.
    The arguments are explained in `scirocco.sgmcmc`.
    """
    method = hamiltonian(stepsize, alpha, L)
    return compose("sghmc", method, logLik, dataset, params, logPrior, minibatchSize, verbose, seed)


@whole_chain
def sgnht(
    logLik: LogLikelihood,
    dataset: NamedArrays,
    params: NamedArrays,
    stepsize: PerParameter,
    logPrior: LogPrior | None = None,
    minibatchSize: float = 0.01,
    a: PerParameter | None = 0.01,
    nIters: int = 10_000,
    verbose: bool = True,
    seed: int | None = None,
) -> ChainJob:
    """Stochastic gradient Nosé–Hoover thermostat, with a thermostat for each array of parameters.

    The same chain as `sc.sample` with `sc.SGNHT.from_r(stepsize, a)`. The arguments are explained in `scirocco.sgmcmc`.
    """
    method = thermostat(stepsize, a)
    return compose("sgnht", method, logLik, dataset, params, logPrior, minibatchSize, verbose, seed)


@whole_chain
def sgldcv(
    logLik: LogLikelihood,
    dataset: NamedArrays,
    params: NamedArrays,
    stepsize: PerParameter,
    optStepsize: float | None = None,
    logPrior: LogPrior | None = None,
    minibatchSize: float = 0.01,
    nIters: int = 10_000,
    nItersOpt: int | None = None,
    verbose: bool = True,
    seed: int | None = None,
) -> ChainJob:
    """SGLD with control variates: finds the mode, starts there, and corrects every gradient by the one at the mode.

    `optStepsize` and `nItersOpt` are R's gradient descent to the mode; without `optStepsize` the mode is found with no
    tuning. The arguments are explained in `scirocco.sgmcmc`.
    """
    method, descent = langevin(stepsize), Descent(optStepsize, nItersOpt)
    return compose("sgldcv", method, logLik, dataset, params, logPrior, minibatchSize, verbose, seed, descent)


@whole_chain
def sghmccv(
    logLik: LogLikelihood,
    dataset: NamedArrays,
    params: NamedArrays,
    stepsize: PerParameter,
    optStepsize: float | None = None,
    logPrior: LogPrior | None = None,
    minibatchSize: float = 0.01,
    alpha: PerParameter | None = 0.01,
    L: int = 5,
    nIters: int = 10_000,
    nItersOpt: int | None = None,
    verbose: bool = True,
    seed: int | None = None,
) -> ChainJob:
    """SGHMC with control variates: `sghmc` with the gradient estimate of `sgldcv`."""
    method, descent = hamiltonian(stepsize, alpha, L), Descent(optStepsize, nItersOpt)
    return compose("sghmccv", method, logLik, dataset, params, logPrior, minibatchSize, verbose, seed, descent)


@whole_chain
def sgnhtcv(
    logLik: LogLikelihood,
    dataset: NamedArrays,
    params: NamedArrays,
    stepsize: PerParameter,
    optStepsize: float | None = None,
    logPrior: LogPrior | None = None,
    minibatchSize: float = 0.01,
    a: PerParameter | None = 0.01,
    nIters: int = 10_000,
    nItersOpt: int | None = None,
    verbose: bool = True,
    seed: int | None = None,
) -> ChainJob:
    """SGNHT with control variates: `sgnht` with the gradient estimate of `sgldcv`."""
    method, descent = thermostat(stepsize, a), Descent(optStepsize, nItersOpt)
    return compose("sgnhtcv", method, logLik, dataset, params, logPrior, minibatchSize, verbose, seed, descent)


# -- step by step --------------------------------------------------------------------------------------------


class Session:
    """A running chain: R's TensorFlow session. Several may be open for one set-up."""

    def __init__(self, owner: Setup, state: KernelState):
        self.owner = owner
        self.state = state


class Setup:
    """The result of `sgld_setup` and the other set-up functions: R's sgmcmc object.

    Attributes
    ----------
    params
        The current parameters (before `init_sess`: the starting ones), for `logLik` or a test function.
    N, n
        Rows in the data set; rows per step.
    session
        The session that was opened last, which is the default.
    """

    def __init__(self, job: ChainJob):
        self.job = job
        self.kernel = Kernel(job.model, job.data, job.sampler, job.estimator, seed=job.seed)
        self.session: Session | None = None
        self.N: int = job.data.num_rows
        self.n: int = job.estimator.batching(self.N).size

    @property
    def params(self) -> Params:
        """The current parameters as JAX arrays."""
        return self.job.params if self.session is None else self.kernel.position(self.session.state)

    def __repr__(self) -> str:
        steps = (
            "not started"
            if self.session is None
            else f"{int(self.session.state.number) // self.job.inner} iterations made"
        )
        return f"Setup({self.job.name}: {self.n} of {self.N} rows per step, {steps})"


def init_sess(sgmcmc: Setup, verbose: bool = True) -> Session:
    """Start (or restart) the chain of a set-up; with control variates this finds the mode first.

    The chain is the same as that of the function of the same name with that seed.
    """
    setup = _check_setup(sgmcmc)
    key = jax.random.key(setup.job.seed)
    setup.session = Session(setup, setup.kernel.init(key, setup.job.params))
    report = setup.kernel.preparation
    warn_of_distance(setup.job, report)
    if verbose and "distance_to_mode_in_sd" in report:
        print(
            f"{setup.job.name}: mode found in {report['passes']:.1f} passes over the data, log posterior "
            f"{report['log_density']:.6g}"
        )
    return setup.session


def sgmcmc_step(sgmcmc: Setup, sess: Session | None = None) -> None:
    """One iteration (for `sghmc` that is L steps) of the session, by default of the one opened last."""
    setup, session = _check_setup(sgmcmc), _session(sgmcmc, sess)
    state = session.state
    for _ in range(setup.job.inner):
        state, info = setup.kernel.step(_step_key(state.noise_key, state.number), state)
        if int(info.code):
            raise diverged(setup.job, int(session.state.number))
    session.state = state


_step_key = jax.jit(step_key)


def get_params(sgmcmc: Setup, sess: Session | None = None) -> dict[str, np.ndarray]:
    """The current parameters as NumPy arrays, in a dict like `params`."""
    setup, session = _check_setup(sgmcmc), _session(sgmcmc, sess)
    position = setup.kernel.position(session.state)
    return {name: np.asarray(position[name]) for name in setup.job.params}


def _check_setup(sgmcmc: object) -> Setup:
    if not isinstance(sgmcmc, Setup):
        raise InvalidTypeError(
            f"the first argument must be the result of sgld_setup (or another set-up function), got {sgmcmc!r}."
        )
    return sgmcmc


def _session(setup: Setup, sess: Session | None) -> Session:
    session = setup.session if sess is None else sess
    if session is None:
        raise InvalidValueError("there is no session yet: call sess = init_sess(...) with the set-up first.")
    if not isinstance(session, Session):
        raise InvalidTypeError(f"`sess` must be the result of init_sess, got {sess!r}.")
    if session.owner is not setup:
        raise InvalidValueError(f"`sess` belongs to another set-up ({session.owner!r}), not to this {setup!r}.")
    return session


def step_by_step(function: Any) -> Callable[..., Setup]:
    """The set-up of one of R's functions: its arguments without `nIters`, in R's order (which has no `verbose`)."""
    signature = inspect.signature(function)
    kept = [parameter for name, parameter in signature.parameters.items() if name != "nIters"]
    if "optStepsize" not in signature.parameters:
        kept.sort(key=lambda parameter: parameter.name == "verbose")
    ours = signature.replace(parameters=kept, return_annotation="Setup")

    def made(*args: Any, **kwargs: Any) -> Setup:
        return Setup(function.job(**ours.bind(*args, **kwargs).arguments))

    made.__name__ = made.__qualname__ = f"{function.__name__}_setup"
    made.__doc__ = f"`{function.__name__}`, to be run step by step. The arguments are explained in `scirocco.sgmcmc`."
    made.__signature__ = ours  # type: ignore[attr-defined]
    return both_spellings(made)


sgld_setup, sghmc_setup, sgnht_setup = map(step_by_step, (sgld, sghmc, sgnht))
sgldcv_setup, sghmccv_setup, sgnhtcv_setup = map(step_by_step, (sgldcv, sghmccv, sgnhtcv))
