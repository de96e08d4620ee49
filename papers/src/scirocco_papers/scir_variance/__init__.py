"""The variance of SCIR and SCIR-CV before and at stationarity."""

from scirocco_papers.base import Experiment, run_of

EXPERIMENT = Experiment(
    name="scir-variance",
    title="The variance of SCIR and SCIR-CV before and at stationarity",
    figure="Barile & Nemeth, figure 3",
    run=run_of(__name__),
    duration="about 10 s; quick 1 s",
    cite=("barile2024",),
)
