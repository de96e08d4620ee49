"""`sc.sample` and `sc.resume`: from a log likelihood and data to posterior draws, new or resumed from a store."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp

from scirocco import _checks, _programs, _tree
from scirocco.data import as_devices
from scirocco.data.sources import check_memory
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.estimators import Estimator
from scirocco.model import Posterior
from scirocco.run import chains as _chains
from scirocco.run import records, run_group, setup
from scirocco.run.choose import limits
from scirocco.run.choose.decide import Again, Asked, decide
from scirocco.run.choose.measure import drive_of, measure
from scirocco.run.choose.methods import default_estimator, default_lengths, read_if_few, sampler_for
from scirocco.run.keeping import Keeping
from scirocco.run.matching import PassedParts
from scirocco.run.on_cluster import resume_on, sample_on
from scirocco.run.progress import Callback, as_callbacks
from scirocco.run.request import Request, carry_out, stored_request
from scirocco.run.result import Run
from scirocco.run.run_group import CHAINS
from scirocco.run.session import Plan
from scirocco.samplers import Sampler, schedules
from scirocco.store import holds_run, refuse_unless_free
from scirocco.types import Data, Params

_LARGEST_GROUP, _FEWEST_GROUPS = 64, 8  # of chains that share batches: fewer groups give no R-hat
_CHAIN_BYTES = 4_096  # a chain of one parameter, with what JAX needs for its arrays


@_checks.known_arguments
def sample(
    model: Posterior,
    data: Data,
    params: Params,
    *,
    sampler: Sampler | None = None,
    estimator: Estimator | None = None,
    num_samples: int | None = None,
    num_burnin: int | str | None = None,
    thin: int | None = None,
    num_chains: int | None = None,
    seed: int = 0,
    store: str | os.PathLike[str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    keep_gradients: bool = False,
    keep_draws: bool | int = True,
    reducers: Mapping[str, Any] | None = None,
    notes: Mapping[str, str] | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
    batches: str | int = "own",
    chain_method: str = "auto",
    mesh: jax.sharding.Mesh | None = None,
    client: Any = None,
    compile_cache: bool = True,
    max_seconds: float | None = None,
    precision: str | None = None,
) -> Run:
    """Draw from the posterior of `model` given `data`.

    Parameters
    ----------
    model
        `sc.Model(log_likelihood, log_prior)`, `sc.CountModel(concentration, counts)` for the simplex, or
        `sc.BlockModel(model, name=...)` for parts that `sc.Blocks` moves with separate samplers.
    data
        A pytree of arrays with one common first axis (one row per datum); a data frame of pandas, polars or Arrow,
        of which a datum is a dict of the columns by name; or rows on disk: the path of a folder made by
        `sc.data.convert`, or any `sc.data.Source`. None for a `sc.Model(log_density=...)`, which has no rows.
    params
        Where to start: any pytree of floating-point arrays. The default, control variates and `sc.Preconditioned` find
        the mode from this point, and start there or around it.
    sampler
        By default the one that suits the data. If a pass over all rows is cheap (up to 200,000 numbers, unless
        the posterior is near a Gaussian and a timed pass shows that the run would take more than half a minute
        and twice as long as with batches): `sc.NUTS()`, which is exact. Otherwise
        `sc.Preconditioned(sc.BAOAB())`: it finds the posterior mode and uses the curvature there to choose
        coordinates in which the posterior is round (above 2,000 parameters: a scale for each, and up to 48
        directions in which the posterior is much narrower or wider); step size and friction follow from the
        gradient noise. If the posterior turns out to be far from a Gaussian, and there are at most 5 million
        numbers and 1,000 parameters, `sc.NUTS()` again; with more parameters, as in networks, `sc.SGHMC()`. For
        count models `sc.SCIR()`, whose step size is chosen from the noise of the counts.
        `run.preparation["chosen"]` has the choice, in one line, "because" the limit that decided, and "measured" the
        numbers behind it.
        `sc.SGLD(step_size="auto")` tries many step sizes before the run (see `sc.analysis.tune`); the results are in
        `run.preparation["tuning"]`.
    estimator
        By default `sc.Full()` for NUTS, and `sc.ControlVariates` otherwise, whose batch size is chosen when the sampler
        is also omitted (`sc.Full()` if that is less work), and is 500 otherwise; `sc.Minibatch(500)` for count models,
        likelihoods that take a key, and networks.
    num_samples, num_burnin, thin
        Draws kept in each chain (by default 1,000 when you omit the sampler, which makes them nearly independent, and
        for exact samplers such as `sc.NUTS()` and `sc.SMH()`; fewer above 50,000 parameters, for their memory; else
        10,000); steps made before the first draw ("auto", the default when you omit the sampler: as many as make the
        start irrelevant; 100 for exact samplers; otherwise 0); steps per kept draw (by default as many as make draws
        nearly independent when you omit the sampler, else 1).
    num_chains
        Independent chains; by default 4 when you omit the sampler and for exact samplers, else 1. Without a sampler
        they start at different points around the mode, further apart than the posterior is wide.
    seed
        The same seed, configuration and machine give the same draws.
    store
        A folder for the draws. They are written as they are made, with everything needed to resume: a killed run loses
        a few seconds, and `sc.resume` completes it as if it had not been interrupted. `sc.load` opens it at
        any time. The draws of the result then stay on disk.
    resume
        With `store`: resume the run in the folder (repeat the same call), or start one if there is none.
    overwrite
        With `store`: delete the run in the folder.
    keep_gradients
        Keep the gradient estimate at every draw (for zero-variance and Stein methods).
    keep_draws
        True: keep all draws; a number k: every k-th; False: none, for chains too large to keep.
    reducers
        Summaries of all draws, kept or not: `{"posterior": sc.reducers.Moments(), ...}`; see `sc.reducers`.
    notes
        With `store`: notes to keep with the run, as strings by name.
    callbacks
        Functions called with a `Report` after every chunk; they may return a score or stop the run.
    progress
        Show a progress bar if there is a terminal, and one line on stderr that says what was chosen for you.
    batches
        "own" (default): every chain draws its own batches, so the chains are independent. "grouped": groups of chains
        share theirs, so that on accelerators gradients of models that are linear in their rows become products of
        matrices: many chains are then several times as fast. The distribution of each chain is the same, but the chains
        of a group are dependent; diagnostics take this into account (`run.group_size`). A number is the number of
        chains in a group. See :doc:`/accelerators`.
    chain_method
        "threads" (default on a CPU), "vmap" (default on accelerators).
    mesh
        Several devices: `jax.make_mesh((4,), ("rows",))` spreads the rows over them, and gradients are summed with one
        `psum` per step; an axis named "chains" runs separate chains on each device instead. Batches are then stratified
        by device (`scirocco.data.spread`), and a data folder is read into the devices' memory. With `jax.distributed`
        all processes make the same call.
    client
        Several processes or machines: a `distributed.Client`, or the address of a Dask scheduler. Every chain is a task
        on a worker; what a worker has committed to `store` survives its death. Draws are those of one process.
    compile_cache
        Whether the first run of a process may tell JAX to keep compiled programs in the user's cache folder, so that
        the next process starts faster, and to give back the compiler's memory. If you have set
        JAX_COMPILATION_CACHE_DIR, it keeps your folder. False, or SCIROCCO_CACHE=off, leaves JAX's settings and
        listeners and Python's filters of warnings as they are.
    max_seconds
        End after so many seconds of steps, with the draws made by then, but not before the first draw: `num_samples` is
        then the largest number. The set-up is not counted. `run.status` is "stopped" if time was short; with a `store`,
        `sc.resume` makes the other draws.
    precision
        "float64": this run computes with 64-bit numbers, whatever JAX is set to, in about twice the time on a CPU; its
        draws have 64 bits, and `sc.resume` continues with them. Data keep theirs: pass NumPy arrays in double precision
        where that matters. Use it for log densities of 10⁸ and more, and where 32 bits give NaN (Cholesky factors of
        nearly singular matrices). None: as JAX is set.

    Returns
    -------
    Run
        `run.draws` has the structure of `params`, leaves (chain, draw, ...).

    Raises
    ------
    DivergenceError
        When a chain diverges (NaN or inf), or its draws spread far too widely; `error.run` holds every draw made
        before that. If they spread less, but still too widely, there is a warning with a step size to try.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> x = 3.0 + jax.random.normal(jax.random.key(1), (5000,))
    >>> model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2, lambda mu: -0.005 * mu**2)
    >>> run = sc.sample(model, x, jnp.array(0.0), sampler=sc.SGLD(step_size=5e-5),
    ...                 estimator=sc.ControlVariates(batch_size=100), num_samples=1000, progress=False)
    >>> abs(float(run.draws.mean()) - 3.0) < 0.1
    True
    """
    _programs.begin(compile_cache)
    setup.check_order(model, data, params)
    callbacks = as_callbacks(callbacks)
    if store is not None:
        _checks.path(store, "store")
    if notes is not None and not isinstance(notes, Mapping):
        raise InvalidTypeError(f"`notes` must be a dict with strings as keys, got {type(notes).__name__}.")
    if precision is not None:
        _checks.choice(precision, "precision", ("float64",))
        if client is not None:
            raise InvalidValueError(
                "`precision` is for this process; with `client`, workers make the draws: start them, and this process, "
                "with JAX_ENABLE_X64=1."
            )
        params = setup.widened(params)
    with setup.order_explained(model, data, params), _programs.in_precision(precision):
        source = setup.source_of(model, data)
    devices = as_devices(mesh)
    if sampler is not None:
        setup.check_kind(sampler, Sampler, "sampler", "sc.SGLD(step_size=1e-5)")
    if estimator is not None:
        setup.check_kind(estimator, Estimator, "estimator", "sc.Minibatch(batch_size=500)")
    if isinstance(num_burnin, str) and num_burnin == "auto":
        num_burnin = None if sampler is None else limits.LIMITS.burnin
    elif isinstance(num_burnin, str):
        raise InvalidTypeError(f'`num_burnin` must be a whole number (int) or "auto", got {num_burnin!r}.')
    given = {
        "sampler": sampler,
        "estimator": estimator,
        "num_burnin": num_burnin,
        "thin": thin,
        "num_chains": num_chains,
        "num_samples": num_samples,
    }
    left_out = frozenset(name for name, value in given.items() if value is None)
    num_samples, num_chains = default_lengths(model, sampler, num_samples, num_chains, params)
    plan = Plan(
        _checks.positive_int(num_samples, "num_samples"),
        _checks.positive_int(0 if num_burnin is None else num_burnin, "num_burnin", minimum=0),
        _checks.positive_int(1 if thin is None else thin, "thin"),
        _checks.positive_int(num_chains, "num_chains"),
        _checks.positive_int(seed, "seed", minimum=0),
        Keeping.checked(keep_gradients, keep_draws, reducers),
        _checks.choice(chain_method, "chain_method", _chains.METHODS),
        group_size=group_size_of(batches, num_chains),
        cycle=schedules.cycle_of(sampler),
    )
    plan.cadence.checked()
    if plan.seed >= 1 << 32:
        raise InvalidValueError(f"`seed` must be below 2^32, got {seed}.")
    if plan.num_steps >= 1 << 31:
        raise InvalidValueError(
            f"the run would make {plan.num_steps} steps; a chain can make at most 2^31 - 1. Split the run."
        )
    check_memory(plan.num_chains * _CHAIN_BYTES, f"num_chains={plan.num_chains}", "Pass fewer chains.")
    left_sampler = sampler is None
    if sampler is None:
        _refuse_half(params)
    if sampler is None and estimator is None and devices is None and client is None:
        with _programs.in_precision(precision):
            source = read_if_few(source)
    if sampler is None:
        asked = Asked(estimator=estimator is not None, exact=estimator is None or estimator.traits.is_exact)
        first = decide(asked, measure(model, source, params, devices), limits.LIMITS)
        sampler = sampler_for(cast(Again, first).choice.method, params)
    if estimator is None:
        estimator = default_estimator(model, source, sampler, devices, exact_if_few=left_sampler)
    _check_keeping(model, sampler, keep_gradients, plan.keeping)
    if max_seconds is not None:
        _checks.positive(max_seconds, "max_seconds")
        if client is not None:
            raise InvalidValueError(
                "`max_seconds` is a limit for the steps of this process; with `client`, workers make them. Omit one of "
                "the two."
            )
    chains_apart = client is not None or (store is not None and _checks.flag(resume, "resume") and CHAINS.is_at(store))
    _check_store(store, resume, overwrite, own_folder=not chains_apart)
    request = Request(
        model,
        source,
        params,
        sampler,
        estimator,
        plan,
        store,
        resume,
        overwrite,
        reducers,
        dict(notes or {}),
        callbacks,
        progress,
        devices,
        left_out=left_out,
        max_seconds=max_seconds,
        precision=precision,
    )
    return sample_on(client, request) if chains_apart else carry_out(request)


@_checks.known_arguments
def resume(
    path: str | os.PathLike[str],
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
    verify: bool = False,
) -> Run:
    """Resume a run that was started with `sc.sample(..., store=path)`.

    The result equals that of an uninterrupted run, bit for bit (same machine, same versions), even when you request
    more draws than originally. Another model, other data or another configuration raise an error.

    Parameters
    ----------
    path
        The folder of the store.
    model, data
        The original model and data: a store contains neither code nor data.
    num_samples
        The total number of draws per chain, including those already made; by default the original number.
    params, sampler, estimator
        Only if the store could not save them (the error message then says so): parameters that are not dicts, lists,
        tuples and arrays; classes of your own.
    reducers
        The original reducers, if any: they are functions, which are not stored.
    callbacks, progress, mesh, client
        As for `sc.sample`; rows must be spread over the original number of devices. Chains that were made on a cluster
        are resumed by the workers of `client`, or in this process, one after the other.
    verify
        Read all files of a data folder again and compare their checksums, although their sizes and modification times
        are those of intact files.

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
    _programs.begin()
    _checks.path(path, "path")
    precision = None if client is not None or CHAINS.is_at(path) else records.precision_of(path)
    with _programs.in_precision(precision):
        source = setup.source_of(model, data)
    if verify:
        source.verify()
    method = PassedParts(params, sampler, estimator, reducers)
    if client is not None or CHAINS.is_at(path):
        if callbacks or mesh is not None:
            raise InvalidValueError(
                f"`callbacks` and `mesh` do not apply to the chains in {os.fspath(path)}: they are separate runs, "
                "resumed by the workers of `client`, or in this process, one after the other."
            )
        return resume_on(client, os.path.abspath(path), model, source, num_samples, method, progress)
    how = {
        "callbacks": as_callbacks(callbacks),
        "progress": progress,
        "devices": as_devices(mesh),
        "precision": precision,
    }
    return carry_out(stored_request(path, model, source, num_samples, method, **how))


