"""The rows of these models in the table of `sc.models`, which finds this module by its entry point."""

from scirocco.models._core.registry import ModelEntry

MODELS = {
    "BPMF": ModelEntry(
        "scirocco_latent.factorisation",
        "a matrix factorisation",
        "salakhutdinov2008 chen2014",
        "Bayesian probabilistic matrix factorisation",
        reads="pairs",
    ),
    "CorrelatedTopics": ModelEntry(
        "scirocco_latent.lda.correlated", "a correlated topic model", "blei2007 blei2003", reads="documents"
    ),
    "DPMixture": ModelEntry(
        "scirocco_latent.dp",
        "a Dirichlet-process mixture",
        "ferguson1973 neal2000 walker2007 baker2018",
        command="cluster fit",
    ),
    "DynamicTopics": ModelEntry(
        "scirocco_latent.lda.dynamic", "a dynamic topic model", "blei2006 blei2003", reads="documents"
    ),
    "HMM": ModelEntry(
        "scirocco_latent.hmm", "a hidden Markov model", "scott2002 aicher2019 baker2018", command="hmm fit"
    ),
    "LDA": ModelEntry(
        "scirocco_latent.lda",
        "a topic model",
        "blei2003 baker2018",
        "latent Dirichlet allocation",
        command="topics fit",
        reads="documents",
    ),
    "MixedMembership": ModelEntry(
        "scirocco_latent.graph",
        "a mixed-membership model",
        "airoldi2008 ball2011",
        "a mixed-membership model of a network",
        command="network fit --mixed",
    ),
    "StochasticBlockModel": ModelEntry(
        "scirocco_latent.graph",
        "a block model",
        "holland1983 karrer2011 baker2018",
        "a stochastic block model",
        command="network fit",
    ),
}
FUNCTIONS = {"choose_topics": "scirocco_latent.lda.describing", "held_out_links": "scirocco_latent.graph"}
