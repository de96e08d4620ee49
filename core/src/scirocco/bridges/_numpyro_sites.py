"""Analysis of the trace of a NumPyro model: the plate over the data, latent sites, and their transforms."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from scirocco import transforms as _transforms
from scirocco._extras import require
from scirocco.bridges._common import LocalVariable, check_size, placed, said
from scirocco.data import ArraySource
from scirocco.errors import InvalidValueError
from scirocco.model.checks import used_inputs
from scirocco.transforms import Transform
from scirocco.types import Array, Key, Params, Rows

PURPOSE = "sc.from_numpyro"
Site = Mapping[str, Any]
Trace = Mapping[str, Site]
_START_RADIUS = 0.1  # on the real line: from NumPyro's own, 2, sums over many rows are far from any mode
Bounds = tuple[Any, Any]
Strategy = Callable[[Site], Any]
"""How NumPyro chooses the value that a latent site starts with."""
T = TypeVar("T")


class Reader:
    """The user's model with its fixed arguments, to be run on any number of rows."""

    def __init__(self, model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], seed: int):
        self.handlers = require("numpyro.handlers", PURPOSE)
        self.model, self.args, self.kwargs, self.seed = model, args, kwargs, seed
        self.plates: frozenset[str] = frozenset()
        """The plates over the data, once known, ..."""
        self.locals: dict[str, LocalVariable] = {}
        """... and the latent sites in them."""

    def arguments(self, rows: Rows) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments of the model for these rows."""
        if isinstance(rows, Mapping):
            return self.args, {**self.kwargs, **rows}
        return self.args + (tuple(rows) if isinstance(rows, (tuple, list)) else (rows,)), self.kwargs

    def whole(
        self,
        value_of: Callable[[Any], Any] = lambda site: None,
        key: Key | None = None,
        handler: Callable[..., Any] = lambda model: model,
    ) -> Callable[..., Any]:
        """The model with every plate at full size (no subsampling, hence no scale) and latents from `value_of`."""

        def substitute(site: Site) -> Any:
            return jnp.arange(site["args"][0]) if site["type"] == "plate" else value_of(site)

        seeded = self.handlers.seed(handler(self.model), self.seed if key is None else key)
        return self.handlers.substitute(seeded, substitute_fn=substitute)

    def trace(
        self,
        rows: Rows,
        value_of: Callable[[Any], Any],
        key: Key | None = None,
        handler: Callable[..., Any] = lambda model: model,
    ) -> Trace:
        """All sites of the model, run on these rows."""
        args, kwargs = self.arguments(rows)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "subsample_size does not match")
            return self.handlers.trace(self.whole(value_of, key, handler)).get_trace(*args, **kwargs)

    def trace_at(self, rows: Rows, params: Params) -> Trace:
        """All sites of the model, with given values of the latent sites."""
        return self.trace(rows, self._given(params))

    @staticmethod
    def _given(params: Params) -> Callable[[Site], Any]:
        return lambda site: params.get(site["name"]) if site["type"] == "sample" else None

    def with_locals(self, params: Params, local: Params) -> Params:
        """The values of all latent sites for some rows; `local` has leaves (row, ...)."""
        return params | placed(local, self.locals)

    def rowwise(self, params: Params, rows: Rows) -> Array:
        """Log density of each row: the sites in the plate over the data, summed over all axes except the rows."""
        total = jnp.zeros(jax.tree.leaves(rows)[0].shape[0])
        for site in sample_sites(self.trace_at(rows, params)):
            frame = frame_of(site, self.plates)
            if frame is not None:
                values = jnp.moveaxis(_log_prob(site), frame.dim, 0)
                total = total + values.reshape(values.shape[0], -1).sum(axis=1)
        return total

    def outside(self, params: Params, rows: Rows) -> Array:
        """Log density of everything outside that plate: the prior, provided that it does not depend on the rows."""
        sites = sample_sites(self.trace_at(rows, params))
        terms = [jnp.sum(_log_prob(site)) for site in sites if frame_of(site, self.plates) is None]
        return sum(terms, jnp.zeros(()))

    def deterministic(self, params: Params, rows: Rows) -> dict[str, Array]:
        """The deterministic sites; those that `numpyro.handlers.reparam` replaced are among them."""
        trace = self.trace_at(rows, params)
        return {name: jnp.asarray(site["value"]) for name, site in trace.items() if site["type"] == "deterministic"}

    def simulate(self, params: Params, row: Rows, key: Key) -> dict[str, Array]:
        """New values of the observed sites of a row, by name; latent sites of the row are drawn, too."""
        rows = jax.tree.map(lambda leaf: leaf[None], row)
        found = {}
        for site in sample_sites(self.trace(rows, self._given(params), key, self.handlers.uncondition)):
            frame = frame_of(site, self.plates)
            if frame is not None and site["infer"].get("was_observed", False):
                value = jnp.asarray(site["value"])
                found[site["name"]] = jnp.take(value, 0, frame.dim - site["fn"].event_dim)
        return found

    def observed(self, rows: Rows) -> dict[str, Array]:
        """The values of these sites that were observed, (row, ...)."""
        found = {}
        for site in sample_sites(self.trace(rows, lambda site: None)):
            frame = frame_of(site, self.plates)
            if frame is not None and site["is_observed"]:
                value = jnp.broadcast_to(site["value"], site["fn"].shape())
                found[site["name"]] = jnp.moveaxis(value, frame.dim - site["fn"].event_dim, 0)
        return found

    def joint(self, params: Params, rows: Rows) -> Array:
        """NumPyro's own log density of everything."""
        args, kwargs = self.arguments(rows)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "subsample_size does not match")
            return require("numpyro.infer.util", PURPOSE).log_density(self.whole(), args, kwargs, params)[0]


