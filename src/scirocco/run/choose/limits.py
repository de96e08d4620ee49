"""The limits by which a method is chosen for a run that names none: each with its unit, and where it comes from.

"Battery" is docs/battery.md (66 posteriors, two seeds each); "choosing" is the comparison in docs/choosing.md
(benchmarks/choosing.py); "covertype" is the logistic regression of 581,012 rows and 55 columns there.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Numbers that decide; all of them are data, so that a decision can be tested with others."""

    few_numbers: int = 200_000
    """Numbers in the data up to which trajectories over all rows are the first choice, and up to which folders are read
    whole. Choosing: there NUTS has as many effective draws per CPU second as the best approximate sampler."""
    many_numbers: int = 5_000_000
    """Numbers in the data up to which trajectories are used for a posterior far from Gaussian, whatever a pass costs.
    Battery: the largest runs with them took some minutes on two cores."""
    patience: float = 30.0
    """Predicted seconds above which trajectories give way to batches if the posterior is round. The mixture of three
    normals with 200,000 rows (97-103 CPU s for 20 draws) is above it, all posteriors of the battery are below."""
    least_pass: float = 1e-3
    """Seconds of a pass below which trajectories stay: less is the time of the call, not of the gradient, on which the
    choice is not to depend. Calls of compiled programs take 20 to 200 μs."""
    gain: float = 2.0
    """How many times faster batches must be than trajectories, by the prediction, to replace them. The predictions are
    right within this factor (mixture of normals, Cauchy and logistic rows on two cores)."""
    long_wait: float = 300.0
    """Predicted seconds up to which trajectories are used for a posterior far from Gaussian with more than
    `many_numbers`, on a device that passes over them quickly. A choice: nothing else is right for these posteriors."""
    told_from: float = 10.0
    """Predicted seconds from which the line that says what was chosen says how long it will take. A choice."""
    trajectory_parameters: int = 1_000
    """Parameters up to which trajectories are used: at each of their points there are products with L, which grow
    with its square. Battery: 1,000 parameters take about 30 s."""
    far_from_gaussian: float = 0.3
    """`roundness` above which a posterior is far from Gaussian: a skewness of about 0.8. Battery: below it the moments
    of batch samplers were right."""
    no_shape: float = 1.0
    """`roundness` above which the curvature at the mode says nothing about the posterior: a skewness of 1.4, or another
    width. Battery: networks, funnels and horseshoes are above 1, all regressions below."""
    coarse: float = 0.5
    """Rounding error of the log density, in units of it, above which trajectories are not used: they accept by changes
    of about 1. Log densities of 4 million in 32 bits."""
    many_parameters: int = 50_000
    """Parameters above which batches of networks are a quarter as large, for the memory of their activations."""
    batch: int = 500
    """Rows of a batch where the sampler was named or the size cannot be chosen. Choosing: within 1.5 times the best
    size for all regressions there."""
    largest_batch: int = 4_000
    """Rows of the batch that measures the noise from which a smaller size is chosen."""
    least_costly_batch: int = 100
    """The smallest batch of rows that cost as much as many: the fixed cost of a step, which argues for larger batches
    than a Gaussian needs, is small compared with theirs, but posteriors of few groups are skewed."""
    plain_row: int = 8
    """Numbers in a plain row, by which the cost of others is measured."""
    as_good: float = 1.15
    """The largest batch is chosen whose work is at most this many times the least: larger ones have less bias."""
    step_overhead: float = 4_000.0
    """Fixed work of a step of a batch sampler, as numbers of rows (of d numbers: this / d rows). Measured on two cores
    with regressions of 3 to 300 columns."""
    adaptation_steps: int = 420
    """Steps of an adaptation whose chains agree after the first windows (8 for the scale, 50 + 100 + 200, 60)."""
    expected_thin: int = 12
    """Steps per draw of a batch sampler, before they are known. Battery: 8 to 20 for round posteriors."""
    expected_passes: float = 50.0
    """Passes of the set-up of a batch sampler, and three more for each parameter: mode, curvature, noise at 16 points.
    Measured with the mixture of normals and covertype."""


LIMITS = Limits()
"""The limits in use."""
