"""The limits by which a method is chosen for a run that names none: each with its unit, and where it comes from.

"Battery" is docs/battery.md (benchmarks of the plain call on posteriors that are known), which was run with these
values; "choosing" is the comparison in docs/choosing.md (benchmarks/choosing.py). "A choice" was not measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scirocco._adjustable import Adjustable


@dataclass(frozen=True)
class Limits(Adjustable):
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
    of three normals with 200,000 rows takes 97-113 CPU s for 20 draws by trajectories, 7 to
    17 s by batches."""
    least_pass: float = 1e-3
    """Seconds of a pass below which trajectories stay: less is the time of the call, not of the gradient,
    on which the choice is not to depend. Calls of compiled programs take 20 to 200 μs."""
    gain: float = 2.0
    """How many times faster batches must be than trajectories, by the prediction, to replace them. For the
    mixture of three normals the prediction for trajectories was 60 s, and 56 s of two cores were
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
    dense_parameters: int = 2_000
    """Parameters up to which coordinates are scaled by a matrix, which takes memory and the cube of them in
    time; above, by a diagonal and some directions. A choice: some seconds of two cores."""
    far_from_gaussian: float = 0.3
    """`roundness` above which a posterior is far from Gaussian: it is ½κ² of a posterior of skewness κ,
    here 0.8. Battery. For more than `few_numbers` whose trajectories take longer than `patience` it is
    `no_shape`: logistic regressions with 20 ones in 200,000 rows and columns of 0 and 1 have .28, and batches
    are right there, in 2 to 5 CPU s, not 90."""
    no_shape: float = 1.0
    """`roundness` above which the curvature at the mode says nothing about the posterior: a skewness of
    1.4, or another width. Regressions with 15 rows and 10 columns, or 100 and 60, have .2; Neal's funnel
    50,000."""
    coarse: float = 0.5
    """Rounding error of the log density, in units of it, above which trajectories are not used: they accept
    by changes of about 1. With 32 bits it is reached at log densities of 4 million; from there on, differences to the
    mode are summed row by row, and their rounding error counts. By arithmetic."""
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
    batch_sizes: tuple[int, ...] = (32, 48, 64, 100, 150, 200, 300, 400, 500, 700, 1_000, 1_500, 2_000, 3_000)
    """Rows of the batches to choose from, in addition to that which measures the noise. A choice: steps of
    about 1.4, by which the work differs little."""
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

    # lengths
    num_samples: int = 1_000
    """Draws of a chain where the sampler was not named: they are then nearly independent. A choice."""
    num_chains: int = 4
    """Chains where the sampler was not named, or is exact. A choice: R-hat wants several."""
    num_steps: int = 10_000
    """Draws of a chain of a named sampler. A choice."""
    kept_numbers: int = 2 * 10**8
    """Numbers in all draws above which fewer of them are made: 0.8 GB in single precision. By
    arithmetic."""
    least_samples: int = 50
    """The fewest draws of a chain then. A choice; see the million means in the battery."""
    burnin: int = 1_000
    """Steps before the first draw of a batch sampler; a quarter of it where the thinning is known.
    Battery."""
    burnin_of_thin: int = 25
    """The same, in units of the thinning where that is known. Battery."""
    burnin_of_trajectories: int = 100
    """Steps before the first draw of trajectories, after their adaptation. Battery."""
    thin: int = 10
    """Steps per draw of a batch sampler where no thinning can be foreseen. A choice."""

    # the shape of the posterior: costs of measuring it
    curvature_work: float = 2e11
    """Rows × parameters² for which the curvature is computed from all rows; beyond it, from so many random
    ones. A choice: some ten seconds of two cores."""
    diagonal_work: float = 5e9
    """The same for rows × parameters of a diagonal, which is no product of large matrices."""
    product_work: float = 4e10
    """The same for rows × parameters × vectors of products with the curvature."""
    costly_rows: int = 16_384
    """Rows that are read for a curvature if each costs as much as many: it is then known to about 1 %, by
    the distribution of large numbers."""
    exact_prior: int = 10_000
    """Parameters up to which the diagonal of the prior's curvature is computed entry by entry. A choice."""
    double_precision: int = 50_000
    """Parameters up to which the host computes the shape in double precision; above, with fewer directions.
    For memory: see the million means in the battery."""

    # the noise of batches
    pilot_rows: int = 1_024
    """Rows on which curvature and information are measured for a named sampler. A choice: errors of a few
    per cent."""
    pilot_points: int = 8
    """Points of the posterior at which the noise of a batch is measured. A choice."""
    exact_curvature: int = 10**8
    """Rows × parameters for which the largest curvature is computed from all rows. A choice: a second or
    so."""
    gradient_numbers: int = 1 << 24
    """Numbers in the rows' gradients that are held at a time: 64 MB in single precision."""
    noise_points: int = 16
    """The fewest points at which the noise of all rows is computed. Exact for quadratic forms of 16
    parameters (Hadamard)."""
    noise_numbers: float = 1e8
    """Rows × parameters × points up to which there are more. A choice: a second or so."""
    noise_work: float = 2e9
    """Rows × numbers of L for which the noise is computed from all rows. A choice."""
    streamed_rows: int = 65_536
    """Random rows that are read from a disk for the noise. A choice."""

    # scores (roundness, certificate)
    shifted: float = 0.5
    """Standard deviations between the mode and the Gaussian that fits the scores, above which they are
    computed around that Gaussian. The mode of a regression with p columns, n rows and unknown noise is
    p/√(2n) from it, by arithmetic."""
    tails: float = 5.0
    """Standard deviations from the mode at which the curvature decides on the step size of batches. Logistic
    regression with 20 ones in 200,000 rows: its curvature there is several times that at the mode, and chains with
    the step size for the mode left the posterior for good."""
    tail_searches: tuple[int, ...] = (8, 4, 4)
    """Directions that are kept after each iteration of the search for the steepest tail. A choice."""
    straight: float = 0.05
    """Departure of a score from a straight line, half way to the tails, below which nothing is looked for. A
    choice."""
    stable: float = 2.0
    """Curvature over that for which a step size is chosen, for which it is still stable: 4 by arithmetic, without
    noise."""
    steepest: float = 100.0
    """The most of it that counts: posteriors with more are not sampled by batches. A choice."""
    too_slack: float = 0.25
    """Precision over that of the curvature at the mode below which the mode says nothing about the
    posterior: twice the width. A choice."""
    too_stiff: float = 4.0
    """The same above which it says nothing: half the width. A choice."""
    kinked: float = 100.0
    """Information over curvature above which the curvature is not trusted: |x| has curvature only at its
    kink. Nor does a model that its rows contradict (far more spread than it says) have as much curvature:
    there the scores show that the posterior has the shape which the curvature says. A choice between 1 and
    infinity."""
    curved: float = 0.01
    """Curvature over information, on average, below which no directions are looked for: as `kinked`, for more
    than `dense_parameters`. A choice."""
    unequal: float = 5.0
    """Ratio of curvatures above which a search for step sizes (`tune`) changes the coordinates. A choice."""
    scores: int = 64
    """Scores at draws of the Gaussian from which `roundness` is computed, and scores computed at a time. A
    choice."""
    scores_of_many: int = 16
    """The same for more than `double_precision` parameters."""
    score_work: int = 4_000_000
    """Rows × parameters of a score. Tests say what rows follow from it."""
    least_rows: int = 1_024
    """The fewest rows of a score, unless there are very many parameters. A choice."""
    least_work: int = 1 << 26
    """Rows × parameters above which there are fewer. For memory."""
    sparse_work: int = 10**9
    """Rows × parameters up to which all rows are used if they have few numbers: a value and its group.
    Battery (hierarchies)."""
    rows_per_parameter: int = 16
    """More rows where there are many parameters: the sample adds d/n to the mean square of a score, by
    arithmetic."""
    most_score_work: int = 64_000_000
    """Rows × parameters up to which there are. A choice."""

    # several modes
    mode_parameters: int = 200
    """Parameters up to which other modes are looked for: each search needs matrices. A choice."""
    mode_searches: int = 8
    """Searches in a row, for each mode known, that find nothing new and end the search: one of two modes of
    the same mass stays unknown once in 250 times, one of 25 less often. By arithmetic."""
    mode_reach: float = 10.0
    """How many times further away searches begin than the start is, or ten standard deviations: at most. A choice."""
    most_mode_searches: int = 300
    """Searches after which it ends anyway. A choice."""
    mode_looks: int = 60
    """Steps of Newton's method of each. A choice."""
    mode_images: int = 40
    """Mirror images of the mode that are tried. A choice: signs of forty entries."""
    modes_apart: float = 5.0
    """Distance between modes, in standard deviations of the wider one, from which they are two. A
    choice."""
    negligible_mass: float = 5.0
    """A mode of e^-5 of the mass of the largest is not reported. A choice."""

    # the adaptation of trajectories
    adaptation_chains: int = 4
    """The fewest chains of an adaptation: their agreement ends it. A choice."""
    most_adaptation_chains: int = 64
    """The most of them. A choice."""
    adapted_r_hat: float = 1.1
    """Largest R-hat over a window with which the adaptation ends. Battery."""
    most_adaptation_steps: int = 2_000
    """Steps after which it ends anyway. A choice."""
    stuck: float = 0.3
    """Acceptance below which the slowest chain decides on the step size, not the mean of all. A choice."""
    clearly_better: float = 3.0
    """Log mass by which chains from the user's start must exceed those from the mode, times √d: three
    standard errors of the mean of a few log densities. In Neal's funnel the difference is 90."""
    spread_out_numbers: int = 10**8
    """Chains × parameters up to which chains start at different points. For memory."""

    # the check of the draws' spread
    spread_draws: int = 256
    """Draws of the second half of a run at which scores are computed. A choice."""
    spread_numbers: int = 1 << 24
    """The most numbers in them: 64 MB in single precision."""
    spread_fewest: int = 64
    """The fewest draws that say something. A choice."""
    spread_rows: int = 64
    """Rows for each of them: as many as there are parameters, at least so many. A choice."""
    spread_most_rows: int = 1_024
    """The most of them. A choice."""
    spread_errors: float = 4.0
    """Standard errors that are left out of a spread before it raises an alarm: once in 30,000 parameters by
    chance."""
    too_wide: float = math.sqrt(2)
    """Standard deviation over that of the posterior above which there is a warning: twice the variance. A
    choice."""
    hopeless: float = 30.0
    """The same for an error that holds the draws. A choice."""
    excess: float = 0.2
    """Predicted excess of a variance above which the step size is blamed for a spread. A choice."""
    spread_each: int = 1_000
    """Parameters that are examined one by one; of more only averages over each array. A choice."""


LIMITS = Limits()
"""The limits in use."""