def find_derived(reader: Reader, source: ArraySource, params: Params) -> Callable[[Params], dict[str, Array]] | None:
    """The deterministic sites that do not depend on the rows, as a function of the parameters; None without any."""
    one, two = source.read(0, 1), source.read(0, min(2, source.num_rows))
    shapes, others = (jax.eval_shape(reader.deterministic, params, rows) for rows in (one, two))
    local = {name: each.start[None] for name, each in reader.locals.items()}

    def by_rows(rows: Rows, local: Params) -> dict[str, Array]:
        return reader.deterministic(reader.with_locals(params, local), rows)

    graph = jax.make_jaxpr(by_rows)(one, local).jaxpr
    names = [
        name
        for place, name in enumerate(sorted(shapes))
        if shapes[name] == others[name]
        and not any(used_inputs(graph, [place == other for other in range(len(shapes))]))
    ]

    def derived(params: Params) -> dict[str, Array]:
        found = reader.deterministic(params, one)
        return {name: found[name] for name in names}

    return derived if names else None


def sample_sites(trace: Trace) -> list[Site]:
    """Latent and observed sites, without plates and deterministic ones."""
    return [site for site in trace.values() if site["type"] == "sample"]


def frame_of(site: Site, plates: frozenset[str]) -> Any:
    """The site's place in a plate over the data, or None."""
    return next((frame for frame in site["cond_indep_stack"] if frame.name in plates), None)


def _log_prob(site: Site) -> Array:
    value = site["fn"].log_prob(site["value"])
    return value if site["scale"] is None else site["scale"] * value


# -- latent sites and their transforms -----------------------------------------------------------------------


class FirstLook(NamedTuple):
    """Results of running the model on a few rows."""

    trace: Trace
    """Use it only for what does not depend on values: names, kinds, plates, supports."""
    starts: list[Params]
    """Two sets of values for the latent sites, ..."""
    bounds: list[dict[str, Bounds]]
    """... and the bounds of the sites' supports for each."""


