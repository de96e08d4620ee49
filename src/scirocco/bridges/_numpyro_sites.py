"""What a NumPyro model looks like: its plate over the data, its latent sites, and their transforms."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import transforms as _transforms
from scirocco._extras import require
from scirocco.bridges._numpyro_trace import PURPOSE, Reader, Site, Trace, frame_of, sample_sites
from scirocco.data import ArraySource
from scirocco.errors import InvalidValueError
from scirocco.transforms import Transform
from scirocco.types import Key, Params, Rows


def find_latents(
    reader: Reader, source: ArraySource, plate: str | None, init_strategy: Any
) -> tuple[Params, dict[str, Transform | None]]:
    """Tell the reader its plates; start values and transforms by name. Refuses what cannot be sampled."""
    infer = require("numpyro.infer", PURPOSE)
    strategy = infer.init_to_median() if init_strategy is None else init_strategy
    more, less = min(source.num_rows, 3), max(1, min(source.num_rows, 3) - 1)
    rows = source.read(0, more)
    try:
        start, other = _two_starts(reader, rows, strategy)
        trace, again = reader.trace_at(rows, start), reader.trace_at(rows, other)
    except Exception as error:
        raise failure(f"it was given {more} of the {source.num_rows} rows", error) from error
    try:
        sizes, fewer = _plate_sizes(reader, rows, start), _plate_sizes(reader, source.read(0, less), start)
    except Exception as error:
        raise failure(f"it was given {less} of the {source.num_rows} rows", error) from error
    following = frozenset(name for name, size in sizes.items() if size == more and fewer.get(name) == less)
    reader.plates = _check_plates(sizes, following, more, source.num_rows, plate)
    sites = sample_sites(trace)
    _check_sites(trace, sites, reader.plates)
    latents = [site for site in sites if not site["is_observed"]]
    if not latents:
        raise InvalidValueError("the NumPyro model has no latent site: there is nothing to sample.")
    supports = {site["name"]: _transform(site, again[site["name"]]) for site in latents}
    return {name: start[name] for name in supports}, supports


def _two_starts(reader: Reader, rows: Rows, strategy: Any) -> list[Params]:
    """Values for the latent sites by the strategy, for two keys, compiled once (op by op it takes seconds)."""

    @jax.jit
    def start(key: Key) -> Params:
        sites = sample_sites(reader.trace(rows, strategy, key))
        return {site["name"]: jnp.asarray(site["value"], float) for site in sites if not site["is_observed"]}

    return [start(key) for key in jax.random.split(jax.random.key(reader.seed))]


def _plate_sizes(reader: Reader, rows: Rows, params: Params) -> dict[str, int]:
    """The sizes of all plates when the model is given these rows; nothing is computed."""
    sizes: dict[str, int] = {}

    def look(params: Params, rows: Rows) -> None:
        trace = reader.trace_at(rows, params)
        sizes.update({name: site["args"][0] for name, site in trace.items() if site["type"] == "plate"})

    jax.eval_shape(look, params, rows)
    return sizes


def failure(when: str, error: Exception) -> InvalidValueError:
    """The user's model raised: say when, and the usual reason."""
    said = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return InvalidValueError(
        f"the NumPyro model failed when {when}: {said} It is called with minibatches inside compiled code, so all its "
        "shapes must follow the data, e.g. numpyro.plate('data', X.shape[0]); pass what has one row per datum in "
        "`data` and everything else as further arguments."
    )


