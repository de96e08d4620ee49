"""`scirocco topics`: what it prints and writes, its exit status, and what it refuses."""

import csv
import gzip
import json
import re
import signal
import sys

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("numba", reason="topic models need numba (the extra `compiled`)")

from scirocco import cli
from scirocco.cli._models import Opened
from scirocco.models import LDA
from scirocco_latent.commands.topics import escaped
from scirocco_latent.commands.topics_tables import bar, print_overview
from scirocco_latent.lda import embedded
from scirocco_latent.lda.describing import Word, summarise
from scirocco_latent.lda.sizes import FITTING

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]

FIRST, SECOND = ["sun", "moon", "star", "comet"], ["cow", "horse", "sheep", "goat"]
LENGTH = ("--topics", "2", "--batch-size", "20", "--epochs", "40", "--threads", "1")


def call(capsys, *words):
    """Exit status, stdout and stderr of `scirocco topics`, without the line about the choices of a fit."""
    with pytest.raises(SystemExit) as end:
        cli.main(["topics", *map(str, words)])
    shown = capsys.readouterr()
    return end.value.code, shown.out, re.sub(r"^LDA: .*\n", "", shown.err)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A document a line, 60 of them, each about the sky or about a farm."""
    rng = np.random.default_rng(0)
    lines = [" ".join(rng.choice(FIRST if d % 2 else SECOND, 20)) for d in range(60)]
    path = tmp_path_factory.mktemp("text") / "lines.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def run(text, tmp_path_factory):
    """A fit of two chains by the command line."""
    path = tmp_path_factory.mktemp("runs") / "run"
    with pytest.raises(SystemExit) as end:
        cli.main(["topics", "fit", str(text), "--out", str(path), "--chains", "2", "--held-out", "0.1", *LENGTH])
    assert end.value.code == 0
    return path


@pytest.mark.parametrize("command", ["topics", "topics fit", "topics show", "topics transform", "topics compare"])
def test_help_has_an_example(command, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main([*command.split(), "--help"])
    assert end.value.code == 0 and f"Example: scirocco {command}" in capsys.readouterr().out


# -- fit --------------------------------------------------------------------------------------------------------------


def test_fit_says_what_it_does(text, tmp_path, capsys):
    status, out, err = call(capsys, "fit", text, "--out", tmp_path / "run", "--held-out", "0.1", *LENGTH)
    assert status == 0 and not err
    assert "54 documents, 8 words, 1,080 tokens; 6 more are held out" in out
    assert "2 topics, 2 chains with 54 draws" in out and "R-hat" in out
    assert "perplexity of the 6 documents held out: " in out
    assert f"scirocco topics show {tmp_path / 'run'}" in out
    model = LDA.load(tmp_path / "run")
    assert {frozenset(words) for words in model.top_words(4)} == {frozenset(FIRST), frozenset(SECOND)}


def test_a_table_of_texts(tmp_path, capsys):
    """From a CSV to topics, shares of new texts, and a run that continues."""
    path, new = tmp_path / "texts.csv", tmp_path / "new.csv"
    rows = ["The sun, moon and star of the sky", "A cow, a horse, the sheep and a goat"] * 30
    path.write_text("id,body\n" + "".join(f'{k},"{text}"\n' for k, text in enumerate(rows)))
    new.write_text('body\n"moon and star"\n"cow, sheep and comet"\n')
    status, _, err = call(capsys, "fit", path, "--out", tmp_path / "run", *LENGTH)
    assert status == 2 and "--column" in err and "'id', 'body'" in err
    words = ("--column", "body", "--max-share", "1")
    status, out, err = call(capsys, "fit", path, *words, "--out", tmp_path / "run", *LENGTH)
    assert (status, err) == (0, "") and "english stop words, words in at least 2 documents" in out
    status, out, err = call(
        capsys, "transform", tmp_path / "run", new, "--column", "body", "--out", tmp_path / "shares.csv"
    )
    assert (status, err) == (0, "") and "1 of 5 tokens are not in the vocabulary" in out
    first, second = (line.split(",")[1:] for line in (tmp_path / "shares.csv").read_text().split()[1:])
    assert abs(float(first[0]) - float(second[0])) > 0.5
    again = ("--continue-from", tmp_path / "run", "--out", tmp_path / "again")
    status, out, err = call(capsys, "fit", path, *words, *again, *LENGTH)
    assert (status, err) == (0, "") and LDA.load(tmp_path / "again").tokeniser_ is not None


def test_seed_words_and_labels(tmp_path, capsys):
    """Names of topics are shown; documents that are held out do not shift the labels."""
    path, seeds = tmp_path / "texts.csv", tmp_path / "seeds.toml"
    words = ["sun and moon and star ", "cow, horse, goat ", "bread and soup, bread and salt "]
    texts = [each * 4 for each in words] * 20
    rows = [f'"{text}",{kind}\n' for text, kind in zip(texts, ["sky", "farm", "food"] * 20, strict=True)]
    path.write_text("body,kind\n" + "".join(rows))
    seeds.write_text('sky = ["moon", "Sun"]\n')
    how = ("--column", "body", "--topics", "3", "--epochs", "30", "--held-out", "0.2", "--max-share", "1")
    guide = ("--seed-words", seeds, "--labels", "kind", "--seed-weight", "20")
    status, out, err = call(capsys, "fit", path, *how, *guide, "--out", tmp_path / "run")
    assert (status, err) == (0, "") and "48 documents" in out
    model = LDA.load(tmp_path / "run")
    assert model.topic_names_ == ("sky", "farm", "food") and model.seed_words == {"sky": ["moon", "Sun"]}
    assert {"cow", "horse", "goat"} == set(model.top_words(3)[1]) and "moon" in model.top_words(3)[0]
    status, out, err = call(capsys, "show", tmp_path / "run")
    assert (status, err) == (0, "") and "1 farm" in out and "2 food" in out
    assert json.loads(call(capsys, "show", tmp_path / "run", "--json")[1])["topics"][0]["name"] is not None
    whole = LDA(4, num_samples=20).fit(
        path, column="body", labels="kind", num_epochs=2, progress=False
    )  # the same column in Python
    assert whole.topic_names_ == ("farm", "food", "sky")
    seeds.write_text("sky = [")
    bad = {"seeds.toml": "cannot be read", "seeds.txt": "must name a .toml or .json", "no.json": "no.json"}
    for name, words in bad.items():
        status, _, err = call(capsys, "fit", path, "--seed-words", tmp_path / name, *how, "--out", "x")
        assert status == 2 and words in err
    status, _, err = call(capsys, "fit", path, "--labels", "sort", *how, "--out", tmp_path / "x")
    assert status == 2 and "'body', 'kind'" in err


def test_names_are_no_formulas():
    assert [escaped(name) for name in ("=1+1.txt", "@sum", "b/one.txt")] == ["'=1+1.txt", "'@sum", "b/one.txt"]


def test_nothing_given_means_the_embedded_corpus(monkeypatch, changed, capsys):
    """Nothing is kept, and twenty topics are shown."""
    rng = np.random.default_rng(1)
    words = tuple(f"w{i}" for i in range(50))
    counts = sparse.csr_array(rng.poisson(0.5, (100, 50)).astype(np.int32))
    monkeypatch.setattr(embedded, "embedded_corpus", lambda: (counts, words))
    changed(FITTING, usual_tokens=0)
    status, out, _ = call(capsys, "fit")
    assert status == 0
    assert "98 documents, 50 words" in out and "20 topics, 2 chains" in out and "Nothing was kept" in out


def test_without_numba_nothing_is_read(monkeypatch, capsys):
    """The missing package is named first, even before a corpus that does not exist."""
    monkeypatch.setitem(sys.modules, "numba", None)
    for words in (("fit",), ("fit", "missing.txt", "--out", "run")):
        status, out, err = call(capsys, *words)
        assert (status, out) == (2, "")
        assert "fitting a topic model needs the package `numba`" in err and "Reading" not in err


def test_files_of_other_forms(tmp_path, capsys):
    """A UCI file with its word list beside it; a matrix with --vocabulary; a preset with some options."""
    rng = np.random.default_rng(2)
    counts = sparse.csr_array(rng.poisson(2.0, (30, 4)))
    rows = counts.tocoo()
    triples = "".join(f"{d + 1} {w + 1} {n}\n" for d, w, n in zip(*rows.coords, rows.data, strict=True))
    uci = tmp_path / "docword.tiny.txt.gz"
    uci.write_bytes(gzip.compress(f"30\n4\n{counts.nnz}\n{triples}".encode()))
    (tmp_path / "vocab.tiny.txt").write_text("\n".join(FIRST))
    sparse.save_npz(tmp_path / "counts.npz", counts)
    short = ("--topics", "2", "--steps", "4", "--held-out", "0", "--batch-size", "10")
    first = call(capsys, "fit", uci, "--out", tmp_path / "a", *short)
    words = ("--vocabulary", tmp_path / "vocab.tiny.txt")
    second = call(capsys, "fit", tmp_path / "counts.npz", "--out", tmp_path / "b", *words, *short)
    assert first[0] == second[0] == 0
    np.testing.assert_array_equal(LDA.load(tmp_path / "a").components_, LDA.load(tmp_path / "b").components_)
    assert LDA.load(tmp_path / "b").vocabulary_ == tuple(FIRST)
    assert call(capsys, "fit", uci, "--out", tmp_path / "c", "--preset", "baker2018", *short)[0] == 0
    assert LDA.load(tmp_path / "c").memory == "none"


@pytest.mark.parametrize(("when", "shown"), [(0.2, False), (0.8, True)])
def test_ctrl_c_and_resume(text, tmp_path, capsys, monkeypatch, when, shown):
    """In the burn-in there is nothing to show yet; a run that goes on equals one that was never interrupted."""
    options = ("fit", text, "--held-out", "0", *LENGTH)
    original = LDA.fit

    def interrupted(self, X, **settings):
        def press(report):
            if report.step > when * report.num_steps:
                signal.raise_signal(signal.SIGINT)

        return original(self, X, callbacks=[press], **settings)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with monkeypatch.context() as patch:
        patch.setattr(LDA, "fit", interrupted)
        status, out, err = call(capsys, *options, "--out", tmp_path / "run")
    signal.signal(signal.SIGINT, before)
    assert status == 130 and "repeat the command with --resume" in out
    assert err.startswith("scirocco: interrupted after ") and len(err.splitlines()) == 1
    assert ("so far (interrupted)" in out) == shown
    status, _, err = call(capsys, "show", tmp_path / "run")
    assert status == (0 if shown else 2) and ("in its burn-in" in err) != shown
    assert call(capsys, *options, "--out", tmp_path / "run", "--resume")[0] == 0
    assert call(capsys, *options, "--out", tmp_path / "whole", "--resume")[0] == 0  # nothing there: begins
    np.testing.assert_array_equal(
        LDA.load(tmp_path / "run").topics(draws=True), LDA.load(tmp_path / "whole").topics(draws=True)
    )


def test_a_run_that_is_there_is_not_touched(run, text, capsys, tmp_path):
    status, _, err = call(capsys, "fit", text, "--out", run, *LENGTH)
    assert status == 2 and "already contains a run. Add --resume to continue it or --overwrite" in err
    status, _, err = call(capsys, "fit", text, "--out", run, "--resume", *LENGTH)
    assert status == 2 and "cannot be resumed with these arguments" in err and "was 54 and is now 60" in err
    (tmp_path / "letter").write_text("keep me")
    status, out, err = call(capsys, "fit", text, "--out", tmp_path, *LENGTH)
    assert status == 2 and not out and "is not a run that scirocco may replace" in err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["no/such/corpus", "--out", "run"], "there is no file or folder no/such/corpus."),
        (["TEXT"], "--out is missing: add --out RUN"),
        (["TEXT", "--out", "run", "--topics", "1"], "--topics"),
        (["TEXT", "--out", "run", "--alpha", "-1"], "`alpha` must be finite and > 0, got -1.0."),
        (["TEXT", "--out", "run", "--beta", "0"], "`beta` must be finite and > 0"),
        (["TEXT", "--out", "run", "--sampler", "foo"], "--sampler must be one of 'auto'"),
        (["TEXT", "--out", "run", "--preset", "foo"], "`preset` must be one of 'patterson2013'"),
        (["TEXT", "--out", "run", "--epochs", "1", "--steps", "3"], "give one of --steps, --epochs and --seconds."),
        (["TEXT", "--out", "run", "--epochs", "nan"], "`num_epochs` must be finite and > 0, got nan."),
        (["TEXT", "--out", "run", "--held-out", "1.5"], "held-out fraction must be >= 0 and < 1, got 1.5."),
        (["TEXT", "--out", "run", "--max-share", "0"], "`max_share` must be above 0"),
        (["TEXT", "--out", "run", "--resume", "--overwrite"], "not both."),
        (["TEXT", "--out", "run", "--vocabulary", "none.txt"], "'none.txt', which does not exist"),
        (["--resume"], "--resume requires --out RUN"),
        (["--vocabulary", "words.txt"], "--vocabulary requires a CORPUS"),
    ],
)
def test_mistakes_of_fit(words, expected, text, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, err = call(capsys, "fit", *(text if word == "TEXT" else word for word in words))
    assert status == 2 and not out and not list(tmp_path.iterdir())
    assert expected in err and err.startswith("scirocco: ") and len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("2\n3\n2\n1 1 2\n2 4 1\n", "has the word number 4; the header declares 1..3."),
        ("2\n3\n2\n1 1 2\n2 3 -1\n", "has the count -1, but counts must be >= 0."),
        ("2\n3\n2\n1 1 2\n2 3 1.5\n", "has the count 1.5, but a topic model requires integer counts"),
        ("2\n3\n3\n1 1 2\n2 3 1\n", "declares 3 entries but has 2."),
        ("2\n3\n0\n", "the corpus is empty"),
    ],
)
def test_bad_files(rows, expected, capsys, tmp_path):
    (tmp_path / "docword.bad.txt").write_text(rows)
    status, out, err = call(capsys, "fit", tmp_path / "docword.bad.txt", "--out", tmp_path / "run", *LENGTH)
    assert status == 2 and not out and expected in err and not (tmp_path / "run").exists()


def test_wrong_word_list_and_empty_documents(capsys, tmp_path):
    (tmp_path / "docword.tiny.txt").write_text("3\n3\n2\n1 1 9\n3 2 9\n")
    (tmp_path / "vocab.tiny.txt").write_text("sun\nmoon\n")
    command = ("fit", tmp_path / "docword.tiny.txt", "--out", tmp_path / "run", *LENGTH)
    status, _, err = call(capsys, *command)
    assert status == 2 and "`vocabulary` has 2 words, but the corpus has 3 columns." in err
    (tmp_path / "vocab.tiny.txt").write_text("sun\nmoon\nstar\n")
    status, out, _ = call(capsys, *command)
    assert status == 0 and "1 of 3 documents is empty: kept, contributes nothing." in out


# -- show -------------------------------------------------------------------------------------------------------------


def test_show(run, capsys):
    status, out, _ = call(capsys, "show", run, "--words", "3")
    assert status == 0 and "2 topics, 2 chains with 54 draws" in out and "R-hat" in out
    assert any(word in out for word in FIRST) and any(word in out for word in SECOND)
    assert "the chains disagree" not in out


def test_topics_whose_chains_disagree_are_counted(run, capsys):
    model = LDA.load(run)
    topics = [topic._replace(rhat=rhat) for topic, rhat in zip(summarise(model, 3, 0.9), (1.0, 3.5), strict=True)]
    print_overview(Opened(run, model, model.run_, 0.9), topics)
    shown = " ".join(capsys.readouterr().out.split())
    assert re.search(r"R-hat is above 1\.\d+ in 1 of these 2 topics: there the chains disagree", shown)


def test_show_for_programs(run, capsys):
    status, out, _ = call(capsys, "show", run, "--json", "--words", "4", "--interval", "0.5")
    found = json.loads(out)
    assert status == 0 and found["num_topics"] == 2 and found["num_words"] == 8 and found["interval"] == 0.5
    listed = LDA.load(run).top_words(4, interval=0.5)
    for topic in found["topics"]:
        assert [tuple(word.values()) for word in topic["words"]] == listed[topic["number"]]


def test_show_one_topic(run, capsys):
    status, out, _ = call(capsys, "show", run, "--topic", "1", "--words", "4")
    assert status == 0 and "topic 1, " in out and "topic 0" not in out and out.count("●") == 4
    status, _, err = call(capsys, "show", run, "--topic", "2")
    assert status == 2 and "there is no topic 2" in err and "they are 0..1." in err
    status, _, err = call(capsys, "show", run.parent)
    assert status == 2 and "is not a scirocco run" in err


def test_intervals_as_lines():
    """From 10 of 29 to 29 of 29, the mean at 20."""
    word = Word("sun", 20 / 29, 10 / 29, 1.0)
    assert bar(word, 1.0) == " " * 10 + "─" * 10 + "●" + "─" * 9


def test_a_topic_model_is_listed_with_the_runs(run, capsys):
    with pytest.raises(SystemExit):
        cli.main(["runs", str(run)])
    out = capsys.readouterr().out
    assert "LDA, gibbs" in out and "54 of 54" in out and "complete" in out


# -- transform --------------------------------------------------------------------------------------------------------


def test_transform(run, text, capsys, tmp_path):
    status, out, _ = call(capsys, "transform", run, text, "--out", tmp_path / "shares.npz", "--interval", "0.9")
    assert status == 0 and "60 documents × 2 topics" in out
    with np.load(tmp_path / "shares.npz") as saved:
        mean, low, high = saved["mean"], saved["low"], saved["high"]
    model = LDA.load(run)
    sky = int(np.argmax(model.components_[:, model.vocabulary_.index("sun")]))
    assert mean.shape == (60, 2) and np.all(low <= high)
    assert np.all(mean[1::2, sky] > 0.9) and np.all(mean[::2, sky] < 0.1)


def test_transform_to_a_table(run, capsys, tmp_path):
    """Documents have the names of their files; words that the run does not know are counted."""
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "farm.txt").write_text("cow horse horse tractor goat")
    (tmp_path / "texts" / "sky.txt").write_text("moon sun star")
    status, out, _ = call(capsys, "transform", run, tmp_path / "texts", "--out", tmp_path / "shares.csv")
    assert status == 0 and "1 of 8 tokens are not in the vocabulary and were left out." in out
    rows = list(csv.reader((tmp_path / "shares.csv").open()))
    assert rows[0] == ["document", "topic_0", "topic_1"] and [row[0] for row in rows[1:]] == ["farm.txt", "sky.txt"]
    assert sum(map(float, rows[1][1:])) == pytest.approx(1.0, abs=1e-4)
    again = ("transform", run, tmp_path / "texts", "--out", tmp_path / "shares.csv")
    status, _, err = call(capsys, *again)
    assert status == 2 and "already exists. Add --overwrite" in err
    assert call(capsys, *again, "--overwrite", "--interval", "0.5")[0] == 0
    rows = list(csv.DictReader((tmp_path / "shares.csv").open()))
    assert len(rows) == 4 and float(rows[0]["low"]) <= float(rows[0]["high"])


@pytest.mark.parametrize(
    ("corpus", "out", "expected"),
    [
        ("TEXT", "shares.txt", "must end in .npz or .csv."),
        ("TEXT", "no/such/shares.csv", "create it first."),
        ("missing", "shares.csv", "there is no file or folder"),
        ("small.npz", "shares.csv", "`vocabulary` has 8 words, but the corpus has 3 columns."),
    ],
)
def test_mistakes_of_transform(run, text, corpus, out, expected, capsys, tmp_path):
    sparse.save_npz(tmp_path / "small.npz", sparse.csr_array(np.ones((2, 3), int)))
    source = text if corpus == "TEXT" else tmp_path / corpus
    status, _, err = call(capsys, "transform", run, source, "--out", tmp_path / out)
    assert status == 2 and expected in err and not (tmp_path / out).exists()


# -- compare ----------------------------------------------------------------------------------------------------------


def test_compare(run, text, tmp_path, capsys):
    assert call(capsys, "fit", text, "--out", tmp_path / "other", "--seed", "5", *LENGTH)[0] == 0
    status, out, _ = call(capsys, "compare", run, tmp_path / "other", "--corpus", text)
    assert status == 0 and "2 pairs of topics, compared over 8 words" in out and "every topic is matched" in out
    assert out.count("perplexity of ") == 2
    status, out, _ = call(capsys, "compare", run, tmp_path / "other", "--limit", "0")
    assert status == 0 and "no pairs of topics" in out and out.count("unmatched topics of ") == 2


def test_compare_over_other_words(run, text, tmp_path, capsys):
    (tmp_path / "few.txt").write_text("sun\nmoon\ncow\nhorse\n")
    fit = ("fit", text, "--out", tmp_path / "few", "--vocabulary", tmp_path / "few.txt", *LENGTH)
    assert call(capsys, *fit)[0] == 0
    status, out, _ = call(capsys, "compare", run, tmp_path / "few")
    assert status == 0 and "compared over 4 words" in out
    status, out, err = call(capsys, "compare", run, tmp_path / "few", "--corpus", text)
    assert status == 2 and not out and "perplexities over two vocabularies cannot be compared" in err
