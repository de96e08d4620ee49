r"""Results of a fitted factorisation: predictions of ratings from posterior draws.

Given a draw a new rating is normal with mean offset + U_i·V_j + a_i + b_j and variance 1/τ. For a user without ratings,
U_i ~ N(0, I/λ_U) and a_i ~ N(0, 1/λ_a) are integrated out: the mean loses these terms and the variance increases by
|V_j|²/λ_U + 1/λ_a; likewise for an item. (If both are new, U_i·V_j has the variance D/(λ_U λ_V), and is approximated
as normal.) The predictive distribution is the mixture of these normals over the draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from scirocco import _checks
from scirocco.diagnostics.intervals import tails_of
from scirocco.errors import InvalidValueError
from scirocco.models._core.model import FittedModel
from scirocco.models._core.view import View
from scirocco.run import Run
from scirocco.run.sizes import RUNNING
from scirocco.types import Array, Params
from scirocco_latent.factorisation.ratings import Rated, check_ids, check_lengths, check_ratings

_OF = ("rating", "mean")
"""What an interval is for."""
_HALVINGS = 30
"""Steps of the bisection for a quantile."""
_PAIRS = 8
"""Number of pairs of user and item whose expected ratings are compared between chains."""


class Recommendation(NamedTuple):
    """Items by decreasing expected rating."""

    items: np.ndarray
    expected: np.ndarray
    """Posterior means of the ratings."""
    sd: np.ndarray
    """Standard deviations of new ratings."""


class RatingResults(FittedModel):
    """Predictions from the draws of a run."""

    offset_: float
    num_users_: int
    num_items_: int
    _rated: Rated
    _draws: dict[str, np.ndarray]

    def predict(self, users: ArrayLike, items: ArrayLike, *, interval: float | None = None, of: str = "rating") -> Any:
        """The expected rating of each pair; with `interval`, (mean, low, high).

        Parameters
        ----------
        users, items
            Ids; a single id is combined with all of the other.
        interval
            Probability of a central interval, such as 0.9.
        of
            The interval is for a new "rating" with its noise (default), or for its "mean" over repeated ratings.
        """
        _checks.choice(of, "of", _OF)
        tails = () if interval is None else tails_of(interval)
        chosen = self._pairs(users, items)
        columns: list[list[np.ndarray]] = []
        for found in self._parts(*chosen):
            out = [_moments(found)[0]]
            out += [_quantile(found, of == "rating", np.float32(tail)) for tail in tails]
            columns.append([np.asarray(each) + self.offset_ for each in out])
        joined = tuple(_joined(column) for column in zip(*columns, strict=True))
        return joined if interval is not None else joined[0]

    def recommend(self, user: object, n: int = 10, *, exclude_seen: bool = True) -> Recommendation:
        """The `n` items with the highest expected ratings by `user`; by default among items without a rating."""
        self._check_fitted()
        number = check_ids(np.asarray([user]), "user", self.num_users_, "entry", self._rated.user_ids)[0]
        n = _checks.positive_int(n, "n")
        items = np.arange(self.num_items_, dtype=np.int32)
        if exclude_seen:
            items = np.setdiff1d(items, self._items_of(number)).astype(np.int32)
        found = [_moments(part) for part in self._parts(np.full(len(items), number), items)]
        mean, sd = (_joined([np.asarray(part[k]) for part in found]) for k in (0, 1))
        best = np.argsort(-mean, kind="stable")[:n]
        named = items[best] if self._rated.item_ids is None else self._rated.item_ids[items[best]]
        return Recommendation(named, mean[best] + self.offset_, sd[best])

    def log_predictive(self, users: ArrayLike, items: ArrayLike, ratings: ArrayLike) -> np.ndarray:
        """The log posterior predictive density of each rating."""
        values = check_ratings(ratings)
        chosen = self._pairs(users, items)
        check_lengths({"users": chosen[0], "items": chosen[1], "ratings": values})
        centred, start, out = values - np.float32(self.offset_), 0, []
        for found in self._parts(*chosen):
            stop = start + found.mean.shape[1]
            out.append(np.asarray(_log_density(found, centred[start:stop])))
            start = stop
        return _joined(out)

    def score(self, users: ArrayLike, items: ArrayLike, ratings: ArrayLike) -> float:
        """R² of the expected ratings, as for scikit-learn's regressors: 1 - Σ(r - r̂)² / Σ(r - r̄)²."""
        values = check_ratings(ratings).astype(np.float64)
        check_lengths(dict(zip(("users", "items"), self._pairs(users, items), strict=True)) | {"ratings": values})
        error = values - self.predict(users, items)
        spread = values - values.mean()
        return float(1 - (error @ error) / (spread @ spread)) if spread.any() else float("nan")

    # -- what a fitted model is -----------------------------------------------------------------------------------

    def _results(self, run: Run, told: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
        if "items" not in arrays:
            raise InvalidValueError(
                f"the fit in {run.path} has not finished ({run.status}), and the rated pairs are written at its end: "
                "wait for it, or resume it. To open its draws use sc.load."
            )
        rated = Rated.read(told, arrays)
        self.offset_, self._rated = float(told["offset"]), rated
        self.num_users_, self.num_items_ = len(rated.first) - 1, rated.num_items
        known_items = np.zeros(rated.num_items, bool)
        known_items[rated.items] = True
        self._known = RatedPairs(np.diff(rated.first) > 0, known_items)
        draws = {name: np.asarray(leaf).reshape(-1, *leaf.shape[2:]) for name, leaf in run.draws.items()}
        fixed = np.full(len(draws["users"]), told["rating_precision"] or 0.0, np.float32)
        self._tau = draws.pop("rating_precision", fixed)
        self._draws = draws
        return cast(Mapping[str, Any], run.draws)

    def _watched(self) -> dict[str, np.ndarray]:
        """Quantities that do not depend on rotations: precisions, expected ratings of some pairs."""
        drawn = {name: np.asarray(leaf) for name, leaf in self.draws_.items()}
        of = ("user factors", "item factors", "user biases", "item biases")
        draws = {f"precision of {name}": drawn["precisions"][:, :, k] for k, name in enumerate(of)}
        if "rating_precision" in drawn:
            draws["rating precision"] = drawn["rating_precision"]
        ids = self._rated.user_ids, self._rated.item_ids
        for pair in self._some_pairs():
            left, right = drawn["users"][:, :, pair[0]], drawn["items"][:, :, pair[1]]
            biases = drawn["user_bias"][:, :, pair[0]] + drawn["item_bias"][:, :, pair[1]]
            user, item = (n if of is None else of[n] for n, of in zip(pair, ids, strict=True))
            expected = np.sum(left * right, axis=-1, dtype=np.float64) + biases + self.offset_
            draws[f"rating of item {item} by user {user}"] = expected
        return draws

    def _some_pairs(self) -> list[tuple[int, int]]:
        """Pairs of user and item, spread over both."""
        users = np.linspace(0, self.num_users_ - 1, min(_PAIRS, self.num_users_)).astype(int)
        items = np.linspace(0, self.num_items_ - 1, len(users)).astype(int)
        return list(zip(users.tolist(), items.tolist(), strict=True))

    def _view(self, run: Run, **options: Any) -> View:
        about = (
            "Factors may rotate and change sign along a chain. The diagnostics and plots use quantities that do not "
            f"change: the precisions, and the expected ratings of {len(self._some_pairs())} pairs spread over users "
            "and items."
        )
        return View(run, type(self).__name__, judged=self._judged(), about=about)

    # -- inside -----------------------------------------------------------------------------------------------

    def _items_of(self, user: int) -> np.ndarray:
        return self._rated.items[self._rated.first[user] : self._rated.first[user + 1]]

    def _pairs(self, users: ArrayLike, items: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        self._check_fitted()
        left = check_ids(users, "user", self.num_users_, "pair", self._rated.user_ids)
        right = check_ids(items, "item", self.num_items_, "pair", self._rated.item_ids)
        if len(left) != len(right) and 1 in (len(left), len(right)):
            left, right = (np.ascontiguousarray(side) for side in np.broadcast_arrays(left, right))
        check_lengths({"users": left, "items": right})
        return left, right

    def _parts(self, users: np.ndarray, items: np.ndarray) -> list[PairMoments]:
        return [
            _parts_of(self._draws, self._tau, self._known, users[part], items[part])
            for part in _pieces(len(self._tau), len(users))
        ]


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)


# -- predictions ------------------------------------------------------------------------------------------------------


class RatedPairs(NamedTuple):
    """Which users and items have ratings."""

    users: np.ndarray
    items: np.ndarray


class PairMoments(NamedTuple):
    """For each draw and pair (draw, pair): mean, variance of the mean rating, and variance of the rating about it."""

    mean: Array
    spread: Array
    noise: Array


def _parts_of(
    draws: dict[str, np.ndarray], tau: np.ndarray, known: RatedPairs, users: np.ndarray, items: np.ndarray
) -> PairMoments:
    """The moments for pairs that fit into memory; `draws` have one leading axis."""
    return _compiled_parts(draws, tau, known.users[users], known.items[items], users, items)


@jax.jit
def _compiled_parts(
    draws: Params, tau: Array, old_user: Array, old_item: Array, users: Array, items: Array
) -> PairMoments:
    def one(draw: tuple[Params, Array]) -> PairMoments:
        params, tau = draw
        lam_u, lam_v, lam_a, lam_b = params["precisions"]
        left, right = params["users"][users], params["items"][items]
        mean = jnp.where(old_user & old_item, jnp.sum(left * right, axis=1), 0.0)
        mean += jnp.where(old_user, params["user_bias"][users], 0.0)
        mean += jnp.where(old_item, params["item_bias"][items], 0.0)
        size = left.shape[1]
        square_u = jnp.where(old_user, jnp.sum(left**2, axis=1), size / lam_u)
        square_v = jnp.where(old_item, jnp.sum(right**2, axis=1), size / lam_v)
        # one side new: |known|² over the other's precision; both new: D / (λ_U λ_V)
        spread = jnp.where(old_user, 0.0, square_v / lam_u + 1 / lam_a)
        spread += jnp.where(old_item, 0.0, 1 / lam_b + jnp.where(old_user, square_u / lam_v, 0.0))
        return PairMoments(mean, spread, jnp.full_like(mean, 1.0) / tau)

    return jax.lax.map(one, (draws, tau))


def _pieces(num_draws: int, num_pairs: int) -> list[slice]:
    """Slices of pairs for which the numbers of all draws fit into memory; an empty slice if there are no pairs."""
    length = max(1, RUNNING.predicted_numbers // max(1, num_draws))
    return [slice(start, min(start + length, num_pairs)) for start in range(0, max(1, num_pairs), length)]


@partial(jax.jit, static_argnums=1)
def _quantile(found: PairMoments, noisy: bool, level: Array) -> Array:
    """Quantiles of the mixture of normals for each pair, by bisection of its distribution function."""
    spread = jnp.sqrt(found.spread + (found.noise if noisy else 0.0))
    reach = 8.0 * jnp.max(spread, axis=0) + 1e-6
    low, high = jnp.min(found.mean, axis=0) - reach, jnp.max(found.mean, axis=0) + reach

    def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        below = jnp.mean(_below(middle - found.mean, spread), axis=0) < level
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    low, high = jax.lax.fori_loop(0, _HALVINGS, halve, (low, high))
    return 0.5 * (low + high)


def _below(distance: Array, spread: Array) -> Array:
    """P(N(0, spread²) < distance); a step function if `spread` is 0."""
    scaled = distance / jnp.where(spread > 0, spread, 1.0)
    return jnp.where(spread > 0, jax.scipy.special.ndtr(scaled), (distance >= 0).astype(distance.dtype))


@jax.jit
def _moments(found: PairMoments) -> tuple[Array, Array]:
    """Mean and standard deviation of a new rating, for each pair."""
    mean = jnp.mean(found.mean, axis=0)
    variance = jnp.mean(found.spread + found.noise + (found.mean - mean) ** 2, axis=0)
    return mean, jnp.sqrt(variance)


@jax.jit
def _log_density(found: PairMoments, ratings: Array) -> Array:
    """log of the density of each rating, averaged over draws."""
    variance = found.spread + found.noise
    each = -0.5 * ((ratings - found.mean) ** 2 / variance + jnp.log(2 * jnp.pi * variance))
    return jax.scipy.special.logsumexp(each, axis=0) - jnp.log(each.shape[0])
