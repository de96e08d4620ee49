"""Pages and stored results agree: claims follow from the stored numbers, and sentences on pages say the same."""

import importlib
import inspect
import json
import math
import re
import statistics
from pathlib import Path

import numpy as np
import pytest

import scirocco_papers

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = DOCS / "results"
ROWS = {"tuning": "posteriors", "gaussian-scaling": "results", "cost-in-n": "results", "exact-in-n": "results"}
"""Experiments whose claims follow from one list among their numbers."""
NUMBER = re.compile(r"\d[\d,]*\.?\d*(?:e[-+]\d+)?")

pytestmark = pytest.mark.skipif(not RESULTS.is_dir(), reason="the documentation is not here")


def stored(name):
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


def restored(value):
    """Numbers as the experiment had them: numeric keys, and ∞ where the file has null."""
    if isinstance(value, dict):
        return {_key(key): restored(item) for key, item in value.items()}
    if isinstance(value, list):
        return [restored(item) for item in value]
    return math.inf if value is None else value


def _key(key):
    try:
        return int(key) if key.isdigit() else float(key)
    except ValueError:
        return key


def judged(name):
    """The claims that the code makes of the stored numbers of a full run."""
    home = f"scirocco_papers.{name.replace('-', '_')}"
    folder = Path(scirocco_papers.__file__).with_name(name.replace("-", "_"))
    part = ".claims" if (folder / "claims.py").exists() else ".run" if folder.is_dir() else ""
    module = importlib.import_module(f"{home}{part}")
    judge = module.judge
    numbers = restored(stored(name)["numbers"])
    given = [numbers[ROWS[name]] if name in ROWS else numbers]
    if name == "cost-in-n":
        given.append(numbers["accuracy"])
    elif len(inspect.signature(judge).parameters) == 2:
        given.append(False)  # not a quick run
    return judge(*given)


def numbers_in(text):
    return [float(found.replace(",", "")) for found in NUMBER.findall(text)]


@pytest.mark.parametrize("name", scirocco_papers.ALL)
def test_claims_follow_from_the_stored_numbers(name):
    """Verdicts, rules and reasons exactly; numbers in sentences up to the rounding of the file."""
    pairs = list(zip(judged(name), stored(name)["claims"], strict=True))
    for claim, said in pairs:
        assert (claim.paper, claim.rule, bool(claim.holds)) == (said["paper"], said["rule"], said["holds"])
        assert (not claim.because, claim.ours) == (said["counts"], said.get("ours", False)), claim.paper
        for now, then in ((claim.here, said["here"]), (claim.because, said.get("because", ""))):
            assert NUMBER.sub("#", now) == NUMBER.sub("#", then)
            assert numbers_in(now) == pytest.approx(numbers_in(then), rel=0.01, abs=1e-9)


def test_the_headline_counts_the_papers_and_ours_apart():
    claims = [claim for name in scirocco_papers.ALL for claim in stored(name)["claims"] if claim["counts"]]
    papers, ours = ([c for c in claims if c.get("ours", False) == own] for own in (False, True))
    held = [f"{sum(c['holds'] for c in each)} of {len(each)}" for each in (papers, ours)]
    assert f"{held[0]} claims of the papers that count hold, and {held[1]} of our own" in page("figures.md")


def test_claims_of_no_paper_are_ours():
    for name in scirocco_papers.ALL:
        record = stored(name)
        for claim in record["claims"]:
            named = claim["paper"].startswith(("[not in the paper", "(ours)", "[dense, minibatch"))
            assert claim.get("ours", False) == (named or record["figure"].startswith("none")), claim["paper"]


# -- sentences -----------------------------------------------------------------------------------------------


def page(name):
    """The text of a page on one line."""
    return " ".join((DOCS / name).read_text("utf-8").split())


def mean(values):
    return float(np.mean(values))


def cost_in_n():
    rows = stored("cost-in-n")["numbers"]["results"]
    least, most = ({way: row[way]["rows"] for way in ("sgld", "sgld_cv")} for row in (rows[0], rows[-1]))
    yield f"({least['sgld']:,.0f} at N = 1,000; {most['sgld']:,.0f} at 10⁶), SGLD-CV {most['sgld_cv']:.0f} at every N"
    assert {row["sgld_cv"]["rows"] for row in rows} == {most["sgld_cv"]}


