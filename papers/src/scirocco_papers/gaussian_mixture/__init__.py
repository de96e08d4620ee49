"""Six samplers on a mixture of two Gaussians."""

from scirocco_papers.base import Experiment, run_of

EXPERIMENT = Experiment(
    name="gaussian-mixture",
    title="Six samplers on a mixture of two Gaussians",
    figure="thesis, figure 4.6.1",
    run=run_of(__name__),
    seed=2,
    duration="about 1 min; quick 20 s",
    needs=("numpyro", "optax"),
    cite=("baker2018thesis", "baker2019r"),
)
