"""What a run for every shard gives, and how it is opened again."""

from __future__ import annotations

import dataclasses
import os

from scirocco import _checks
from scirocco.errors import SciroccoError, StoreError
from scirocco.model import Posterior
from scirocco.run import Run
from scirocco.run import load as load_run
from scirocco.run.family import SHARDS
from scirocco.run.loading import as_params
from scirocco.types import Params, PyTree


@dataclasses.dataclass(frozen=True)
class Subposteriors:
    """The runs of all shards: what `sc.combine.consensus` and its kin combine.

    Attributes
    ----------
    runs
        One run a shard.
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
        rows = f"{min(self.num_rows):,}" + (
            f" to {max(self.num_rows):,}" if len(set(self.num_rows)) > 1 else ""
        )
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
            f"the run of shard {number} cannot be opened: {error} One that has not begun is begun by resume=True; "
            "one that a worker wrote must be on a disk that workers and client share."
        ) from error
    return as_params(run, params)
