"""Bias and efficiency of every sampler with every estimator, against NUTS on covertype."""

from scirocco_papers.base import Experiment, run_of

EXPERIMENT = Experiment(
    name="posterior-bias",
    title="Bias and efficiency of every sampler with every estimator, against NUTS on covertype",
    figure="none: ours",
    run=run_of(__name__),
    duration="about 6 min; quick 1 min",
    needs=("optax", "numpyro", "arviz"),
    cite=("scirocco",),
)