def find_latents(
    reader: Reader, source: ArraySource, plate: str | None, init_strategy: Strategy | None
) -> tuple[Params, dict[str, Transform | None]]:
    """Set the plates and local sites of the reader; return initial values and transforms of the others by name.

    Checks that sites can be sampled.
    """
    infer = require("numpyro.infer", PURPOSE)
    strategy = infer.init_to_uniform(radius=_START_RADIUS) if init_strategy is None else init_strategy
    more, less = min(source.num_rows, 3), max(1, min(source.num_rows, 3) - 1)
    look = _try(_look, reader, source, more, strategy)
    sizes, fewer = _plate_sizes(look.trace), _try(_sizes_only, reader, source, less, strategy)
    following = frozenset(name for name, size in sizes.items() if size == more and fewer.get(name) == less)
    reader.plates = _check_plates(sizes, following, more, source.num_rows, plate)
    _check_sites(look.trace, reader.plates)
    supports = {site["name"]: _transform(site, *look.bounds) for site in _latents(look.trace)}
    start = dict(look.starts[0])
    for site in _latents(look.trace):
        frame, name = frame_of(site, reader.plates), site["name"]
        if frame is not None:
            axis = frame.dim - site["fn"].event_dim
            reader.locals[name] = LocalVariable(jnp.take(start.pop(name), 0, axis), supports.pop(name), axis)
    check_size(reader.locals, "row")
    if not supports:
        raise InvalidValueError(
            "the NumPyro model has no latent site outside the plate over the data: there is nothing to sample."
        )
    return start, supports


def _try(
    function: Callable[[Reader, Rows, Strategy], T], reader: Reader, source: ArraySource, count: int, strategy: Strategy
) -> T:
    try:
        return function(reader, source.read(0, count), strategy)
    except Exception as error:
        raise failure(f"called with {count} of the {source.num_rows} rows", error) from error


def _look(reader: Reader, rows: Rows, strategy: Strategy) -> FirstLook:
    """Run the model for two keys, compiled: without compilation it would be many times slower."""
    seen: list[Trace] = []

    @jax.jit
    def run(key: Key) -> tuple[Params, dict[str, Bounds]]:
        seen.append(reader.trace(rows, strategy, key))
        latents = _latents(seen[-1])
        starts = {site["name"]: jnp.asarray(site["value"], float) for site in latents}
        return starts, {site["name"]: _bounds(_support(site)) for site in latents}

    starts, bounds = zip(*(run(key) for key in jax.random.split(jax.random.key(reader.seed))), strict=True)
    return FirstLook(seen[0], list(starts), list(bounds))


def _sizes_only(reader: Reader, rows: Rows, strategy: Strategy) -> dict[str, int]:
    """The sizes of all plates when the model is called with these rows; nothing is computed."""
    sizes: dict[str, int] = {}
    key = jax.random.key(reader.seed)
    jax.eval_shape(lambda rows: sizes.update(_plate_sizes(reader.trace(rows, strategy, key))), rows)
    return sizes


def _plate_sizes(trace: Trace) -> dict[str, int]:
    return {name: site["args"][0] for name, site in trace.items() if site["type"] == "plate"}


def _latents(trace: Trace) -> list[Site]:
    return [site for site in sample_sites(trace) if not site["is_observed"]]


def failure(when: str, error: Exception) -> InvalidValueError:
    """The error for an exception in the user's model: when it failed, and the usual reason."""
    return InvalidValueError(
        f"the NumPyro model failed when {when}: {said(error)} It is called with minibatches inside compiled code, so "
        "all its shapes must depend on the data, e.g. numpyro.plate('data', X.shape[0]); pass what has one row per "
        "datum in `data` and everything else as further arguments."
    )


def _check_plates(
    sizes: dict[str, int], following: frozenset[str], count: int, num_rows: int, wanted: str | None
) -> frozenset[str]:
    """The plates over the data: those whose size is the number of rows, or the one that the user named."""
    advice = "Take its size from the data, e.g. numpyro.plate('data', X.shape[0])."
    if not sizes:
        raise InvalidValueError(
            "the NumPyro model has no plate: a plate is required to assign terms to rows. Put the "
            "likelihood in `with numpyro.plate('data', X.shape[0]):`."
        )
    if wanted is not None and wanted not in sizes:
        raise InvalidValueError(f"the model has no plate `{wanted}`; its plates are {sorted(sizes)}.")
    if wanted is not None and wanted not in following:
        raise InvalidValueError(
            f"plate `{wanted}` has size {sizes[wanted]} when the model is called with {count} rows. {advice}"
        )
    if not following:
        fixed = ", ".join(f"`{name}` (size {size})" for name, size in sorted(sizes.items()))
        raise InvalidValueError(
            f"no plate of the model follows the data: with {count} of the {num_rows} rows it has {fixed}. {advice}"
        )
    return following if wanted is None else frozenset([wanted])


