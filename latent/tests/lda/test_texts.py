"""Plain text as a corpus: lines, folders, which words are kept, and what is told apart from text."""

from __future__ import annotations

import gzip
import itertools

import numpy as np
import pytest
from scipy import io, sparse

from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco_latent.lda import LDA, Tokeniser
from scirocco_latent.lda.texts import open_corpus

pytestmark = pytest.mark.unit

ALL = {"tokeniser": Tokeniser(language="english", min_documents=1, max_share=1.0)}
TEXT = "Sun, sun & moon\n\nThe moon's 12 cows; cow_bell ÉTOILE\n"


def bags(corpus):
    """The documents as dicts."""
    indptr, words, counts = corpus.take_csr(np.arange(corpus.num_documents))
    names = [corpus.vocabulary[word] for word in words]
    pairs = list(zip(names, counts.tolist(), strict=True))
    return [dict(pairs[a:b]) for a, b in itertools.pairwise(indptr)]


def test_words():
    text = "The FFTs of it: don't 3-D x_y1 Straße été, of42and 2020"
    assert Tokeniser(language="english").words(text) == ["ffts", "straße", "été"]
    kept = Tokeniser(language=None, lower_case=False, numbers=True, min_length=4, stop_words=("été",)).words(text)
    assert kept == ["FFTs", "Straße", "of42and", "2020"]


@pytest.mark.parametrize("packed", [False, True])
def test_a_document_a_line(tmp_path, packed):
    """Row numbers are line numbers: an empty line is an empty document."""
    path = tmp_path / ("lines.txt.gz" if packed else "lines.log")
    path.write_bytes(gzip.compress(TEXT.encode()) if packed else TEXT.encode())
    opened = open_corpus(path, **ALL)
    assert opened.names is None
    assert bags(opened.corpus) == [{"sun": 2, "moon": 1}, {}, {"moon": 1, "cows": 1, "cow": 1, "bell": 1, "étoile": 1}]
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
    for share, words in ((0.75, ("bbb",)), (1.0, ("aaa", "bbb"))):
        tokeniser = Tokeniser(min_documents=2, max_share=share)
        assert open_corpus(path, tokeniser=tokeniser).corpus.vocabulary == words
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
        ("sun moon\n", {"tokeniser": Tokeniser(min_documents=5)}, "none of 2 words is in at least 5 and at most 50%"),
        ("sun moon\n", {"column": "text"}, "`column` is for tables"),
        ("sun moon\n", {"encoding": "klingon"}, "there is no encoding 'klingon'"),
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


# -- texts in memory and tables


SKY, FARM = "The sun and the moon are in the sky of New York", "A cow and the horse with sheep near a farm"
TEXTS = [SKY, FARM] * 15
MORE = [*TEXTS, *["Wheat, barley, oats and rye in the field"] * 15]
QUICK = {"num_epochs": 4, "progress": False}
EVERY = Tokeniser(max_share=1.0)