def _check_plates(
    sizes: dict[str, int], following: frozenset[str], count: int, num_rows: int, wanted: str | None
) -> frozenset[str]:
    """The plates over the data: those that follow the number of rows, or the one that the user named."""
    advice = "Take its size from the data, e.g. numpyro.plate('data', X.shape[0])."
    if not sizes:
        raise InvalidValueError(
            "the NumPyro model has no plate: without one it is not known which terms belong to which row. Put the "
            "likelihood in `with numpyro.plate('data', X.shape[0]):`."
        )
    if wanted is not None and wanted not in sizes:
        raise InvalidValueError(f"the model has no plate `{wanted}`; its plates are {sorted(sizes)}.")
    if wanted is not None and wanted not in following:
        raise InvalidValueError(
            f"plate `{wanted}` has size {sizes[wanted]} when the model is given {count} rows. {advice}"
        )
    if not following:
        fixed = ", ".join(f"`{name}` (size {size})" for name, size in sorted(sizes.items()))
        raise InvalidValueError(
            f"no plate of the model follows the data: given {count} of the {num_rows} rows it has {fixed}. {advice}"
        )
    return following if wanted is None else frozenset([wanted])


def _check_sites(trace: Trace, sites: list[Site], plates: frozenset[str]) -> None:
    """Refuse `param` sites, local latents, discrete latents and a plate without observations."""
    for site in trace.values():
        if site["type"] == "param":
            raise InvalidValueError(
                f"site `{site['name']}` is a numpyro.param, which is optimised, not sampled: make it a "
                "numpyro.sample, or pass its value as an argument."
            )
    for site in sites:
        if not site["is_observed"]:
            _check_latent(site, frame_of(site, plates))
    if not any(site["is_observed"] and frame_of(site, plates) is not None for site in sites):
        raise InvalidValueError(
            f"no observed site is inside the plate over the data ({', '.join(sorted(plates))}). Put the likelihood "
            "there, with obs=..., and pass the observations in `data`."
        )


def _check_latent(site: Site, frame: Any) -> None:
    if frame is not None:
        raise InvalidValueError(
            f"site `{site['name']}` is a latent variable for each row of plate `{frame.name}`. If it was meant to "
            "be observed, put its values in `data`; otherwise sum or integrate it out of the likelihood."
        )
    if site["fn"].support.is_discrete:
        raise InvalidValueError(
            f"site `{site['name']}` is discrete ({type(site['fn']).__name__}). Gradient samplers need continuous "
            "parameters: sum it out of the likelihood (e.g. dist.MixtureSameFamily)."
        )


# -- supports and transforms -------------------------------------------------------------------------------


def _transform(site: Site, again: Site) -> Transform | None:
    """The transform for a site's support, which must not depend on other sites (looked at for two values of them)."""
    found = transform_of(site)
    if found != transform_of(again):
        raise InvalidValueError(
            f"the support of site `{site['name']}` depends on another site. Sample a variable with fixed bounds and "
            "rescale it in the model."
        )
    return found


def transform_of(site: Site) -> Transform | None:
    """scirocco's transform from the real line to the support of a site; None where that is the real line."""
    constraints = require("numpyro.distributions.constraints", PURPOSE)
    support = site["fn"].support
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    if support is constraints.real:
        return None
    if support is constraints.ordered_vector:
        return _transforms.ordered
    if isinstance(support, constraints.interval) and support is not constraints.circular:
        return _transforms.interval(_bound(site, support.lower_bound), _bound(site, support.upper_bound))
    if isinstance(support, constraints.greater_than):
        return _transforms.above(_bound(site, support.lower_bound))
    if isinstance(support, constraints.less_than):
        return _transforms.below(_bound(site, support.upper_bound))
    raise InvalidValueError(
        f"the support of site `{site['name']}` ({support}) has no transform here. Supported are real, positive, "
        "bounded and ordered sites; write it as a function of such (e.g. by numpyro.infer.reparam), or for a "
        "probability vector use the samplers on the simplex."
    )


def _bound(site: Site, value: Any) -> float:
    values = np.unique(np.asarray(value, np.float64))
    if len(values) != 1:
        raise InvalidValueError(
            f"the bounds of site `{site['name']}` differ from element to element. Sample it on (0, 1) and rescale "
            "it in the model."
        )
    return float(values[0])
