"""Tables of any content in every format: what is read is what was written."""

import gzip
import importlib.util
import io

import numpy as np
import pytest

import scirocco as sc
from fuzzing import examples, given, refused_or_done, st
from scirocco.data.formats.conversion import open_table, read_columns
from scirocco.data.formats.text_table import GAPS
from scirocco.data.sizes import READING
from scirocco.data.values import missing
from scirocco.models.inputs.formulas import as_frame

pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
from pyarrow import feather, ipc, parquet  # noqa: E402

pytestmark = pytest.mark.unit

WORDS = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=6),
    st.sampled_from(["NA", "nan", "007", "1_0", "1,5", 'a"b', "10:30", "true", "x\ny", "#", "é", "1e5", " x", "²"]),
)
COLUMNS = {
    "small": st.integers(-(2**31), 2**31),
    "64 bits": st.integers(-(2**63), 2**63 - 1),
    "unsigned": st.integers(0, 2**64 - 1),
    "huge": st.integers(-(2**80), 2**80),
    "decimal": st.floats(allow_nan=False),
    "flag": st.booleans(),
    "text": WORDS,
    "digits": st.text("0017", min_size=1, max_size=3),
    "numerals": st.text("01_+-.e", min_size=1, max_size=4),
}

LIBRARIES = ["pandas", "arrow", "dict", *(["polars"] if importlib.util.find_spec("polars") else [])]


def columns(data, kinds):
    """A table with a few columns: the name, the kind and the values of each; some values are missing."""
    length = data.draw(st.integers(1, 12), label="rows")
    made = {}
    for number in range(data.draw(st.integers(1, 4), label="columns")):
        kind = data.draw(st.sampled_from(kinds), label="kind")
        values = data.draw(st.lists(COLUMNS[kind], min_size=length, max_size=length), label=kind)
        gap = data.draw(st.sampled_from([None, 0, length - 1]), label="gap") if kind != "flag" else None
        if gap is not None and length > 1:
            values[gap] = None
        made[f"name {number}"] = (kind, values)
    return made


def same(found, values, kind):
    """Whether a column is what was written; numbers by value and exactly, gaps as gaps."""
    assert len(found) == len(values)
    for one, other in zip(found.tolist(), values, strict=True):
        if other is None:
            assert missing(one)
        elif kind == "decimal":
            assert float(one) == other
        else:
            assert one == other and (isinstance(one, str) == isinstance(other, str))


def written_as_text(value):
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)


@examples(150)
@given(st.data())
def test_text_files(tmp_path_factory, data):
    made = columns(data, list(COLUMNS))
    made["marker"] = ("text", ["a text"] * len(next(iter(made.values()))[1]))
    ending = data.draw(st.sampled_from([".csv", ".csv.gz", ".tsv"]), label="ending")
    encoding = data.draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]), label="encoding")
    file = io.StringIO(newline="")
    frame = {name: [written_as_text(value) for value in values] for name, (_, values) in made.items()}
    end = data.draw(st.sampled_from(["\n", "\r\n"]), label="end")
    separator = "\t" if ending == ".tsv" else ","
    pandas.DataFrame(frame, dtype=object).to_csv(file, index=False, sep=separator, lineterminator=end)
    content = file.getvalue().encode(encoding)
    path = tmp_path_factory.getbasetemp() / f"table{ending}"
    path.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
    with READING.changed(text_values=data.draw(st.sampled_from([1, 7, 1 << 18]), label="block")):
        found = read_columns(open_table(path, list(made)), list(made))
    for name, (kind, values) in made.items():
        column = found[name]
        if kind in ("text", "digits", "numerals"):
            texts = [None if value is None else value.strip() or None for value in values]
            if column.dtype == object and not all(type(one) in (int, bool, type(None)) for one in column.tolist()):
                same(column, texts, "text")
                continue
            # all of them could be read as numbers or flags: each must be the same when it is written again
            for one, other in zip(column.tolist(), texts, strict=True):
                if one is None or one != one:
                    assert other is None or other in GAPS
                elif type(one) in (int, bool):
                    assert str(one) == other or str(one).lower() == other.lower()
                else:
                    assert float(other) == one and not (len(other) > 1 and other.isdigit() and other[0] == "0")
            continue
        same(column, values, kind)


@examples(60)
@given(st.data())
def test_binary_files(tmp_path_factory, data):
    made = columns(data, [kind for kind in COLUMNS if kind not in ("huge", "digits", "numerals")])
    types = {"small": arrow.int64(), "64 bits": arrow.int64(), "unsigned": arrow.uint64()}
    types |= {"decimal": arrow.float64(), "flag": arrow.bool_(), "text": arrow.string()}
    table = arrow.table({name: arrow.array(values, types[kind]) for name, (kind, values) in made.items()})
    ending = data.draw(st.sampled_from([".parquet", ".feather", ".arrow"]), label="ending")
    path = tmp_path_factory.getbasetemp() / f"table{ending}"
    if ending == ".parquet":
        parquet.write_table(table, path, row_group_size=5)
    elif ending == ".feather":
        feather.write_feather(table, path, chunksize=5)
    else:
        with ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=5)
    found = read_columns(open_table(path), list(made))
    for name, (kind, values) in made.items():
        same(found[name], values, kind)