def table(kind, folder):
    """The texts as a table with the column `text`."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"number": range(30), "text": TEXTS})
    path = folder / f"table{kind}"
    if kind == "frame":
        return frame
    if kind == ".parquet":
        pytest.importorskip("pyarrow")
        frame.to_parquet(path)
    elif kind == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_csv(path, index=False, sep={".csv": ",", ".tsv": "\t", "s.csv": ";", ".csv.gz": ","}[kind])
    return path


@pytest.mark.parametrize("kind", ["frame", ".csv", "s.csv", ".csv.gz", ".tsv", ".jsonl", ".parquet"])
def test_tables(kind, tmp_path):
    X = table(kind, tmp_path)
    found = open_corpus(X, column="text", tokeniser=EVERY).corpus
    assert bags(found) == bags(open_corpus(TEXTS, tokeniser=EVERY).corpus) and found.num_documents == 30
    for column in (None, "body"):
        with pytest.raises((InvalidTypeError, InvalidValueError), match=r"column.*'text'"):
            open_corpus(X, column=column)


def test_the_longest_column_of_texts_is_proposed():
    frame = pytest.importorskip("pandas").DataFrame({"source": ["web"] * 30, "body": TEXTS, "author": ["A B"] * 30})
    with pytest.raises(InvalidTypeError, match=r"pass column='body', or another.*'source', 'body', 'author'"):
        open_corpus(frame)


def test_columns_and_missing_texts():
    pandas = pytest.importorskip("pandas")
    column = pandas.Series([*TEXTS, None, float("nan"), ""])
    corpus = open_corpus(column, tokeniser=EVERY).corpus
    assert corpus.num_documents == 33 and corpus.num_empty == 3
    assert corpus.notes[0] == "english stop words, words in at least 2 documents."
    assert bags(open_corpus(np.array(TEXTS), tokeniser=EVERY).corpus) == bags(corpus)[:30]
    with pytest.raises(InvalidTypeError, match=r"entry 1 .* is 3"):
        open_corpus(["sun moon", 3])
    with pytest.raises(InvalidValueError, match="a single word, such as 'sun'"):
        open_corpus(["sun", "moon"])


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (b'text\n"sun moon\n', {}, "broken quote"),
        (b"number,text\n1,sun, moon\n", {}, "line 2 of .* has 3 fields, the first line 2"),
        ("text\nsun\nÄrger\n".encode("cp1252"), {}, "line 3 has the byte 0xc4"),
        (b"text\n", {}, "has no rows"),
    ],
)
def test_broken_tables(tmp_path, data, options, message):
    (tmp_path / "table.csv").write_bytes(data)
    with pytest.raises(InvalidValueError, match=message):
        open_corpus(tmp_path / "table.csv", column="text", **options)


def test_encodings(tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(("text\n" + "Ärger und Öl\n" * 3).encode("utf-16"))
    assert open_corpus(path, column="text", encoding="utf-16").corpus.vocabulary == ("ärger",)
    path.write_bytes(b"\xef\xbb\xbftext\n" + "Ärger und Öl\n".encode() * 3)  # a mark of Windows
    assert open_corpus(path, column="text").corpus.vocabulary == ("ärger",)
    (tmp_path / "lines.jsonl").write_text('{"text": "a b"}\n{"text"\n')
    with pytest.raises(InvalidValueError, match=r"line 2 .* is not JSON"):
        open_corpus(tmp_path / "lines.jsonl", column="text")


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Die Sonne und der Mond sind am Himmel, aber nicht auf dem Hof", "german"),
        ("Le soleil et la lune sont dans le ciel avec une étoile pour nous", "french"),
        ("El sol y la luna están en el cielo con una estrella para todos los niños", "spanish"),
        (SKY, "english"),
        ("солнце луна звезда корова", None),
    ],
)
def test_the_language_of_the_stop_words(text, language):
    assert open_corpus([text] * 3).corpus.tokeniser.language == language


def test_phrases():
    """Pairs that belong together are one word; short words and stop words separate."""
    corpus = open_corpus(MORE, tokeniser=Tokeniser(max_share=1.0, ngrams=2)).corpus
    assert "new_york" in corpus.vocabulary and "york" not in corpus.vocabulary
    assert not any("sky" in word and "_" in word for word in corpus.vocabulary)


@pytest.mark.parametrize("text", ["我们今天去公园看太阳和月亮", "今日は公園で太陽と月を見ます", "วันนี้เราไปดูดวงอาทิตย์"])
def test_languages_without_spaces(text):
    with pytest.raises(InvalidValueError, match="without spaces between words"):
        open_corpus([text] * 5)
    assert open_corpus([text] * 5, tokeniser=list).corpus.num_tokens == 5 * len(text)


def test_bad_tokenisers():
    for wrong, phrase in (
        (lambda: Tokeniser(language="klingon"), "`language` must be one of"),
        (lambda: Tokeniser(max_share=1.5), "`max_share` must be above 0"),
        (lambda: Tokeniser(min_documents=0), "`min_documents` must be at least 1"),
        (lambda: Tokeniser(ngrams=4), "1, 2 or 3"),
        (lambda: open_corpus(TEXTS, tokeniser=3), "`tokeniser` must be"),
        (lambda: open_corpus(TEXTS, tokeniser=str.lower), "must return a list of words"),
    ):
        with pytest.raises((InvalidTypeError, InvalidValueError), match=phrase):
            wrong()


@pytest.mark.compile
def test_a_model_of_texts(tmp_path):
    """The words and the tokeniser are saved: texts can be transformed after `load`, and taken in."""
    pytest.importorskip("numba")
    model = LDA(2, beta=0.5, seed=1, tokeniser=Tokeniser(max_share=1.0, ngrams=2)).fit(MORE, **QUICK)
    model.save(tmp_path / "model")
    loaded = LDA.load(tmp_path / "model")
    new = ["The moon over New York", "sheep and cow", "nothing known here"]
    np.testing.assert_array_equal(loaded.transform(new), model.transform(new))
    assert loaded.tokeniser_ == model.tokeniser_ and "new_york" in loaded.vocabulary_
    np.testing.assert_allclose(loaded.transform(new)[2], 0.5)
    loaded.partial_fit(["the comet", "a comet", "the sky"])
    assert loaded.vocabulary_ == (*model.vocabulary_, "comet")
    own = LDA(2, beta=0.5, seed=1, tokeniser=str.split).fit(TEXTS, **QUICK)
    own.save(tmp_path / "own")
    loaded = LDA.load(tmp_path / "own")
    with pytest.raises(InvalidValueError, match="your own tokeniser `split`"):
        loaded.transform(new)
    loaded.tokeniser = str.split
    np.testing.assert_array_equal(loaded.transform(new), own.transform(new))


@pytest.mark.compile
def test_names_of_columns_are_words():
    """Counts by name: columns in another order are the same documents; unknown ones are left out."""
    pytest.importorskip("numba")
    pandas = pytest.importorskip("pandas")
    counts = pandas.DataFrame(np.random.default_rng(0).poisson(2.0, (40, 3)), columns=["sun", "moon", "cow"])
    model = LDA(2, seed=1).fit(counts, **QUICK)
    assert model.vocabulary_ == ("sun", "moon", "cow")
    other = counts[["cow", "sun", "moon"]].assign(horse=1)
    np.testing.assert_array_equal(model.transform(other), model.transform(counts))


def test_huge_counts_are_refused_at_once():
    with pytest.raises(InvalidValueError, match=r"document 1 .* has 50,000,001 tokens"):
        open_corpus(np.array([[1, 1], [50_000_000, 1]]))
