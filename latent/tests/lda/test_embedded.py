"""The corpus of docstrings: what becomes a document, that nothing is run, and that it is always the same."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco_latent.lda import embedded
from scirocco_latent.lda.corpus import as_corpus
from scirocco_latent.lda.embedded import embedded_corpus, tokens
from scirocco_latent.lda.sizes import FITTING

pytestmark = pytest.mark.compile

TWENTY = " ".join(["wind"] * 19 + ["sand"])


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that would fail loudly if it were imported."""
    folder = tmp_path / "dunes"
    (folder / "tests").mkdir(parents=True)
    (folder / "__init__.py").write_text(f'"""{TWENTY} module"""\nraise SystemExit("it was run")\n')
    (folder / "code.py").write_text(
        f'''
def public():
    """{TWENTY} function"""
    def inner():
        """{TWENTY} inner"""
def _private():
    """{TWENTY} private"""
def short():
    """Too short."""
def again():
    """{TWENTY} function"""
class Public:
    """{TWENTY} class"""
    def method(self):
        """{TWENTY} method"""
    def __init__(self):
        """{TWENTY} constructor"""
add_newdoc("dunes", "compiled", """{TWENTY} compiled""")
'''
    )
    (folder / "broken.py").write_text('"""open\n')
    (folder / "tests" / "case.py").write_text(f'"""{TWENTY} tests"""')
    monkeypatch.syspath_prepend(tmp_path)
    embedded.counted.cache_clear()
    yield "dunes"
    embedded.counted.cache_clear()


def test_what_becomes_a_document(package):
    found = [text.split()[-1] for text in embedded.texts_of([package])]
    assert found == ["module", "function", "class", "method", "compiled"]
    assert package not in sys.modules


def test_vocabulary_limits(package, changed):
    changed(FITTING, word_share=1.0)
    counts, vocabulary = embedded_corpus([package])
    assert vocabulary == ("sand", "wind")  # the last words are in one document each
    np.testing.assert_array_equal(counts.toarray(), [[1, 19]] * 5)


def test_too_few(package):
    with pytest.raises(InvalidValueError, match=r"5 docstrings .* dunes: too few"):
        embedded_corpus([package])  # every word is in more than 40 % of the documents


def test_tokens():
    assert tokens("The x2y FFT's N-D axes, isn't it? NaN_value") == ["fft", "axes", "isn", "nan", "value"]


def test_installed_package():
    counts, vocabulary = embedded_corpus(("numpy", "no_such_package_here"))
    assert counts.shape[0] > 300 and len(vocabulary) > 300
    present = np.asarray((counts > 0).sum(axis=0)).ravel()
    assert present.min() >= 5 and present.max() <= 0.4 * counts.shape[0]
    assert list(vocabulary) == sorted(set(vocabulary)) and not set(vocabulary) & embedded.STOP_WORDS
    assert as_corpus(counts, vocabulary).vocabulary == vocabulary


def test_always_the_same_and_the_callers_own():
    first, vocabulary = embedded_corpus(("numpy",), max_documents=150)
    again, _ = embedded_corpus(("numpy",), max_documents=150)
    first.data[:] = 0
    assert again.data.min() >= 1 and again.shape == (150, len(vocabulary))
    embedded.counted.cache_clear()
    fresh, words = embedded_corpus(("numpy",), max_documents=150)
    assert words == vocabulary
    np.testing.assert_array_equal(fresh.toarray(), again.toarray())


def test_messages():
    with pytest.raises(InvalidTypeError, match="sequence of names"):
        embedded_corpus("numpy")
    with pytest.raises(InvalidValueError, match="not a top-level package"):
        embedded_corpus(("numpy.linalg",))
    with pytest.raises(InvalidValueError, match=r"0 docstrings were found in no_such_package"):
        embedded_corpus(("no_such_package",))
    with pytest.raises(InvalidValueError, match="at least 1"):
        embedded_corpus(max_documents=0)
