"""Every form of word counts gives the same corpus; every wrong one a message that says where and what to do."""

from __future__ import annotations

import collections
import gzip
import itertools

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from scirocco.data import CorpusSource
from scirocco.data.native.corpus import write_corpus
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco_latent.lda.corpus import as_corpus
from scirocco_latent.lda.streams import DocumentStream

pytestmark = pytest.mark.unit

COUNTS = np.array([[2, 0, 1, 0], [0, 0, 0, 0], [0, 3, 0, 0], [1, 1, 1, 0]])
WORDS = ("sun", "moon", "star", "void")
TOKENS = [[word for word, count in zip(WORDS, row, strict=True) for _ in range(count)] for row in COUNTS]
PAIRS = [[(int(i), int(row[i])) for i in np.flatnonzero(row)] for row in COUNTS]


class Dictionary:
    """What is used of gensim's class of that name."""

    token2id = {word: number for number, word in enumerate(WORDS)}  # noqa: RUF012


class Frame:
    """A data frame, as far as NumPy is concerned."""

    def __array__(self, dtype=None, copy=None):
        return np.array(COUNTS, dtype)


def shuffled_entries():
    """A COO matrix with every entry in two parts, whose sum does not fit the eight bits of the parts."""
    row, column = np.nonzero(COUNTS)
    part = np.concatenate([np.full(len(row), 200, np.uint8), np.full(len(row), 100, np.uint8)])
    return sp.coo_array((part, (np.tile(row, 2), np.tile(column, 2))), shape=COUNTS.shape)


FORMS = {
    "dense": COUNTS,
    "dense floats": COUNTS.astype(np.float32),
    "data frame": Frame(),
    "csr": sp.csr_array(COUNTS),
    "csr matrix": sp.csr_matrix(COUNTS.astype(np.uint8)),
    "csc": sp.csc_array(COUNTS),
    "coo floats": sp.coo_array(COUNTS.astype(float)),
    "source": CorpusSource(sp.csr_array(COUNTS)),
    "source with floats": CorpusSource(sp.csr_array(COUNTS.astype(np.float32))),
    "pairs": PAIRS,
    "pairs from an iterator": (document for document in PAIRS),
    "pairs as arrays": [np.array(document, float).reshape(-1, 2) for document in PAIRS],
    "pairs in pieces": [[pair for i, n in document for pair in [(i, 1)] * n] for document in PAIRS],
    "dicts of words": [dict(collections.Counter(document)) for document in TOKENS],
    "dicts of ids": [dict(document) for document in PAIRS],
    "tokens": TOKENS,
    "tokens from an iterator": (tuple(document) for document in TOKENS),
}


def dense(corpus):
    indptr, words, counts = corpus.take_csr(np.arange(corpus.num_documents))
    assert words.dtype == counts.dtype == np.int32 and indptr.dtype == np.int64
    return sp.csr_array((counts, words, indptr), shape=(corpus.num_documents, corpus.vocabulary_size)).toarray()


def check(corpus, vocabulary=WORDS):
    np.testing.assert_array_equal(dense(corpus), COUNTS)
    assert corpus.vocabulary == vocabulary
    assert corpus.num_tokens == COUNTS.sum() and corpus.num_empty == 1
    assert any("1 of 4 documents is empty" in note for note in corpus.notes)


@pytest.mark.parametrize("name", FORMS)
def test_forms(name):
    check(as_corpus(FORMS[name], WORDS))


@pytest.mark.parametrize(
    "vocabulary",
    [list(WORDS), np.array(WORDS), Dictionary(), Dictionary.token2id, dict(enumerate(WORDS))],
    ids=["list", "array", "Dictionary", "token2id", "id2word"],
)
def test_vocabularies(vocabulary):
    check(as_corpus(PAIRS, vocabulary))


def test_only_the_number_of_words():
    check(as_corpus(PAIRS, 4), vocabulary=None)


def test_a_corpus_is_left_alone():
    corpus = as_corpus(COUNTS)
    assert as_corpus(corpus) is corpus
    assert as_corpus(corpus, WORDS).vocabulary == WORDS


