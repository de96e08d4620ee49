"""Topic models of Wikipedia: SCIR, SCIR-CV, SGRLD and Gibbs."""

from scirocco_papers.base import Experiment, run_of

EXPERIMENT = Experiment(
    name="lda-wikipedia",
    title="Topic models of Wikipedia: SCIR, SCIR-CV, SGRLD and Gibbs",
    figure="Baker et al. (2018), figures 3a, 4a; Barile & Nemeth, figure 2",
    run=run_of(__name__),
    duration="about 15 min; quick 15 s",
    needs=("scipy", "numba"),
    cite=("baker2018", "barile2024", "patterson2013"),
)
