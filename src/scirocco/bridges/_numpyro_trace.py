"""Running a NumPyro model on some rows of the data, and reading its trace."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from scirocco._extras import require
from scirocco.types import Array, Key, Params, Rows

PURPOSE = "sc.from_numpyro"
Site = Mapping[str, Any]
Trace = Mapping[str, Site]


class Reader:
    """The user's model with its fixed arguments, to be run on any number of rows."""

    def __init__(self, model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], seed: int):
        self.handlers = require("numpyro.handlers", PURPOSE)
        self.model, self.args, self.kwargs, self.seed = model, args, kwargs, seed
        self.plates: frozenset[str] = frozenset()
        """The plates over the data, once they are known."""

    def arguments(self, rows: Rows) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments of the model for these rows."""
        if isinstance(rows, Mapping):
            return self.args, {**self.kwargs, **rows}
        return self.args + (tuple(rows) if isinstance(rows, (tuple, list)) else (rows,)), self.kwargs

    def whole(
        self, value_of: Callable[[Any], Any] = lambda site: None, key: Key | None = None
    ) -> Callable[..., Any]:
        """The model with every plate at full size (no subsampling, hence no scale) and latents from `value_of`."""

        def substitute(site: Any) -> Any:
            return jnp.arange(site["args"][0]) if site["type"] == "plate" else value_of(site)

        seeded = self.handlers.seed(self.model, self.seed if key is None else key)
        return self.handlers.substitute(seeded, substitute_fn=substitute)

    def trace(self, rows: Rows, value_of: Callable[[Any], Any], key: Key | None = None) -> Trace:
        """All sites of the model, run on these rows."""
        args, kwargs = self.arguments(rows)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "subsample_size does not match")
            return self.handlers.trace(self.whole(value_of, key)).get_trace(*args, **kwargs)

    def trace_at(self, rows: Rows, params: Params) -> Trace:
        """The same with the latents' values given."""
        return self.trace(rows, lambda site: params.get(site["name"]) if site["type"] == "sample" else None)

    def rowwise(self, params: Params, rows: Rows) -> Array:
        """Log likelihood of each row: the sites in the plate over the data, summed over everything but the rows."""
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

    def joint(self, params: Params, rows: Rows) -> Array:
        """NumPyro's own log density of everything."""
        args, kwargs = self.arguments(rows)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "subsample_size does not match")
            return require("numpyro.infer.util", PURPOSE).log_density(self.whole(), args, kwargs, params)[0]


def sample_sites(trace: Trace) -> list[Site]:
    """Latent and observed sites, without plates and deterministic ones."""
    return [site for site in trace.values() if site["type"] == "sample"]


def frame_of(site: Site, plates: frozenset[str]) -> Any:
    """The site's place in a plate over the data, or None."""
    return next((frame for frame in site["cond_indep_stack"] if frame.name in plates), None)


def _log_prob(site: Site) -> Array:
    value = site["fn"].log_prob(site["value"])
    return value if site["scale"] is None else site["scale"] * value