def test_the_callers_matrix_is_left_alone():
    matrix = shuffled_entries().astype(np.int64).tocsr()
    matrix.indices[:2] = matrix.indices[1::-1].copy()  # no longer sorted
    before = matrix.copy()
    as_corpus(matrix)
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(matrix, name), getattr(before, name))


def test_entries_in_parts_are_summed_without_wrapping_around():
    np.testing.assert_array_equal(dense(as_corpus(shuffled_entries())), 300 * (COUNTS > 0))


def test_learned_words_come_by_frequency_then_alphabet():
    corpus = as_corpus([["b", "c", "a"], [], ["c", "b", "d", "c"]])
    assert corpus.vocabulary == ("c", "b", "a", "d")
    np.testing.assert_array_equal(dense(corpus), [[1, 1, 1, 0], [0, 0, 0, 0], [2, 1, 0, 1]])


def test_unknown_words_are_counted():
    corpus = as_corpus([["sun", "mars", "mars"], ["moon", "venus"]], WORDS)
    assert "3 of 5 tokens are not in the vocabulary" in corpus.notes[0]
    assert corpus.num_tokens == 2


def test_pairs_without_vocabulary_say_how_many_words_were_taken():
    corpus = as_corpus([[(0, 1)], [(6, 2)]])
    assert corpus.vocabulary_size == 7 and "largest id is 6" in corpus.notes[0]


# ------------------------------------------------------------------------------------------------- files


def uci(path, text=None, packed=False):
    lines = [f"{d + 1} {w + 1} {COUNTS[d, w]}" for d, w in zip(*np.nonzero(COUNTS), strict=True)]
    text = "\n".join(["4", "4", str(len(lines)), *lines, ""]) if text is None else text
    path = path / ("docword.tiny.txt.gz" if packed else "docword.tiny.txt")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_uci(tmp_path, packed):
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    check(as_corpus(uci(tmp_path, packed=packed), tmp_path / "vocab.txt"))


@pytest.mark.parametrize("packed", [False, True])
def test_matrix_market(tmp_path, packed):
    path = tmp_path / "corpus.mtx"
    scipy.io.mmwrite(path, sp.coo_array(COUNTS))
    if packed:
        (tmp_path / "corpus.mtx.gz").write_bytes(gzip.compress(path.read_bytes()))
        path = tmp_path / "corpus.mtx.gz"
    check(as_corpus(str(path), WORDS))


def test_npz_and_folder(tmp_path):
    sp.save_npz(tmp_path / "corpus.npz", sp.csr_array(COUNTS))
    check(as_corpus(tmp_path / "corpus.npz", WORDS))
    write_corpus(tmp_path / "folder", sp.csr_array(COUNTS.astype(np.float32)), shuffle=False)
    check(as_corpus(tmp_path / "folder", WORDS))