@examples(60)
@given(st.data())
def test_frames(data):
    """Models with a formula take frames of every library: whole numbers and texts are those of the frame."""
    kinds = ["small", "64 bits", "unsigned", "decimal", "flag", "text", "digits"]
    made = columns(data, kinds)
    library = data.draw(st.sampled_from(LIBRARIES), label="library")
    if library == "polars":
        import polars

        types = {"small": polars.Int64, "64 bits": polars.Int64, "unsigned": polars.UInt64}
        types |= {"decimal": polars.Float64, "flag": polars.Boolean}
        frame = polars.DataFrame({n: polars.Series(v, dtype=types.get(k, polars.String)) for n, (k, v) in made.items()})
    elif library == "arrow":
        types = {"small": arrow.int64(), "64 bits": arrow.int64(), "unsigned": arrow.uint64()}
        types |= {"decimal": arrow.float64(), "flag": arrow.bool_()}
        frame = arrow.table({n: arrow.array(v, types.get(k, arrow.string())) for n, (k, v) in made.items()})
    else:
        types = {"small": "Int64", "64 bits": "Int64", "unsigned": "UInt64", "decimal": "float64", "flag": bool}
        frame = {n: pandas.Series(v, dtype=types.get(k, object)) for n, (k, v) in made.items()}
        frame = frame if library == "dict" else pandas.DataFrame(frame)
    found = as_frame(frame, list(made), "the test")
    for name, (kind, values) in made.items():
        gap = None in values and kind == "small"  # whole numbers with a gap are decimal if that loses nothing
        same(found[name], values, "decimal" if gap else kind)


@examples(60)
@given(st.data())
def test_arrays(tmp_path_factory, data):
    """NumPy's formats, Zarr and data folders hold each number exactly; a matrix is its columns."""
    length = data.draw(st.integers(1, 12), label="rows")
    made = {}
    for number in range(data.draw(st.integers(1, 3), label="arrays")):
        kind = data.draw(st.sampled_from(["i1", "u1", "i4", "i8", "f4", "f8", "?"]), label="kind")
        width = data.draw(st.sampled_from([(), (1,), (3,)]), label="width")
        if kind == "?":
            values = st.booleans()
        elif kind[0] == "f":
            values = st.floats(width=8 * int(kind[1]), allow_nan=False, allow_infinity=False)
        else:
            bounds = np.iinfo(kind)
            values = st.integers(int(bounds.min), int(bounds.max))
        size = length * int(np.prod(width))
        drawn = data.draw(st.lists(values, min_size=size, max_size=size), label=kind)
        made[f"a{number}"] = np.array(drawn, kind).reshape(length, *width)
    path = tmp_path_factory.mktemp("arrays")
    ending = data.draw(st.sampled_from(["npz", "npy", "zarr", "folder"]), label="ending")
    if ending == "npy":
        made = {"data": made["a0"]}
        np.save(path / "t.npy", made["data"])
    elif ending == "npz":
        np.savez(path / "t.npz", **made)
    elif ending == "zarr":
        group = pytest.importorskip("zarr").open_group(str(path / "t.zarr"), mode="w")
        for name, array in made.items():
            group.create_array(name, data=array)
    else:
        sc.data.write(path / "t.folder", made, shuffle=False, dtype="float64")
    table = open_table(path / f"t.{ending}")
    found = read_columns(table, table.names)
    assert list(found) == list(made)
    for name, array in made.items():
        np.testing.assert_array_equal(found[name], array)


@examples(100)
@given(
    st.binary(max_size=60), st.sampled_from([".csv", ".csv.gz", ".tsv", ".txt", ".parquet", ".feather", ".npy", ".npz"])
)
def test_files_of_any_bytes(tmp_path_factory, content, ending):
    path = tmp_path_factory.getbasetemp() / f"odd{ending}"
    path.write_bytes(content)
    with refused_or_done():
        table = open_table(path)
        read_columns(table, table.names)


@examples(60)
@given(st.text(st.sampled_from('a1,.;\n\r\t "#\0é-'), max_size=40), st.sampled_from([".csv", ".tsv", ".txt"]))
def test_lines_of_any_form(tmp_path_factory, content, ending):
    """What is read has as many values in each row as the first line; nothing is added and nothing is lost."""
    path = tmp_path_factory.getbasetemp() / f"lines{ending}"
    path.write_bytes(content.encode())
    with refused_or_done():
        table = open_table(path)
        found = read_columns(table, list(dict.fromkeys(table.names)))
        assert len({len(column) for column in found.values()}) == 1
