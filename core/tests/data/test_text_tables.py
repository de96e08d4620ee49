"""Tables in text files: what is read is what was written, and whatever is not clear is named by its line."""

import gzip

import numpy as np
import pytest

import scirocco as sc
from scirocco.cli import app  # noqa: F401  -- the commands import it, and it imports them
from scirocco.data.formats.conversion import open_table, read_columns
from scirocco.data.sizes import READING
from scirocco.errors import InvalidValueError, SciroccoWarning
from scirocco.models.inputs.files import read_table
from scirocco_latent.commands.cluster import Wanted
from scirocco_latent.commands.cluster import read as read_rows
from scirocco_latent.graph.edges import pair_numbers
from scirocco_latent.graph.edges import read as read_network
from scirocco_latent.hmm.series import read as read_series
from scirocco_latent.lda.texts import as_texts

pytestmark = pytest.mark.unit


@pytest.fixture
def written(tmp_path):
    """Write a file and return its path."""

    def write(content, name="table.csv", encoding="utf-8"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
        return path

    return write


def every_reader(path):
    """All that read tables: of models, of commands, of topics, of data folders."""
    yield lambda: read_table(path)
    yield lambda: read_network(path)
    yield lambda: read_series(path)
    yield lambda: sc.data.convert(path, path.with_name("made"), overwrite=True)
    yield lambda: read_rows(Wanted(path, None, None, "auto"))
    yield lambda: list(as_texts(path, "a").read())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a,b\n1,2,3\n4,5,6\n", "line 2 of .* has 3 fields, the first line 2"),
        ("a,b\n1,2\n4,5\n6\n", "line 4 of .* has 1 fields, the first line 2"),
        ("a,b\n1,2,\n4,5,\n", "line 2 of .* has 3 fields"),
        ('a,b\n"x\ny",1\n2,3\n4\n', "line 5 of .* has 1 fields"),
        ("a,b\n1,2\n\n\n2,3\n", "line 3 of .* is blank, and others follow"),
        ("a,b\n1,2\n\n2,3,4\n", "line 3 of .* is blank"),
        ("\na,b\n1,2\n", "line 1 of .* is blank"),
        ('a,b\n1,2\n"x,y\n3,4\n', "begins in line 3 .*double quotes"),
        ("a,b\n1\x00,2\n2,3\n", "line 2 of .* has a null character"),
        ("a,b\né,ü\n".encode("latin1"), "line 2 has the byte 0xe9"),
        ("", "is empty"),
    ],
)
def test_a_line_that_is_not_clear_is_named_by_every_reader(written, content, words):
    path = written(content)
    for number, reader in enumerate(every_reader(path)):
        if number == 5 and content in ("", "\na,b\n1,2\n"):
            continue  # a table of texts without a line of names
        with pytest.raises(InvalidValueError, match=words):
            reader()


def test_a_line_that_never_ends_is_not_read_to_its_end(written, changed):
    changed(READING, line_characters=1000)
    path = written("a,b\n1," + "x" * 5000 + "\n")
    for reader in every_reader(path):
        with pytest.raises(InvalidValueError, match=r"line 2 of .* has more than 1,000 characters"):
            reader()
    with pytest.raises(InvalidValueError, match="broken quote in the record that begins in line 2"):
        read_table(written('a,b\n1,"' + "x\n" * 5000))


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "T.CSV"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings_by_their_mark(written, name, encoding):
    content = "größe,b\n1,ü\n2,ß\n".encode(encoding)
    table = read_table(written(gzip.compress(content) if name.endswith("gz") else content, name))
    assert list(table) == ["größe", "b"]
    assert table["größe"].tolist() == [1, 2] and table["b"].tolist() == ["ü", "ß"]


# -- the first line ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "names", "said"),
    [
        ("t,x\n1,2\n3,4\n", ["t", "x"], None),
        ("name,x\nanna,2\nbert,4\n", ["name", "x"], None),
        ("day,on\n2020-01-01,a\n2020-01-02,b\n", ["day", "on"], None),
        ("1.5\n2.5\n", None, "read as data"),
        ("2020,2021\n1.5,2\n", None, "read as data"),
        ("NA,2\n1.5,2\n", None, "read as data"),
        ("sun\nrain\nsun\n", None, "read as data"),
        ("anna,bert\nbert,carl\n", None, "read as data"),
        ("anna,1\nanna,2\nbert,1\n", None, "read as data"),
        ("anna,anna\nbert,carl\n", None, "read as data"),
        ("2020-01-01,a\n2020-01-02,b\n", None, "read as data"),
        ("0,1,2\n3,4,5\n", None, "read as data"),
        ("anna,bert\ncarl,dora\n", ["anna", "bert"], "taken as the names"),
        ("from,to\ncarl,dora\n", ["from", "to"], "taken as the names"),
        ("0,1,2\n3.5,4,5\n", ["0", "1", "2"], "taken as the names"),
        ("0,1,2,3\n3,4,5,6\n", ["0", "1", "2", "3"], "taken as the names"),
    ],
)
def test_one_rule_says_whether_the_first_line_has_names(written, recwarn, content, names, said):
    path = written(content)
    table, lines = read_table(path), content.count("\n")
    assert list(table) == (names or [f"x{k}" for k in range(table.shape[1])])
    assert len(table) == lines - (names is not None)
    messages = [str(one.message) for one in recwarn]
    assert len(messages) == (said is not None) and all(said in message for message in messages)
    if names is not None and said is not None:  # columns that are asked for by name leave no doubt
        recwarn.clear()
        assert len(read_table(path, names[::-1])) == lines - 1 and not recwarn.list


