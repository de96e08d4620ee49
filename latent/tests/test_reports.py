"""Reports of topics and of clusters: the numbers are the model's own."""

import numpy as np
import pytest

import scirocco as sc
from fitted_topics import model_of
from report.reading import Page
from scirocco import report
from scirocco.drawing.markup import number
from scirocco.errors import InvalidValueError
from scirocco_latent.lda.view import embed

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]

WORDS = ("<b>sun", "moon", "star", "sea", "wave", "salt")
FIRST = ["what", "diagnosis", "topic-browser", "map", "prevalence", "perplexity", "certainty"]


@pytest.fixture
def topics(tmp_path, seed):
    rng = np.random.default_rng([seed, 8])
    weights = np.array([[5, 3, 1, 0.5, 0.3, 0.2], [0.2, 0.3, 0.5, 1, 3, 5], [1, 5, 1, 1, 1, 1]]) * 40
    draws = np.stack([[[rng.dirichlet(w) for w in weights] for _ in range(200)] for _ in range(2)])
    return model_of(tmp_path / "lda", draws, WORDS)


def test_topics_are_those_of_the_model(tmp_path, topics):
    page = Page(report.html(topics))
    assert list(page.sections)[:7] == FIRST and not page.problems
    assert len(page.ids) == len(set(page.ids))
    assert "ertificate" not in page.sections["diagnosis"]  # there is no density to compare with
    assert "curves" not in page.sections  # nor are there gradients
    text, shown = report.html(topics), page.sections["topic-browser"]
    for k, words in enumerate(topics.top_words(6, interval=0.9)):
        assert f'id="topic-{k}"' in text and f'href="#topic-{k}"' in text
        for word, mean, low, high in words:
            assert f'title="{number(low, 3)} to {number(high, 3)}">{number(mean, 3)}<' in text
            assert word in shown
    assert "<b>sun" not in text.replace("&lt;b>sun", "")
    assert "R-hat of every topic is below 1.1" in shown
    assert "documents=..." in page.sections["prevalence"]  # neither store nor documents say
    assert "validation" in page.sections["perplexity"]
    assert Page(report.html(tmp_path / "lda")).sections["topic-browser"] == shown


def test_prevalence_over_documents(topics, seed):
    documents = np.random.default_rng(seed).poisson(2.0, (40, 6)) + np.eye(6, dtype=int)[0]
    page = Page(report.html(topics, documents=documents))
    means = topics.transform(documents).mean(axis=0)
    rows = page.rows["shares"][1:]
    assert [int(row[0]) for row in rows] == np.argsort(-means, kind="stable").tolist()
    assert [row[1] for row in rows] == [f"{share:.2%}" for share in np.sort(means)[::-1]]


@pytest.mark.rotates(2, "long fits")
def test_representative_documents_and_groups(topics, seed):
    """Texts are quoted; groups that are numbers as text are in their order; intervals are those of `shares_by`."""
    words = np.array(["moon", "star", "sea", "wave", "salt", "fish"])
    rng = np.random.default_rng(seed)
    texts = [" ".join(rng.choice(words, 20)) + f" <i>{number}" for number in range(30)]
    years = [str(year) for year in rng.integers(8, 11, 30)]
    page = Page(report.html(topics, documents=texts, groups=years))
    assert not page.problems
    for document, share in topics.representative_documents(texts, 3)[0]:
        assert f"{share:.0%} of document {document}: {texts[document][:30]}" in page.sections["documents"]
    by = topics.shares_by(topics._read(texts), np.array(years, int))
    first = page.rows["by-group"][1:]
    for group, topic, documents, *ends in first:
        g, k = by.groups.tolist().index(int(group)), int(topic.split()[1])
        assert int(documents) == by.num_documents[g]
        assert ends == [f"{part[g, k]:.2%}" for part in (by.mean, by.low, by.high)]
    assert [row[0] for row in first[: len(by.groups)]] == [str(group) for group in by.groups]
    frame = pytest.importorskip("pandas").DataFrame({"id": range(30), "text": texts, "year": years})
    named = topics.shares_by(frame, "year", column="text")
    np.testing.assert_array_equal(named.mean, topics.shares_by(texts, np.array(years, int)).mean)
    from_frame = Page(report.html(topics, documents=frame, column="text", groups="year"))
    assert from_frame.rows["by-group"] == page.rows["by-group"]
    with pytest.raises(InvalidValueError, match="requires `documents`"):
        report.html(topics, groups=years)


