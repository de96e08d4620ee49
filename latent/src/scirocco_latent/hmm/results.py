"""Results of a fitted hidden Markov model: states in one order, their probabilities, transitions, forecasts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scirocco import _checks
from scirocco.diagnostics.intervals import Predicted, central
from scirocco.diffusions.host._threads import run_blocks
from scirocco.errors import InvalidValueError
from scirocco.models._core.model import FittedModel
from scirocco.models._core.relabel import orders
from scirocco.run.result import Run
from scirocco_latent.hmm import emissions
from scirocco_latent.hmm.emissions import Emission, Encoded
from scirocco_latent.hmm.gibbs import Parameters, kernels, log_likelihoods, stationary
from scirocco_latent.hmm.series import Array, SeriesData, SeriesLike, read

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# draws to average over, and observations times draws
_MOST_DRAWS, _LEAST_DRAWS, _MOST_WORK = 200, 20, 20_000_000
_PATHS = 4_000  # simulated paths of a forecast
_OF_STATES = {"initial": (0,), "transitions": (0, 1)}
"""Axes of a draw that are states; of other parameters the first."""


class StateResults(FittedModel):
    """Results computed from the draws, with the states of all draws and chains in one order."""

    run_: Run
    draws_: dict[str, Array]
    """Draws (chain, draw, ...) in the units of the series; state k is the same in all of them."""
    _emission: Emission
    _columns: tuple[str, ...] | None
    seed: int
    num_threads: int | None

    def _coordinates(self) -> dict[str, Sequence[Any]]:
        names: list[Any] | None = None if self._columns is None else list(self._columns)
        if isinstance(self._emission, emissions.Categorical):
            names = list(self._emission.categories)
        if names is None:
            return {}
        axes = {"probabilities": (1,), "means": (1,), "rates": (1,), "covariances": (1, 2)}
        return {f"{key}_dim_{axis}": names for key in self._emission.shapes(1) for axis in axes.get(key, ())}

    # -- parameters ---------------------------------------------------------------------------------------------------

    def _mean(self, name: str) -> Array:
        self._check_fitted()
        if name not in self.draws_:
            has = ", ".join(f"{key}_" for key in self._emission.shapes(1))
            raise AttributeError(f"an HMM with {self._emission.kind} emissions has {has}, not {name}_.")
        mean: Array = self.draws_[name].mean(axis=(0, 1))
        return mean

    @property
    def initial_(self) -> Array:
        """Posterior mean of the distribution of the first state."""
        return self._mean("initial")

    @property
    def transitions_(self) -> Array:
        """Posterior mean transition probabilities: from the state of the row to that of the column."""
        return self._mean("transitions")

    @property
    def means_(self) -> Array:
        """Posterior means of normal emissions, (states, columns)."""
        return self._mean("means")

    @property
    def covariances_(self) -> Array:
        """Posterior mean covariances of normal emissions, (states, columns, columns)."""
        return self._mean("covariances")

    @property
    def rates_(self) -> Array:
        """Posterior mean rates of Poisson emissions, (states, columns)."""
        return self._mean("rates")

    @property
    def probabilities_(self) -> Array:
        """Posterior mean probabilities of categories, (states, categories)."""
        return self._mean("probabilities")

    @property
    def categories_(self) -> Array:
        """The categories, in the order of `probabilities_`."""
        self._check_fitted()
        if not isinstance(self._emission, emissions.Categorical):
            raise AttributeError(f"{self._emission.kind} emissions have no categories.")
        return np.array(self._emission.categories)

    @property
    def observed_(self) -> list[str]:
        """The names of what a forecast has columns for: the categories, or the columns of the observations."""
        self._check_fitted()
        if isinstance(self._emission, emissions.Categorical):
            return [f"P({name})" for name in self._emission.categories]
        width = self._emission.width
        if self._columns is not None and len(self._columns) == width:
            return list(self._columns)
        return [str(place) for place in range(width)]

    @property
    def parameters_(self) -> dict[str, Array]:
        """Posterior means of all parameters of the emissions by name, (states, ...)."""
        self._check_fitted()
        return {name: self._mean(name) for name in self._emission.shapes(1)}

    def transitions(self, interval: float | None = None) -> Any:
        """Transition probabilities (states, states): posterior means, or `(mean, low, high)` of a central interval."""
        self._check_fitted()
        return _with_interval(self.draws_["transitions"], interval)

    def dwell_times(self, interval: float | None = None) -> Any:
        """Expected number of steps that a visit to each state lasts, 1 / (1 - A_kk); see `transitions`."""
        self._check_fitted()
        return _with_interval(_dwell(self.draws_["transitions"]), interval)

    def states(self, interval: float = 0.9) -> Any:
        """One row per state, as a pandas data frame: share of time, stay, dwell time, emissions, with intervals."""
        import pandas as pd

        self._check_fitted()
        moves = self.draws_["transitions"]
        parts = {"share": stationary(moves), "dwell": _dwell(moves), **self._named_parameters()}
        table: dict[str, Any] = {}
        for name, values in parts.items():
            table[name] = values.mean(axis=(0, 1))
            table[f"{name}_low"], table[f"{name}_high"] = central(values, interval, (0, 1))
        if isinstance(self._emission, emissions.Categorical):
            table["most_probable"] = self.categories_[self.probabilities_.argmax(axis=1)]
        frame = pd.DataFrame(table)
        frame.index.name = "state"
        return frame

    def _named_parameters(self) -> dict[str, Array]:
        """Emission parameters by name, (chain, draw, state)."""
        found: dict[str, Array] = {}
        if isinstance(self._emission, emissions.Categorical):
            draws = self.draws_["probabilities"]
            if draws.shape[-1] > 12:
                return {}
            return {f"P({c})": draws[..., v] for v, c in enumerate(self._emission.categories)}
        if self._emission.kind == "own":
            for key in self._emission.shapes(1):
                draws = self.draws_[key]
                for at in np.ndindex(draws.shape[3:]):
                    entry = f"({', '.join(map(str, at))})" if at else ""
                    found[f"{key}{entry}"] = draws[(..., *at)]
            return found
        for place, name in enumerate(self.observed_):
            suffix = "" if self._emission.width == 1 else f"({name})"
            if "rates" in self.draws_:
                found[f"rate{suffix}"] = self.draws_["rates"][..., place]
            else:
                found[f"mean{suffix}"] = self.draws_["means"][..., place]
                found[f"sd{suffix}"] = np.sqrt(self.draws_["covariances"][..., place, place])
        return found

    # -- series -------------------------------------------------------------------------------------------------------

    def predict_proba(self, series: SeriesLike, by: Any = None) -> Any:
        """P(state | the whole series) at each time, averaged over draws: (time, states), or a list of such arrays."""
        given, data = self._read(series, by)
        return given.shaped(self._shares(given, data))

    def predict(self, series: SeriesLike, by: Any = None) -> Any:
        """The most probable state at each time given the whole series: (time,), or a list of such arrays."""
        given, data = self._read(series, by)
        return given.shaped(self._shares(given, data).argmax(axis=1))

    def plot(self, series: SeriesLike, by: Any = None) -> Figure:
        """A matplotlib figure: the first series with the colours of its most probable states, and their probabilities.

        At most 5,000 observations are drawn. Save it with `figure.savefig("states.pdf")`.
        """
        from scirocco_latent.hmm import view

        given, data = self._read(series, by)
        return view.plot(given, self._shares(given, data), self.observed_)

    def _shares(self, given: SeriesData, data: Encoded) -> Array:
        begins, ends = given.bounds[:-1], given.bounds[1:]
        windows = np.stack([begins, ends, begins, ends, np.zeros_like(begins)], axis=1).astype(np.int64)
        nothing = np.empty((0, 0)), np.empty((0, 0, 0)), np.empty((0, 0, 0))
        out, count, run = np.zeros((data.num_rows, self._num_states)), 0, kernels().smooth
        for params in self._some(data.num_rows):
            arguments, chain = self._emission.kernel(params.emission, data), params.chain()

            def work(first: int, last: int, arguments: Any = arguments, chain: Any = chain) -> None:
                run(arguments, chain, windows, *nothing, out, first, last)

            run_blocks(work, len(windows), self.num_threads)
            count += 1
        return out / count

    def log_predictive(self, series: SeriesLike, by: Any = None) -> Array:
        """log p(series | fitted data) of each series, the likelihood averaged over draws; shape (series,)."""
        given, data = self._read(series, by)
        logs = np.array(
            [
                log_likelihoods(self._emission, params, data, given.bounds, self.num_threads)[0]
                for params in self._some(data.num_rows)
            ]
        )
        constant = np.add.reduceat(self._emission.constant(data), given.bounds[:-1])
        found: Array = np.logaddexp.reduce(logs, axis=0) - np.log(len(logs)) + constant
        return found

    def score(self, series: SeriesLike, y: object = None, by: Any = None) -> float:
        """Held-out log likelihood: the sum of `log_predictive`, divided by the number of observations."""
        _, data = self._read(series, by)
        seen = int(np.count_nonzero(~data.is_missing))
        return float(self.log_predictive(series, by).sum() / max(seen, 1))

    def forecast(
        self, steps: int, series: SeriesLike | None = None, *, by: Any = None, interval: float | None = None
    ) -> Any:
        """Forecast the next observations after the end of a series.

        Parameters
        ----------
        steps
            How many times ahead.
        series, by
            The series to continue; None: the one that the model was fitted to, if it was one.
        interval
            Probability of a central interval.

        Returns
        -------
        mean, or (mean, low, high)
            Expected observations, (steps,) or (steps, columns), and the interval in which they will be. For categories
            (steps, categories): their probabilities, and the posterior interval of these. With several series there is
            an axis for them in front.
        """
        steps = _checks.positive_int(steps, "steps")
        self._check_fitted()
        if self._emission.kind == "own":
            raise InvalidValueError(
                "an sc.Model is a density, which cannot be simulated: an HMM with emissions of your own has no "
                "forecasts. Use predict_proba and transitions for the states to come."
            )
        draws, start, alone = self._starts(series, by)
        values, weights = self._state_means(draws), start
        means = []
        for _ in range(steps):
            weights = np.einsum("msj,mjk->msk", weights, draws["transitions"])
            means.append(np.einsum("msk,mkv->msv", weights, values))
        each = np.stack(means, axis=2)  # (draw, series, step, column)
        mean = each.mean(axis=0)
        if interval is None:
            return self._shaped(mean, alone)
        if not isinstance(self._emission, emissions.Categorical):
            each = self._paths(draws, start, steps)
        low, high = central(each, interval)
        return Predicted(*(self._shaped(part, alone) for part in (mean, low, high)))

    def _shaped(self, found: Array, alone: bool) -> Array:
        found = found[0] if alone else found
        flat = not isinstance(self._emission, emissions.Categorical) and self._emission.width == 1
        return found[..., 0] if flat else found

    def _starts(self, series: Any, by: Any) -> tuple[dict[str, Array], Array, bool]:
        """Some draws, (draw, ...); the distribution of the last state, (draw, series, state); whether there is one."""
        self._check_fitted()
        flat = self._flat()
        if series is None:
            if "last" not in flat:
                raise InvalidValueError(
                    "the model was fitted to several series: pass the one to continue, forecast(steps, series)."
                )
            return flat, np.eye(self._num_states)[flat["last"].astype(int)][:, None, :], True
        given, data = self._read(series, by)
        chosen = self._chosen(data.num_rows)
        ends = [
            log_likelihoods(self._emission, self._params(flat, n), data, given.bounds, self.num_threads)[1]
            for n in chosen
        ]
        alone = given.num_series == 1 and not given.is_list and given.rows is None
        return {name: part[chosen] for name, part in flat.items()}, np.array(ends), alone

    def _state_means(self, draws: dict[str, Array]) -> Array:
        """Expected observation in each state, (draw, state, column)."""
        return draws[next(iter(self._emission.shapes(1)))]

    def _paths(self, draws: dict[str, Array], start: Array, steps: int) -> Array:
        """Simulated observations, (path, series, step, column)."""
        rng = np.random.default_rng([self.seed, steps])
        repeats = -(-_PATHS // len(start))
        out = []
        for number, weights in enumerate(start):
            edges = np.cumsum(draws["transitions"][number], axis=1)
            state = _pick(rng, np.broadcast_to(np.cumsum(weights, axis=1), (repeats, *weights.shape)))
            states = np.empty((*state.shape, steps), np.int64)
            for step in range(steps):
                state = _pick(rng, edges[state])
                states[..., step] = state
            one = {name: draws[name][number] for name in self._emission.shapes(1)}
            out.append(self._emission.simulate(rng, one, states))
        return np.concatenate(out)

    # -- inside -------------------------------------------------------------------------------------------------------

    @property
    def _num_states(self) -> int:
        return int(self.draws_["initial"].shape[-1])

    def _read(self, series: SeriesLike, by: Any) -> tuple[SeriesData, Encoded]:
        self._check_fitted()
        given = read(series, by)
        return given, self._emission.encode(given)

    def _flat(self) -> dict[str, Array]:
        return {name: values.reshape(-1, *values.shape[2:]) for name, values in self.draws_.items()}

    def _chosen(self, num_rows: int) -> Array:
        """Numbers of the draws to average over: fewer for long series."""
        total = int(np.prod(self.draws_["initial"].shape[:2]))
        most = min(total, _MOST_DRAWS, max(_LEAST_DRAWS, _MOST_WORK // num_rows))
        return np.unique(np.linspace(0, total - 1, most).astype(int))

    def _some(self, num_rows: int) -> Iterator[Parameters]:
        flat = self._flat()
        for number in self._chosen(num_rows):
            yield self._params(flat, number)

    def _params(self, flat: dict[str, Array], number: int) -> Parameters:
        emission = {name: flat[name][number] for name in self._emission.shapes(1)}
        return Parameters(flat["initial"][number], flat["transitions"][number], self._emission.inside(emission))


def in_one_order(raw: dict[str, Array], emission: Emission) -> dict[str, Array]:
    """Draws (chain, draw, ...) with the states of each in the same order.

    States are compared by their emissions and the probability to stay. They are numbered by the mean of the first
    column, for categories by their share of time.
    """
    shape = raw["initial"].shape[:2]
    flat = {name: values.reshape(-1, *values.shape[2:]) for name, values in raw.items()}
    moves = flat["transitions"]
    stay = np.sqrt(np.diagonal(moves, axis1=1, axis2=2))
    order = orders(np.concatenate([emission.features(flat), stay[..., None]], axis=-1))
    found = _ordered(flat, order)
    key = emission.sort_key({name: found[name].mean(axis=0) for name in emission.shapes(1)})
    if key is None:
        key = -stationary(found["transitions"]).mean(axis=0)
    found = _ordered(flat, order[:, np.argsort(key, kind="stable")])
    return {name: values.reshape(*shape, *values.shape[1:]) for name, values in found.items()}


def _ordered(flat: dict[str, Array], order: Array) -> dict[str, Array]:
    out = {}
    for name, values in flat.items():
        if name == "last":
            out[name] = np.argsort(order, axis=1)[np.arange(len(order)), values.astype(int)]
            continue
        for axis in _OF_STATES.get(name, (0,)):
            index = order.reshape(len(order), *[1] * axis, -1, *[1] * (values.ndim - axis - 2))
            values = np.take_along_axis(values, index, axis=axis + 1)
        out[name] = values
    return out


def _dwell(moves: Array) -> Array:
    num = moves.shape[-1]
    leave = (moves * (1.0 - np.eye(num))).sum(axis=-1)
    with np.errstate(divide="ignore"):
        return 1.0 / leave


def _with_interval(draws: Array, interval: float | None) -> Any:
    mean = draws.mean(axis=(0, 1))
    if interval is None:
        return mean
    low, high = central(draws, interval, (0, 1))
    return Predicted(mean, low, high)


def _pick(rng: np.random.Generator, edges: Array) -> Array:
    """A state from cumulative probabilities along the last axis."""
    found: Array = (rng.random((*edges.shape[:-1], 1)) * edges[..., -1:] > edges).sum(axis=-1)
    return np.minimum(found, edges.shape[-1] - 1)