# -- one type for each column ------------------------------------------------------------------------------------------

LAST = {
    "whole": ("1", [1, 2, 3, 4, 5, 6, 7, 8, 9, 1], np.int64),
    "decimal": ("1.5", [1, 2, 3, 4, 5, 6, 7, 8, 9, 1.5], np.float64),
    "gap": ("NA", [1, 2, 3, 4, 5, 6, 7, 8, 9, np.nan], np.float64),
    "text": ("x", ["1", "2", "3", "4", "5", "6", "7", "8", "9", "x"], object),
    "leading zero": ("07", ["1", "2", "3", "4", "5", "6", "7", "8", "9", "07"], object),
    "underscore": ("1_0", ["1", "2", "3", "4", "5", "6", "7", "8", "9", "1_0"], object),
    "63 bits": (str(2**63 - 1), [1, 2, 3, 4, 5, 6, 7, 8, 9, 2**63 - 1], np.int64),
    "64 bits": (str(2**63 + 1), [1, 2, 3, 4, 5, 6, 7, 8, 9, 2**63 + 1], np.uint64),
    "65 bits": (str(2**64), [1, 2, 3, 4, 5, 6, 7, 8, 9, 2**64], object),
    "negative": ("-5", [1, 2, 3, 4, 5, 6, 7, 8, 9, -5], np.int64),
}


@pytest.mark.parametrize("case", LAST)
@pytest.mark.parametrize("size", [1, 4, 1000])
def test_the_last_row_decides_about_the_type_of_all(written, changed, case, size):
    changed(READING, text_values=size)
    last, wanted, dtype = LAST[case]
    path = written("id\n" + "".join(f"{k}\n" for k in range(1, 10)) + last + "\n")
    column = read_columns(open_table(path), ["id"])["id"]
    assert column.dtype == dtype
    np.testing.assert_array_equal(column, np.array(wanted, dtype))


def test_whole_numbers_with_a_gap_stay_exact(written):
    large = 2**60 + 1
    found = read_columns(open_table(written(f"a,b\n{large},1\n,2\n")), ["a"])["a"]
    assert found.tolist() == [large, None]


def test_flags_and_mixtures_of_them(written):
    found = read_table(written("a,b,c\nTrue,true,1\nFalse,,True\n"))
    assert found["a"].dtype == bool and found["a"].tolist() == [True, False]
    assert found["b"].tolist() == [True, None] and found["c"].tolist() == ["1", "True"]


def test_words_for_missing_values_are_texts_among_texts(written):
    with pytest.warns(SciroccoWarning, match="column `a` of table.csv has texts: NA in it is one"):
        found = read_table(written("a,b\nNA,NA\nDE,1\n,2\n"))
    assert found["a"].tolist()[:2] == ["NA", "DE"] and found["a"].isna().tolist() == [False, False, True]
    np.testing.assert_array_equal(found["b"], [np.nan, 1, 2])


# -- networks: ids are what was written --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("a,b\n1,2\n2,3\n3,1\n1,x\n", {"1", "2", "3", "x"}),
        ("a,b\n007,1\n7,2\n07,3\n", {"007", "07", "7", "1", "2", "3"}),
        (f"a,b\n{2**63 + 5},{2**63 + 6}\n{2**63 + 6},4\n", {2**63 + 5, 2**63 + 6, 4}),
        (f"a,b\n{2**64 + 5},{2**64 + 6}\n", {2**64 + 5, 2**64 + 6}),
        ("a,b\n1.5.2,2\n2,1.5.2\n", {"1.5.2", "2"}),
    ],
)
def test_ids_of_a_file(written, content, names):
    found = read_network(written(content), directed=True)
    assert set(found.names) == names


