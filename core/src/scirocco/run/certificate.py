"""The certificate of a run: how far its means and standard deviations may be from the posterior's, in words.

With z = K⁻¹(x - x̄), where KKᵀ is the covariance of the draws, and g the posterior's score in these coordinates,
draws of the posterior have E[g] = 0 and E[z gᵀ] = -1 (Stein's identity). The least-squares line g = -A (z - m) + r
through the scores at some draws therefore gives the mean m and the covariance A⁻¹ of the posterior as the scores see
them; for a Gaussian it has no residual r and no Monte Carlo error. The certificate is the difference to the draws'
own moments plus two standard errors, for the worst parameter.

This is the short comparison with `sc.Full`: steps of SGLD with exact gradients from the kept draws change the mean of z
by ε E[g] and that of zzᵀ by ε (E[zgᵀ] + E[gzᵀ] + 2), which are the two identities; the line measures both without the
Monte Carlo error of another chain. Of many rows, the gradients are exact at the mean of the draws, and their changes
from there are those of a sample of rows.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from scirocco._random import key_of
from scirocco.data import Table
from scirocco.diagnostics.chains import check_chains, r_hat_in_digits
from scirocco.diagnostics.columns import Columns
from scirocco.diagnostics.measures import ess
from scirocco.drawing.markup import join, plain_table, tag
from scirocco.errors import InvalidTypeError, SciroccoError
from scirocco.estimators.newton import vector
from scirocco.model.base import finer
from scirocco.run import setup
from scirocco.run.choose import limits
from scirocco.run.choose.scores import flat_positions, scores_at
from scirocco.run.predicting import WithDraws
from scirocco.samplers.preconditioned import rows_times, variances
from scirocco.types import Params

_LEAST_DRAWS, _MOST_DRAWS, _SCORED_NUMBERS = 128, 512, 2e7
"""Draws at which scores are computed, and about the most numbers in them."""
_DENSE = 128
"""Parameters up to which the line has a full matrix."""
_MOST_COLUMNS, _AT_A_TIME = 1_000, 1 << 23
"""Parameters that are examined one by one; numbers of draws of which moments are computed at a time."""
DIVERGENT = 0.005  # tolerated share of diverging trajectories
_APART, _PULLED, _LOOKED_AT = 1.5, 3.0, 16
"""R-hat above which chains may stand still; the mean of a score at so many draws of a chain, over its standard
deviation, above which the chain does: of independent draws this is Student's t / 4, above 3 once in 10⁸ parameters."""
_LONG_ENOUGH, _SOME_DRAWS, _FEW_COLUMNS, _HARDLY_ANY = 1_000, 500, 100, 5
"""Draws per chain from which a run with a named sampler is examined, how many of them, how many parameters, and
effective draws per chain below which there is a warning: with five the standard error of a mean is half a standard
deviation."""
MEAN_GOAL, SD_GOAL = 0.1, 0.1
"""What counts as right: means within so many standard deviations, standard deviations within that share."""