BAD_FILES = {
    "cut short": ("2\n3\n4\n1 1 4\n1 3 1\n", ("declares 4 entries but has 2", "truncated")),
    "word beyond the header": ("2\n3\n1\n1 4 1\n", ("line 4", "word number 4", "1..3")),
    "word counted from 0": ("2\n3\n2\n1 1 1\n1 0 1\n", ("line 5", "word number 0", "1..3")),
    "document beyond the header": ("2\n3\n1\n3 1 1\n", ("document number 3", "1..2")),
    "fraction": ("2\n3\n1\n1 1 0.5\n", ("document 1 (counted from 1, line 4", "0.5", "CountVectorizer")),
    "two columns": ("2\n3\n1\n1 1\n", ("line 4", "2 numbers", "document, word, count")),
    "text": ("2\n3\n1\n1 1 many\n", ("cannot be read", "many")),
    "no header": ("2\n3 1 1\n1 1 1\n", ("three lines", "'3 1 1'")),
    "prose": ("It was a dark night.\n", ("not a known corpus format", "UCI", "Matrix Market")),
    "nothing": ("", ("not a known corpus format",)),
    "no entries": ("2\n3\n0\n", ("the corpus is empty",)),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files(tmp_path, name):
    text, phrases = BAD_FILES[name]
    with pytest.raises(InvalidValueError) as caught:
        as_corpus(uci(tmp_path, text))
    for phrase in phrases:
        assert phrase in str(caught.value), str(caught.value)


def test_bad_word_lists(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("sun\n\nmoon\n")
    with pytest.raises(InvalidValueError, match=r"line 2 .* is empty"):
        as_corpus(COUNTS, path)
    with pytest.raises(InvalidValueError, match="does not exist"):
        as_corpus(COUNTS, tmp_path / "other.txt")


def test_folder_with_fractions_and_damaged_ids(tmp_path):
    fractions = COUNTS * np.float32(0.5)
    write_corpus(tmp_path / "weights", sp.csr_array(fractions), shuffle=False)
    with pytest.raises(InvalidValueError, match=r"document 0 .* 0\.5.*CountVectorizer"):
        as_corpus(tmp_path / "weights")
    write_corpus(tmp_path / "ids", sp.csr_array(COUNTS), shuffle=False)
    indices = np.load(tmp_path / "ids" / "indices.npy")
    indices[2] = 9
    np.save(tmp_path / "ids" / "indices.npy", indices)
    with pytest.raises(InvalidValueError, match=r"document 2 .* word id 9; with 4 words"):
        as_corpus(tmp_path / "ids")


# -------------------------------------------------------------------------------------------- bad inputs


def changed(value, row=2, column=1, dtype=float):
    counts = COUNTS.astype(dtype)
    counts[row, column] = value
    return counts


def with_id(number):
    matrix = sp.csr_array(COUNTS)
    matrix.indices[2] = number
    return matrix


def damaged_columns():
    matrix = sp.csc_array(COUNTS)
    matrix.indices[0] = 99
    return matrix


DOCUMENT_2 = "document 2 (counted from 0)"
ROWS = {
    "fraction": (
        lambda: as_corpus(changed(0.25)),
        InvalidValueError,
        (DOCUMENT_2, "word id 1", "0.25", "integer counts", "CountVectorizer"),
    ),
    "fraction in pairs": (
        lambda: as_corpus([[(0, 1)], [], [(1, 1.5)]]),
        InvalidValueError,
        (DOCUMENT_2, "1.5", "CountVectorizer"),
    ),
    "negative": (
        lambda: as_corpus(sp.csc_array(changed(-1, dtype=int))),
        InvalidValueError,
        (DOCUMENT_2, "-1", ">= 0"),
    ),
    "negative in pairs": (lambda: as_corpus([[(0, -2)]]), InvalidValueError, ("document 0", "-2", ">= 0")),
    "NaN": (lambda: as_corpus(changed(np.nan)), InvalidValueError, (DOCUMENT_2, "nan", "not a count")),
    "infinite": (lambda: as_corpus(sp.coo_array(changed(np.inf))), InvalidValueError, (DOCUMENT_2, "inf")),
    "NaN in a dict": (
        lambda: as_corpus([{"sun": 1}, {"sun": np.nan}], WORDS),
        InvalidValueError,
        ("document 1", "nan"),
    ),
    "too large": (lambda: as_corpus(changed(2.0**31)), InvalidValueError, (DOCUMENT_2, "2,147,483,647")),
    "word id = V": (lambda: as_corpus(with_id(4)), InvalidValueError, ("row 2", "column index 4", "4 columns", "0..3")),
    "negative word id": (lambda: as_corpus(with_id(-1)), InvalidValueError, ("row 2", "column index -1")),
    "word id = V in pairs": (
        lambda: as_corpus([[], [(0, 1), (4, 1)]], WORDS),
        InvalidValueError,
        ("document 1", "word id 4", "0..3"),
    ),
    "negative word id in pairs": (
        lambda: as_corpus([[(-1, 1)]]),
        InvalidValueError,
        ("document 0", "word id -1", ">= 0"),
    ),
    "infinite word id": (lambda: as_corpus([[(np.inf, 1)]]), InvalidValueError, ("document 0", "word id")),
    "fractional word id": (lambda: as_corpus([[(0.5, 1)]]), InvalidValueError, ("word id 0.5", "integers")),
    "damaged columns": (
        lambda: as_corpus(damaged_columns()),
        InvalidValueError,
        ("not a valid sparse matrix", "row index 99"),
    ),
    "vocabulary too short": (
        lambda: as_corpus(COUNTS, WORDS[:3]),
        InvalidValueError,
        ("3 words", "4 columns", "documents × words"),
    ),
    "vocabulary too long for a source": (
        lambda: as_corpus(CorpusSource(sp.csr_array(COUNTS)), [*WORDS, "comet"]),
        InvalidValueError,
        ("5 words", "4 columns"),
    ),
    "word twice": (
        lambda: as_corpus(COUNTS, ["sun", "moon", "sun", "void"]),
        InvalidValueError,
        ("'sun' twice", "ids 0 and 2"),
    ),
    "word that is a number": (
        lambda: as_corpus(COUNTS, ["sun", 3, "star", "void"]),
        InvalidTypeError,
        ("entry 1", "3 (int)"),
    ),
    "ids with a gap": (
        lambda: as_corpus(PAIRS, {"sun": 0, "moon": 2}),
        InvalidValueError,
        ("0..1", "id 1 is missing", "compactify"),
    ),
    "id given twice": (lambda: as_corpus(PAIRS, {"sun": 0, "moon": 0}), InvalidValueError, ("each once",)),
    "dict of neither": (lambda: as_corpus(PAIRS, {"sun": "moon"}), InvalidTypeError, ("words to integers",)),
    "no words": (lambda: as_corpus(COUNTS, []), InvalidValueError, ("`vocabulary` is empty",)),
    "vocabulary of no kind": (lambda: as_corpus(COUNTS, 2.5), InvalidTypeError, ("`vocabulary`", "float")),
    "only empty documents": (
        lambda: as_corpus(np.zeros((3, 4), int)),
        InvalidValueError,
        ("the corpus is empty", "3 documents"),
    ),
    "only empty lists": (lambda: as_corpus([[], []]), InvalidValueError, ("the corpus is empty", "2 documents")),
    "no documents": (lambda: as_corpus([]), InvalidValueError, ("the corpus is empty", "0 documents")),
    "only unknown words": (
        lambda: as_corpus([["Sun"], ["Moon"]], WORDS),
        InvalidValueError,
        ("the corpus is empty", "2 of 2 tokens", "lower case"),
    ),
    "texts instead of lists": (
        lambda: as_corpus(["the sun", "the moon"]),
        InvalidTypeError,
        ("document 0", "one string", "split()"),
    ),
    "one text": (lambda: as_corpus("the sun and the moon"), InvalidValueError, ("does not exist", "split()")),
    "bare ids": (lambda: as_corpus([[0, 1, 1]]), InvalidTypeError, ("document 0", "pairs", "np.asarray(X)")),
    "documents that are numbers": (lambda: as_corpus([1, 2]), InvalidTypeError, ("document 0", "int")),
    "words and numbers": (lambda: as_corpus([["sun", 3]], WORDS), InvalidTypeError, ("document 0", "3 (int)")),
    "words but only their number": (
        lambda: as_corpus([["sun"]], 4),
        InvalidValueError,
        ("contains words", "only a number"),
    ),
    "learn from an iterator": (
        lambda: as_corpus(["sun"] for _ in itertools.count()),
        InvalidValueError,
        ("may be infinite", "`vocabulary`", "list(X)"),
    ),
    "a vector": (lambda: as_corpus(np.arange(5)), InvalidValueError, ("documents × words", "(5,)")),
    "complex": (lambda: as_corpus(COUNTS * 1j), InvalidTypeError, ("complex",)),
    "a number": (lambda: as_corpus(3), InvalidTypeError, ("`X` must be", "int")),
    "a stream": (lambda: as_corpus(DocumentStream(PAIRS, 4)), InvalidTypeError, ("batches",)),
    "stream without vocabulary": (
        lambda: DocumentStream(TOKENS, None),
        InvalidValueError,
        ("requires a `vocabulary`",),
    ),
    "stream of no kind": (lambda: DocumentStream(3, WORDS), InvalidTypeError, ("`documents`", "function")),
    "stream of a text": (lambda: DocumentStream("sun", WORDS), InvalidTypeError, ("`documents`", "'sun'")),
    "stream that runs dry": (
        lambda: DocumentStream(iter(TOKENS), WORDS).take(6),
        InvalidValueError,
        ("exhausted", "4 documents in total", "4 of the 6", "DocumentStream(lambda:"),
    ),
    "stream with nothing": (lambda: DocumentStream(iter([]), WORDS).take(1), InvalidValueError, ("no documents",)),
    "function that returns the same iterator": (
        lambda: DocumentStream(itertools.repeat(iter(TOKENS)).__next__, WORDS).take(6),
        InvalidValueError,
        ("pass 2", "no documents", "new iterator"),
    ),
    "function that returns a number": (
        lambda: DocumentStream(lambda: 3, WORDS).take(1),
        InvalidTypeError,
        ("must return", "3"),
    ),
    "length of an iterator": (
        lambda: DocumentStream(iter(TOKENS), WORDS).num_documents,
        InvalidValueError,
        ("does not tell", "num_documents=", "lambda"),
    ),
    "word id = V in a stream": (
        lambda: DocumentStream([[(0, 1)], [(4, 1)]], 4).take(2),
        InvalidValueError,
        ("document 1", "word id 4", "0..3"),
    ),
    "no batch": (lambda: DocumentStream(PAIRS, 4).take(0), InvalidValueError, ("at least 1",)),
}


@pytest.mark.parametrize("name", ROWS)
def test_message(name):
    attempt, error, phrases = ROWS[name]
    with pytest.raises(error) as caught:
        attempt()
    for phrase in phrases:
        assert phrase in str(caught.value), str(caught.value)


# ------------------------------------------------------------------------------------------------ streams


def dense_rows(rows):
    indptr, words, counts = rows
    return sp.csr_array((counts, words, indptr), shape=(len(indptr) - 1, 4)).toarray()


@pytest.mark.parametrize("documents", [PAIRS, TOKENS, FORMS["dicts of words"]], ids=["pairs", "tokens", "dicts"])
def test_stream_goes_round(documents):
    stream = DocumentStream(lambda: iter(documents), WORDS)
    batches = list(stream.batches(3, num_batches=4))
    np.testing.assert_array_equal(np.concatenate([dense_rows(batch) for batch in batches]), np.tile(COUNTS, (3, 1)))
    assert stream.num_seen == 12 and stream.num_empty == 3 and stream.num_documents == 4
    assert stream.num_passes == 3


def test_one_pass_ends_with_a_smaller_batch():
    stream = DocumentStream(iter(TOKENS), WORDS, num_documents=1_000)
    batches = list(stream.batches(3))
    assert [len(indptr) - 1 for indptr, _, _ in batches] == [3, 1]
    np.testing.assert_array_equal(np.concatenate([dense_rows(batch) for batch in batches]), COUNTS)
    assert stream.num_documents == 1_000
    with pytest.raises(InvalidValueError, match="exhausted: 4 documents in total, 0 of the 2"):
        stream.take(2)
    assert list(stream.batches(3)) == []


def test_counting_does_not_move_the_stream():
    stream = DocumentStream(lambda: iter(TOKENS), WORDS)
    first = stream.take(1)
    assert stream.num_documents == 4
    np.testing.assert_array_equal(dense_rows(first), COUNTS[:1])
    np.testing.assert_array_equal(dense_rows(stream.take(2)), COUNTS[1:3])


def test_stream_reads_no_further_than_asked():
    came = []

    def endless():
        for number in itertools.count():
            came.append(number)
            yield ["sun", "mars"]

    stream = DocumentStream(endless, WORDS, num_documents=10**9)
    stream.take(5)
    assert len(came) == 5 and stream.num_unknown == 5