def test_ids_of_many_rows_have_the_type_of_all(written):
    rows = "".join(f"{i % 50},{(i * 7 + 1) % 50}\n" for i in range(200_000))
    found = read_network(written(f"a,b\n{rows}x,1\ny,2\n"), directed=True)
    assert found.num_nodes == 52 and set(found.names) == {*map(str, range(50)), "x", "y"}


@pytest.mark.parametrize("large", [2**63 + 5, 2**64 - 1])
def test_ids_of_arrays_of_64_bits(large):
    found = read_network(np.array([[large, 1], [large - 1, 2]], np.uint64))
    assert set(found.names) == {large, large - 1, 1, 2}


def test_ids_that_double_precision_has_merged_are_refused():
    with pytest.raises(InvalidValueError, match="does not hold all whole numbers of this size"):
        read_network(np.array([[2**53 + 1, 2], [2**53, 4]], np.float64))


def test_ids_of_frames_and_of_pairs_are_those_of_the_network():
    pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    columns = {"a": [1, 2, 3], "b": ["2", "3", "1"]}
    for frame in (pandas.DataFrame(columns), arrow.table(columns)):
        network = read_network(frame)
        assert network.num_nodes == 3 and set(network.names) == {"1", "2", "3"}
        numbers = pair_numbers(np.array([[1, 2]]), network.names, 3)
        assert [network.names[number] for number in numbers[0]] == ["1", "2"]
    numbered = read_network(np.array([[5, 7], [7, 9]]))
    np.testing.assert_array_equal(pair_numbers([("5", "9")], numbered.names, 3), [[0, 2]])
    exact = arrow.table({"a": [2**60 + 1, 2**60 + 2], "b": np.array([2**63 + 1, 1], np.uint64)})
    assert set(read_network(exact).names) == {2**60 + 1, 2**60 + 2, 2**63 + 1, 1}


def test_a_label_file_and_an_edge_list_keep_their_first_row(written):
    with pytest.warns(SciroccoWarning, match=r"its first line \(sun\) is read as data"):
        assert read_series(written("sun\nrain\nsun\nsun\n", "labels.csv")).values.tolist()[0] == "sun"
    with pytest.warns(SciroccoWarning, match=r"its first line \(anna, bert\) is read as data"):
        assert read_network(written("anna,bert\nbert,carl\n", "edges.csv")).num_nodes == 3


# -- one reader for all ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz", "T.TSV", "t.parquet", "T.PARQUET", "t.feather"])
def test_models_and_commands_read_the_same_files(tmp_path, name):
    pandas = pytest.importorskip("pandas")
    rows = {"a": [1.5, 2.5, 3.5], "b": [2**53 + 1, 2, 3], "text": ["some words", "more of them", "007 men"]}
    table, path = pandas.DataFrame(rows), tmp_path / name
    if name.lower().endswith("parquet"):
        table.to_parquet(path)
    elif name.endswith("feather"):
        table.to_feather(path)
    else:
        table.to_csv(path, index=False, sep="\t" if "tsv" in name.lower() else ",")
    pandas.testing.assert_frame_equal(read_table(path).astype({"text": object}), table.astype({"text": object}))
    assert list(read_table(path, ["b", "t*"]).columns) == ["b", "text"]
    found = read_rows(Wanted(path, "a,b", None, "auto"))
    assert found.base == "gaussian" and found.X["b"].tolist() == rows["b"]
    assert list(as_texts(path, "text").read()) == rows["text"]
    with pytest.raises(InvalidValueError, match=r"has no column .tex"):
        as_texts(path, "tex")


@pytest.mark.parametrize("kind", ["npy", "npz", "folder", "columns"])
def test_matrices_are_tables(tmp_path, kind):
    rows, path = np.arange(12.0).reshape(4, 3), tmp_path / f"rows.{kind}"
    if kind == "npy":
        np.save(path, rows)
    elif kind == "npz":
        np.savez(path, x=rows, y=rows[:, 0])
    elif kind == "folder":
        sc.data.write(path, {"x": rows, "y": rows[:, 0]}, shuffle=False)
    else:
        (tmp_path / "rows.csv").write_text("a,b,c\n" + "".join(f"{x},{y},{z}\n" for x, y, z in rows.tolist()))
        sc.data.convert(tmp_path / "rows.csv", path, columns={"x": ["a", "b", "c"]}, shuffle=False)
    names = {"npy": ["x0", "x1", "x2"], "columns": ["a", "b", "c"]}.get(kind, ["x[0]", "x[1]", "x[2]", "y"])
    table = read_rows(Wanted(path, None, None, "auto")).X
    assert list(table.columns) == names
    np.testing.assert_array_equal(table.iloc[:, :3], rows)
    if kind in ("folder", "columns"):
        with pytest.raises(InvalidValueError, match="is a folder, not a file"):
            read_series(path)  # its rows may be in another order
