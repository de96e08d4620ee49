"""`diagnose`: all checks of a run in one call."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from scirocco import _tree
from scirocco.analysis.diagnosis import probing, rules
from scirocco.analysis.diagnosis.report import Diagnosis, Finding
from scirocco.diagnostics import ess
from scirocco.diagnostics.chains import ChainCheck, check_chains
from scirocco.diagnostics.columns import Columns, label
from scirocco.diagnostics.measures import Array
from scirocco.errors import InvalidTypeError, InvalidValueError, SciroccoError
from scirocco.estimators import Estimator
from scirocco.model import Model
from scirocco.run import Run, encoding, setup
from scirocco.run.cadence import cadence_of
from scirocco.run.certificate import certificate_of
from scirocco.run.choose import metric
from scirocco.run.records import OWN_LOOP, Record
from scirocco.run.result import Origin
from scirocco.samplers import Sampler
from scirocco.store import Stored
from scirocco.types import Data, Params

_FEW_DRAWS = 20  # fewer say nothing
_MOST_PARAMETERS, _MOST_DRAWS = 200, 20_000  # whose drift is measured


def diagnose(
    run: Run,
    model: Model | None = None,
    data: Data | None = None,
    *,
    sampler: Sampler | None = None,
    estimator: Estimator | None = None,
    seed: int = 0,
) -> Diagnosis:
    """Check whether a run can be trusted; if not, say what to change, and to which value.

    The checks: effective sample sizes (bulk, tail, per second, per gradient), R-hat, drift between halves, agreement
    of the chains; step size × largest curvature (power iteration on Hessian-vector products), gradient noise relative
    to injected noise, and by how much the two inflate variances (closed forms for SGLD, SGHMC, BAOAB, SGNHT, BADODAB);
    Stein's identity and the kernel Stein discrepancy with gradients at the draws; how far the prior moves the
    posterior. Of a run with a trustworthy certificate (`run.certificate`) only the chains and the prior are checked.

    Parameters
    ----------
    run
        A run from `sc.sample`, `sc.resume` or `sc.load`.
    model, data
        Needed for a run that was loaded, as stores contain neither. Without them only the draws are checked.
    sampler, estimator
        Needed for a run that was saved with `run.save` or uses your own classes; otherwise they are known.
    seed
        Random seed of the rows that are used.

    Returns
    -------
    Diagnosis
        Print it to read it; `diagnosis.ok`, `diagnosis.names` and `diagnosis.measures` are for programs.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> x = jax.random.normal(jax.random.key(1), (2000,))
    >>> model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)
    >>> run = sc.sample(model, x, jnp.array(0.0), sampler=sc.SGLD(5e-4), num_samples=5000, progress=False)
    >>> sc.analysis.diagnose(run).names  # ε λ = 1
    ['step size too large']
    """
    if not isinstance(run, Run):
        raise InvalidTypeError(f"`run` must be a run, from sc.sample or sc.load; got {type(run).__name__}.")
    if run.draws is None or run.num_draws < _FEW_DRAWS:
        raise InvalidValueError(
            f"diagnose requires at least {_FEW_DRAWS} draws; this run ({run.status}) has "
            f"{0 if run.draws is None else run.num_draws}. Sample more, with keep_draws=True."
        )
    missing: list[str] = []
    num_steps = cadence_of(run.configuration).steps(run.num_draws)
    own_loop = run.kind == OWN_LOOP
    shown = run if run.converted is None else dataclasses.replace(run, draws=run.converted[0])
    columns = Columns(shown.named_draws()).spread(_MOST_PARAMETERS)
    columns = columns.thinned(max(1, run.num_draws // _MOST_DRAWS))
    check = check_chains(shown.named_draws(), run.group_size, loose=own_loop)  # names as in all measures
    measures = _measure_chains(columns, _reshaped(run)) | check.measures | _rates(check, run, num_steps)
    if len(columns.names) < columns.total:
        missing.append(f"drift of all parameters: {len(columns.names)} of {columns.total:,} were included")
    origin = _origin(run, model, data, sampler, estimator, missing)
    certificate = run.certificate
    if certificate is None and not own_loop:  # those have no log density, and their chains are judged here
        certificate = certificate_of(dataclasses.replace(run, origin=origin))
    predicted, about = None, _about(run, origin, num_steps) | {"check": check, "certificate": certificate}
    certified = run.certificate is not None and run.certificate.trustworthy
    if origin is not None and certified:  # means and variances are known to be right: nothing to explain
        _add_prior(origin.model, probing.some_on_the_real_line(origin.model, run.draws), measures)
    elif origin is not None:
        try:
            predicted = _look_closer(_one_place(run, measures), origin, measures, num_steps, seed)
        except SciroccoError as error:
            missing.append(f"curvature, noise and Stein's identity: {error}")
    findings = rules.find_faults(measures, predicted, about)
    if "modes" in run.preparation and not run.preparation.get("jumps"):
        findings.insert(0, rules.several_modes(run.preparation["modes"]))
    found = _labelled(run, Diagnosis(findings, measures, missing, f"Diagnosis of {run!r}", certificate))
    if all(finding.name == "prior and data disagree" for finding in findings):
        found.findings.extend(rules.unexplained(certificate))  # of a certificate, whose parameters have their names
    return found


def _labelled(run: Run, found: Diagnosis) -> Diagnosis:
    """The diagnosis with the names that the parameters of a model have, such as those of its columns."""
    findings = [Finding(*map(run.labelled, dataclasses.astuple(each))) for each in found.findings]
    measures = {
        name: run.labelled(value) if isinstance(value, str) else value for name, value in found.measures.items()
    }
    return dataclasses.replace(found, findings=findings, measures=measures)


def _look_closer(
    draws: Params, origin: Origin, measures: dict[str, Any], num_steps: int, seed: int
) -> probing.Theory | None:
    """Add the checks that need the model and the data."""
    probe = probing.make_probe(origin, draws, num_steps, seed)
    found = probing.predict(probe, origin.sampler)
    names = _position_names(probe.position)
    if found is not None:
        measures |= {
            "curvature": found.stiffness,
            "step_inflation": found.step,
            "noise_ratio": found.noise_ratio,
            "noise_inflation": found.noise,
            "noise_inflation_parameter": None if origin.sampler.needs.metric != "none" else names[found.place],
        }
    temperature = float(origin.sampler.temperature)
    kind = "laplace" if len(names) <= metric.DENSE_LIMIT else "diagonal"
    shape = metric.shape_at(probe.model, probe.table, probe.position, kind, probe.key)
    measures |= {"condition": shape.condition, "flat": shape.flat}
    stein = probing.stein_checks(probe, shape, temperature)
    measures |= {"stein_inflation": stein.inflation, "stein_inflation_error": stein.error}
    measures |= {"ksd": stein.ksd, "ksd_of_exact_draws": stein.ksd_of_exact_draws}
    _add_prior(probe.model, probe.draws, measures)
    return found


def _add_prior(model: Model, draws: Params, measures: dict[str, Any]) -> None:
    """Add how far the prior moves the posterior; `draws` are on the real line."""
    names = _position_names(jax.tree.map(lambda leaf: leaf[0, 0], draws))
    pull, out = probing.prior_pull(model, draws)
    place = int(np.argmax(np.where(out > rules.FAR_OUT, pull, 0.0) + 1e-9 * pull))
    measures |= {"prior_pull": float(pull[place]), "prior_pull_parameter": names[place]}
    measures["prior_distance"] = float(out[place])


def _one_place(run: Run, measures: dict[str, Any]) -> Params:
    """The draws; only those of one chain if chains disagree, as the point between two modes means nothing."""
    if measures.get("chain_spread", 0.0) < rules.APART:
        return run.draws
    return jax.tree.map(lambda leaf: leaf[:1], run.draws)


def _position_names(position: Params) -> list[str]:
    leaves = zip(_tree.leaf_names(position), jax.tree.leaves(position), strict=True)
    return [label(name, leaf.shape, k) for name, leaf in leaves for k in range(leaf.size)]


def _origin(
    run: Run,
    model: Model | None,
    data: Data | None,
    sampler: Sampler | None,
    estimator: Estimator | None,
    missing: list[str],
) -> Origin | None:
    """The model, data, sampler and estimator of the run: kept in memory, or from the caller and the store."""
    known = run.origin
    has_none = isinstance(model, Model) and not model.facts.has_rows
    if known is None and (model is None or (data is None and not has_none)):
        if run.kind == OWN_LOOP:
            missing.append("curvature and gradients: the model has its own sampling loop")
        else:
            missing.append("curvature, gradient noise, Stein's identity, prior: pass model=... and data=...")
        return None
    if known is None:
        record = Record.from_json(Stored.open(run.path).record) if run.path else None
        sampler = _part(record and record.sampler, sampler, "sampler")
        estimator = _part(record and record.estimator, estimator, "estimator")
        known = Origin(model, setup.source_of(model, data), sampler, estimator, None)
    if not isinstance(known.model, Model):
        missing.append("curvature and gradients: a CountModel has no log density")
        return None
    if float(known.sampler.temperature) == 0.0:
        missing.append("curvature, noise, Stein's identity: at temperature 0 there is no distribution to sample")
        return None
    return known


def _part(written: Any, given: Sampler | Estimator | None, name: str) -> Any:
    if given is not None:
        return given
    if written is None:
        raise InvalidValueError(
            f"this run does not contain its {name} (it was written by run.save): pass {name}=... as in sc.sample."
        )
    return encoding.decode(written, name)


def _about(run: Run, origin: Origin | None, num_steps: int) -> dict[str, Any]:
    sampler = origin.sampler if origin is not None else None
    estimator = origin.estimator.core if origin is not None else None
    return {
        "diverged": run.status == "diverged",
        "num_draws": run.num_draws,
        "num_steps": num_steps,
        "preconditioned": sampler is not None and sampler.needs.metric != "none",
        "tuned": "tuning" in run.preparation,
        "own_loop": run.kind == OWN_LOOP,
        "num_rows": run.configuration.get("num_rows", 0),
        "centred": estimator is not None and estimator.traits.keeps_one_sum,
        "plain": estimator is not None and _remembers_nothing(estimator, run),
        "batch_size": None if estimator is None else estimator.batch_size,
    }


def _remembers_nothing(estimator: Estimator, run: Run) -> bool:
    """Whether gradients are estimated from a batch alone, so that control variates would reduce their noise."""
    draw = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[2:], leaf.dtype), run.draws)
    num_rows = run.configuration.get("num_rows", 0)
    memory = jax.eval_shape(lambda position: estimator.blank_memory(position, position, num_rows), draw)
    return not jax.tree.leaves(memory)


# -- checks of the draws alone ---------------------------------------------------------------------------------


def _reshaped(run: Run) -> tuple[str, ...]:
    """Parameters with more elements than the chain has coordinates for them: some of the elements may be constants."""
    spec = run.configuration.get("parameters", {})
    shapes = {name: list(leaf.shape[2:]) for name, leaf in run.named_draws().items()}
    return tuple(name for name, shape in shapes.items() if name in spec and spec[name]["shape"] != shape)


def _measure_chains(columns: Columns, reshaped: tuple[str, ...]) -> dict[str, Any]:
    """Parameters that stand still, and how far chains drift and are apart."""
    values = columns.values
    moving = values.reshape(-1, values.shape[2]).std(axis=0) > 0
    stuck = [n for n, m in zip(columns.names, moving, strict=True) if not (m or n.startswith(reshaped or " "))]
    out: dict[str, Any] = {"stuck": stuck} if stuck else {}
    if not moving.any():
        return out
    values, names = values[:, :, moving], [n for n, m in zip(columns.names, moving, strict=True) if m]
    (drift, trend), spread = _drift(values), _spread(values)
    out |= {"drift": float(np.nanmax(drift)), "drift_parameter": names[int(np.nanargmax(drift))]}
    out["trend"], out["chain_spread"] = float(trend.max()), float(spread.max())
    if values.shape[0] > 1:
        place = int(np.argmax(spread))
        out["ess_of_one_chain"] = float(np.median([ess(chain[None, :, place]) for chain in values]))
    return out


def _rates(check: ChainCheck, run: Run, num_steps: int) -> dict[str, float]:
    """Effective draws per second and per gradient."""
    if "ess_bulk" not in check.worst:
        return {}
    parts = [run.timing.get(name) for name in ("first_chunk", "sampling")]
    seconds = sum(part["wall"] for part in parts if isinstance(part, dict) and "wall" in part)
    out = {"ess_per_second": check.ess / seconds} if seconds else {}
    return out | {"ess_per_gradient": check.ess / max(1, num_steps * check.num_chains)}


def _drift(values: Array) -> tuple[Array, Array]:
    """Mean of the second half minus that of the first, in sds of the second halves.

    Averaged over chains without the sign (drift, which slow mixing also causes), and with the sign (trend, which is
    large only if all chains move in one direction; slow mixing gives about 2/√chains).
    """
    half = values.shape[1] // 2
    first, second = values[:, :half], values[:, half:]
    scale = np.sqrt(second.var(axis=1).mean(axis=0)) + 1e-300
    moved = second.mean(axis=1) - first.mean(axis=1)
    return np.abs(moved).mean(axis=0) / scale, np.abs(moved.mean(axis=0)) / scale


def _spread(values: Array) -> Array:
    """Largest distance between means of the chains' second halves, in sds within chains."""
    second = values[:, values.shape[1] // 2 :]
    scale = np.sqrt(second.var(axis=1).mean(axis=0)) + 1e-300
    means = second.mean(axis=1)
    return (means.max(axis=0) - means.min(axis=0)) / scale