def logistic_covertype():
    claims = importlib.import_module("scirocco_papers.logistic_covertype.claims")
    sizes = restored(stored("logistic-covertype")["numbers"]["sizes"])
    found = [sizes[size]["fixed"] for size in sorted(sizes)]
    own = "SGLD-CV, own set-up"
    ratios = {
        name: [claims.about_trend(each["SGLD"]) / claims.about_trend(each[name]) for each in found]
        for name in ("SGLD-CV", own)
    }
    one, two = ("{:.1f}, {:.1f} and {:.1f}".format(*values) for values in ratios.values())
    yield f"({one}; with our own set-up, which ends with Newton's method, {two})"
    last = found[-1]
    rises = [claims.rise(last[name]) / last[name]["late_sd"] for name in ("SGLD", "SGLD-CV", "SAGA")]
    yield f"still rise by {min(rises):.1f} to {max(rises):.1f} of their standard deviations along the chain"
    assert min(rises) > 1, "not stationary"
    passes = last[own]["first_passes"], last["SGLD"]["passes"][-1]
    yield f"it takes {passes[0]:.0f} passes, more than the {passes[1]:.1f} of SGLD's whole run"
    assert passes[0] > passes[1]


def lda_cv():
    runs = importlib.import_module("scirocco_papers.lda_runs")
    sizes = [facts["curves"] for facts in stored("lda-cv")["numbers"]["sizes"].values()]
    spent = [mean([curve["seconds"][-1] for curve in each["SGLD"]]) for each in sizes]
    then = [mean(runs.at_time(each["SGLD-CV"], s, "now")) for each, s in zip(sizes, spent, strict=True)]
    ends = [mean(runs.ends(each["SGLD"], "now")) for each in sizes]
    yield "({:.1f}, {:.1f} and {:.1f} s of processor time)".format(*spent)
    yield "SGLD-CV is at {:.0f}, {:.0f} and {:.0f}, SGLD at {:.0f}, {:.0f} and {:.0f}".format(*then, *ends)
    assert all(a > b for a, b in zip(then, ends, strict=True)), "the order is reversed"
    averaged = [mean(runs.ends(sizes[-1][name])) for name in ("SGLD-CV", "SGLD")]
    yield "(at N {:.1f} against {:.1f})".format(*averaged)


def lda_wikipedia():
    runs = importlib.import_module("scirocco_papers.lda_runs")
    claims = importlib.import_module("scirocco_papers.lda_wikipedia")
    curves = stored("lda-wikipedia")["numbers"]["curves"]
    pairs = [
        (curves[claims.BAKER]["SCIR"], curves[claims.BAKER]["SCIR-CV, as SCIR"]),
        (curves[claims.BARILE]["SCIR"], curves[claims.BARILE]["SCIR-CV"]),
    ]
    spent = [mean([curve["seconds"][-1] for curve in scir]) for scir, _ in pairs]
    then, ends = (
        [
            [mean(runs.at_time(control, s, score)) for (_, control), s in zip(pairs, spent, strict=True)]
            for score in ("from_start", "now")
        ],
        [[mean(runs.ends(scir, score)) for scir, _ in pairs] for score in ("from_start", "now")],
    )
    yield "({:.1f} and {:.1f} s), it reaches {:.0f} and {:.0f}".format(*spent, *then[0])
    yield "SCIR {:.0f} and {:.0f}. Only for the topics".format(*ends[0])
    yield f"({then[1][1]:.0f} against {ends[1][1]:.0f})"
    assert then[0][0] > ends[0][0] and then[0][1] > ends[0][1] and then[1][0] > ends[1][0], "by time it loses"
    assert then[1][1] < ends[1][1], "but here"
    reads = claims.read(pairs[0][1][0], True)[-1], claims.read(pairs[0][0][0], False)[-1]
    yield "{:,} instead of {:,} in all".format(*reads)


def bnn_mnist():
    methods = stored("bnn-mnist")["numbers"]["methods"]
    averages = {name: mean([run["average"]["log_loss"] for run in runs]) for name, runs in methods.items()}
    single = {name: mean([mean(run["losses"]) for run in runs]) for name, runs in methods.items()}
    plain = ("sgld", "sghmc", "sgnht")
    yield "{:.3f}, {:.3f} and {:.3f} for SGLD, SGHMC and SGNHT, ".format(*(averages[n] for n in plain))
    yield "{:.3f}, {:.3f} and {:.3f} with control variates".format(*(averages[f"{n}cv"] for n in plain))
    assert all(averages[n] < averages[f"{n}cv"] and single[n] > single[f"{n}cv"] for n in plain), "reversed"
    yield "({sgnht:.4f} against {sgld:.4f}), SGHMC is not ({sghmc:.4f})".format(**single)


