"""The run of one shard, in this process or on a worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from scirocco.cluster.pickling import opened
from scirocco.model import Posterior
from scirocco.run import Run, family, sample
from scirocco.run.family import SHARDS
from scirocco.types import Params


class Shard(NamedTuple):
    """What tells one shard's task from another's."""

    rows: Any
    """A source, or what `travel.opened` makes one of."""
    seed: int
    folder: str | None
    """Of the run; None: it stays in memory."""


class Settings(NamedTuple):
    """What all shards share."""

    model: Posterior
    params: Params
    options: dict[str, Any]
    """Arguments of `sc.sample`."""
    double: bool
    """Whether JAX runs in 64 bits where the shards were made."""


def draw(shard: Shard, tell: Callable[[int], None], *, settings: Settings) -> Run | str:
    """Draw from a subposterior, from the last commit on where there is one; the run, or the folder it is in.

    Dask calls it again when its worker died: what the first attempt committed is not made a second time.
    """
    if shard.folder is not None:
        SHARDS.check_place(shard.folder, settings.double)
        family.wait_for_writer(shard.folder, tell)
    run = family.driven(
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
