"""A sparse Dirichlet posterior: small values and spread."""

from scirocco_papers.base import Experiment, run_of

EXPERIMENT = Experiment(
    name="sparse-dirichlet",
    title="A sparse Dirichlet posterior: small values and spread",
    figure="Baker et al. (2018), figure 1; Barile & Nemeth, figure 1",
    run=run_of(__name__),
    duration="about 25 s; quick 10 s",
    needs=("scipy",),
    cite=("baker2018", "barile2024"),
)
