"""What was chosen, in one line, and the warning that goes with it."""

from __future__ import annotations

from collections.abc import Set

from scirocco import _checks
from scirocco.estimators import Estimator
from scirocco.run.choose import limits
from scirocco.run.choose.methods import default_thin
from scirocco.run.progress import in_units
from scirocco.samplers import Sampler
from scirocco.samplers.preconditioned import core_of


def warn_of_coarse(log_density: float) -> None:
    """Say that a sampler which compares log densities cannot be exact."""
    _checks.warn(
        f"the log posterior is about {log_density:.2g} at its mode, and 32-bit numbers of this size are "
        "further apart than the changes of the log posterior that this sampler must tell apart: it is slow and not "
        "exact. Check the scale of the errors (a model whose errors are far smaller than those of the data has such a "
        "log likelihood), leave `sampler` out, or use 64-bit numbers (JAX_ENABLE_X64=1)."
    )


def explain(
    sampler: Sampler,
    estimator: Estimator,
    num_burnin: int,
    thin: int,
    num_rows: int,
    left_out: Set[str],
    on_mesh: bool = False,
    num_samples: int = limits.LIMITS.num_samples,
    unit: str = "rows",
    seconds: float | None = None,
) -> str:
    """What was chosen for the user, in one line; empty when nothing was."""
    said = []
    if "sampler" in left_out:
        each = {"diagonal": " one by one", "low_rank": " one by one and along correlated directions"}
        how = each.get(sampler.needs.metric, "")
        where = f" in coordinates scaled{how} at the mode" if sampler.needs.metric != "none" else ""
        if not where and default_thin(sampler, None) > 1:
            where = (
                " (the posterior is far from Gaussian: predictions can be averaged, single parameters cannot)"
            )
        said.append(f"{type(core_of(sampler)).__name__}{where}")
    if "estimator" in left_out:
        size = estimator.batching(num_rows).size
        every = "the only row" if (size, unit) == (1, "rows") else f"all {size:,} {unit}"
        which = f" ({every} at every step)" if estimator.traits.is_exact else f" of {size:,} {unit}"
        fixed = (
            " (not chosen: the batch size on a mesh is fixed)"
            if on_mesh and not estimator.traits.is_exact
            else ""
        )
        said.append(f"{type(estimator).__name__}{which}{fixed}")
    if said and "num_burnin" in left_out:
        said.append(f"{num_burnin:,} burn-in steps")
    if said and "thin" in left_out and thin > 1:
        said.append(f"one draw every {thin} steps")
    if {"sampler", "num_samples"} <= left_out and num_samples < limits.LIMITS.num_samples:
        said.append(f"only {num_samples} draws per chain, to save memory")
    if "sampler" in left_out and seconds is not None and seconds >= limits.LIMITS.told_from:
        said.append(f"about {in_units(seconds)}")
    return ", ".join(said)
