"""Hidden Markov models: SCIR, SCIR-CV, SGRLD and the exact sampler on two series."""

from scirocco_papers.base import Experiment, run_of

EXPERIMENT = Experiment(
    name="hmm-series",
    title="Hidden Markov models: samplers side by side, and the error of buffers",
    figure="Baker et al. (2018), section 1; Barile & Nemeth, section 1; Aicher et al. (2019), figure 2",
    run=run_of(__name__),
    duration="about 1 min; quick 5 s",
    needs=("numba", "scipy"),
    cite=("baker2018", "barile2024", "aicher2019"),
)
