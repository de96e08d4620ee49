r"""The collapsed Gibbs sampler, a batch of rows per step: exact, with no truncation and no step size.

Given the labels of all other rows, row i belongs to cluster k with probability proportional to

.. math:: m_k \, f(x_i | \text{rows of } k), \qquad \text{to a new one: } α \, ∫ f(x_i | θ) dG_0(θ).

Labels are stored and the sums of each cluster updated as they change, so the cost of a step depends on the batch size
but not on N. At the end of a pass, splits and merges of clusters are proposed (`_collapsed.split`, `merge`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scirocco.models._core.chain import MixturePurpose
from scirocco_latent.dp.chain import MixtureChain, row_kernels
from scirocco_latent.dp.chain import collapsed_kernels as kernels
from scirocco_latent.dp.families import BaseMeasure
from scirocco_latent.dp.rows import Array, Rows
from scirocco_latent.dp.settings import MixtureSettings, given_partition

_SLOTS = 16
"""The least number of slots for clusters."""
_SETTLED = 20
"""Passes before the first split or merge: early clusters are similar, and most would be merged."""
_SPARSE = 1.25
"""Labels are renumbered at this many slots per cluster."""


class Collapsed(MixtureChain):
    """Labels of the informative rows, and the cluster statistics derived from them.

    Initial labels are uniform over `initial_clusters`.
    """

    def __init__(self, rows: Rows, family: BaseMeasure[Any], settings: MixtureSettings, seed: int, number: int):
        super().__init__(rows, family, settings, seed, number)
        self.data = family.kernel_data(rows)
        self.labels, _ = self._first_labels(min(settings.initial_clusters, rows.num_rows))
        self._members = np.empty(0, np.int64)
        self.moves = np.zeros(2, np.int64)
        """Number of splits and merges proposed and accepted."""
        self._count()

    def _count(self) -> None:
        """Compute cluster statistics from labels."""
        self.used = int(self.labels.max(initial=-1)) + 1
        self._allocate(max(_SLOTS, 2 * self.used))
        kernels().count_all(self.data, self.labels, self.clusters)

    def _allocate(self, capacity: int) -> None:
        self.clusters = self.family.clusters(capacity)
        kernels().clear_all(self.data, self.clusters)
        self._space = np.empty((3, capacity))

    def _grow(self) -> None:
        """Double the number of slots."""
        before = self.clusters
        self._allocate(2 * len(self._space[0]))
        for old, new in zip(before, self.clusters, strict=True):
            if old.shape != new.shape:
                new[..., : old.shape[-1]] = old

    def move(self) -> None:
        """One step; at the end of a pass, splits and merges are proposed."""
        number, part = divmod(self.step, self.steps_a_pass)
        self._move(self.batch(), passes=number, pass_ended=part == self.steps_a_pass - 1)

    def _move(self, batch: Array, *, passes: int, pass_ended: bool) -> None:
        """Draw α, then the labels of a batch of rows; at the end of a pass propose splits and merges."""
        seed = self.words(0)
        rng = np.random.Generator(np.random.Philox(key=np.array(seed, np.uint64)))
        self.alpha = given_partition(
            rng, self.alpha, self.settings.concentration, self.num_clusters, int(self.clusters[0].sum())
        )
        words, place = np.empty(2, np.uint64), 0
        kernels().begin_words(*np.array(seed, np.uint64), words)
        while place < batch.size:
            place, self.used = row_kernels(self.family.kind).sweep(
                batch, place, self.data, self.labels, self.clusters, self.alpha, self.used, self._space, words
            )
            if self.used + 1 >= len(self._space[0]):
                self._grow()
        if pass_ended:
            for _ in range(self.settings.split_merge if passes >= _SETTLED else 0):
                self._split_or_merge(rng, words)
            if self.used > _SPARSE * self.num_clusters + 4:
                self._renumber()

    def _split_or_merge(self, rng: np.random.Generator, words: Array) -> None:
        """One proposal: with probability ½ to split a cluster, otherwise to merge two."""
        occupied = self.occupied
        if self._members.size != self.labels.size:
            self._members = np.empty(self.labels.size, np.int64)
            self._pair = self.family.clusters(2)
        given = (
            *(self.data, self.labels, self._members, self.clusters, self._pair),
            *(self.alpha, self.used, self._space, words),
        )
        if rng.random() < 0.5:
            chosen = int(occupied[rng.integers(occupied.size)])
            self.used, done = kernels().split(chosen, occupied.size, given)
        elif occupied.size > 1:
            left, right = rng.choice(occupied, 2, replace=False)
            self.used, done = kernels().merge(int(left), int(right), occupied.size, given)
        else:
            return
        self.moves += (1, done)
        if self.used + 1 >= len(self._space[0]):
            self._grow()

    def _renumber(self) -> None:
        """Move clusters to the lowest slots: labels are arbitrary, and free slots cost time."""
        occupied = self.occupied
        names = np.full(self.used, -1, np.int32)
        names[occupied] = np.arange(occupied.size)
        self.labels = names[self.labels]
        before = self.clusters
        self._allocate(max(_SLOTS, 2 * occupied.size))
        for old, new in zip(before, self.clusters, strict=True):
            if old.shape[-1] == len(before[0]):
                new[..., : occupied.size] = old[..., occupied]
        self.used = occupied.size

    def take_in(self, rows: Rows) -> None:
        """Add rows without labels: one pass over them, and over as many of the earlier rows."""
        before, self.num_rows = self.num_rows, self.num_rows + rows.num_rows
        self.data = self.family.joined(self.data, self.family.kernel_data(rows))
        self.labels = np.append(self.labels, np.full(rows.num_rows, -1, np.int32))
        rng = np.random.default_rng(list(self.words(MixturePurpose.REFRESH)))
        fresh = before + rng.permutation(rows.num_rows)
        size = self.settings.batch_size
        for first in range(0, len(fresh), size):
            new = fresh[first : first + size]
            for batch in (new, rng.integers(0, before, len(new))):
                ends = first + size >= len(fresh) and batch is not new
                self._move(batch, passes=_SETTLED, pass_ended=ends)
                self.step += 1

    @property
    def occupied(self) -> Array:
        """Slots of clusters that have rows."""
        return np.flatnonzero(self.clusters[0][: self.used])

    @property
    def num_clusters(self) -> int:
        """Number of clusters that have rows."""
        return int(np.count_nonzero(self.clusters[0][: self.used]))

    def draw(self, rng: np.random.Generator) -> tuple[Array, float, dict[str, Array]]:
        """Weights of the clusters and of the rest, ~ Dir(m_1, ..., m_k, α), and their parameters, given the labels."""
        slots = self.occupied
        gammas = rng.standard_gamma(np.append(self.clusters[0][slots].astype(np.float64), self.alpha))
        shares = gammas / gammas.sum()
        return shares[:-1], float(shares[-1]), self.family.draw(rng, self.clusters, slots)

    def state(self) -> dict[str, Array]:
        """Arrays from which `restore` resumes exactly."""
        return {
            "labels": self.labels,
            "concentration": np.array([self.alpha]),
            "moves": self.moves,
            "slots": np.array([len(self._space[0]), self.used], np.int64),
            **{f"cluster{place}": part for place, part in enumerate(self.clusters)},
            **super().state(),
        }

    def restore(self, state: dict[str, Array]) -> None:
        """Restore the state from `state`."""
        self.labels = np.array(state["labels"], np.int32)
        self.alpha = float(state["concentration"][0])
        self.moves = np.array(state["moves"], np.int64)
        capacity, self.used = (int(value) for value in state["slots"])
        self._allocate(capacity)
        for place, part in enumerate(self.clusters):
            part[...] = state[f"cluster{place}"]
        super().restore(state)
