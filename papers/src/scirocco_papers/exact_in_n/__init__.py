"""Samplers that are exact with a few rows: their distribution, and what an effective draw costs as the data grow."""

from scirocco_papers.base import Experiment, run_of

EXPERIMENT = Experiment(
    name="exact-in-n",
    title="Exact samplers with few rows: their distribution and cost as the data grow",
    figure="thesis, section 2.4.1 (no figure there)",
    run=run_of(__name__),
    duration="about 5 min; quick 45 s",
    needs=("scipy",),
    cite=("baker2018thesis",),
)
