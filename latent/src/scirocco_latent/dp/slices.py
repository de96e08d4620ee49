r"""The slice sampler on the sticks of a Dirichlet process: exact on all rows, stochastic on a batch of them.

One step, given labels z (supplement D.3 of Baker et al. 2018, with ω_j = v_j ∏_{l<j} (1 - v_l)):

1. sticks v_j | z ~ Beta(1 + m_j, α + Σ_{l>j} m_l), as two gamma variables, for j up to the last component with rows;
2. parameters θ_j | z; then α | v ~ Gamma(b₁ + J, b₂ - Σ_{j<=J} log(1 - v_j));
3. slices u_i ~ U(0, ω_{z_i}) of the batch, and components from the prior until the rest of the stick is below all u_i;
4. z_i for the rows of the batch, ∝ f(x_i | θ_j) over ω_j > u_i.

`gibbs`: the batch is all rows, and 1 and 2 are exact draws. The stochastic samplers move the variables of 1 and 2 by
a step of SCIR, SCIR-CV or SGRLD with these distributions as targets; m_j and the sums of θ_j are either kept for all
rows, and then exact, or estimated by N/n times those of the batch, as in the paper.

After a small step, a gamma variable still depends on the sum that normalised it, and that sum depends on labels that
have changed since. With kept counts the sums are redrawn before each step: then SCIR is exact for any step size.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from scirocco._adjustable import Adjustable
from scirocco.diffusions.host._threads import run_blocks
from scirocco.errors import InvalidValueError
from scirocco.models._core.chain import MixturePurpose
from scirocco.samplers.schedules import Schedule
from scirocco.simplex import tables
from scirocco_latent.dp.chain import MixtureChain, collapsed_kernels, row_kernels
from scirocco_latent.dp.chain import slice_kernels as kernels
from scirocco_latent.dp.families import BaseMeasure
from scirocco_latent.dp.rows import Array, Rows
from scirocco_latent.dp.settings import Gamma, MixtureSettings

if TYPE_CHECKING:
    from scirocco_latent.dp.sharded import LabelShards


@dataclass
class SliceSizes(Adjustable):
    """From which sizes on threads are used."""

    threaded: int = 20_000
    """Numbers to draw, below which threads cost more than they save."""


SLICING = SliceSizes()
_TOO_MANY = 1 << 16  # components: the step size is too long


class Slices(MixtureChain):
    """Labels of the informative rows, sticks and components.

    Initial labels are uniform over `initial_clusters`; sticks and components are from the prior. `labelling` draws the
    labels of a batch on workers (`sharded.Shards`); None: they are drawn in this process.
    """

    def __init__(
        self,
        rows: Rows,
        family: BaseMeasure[Any],
        settings: MixtureSettings,
        seed: int,
        number: int,
        labelling: LabelShards | None = None,
    ):
        super().__init__(rows, family, settings, seed, number)
        self._labelling = labelling
        self.data = family.kernel_data(rows)
        self.keeps = settings.counts == "kept"
        prior = settings.concentration
        self._prior = np.array(prior if isinstance(prior, Gamma) else (0.0, 1.0))
        self._steps = [
            None if schedule is None else StepSizes(schedule)
            for schedule in (settings.stick_step_size, settings.step_size)
        ]
        self.num = settings.initial_clusters
        """Number of components up to the last one that has rows."""
        self.labels, rng = self._first_labels(self.num)
        self._allocate(2 * self.num + 8)
        if self.keeps:
            collapsed_kernels().count_all(self.data, self.labels, self.clusters)
        else:
            self.clusters[0][: self.num] = np.bincount(self.labels, minlength=self.num)
        words = rng.integers(0, 1 << 63, 4, dtype=np.uint64)
        kernels().extend(
            *(self.data, self.sticks, self.weights, self.parameters, self.clusters),
            *(0, 1.0, 0.0, self.alpha, words[:2], words[2:]),
        )

    def _allocate(self, capacity: int) -> None:
        """Allocate `capacity` free components."""
        self.clusters = self.family.clusters(capacity)
        self.batch_counts = self.clusters if self.keeps else self.family.clusters(capacity)
        size = capacity if self.settings.sampler == "scir_cv" else 1
        self.reference, self._counted = self.family.clusters(size), self.family.clusters(size)
        for free in (self.clusters, self.batch_counts, self.reference, self._counted):
            collapsed_kernels().clear_all(self.data, free)
        self.sticks = np.ones((capacity, 2))
        self.weights = np.zeros(capacity)
        self.parameters = self.family.parameter_arrays(capacity)

    def _grow(self) -> None:
        """Double the capacity."""
        before = (*(self.clusters, self.reference, self._counted, self.parameters), *(self.sticks, self.weights))
        capacity = len(self.weights)
        if capacity >= _TOO_MANY:
            advice = "a smaller step size" if self._steps[1] else 'sampler="collapsed"'
            raise InvalidValueError(
                f"the slice sampler needs more than {capacity:,} components, with α = {self.alpha:.3g}: use "
                f"{advice}, or a prior with a smaller concentration."
            )
        self._allocate(2 * capacity)
        after = (self.clusters, self.reference, self._counted, self.parameters)
        for olds, news in zip(before[:4], after, strict=True):
            for old, new in zip(olds, news, strict=True):
                if old.shape != new.shape:
                    new[..., : old.shape[-1]] = old
        self.sticks[:capacity], self.weights[:capacity] = before[4:]

    def move(self) -> None:
        """One step; SCIR-CV takes a new reference if one is due."""
        batch, refresh = self.batch(), None
        if self.settings.sampler == "scir_cv" and self.step % self.settings.refresh_every == 0:
            refresh = self.some_rows(0, self.settings.refresh_size, self.step, MixturePurpose.REFRESH)
        seeds = np.array([self.words(purpose) for purpose in range(7)], np.uint64)
        scale, reference_scale = 1.0, self.labels.size / self.settings.refresh_size
        if not self.keeps:
            scale = self.labels.size / batch.size
            row_kernels(self.family.kind).tally(batch, self.data, self.labels, self.batch_counts, self.num)
        (by_sticks, stick_step), how = (self._method(sizes) for sizes in self._steps)
        if refresh is not None:
            self._refer(refresh, scale, how[1])
        reference = self.reference if self.settings.sampler == "scir_cv" else self.batch_counts
        self.move_components(scale, reference, reference_scale, how, seeds[3])
        bounds = np.empty(batch.size)
        self.alpha, rest, lowest = kernels().given_labels(
            *(batch, self.labels, self.sticks, self.weights, bounds),
            *(self.batch_counts[0], scale, self.clusters[0], self.num),
            *(self.alpha, self._prior, by_sticks, stick_step, self.keeps, seeds[:3]),
        )
        known = self.num
        while True:
            known, rest = kernels().extend(
                *(self.data, self.sticks, self.weights, self.parameters, self.clusters),
                *(known, rest, lowest, self.alpha, seeds[4], seeds[5]),
            )
            if rest < lowest:
                break
            self._grow()
        if self.settings.sampler == "scir_cv":  # new components have no reference yet
            for part in (self.reference, self._counted):
                kernels().forget(self.data, part, self.num, known)
        self._label(batch, bounds, known, seeds[6])

    def _refer(self, rows: Array, scale: float, step: float) -> None:
        """Count the rows of a new reference; categories without control have no counts in it."""
        factor, before = self.labels.size / rows.size, self._counted[2].copy()
        row_kernels(self.family.kind).tally(rows, self.data, self.labels, self._counted, len(self.weights))
        counts = self._counted[2]
        kept = tables.controlling(factor * counts, factor * before, self._counted[3][0], factor, scale, step)
        self.reference[0][...], self.reference[1][...] = self._counted[0], self._counted[1]
        self.reference[2][...] = np.where(kept > 0, counts, 0)

    def move_components(
        self, scale: float, reference: tuple[Array, ...], reference_scale: float, how: tuple[int, float], seed: Array
    ) -> None:
        """Move the parameters given labels."""
        num, coordinates = self.num, self.family.width
        if self.keeps and how[0] != tables.METHODS["gibbs"]:
            kernels().rescale_components(self.data, self.parameters, self.clusters, num, seed)
        known = (self.batch_counts, scale, reference, reference_scale)
        given = (self.data, self.parameters, known, (num, *how, seed))
        if coordinates * num > SLICING.threaded:
            work = functools.partial(kernels().move_components, *given)
            run_blocks(work, coordinates, self.settings.num_threads)
            kernels().settle_components(self.data, self.parameters, 0, num)
        else:
            kernels().move_all_components(*given, coordinates)

    def _method(self, sizes: StepSizes | None) -> tuple[int, float]:
        """Method and step size; without a step size, an exact draw."""
        if sizes is None:
            return tables.METHODS["gibbs"], 1.0
        return tables.METHODS[self.settings.sampler], sizes(self.step)

    def _label(self, batch: Array, bounds: Array, known: int, seed: Array) -> None:
        if self._labelling is None:
            chosen = self._drawn(batch, bounds, known, seed)
        else:
            chosen = self._labelling.draw(batch, self.labels, bounds, self.parameters, self.weights, known, seed)
        self.num = kernels().relabel(batch, self.data, self.labels, chosen, self.clusters, self.keeps)

    def _drawn(self, batch: Array, bounds: Array, known: int, seed: Array) -> Array:
        """Labels of a batch, drawn in this process."""
        chosen = np.empty(batch.size, np.int32)
        work = functools.partial(
            row_kernels(self.family.kind).allocate,
            *(batch, self.data, self.parameters, self.weights, bounds, self.labels, chosen, known, seed),
        )
        blocks = -(-batch.size // kernels().BLOCK)
        if blocks * kernels().BLOCK * known > SLICING.threaded:
            run_blocks(work, blocks, self.settings.num_threads)
        else:
            work(0, blocks)
        return chosen

    @property
    def num_clusters(self) -> int:
        """Number of components that have rows."""
        return int(np.count_nonzero(self.clusters[0][: self.num]))

    def draw(self, rng: np.random.Generator) -> tuple[Array, float, dict[str, Array]]:
        """The current weights of the components that have rows and of the rest, and their parameters."""
        kernels().weigh_sticks(self.sticks, self.weights, self.num)
        occupied = np.flatnonzero(self.clusters[0][: self.num])
        weights = self.weights[occupied].copy()
        rest = max(0.0, 1.0 - float(weights.sum()))
        return weights, rest, self.family.named(self.parameters, occupied)

    def state(self) -> dict[str, Array]:
        """Arrays from which `restore` resumes exactly."""
        parts = {
            "cluster": self.clusters,
            "reference": self.reference,
            "counted": self._counted,
            "parameter": self.parameters,
        }
        return {
            "labels": self.labels,
            "concentration": np.array([self.alpha]),
            "slots": np.array([len(self.weights), self.num], np.int64),
            "sticks": self.sticks,
            **{f"{name}{place}": part for name, some in parts.items() for place, part in enumerate(some)},
            **super().state(),
        }

    def restore(self, state: dict[str, Array]) -> None:
        """Restore the state from `state`."""
        capacity, self.num = (int(value) for value in state["slots"])
        self._allocate(capacity)
        self.labels = np.array(state["labels"], np.int32)
        self.alpha = float(state["concentration"][0])
        self.sticks[...] = state["sticks"]
        parts = {
            "cluster": self.clusters,
            "reference": self.reference,
            "counted": self._counted,
            "parameter": self.parameters,
        }
        for name, some in parts.items():
            for place, part in enumerate(some):
                part[...] = state[f"{name}{place}"]
        super().restore(state)


# -- step sizes on the host


_AHEAD = 1024  # step sizes that are computed together


class StepSizes:
    """Values of a schedule, computed in blocks: a single call costs as much as a step of a chain."""

    def __init__(self, schedule: Schedule):
        self.schedule = schedule
        self._first, self._known = -1, np.empty(0)

    def __call__(self, step: int) -> float:
        """The step size of a step."""
        block, place = divmod(step, _AHEAD)
        if block != self._first:
            numbers = jnp.arange(block * _AHEAD, (block + 1) * _AHEAD)
            values: Any = jax.vmap(self.schedule)(numbers)
            self._first, self._known = block, np.asarray(values, np.float64)
        return float(self._known[place])
