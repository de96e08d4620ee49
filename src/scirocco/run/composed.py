"""What chains are made of, and what drives them, whatever they run on."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from scirocco import _tree
from scirocco.data import Devices
from scirocco.model import Posterior
from scirocco.run.keeping import HostChunk, Keeping
from scirocco.run.loop import KernelState
from scirocco.run.setup import Ready
from scirocco.types import Key, Params, PyTree

_BUFFER_BYTES = 1 << 25
_MAX_CAPACITY = 8_192


CHAIN_AXES: Any = KernelState._make((0, 0, 0, None, 0, 0))
"""For `vmap` over chains: the step number is common to all, so that branches on it stay branches."""


class Composed(NamedTuple):
    """What chains are made of."""

    model: Posterior
    ready: Ready
    num_chains: int
    key: Key
    keeping: Keeping
    devices: Devices | None = None
    """A mesh, where one was given."""
    first_chain: int = 0
    """Number of the first chain: what is random about a chain follows from its number."""

    @property
    def numbers(self) -> range:
        """Of the chains."""
        return range(self.first_chain, self.first_chain + self.num_chains)


class Chains(Protocol):
    """Anything that advances all chains together."""

    capacity: int
    first_density: Any
    """The log density of the first state, as far as it was looked at."""

    @property
    def first_gradient(self) -> PyTree:
        """The gradient of the current state of the first chain, or of all."""

    @property
    def first_state(self) -> KernelState:
        """The current state of the first chain."""

    def advance(self, num_steps: int, thin: int) -> HostChunk:
        """Make steps in every chain and bring what is kept of their draws to the host."""

    def save(self) -> dict[str, np.ndarray]:
        """Everything needed to go on, leaves with a leading chain axis."""

    def reduced(self) -> PyTree:
        """The reducers' states, leaves with a leading chain axis."""

    def close(self) -> None:
        """Release threads."""


def buffer_capacity(position: Params, keep_gradients: bool, num_chains: int) -> int:
    """How many draws of so many chains are kept on the device before they are brought to the host."""
    per_draw = _tree.nbytes(position) * (2 if keep_gradients else 1) * num_chains + 16
    return max(1, min(_MAX_CAPACITY, _BUFFER_BYTES // per_draw))
