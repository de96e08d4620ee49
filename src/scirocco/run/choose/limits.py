"""The limits by which a method is chosen for a run that names none: each with its unit, and where it comes from.

"Battery" is docs/battery.md (benchmarks of the plain call on posteriors that are known), which was run with these
values; "choosing" is the comparison in docs/choosing.md (benchmarks/choosing.py). "A choice" was not measured.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Numbers that decide; all of them are data, so that a decision can be tested with others."""

    few_numbers: int = 200_000
    """Numbers in the data up to which trajectories over all rows are the first choice, and up to which
    folders are read whole. Choosing, "Few rows": with a thousand rows NUTS has two thirds of the effective
    draws per CPU second of the best sampler, and no bias. Where rows cost more than usual, `patience`
    decides."""
    many_numbers: int = 5_000_000
    """Numbers in the data up to which trajectories are used for a posterior far from Gaussian, whatever a
    pass costs. A choice: nothing else is right for these posteriors, and with more numbers a run takes
    hours on two cores."""
    patience: float = 30.0
    """Predicted seconds above which trajectories give way to batches if the posterior is round. The mixture
    of three normals with 200,000 rows takes 97-113 CPU s for 20 draws by trajectories, and 17 s by
    batches."""
    least_pass: float = 1e-3
    """Seconds of a pass below which trajectories stay: less is the time of the call, not of the gradient,
    on which the choice is not to depend. Calls of compiled programs take 20 to 200 μs."""
    gain: float = 2.0
    """How many times faster batches must be than trajectories, by the prediction, to replace them. For the
    mixture of three normals the prediction for trajectories was 100 s, and 56 s of two cores were
    measured."""
    long_wait: float = 300.0
    """Predicted seconds up to which trajectories are used for a posterior far from Gaussian with more than
    `many_numbers`, on a device that passes over them quickly. A choice: nothing else is right for these
    posteriors."""
    told_from: float = 10.0
    """Predicted seconds from which the line that says what was chosen says how long it will take. A
    choice."""
    trajectory_parameters: int = 1_000
    """Parameters up to which trajectories are used: at each of their points there are products with L,
    which grow with its square. A choice; see the table of large models in the battery."""
    far_from_gaussian: float = 0.3
    """`roundness` above which a posterior is far from Gaussian: it is ½κ² of a posterior of skewness κ,
    here 0.8. Battery."""
    no_shape: float = 1.0
    """`roundness` above which the curvature at the mode says nothing about the posterior: a skewness of
    1.4, or another width. Regressions with 15 rows and 10 columns, or 100 and 60, have .2; Neal's funnel
    50,000."""
    coarse: float = 0.5
    """Rounding error of the log density, in units of it, above which trajectories are not used: they accept
    by changes of about 1. With 32 bits it is reached at log densities of 4 million. By arithmetic."""
    many_parameters: int = 50_000
    """Parameters above which batches of networks are a quarter as large, for their memory. A choice; see
    the networks of 10,000 and 100,000 weights in the battery."""
    batch: int = 500
    """Rows of a batch where the sampler was named or the size cannot be chosen. Choosing, "Batch size": 50
    would do for the regression there, 500 for harder posteriors."""
    largest_batch: int = 4_000
    """Rows of the batch that measures the noise from which a smaller size is chosen. A choice; correlated
    regressions with 1,500 columns need all of them (battery)."""
    least_costly_batch: int = 100
    """The smallest batch of rows that cost as much as many: the fixed cost of a step, which argues for
    larger batches than a Gaussian needs, is small compared with theirs, but posteriors of few groups are
    skewed. Battery (hierarchies)."""
    plain_row: int = 8
    """Numbers in a plain row, by which the cost of others is measured. A choice."""
    as_good: float = 1.15
    """The largest batch is chosen whose work is at most this many times the least: larger ones have less
    bias. A choice."""
    step_overhead: float = 4_000.0
    """Fixed work of a step of a batch sampler, as numbers of rows (of d numbers: this / d rows).
    Battery."""
    adaptation_steps: int = 420
    """Steps of an adaptation whose chains agree after the first windows (8 for the scale, 50 + 100 + 200,
    60)."""
    expected_thin: int = 12
    """Steps per draw of a batch sampler, before they are known. The mixture of normals has 2; a pessimistic
    guess favours trajectories."""
    expected_passes: float = 50.0
    """Passes of the set-up of a batch sampler, and three more for each parameter: mode, curvature, noise at
    16 points. By counting them in `set_up`."""


LIMITS = Limits()
"""The limits in use."""