def dp_msweb():
    curves = stored("dp-msweb")["numbers"]["curves"]

    def single(name):
        late = [curve["now"][-max(len(curve["now"]) // 5, 1) :] for curve in curves[name]]
        return [mean(each) for each in late]

    def when(name):
        found = [
            next(s for s, p in zip(each["seconds"], each["averaged"], strict=True) if p < 11.345)
            for each in curves[name]
        ]
        return f"{min(found):.2f} to {max(found):.2f} s"

    scir, sgrld = single("SCIR"), single("SGRLD")
    yield f"({min(scir):.3f} to {max(scir):.3f} against {min(sgrld):.3f} to {max(sgrld):.3f})"
    ends = {name: mean([curve["averaged"][-1] for curve in each]) for name, each in curves.items()}
    yield f"order is reversed ({ends['SCIR']:.3f} and "
    assert ends["SGRLD"] < ends["SCIR"]
    yield f"{ends['DPMixture()']:.3f} and {ends['Gibbs']:.3f} with p averaged"
    yield f"after {when('DPMixture()')} of CPU time, that of Gibbs after {when('Gibbs')}"


def posterior_bias():
    table = stored("posterior-bias")["numbers"]["tables"]["5800"]
    fisher = {way: each["sd_ratio"] for way, each in table["SGFS"].items()}
    plain = fisher.pop("Minibatch")
    low, high = min(fisher.values()), max(fisher.values())
    yield f"{low:.2f} to {high:.2f} of the true ones; {plain:.2f} with plain minibatches"
    reduced = [each["sd_ratio"] for way, each in table["SGNHT, round"].items() if way != "Minibatch"]
    yield f"SGNHT, whose standard deviations are {100 * (1 - statistics.median(reduced)):.0f} % too small"


def divide_and_conquer():
    numbers = restored(stored("divide-and-conquer")["numbers"])
    kl, moments = (
        {
            d: {name: float(np.median(each[key])) for name, each in found["methods"].items()}
            for d, found in numbers["gaussian"].items()
        }
        for key in ("kl", "kl_moments")
    )
    yield f"(KL {kl[200]['Weierstrass']:.1f} at d = 200) and KDEMC does not ({kl[200]['KDEMC']:.0f})"
    hundred = [moments[100][name] for name in ("Weierstrass", "KDEMC")]
    yield "Weierstrass is better up to d = 100 ({:.0f} against {:.0f})".format(*hundred)
    yield "similar at 200 ({:.0f}, {:.0f})".format(*(moments[200][n] for n in ("Weierstrass", "KDEMC")))
    both, first = (
        {name: float(np.median(each[key])) for name, each in numbers["problems"]["mixture"]["methods"].items()}
        for key in ("kl", "kl_drawn")
    )
    yield (
        f"KDEMC is the best (KL {both['KDEMC']:.2f}), ahead of SGLD, SGHMC and Weierstrass ({both['SGLD']:.2f}, "
        f"{both['SGHMC']:.2f}, {both['Weierstrass']:.2f}) and consensus ({both['Consensus']:.2f})"
    )
    yield f"SGHMC is ({first['SGHMC']:.2f}; SGLD {first['SGLD']:.2f}, KDEMC {first['KDEMC']:.2f})"
    heavy = [float(np.median(each["kl"])) for each in numbers["problems"]["t"]["methods"].values()]
    assert max(heavy) - min(heavy) <= 0.1


@pytest.mark.parametrize(
    "said",
    [cost_in_n, logistic_covertype, lda_cv, lda_wikipedia, bnn_mnist, dp_msweb, posterior_bias, divide_and_conquer],
    ids=lambda said: said.__name__,
)
def test_the_page_of_figures_says_what_the_numbers_say(said):
    text = page("figures.md")
    for sentence in said():
        assert sentence in text, f"docs/figures.md must say: {sentence}"


def test_the_table_of_simplex_samplers_is_that_of_dks():
    numbers = stored("dks")["numbers"]
    places = [numbers["proportions"].index(share) for share in (0.01, 0.1, 0.5)]
    named = {
        "`sc.SCIRCV` (ii)": "SCIR-CV (ii)",
        "`sc.SCIRCV` (i)": "SCIR-CV (i)",
        "`sc.SCIR`": "SCIR",
        "`sc.SimplexSGRLD`": "SGRLD",
    }
    for title, name in named.items():
        found = [
            numbers["posteriors"][kind]["samplers"][name][place]["median"]
            for kind in ("sparse", "dense")
            for place in places
        ]
        assert f"| {title} | {' | '.join(f'{value:.3f}' for value in found)} |" in page("simplex.md")
    assert f"1,000 independent exact draws have {numbers['selection']['one']:.3f}" in page("simplex.md")


def test_mixtures_say_what_dp_msweb_says():
    curves = stored("dp-msweb")["numbers"]["curves"]
    scores = {
        name: mean([mean(curve["now"][-max(len(curve["now"]) // 5, 1) :]) for curve in curves[name]])
        for name in ("SCIR", "SGRLD", "Gibbs")
    }
    text = page("mixtures.md")
    assert f"SCIR with the paper's settings scores {scores['SCIR']:.2f} after" in text
    assert f"and SGRLD {scores['SGRLD']:.2f}; Gibbs has {scores['Gibbs']:.2f}" in text
