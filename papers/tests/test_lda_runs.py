"""Following a chain and scoring it, on a corpus that is made here."""

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("numba", reason="topic models need numba (the extra `compiled`)")

from scirocco.errors import InvalidValueError
from scirocco.models import LDA
from scirocco_latent.lda import as_corpus, prediction
from scirocco_papers import Settings
from scirocco_papers import lda_runs as runs


@pytest.fixture
def texts():
    """Documents of two kinds of words, 0-9 and 10-19."""
    rng = np.random.default_rng(5)
    kinds = rng.integers(2, size=140)
    chances = np.where(np.arange(20) // 10 == kinds[:, None], 0.095, 0.005)
    matrix = sparse.csr_matrix(np.stack([rng.multinomial(40, p) for p in chances]).astype(np.int32))
    return runs.Texts(as_corpus(matrix[:100]), runs.Scorer(matrix[100:]))


def test_the_score_is_that_of_document_completion(texts, seed):
    omega = np.random.default_rng([seed, 8]).dirichlet(np.full(20, 0.5), 2).astype(np.float32)
    alpha = np.array([0.3, 0.7])
    found = texts.scorer.perplexity(texts.scorer.chances(omega, alpha, 6))
    how = prediction.FoldIn(alpha, runs._SWEEPS, runs._DROPPED, 1, 6)
    assert found == pytest.approx(prediction.perplexity(texts.scorer.seen, texts.scorer.hidden, [omega], how), rel=1e-6)


@pytest.mark.parametrize("sampler", ["scir_cv", "gibbs"])
def test_follow(sampler, texts):
    """Marks at equal numbers of documents; the same for the same seed, in any thread."""
    model = LDA(2, beta=0.5, sampler=sampler, batch_size=10, refresh_size=50, growth=None)
    jobs = {"one": [runs.Job(model, 400, 3), runs.Job(model, 400, 3)], "two": [runs.Job(model, 200, 4)]}
    found = runs.follow_all(texts, jobs, 4)
    first, again, other = *found["one"], *found["two"]
    assert first["documents"] == [100, 200, 300, 400] and other["documents"] == [50, 100, 150, 200]
    for name in ("now", "averaged", "from_start"):
        assert first[name] == again[name] and first[name] != other[name]
    if sampler == "gibbs":
        assert first["now"][-1] < min(first["now"][0], 19.0), "better than 20 words alike"
    assert first["averaged"][0] == first["from_start"][0] == first["now"][0]
    assert np.all(np.diff(first["seconds"]) >= 0)
    np.testing.assert_array_equal(runs.ends(found["one"]), [first["averaged"][-1]] * 2)


def test_averages(texts, monkeypatch):
    """p averaged over marks: the later half of those so far, and all."""
    values = iter([0.1, 0.4, 0.2, 0.3])
    monkeypatch.setattr(runs.Scorer, "chances", lambda self, *rest: np.full(len(self.hidden[1]), next(values)))
    model = LDA(2, sampler="gibbs", batch_size=100, growth=None)
    found = runs.follow(texts, runs.Job(model, 400, 0), 4)
    np.testing.assert_allclose(1 / np.array(found["now"]), [0.1, 0.4, 0.2, 0.3])
    np.testing.assert_allclose(1 / np.array(found["averaged"]), [0.1, 0.4, 0.3, 0.25])
    np.testing.assert_allclose(1 / np.array(found["from_start"]), [0.1, 0.25, 0.7 / 3, 0.25])


def test_no_data(tmp_path):
    with pytest.raises(InvalidValueError, match="the data set `wikipedia` was not found"):
        runs.wikipedia(Settings(data_dir=tmp_path), 10, 10)
