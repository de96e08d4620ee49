"""`step_size="auto"` against grid search, on ten posteriors."""

from scirocco_papers.base import Experiment, run_of

EXPERIMENT = Experiment(
    name="tuning",
    title='`step_size="auto"` against grid search, on ten posteriors',
    figure="none: after Coullon, South & Nemeth (2021), MAMBA",
    run=run_of(__name__),
    duration="about 6 min; quick 80 s",
    needs=("numpyro", "optax"),
    cite=("coullon2023",),
)
