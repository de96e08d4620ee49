r"""The slice sampler by whole arrays, for accelerators: the labels of all rows at once.

A step is that of `slices` with sampler "gibbs": given labels z,

1. the order of the components given the partition of the rows, see `_ordered`: those with many rows come first;
2. sticks v_j ~ Beta(1 + m_j, α + Σ_{l>j} m_l) and parameters θ_j of all components, those without rows from the prior;
3. α | v; sticks after the last component with rows are drawn with the new α;
4. slices u_i ~ U(0, ω_{z_i}) of all rows, and z_i ∝ f(x_i | θ_j) over ω_j ≥ u_i.

The number of components is that of the arrays. If the rest of the stick is not below all slices, nothing of the step is
kept, and it is repeated with twice as many: a number depends only on (chain, step, row or component), so the first
components are the same, and more follow. Sticks and components of counts are kept as logarithms.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _tree
from scirocco._random import threefry
from scirocco.diffusions.variates import gamma_attempts, normal_quantile, uniforms
from scirocco.errors import InvalidValueError
from scirocco.types import Array
from scirocco_latent.dp.chain import MixtureChain
from scirocco_latent.dp.families import BaseMeasure
from scirocco_latent.dp.rows import CountRows, Rows
from scirocco_latent.dp.settings import Gamma, MixtureSettings

_TOO_MANY = 1 << 16  # components: the concentration has diverged
_AT_ONCE = 1 << 26
"""Numbers of the largest arrays (rows x components) of a step."""
_LOOK = 1_024
"""Steps after which the number of components may be made smaller, which compiles another program."""
_SHORTEST = 4
"""Length of the shortest rows of counts; the next lengths are four times as long."""
_STICKS, _ALPHA, _NEW_STICKS, _SLICES, _PARAMETERS, _MEANS, _LABELS, _ORDER = range(8)  # purposes of random words


def _words(words: Array, purpose: int) -> Array:
    """Random words for one purpose."""
    return jnp.stack(threefry(words, jnp.zeros((), jnp.uint32), purpose))


def _components(capacity: int) -> Array:
    return jnp.arange(capacity, dtype=jnp.int32)


def _chosen(words: Array, row: Array, scores: Array, weights: Array, bound: Array) -> Array:
    """A label with probability ∝ exp(score) among the components whose log weight reaches the bound."""
    first, _ = uniforms(words, row, _components(scores.size).astype(jnp.uint32), scores.dtype)
    race = scores - jnp.log(-jnp.log(first))
    return jnp.argmax(jnp.where(weights >= bound, race, -jnp.inf)).astype(jnp.int32)


def _sizes(labels: Array, capacity: int) -> Array:
    return jnp.sum(labels[:, None] == _components(capacity), axis=0, dtype=jnp.int32)


# -- families: parameters given labels, and labels given parameters


@_tree.pytree_dataclass
class CountArrays:
    """Rows of counts, in blocks of similar lengths; θ_j | z ~ Dir(a + sums), as logarithms (component, category)."""

    blocks: tuple[tuple[Array, Array], ...]
    """Categories and counts (row, place) of each block; places that are not used have the count 0."""
    prior: Array
    width: int = _tree.static()

    def parameters(self, words: Array, labels: Array, capacity: int) -> tuple[Array, ...]:
        """Parameters of all components."""
        table, begin = jnp.zeros((capacity, self.width), jnp.int32), 0
        for categories, counts in self.blocks:
            own = labels[begin : begin + len(counts), None]
            table = table.at[own, categories].add(counts)
            begin += len(counts)
        logs = gamma_attempts(_words(words, _PARAMETERS), table + self.prior, log=True)
        return (logs - jax.nn.logsumexp(logs, axis=1, keepdims=True),)

    def labels(self, words: Array, parameters: tuple[Array, ...], weights: Array, bounds: Array) -> Array:
        """Labels of all rows."""
        by_category, words, found, begin = parameters[0].T, _words(words, _LABELS), [], 0
        # a factor of each category cancels: scores of long rows keep their digits
        by_category = by_category - by_category.max(axis=1, keepdims=True)

        def one(given: tuple[Array, ...]) -> Array:
            row, categories, counts, bound = given
            scores = jnp.sum(counts[:, None] * by_category[categories], axis=0)
            return _chosen(words, row, scores, weights, bound)

        for categories, counts in self.blocks:
            rows = slice(begin, begin + len(counts))
            numbers = jnp.arange(rows.start, rows.stop, dtype=jnp.uint32)
            size = max(1, _AT_ONCE // (weights.size * counts.shape[1]))
            found.append(jax.lax.map(one, (numbers, categories, counts, bounds[rows]), batch_size=size))
            begin = rows.stop
        return jnp.concatenate(found)


@_tree.pytree_dataclass
class Normals:
    """Rows of real numbers, centred at the prior mean; normal-gamma prior."""

    values: Array
    strength: Array
    shape: Array
    rate: Array

    def parameters(self, words: Array, labels: Array, capacity: int) -> tuple[Array, ...]:
        """Means and precisions of all components."""
        sizes = _sizes(labels, capacity)[:, None].astype(self.values.dtype)
        means = _sums(labels, self.values, capacity) / jnp.maximum(sizes, 1.0)
        spread = _sums(labels, (self.values - means[labels]) ** 2, capacity)  # about their means: no cancellation
        strength = self.strength + sizes
        rate = self.rate + 0.5 * (spread + sizes * self.strength / strength * means**2)
        shape = jnp.broadcast_to(self.shape + 0.5 * sizes, rate.shape)
        precisions = jnp.exp(gamma_attempts(_words(words, _PARAMETERS), shape, log=True)) / rate
        index = jnp.arange(rate.size, dtype=jnp.uint32).reshape(rate.shape)
        normals = normal_quantile(uniforms(_words(words, _MEANS), index, 0, rate.dtype)[0])
        return sizes * means / strength + normals / jnp.sqrt(strength * precisions), precisions

    def labels(self, words: Array, parameters: tuple[Array, ...], weights: Array, bounds: Array) -> Array:
        """Labels of all rows."""
        means, precisions = parameters
        words, constants = _words(words, _LABELS), 0.5 * jnp.sum(jnp.log(precisions), axis=1)

        def one(given: tuple[Array, ...]) -> Array:
            row, value, bound = given
            scores = constants - 0.5 * jnp.sum(precisions * (value - means) ** 2, axis=1)
            return _chosen(words, row, scores, weights, bound)

        numbers = jnp.arange(len(bounds), dtype=jnp.uint32)
        return jax.lax.map(one, (numbers, self.values, bounds), batch_size=max(1, _AT_ONCE // max(1, means.size)))


def _sums(labels: Array, values: Array, capacity: int) -> Array:
    """Sums of the rows of each component, as products: their order is fixed, unlike that of single additions."""

    def product(labels: Array, values: Array) -> Array:
        hot = (labels[:, None] == _components(capacity)).astype(values.dtype)
        return jnp.matmul(hot.T, values, precision=jax.lax.Precision.HIGHEST)

    size = max(1, _AT_ONCE // capacity)
    whole = len(labels) // size * size
    total = product(labels[whole:], values[whole:])
    if whole:
        parts = (labels[:whole].reshape(-1, size), values[:whole].reshape(-1, size, values.shape[1]))
        total = jax.lax.scan(lambda sums, part: (sums + product(*part), None), total, parts)[0]
    return total


# -- steps


class DeviceState(NamedTuple):
    """What a chain has on the device."""

    labels: Array
    alpha: Array
    weights: Array
    """log ω_j."""
    parameters: tuple[Array, ...]


def _ordered(words: Array, sizes: Array, alpha: Array) -> Array:
    """New numbers of the components that have rows, given the partition of the rows.

    With n rows in the clusters that have no stick yet, the next stick has a cluster of m rows with probability
    m/(α + n), and none with α/(α + n): clusters come in a size-biased order, with geometric gaps before them.
    """
    first, second = uniforms(words, _components(sizes.size).astype(jnp.uint32), 0, jnp.float32)
    order = jnp.argsort(jnp.where(sizes > 0, -jnp.log(first) / sizes, jnp.inf))
    rows = sizes[order]
    left = jnp.sum(rows) - jnp.cumsum(rows) + rows
    gaps = jnp.floor(jnp.log(second) / -jnp.log1p(left / alpha))
    gaps = jnp.where(rows > 0, jnp.minimum(gaps, sizes.size), 0).astype(jnp.int32)
    return jnp.zeros_like(sizes).at[order].set(_components(sizes.size) + jnp.cumsum(gaps))


def make_step(rows: Any, prior: Array, words: Array, state: DeviceState) -> tuple[DeviceState, Array]:
    """One step, and whether there were enough components."""
    capacity, alpha = state.weights.size, state.alpha
    sizes = _sizes(state.labels, capacity)
    numbers = _ordered(_words(words, _ORDER), sizes, alpha)
    num = 1 + jnp.max(jnp.where(sizes > 0, numbers, 0))
    before = jnp.minimum(numbers, capacity - 1)[state.labels]
    sizes = jnp.zeros_like(sizes).at[numbers].add(sizes, mode="drop")
    known, after = _components(capacity) < num, len(state.labels) - jnp.cumsum(sizes)
    # log v/(1 - v), of two gamma variables
    shapes = jnp.stack([1.0 + sizes, alpha + after])
    one, two = gamma_attempts(_words(words, _STICKS), shapes.T, log=True).T
    odds = one - two
    logs = jnp.sum(jnp.where(known, jax.nn.softplus(odds), 0.0))
    drawn = gamma_attempts(_words(words, _ALPHA), prior[:1] + num)[0] / (prior[1] + logs)
    alpha = jnp.where(prior[0] > 0.0, jnp.maximum(drawn, 1e-10), alpha)
    new = gamma_attempts(_words(words, _NEW_STICKS), jnp.full(capacity, alpha), log=True)
    odds = jnp.where(known, odds, one - new)
    left = jnp.cumsum(-jax.nn.softplus(odds))
    weights = -jax.nn.softplus(-odds) + jnp.concatenate([jnp.zeros(1), left[:-1]])
    index = jnp.arange(len(state.labels), dtype=jnp.uint32)
    bounds = weights[before] + jnp.log(uniforms(_words(words, _SLICES), index, 0, weights.dtype)[0])
    parameters = rows.parameters(words, before, capacity)
    labels = rows.labels(words, parameters, weights, bounds)
    return DeviceState(labels, alpha, weights, parameters), (left[-1] < jnp.min(bounds)) & (num <= capacity)


@partial(jax.jit, donate_argnums=3)
def _advance(
    rows: Any, prior: Array, words: Array, state: DeviceState, first: Array, count: Array
) -> tuple[DeviceState, Array, Array]:
    """At most `count` steps, until there are not enough components: the state, steps made, sizes of components."""

    def one(carry: tuple[DeviceState, Array, Array]) -> tuple[DeviceState, Array, Array]:
        state, done, _ = carry
        own = jnp.stack(threefry(words, jnp.asarray(first + done, jnp.uint32), 0))
        moved, enough = make_step(rows, prior, own, state)
        kept = jax.tree.map(lambda new, old: jnp.where(enough, new, old), moved, state)
        return kept, done + enough, enough

    def going(carry: tuple[DeviceState, Array, Array]) -> Array:
        return (carry[1] < count) & carry[2]

    start = (state, jnp.zeros((), jnp.int32), jnp.ones((), bool))
    state, done, _ = jax.lax.while_loop(going, one, start)
    return state, done, _sizes(state.labels, state.weights.size)


class ArraySlices(MixtureChain):
    """Labels, sticks and components on the device; initial labels are uniform over `initial_clusters`."""

    def __init__(self, rows: Rows, family: BaseMeasure[Any], settings: MixtureSettings, seed: int, number: int):
        super().__init__(rows, family, settings, seed, number)
        prior = settings.concentration
        self._prior = np.array(prior if isinstance(prior, Gamma) else (0.0, 1.0), np.float32)
        self._words = np.random.SeedSequence(self.seed).generate_state(2, np.uint32)
        made: CountArrays | Normals
        if isinstance(rows, CountRows):
            self.order, made = _blocks(rows, family)
        else:
            self.order, made = np.arange(rows.num_rows), _normals(rows, family)
        self._rows = made
        labels, _ = self._first_labels(settings.initial_clusters)
        capacity = _enough(rows.num_rows, settings.initial_clusters)
        self.place(labels[self.order], self.alpha, capacity)

    def place(self, labels: Any, alpha: Any, capacity: int) -> None:
        """A state with room for so many components, whose weights and parameters are not drawn yet."""
        capacity, self.alpha = _power(capacity), float(alpha)
        shapes = jax.eval_shape(
            lambda: self._rows.parameters(jnp.zeros(2, jnp.uint32), jnp.zeros(len(labels), jnp.int32), capacity)
        )
        self._state = DeviceState(
            jnp.asarray(labels, jnp.int32),
            jnp.asarray(alpha, jnp.float32),
            jnp.full(capacity, -jnp.inf, jnp.float32),
            jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes),
        )
        self.sizes = np.bincount(np.asarray(labels), minlength=capacity)

    def move(self) -> None:
        """One step."""
        self.advance(1)

    def advance(self, num_steps: int) -> None:
        """Make steps, on the device until there are too few components for the next."""
        end = self.step + num_steps
        while self.step < end:
            if self.step and self.step % _LOOK == 0:
                self._make_smaller()
            count = min(end, (self.step // _LOOK + 1) * _LOOK) - self.step
            counts = (np.uint32(self.step), np.int32(count))
            self._state, done, sizes = _advance(self._rows, self._prior, self._words, self._state, *counts)
            self.step, self.sizes = self.step + int(done), np.asarray(sizes)
            self.alpha = float(self._state.alpha)
            if int(done) == count:
                continue
            capacity = self._state.weights.size
            if capacity >= _TOO_MANY:
                raise InvalidValueError(
                    f"the slice sampler needs more than {capacity:,} components, with α = {self.alpha:.3g}: use "
                    'sampler="collapsed", or a prior with a smaller concentration.'
                )
            self.place(self._state.labels, self._state.alpha, 2 * capacity)

    def _make_smaller(self) -> None:
        """Drop components that will not be needed; it depends on the state alone, not on how steps are grouped."""
        wanted = _power(_enough(len(self.order), self.num_clusters))
        pays = len(self.order) * len(self.sizes) >= _AT_ONCE
        if pays and wanted < len(self.sizes) and not self.sizes[wanted:].any():
            labels, alpha, weights, parameters = self._state
            kept = jax.tree.map(lambda leaf: leaf[:wanted], (weights, parameters))
            self._state, self.sizes = DeviceState(labels, alpha, *kept), self.sizes[:wanted]

    @property
    def labels(self) -> np.ndarray:
        """Labels in the order of the rows."""
        out = np.empty(len(self.order), np.int32)
        out[self.order] = np.asarray(self._state.labels)
        return out

    @property
    def num_clusters(self) -> int:
        """Number of components that have rows."""
        return int(np.count_nonzero(self.sizes))

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, float, dict[str, np.ndarray]]:
        """The current weights of the components that have rows and of the rest, and their parameters."""
        occupied = np.flatnonzero(self.sizes)
        weights = np.exp(np.asarray(self._state.weights, np.float64)[occupied])
        parts = [np.asarray(part)[occupied].astype(np.float64) for part in self._state.parameters]
        if len(parts) == 1:
            named = {"components": np.exp(parts[0])}
        else:
            named = {"means": parts[0] + np.array(self.family.mean), "precisions": parts[1]}  # type: ignore[attr-defined]
        return weights, max(0.0, 1.0 - float(weights.sum())), named

    def state(self) -> dict[str, np.ndarray]:
        """Arrays from which `restore` resumes exactly."""
        labels, alpha, weights, parameters = jax.tree.map(np.asarray, self._state)
        named = {f"parameter{place}": part for place, part in enumerate(parameters)}
        return {"labels": labels, "concentration": alpha[None], "weights": weights, **named, **super().state()}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Restore the state from `state`."""
        self.place(state["labels"], float(state["concentration"][0]), len(state["weights"]))
        parts = tuple(jnp.asarray(state[f"parameter{place}"]) for place in range(len(self._state.parameters)))
        self._state = self._state._replace(weights=jnp.asarray(state["weights"]), parameters=parts)
        super().restore(state)


