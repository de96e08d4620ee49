"""Mixed memberships in networks: SCIR, SCIR-CV, SGRLD and the exact sampler on two networks."""

from scirocco_papers.base import Experiment, run_of

EXPERIMENT = Experiment(
    name="network-links",
    title="Mixed memberships in networks: samplers side by side",
    figure="Baker et al. (2018), section 1; Barile & Nemeth, section 1; Li, Ahn & Welling (2016)",
    run=run_of(__name__),
    duration="about 6 min; quick 15 s",
    needs=("numba", "scipy"),
    cite=("baker2018", "barile2024"),
)