def test_an_opened_topic_has_the_traces_of_its_words(topics):
    text = report.html(topics)
    drawn = topics.top_draws(6).draws
    assert text.count('class="more"') == 3 == text.count('aria-controls="topic-')
    page = Page(text)
    label = [
        known
        for tag, known in page.tags
        if tag == "div" and "Traces of the words of topic 1" in known.get("aria-label", "")
    ]
    assert len(label) == 1 and drawn.shape == (2, 200, 3, 6)


def test_very_many_topics_make_a_small_page(tmp_path, seed):
    rng = np.random.default_rng([seed, 1])
    draws = rng.gamma(0.1, size=(2, 5, 600, 300)) + 1e-9
    model = model_of(tmp_path / "lda", draws / draws.sum(axis=-1, keepdims=True), tuple(f"w{k}" for k in range(300)))
    text = report.html(model)
    assert len(text.encode()) < 2_500_000 and "The first 300 of 600 topics are shown" in text


def test_words_are_ordered_by_their_certainty(topics):
    rows = Page(report.html(topics)).rows
    certain, uncertain = ([float(row[-1]) for row in rows[name][1:]] for name in ("certain", "uncertain"))
    assert certain == sorted(certain) and uncertain == sorted(uncertain, reverse=True)
    assert max(certain) <= min(uncertain)
    every = [w for words in topics.top_words(6, interval=0.9) for w in words]
    assert certain[0] == pytest.approx(min((high - low) / mean for _, mean, low, high in every), rel=1e-2)


def test_a_fit_shows_its_perplexity(tmp_path, seed):
    counts = np.random.default_rng(seed).poisson(1.0, (60, 6)) + 1
    model = sc.models.LDA(2, num_samples=4, seed=seed)
    model.fit(counts[:40], num_epochs=8, validation=counts[40:], progress=False, store=tmp_path / "fit")
    from_model, from_store = Page(report.html(model)), Page(report.html(tmp_path / "fit"))
    assert from_model.sections["perplexity"] == from_store.sections["perplexity"]
    assert "held-out" in from_model.sections["perplexity"]
    assert "Shares of the tokens" in from_store.sections["prevalence"]
    assert "three topics" in from_model.sections["map"]
    bit_by_bit = sc.models.LDA(2, num_samples=4).partial_fit(counts)
    assert "fitted incrementally" in Page(report.html(bit_by_bit)).sections["what"]


def test_a_plane_is_embedded_exactly(seed):
    """Classical scaling of distances between points of a plane gives the points, up to a rotation."""
    points = np.random.default_rng(seed).normal(size=(9, 2))
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    places, kept = embed(distances)
    np.testing.assert_allclose(np.linalg.norm(places[:, None] - places[None], axis=2), distances, atol=1e-7)
    assert kept == pytest.approx(1.0)


@pytest.mark.parametrize("base", ["multinomial", "gaussian"])
def test_clusters_are_those_of_the_model(tmp_path, seed, base):
    rng = np.random.default_rng([seed, 2])
    if base == "gaussian":
        rows = np.concatenate([rng.normal(-5, 1, (40, 3)), rng.normal(5, 1, (40, 3))])
    else:
        rows = np.concatenate([rng.poisson([6, 6, 0], (40, 3)), rng.poisson([0, 6, 6], (40, 3))])
    model = sc.models.DPMixture(base, num_samples=25, seed=seed)
    model.fit(rows, num_epochs=50, progress=False, store=tmp_path / "dp")
    page = Page(report.html(model, names=["<i>a", "b", "c"]))
    assert list(page.sections)[:5] == ["what", "diagnosis", "number", "weights", "profiles"]
    assert not page.problems and len(page.ids) == len(set(page.ids))
    for row in model.clusters(0.9):
        assert f"cluster-{row.label}" in page.ids
        said = f"weight {number(row.weight, 3)} ({number(row.low, 3)} to {number(row.high, 3)})"
        assert said in page.sections["profiles"]
    assert "<i>a" in page.sections["profiles"]
    name = "means" if base == "gaussian" else "components"
    low, high = (end[0] for end in model.intervals(0.9)[name])
    titles = [known["title"] for tag, known in page.tags if tag == "td" and "title" in known]
    for a, b in zip(low, high, strict=True):
        assert any(title.startswith(f"{number(a, 3)} to {number(b, 3)}") for title in titles)
    assert not any(words in page.sections["diagnosis"] for words in ("does not move", "ertificate"))
    assert "column 0" in Page(report.html(tmp_path / "dp")).sections["profiles"]
    with pytest.raises(InvalidValueError, match=r"one name per column \(3\), got 1"):
        report.html(model, names=["a"])