def _power(number: int) -> int:
    """The next power of two."""
    return 1 << (number - 1).bit_length()


def _enough(num_rows: int, num_clusters: int) -> int:
    """A number of components after which the rest of the stick is usually below all slices, at about 1/rows²."""
    logs = math.log(num_rows + 1.0)
    return num_clusters + math.ceil(2.0 * logs / math.log1p(logs / num_clusters))


def _blocks(rows: CountRows, family: Any) -> tuple[np.ndarray, CountArrays]:
    """The order of the rows, and the rows in blocks of similar lengths."""
    lengths, order, blocks, longest = np.diff(rows.indptr), [], [], _SHORTEST
    least = 0
    while least < lengths.max():
        chosen = np.flatnonzero((lengths > least) & (lengths <= longest))
        if chosen.size:
            places = rows.indptr[chosen][:, None] + np.arange(min(longest, lengths[chosen].max()))
            used = places < rows.indptr[chosen + 1][:, None]
            places = np.where(used, places, 0)
            blocks.append((rows.indices[places], np.where(used, rows.counts[places], 0)))
            order.append(chosen)
        least, longest = longest, 4 * longest
    return np.concatenate(order), CountArrays(jax.device_put(tuple(blocks)), jnp.float32(family.prior), family.width)


def _normals(rows: Any, family: Any) -> Normals:
    numbers = (family.kernel_data(rows)[0], family.strength, family.shape, np.array(family.rate))
    return Normals(*(jnp.asarray(part, jnp.float32) for part in numbers))