@dataclass(frozen=True)
class Certificate:
    """What is known about the errors of a run.

    Attributes
    ----------
    mean_error, sd_error
        Limits for the worst parameter: of the mean, in posterior standard deviations; of the standard deviation,
        relative. None: not known.
    troubles
        What is wrong, one sentence each; empty if nothing was found.
    unknown
        Why a limit is not known; empty if both are.
    measures
        The numbers behind it, by name.
    remarks
        What to know about the posterior though nothing is wrong, one sentence each.
    """

    mean_error: float | None = None
    sd_error: float | None = None
    troubles: tuple[str, ...] = ()
    unknown: str = ""
    measures: dict[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no trouble was found."""
        return not self.troubles

    @property
    def trustworthy(self) -> bool:
        """Whether no trouble was found and means are known within 0.1 sd, standard deviations within 10 %."""
        if self.mean_error is None or self.sd_error is None:
            return False
        return self.ok and self.mean_error <= MEAN_GOAL and self.sd_error <= SD_GOAL

    @property
    def words(self) -> str:
        """The certificate in one line."""
        if self.mean_error is None or self.sd_error is None:
            limits = f"errors not known: {self.unknown}" if self.unknown else "errors not known"
        else:
            limits = (
                f"means right within {_up(self.mean_error, 2)} sd, "
                f"standard deviations within {_up(100 * self.sd_error, 0)} %"
            )
        said = "; ".join((*self.troubles, *self.remarks))
        if self.ok:
            return f"{limits}; {said}" if said else limits
        return said if self.mean_error is None else f"{said} ({limits})"

    def __str__(self) -> str:
        return self.words

    def _repr_html_(self) -> str:
        """The troubles and the limits, for notebooks."""
        if self.mean_error is None or self.sd_error is None:
            rows = [("errors", f"not known: {self.unknown}" if self.unknown else "not known")]
        else:
            rows = [("means", f"right within {_up(self.mean_error, 2)} posterior standard deviations")]
            rows += [("standard deviations", f"right within {_up(100 * self.sd_error, 0)} %")]
        verdict = f"Certificate: {'no trouble was' if self.ok else 'trouble'} found."
        said = (*self.troubles, *self.remarks)
        listed = tag("ul", *(tag("li", f"{sentence}.") for sentence in said)) if said else ""
        return join([tag("p", tag("b", verdict)), listed, plain_table(rows)])

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and strings."""
        return dataclasses.asdict(self) | {"troubles": list(self.troubles), "remarks": list(self.remarks)}

    @classmethod
    def from_json(cls, written: dict[str, Any]) -> Certificate:
        """The certificate that `to_json` wrote."""
        return cls(**(written | {name: tuple(written.get(name, ())) for name in ("troubles", "remarks")}))


def certify(run: Any) -> Certificate:
    """Limits for the errors of a run's means and standard deviations, in words with `print`.

    Compares the moments of the draws with those that the exact gradients at some of them imply (Stein's identity: what
    a few steps with `sc.Full` from these draws would show), and the chains with each other. `sc.sample` does so itself
    when it chooses the sampler (`run.certificate`).

    Parameters
    ----------
    run
        A run of `sc.sample`, made in this process; of a loaded run only the chains are compared.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> x = jax.random.normal(jax.random.key(1), (2000,))
    >>> model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)
    >>> run = sc.sample(model, x, jnp.array(0.0), sampler=sc.SGLD(5e-4), num_samples=5000, progress=False)
    >>> sc.analysis.certify(run).ok  # ε λ = 1: the standard deviation is 41 % too large
    False
    """
    if not isinstance(run, WithDraws):
        raise InvalidTypeError(f"`run` must be a run, from sc.sample or sc.load; got {type(run).__name__}.")
    return certificate_of(run)


def certificate_of(run: Any, table: Table | None = None) -> Certificate:
    """`certify`, from rows that are arranged already."""
    measures: dict[str, Any] = {}
    troubles = _of_chains(run, measures, table)
    unknown = _why_not(run, troubles)
    if unknown:
        return Certificate(None, None, tuple(troubles), unknown, measures, _remarks(run))
    try:
        means, sds = _of_scores(run, measures, table)
    except SciroccoError as reason:
        troubles += [str(reason)] if "still" in measures else []
        return Certificate(None, None, tuple(troubles), str(reason), measures, _remarks(run))
    names = Columns(run.named_draws()).names if run.configuration["dimension"] <= _MOST_COLUMNS else None
    limits = _limits(means, sds)
    exact = finer(run.origin.model) is run.origin.model  # otherwise its density has an error, too
    if exact and run.origin.sampler.needs.trajectory:  # what is left is Monte Carlo error
        limits = [min(*pair) for pair in zip(limits, _monte_carlo(run), strict=True)]
    by_chance = 3 / math.sqrt(max(measures["ess"], 1.0))  # not the sampler's fault: more draws would help
    for (value, error), goal, what in ((means, MEAN_GOAL, "mean"), (sds, SD_GOAL, "standard deviation")):
        beyond = np.abs(value) - 3 * error - by_chance
        worst = int(np.argmax(beyond))
        if beyond[worst] > goal:
            place = f" of {run.labelled(names[worst])}" if names is not None and len(names) == len(value) else ""
            size, much = abs(value[worst]), value[worst] > 0
            amount = (
                f"{size:.2f} sd too {'high' if much else 'low'}"
                if what == "mean"
                else f"{size:.0%} too {'large' if much else 'small'}"
            )
            troubles.append(f"the {what}{place} is about {amount}, by the exact gradients at the draws")
    return Certificate(limits[0], limits[1], tuple(troubles), "", measures, _remarks(run))


def _modes(run: Any) -> str:
    modes = run.preparation["modes"]
    places = "; ".join(f"{mode['at']} ({mode['mass']:.0%} of the mass)" for mode in modes[:3])
    return f"the posterior has at least {len(modes)} modes: {places}" + ("; ..." if len(modes) > 3 else "")


def _remarks(run: Any) -> tuple[str, ...]:
    return (f"{_modes(run)}, between which chains jump",) if run.preparation.get("jumps") else ()


def _limits(*errors: tuple[np.ndarray, np.ndarray]) -> list[float]:
    return [float(np.max(np.abs(value) + 2 * error)) for value, error in errors]


def _of_chains(run: Any, measures: dict[str, Any], table: Table | None = None) -> list[str]:
    """Troubles that the draws alone show."""
    check, troubles = check_chains(run.labelled_draws(), run.group_size), list[str]()
    if "modes" in run.preparation and not run.preparation.get("jumps"):
        troubles.append(
            f"{_modes(run)}. Chains stay where they start, which is the first, so that averages are those of one mode"
        )
    measures["ess"] = check.ess
    measures |= {name: value for name, (value, _) in check.worst.items() if name.startswith("r_hat")}
    agreement, column = check.r_hat
    if check.disagree:
        several = check.num_chains > 1
        if several and agreement > _APART and (still := _standing_still(run, table)):
            troubles.append(f"{still} (R-hat of {column} {r_hat_in_digits(agreement)})")
            return troubles
        why = "they are in different modes, or mix slowly" if several else "it mixes slowly"
        troubles.append(f"{check.who} disagree about {column} (R-hat {r_hat_in_digits(agreement)}): {why}")
    if (
        troubles
        and run.preparation.get("roundness", 0.0) > limits.LIMITS.no_shape
        and run.configuration["dimension"] > _MOST_COLUMNS
    ):
        troubles.append(
            "of models with so many parameters and modes (networks), means of single parameters say nothing; "
            "predictions averaged over the draws may be good, which held-out data can show"
        )
        return troubles
    if check.too_few:
        troubles.append(
            f"only {check.ess:.0f} effective draws of {check.worst['ess_bulk'][1]}: its mean and quantiles are "
            "uncertain. More draws help (num_samples), a form of the model with less dependence between parameters "
            "helps more"
        )
    diverging = run.stats.get("diverging")
    if diverging is not None:
        share = float(np.mean(diverging))
        measures["divergent"] = share
        if share > DIVERGENT:
            troubles.append(
                f"{share:.1%} of trajectories diverged: part of the posterior is too curved to be explored. For a "
                "scale and the effects it scales, the non-centred form helps (effect = scale * z with z standard "
                "normal); otherwise shorter steps, sampler=sc.NUTS(target_acceptance=0.99)"
            )
    return troubles


def _standing_still(run: Any, table: Table | None) -> str:
    """Which chain stands still, and what to do; "" if none does.

    In a chain that samples the posterior the mean score is 0. Where a chain does not move the score hardly changes: its
    mean over draws far apart is many times its standard deviation. Chains in different modes do not show this.
    """
    if _why_not(run, []):
        return ""
    origin, some = run.origin, np.linspace(0, run.num_draws - 1, _LOOKED_AT).round().astype(int)
    positions = flat_positions(origin.model, jax.tree.map(lambda leaf: np.asarray(leaf)[:, some], run.draws))
    flat = positions.reshape(-1, positions.shape[-1])
    table = _table_of(run) if table is None else table
    centre = _unraveled(origin.model, run.draws, flat[0])
    scores = scores_at(finer(origin.model), table, centre, flat, key_of(0)).reshape(positions.shape)
    pull = np.abs(scores.mean(axis=1)) / np.maximum(scores.std(axis=1), 1e-300)
    chain, worst = np.unravel_index(int(np.argmax(np.nan_to_num(pull))), pull.shape)
    if not pull[chain, worst] > _PULLED:
        return ""
    columns = Columns(run.named_draws())
    named = f" {columns.names[worst]}" if len(columns.names) == flat.shape[1] else ""
    moved = np.ptp(positions[chain, :, worst])
    rate = run.stats.get("acceptance_rate")
    accepted = "" if rate is None else f", {float(np.mean(np.asarray(rate)[chain])):.0%} of its moves accepted"
    where = " on the real line" if origin.model.facts.transforms is not None else ""
    return (
        f"chain {chain} hardly moves, far from the posterior: the gradient pulls{named} the same way at all its draws, "
        f"which are within {moved:.1g} of each other{where}{accepted}. More draws do not help: start closer to the "
        "posterior (`params`), or measure data and parameters in units in which they are about 1"
    )


def hardly_any(run: Any) -> str:
    """What is wrong with the draws of a sampler that the user named, if they are too few to say anything; else ""."""
    if run.num_draws < _LONG_ENOUGH or run.draws is None:
        return ""
    step = max(1, run.num_draws // _SOME_DRAWS)  # chains that say hardly anything move slowly: some draws show it
    some = {name: leaf[:, ::step] for name, leaf in run.labelled_draws().items()}
    check = check_chains(some, run.group_size, loose=True, most=_FEW_COLUMNS)
    several = check.num_chains > 1
    if check.ess >= _HARDLY_ANY * run.num_chains or (several and not check.disagree):
        return ""
    column = check.worst["ess_bulk"][1]
    apart = f", R-hat {r_hat_in_digits(check.r_hat[0])}" if several else ""
    return (
        f"the draws say hardly anything about {column}: {check.ess:.0f} effective draws of "
        f"{run.num_chains * run.num_draws:,}{apart}. print(sc.analysis.diagnose(run)) looks for the reason; without "
        "`sampler`, one that suits the posterior is chosen."
    )


def _monte_carlo(run: Any) -> tuple[float, float]:
    """2.5 standard errors of means (in sds) and of standard deviations (relative), for the worst parameter."""
    values = Columns(run.named_draws()).values
    centred = values - values.mean(axis=(0, 1))
    squares = centred**2
    variance = squares.mean(axis=(0, 1))
    relative = squares.std(axis=(0, 1)) / np.maximum(variance, 1e-300) / 2
    sizes = [ess(each, group_size=run.group_size) for each in (values, squares)]
    errors = 1 / np.sqrt(sizes[0]), relative / np.sqrt(sizes[1])
    return float(2.5 * np.nanmax(errors[0])), float(2.5 * np.nanmax(errors[1]))


def _why_not(run: Any, troubles: list[str]) -> str:
    if troubles:
        return "the chains do not represent one distribution"
    if run.origin is None or not run.origin.model.facts.has_density:
        return "they need the model and the data"
    if run.origin.model.facts.takes_key:
        return "the log likelihood is random"
    if float(run.origin.sampler.temperature) != 1.0:
        return "the temperature is not 1"
    return ""


def _table_of(run: Any) -> Table:
    origin = run.origin
    return setup.compose(origin.model, origin.source, origin.sampler, origin.estimator, 0).table


def _of_scores(
    run: Any, measures: dict[str, Any], table: Table | None = None
) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """Relative errors of means and of standard deviations, each with its standard error, per parameter."""
    origin = run.origin
    table = _table_of(run) if table is None else table
    dimension = run.configuration["dimension"]
    positions = flat_positions(origin.model, run.draws, np.float64 if dimension <= _MOST_COLUMNS else None)
    everything = positions.reshape(-1, dimension)
    mean, spread = _moments(everything)
    most = int(np.clip(_SCORED_NUMBERS / dimension, _LEAST_DRAWS, _MOST_DRAWS))
    count = min(len(everything), int(np.clip(4 * dimension, _LEAST_DRAWS, most)))
    kind = np.float64 if dimension <= limits.LIMITS.double_precision else np.float32
    some = everything[np.linspace(0, len(everything) - 1, count).round().astype(int)].astype(kind)
    centre = _unraveled(origin.model, run.draws, mean)
    if np.any(spread == 0):
        measures["still"] = int(np.sum(spread == 0))
        raise SciroccoError("some parameters never move")
    scores = scores_at(finer(origin.model), table, centre, some, key_of(0))
    if not np.all(np.isfinite(scores)):
        raise SciroccoError('some gradients at the draws are not finite: try a larger jitter, or precision="float64"')
    measures["compared"] = count
    if dimension <= _DENSE and len(everything) > 10 * dimension:
        centred = everything - mean
        root = np.linalg.cholesky(centred.T @ centred / len(centred) + 1e-12 * np.diag(spread**2))
        z, g = np.linalg.solve(root, (some - mean).T).T, scores @ root
        units = root / spread[:, None]  # rows of length 1: parameter j is spread_j units_j · z
    elif origin.sampler.known.factor is not None and np.ndim(origin.sampler.known.factor) == 2:
        mean, spread = mean.astype(kind), spread.astype(kind)
        return _through(np.asarray(origin.sampler.known.factor, kind), some - mean, scores, spread, measures)
    else:
        mean, spread = mean.astype(kind), spread.astype(kind)
        z, g, units = (some - mean) / spread, scores * spread, None
    return stein_line(z, g, units, measures)


def _moments(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations of columns, in double precision, without a copy of all of them."""
    mean, spread = np.zeros((2, values.shape[1]))
    step = max(1, _AT_A_TIME // len(values))
    for begin in range(0, values.shape[1], step):
        part = values[:, begin : begin + step].astype(np.float64)
        mean[begin : begin + step], spread[begin : begin + step] = part.mean(axis=0), part.std(axis=0)
    return mean, spread


_CLEAR = 3.0
"""How many standard errors an eigenvalue of the fitted line must be above 0 for its inverse to be used."""


def stein_line(
    z: np.ndarray, g: np.ndarray, units: np.ndarray | None, measures: dict[str, Any]
) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """The moments that the line through the scores implies, relative to mean 0 and variance 1 of each parameter."""
    count = len(z)
    if units is None:  # one parameter at a time
        slope = -(z * g).mean(axis=0) / (z * z).mean(axis=0)
        residual = g - g.mean(axis=0) + slope * (z - z.mean(axis=0))
        shift = z.mean(axis=0) + g.mean(axis=0)
        residual, products = z + g, z * residual
        too_wide = np.sqrt(np.maximum(slope, 1e-3)) - 1
    else:
        design = np.column_stack([np.ones(count), z])
        solution = np.linalg.lstsq(design, g, rcond=None)[0]
        matrix = -(solution[1:] + solution[1:].T) / 2
        residual = g - design @ solution
        uncertain = math.sqrt(np.mean(residual**2) * len(matrix) / count)  # of the eigenvalues of `matrix`
        if np.linalg.eigvalsh(matrix)[0] > _CLEAR * uncertain:
            inverse = np.linalg.pinv(matrix)
            shift = units @ (inverse @ solution[0])
            too_wide = 1 / np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", units, inverse, units), 1e-6)) - 1
        else:  # an inverse would be noise: to first order, by Stein's identities E[g] = 0 and E[g zᵀ] = -1
            shift = units @ (z.mean(axis=0) + g.mean(axis=0))
            too_wide = (np.einsum("ij,jk,ik->i", units, matrix, units) - 1) / 2
        residual = residual @ units.T
        products = (z @ units.T) * residual
    measures["nonlinearity"] = float(np.max(np.mean(residual**2, axis=0)))
    errors = [np.std(values, axis=0) / math.sqrt(count) for values in (residual, products)]
    # positive: the draws' own moments are too large
    return (-shift, errors[0]), (too_wide, errors[1] / 2)


def _through(
    factor: np.ndarray, x: np.ndarray, scores: np.ndarray, spread: np.ndarray, measures: dict[str, Any]
) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """The same for many parameters, by y = -LLᵀ∇ log π, which is about x - m if LLᵀ is about the covariance.

    Draws of the posterior have E[y] = 0 and E[x yᵀ] = LLᵀ, whatever L is; `spread` has the sds of all draws.
    """
    y = -rows_times(factor, rows_times(factor, scores, transposed=True)) / spread
    x = x / spread
    centred = x - x.mean(axis=0)
    slope = np.maximum((centred * y).mean(axis=0) / (centred**2).mean(axis=0), 1e-3)
    shift = y.mean(axis=0) - slope * x.mean(axis=0)
    residual = y - slope * x - shift
    measures["nonlinearity"] = float(np.max(np.mean(residual**2, axis=0)))
    errors = [np.std(values, axis=0) / math.sqrt(len(x)) for values in (residual, centred * residual)]
    ratio = slope * spread**2 / variances(factor)
    return (shift / slope, errors[0]), (np.sqrt(ratio) - 1, errors[1] / 2)


def _unraveled(model: Any, draws: Params, flat: np.ndarray) -> Params:
    one = model.unconstrain(jax.tree.map(lambda leaf: np.asarray(leaf[0, 0]), draws))
    return vector(one)[1](flat)


def _up(value: float, digits: int) -> str:
    """Rounded up: a limit must not look smaller than it is."""
    unit = 10**digits
    return f"{max(math.ceil(value * unit), 1) / unit:.{digits}f}"
