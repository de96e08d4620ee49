"""The papers behind the library, as BibTeX.

Fields are those that a reference list or a title page confirms; what none did is left out.
"""

from __future__ import annotations

from typing import NamedTuple

from scirocco import __version__


class Reference(NamedTuple):
    """A work that can be cited."""

    kind: str
    authors: str
    title: str
    year: int | None
    more: dict[str, str]

    @property
    def short(self) -> str:
        """`Welling and Teh (2011)`."""
        names = [author.split(",")[0].strip("{}") for author in self.authors.split(" and ")]
        when = "" if self.year is None else f" ({self.year})"
        if len(names) > 3:
            return f"{names[0]} et al.{when}"
        return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names) + when

    def bibtex(self, key: str) -> str:
        """The entry."""
        year = {} if self.year is None else {"year": str(self.year)}
        fields = {"author": self.authors, "title": f"{{{self.title}}}", **self.more, **year}
        lines = [f"  {name:<9} = {{{value}}}," for name, value in fields.items()]
        return "\n".join([f"@{self.kind}{{{key},", *lines, "}"])


_NEURIPS = "Advances in Neural Information Processing Systems {}"
_ICML = "Proceedings of the {} International Conference on Machine Learning"
_FOUR = "Baker, Jack and Fearnhead, Paul and Fox, Emily B. and Nemeth, Christopher"


def _at(where: str, **more: str) -> dict[str, str]:
    return {"booktitle": where, **more}


def _in(journal: str, **more: str) -> dict[str, str]:
    return {"journal": journal, **more}


