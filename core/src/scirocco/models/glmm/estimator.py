"""`sc.models.GLMM`: generalised linear mixed models from a formula."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Unpack

import numpy as np

from scirocco import _checks
from scirocco._extras import require
from scirocco.diagnostics.intervals import Predicted, central
from scirocco.errors import InvalidValueError
from scirocco.model.families import FAMILIES
from scirocco.models._core import files
from scirocco.models._core.model import FittedModel
from scirocco.models._core.program import FitOptions, OwnChains, Sampled
from scirocco.models._core.view import View
from scirocco.models.glmm import blocks, crossed, density, problem
from scirocco.models.glmm.problem import MIXED, InternalUnits, MixedProblem, Term
from scirocco.models.inputs.formulas import Design, as_frame, parse, refuse_missing, used_columns
from scirocco.run import Run, sample
from scirocco.run.local_draws import some_draws
from scirocco.types import Params, PyTree

_BATCH = 100
"""Groups of a batch where a length is given; otherwise the batch size is chosen."""
_ROWS = 4_000_000
"""Rows × draws of a prediction held at once."""


@dataclasses.dataclass(frozen=True)
class _Effects:
    """The effects of a level in internal units, from its standard normal numbers."""

    factor: density.Factor

    def __call__(self, theta: Params, u: Any) -> PyTree:
        return self.factor.effects(theta, u)


class GLMM(FittedModel):
    """A generalised linear mixed model: coefficients, and effects that differ between the levels of factors.

    The effects of one factor are integrated out (`sc.HierarchicalModel`): chains move the coefficients, deviations and
    correlations, and the effects of any level follow from their draws. With several factors, or with more than four
    effects per level, a blocked Gibbs sampler draws all effects: exact, with all rows in every sweep. Few levels with
    many rows that clearly differ are parameters of the chains: of a factor with at most 300 levels and more than 1,000
    rows for each; and, in more than 300,000 rows, up to 100 levels of all factors but the largest, which is integrated
    out. What was chosen is in `run_.preparation["chosen"]`.

    Parameters
    ----------
    formula
        `y ~ x1 + x2 + (1 + x1 | shop)`: a response, fixed effects, and group terms. `a * b`, `a:b`, `C(x)`, `bs(x)`,
        `poly(x, 2)`, `log(x)` and `0 +` are as in R; `offset(x)` is added to the linear predictor; columns of text are
        categories. `(1 + x | g)` has correlated effects, `(1 + x || g)` uncorrelated ones, `(1 | a/b)` nested
        and `(1 | a) + (1 | b)` crossed factors. For binomial responses: `proportion(successes, trials) ~ ...`.
    family
        "normal", "student" (identity link), "bernoulli", "binomial" (logit), "poisson" or "negative_binomial" (log; the
        variance is μ + dispersion · μ²).
    weights
        Name of a column with weights of the rows' log likelihoods.
    missing
        "error": rows with missing values raise an error; "drop": they are left out, with a warning.
    num_samples, num_burnin, thin, num_chains, seed
        As for `sc.sample`, whose defaults apply to None. Of the blocked Gibbs sampler: 4 chains of 250 draws, one in 4
        sweeps, after 300 sweeps (at least 60).
    num_prediction_draws
        Draws used for predictions and effects of levels.

    Attributes
    ----------
    run_
        The run, in internal units.
    draws_
        Draws in the user's units: `coef`, `sd_shop`, `correlation_shop`, `sigma`, `dispersion`, `freedom`.

    Notes
    -----
    Priors, for columns x and, if it is continuous, a response y in units of their standard deviations (of a Student
    response, 1.48 median absolute deviations): coefficients Normal(0, 2.5), the intercept around the response's
    average; deviations of effects half-Normal(2.5), for a column in units of its root mean square; correlations uniform
    (LKJ with η = 1); sigma Exponential(1); dispersion Exponential(1); degrees of freedom Gamma(2, 0.1).

    Examples
    --------
    >>> import scirocco as sc
    >>> model = sc.models.GLMM("visits ~ price + (1 + price | shop)", family="poisson")

    `model.fit(frame)` draws from the posterior; then `model.summary()`, `model.fixed_effects()`,
    `model.random_effects(levels=["north"])` and `model.predict(new_frame, interval=0.9)`.
    """

    _estimator_type = "regressor"
    ADVICE = "Pass more `num_samples` and `num_burnin`."
    formula: str
    family: str
    num_prediction_draws: int
    draws_: dict[str, np.ndarray]
    _design: Design
    _terms: tuple[Term, ...]
    _factors: tuple[density.Factor, ...]
    _units: InternalUnits
    _saved_effects: dict[str, np.ndarray]
    _fitted_to: tuple[Any, Any] | None
    """The model and the data of a fit in this process: the effects of levels follow from them."""

    def __init__(
        self,
        formula: str,
        family: str = "normal",
        *,
        weights: str | None = None,
        missing: str = "error",
        num_samples: int | None = None,
        num_burnin: int | None = None,
        thin: int | None = None,
        num_chains: int | None = None,
        num_prediction_draws: int = 200,
        seed: int = 0,
    ):
        self.formula, self.family, self.weights, self.missing = formula, family, weights, missing
        self.num_samples, self.num_burnin, self.thin, self.num_chains = (num_samples, num_burnin, thin, num_chains)
        self.num_prediction_draws, self.seed = num_prediction_draws, seed

    def fit(self, frame: Any, y: None = None, **options: Unpack[FitOptions]) -> GLMM:
        """Draw from the posterior given a table with named columns.

        Parameters
        ----------
        frame
            A data frame of pandas, polars or Arrow, a dict of columns, or the path of a table or data folder; the
            response is one of its columns.
        y
            Not used: the formula names the response.
        num_steps, num_epochs, max_seconds
            The length of the run as steps, as passes over the groups or as seconds of sampling; at most one of them. By
            default as long as `num_samples`, `num_burnin` and `thin` say.
        store, resume, overwrite, callbacks, progress
            As for `sc.sample`. A store also has draws of the effects of levels, as a saved model has.
        """
        if y is not None:
            raise InvalidValueError("the formula names the response, a column of the table: call fit(frame) without y.")
        families = tuple(name for name, family in FAMILIES.items() if not family.has_classes)
        _checks.choice(self.family, "family", families)
        _checks.choice(self.missing, "missing", ("error", "drop"))
        _checks.positive_int(self.num_prediction_draws, "num_prediction_draws")
        composed = problem.compose(self.formula, self.family, frame, self.weights, self.missing, parse(self.formula))
        if composed.by_blocks:
            self._run(self._by_blocks(composed), options, self._asked(options, **crossed.DEFAULTS))
        else:
            sampling = partial(sample, composed.model, composed.source, composed.start)
            rows, told = composed.source.num_rows, composed.written()
            self._run(Sampled(sampling, rows, _BATCH, told, chosen=True), options)
        self._fitted_to = (composed.model, composed.source)
        if self.run_.path is not None and not files.has_arrays(self.run_.path):
            files.add_arrays(self.run_, self._written_arrays())
        return self

    def _by_blocks(self, composed: MixedProblem) -> OwnChains:
        """The effects of all factors are drawn in turn: `crossed`."""
        counts = [len(term.levels) for term in composed.terms]
        layout, data = crossed.arranged(
            (self.family, composed.model, composed.factors),
            composed.source.arrays,
            counts,
            [term.intercept for term in composed.terms],
        )
        return OwnChains(
            crossed.words(layout, counts),
            {"sampler": crossed.METHOD, "formula": self.formula, "family": self.family},
            composed.source.fingerprint,
            composed.num_rows,
            crossed.spec_of(layout, composed.start),
            lambda number: crossed.SweepChain(layout, data, composed.start, self.seed, number),
            composed.written(),
            first_steps=blocks.TUNED,
            after_clock=lambda chains: max(0, blocks.TUNED - chains[0].step),
        )

    # -- results -------------------------------------------------------------------------------------------------------

    def _results(self, run: Run, told: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        self._design, self._fitted_to = Design.read(told["design"]), None
        self._terms = tuple(Term.read(term) for term in told["terms"])
        self._factors = tuple(density.Factor(*factor) for factor in told["factors"])
        mean, deviation, centre, spread = told["units"]
        self._units = InternalUnits(np.asarray(mean), np.asarray(deviation), centre, spread)
        self._saved_effects = dict(arrays)
        return problem.outside(run.draws, self._units, self._terms, self._design.names)

    def _watched(self) -> dict[str, np.ndarray]:
        return self.named_draws()

    def _view(self, run: Run, **options: Any) -> View:
        """Coefficients and deviations in the user's units."""
        about = f"{self.formula} ({self.family}), in the units of the columns."
        return View(run, "GLMM", judged=self._judged(), about=about)

    def _written_arrays(self) -> dict[str, np.ndarray]:
        """Draws of the effects of levels that the chains do not have, unless they are too many."""
        arrays = {}
        for number, term in enumerate(self._terms):
            name = f"effects_{number}"
            size = len(term.levels) * len(term.design.names) * self.num_prediction_draws
            if name not in self.run_.draws and size <= MIXED.most_saved:
                arrays[name] = self._own_effects(number, np.arange(len(term.levels)))
        return arrays

    def _coordinates(self) -> dict[str, Sequence[Any]]:
        found: dict[str, Sequence[Any]] = {"coef_dim_0": self._design.names}
        for term in self._terms:
            found[f"sd_{term.name}_dim_0"] = term.design.names
            if f"correlation_{term.name}" in self.draws_:
                found |= {f"correlation_{term.name}_dim_{axis}": term.design.names for axis in (0, 1)}
        return found

    # -- tables --------------------------------------------------------------------------------------------------------

    def named_draws(self) -> dict[str, np.ndarray]:
        """Draws (chain, draw) in the user's units, by name: `x1`, `sd(shop: x1)`, `sigma`, ..."""
        self._check_fitted()
        found = {name: self.draws_["coef"][..., k] for k, name in enumerate(self._design.names)}
        for term in self._terms:
            names = term.design.names
            for k, name in enumerate(names):
                found[f"sd({term.name}: {name})"] = self.draws_[f"sd_{term.name}"][..., k]
            matrix = self.draws_.get(f"correlation_{term.name}")
            if matrix is not None:
                for k, name in enumerate(names):
                    for j, other in enumerate(names[:k]):
                        found[f"correlation({term.name}: {other}, {name})"] = matrix[..., k, j]
        own = (problem.NAMES.get(name, name) for name in FAMILIES[self.family].parameters)
        return found | {name: self.draws_[name] for name in own}

    def fixed_effects(self, interval: float = 0.9) -> Any:
        """Mean, sd and central interval of the coefficients, in the units of the columns, as a pandas data frame."""
        self._check_fitted()
        return _table(self.draws_["coef"].reshape(-1, len(self._design.names)), self._design.names, interval, None)

    def random_effects(
        self, interval: float = 0.9, factor: str | None = None, levels: Sequence[Any] | None = None
    ) -> Any:
        """Mean, sd and central interval of the effects of levels, as a pandas data frame by level and effect.

        Parameters
        ----------
        interval
            Probability of the intervals.
        factor
            A factor of the formula; by default the only one, or the first.
        levels
            Some levels of it, of `a:b` tuples such as `("north", 3)`; by default all.
        """
        self._check_fitted()
        number, term = self._term(factor)
        wanted = term.levels if levels is None else problem.as_labels(list(levels))
        draws = self._effects(number, self._places(term, wanted, strict=True))
        names = term.design.names
        pandas = require("pandas", "random_effects()")
        index = pandas.MultiIndex.from_product([wanted, names], names=[term.name, "effect"])
        return _table(draws.reshape(len(draws), -1), None, interval, index)

    def _term(self, factor: str | None) -> tuple[int, Term]:
        for number, term in enumerate(self._terms):
            if factor in (None, term.name):
                return number, term
        known = ", ".join(repr(term.name) for term in self._terms)
        raise InvalidValueError(f"the formula has no factor {factor!r}; it has {known}.")

    @staticmethod
    def _places(term: Term, labels: np.ndarray, strict: bool = False) -> np.ndarray:
        """Numbers of levels; -1 for labels that are none."""
        if term.levels.dtype.kind in "US":
            labels = labels.astype(str)
        known = {level: number for number, level in enumerate(term.levels.tolist())}
        places = np.array([known.get(label, -1) for label in labels.tolist()], np.int64)
        if strict and np.any(places < 0):
            unknown = labels[int(np.argmax(places < 0))]
            raise InvalidValueError(f"`{term.name}` has no level {unknown!r} in the data of the fit.")
        return places

    # -- effects of levels ---------------------------------------------------------------------------------------------

    def _some(self) -> dict[str, np.ndarray]:
        """The draws that predictions use, in internal units."""
        return {name: np.asarray(leaf) for name, leaf in some_draws(self.run_.draws, self.num_prediction_draws).items()}

    def _effects(self, number: int, places: np.ndarray) -> np.ndarray:
        """Draws (draw, level, q) of the effects of some levels in the user's units."""
        own = np.asarray(self._own_effects(number, places), np.float64)
        return own * (self._units.spread / self._terms[number].scale)

    def _own_effects(self, number: int, places: np.ndarray) -> np.ndarray:
        """The same in internal units."""
        name, factor = f"effects_{number}", self._factors[number]
        if name in self._saved_effects:
            return self._saved_effects[name][:, places]
        if name in self.run_.draws:
            return self._some()[name][:, places]
        if self._fitted_to is None:
            raise InvalidValueError(
                f"the effects of the levels of `{self._terms[number].name}` were not saved with this model: they "
                "follow from the data. Fit it again on the data with store=... and resume=True, without new draws."
            )
        found = self.run_.locals(
            places.tolist(),
            function=_Effects(factor),
            num_draws=self.num_prediction_draws,
            keep_draws=True,
            seed=self.seed,
            model=self._fitted_to[0],
            data=self._fitted_to[1],
        )
        return np.asarray(found.draws)

    # -- predictions ---------------------------------------------------------------------------------------------------

    def predict_frame(self, frame: Any, interval: float = 0.9, **options: Any) -> Any:
        """What `predict` returns, with the same options, as a pandas data frame: `mean`, `low` and `high` of each row.

        It has the index of the rows if `frame` is a pandas data frame.
        """
        pandas = require("pandas", "predict_frame()")
        found = self.predict(frame, interval, **options)
        index = frame.index if isinstance(frame, pandas.DataFrame) else None
        return pandas.DataFrame(found._asdict(), index)

    def predict(
        self,
        frame: Any,
        interval: float | None = None,
        *,
        new_groups: str = "population",
        kind: str = "mean",
        random_effects: bool = True,
    ) -> Any:
        """The posterior mean of the expected response of each row; with `interval`, with central intervals.

        Parameters
        ----------
        frame
            A table with the columns of the formula; the response is not needed.
        interval
            A probability: return a `Predicted` with `mean`, `low` and `high`.
        new_groups
            For levels that the fit has not seen: "population" (no effect: a level in the middle of the population),
            "sample" (effects drawn from the population, so that intervals are those of a new level), or "error".
        kind
            "mean": intervals of the expected response (the probability, for binary and binomial responses); or
            "observation": intervals of a new response.
        random_effects
            False: no effects of levels, for all rows.
        """
        self._check_fitted()
        _checks.choice(new_groups, "new_groups", ("population", "sample", "error"))
        _checks.choice(kind, "kind", ("mean", "observation"))
        parsed = parse(self.formula)
        columns = used_columns(parsed, None, response=False)
        if kind == "observation" and parsed.trials is not None:
            columns = [*columns, parsed.trials]
        if not random_effects:
            varying = {name for term in parsed.groups for name in term.factor.split(":")}
            varying |= {name for term in self._terms for name in term.design.variables}
            columns = [name for name in columns if name in self._design.variables or name not in varying]
        table = as_frame(frame, columns, "predict")
        refuse_missing(table)
        rng = np.random.default_rng(self.seed)
        outcome = list[np.ndarray]()
        some = self._some()
        coef = problem.outside(
            {name: leaf[None] for name, leaf in some.items()}, self._units, self._terms, self._design.names
        )
        size = max(1, _ROWS // len(coef["coef"][0]))
        family = FAMILIES[self.family]
        theta = {name: coef[problem.NAMES.get(name, name)][0] for name in family.parameters}
        parts = self._parts(table, new_groups, coef, rng) if random_effects else []
        for begin in range(0, len(table), size):
            rows = slice(begin, begin + size)
            piece = table.iloc[rows]
            eta = self._design.matrix(piece) @ coef["coef"][0].T
            offset = self._design.offset(piece)
            if offset is not None:
                eta += offset[:, None]
            for effects, places, design in parts:
                own = effects[:, places[rows]]
                eta += np.einsum("nq,snq->ns", design.matrix(piece), own)
            mean = family.mean(eta)
            if interval is None:
                outcome.append(mean.mean(axis=1)[None])
                continue
            drawn = mean
            if kind == "observation":
                trials = None if parsed.trials is None else np.asarray(piece[parsed.trials], np.int64)
                drawn = family.draw(rng, mean, theta, trials)
            ends = np.stack(central(drawn, interval, axis=1))
            outcome.append(np.concatenate([mean.mean(axis=1)[None], ends]))
        joined = np.concatenate(outcome, axis=1)
        return joined[0] if interval is None else Predicted(*joined)

    def _parts(
        self, table: Any, new_groups: str, coef: dict[str, np.ndarray], rng: np.random.Generator
    ) -> list[tuple[np.ndarray, np.ndarray, Design]]:
        """For each group term, effects (draw, level, q) of the levels in the table, and each row's place there."""
        found = []
        for number, term in enumerate(self._terms):
            labels, codes = problem.level_codes(table, term.name)
            places = self._places(term, labels)
            if new_groups == "error" and np.any(places < 0):
                raise InvalidValueError(
                    f"the level {labels[places < 0].tolist()[0]!r} of `{term.name}` is not in the data of the fit. "
                    "new_groups='population' predicts for the middle of the population."
                )
            effects = np.zeros((len(coef["coef"][0]), len(labels), len(term.design.names)))
            seen = places >= 0
            if seen.any():
                effects[:, seen] = self._effects(number, places[seen])
            if new_groups == "sample" and not seen.all():
                sd, size = coef[f"sd_{term.name}"][0], int((~seen).sum())
                z = rng.standard_normal((len(sd), size, sd.shape[1]))
                if f"correlation_{term.name}" in coef:
                    matrix = coef[f"correlation_{term.name}"][0] + 1e-9 * np.eye(sd.shape[1])
                    z = np.einsum("sij,slj->sli", np.linalg.cholesky(matrix), z)
                effects[:, ~seen] = sd[:, None] * z
            found.append((effects, codes, term.design))
        return found


def _table(draws: np.ndarray, names: Sequence[str] | None, interval: float, index: Any) -> Any:
    pandas = require("pandas", "this table")
    low, high = central(draws, interval)
    columns = {"mean": draws.mean(axis=0), "sd": draws.std(axis=0), "low": low, "high": high}
    return pandas.DataFrame(columns, index if names is None else list(names))