def group_size_of(batches: Any, num_chains: int) -> int:
    """The number of chains that share their batches."""
    if isinstance(batches, str):
        if _checks.choice(batches, "batches", ("own", "grouped")) == "own":
            return 1
        most = min(_LARGEST_GROUP, num_chains // _FEWEST_GROUPS)
        if most < 2:
            raise InvalidValueError(
                f'batches="grouped" requires at least {2 * _FEWEST_GROUPS} chains, in {_FEWEST_GROUPS} independent '
                f"groups, got num_chains={num_chains}. Use more chains, pass the number of chains in a group "
                "(batches=2), or omit `batches`."
            )
        return max(size for size in range(1, most + 1) if num_chains % size == 0)
    size = _checks.positive_int(batches, "batches")
    if num_chains % size:
        raise InvalidValueError(
            f"groups of {size} chains (`batches`) do not divide num_chains={num_chains}: use a multiple of {size}."
        )
    return size


def _check_store(store: Any, resume: Any, overwrite: Any, own_folder: bool) -> None:
    run_group.check_switches(store, resume, overwrite)
    if store is None or not own_folder or (resume and holds_run(store)):
        return
    found = run_group.name_of(store)
    if found is None or found == run_group.A_RUN:
        refuse_unless_free(store, overwrite)
    elif not overwrite:
        raise InvalidValueError(
            f"{os.fspath(store)} holds {found} already; resume with the call that made them (resume=True), pass "
            "overwrite=True to delete them, or choose another folder."
        )


def _check_keeping(model: Posterior, sampler: Sampler, keep_gradients: bool, keeping: Keeping) -> None:
    if keeping.reducing.average(None) is not None:
        setup.check_path(sampler)
    if keep_gradients and sampler.needs.drive == "blocks":
        raise InvalidValueError("blocks are moved one after the other, so a draw has no single gradient to keep.")
    if keep_gradients and drive_of(model) == "counts":
        raise InvalidValueError(
            "a CountModel has no gradients to keep: omit `keep_gradients`. Zero-variance and Stein methods require a "
            "log density (sc.Model)."
        )


def _refuse_half(params: Params) -> None:
    """The default computes in the precision of the parameters, and 16 bits are not enough for it."""
    for name, leaf in zip(_tree.leaf_names(params), jax.tree.leaves(params), strict=True):
        dtype = _tree.dtype_of(leaf)
        if dtype is not None and jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize < 4:
            raise InvalidTypeError(
                f"parameter `{name}` has dtype {dtype}, and the default method requires 32 bits: start from float32, "
                "or choose a `sampler` and an `estimator`."
            )
