"""Stochastic gradients compared with consensus, KDEMC and Weierstrass."""

from scirocco_papers.base import Experiment, run_of

EXPERIMENT = Experiment(
    name="divide-and-conquer",
    title="Stochastic gradients beside consensus, KDEMC and Weierstrass",
    figure="thesis, figures 2.4.1 to 2.4.4",
    run=run_of(__name__),
    duration="about 15 min; quick 2 min",
    needs=("numpyro", "scipy"),
    cite=("baker2018thesis", "scott2016", "neiswanger2014", "wang2013"),
)
