"""Networks and tables as users have them: graph objects, names of several types, files without headers."""

import gzip

import numpy as np
import pytest

import scirocco as sc
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models.inputs.files import read_table
from scirocco_latent.graph.edges import read
from scirocco_latent.hmm.series import read as read_series

pytestmark = pytest.mark.unit


class Attributes:
    """Attributes of nodes or edges of an igraph graph."""

    def __init__(self, **known):
        self.known = known

    def attributes(self):
        return list(self.known)

    def __getitem__(self, name):
        return self.known[name]


class Igraph:
    """What is used of a graph of igraph."""

    def __init__(self, pairs, num, directed=False, names=None, weights=None):
        self.pairs, self.num, self.directed = pairs, num, directed
        self.vs = Attributes(**({} if names is None else {"name": names}))
        self.es = Attributes(**({} if weights is None else {"weight": weights}))

    def is_directed(self):
        return self.directed

    def get_edgelist(self):
        return self.pairs

    def vcount(self):
        return self.num


def edges_of(found):
    return list(zip(found.source.tolist(), found.target.tolist(), found.weight.tolist(), strict=True))


def test_graphs_of_igraph_keep_isolated_nodes_names_weights_and_direction():
    plain = read(Igraph([(0, 1), (2, 1)], 4))
    assert plain.num_nodes == 4 and plain.names is None and edges_of(plain) == [(0, 1, 1), (1, 2, 1)]
    found = read(Igraph([(1, 0), (0, 2)], 3, True, ["b", "a", "alone"], [2, 1]))
    assert found.names == ("b", "a", "alone") and found.directed and found.has_weights
    assert edges_of(found) == [(0, 2, 1), (1, 0, 2)]
    for bad, words in (
        (Igraph([(0, 1)], 2, names=["a", "a"]), "two nodes have the name 'a'"),
        (Igraph([(0, 1)], 2, weights=[-1]), "1 of 1 are negative"),
        (Igraph([], 3), "no edges \\(3 nodes\\)"),
    ):
        with pytest.raises(InvalidValueError, match=words):
            read(bad)


def test_a_number_and_the_same_number_as_a_text_are_two_nodes():
    found = read([("a", 1), (1, 2), (2, "a"), ("1", 2)])
    assert found.names == ("a", 1, 2, "1") and found.num_nodes == 4
    assert edges_of(found) == [(0, 1, 1), (0, 2, 1), (1, 2, 1), (2, 3, 1)]


@pytest.mark.parametrize("graph", [None, {0: [1, 2]}, {(0, 1)}])
def test_what_is_no_network_is_named(graph):
    with pytest.raises(InvalidTypeError, match=r"cannot be read from (None|a dict|a set|a list_iterator)"):
        read(graph)


@pytest.mark.parametrize(
    "graph, words",
    [
        (np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0]]), "can be edges or an adjacency matrix"),
        ([(0, 1, "often")], "got 'often'"),
        ([(0, 1, 2, 3)], "rows of lengths 4"),
    ],
)
def test_what_is_not_clear_is_refused(graph, words):
    with pytest.raises((InvalidValueError, InvalidTypeError), match=words):
        read(graph)


@pytest.mark.parametrize("name", ["edges.csv", "edges.txt", "edges.tsv", "edges.txt.gz"])
@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("names", [("0", "1", "2"), ("anna", "bert", "carl")])
def test_files_with_and_without_a_header(tmp_path, name, header, names):
    a, b, c = names
    text = "".join(f"{x},{y}\n" for x, y in ([("from", "to")] * header + [(a, b), (b, c), (a, c)]))
    text = text.replace(",", "\t" if ".tsv" in name else " " if ".txt" in name else ",")
    if ".txt" in name:
        text = f"# {text.count(chr(10))} lines\n{text}"
    (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    if header:
        found = read(tmp_path / name)
    else:
        with pytest.warns(sc.errors.SciroccoWarning, match="has no header"):
            found = read(tmp_path / name)
    assert edges_of(found) == [(0, 1, 1), (0, 2, 1), (1, 2, 1)]


def test_tables_and_series_in_files(tmp_path):
    place = tmp_path / "visits.csv"
    place.write_text("day,visits,user\nmonday,3,a\ntuesday,4,a\nmonday,1,b\n")
    assert list(read_table(place, ["visits", "user"]).columns) == ["visits", "user"]
    found = read_series(read_table(place, ["visits", "user"]), "user")
    assert found.values.tolist() == [3, 4, 1] and found.num_series == 2
    with pytest.raises(InvalidTypeError, match=r"column 'day' .* 'monday', not a number.*--columns visits"):
        read_series(place, "user")
    for path, columns, words in (
        (place, ["visit"], "no column `visit`. Did you mean `visits`. The columns are: day, visits, user"),
        (tmp_path, None, "is a folder"),
        (tmp_path / "none.csv", None, "there is no file"),
        (tmp_path / "a.xlsx", None, "files of this kind cannot be read as a table.*Supported are .*text .*csv"),
        (tmp_path / "empty.csv", None, "empty.csv is empty"),
        (tmp_path / "head.csv", None, "no rows below its header"),
    ):
        (tmp_path / "a.xlsx").touch()
        (tmp_path / "empty.csv").touch()
        (tmp_path / "head.csv").write_text("a,b\n")
        with pytest.raises(InvalidValueError, match=words):
            read_table(path, columns)
    dated = "user,date,visits\n" + "".join(f"{u},2021-03-0{d},{d}\n" for d in (1, 2, 3) for u in "ab")
    place.write_text(dated)
    with pytest.warns(sc.errors.SciroccoWarning, match="column 'date' has times, and is left out"):
        assert read_series(place, "user").values.tolist() == [1, 2, 3] * 2
    place.write_text(dated + "a,2021-03-02,1\n")
    with pytest.raises(InvalidValueError, match="'date' decreases in row 6"):
        read_series(place, "user")
    with pytest.raises(InvalidTypeError, match="got dates or times"):
        read_series(np.array(["2020-01-01"], "datetime64[D]"))


@pytest.mark.parametrize("kind", ["StochasticBlockModel", "MixedMembership"])
def test_presets(kind):
    model = getattr(sc.models, kind)
    for name, known in model.PRESETS.items():
        assert model.preset(name, 3, num_chains=1).get_params().items() >= (known | {"num_chains": 1}).items()
    with pytest.raises(InvalidValueError, match="`preset` must be one of"):
        model.preset("nobody1900")
