r"""Matrix factorisation by an exact Gibbs sampler with whole arrays, on a CPU or an accelerator.

Given the items, the row x_i = (U_i, a_i) of each user is Gaussian, with the rows y_j = (V_j, 1) of what it has rated:

.. math:: x_i ∼ N(A_i^{-1} τ h_i, A_i^{-1}), \quad A_i = Λ + τ \sum_j y_j y_j^T, \quad h_i = \sum_j (r_{ij} - b_j) y_j

and so are the items given the users. Ratings are arranged in pieces of equal length, each of one user (or item), so
that the sums are products of matrices. The ratings determine the product of U and V, not their scales: four moves
along what the likelihood leaves free follow, each of which draws a few numbers from their conditional distribution.
Without them the precisions move so slowly that chains of thousands of sweeps disagree.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco.models._core.chain import Chain, Spec
from scirocco.types import Array, Key, Params
from scirocco_latent.factorisation.density import TABLES, Law, Ratings
from scirocco_latent.factorisation.method import gamma_conditional

METHOD = "gibbs"
NUM_SWEEPS = 300
"""Length where none is given."""
_LONGEST_PIECE, _NUMBERS = 64, 1 << 24
"""Ratings in a piece at most; numbers in one product at most."""
_PANEL, _MOST_PANELS, _LEAST = 7, 6, 1e-30
"""Columns that are eliminated together, unless there would be more panels; the least pivot."""


class Side(NamedTuple):
    """The ratings of all users (or items) in pieces: (chunk, piece, place); places that are not used have weight 0."""

    owner: Array
    """The user (item) of each piece, (chunk, piece), sorted."""
    other: Array
    """The item (user) of each rating."""
    value: Array
    weight: Array


class Data(NamedTuple):
    """The ratings in both orders, and their number."""

    by_user: Side
    by_item: Side
    num_ratings: Array


def arranged(ratings: Ratings, num_users: int, num_items: int, num_factors: int) -> Data:
    """The ratings by users and by items."""
    user, item, value = (np.asarray(leaf) for leaf in ratings)
    by_user = _side(user, item, value, num_users, num_factors)
    by_item = _side(item, user, value, num_items, num_factors)
    return Data(by_user, by_item, jnp.asarray(len(value), jnp.float32))


def _side(owner: np.ndarray, other: np.ndarray, value: np.ndarray, count: int, num_factors: int) -> Side:
    sizes = np.bincount(owner, minlength=count)
    typical = max(1.0, float(sizes[sizes > 0].mean()))
    length = int(min(_LONGEST_PIECE, 2 ** np.floor(np.log2(max(typical / 2, 1.0)))))
    pieces = -(-sizes // length)
    order = np.argsort(owner, kind="stable")
    first = np.cumsum(sizes) - sizes
    within = np.arange(len(owner)) - np.repeat(first, sizes)
    start = np.cumsum(pieces) - pieces
    row = np.repeat(start, sizes) + within // length
    per_chunk = max(1, _NUMBERS // (length * (num_factors + 1)))
    chunks = max(1, -(-int(pieces.sum()) // per_chunk))
    per_chunk = -(-int(pieces.sum()) // chunks)
    shape = (chunks * per_chunk, length)
    index, rating, weight = (np.zeros(shape, np.int32), np.zeros(shape, np.float32), np.zeros(shape, np.float32))
    index[row, within % length] = other[order]
    rating[row, within % length] = value[order]
    weight[row, within % length] = 1.0
    owners = np.full(shape[0], count - 1, np.int32)
    owners[: pieces.sum()] = np.repeat(np.arange(count), pieces)
    in_chunks = [leaf.reshape(chunks, per_chunk, *leaf.shape[1:]) for leaf in (owners, index, rating, weight)]
    return Side(*(jnp.asarray(leaf) for leaf in in_chunks))


# -- one sweep ---------------------------------------------------------------------------------------------------------


@partial(jax.jit, static_argnums=0)
def sweeps(law: Law, data: Data, params: Params, key: Key, begin: Array, count: Array) -> Params:
    """`count` sweeps, with numbers from `begin` on; random numbers depend on key and number."""

    def one(number: Array, params: Params) -> Params:
        return sweep(law, data, params, jax.random.fold_in(key, number))

    return jax.lax.fori_loop(begin, begin + count, one, params)


def sweep(law: Law, data: Data, params: Params, key: Key) -> Params:
    """Users, items, the precision of ratings, the moves along free directions, the precisions of the tables."""
    keys = jax.random.split(key, 7)
    sizes = [params[name].size for name in TABLES]
    shapes = jnp.array([law.shape + size / 2 for size in sizes] + [law.noise_shape + data.num_ratings / 2])
    gammas = jax.random.gamma(keys[0], shapes, dtype=params["users"].dtype)
    of_users, of_items = (jnp.concatenate([params[t], params[b][:, None]], axis=1) for t, b in _PAIRS)
    lam = params["precisions"]
    tau = law.tau(params)
    of_users, _ = _rows(data.by_user, of_items, tau, lam[0], lam[2], keys[1], len(of_users))
    of_items, misfit = _rows(data.by_item, of_users, tau, lam[1], lam[3], keys[2], len(of_items))
    if law.rating_precision is None:
        params = {**params, "rating_precision": gammas[-1] / (law.noise_rate + misfit / 2)}
    of_users, of_items = _moved(of_users, of_items, lam[0], lam[3], lam[2], keys[3])
    of_items, of_users = _moved(of_items, of_users, lam[1], lam[2], lam[3], keys[4])
    users, items = of_users[:, :-1], of_items[:, :-1]
    tables = dict(zip(TABLES, (users, items, of_users[:, -1], of_items[:, -1]), strict=True))
    lam = gammas[:-1] / jnp.stack([gamma_conditional(tables[t], law.shape, law.rate)[1] for t in TABLES])
    # U_d c, V_d / c for each factor d, given the precisions
    power = jnp.full(users.shape[1], (len(users) - len(items)) / 2, lam.dtype)
    squares = jnp.sum(users**2, axis=0), jnp.sum(items**2, axis=0)
    moved = _log_scale(keys[5], power, lam[0] * squares[0], lam[1] * squares[1])
    # U c, V / c, λ_U / c², λ_V c²: only the prior of the precisions changes
    all_ = _log_scale(keys[6], jnp.zeros((), lam.dtype), 2 * law.rate * lam[1], 2 * law.rate * lam[0])
    scale = jnp.exp(0.5 * (moved + all_))
    tables["users"], tables["items"] = users * scale, items / scale
    change = jnp.exp(jnp.stack([-all_, all_, 0.0 * all_, 0.0 * all_]))
    return {**params, **tables, "precisions": lam * change}


_PAIRS = (("users", "user_bias"), ("items", "item_bias"))


def _rows(
    side: Side, others: Array, tau: Any, precision: Array, bias_precision: Array, key: Key, count: int
) -> tuple[Array, Array]:
    """(U_i, a_i) of all users given the items, and the sum of squared residuals; or the items given the users."""
    size = others.shape[1]
    features = others.at[:, -1].set(1.0)  # the bias of a row is the coefficient of 1

    def add(sums: tuple[Array, Array, Array], chunk: Side) -> tuple[tuple[Array, Array, Array], None]:
        left = features[chunk.other] * chunk.weight[..., None]
        right = (chunk.value - others[chunk.other, -1]) * chunk.weight
        found = (
            jnp.einsum("spi,spj->sij", left, left, precision="highest"),
            jnp.einsum("spi,sp->si", left, right, precision="highest"),
            jnp.sum(right**2, axis=1),
        )
        add_up = partial(jax.ops.segment_sum, segment_ids=chunk.owner, num_segments=count)
        return tuple(s + add_up(f) for s, f in zip(sums, found, strict=True)), None  # type: ignore[return-value]

    zero = jnp.zeros((count, size, size + 2), others.dtype)
    (gram, linear, square), _ = jax.lax.scan(add, (zero[:, :, :size], zero[:, :, -1], zero[:, 0, 0]), side)
    own = jnp.full(size, precision, others.dtype).at[-1].set(bias_precision)
    noise = jax.random.normal(key, linear.shape, others.dtype)
    rows = drawn(tau * gram + jnp.diag(own), tau * linear, noise)
    misfit = square - 2 * jnp.sum(rows * linear, axis=1) + jnp.einsum("gi,gij,gj->g", rows, gram, rows)
    return rows, jnp.sum(jnp.maximum(misfit, 0.0))


def drawn(precision: Array, linear: Array, noise: Array) -> Array:
    """A⁻¹ h + L⁻ᵀ z for matrices A = L Lᵀ (G, q, q), vectors h and z (G, q).

    A few columns at a time for all groups at once, the rest by products: batched LAPACK calls of several chains can
    wait for each other forever.
    """
    size = linear.shape[1]
    width, panels = max(_PANEL, -(-size // _MOST_PANELS)), list[Array]()
    rest = jnp.concatenate([precision, linear[:, None]], axis=1)  # the last row of the factor solves L w = h
    while rest.shape[2]:
        panel, rows = rest[:, :, :width], jnp.arange(rest.shape[1])

        def eliminate(panel: Array, place: Array, rows: Array = rows) -> tuple[Array, Array]:
            column = jnp.where(rows >= place, panel[:, :, place], 0.0)
            column = column / jnp.sqrt(jnp.maximum(column[:, place, None], _LEAST))
            return panel - column[:, :, None] * column[:, None, : panel.shape[2]], column

        _, columns = jax.lax.scan(eliminate, panel, jnp.arange(panel.shape[2]))
        panels.append(jnp.pad(columns, ((0, 0), (0, 0), (size + 1 - len(rows), 0))))
        below = columns[:, :, panel.shape[2] :]
        done = jnp.einsum("kgi,kgj->gij", below, below[:, :, :-1], precision="highest")
        rest = rest[:, panel.shape[2] :, panel.shape[2] :] - done
    root = jnp.concatenate(panels)

    def substitute(found: Array, given: tuple[Array, Array, Array]) -> tuple[Array, None]:
        place, column, right = given
        value = (right - jnp.sum(column * found, axis=1)) / column[:, place]
        return found.at[:, place].set(value), None

    given = jnp.arange(size), root[:, :, :size], root[:, :, size] + noise.T
    return jax.lax.scan(substitute, jnp.zeros_like(linear), given, reverse=True)[0]


def _moved(
    left: Array, right: Array, precision: Array, bias_precision: Array, own_bias_precision: Array, key: Key
) -> tuple[Array, Array]:
    """U_i + δ, b_j - δ·V_j and a_i + ε, b_j - ε, with (δ, ε) from its conditional distribution."""
    factors = right.at[:, -1].set(1.0)  # b_j - (δ, ε)·(V_j, 1)
    own = jnp.full(left.shape[1], precision, left.dtype).at[-1].set(own_bias_precision)
    matrix = bias_precision * jnp.matmul(factors.T, factors, precision="highest") + jnp.diag(own * len(left))
    linear = bias_precision * jnp.matmul(right[:, -1], factors, precision="highest") - own * jnp.sum(left, axis=0)
    root = jnp.linalg.cholesky(matrix)
    noise = jax.random.normal(key, linear.shape, left.dtype)
    solved = jax.scipy.linalg.solve_triangular(root, linear, lower=True) + noise
    shift = jax.scipy.linalg.solve_triangular(root.T, solved, lower=False)
    return left + shift, right.at[:, -1].add(-jnp.matmul(factors, shift, precision="highest"))


def _log_scale(key: Key, power: Array, up: Array, down: Array) -> Array:
    """t from the density ∝ exp(power t - (up eᵗ + down e⁻ᵗ) / 2), by a Metropolis step from 0.

    The proposal is normal, with the mode and the curvature of the density, which is close to it where many rows share a
    scale.
    """
    first, second = jax.random.split(key)
    curvature = jnp.sqrt(power**2 + up * down)
    mode = jnp.where(power > 0, jnp.log((power + curvature) / up), jnp.log(down / (curvature - power)))
    t = mode + jax.random.normal(first, jnp.shape(power), curvature.dtype) / jnp.sqrt(curvature)
    gain = power * t - 0.5 * (up * jnp.expm1(t) + down * jnp.expm1(-t))
    gain += 0.5 * curvature * ((t - mode) ** 2 - mode**2)
    uniform = jax.random.uniform(second, jnp.shape(power), curvature.dtype)
    return jnp.where(jnp.log(uniform) < gain, t, 0.0)


# -- chains ------------------------------------------------------------------------------------------------------------


class FactorChain(Chain):
    """One chain: a step is a sweep."""

    def __init__(self, law: Law, data: Data, start: Params, seed: int, number: int):
        super().__init__(seed, number)
        self.law, self.data = law, data
        self.key = jax.random.fold_in(jax.random.key(seed), number)
        rng = np.random.default_rng([seed, number, 0xB9])
        self.params = {
            name: jnp.asarray(np.float32(leaf) * np.sign(rng.normal(size=np.shape(leaf))).astype(np.float32))
            if name in TABLES
            else jnp.asarray(leaf, jnp.float32)
            for name, leaf in start.items()
        }

    def move(self) -> None:
        """One sweep."""
        self.advance(1)

    def advance(self, num_steps: int) -> None:
        """Make all sweeps in one program."""
        begin, count = np.int32(self.step), np.int32(num_steps)
        self.params = jax.block_until_ready(sweeps(self.law, self.data, self.params, self.key, begin, count))
        self.step += num_steps

    def kept(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """All parameters, and the number of sweeps."""
        return {name: np.asarray(leaf) for name, leaf in self.params.items()}, {"passes": self.step}

    def state(self) -> dict[str, np.ndarray]:
        """The parameters, and the number of sweeps."""
        return self.kept()[0] | super().state()

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """The chain as it was."""
        super().restore(state)
        self.params = {name: jnp.asarray(state[name]) for name in self.params}


def spec_of(start: Params) -> Spec:
    """Shapes and types of a draw."""
    return Spec.of({name: np.shape(leaf) for name, leaf in start.items()}, {"passes": ()})
