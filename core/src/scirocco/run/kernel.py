"""Step-by-step interface: a sampler, an estimator, a model and data, composed into `init` and `step`."""

from __future__ import annotations

from typing import Any

import numpy as np

from scirocco import _programs
from scirocco.estimators import Estimator
from scirocco.model import Posterior
from scirocco.run import setup
from scirocco.run.choose import set_up
from scirocco.run.loop import Info, KernelState
from scirocco.run.streaming import StreamedParts, start_compiled, start_streamed, step_compiled, step_streamed
from scirocco.samplers import Sampler
from scirocco.types import Data, Key, Params


class Kernel:
    """One chain that you advance yourself, step by step.

    `kernel.init(key, params)` makes the first state (control variates find the mode and start there);
    `kernel.step(key, state)` makes one step with fresh randomness from `key`. `sc.sample` runs the same steps in a
    compiled loop: its first chain starts as `kernel.init(jax.random.key(seed), params)`, and its step m uses the key
    `step_key(state.noise_key, m)` (in `scirocco.run.loop`).

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)
    >>> kernel = sc.Kernel(model, jnp.ones(100), sc.SGLD(step_size=1e-3), sc.Minibatch(batch_size=10))
    >>> state = kernel.init(jax.random.key(0), jnp.array(0.0))
    >>> state, info = kernel.step(jax.random.key(1), state)
    >>> int(info.code), kernel.position(state).shape
    (0, ())
    """

    def __init__(self, model: Posterior, data: Data, sampler: Sampler, estimator: Estimator, *, seed: int = 0):
        _programs.begin()
        self.problem = setup.compose(model, data, sampler, estimator, seed)
        self.model = self.problem.model
        self.preparation: dict[str, Any] = {}
        self._streamed: StreamedParts | None = None

    def init(self, key: Key, params: Params) -> KernelState:
        """Return the state before the first step."""
        self.problem, ready = set_up.prepare(self.problem, params, num_steps=1, num_chains=1, key=key)
        self.preparation = ready.report
        parts, table = self.problem.parts, self.problem.table
        if table.streamed:
            state, density, self._streamed = start_streamed(self.model, parts, table, ready.start, key, 0)
        else:
            state, density = start_compiled(self.model, parts, ready.start, key, np.int32(0))
        setup.check_first(self.problem, params, density, state.gradient.total)
        return state

    def step(self, key: Key, state: KernelState) -> tuple[KernelState, Info]:
        """Make one step; `state` remains usable."""
        if self._streamed is not None:
            return step_streamed(self.model, self._streamed, state, key)
        return step_compiled(self.model, self.problem.parts, state, key)

    def position(self, state: KernelState) -> Params:
        """The current parameters, in the units of the user."""
        return self.model.constrain(state.sampler.position)
