"""What a fixed accuracy costs SGLD and SGLD-CV as the data grow."""

from scirocco_papers.base import Experiment, run_of

EXPERIMENT = Experiment(
    name="cost-in-n",
    title="What a fixed accuracy costs SGLD and SGLD-CV as the data grow",
    figure="thesis, section 3.3 (Cor. 3.3.8)",
    run=run_of(__name__),
    duration="about 2 min; quick 20 s",
    needs=("scipy",),
    cite=("baker2018thesis", "baker2019"),
)