def _check_sites(trace: Trace, plates: frozenset[str]) -> None:
    """Raise an error for `param` sites, local latents, discrete latents and a plate without observations."""
    for site in trace.values():
        if site["type"] == "param":
            raise InvalidValueError(
                f"site `{site['name']}` is a numpyro.param, which is optimised, not sampled: make it a "
                "numpyro.sample, or pass its value as an argument."
            )
    observed = any(site["is_observed"] and frame_of(site, plates) is not None for site in sample_sites(trace))
    for site in _latents(trace):
        _check_latent(site, frame_of(site, plates), observed)
    if not observed:
        raise InvalidValueError(
            f"no observed site is inside the plate over the data ({', '.join(sorted(plates))}). Put the likelihood "
            "there, with obs=..., and pass the observations in `data`."
        )


def _check_latent(site: Site, frame: Any, observed: bool) -> None:
    if frame is not None and not observed:
        raise InvalidValueError(
            f"site `{site['name']}` is a latent variable for each row of plate `{frame.name}`, in which nothing is "
            "observed. If it was meant to be observed, put its values in `data`."
        )
    if site["fn"].support.is_discrete:
        law = site["fn"]
        while hasattr(law, "base_dist"):  # in a plate, or expanded
            law = law.base_dist
        raise InvalidValueError(
            f"site `{site['name']}` is discrete ({type(law).__name__}). Gradient samplers require continuous "
            "parameters: sum it out of the likelihood (e.g. dist.MixtureSameFamily)."
        )


# -- supports and transforms -------------------------------------------------------------------------------


def _support(site: Site) -> Any:
    """The support of single elements."""
    constraints = require("numpyro.distributions.constraints", PURPOSE)
    support = site["fn"].support
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    return support


def _bounds(support: Any) -> Bounds:
    """Lower and upper bound, as the compiled run computes them."""
    return getattr(support, "lower_bound", None), getattr(support, "upper_bound", None)


def _transform(site: Site, bounds: dict[str, Bounds], others: dict[str, Bounds]) -> Transform | None:
    """scirocco's transform from the real line to the support of a site; None if that is the real line."""
    constraints = require("numpyro.distributions.constraints", PURPOSE)
    support = _support(site)
    if support is constraints.real:
        return None
    for constraint, transform in (
        (constraints.ordered_vector, _transforms.ordered),
        (constraints.simplex, _transforms.simplex),
        (constraints.corr_cholesky, _transforms.cholesky_correlation),
    ):
        if support is constraint:
            return transform
    bounded = isinstance(support, (constraints.interval, constraints.greater_than, constraints.less_than))
    if not bounded or support is constraints.circular:
        raise InvalidValueError(
            f"the support of site `{site['name']}` ({support}) has no transform. Supported are real, positive, "
            "bounded and ordered sites, simplexes and Cholesky factors of correlation matrices; write it as a function "
            "of these (e.g. by numpyro.infer.reparam)."
        )
    low, high = (_bound(site["name"], *pair) for pair in zip(bounds[site["name"]], others[site["name"]], strict=True))
    return _transforms.Bounded(low, high)


def _bound(name: str, value: npt.ArrayLike | None, again: npt.ArrayLike | None) -> float | None:
    """One number for all elements, which must not depend on other sites (it was computed for two values of them)."""
    if value is None:
        return None
    if again is None or not np.array_equal(value, again):
        raise InvalidValueError(
            f"the support of site `{name}` depends on another site. Sample a variable with fixed bounds and rescale it "
            "in the model."
        )
    values = np.unique(np.asarray(value, np.float64))
    if len(values) != 1:
        raise InvalidValueError(
            f"the bounds of site `{name}` differ from element to element. Sample it on (0, 1) and rescale it in the "
            "model."
        )
    return float(values[0])
