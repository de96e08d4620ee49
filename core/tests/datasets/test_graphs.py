"""Networks: what is read, and what is refused."""

import numpy as np
import pytest

from scirocco import datasets
from scirocco.errors import InvalidValueError
from shared_data import data_folder

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("which", "nodes", "edges"), [("ca-GrQc", 5_242, 14_484), ("email-Eu-core", 1_005, 24_929)])
def test_networks_have_their_sizes(which, nodes, edges):
    found = datasets.graphs(data_folder("graphs"), which=which)
    assert (found.num_nodes, len(found.edges)) == (nodes, edges) and found.edges.max() < nodes
    assert np.all(found.edges[:, 0] != found.edges[:, 1]) and "cited" in found.source
    assert (found.labels is None) != found.directed


def test_another_name_is_refused():
    with pytest.raises(InvalidValueError, match="'ca-GrQc'"):
        datasets.graphs(which="karate")
