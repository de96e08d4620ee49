"""Bayesian neural network on MNIST: the log loss along six samplers."""

from scirocco_papers.base import Experiment, run_of

EXPERIMENT = Experiment(
    name="bnn-mnist",
    title="Bayesian neural network on MNIST: the log loss along six samplers",
    figure="thesis, figure 4.6.3",
    run=run_of(__name__),
    seed=1,
    duration="about 6 min (2 on an accelerator, with longer chains); quick 40 s",
    needs=("optax",),
    cite=("baker2018thesis", "baker2019r"),
)