REFERENCES: dict[str, Reference] = {
    "scirocco": Reference(
        "software",
        "{The scirocco developers}",
        "scirocco: Bayesian inference on data too large for ordinary MCMC",
        None,
        {"version": __version__, "license": "Apache-2.0"},
    ),
    "welling2011": Reference(
        "inproceedings",
        "Welling, Max and Teh, Yee Whye",
        "Bayesian Learning via Stochastic Gradient Langevin Dynamics",
        2011,
        _at(_ICML.format("28th"), pages="681--688"),
    ),
    "li2016": Reference(
        "inproceedings",
        "Li, Chunyuan and Chen, Changyou and Carlson, David and Carin, Lawrence",
        "Preconditioned Stochastic Gradient Langevin Dynamics for Deep Neural Networks",
        2016,
        _at("AAAI Conference on Artificial Intelligence"),
    ),
    "ahn2012": Reference(
        "inproceedings",
        "Ahn, Sungjin and Korattikara, Anoop and Welling, Max",
        "Bayesian Posterior Sampling via Stochastic Gradient Fisher Scoring",
        2012,
        _at(_ICML.format("29th"), pages="1591--1598"),
    ),
    "chen2014": Reference(
        "inproceedings",
        "Chen, Tianqi and Fox, Emily B. and Guestrin, Carlos",
        "Stochastic Gradient {H}amiltonian {M}onte {C}arlo",
        2014,
        _at(_ICML.format("31st"), pages="1683--1691"),
    ),
    "ding2014": Reference(
        "inproceedings",
        "Ding, Nan and Fang, Youhan and Babbush, Ryan and Chen, Changyou and Skeel, Robert D. and Neven, Hartmut",
        "Bayesian Sampling Using Stochastic Gradient Thermostats",
        2014,
        _at(_NEURIPS.format(27), pages="3203--3211"),
    ),
    "leimkuhler2013": Reference(
        "article",
        "Leimkuhler, Benedict and Matthews, Charles",
        "Rational Construction of Stochastic Numerical Methods for Molecular Sampling",
        2013,
        _in("Applied Mathematics Research eXpress", volume="2013", number="1", pages="34--56"),
    ),
    "leimkuhler2016": Reference(
        "article",
        "Leimkuhler, Benedict and Shang, Xiaocheng",
        "Adaptive Thermostats for Noisy Gradient Systems",
        2016,
        _in("SIAM Journal on Scientific Computing", volume="38", number="2", pages="A712--A736"),
    ),
    "patterson2013": Reference(
        "inproceedings",
        "Patterson, Sam and Teh, Yee Whye",
        "Stochastic Gradient {R}iemannian {L}angevin Dynamics on the Probability Simplex",
        2013,
        _at(_NEURIPS.format(26), pages="3102--3110"),
    ),
    "ma2015": Reference(
        "inproceedings",
        "Ma, Yi-An and Chen, Tianqi and Fox, Emily B.",
        "A Complete Recipe for Stochastic Gradient {MCMC}",
        2015,
        _at(_NEURIPS.format(28), pages="2917--2925"),
    ),
    "baker2018": Reference(
        "inproceedings",
        _FOUR,
        "Large-Scale Stochastic Sampling from the Probability Simplex",
        2018,
        _at(_NEURIPS.format(31)),
    ),
    "barile2024": Reference(
        "misc",
        "Barile, Francesco and Nemeth, Christopher",
        "Control Variate-based Stochastic Sampling from the Probability Simplex",
        None,
        {"howpublished": "Preprint"},
    ),
    "baker2019": Reference(
        "article",
        _FOUR,
        "Control variates for stochastic gradient {MCMC}",
        2019,
        _in(
            "Statistics and Computing",
            volume="29",
            number="3",
            pages="599--615",
            doi="10.1007/s11222-018-9826-2",
        ),
    ),
    "baker2019r": Reference(
        "article",
        _FOUR,
        "sgmcmc: An {R} Package for Stochastic Gradient {M}arkov Chain {M}onte {C}arlo",
        2019,
        _in("Journal of Statistical Software", volume="91", number="3", doi="10.18637/jss.v091.i03"),
    ),
    "baker2018thesis": Reference(
        "phdthesis",
        "Baker, Jack",
        "Large-Scale {B}ayesian Computation Using Stochastic Gradient {M}arkov Chain {M}onte {C}arlo",
        2018,
        {"school": "Lancaster University"},
    ),
    "dubey2016": Reference(
        "inproceedings",
        "Dubey, Kumar Avinava and Reddi, Sashank J. and Williamson, Sinead A. and P{\\'o}czos, Barnab{\\'a}s "
        "and Smola, Alexander J. and Xing, Eric P.",
        "Variance Reduction in Stochastic Gradient {L}angevin Dynamics",
        2016,
        _at(_NEURIPS.format(29), pages="1154--1162"),
    ),
    "johnson2013": Reference(
        "inproceedings",
        "Johnson, Rie and Zhang, Tong",
        "Accelerating Stochastic Gradient Descent using Predictive Variance Reduction",
        2013,
        _at(_NEURIPS.format(26), pages="315--323"),
    ),
    "defazio2014": Reference(
        "inproceedings",
        "Defazio, Aaron and Bach, Francis and Lacoste-Julien, Simon",
        "{SAGA}: A Fast Incremental Gradient Method With Support for Non-Strongly Convex Composite Objectives",
        2014,
        _at(_NEURIPS.format(27)),
    ),
    "blei2003": Reference(
        "article",
        "Blei, David M. and Ng, Andrew Y. and Jordan, Michael I.",
        "Latent {D}irichlet Allocation",
        2003,
        _in("Journal of Machine Learning Research", volume="3", pages="993--1022"),
    ),
    "ferguson1973": Reference(
        "article",
        "Ferguson, Thomas S.",
        "A {B}ayesian Analysis of Some Nonparametric Problems",
        1973,
        _in("The Annals of Statistics", volume="1", number="2", pages="209--230"),
    ),
    "neal2000": Reference(
        "article",
        "Neal, Radford M.",
        "{M}arkov Chain Sampling Methods for {D}irichlet Process Mixture Models",
        2000,
        _in("Journal of Computational and Graphical Statistics", volume="9", number="2", pages="249--265"),
    ),
    "walker2007": Reference(
        "article",
        "Walker, Stephen G.",
        "Sampling the {D}irichlet Mixture Model with Slices",
        2007,
        _in(
            "Communications in Statistics -- Simulation and Computation",
            volume="36",
            number="1",
            pages="45--54",
        ),
    ),
    "salakhutdinov2008": Reference(
        "inproceedings",
        "Salakhutdinov, Ruslan and Mnih, Andriy",
        "Bayesian Probabilistic Matrix Factorization using {M}arkov Chain {M}onte {C}arlo",
        2008,
        _at(_ICML.format("25th"), pages="880--887"),
    ),
    "neal1996": Reference(
        "book", "Neal, Radford M.", "Bayesian Learning for Neural Networks", 1996, {"publisher": "Springer"}
    ),
    "carvalho2010": Reference(
        "article",
        "Carvalho, Carlos M. and Polson, Nicholas G. and Scott, James G.",
        "The horseshoe estimator for sparse signals",
        2010,
        _in("Biometrika", volume="97", number="2", pages="465--480"),
    ),
    "mira2013": Reference(
        "article",
        "Mira, Antonietta and Solgi, Reza and Imparato, Daniele",
        "Zero variance {M}arkov chain {M}onte {C}arlo for {B}ayesian estimators",
        2013,
        _in("Statistics and Computing", volume="23", number="5", pages="653--662"),
    ),
    "gorham2017": Reference(
        "inproceedings",
        "Gorham, Jackson and Mackey, Lester",
        "Measuring Sample Quality with Kernels",
        2017,
        _at(_ICML.format("34th")),
    ),
    "coullon2023": Reference(
        "article",
        "Coullon, Jeremie and South, Leah and Nemeth, Christopher",
        "Efficient and generalizable tuning strategies for stochastic gradient {MCMC}",
        2023,
        _in("Statistics and Computing", volume="33", doi="10.1007/s11222-023-10233-3"),
    ),
    "scott2016": Reference(
        "article",
        "Scott, Steven L. and Blocker, Alexander W. and Bonassi, Fernando V. and Chipman, Hugh A. and George, Edward "
        "I. and McCulloch, Robert E.",
        "Bayes and Big Data: The Consensus {M}onte {C}arlo Algorithm",
        2016,
        _in(
            "International Journal of Management Science and Engineering Management",
            volume="11",
            number="2",
            pages="78--88",
        ),
    ),
    "neiswanger2014": Reference(
        "inproceedings",
        "Neiswanger, Willie and Wang, Chong and Xing, Eric P.",
        "Asymptotically Exact, Embarrassingly Parallel {MCMC}",
        2014,
        _at("Proceedings of the 30th Conference on Uncertainty in Artificial Intelligence", pages="623--632"),
    ),
    "wang2013": Reference(
        "misc",
        "Wang, Xiangyu and Dunson, David B.",
        "Parallelizing {MCMC} via {W}eierstrass Sampler",
        2013,
        {"howpublished": "arXiv:1312.4605"},
    ),
}
