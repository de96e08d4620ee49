"""Pictures of networks: positions of nodes, and what is drawn of uncertain ones."""

import numpy as np
import pytest

from scirocco.drawing.networks import network, positions

pytestmark = pytest.mark.unit


def _cliques(size):
    """Two cliques, an edge between them, and a node without edges."""
    pairs = [(a, b) for a in range(size) for b in range(a)]
    pairs += [(a + size, b + size) for a, b in pairs] + [(0, size)]
    return 2 * size + 1, *np.array(pairs).T


@pytest.mark.parametrize("size", [2, 8, 60])
def test_linked_nodes_are_near_each_other(size):
    num, source, target = _cliques(size)
    place = positions(num, source, target)
    assert place.shape == (num, 2) and place.min() >= 0 and place.max() <= 1
    np.testing.assert_array_equal(place, positions(num, source, target))
    far = np.linalg.norm(place[:, None] - place[None], axis=2)
    inside = far[:size, :size].max(), far[size:-1, size:-1].max()
    assert max(inside) < far[1:size, size + 1 : -1].min() if size > 2 else far[2, 3] < far[1, 3]
    assert len(np.unique(place.round(3), axis=0)) == num, "no node lies on another"


@pytest.mark.parametrize("num", [1, 2])
def test_networks_of_one_or_two_nodes(num):
    ends = np.zeros(num - 1, int), np.ones(num - 1, int)
    assert np.isfinite(positions(num, *ends)).all()


def test_uncertain_nodes_are_slices_in_a_ring():
    num, source, target = _cliques(30)
    shares = np.eye(20)[np.arange(num) % 20]
    shares[5] = 0
    shares[5, [3, 4, 7]] = 0.5, 0.3, 0.2
    text = network(source, target, shares, [f"<{k}>" for k in range(num)], "net", ("block", "uncertain"))
    assert text.count('class="unsure"') == 2 and text.count("<title>") == num  # one is in the key
    assert "<title>&lt;5&gt;: block 3: 0.50, block 4: 0.30, block 7: 0.20</title>" in text
    assert text.count('<path d="M') - text.count('class="line') == 3, "slices"
    assert ">block 19</text>" in text, "colours repeat: groups are named"
