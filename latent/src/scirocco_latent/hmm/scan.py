r"""The states of whole series by associative scans, for accelerators: as the host's kernels draw them without cuts.

Filtering: with the matrices :math:`M_t = A \, \mathrm{diag}(f(x_t))`, the filter at time t is a row of the product of
:math:`M_1, ..., M_t`, and products can be formed in any grouping. Rows of products are normalised, with logs of their
scales next to them, so that nothing underflows.

Sampling: a uniform number for each time turns :math:`p(z_t | z_{t+1}, x_{1:t})` into a map from the next state to this
one. Maps are composed in any grouping, too, from the last state of a series, which does not depend on a next one.

Series are processed in blocks, whose filters and states follow from those of the block before and after: memory is that
of a block, K² numbers for each of its observations.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco_latent.hmm.emissions import Encoded, Params
from scirocco_latent.hmm.gibbs import Parameters, PieceLayout, StatePrior, States
from scirocco_latent.hmm.series import Array

_TINY = 1e-37  # avoids log 0 in single precision
_TABLE, _NORMAL = 0, 1  # as in `_kernels`
_LARGEST, _LONGEST = 2**26, 2**17
"""Numbers in the matrices of a block, and observations in it."""
LEAST_ROWS, MOST_STATES = 1_000_000, 64
"""Shorter series, and more states, are not faster than the cores of a host: compiling alone takes five seconds."""


class DeviceRows(NamedTuple):
    """Observations on the device, in blocks (block, row, ...)."""

    codes: Any
    rows: Any
    begins: Any
    """Whether a series begins here."""
    ends: Any
    """Whether it ends here."""
    is_there: Any
    """False: padding of the last block."""
    is_seen: Any


def block_length(num_rows: int, num_states: int, longest: int = _LONGEST) -> int:
    """Observations in a block."""
    return int(min(num_rows, longest, max(256, _LARGEST // num_states**2)))


def rows_on_device(data: Encoded, bounds: Array, num_states: int, longest: int = _LONGEST) -> DeviceRows:
    """Observations in blocks of equal lengths."""
    total, length = data.num_rows, block_length(data.num_rows, num_states, longest)
    blocks = -(-total // length)

    def shaped(part: Array) -> Any:
        padded = np.concatenate([part, np.repeat(part[-1:], blocks * length - total, axis=0)])
        return jnp.asarray(padded.reshape(blocks, length, *part.shape[1:]))

    begins, ends = np.zeros(total, bool), np.zeros(total, bool)
    begins[bounds[:-1]], ends[bounds[1:] - 1] = True, True
    coded = len(data.codes) > 0
    none = np.zeros((total, 0))
    there = np.arange(blocks * length).reshape(blocks, length) < total
    return DeviceRows(
        shaped(np.maximum(data.codes, 0).astype(np.int32) if coded else none[:, :0].astype(np.int32)),
        shaped(none.astype(np.float32) if coded else np.nan_to_num(data.rows).astype(np.float32)),
        shaped(begins),
        shaped(ends),
        jnp.asarray(there),
        shaped(~data.is_missing),
    )


# -- densities and sums ------------------------------------------------------------------------------------------------


def log_densities(kind: int, rows: DeviceRows, values: Any) -> Any:
    """Log densities (row, K) of the rows of a block, up to a constant of each row; 0 if the observation is missing.

    `values`: the log density of each code (V, K), or the numbers of each state in `rows` of the kernels.
    """
    if kind == _TABLE:
        logs = values[rows.codes]
    else:
        x, d = rows.rows, rows.rows.shape[1]
        if kind == _NORMAL:
            roots = values[:, 1 + d :].reshape(-1, d, d)
            apart = x[:, None, :] - values[None, :, 1 : 1 + d]
            logs = values[:, 0] - 0.5 * (_product("nkj,kji->nki", apart, roots) ** 2).sum(axis=-1)
        else:
            logs = _product("nd,kd->nk", x, values[:, :d]) + values[:, d:].sum(axis=1)
    logs = logs - logs.max(axis=1, keepdims=True)
    return jnp.where((rows.is_seen & rows.is_there)[:, None], logs, 0.0)


def _product(form: str, a: Any, b: Any) -> Any:
    return jnp.einsum(form, a, b, precision=jax.lax.Precision.HIGHEST)


def _tallies(kind: int, width: int, rows: DeviceRows, before: Any, z: Any, num: int) -> tuple[Any, Any, Any]:
    """First states, transitions and sums of a block; counts are exact below 2²⁴ in each block."""
    there = rows.is_there
    firsts = jnp.zeros(num).at[z].add(jnp.where(there & rows.begins, 1.0, 0.0))
    moved = jnp.where(there & ~rows.begins, 1.0, 0.0)
    moves = jnp.zeros(num * num).at[before * num + z].add(moved).reshape(num, num)
    seen = jnp.where(there & rows.is_seen, 1.0, 0.0)
    if kind == _TABLE:
        stats = jnp.zeros(num * width).at[z * width + rows.codes].add(seen).reshape(num, width)
        return firsts, moves, stats
    x = rows.rows
    parts = [jnp.ones((len(x), 1)), x]
    if kind == _NORMAL:
        squares = jnp.tril(x[:, :, None] * x[:, None, :])
        parts.append(squares.reshape(len(x), -1))
    held = jax.nn.one_hot(z, num) * seen[:, None]
    return firsts, moves, _product("nk,np->kp", held, jnp.concatenate(parts, axis=1))


# -- forward filtering, backward sampling ------------------------------------------------------------------------------


def _joined(a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[Any, Any]:
    """The product of matrices with normalised rows and logs of their scales."""
    weights = jnp.log(a[0] + _TINY) + b[1][..., None, :]
    high = weights.max(axis=-1, keepdims=True)
    product = _product("...ij,...jk->...ik", jnp.exp(weights - high), b[0])
    total = product.sum(axis=-1, keepdims=True)
    return product / total, a[1] + (high + jnp.log(total))[..., 0]


def filter_block(before: Any, logs: Any, begins: Any, initial: Any, transitions: Any) -> Any:
    """Filters (row, K) of a block, given the filter at the row before it."""
    start = jnp.where(begins[:, None, None], initial, transitions)
    start = start.at[0].set(jnp.where(begins[0], initial, before @ transitions))
    matrices = start * jnp.exp(logs)[:, None, :] + _TINY
    total = matrices.sum(axis=-1, keepdims=True)
    found, _ = jax.lax.associative_scan(_joined, (matrices / total, jnp.log(total[..., 0])))
    filters = found[:, 0, :]  # the first matrix has equal rows
    return filters / filters.sum(axis=1, keepdims=True)


def sample_block(after: Any, filters: Any, ends: Any, uniforms: Any, transitions: Any) -> Any:
    """States (row,) of a block, given the state after it."""
    shares = filters[:, :, None] * jnp.where(ends[:, None, None], 1.0, transitions)  # (row, this, next)
    edges = jnp.cumsum(shares, axis=1)
    maps = (edges[:, :-1] <= uniforms[:, None, None] * edges[:, -1:]).sum(axis=1)
    composed = jax.lax.associative_scan(
        lambda later, earlier: jnp.take_along_axis(earlier, later, axis=-1), maps, reverse=True
    )
    return composed[:, after]


@functools.partial(jax.jit, static_argnums=(0, 1))
def sweep(
    kind: int, width: int, rows: DeviceRows, values: Any, initial: Any, transitions: Any, key: Any
) -> tuple[Any, tuple[Any, Any, Any], Any]:
    """Draw the states of all series: states (block, row), sums of each block, and filters."""
    num = len(initial)

    def forward(before: Any, rows: DeviceRows) -> tuple[Any, Any]:
        logs = log_densities(kind, rows, values)
        filters = filter_block(before, logs, rows.begins, initial, transitions)
        return filters[-1], filters

    def backward(after: Any, given: Any) -> tuple[Any, Any]:
        rows, filters, key = given
        uniforms = jax.random.uniform(key, rows.begins.shape)
        z = sample_block(after, filters, rows.ends | ~rows.is_there, uniforms, transitions)
        return z[0], z.astype(jnp.int8)

    def tally(before: Any, given: Any) -> tuple[Any, Any]:
        rows, z = given
        z = z.astype(jnp.int32)
        return z[-1], _tallies(kind, width, rows, jnp.concatenate([before[None], z[:-1]]), z, num)

    _, filters = jax.lax.scan(forward, initial, rows)
    keys = jax.random.split(key, len(rows.begins))
    zero = jnp.zeros((), jnp.int32)
    _, z = jax.lax.scan(backward, zero, (rows, filters, keys), reverse=True)
    _, sums = jax.lax.scan(tally, zero, (rows, z))
    return z, sums, filters


class DeviceStates(States):
    """States of all observations, drawn together on JAX's default device."""

    def __init__(
        self, prior: StatePrior, data: Encoded, bounds: Array, num_threads: int | None, longest: int = _LONGEST
    ):
        super().__init__(prior, data, bounds, num_threads)
        self.rows = rows_on_device(data, bounds, prior.num_states, longest)

    def step(self, params: Parameters, found: PieceLayout, chosen: Array, seed: tuple[int, int]) -> None:
        """Draw all states."""
        key = jax.random.fold_in(jax.random.key(seed[0] % 2**63), seed[1] % 2**32)
        width = self.stats.shape[1]
        initial, transitions = params.chain()[:2]
        kind, values = self.values_of(params.emission)
        z, sums, _ = sweep(kind, width, self.rows, values, np.float32(initial), np.float32(transitions), key)
        self.z = np.asarray(z).reshape(-1)[: self.data.num_rows]
        self.firsts, self.moves, self.stats = (np.asarray(part, np.float64).sum(axis=0) for part in sums)

    def values_of(self, params: Params) -> tuple[int, Array]:
        """The kind of the emissions, and the numbers that `log_densities` takes."""
        kind, _, _, table, _, values = self.prior.emission.kernel(params, self.data)
        if kind == _TABLE:
            with np.errstate(divide="ignore"):
                values = np.maximum(np.log(table), -80.0)
        return kind, values.astype(np.float32)
