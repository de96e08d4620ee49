"""R's step-by-step interface: set up, start a session, step, read. For chains that are too large to store.

>>> import jax.numpy as jnp, numpy as np
>>> from scirocco import sgmcmc
>>> def log_lik(params, dataset):
...     return jnp.sum(-0.5 * (dataset["x"] - params["theta"]) ** 2)
>>> x = np.random.default_rng(0).normal(size=1000).astype(np.float32)
>>> sgld = sgmcmc.sgld_setup(log_lik, {"x": x}, {"theta": 0.0}, stepsize=1e-4, seed=13)
>>> sess = sgmcmc.init_sess(sgld)
>>> for _ in range(10):
...     sgmcmc.sgmcmc_step(sgld, sess)
>>> sgmcmc.get_params(sgld, sess)["theta"].shape
()
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.run import Kernel
from scirocco.run.loop import KernelState, step_key
from scirocco.sgmcmc.arguments import Job, both_spellings
from scirocco.sgmcmc.functions import (
    diverged,
    sghmc,
    sghmccv,
    sgld,
    sgldcv,
    sgnht,
    sgnhtcv,
    warn_of_distance,
)
from scirocco.types import Params


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

    def __init__(self, job: Job):
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
        raise InvalidValueError(
            f"`sess` belongs to another set-up ({session.owner!r}), not to this {setup!r}."
        )
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
    made.__doc__ = (
        f"`{function.__name__}`, to be run step by step. The arguments are explained in `scirocco.sgmcmc`."
    )
    made.__signature__ = ours  # type: ignore[attr-defined]
    return both_spellings(made)


sgld_setup, sghmc_setup, sgnht_setup = map(step_by_step, (sgld, sghmc, sgnht))
sgldcv_setup, sghmccv_setup, sgnhtcv_setup = map(step_by_step, (sgldcv, sghmccv, sgnhtcv))
