"""Distance to Dirichlet posteriors by minibatch size."""

from scirocco_papers.base import Experiment, run_of

EXPERIMENT = Experiment(
    name="dks",
    title="Distance to Dirichlet posteriors by minibatch size",
    figure="Baker et al. (2018), figure 2",
    run=run_of(__name__),
    duration="about 4.5 min; quick 20 s",
    needs=("scipy",),
    cite=("baker2018",),
)
