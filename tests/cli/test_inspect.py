"""`scirocco diagnose`, `report` and `cite`: what reaches the library, and what is printed."""

import difflib
import json
import sys
import types
from importlib.resources import files

import numpy as np
import pytest

import scirocco as sc
import scirocco_papers
from scirocco import analysis, cli, estimators, models, samplers, simplex
from scirocco.analysis.diagnosis import Diagnosis
from scirocco.cli.citing import experiments, find, references, works
from scirocco.run import list_runs
from scirocco.run.loading import smallest_ess
from scirocco.run.run_group import CHAINS, SHARDS

pytestmark = pytest.mark.compile


@pytest.fixture
def asked(monkeypatch):
    """What `sc.analysis.diagnose` was called with; all is well."""
    seen = []

    def fake(run, model=None, data=None):
        seen.append((run, model, data))
        return Diagnosis([], {"r_hat": 1.0}, [], "Diagnosis")

    monkeypatch.setattr(analysis, "diagnose", fake)
    return seen


def test_diagnose_says_what_more_there_is(place, say):
    status, out, _ = say("diagnose", place.run)
    assert status == 1 and "Verdict: not converged" in out
    assert f"scirocco diagnose {place.run} --config {place.config}" in out.replace("\n", " ")


def test_diagnose_with_a_file_or_a_model(place, say, asked, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("import scirocco as sc\nmodel = sc.Model(lambda b, row: -b**2)\n")
    assert say("diagnose", place.run, "--config", place.config)[0] == 0
    assert say("diagnose", place.run, "--model", "mine:model", "--data", place.rows)[0] == 0
    for run, model, data in asked:
        assert run.num_draws and isinstance(model, sc.Model) and set(data) == {"x", "y"}
    for words in (("--model", "mine:model"), ("--data", place.rows)):
        status, _, err = say("diagnose", place.run, *words)
        assert status == 2 and "require each other" in err
    status, _, err = say("diagnose", place.run, "--config", place.config, "--data", place.rows)
    assert status == 2 and "not both" in err


def test_diagnose_of_models_with_a_loop_of_their_own(fitted, say, asked):
    """Judged by numbers that do not depend on which cluster is called what."""
    for path in (fitted.clusters, fitted.topics):
        assert say("diagnose", path)[0] == 0
    clusters, topics = (set(run.named_draws()) for run, _, _ in asked)
    assert "concentration" in clusters and not clusters & {"weights", "means", "passes"}
    assert topics and "topics" not in topics


@pytest.fixture
def pages(monkeypatch):
    """What `scirocco.report.write` was called with."""
    seen = []

    def write(what, path, **options):
        seen.append((what, path, options))
        path.write_text("<!doctype html>")
        return path

    monkeypatch.setitem(sys.modules, "scirocco.report", types.SimpleNamespace(write=write))
    return seen


def test_report(fitted, pages, say, monkeypatch, tmp_path):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    target = tmp_path / "page.html"
    status, out, _ = say("report", fitted.run, "--out", target)
    assert status == 0 and not opened
    assert f"python -m webbrowser -t {target.as_uri()}" in out
    assert say("report", fitted.clusters, "--open")[0] == 0
    beside = fitted.clusters.with_name("clusters.html")
    assert opened == [beside.resolve().as_uri()]
    status, _, err = say("report", fitted.topics, "--by", "year")
    assert status == 2 and "require --documents" in err
    status, _, err = say("report", fitted.run, "--out", tmp_path / "page.txt")
    assert status == 2 and "must end in .html" in err


def test_report_of_topics_quotes_documents(fitted, say, tmp_path):
    target = tmp_path / "topics.html"
    assert say("report", fitted.topics, "--documents", fitted.text, "--out", target)[0] == 0
    page = target.read_text()
    assert any(text in page for text in fitted.text.read_text().splitlines())
    status, _, err = say("report", fitted.topics, "--documents", fitted.text, "--by", "year", "--out", target)
    assert status == 2 and "has no columns" in err


def test_runs_are_in_folders(place, say):
    status, out, err = say("runs", place.table)
    assert (status, out) == (2, "") and "is a file" in err


def test_everything_can_be_cited():
    rooms = (samplers, simplex, estimators, models)
    classes = {name for room in rooms for name in room.__all__ if name in (*sc.__all__, *models.__all__)}
    classes = {name for name in classes if name[0].isupper()}
    assert classes <= set(works())
    assert set(experiments()) == set(scirocco_papers.ALL)
    everything = (works() | experiments()).values()
    assert all(work.keys for work in everything)
    assert {key for work in everything for key in work.keys} == set(references())


def test_cite(say):
    status, out, _ = say("cite", "sghmc", "control_variates")
    assert status == 0
    assert "\\cite{chen2014}" in out and "@inproceedings{chen2014," in out and "@article{baker2019," in out
    assert out.count("@software{scirocco,") == 1
    assert find("gaussian_mixture")[0] == "GaussianMixture"
    assert find("Gaussian_Scaling")[1].keys == ("baker2018thesis", "baker2019r")
    status, out, _ = say("cite", "--list")
    assert status == 0 and all(name in out for name in ("SGLD", "LDA", "consensus", "bnn-mnist"))
    status, _, err = say("cite", "SGDL")
    assert status == 2 and "Did you mean `SGLD`?" in err


def test_entries_are_bibtex():
    known = references()
    assert len(known) == (files("scirocco.cli") / "references.bib").read_text("utf-8").count("\n@")
    for key, reference in known.items():
        text = reference.bibtex
        assert text.startswith(f"@{reference.kind}{{{key},\n") and text.count("{") == text.count("}")
        assert {"author", "title"} <= set(reference.fields) and text.count(" = {") == len(reference.fields)
    assert known["welling2011"].short == "Welling and Teh (2011)"
    assert known["scirocco"].fields["version"] == sc.__version__


def test_ctrl_c_before_a_command_listens(monkeypatch, say):
    """Wherever it comes, it is one line and 130."""

    def pressed(*words, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(difflib, "get_close_matches", pressed)
    status, out, err = say("cite", "SGLB")
    assert (status, out, err) == (130, "", "scirocco: interrupted.\n")


def test_every_command_is_known_to_the_front_page(say):
    out = say("--help")[1]
    from typer.main import get_command

    assert all(name in out for name in get_command(cli.app).commands)


def test_what_cannot_be_resumed_from_a_file(fitted, say):
    """Models with a loop of their own: the command that goes on with them is named."""
    for path, command in ((fitted.topics, "topics fit"), (fitted.clusters, "cluster fit")):
        status, _, err = say("resume", path)
        assert status == 2 and f"scirocco {command} ... --out {path} --resume" in err


def test_a_run_has_the_names_of_its_columns(fitted, say, tmp_path):
    """From the header of the table; they are in the report and in the list of clusters."""
    assert models.load(fitted.clusters).feature_names_in_.tolist() == ["wide", "high"]
    assert say("report", fitted.clusters, "--out", tmp_path / "named.html")[0] == 0
    assert ">wide<" in (tmp_path / "named.html").read_text("utf-8")
    shown = json.loads(say("show", fitted.clusters, "--json")[1])
    assert {item["name"] for item in shown["clusters"][0]["typical"]} == {"wide", "high"}


def test_chains_in_folders_are_one_run(tmp_path, say):
    """As `sc.load` opens them; shards too, with the ESS of the worst."""
    run = draw(tmp_path / "one")
    for kind in (CHAINS, SHARDS):
        folder = tmp_path / kind.name
        page = {"count": 2, "num_rows": [50] * 2, "transformed": False}
        kind.begin(str(folder), page, resume=False, overwrite=False)
        (begun,) = list_runs(folder)
        assert (begun["kind"], begun["status"], begun["draws"]) == (kind.name, "not started", 0)
        for number in range(2):
            run.save(kind.path(str(folder), number))
    chains, one, shards = list_runs(tmp_path)
    assert [entry["kind"] for entry in (chains, one, shards)] == ["chains", "run", "subposteriors"]
    assert (chains["num_chains"], chains["draws"], chains["status"]) == (2, 40, "complete")
    assert chains["smallest_ess"] == smallest_ess(sc.load(tmp_path / "chains"))
    assert shards["smallest_ess"] == pytest.approx(one["smallest_ess"])
    status, _, err = say("resume", tmp_path / "subposteriors")
    assert status == 2 and "sc.combine.subposteriors" in err and len(err.splitlines()) == 1
    out = say("runs", tmp_path)[1]
    assert len([line for line in out.splitlines() if "SGLD" in line]) == 3 and "2 in 2 shards" in out


def draw(path):
    model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)
    rows = np.linspace(-1.0, 1.0, 50, dtype=np.float32)
    method = {"sampler": sc.SGLD(1e-3), "estimator": sc.Minibatch(10)}
    return sc.sample(model, rows, np.float32(0.1), num_samples=40, store=path, progress=False, **method)
