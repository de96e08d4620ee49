"""Plain text as a corpus: lines, folders, which words are kept, and what is told apart from text."""

from __future__ import annotations

import gzip
import itertools

import numpy as np
import pytest
from scipy import io, sparse

from scirocco.errors import InvalidValueError
from scirocco.models.lda.texts import open_corpus, words_of

pytestmark = pytest.mark.unit

ALL = {"min_documents": 1, "max_share": 1.0}
TEXT = "Sun, sun & moon\n\nThe moon's 12 cows; cow_bell ÉTOILE\n"


def bags(corpus):
    """The documents as dicts."""
    indptr, words, counts = corpus.take_csr(np.arange(corpus.num_documents))
    names = [corpus.vocabulary[word] for word in words]
    pairs = list(zip(names, counts.tolist(), strict=True))
    return [dict(pairs[a:b]) for a, b in itertools.pairwise(indptr)]


def test_words():
    assert words_of("The FFTs of it: don't 3-D x_y1 Straße été, of42and") == ["ffts", "straße", "été"]


@pytest.mark.parametrize("packed", [False, True])
def test_a_document_a_line(tmp_path, packed):
    """Row numbers are line numbers: an empty line is an empty document."""
    path = tmp_path / ("lines.txt.gz" if packed else "lines.log")
    path.write_bytes(gzip.compress(TEXT.encode()) if packed else TEXT.encode())
    opened = open_corpus(path, **ALL)
    assert opened.names is None
    assert bags(opened.corpus) == [
        {"sun": 2, "moon": 1},
        {},
        {"moon": 1, "cows": 1, "cow": 1, "bell": 1, "étoile": 1},
    ]
    assert opened.corpus.vocabulary == ("moon", "sun", "bell", "cow", "cows", "étoile")


def test_a_document_a_file(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "one.txt").write_text("moon moon")
    (tmp_path / "two.txt").write_text("sun\nmoon\n")
    (tmp_path / "notes.md").write_text("not a document")
    opened = open_corpus(tmp_path, **ALL)
    assert opened.names == ("b/one.txt", "two.txt")
    assert bags(opened.corpus) == [{"moon": 2}, {"sun": 1, "moon": 1}]


def test_words_that_are_kept(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("aaa bbb ccc\naaa bbb ddd\naaa bbb\naaa\n")
    assert open_corpus(path, min_documents=2, max_share=0.75).corpus.vocabulary == ("bbb",)
    assert open_corpus(path, min_documents=2, max_share=1.0).corpus.vocabulary == ("aaa", "bbb")
    corpus = open_corpus(path, ["ccc", "aaa"]).corpus
    assert corpus.vocabulary == ("ccc", "aaa") and corpus.num_tokens == 5
    assert corpus.notes[0] == "4 of 9 tokens are not in the vocabulary and were left out."


def test_word_list_beside_a_uci_file(tmp_path):
    path = tmp_path / "docword.tiny.txt.gz"
    path.write_bytes(gzip.compress(b"2\n2\n2\n1 1 4\n2 2 5\n"))
    assert open_corpus(path).corpus.vocabulary is None
    (tmp_path / "vocab.tiny.txt").write_text("sun\nmoon\n")
    assert bags(open_corpus(path).corpus) == [{"sun": 4}, {"moon": 5}]
    (tmp_path / "words").write_text("cow\nhorse\n")
    assert open_corpus(path, tmp_path / "words").corpus.vocabulary == ("cow", "horse")


@pytest.mark.parametrize("form", ["npz", "mtx"])
def test_matrices_are_no_text(tmp_path, form):
    counts = sparse.csr_array(np.array([[1, 0], [2, 3]]))
    path = tmp_path / f"counts.{form}"
    if form == "npz":
        sparse.save_npz(path, counts)
    else:
        io.mmwrite(path, counts)
    assert open_corpus(path).corpus.num_tokens == 6


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (None, {}, "there is no file or folder"),
        ("", ALL, "has no words"),
        ("the of 12\n\n", ALL, "has no words"),
        ("sun moon\n", {}, "none of 2 words is in at least 5 and at most 50% of 1 documents"),
        ("sun moon\n", {"min_documents": 0}, "`min_documents` must be at least 1"),
        ("sun moon\n", {"max_share": 1.5}, "`max_share` must be above 0 and at most 1, got 1.5"),
        (b"\xff\xfe\x00", ALL, "cannot be read"),
    ],
)
def test_mistakes(tmp_path, text, options, message):
    path = tmp_path / "lines.txt"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InvalidValueError, match=message):
        open_corpus(path, **options)


def test_damaged_and_empty_places(tmp_path):
    packed = gzip.compress(np.random.default_rng(0).bytes(5_000).hex().encode())
    (tmp_path / "cut.txt.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(InvalidValueError, match=r"cut\.txt\.gz cannot be read"):
        open_corpus(tmp_path / "cut.txt.gz", **ALL)
    (tmp_path / "folder").mkdir()
    with pytest.raises(InvalidValueError, match=r"neither a data folder nor a folder with \.txt files"):
        open_corpus(tmp_path / "folder")
