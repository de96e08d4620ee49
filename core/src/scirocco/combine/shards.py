"""Shards: how rows are dealt out, the model of a shard, its run (here or on a worker), and the runs of all."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from scirocco import _checks, _tree
from scirocco.cluster.pickling import RowsOf, opened
from scirocco.data import Source, as_source
from scirocco.errors import InvalidTypeError, InvalidValueError, SciroccoError, StoreError
from scirocco.model import CountModel, Model, Posterior
from scirocco.run import Run, run_group, sample
from scirocco.run import load as load_run
from scirocco.run.loading import as_params
from scirocco.run.run_group import SHARDS
from scirocco.types import Array, Data, Params, PyTree, Rows


class Dealt(NamedTuple):
    """The rows of every shard."""

    sources: list[Any]
    """One for each shard."""
    num_rows: list[int]
    fingerprints: list[str]
    """Of the data as they were given: one for the whole, or one for each shard."""


def deal(data: Data, num_shards: int | None, seed: int, shuffle: bool) -> Dealt:
    """Deal out rows to shards of sizes that differ by at most one; what comes in shards stays so."""
    if _in_shards(data):
        sources = [as_source(part) for part in data]
        _check_alike(sources)
        if num_shards not in (None, len(sources)):
            raise InvalidValueError(
                f"`data` has {len(sources)} shards already, but num_shards={num_shards}: omit `num_shards`."
            )
        return Dealt(sources, [int(s.num_rows) for s in sources], [source.fingerprint() for source in sources])
    if num_shards is None:
        raise InvalidValueError(
            "`num_shards` is needed: into how many shards the rows are to be dealt. (Data that are in shards already "
            "are a list of paths of data folders or of sc.data sources; a list of arrays is one data set.)"
        )
    source, count = as_source(data), _checks.positive_int(num_shards, "num_shards")
    if count > source.num_rows:
        raise InvalidValueError(f"num_shards={count} is more than the {source.num_rows} rows of the data.")
    stretches = [bounds(source.num_rows, count, number) for number in range(count)]
    # neighbouring rows of a folder that was shuffled when it was written are as good as random ones
    own = seed if shuffle and not source.shuffled else None
    parts: list[Any] = [RowsOf(source, start, stop, own) for start, stop in stretches]
    return Dealt(parts, [stop - start for start, stop in stretches], [source.fingerprint()])


def bounds(num_rows: int, num_shards: int, number: int) -> tuple[int, int]:
    """First row, and the one after the last, of a shard."""
    return number * num_rows // num_shards, (number + 1) * num_rows // num_shards


def _in_shards(data: Data) -> bool:
    """Whether `data` is a list of paths and sources, and not one data set in a tuple or list of arrays."""
    if not isinstance(data, (list, tuple)) or _tree.is_named_tuple(data):
        return False
    if not data:
        raise InvalidValueError("`data` is empty: there are no shards.")
    whole = [isinstance(part, (str, Path, Source)) for part in data]
    if any(whole) and not all(whole):
        number = whole.index(False)
        raise InvalidTypeError(
            f"`data` is a list of shards, of which each must be a path of a data folder or a sc.data source; entry "
            f"{number} is {type(data[number]).__name__}. Wrap arrays with sc.data.as_source(...)."
        )
    return all(whole)


def _check_alike(sources: list[Any]) -> None:
    first = _tree.leaf_names(sources[0].row_spec)
    for number, source in enumerate(sources):
        found = _tree.leaf_names(source.row_spec)
        if found != first:
            raise InvalidValueError(f"shard {number} has the arrays {found}, and shard 0 has {first}.")


# -- the model of a shard ------------------------------------------------------------------------------------


class FractionatedModel(Model):
    """log p(u) = share · (log prior + log Jacobian)(u) + Σ_i log_likelihood(u, x_i), u on the real line.

    With share = 1/S and the rows dealt out to S shards, the densities of the unconstrained positions multiply to the
    posterior. The Jacobian is divided as the prior is: otherwise the product would have it S times.
    """

    def __init__(self, model: Model, share: float):
        self.share: float
        self.__setstate__(model.__getstate__() | {"share": float(share)})

    def _finish(self) -> None:
        super()._finish()
        self._identity = (*self._identity, self.share)  # type: ignore[assignment]

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"share": self.share}

    def __repr__(self) -> str:
        return super().__repr__()[:-1] + f", share={self.share:g})"

    def log_prior_density(self, position: Params) -> Array:
        """The share of the log prior and the log-Jacobian."""
        return self.share * super().log_prior_density(position)

    def log_density(self, params: Params, data: Rows = None) -> Array:
        """The share of the log prior, and the log likelihood of `data` (user's units, no Jacobian)."""
        prior = 0.0 if self._jitted_prior is None else self.share * self._jitted_prior(params)
        return prior + self.log_likelihood_sum(self.unconstrain(params), data)


def fractionate(model: Posterior, num_shards: int) -> Model:
    """The model of one of `num_shards` shards."""
    if type(model) is Model:
        return FractionatedModel(model, 1 / num_shards)
    if isinstance(model, CountModel):
        raise InvalidTypeError(
            "subposteriors are made of a sc.Model: the draws of a CountModel's could not be combined. Its counts need "
            "no shards to be exact: sc.sample(..., mesh=...) adds them up over devices."
        )
    if isinstance(model, Posterior) and model.facts.groups is not None:
        raise InvalidTypeError(
            f"subposteriors divide rows, but the rows of a group ({model.facts.groups!r}) share its variable and must "
            "stay together: a sc.HierarchicalModel has no shards. sc.sample reads batches of whole groups from one "
            "data set."
        )
    hint = "; add parentheses" if isinstance(model, type) else ""
    raise InvalidTypeError(
        "subposteriors are made of a sc.Model(log_likelihood, log_prior), whose prior can be divided among the shards; "
        f"got {model!r}{hint}."
    )


# -- the run of a shard --------------------------------------------------------------------------------------


class Shard(NamedTuple):
    """What tells one shard's task from another's."""

    rows: Any
    """A source, or what `travel.opened` makes one of."""
    seed: int
    folder: str | None
    """The folder of the run; None: it stays in memory."""


class ShardSettings(NamedTuple):
    """What all shards share."""

    model: Posterior
    params: Params
    options: dict[str, Any]
    """Arguments of `sc.sample`."""
    double: bool
    """Whether JAX runs in 64 bits where the shards were made."""


def draw(shard: Shard, tell: Callable[[int], None], *, settings: ShardSettings) -> Run | str:
    """Draw from a subposterior, from the last commit on where there is one; the run, or the folder it is in.

    Dask calls it again when its worker died: what the first attempt committed is not made a second time.
    """
    if shard.folder is not None:
        SHARDS.check_place(shard.folder, settings.double)
        run_group.wait_for_writer(shard.folder, tell)
    run = run_group.driven(
        lambda callback: sample(
            settings.model,
            opened(shard.rows),
            settings.params,
            seed=shard.seed,
            store=shard.folder,
            resume=shard.folder is not None,
            progress=False,
            callbacks=(callback,),
            **settings.options,
        ),
        tell,
    )
    return run if shard.folder is None else shard.folder


# -- the runs of all -----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Subposteriors:
    """The runs of all shards: the input of `sc.combine.consensus` and the other methods.

    Attributes
    ----------
    runs
        One run per shard.
    model
        The model of all data, as the user gave it; None when it is not known (`load` without a model).
    num_rows
        Rows of each shard.
    path
        The folder of the runs; None when they are in memory.
    """

    runs: list[Run]
    model: Posterior | None
    num_rows: list[int]
    path: str | None = None

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def draws(self) -> list[PyTree]:
        """The draws of each shard: the structure of the parameters, leaves (chain, draw, ...)."""
        return [run.draws for run in self.runs]

    def __repr__(self) -> str:
        first = self.runs[0]
        rows = f"{min(self.num_rows):,}" + (f" to {max(self.num_rows):,}" if len(set(self.num_rows)) > 1 else "")
        size = f"{first.num_chains} chains × {first.num_draws} draws of {first.configuration['dimension']} parameters"
        return f"Subposteriors({len(self)} shards of {rows} rows: {size})"


def load(path: str | os.PathLike[str], model: Posterior | None = None) -> Subposteriors:
    """Open the folder of subposteriors, finished or not.

    Parameters
    ----------
    path
        The `store` they were made with.
    model
        The model they were made with: a store holds numbers, not code. Needed to combine draws of constrained
        parameters on the real line.

    Examples
    --------
    >>> import tempfile, jax.numpy as jnp, scirocco as sc
    >>> model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = sc.combine.subposteriors(model, jnp.ones(100), 2, jnp.array(1.0), sampler=sc.SGLD(1e-3),
    ...                                  num_samples=200, store=folder, progress=False)
    ...     len(sc.combine.load(folder, model))
    2
    """
    _checks.path(path, "path")
    folder = os.path.abspath(os.fspath(path))
    page = SHARDS.read(folder)
    if model is None and page["transformed"]:
        _checks.warn(
            f"the parameters in {folder} are constrained: pass model=..., so that they are combined on the real line "
            "and stay in their domain."
        )
    runs = [open_run(SHARDS.path(folder, number), None, number) for number in range(page["count"])]
    return Subposteriors(runs, model, page["num_rows"], folder)


def open_run(path: str, params: Params | None, number: int) -> Run:
    """The run in a folder, with draws in the structure of the parameters."""
    try:
        run = load_run(path)
    except (SciroccoError, OSError) as error:
        raise StoreError(
            f"the run of shard {number} cannot be opened: {error} Use resume=True to start one that has not started; "
            "one that a worker wrote must be on a disk that workers and client share."
        ) from error
    return as_params(run, params)
