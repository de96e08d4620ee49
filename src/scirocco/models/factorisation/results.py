"""What a fitted factorisation is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from scirocco import _checks
from scirocco.errors import NotFittedError
from scirocco.models.factorisation import prediction
from scirocco.models.factorisation.density import Law
from scirocco.models.factorisation.ratings import Triples, check_ids, check_lengths, check_ratings
from scirocco.models.fits.intervals import tails_of
from scirocco.models.view import View, own_run, with_draws
from scirocco.run import Run

_OF = ("rating", "mean")
_PAIRS = 8
"""Pairs of user and item in a report."""


class Recommendation(NamedTuple):
    """Items in the order of their expected rating."""

    items: np.ndarray
    expected: np.ndarray
    """Posterior mean of the rating."""
    sd: np.ndarray
    """Standard deviation of a new rating."""


class Results:
    """Predictions from the draws of a run."""

    run_: Run
    offset_: float
    num_users_: int
    num_items_: int

    def predict(self, users: Any, items: Any, *, interval: float | None = None, of: str = "rating") -> Any:
        """The expected rating of each pair; with `interval` (mean, low, high).

        Parameters
        ----------
        users, items
            Ids; a single one goes with all of the other.
        interval
            The probability of a central interval, such as 0.9.
        of
            What the interval holds: a new "rating" with its noise (default), or its "mean" over repeated ratings.
        """
        _checks.choice(of, "of", _OF)
        tails = () if interval is None else tails_of(interval)
        chosen = self._pairs(users, items)
        columns: list[list[np.ndarray]] = []
        for found in self._parts(*chosen):
            out = [prediction.moments(found)[0]]
            out += [prediction.quantile(found, of == "rating", np.float32(tail)) for tail in tails]
            columns.append([np.asarray(each) + self.offset_ for each in out])
        joined = tuple(_joined(column) for column in zip(*columns, strict=True))
        return joined if interval is not None else joined[0]

    def recommend(self, user: int, n: int = 10, *, exclude_seen: bool = True) -> Recommendation:
        """The `n` items that `user` is expected to rate highest; by default among those that it has not rated."""
        self._check_fitted()
        number = check_ids([user], "user", self.num_users_, "entry")[0]
        n = _checks.positive_int(n, "n")
        items = np.arange(self.num_items_, dtype=np.int32)
        if exclude_seen:
            items = np.setdiff1d(items, self._items_of(number)).astype(np.int32)
        found = [prediction.moments(part) for part in self._parts(np.full(len(items), number), items)]
        mean, sd = (_joined([np.asarray(part[k]) for part in found]) for k in (0, 1))
        best = np.argsort(-mean, kind="stable")[:n]
        return Recommendation(items[best], mean[best] + self.offset_, sd[best])

    def log_predictive(self, users: Any, items: Any, ratings: Any) -> np.ndarray:
        """The log posterior predictive density of each rating."""
        values = check_ratings(ratings)
        chosen = self._pairs(users, items)
        check_lengths({"users": chosen[0], "items": chosen[1], "ratings": values})
        centred, start, out = values - np.float32(self.offset_), 0, []
        for found in self._parts(*chosen):
            stop = start + found.mean.shape[1]
            out.append(np.asarray(prediction.log_density(found, centred[start:stop])))
            start = stop
        return _joined(out)

    def score(self, users: Any, items: Any, ratings: Any) -> float:
        """R² of the expected ratings, as scikit-learn's regressors have it: 1 - Σ(r - r̂)² / Σ(r - r̄)²."""
        values = check_ratings(ratings).astype(np.float64)
        check_lengths(
            dict(zip(("users", "items"), self._pairs(users, items), strict=True)) | {"ratings": values}
        )
        error = values - self.predict(users, items)
        spread = values - values.mean()
        return float(1 - (error @ error) / (spread @ spread)) if spread.any() else float("nan")

    def report_view(self, run: Run | None = None, **options: Any) -> View:
        """What a report shows, see `scirocco.models.view`: what does not change when factors rotate."""
        run = own_run(self, run)
        drawn = run.draws
        draws: dict[str, np.ndarray] = {}
        if "rating_precision" in drawn:
            draws["rating precision"] = np.asarray(drawn["rating_precision"])
        of = ("user factors", "item factors", "user biases", "item biases")
        precisions = np.asarray(drawn["precisions"])
        draws |= {f"precision of {name}": precisions[:, :, k] for k, name in enumerate(of)}
        users = np.linspace(0, self.num_users_ - 1, min(_PAIRS, self.num_users_)).astype(int)
        items = np.linspace(0, self.num_items_ - 1, len(users)).astype(int)
        for user, item in zip(users.tolist(), items.tolist(), strict=True):
            left, right = (np.asarray(drawn[name][:, :, k]) for name, k in (("users", user), ("items", item)))
            biases = np.asarray(drawn["user_bias"][:, :, user]) + np.asarray(drawn["item_bias"][:, :, item])
            rating = np.sum(left * right, axis=-1, dtype=np.float64) + biases + self.offset_
            draws[f"rating of item {item} by user {user}"] = rating
        about = (
            "Factors may rotate and change sign along a chain. Judged and charted are what that does not change: the "
            f"precisions, and the expected ratings of {len(users)} pairs spread over users and items."
        )
        return View(run, type(self).__name__, judged=with_draws(run, draws), about=about)

    # -- inside -----------------------------------------------------------------------------------------------

    def _settle(self, triples: Triples, law: Law) -> None:
        """Take the draws of `run_` apart, and remember who has rated what."""
        known_users, known_items = np.zeros(triples.num_users, bool), np.zeros(triples.num_items, bool)
        known_users[triples.users] = known_items[triples.items] = True
        self._known = prediction.Known(known_users, known_items)
        order = np.argsort(triples.users, kind="stable")
        self._seen = triples.items[order]
        self._first = np.searchsorted(triples.users[order], np.arange(triples.num_users + 1))
        draws = {
            name: np.asarray(leaf).reshape(-1, *leaf.shape[2:]) for name, leaf in self.run_.draws.items()
        }
        fixed = np.full(len(draws["users"]), law.rating_precision or 0.0, np.float32)
        self._tau = draws.pop("rating_precision", fixed)
        self._draws = draws

    def _items_of(self, user: int) -> np.ndarray:
        return self._seen[self._first[user] : self._first[user + 1]]

    def _pairs(self, users: Any, items: Any) -> tuple[np.ndarray, np.ndarray]:
        self._check_fitted()
        left = check_ids(users, "user", self.num_users_, "pair")
        right = check_ids(items, "item", self.num_items_, "pair")
        if len(left) != len(right) and 1 in (len(left), len(right)):
            left, right = (np.ascontiguousarray(side) for side in np.broadcast_arrays(left, right))
        check_lengths({"users": left, "items": right})
        return left, right

    def _parts(self, users: np.ndarray, items: np.ndarray) -> list[prediction.Parts]:
        return [
            prediction.parts(self._draws, self._tau, self._known, users[part], items[part])
            for part in prediction.pieces(len(self._tau), len(users))
        ]

    def _check_fitted(self) -> None:
        if not hasattr(self, "_draws"):
            raise NotFittedError("this BPMF has not been fitted: call fit(users, items, ratings) first.")


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)
