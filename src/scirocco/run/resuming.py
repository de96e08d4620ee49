"""`sc.resume`: continue a stored run, bit for bit, or say what stands in the way."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from scirocco.data import as_devices, as_source
from scirocco.errors import InvalidValueError
from scirocco.model import Posterior
from scirocco.run.family import CHAINS
from scirocco.run.matching import Method
from scirocco.run.on_cluster import resume_on
from scirocco.run.progress import Callback
from scirocco.run.request import carry_out, stored_request
from scirocco.run.result import Run
from scirocco.types import Data, Params

_Path = str | os.PathLike[str]


def resume(
    path: _Path,
    model: Posterior,
    data: Data,
    *,
    num_samples: int | None = None,
    params: Params | None = None,
    sampler: Any = None,
    estimator: Any = None,
    reducers: Mapping[str, Any] | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
    mesh: jax.sharding.Mesh | None = None,
    client: Any = None,
) -> Run:
    """Go on with a run that was started with `sc.sample(..., store=path)`.

    The result equals that of a run that was never interrupted, bit for bit (same machine, same versions), also when
    more draws are asked for than at first. Another model, other data or another configuration are refused.

    Parameters
    ----------
    path
        The store.
    model, data
        As at first: a store holds numbers, not code and not the data.
    num_samples
        Draws of each chain in all, those made already included; by default what was asked for at first.
    params, sampler, estimator
        Only where the store could not hold them (it then says so): parameters that are not dicts, lists, tuples and
        arrays; classes of your own.
    reducers
        The reducers that the run was started with, if any: they are functions.
    callbacks, progress, mesh, client
        As for `sc.sample`; rows must be spread over as many devices as at first. Chains that were made on a cluster are
        gone on with by the workers of `client`, or here, one after the other.

    Examples
    --------
    >>> import tempfile, jax.numpy as jnp, scirocco as sc
    >>> model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = sc.sample(model, jnp.ones(100), jnp.array(1.0), sampler=sc.SGLD(1e-3), num_samples=200,
    ...                     store=folder, progress=False)
    ...     run = sc.resume(folder, model, jnp.ones(100), num_samples=300, progress=False)
    ...     run.num_draws
    300
    """
    source = as_source(data)
    method = Method(params, sampler, estimator, reducers)
    if client is not None or CHAINS.is_at(path):
        if callbacks or mesh is not None:
            raise InvalidValueError(
                f"`callbacks` and `mesh` are not for the chains in {os.fspath(path)}, which are a run each: they are "
                "resumed by the workers of `client`, or here, one after the other."
            )
        return resume_on(client, os.path.abspath(path), model, source, num_samples, method, progress)
    how = {"callbacks": tuple(callbacks), "progress": progress, "devices": as_devices(mesh)}
    return carry_out(stored_request(path, model, source, num_samples, method, **how))
