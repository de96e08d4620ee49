"""Every data set as its files say it is; skipped where the files are not at hand."""

import numpy as np
import pytest

from scirocco import datasets
from shared_data import data_folder

pytestmark = pytest.mark.unit

FACTS = [
    # name, options, documents, words, tokens, first words
    ("wikipedia", {}, 90_218, 7_702, 17_811_597, ("writings", "yellow")),
    ("wikipedia", {"min_tokens": 0}, 142_885, 7_702, 19_528_644, ("writings", "yellow")),
    ("acl_abstracts", {}, 58_656, 7_702, 3_097_377, ("writings", "yellow")),
    ("newsgroups20", {}, 18_805, 20_000, 2_168_084, None),
    ("newsgroups20", {"vocabulary": "dictnostops", "min_tokens": 0}, 18_846, 7_702, None, ("writings",)),
    ("ap", {}, 2_246, 10_473, 435_838, ("i", "new", "percent")),
    ("kos", {}, 3_430, 6_906, 467_714, ()),
]


@pytest.mark.parametrize(("name", "options", "documents", "words", "tokens", "first"), FACTS)
def test_sizes(name, options, documents, words, tokens, first):
    data = getattr(datasets, name)(data_folder(name), **options)
    assert data.matrix.shape == (documents, words) and data.matrix.dtype == np.int32
    assert data.matrix.has_sorted_indices and data.matrix.data.min() > 0
    if tokens is not None:
        assert data.matrix.sum() == tokens
    if name == "kos":
        assert data.vocabulary is None
    else:
        assert len(data.vocabulary) == words == len(set(data.vocabulary))
        assert data.vocabulary[: len(first or ())] == (first or ())
    assert all(len(array) == documents for array in data.extras.values())
    assert data.source.startswith(f"{name}: ") and "Licence" in data.source


def test_groups():
    data = datasets.newsgroups20(data_folder("newsgroups20"), vocabulary="dictnostops", min_tokens=0)
    assert data.extras["test"].sum() == 7_532 and set(data.extras["label"]) == set(range(20))


def test_short_rows_take_their_extras_with_them():
    folder = data_folder("wikipedia")
    every, long = datasets.wikipedia(folder, 0), datasets.wikipedia(folder, 500)
    place = np.searchsorted(every.extras["page_id"], long.extras["page_id"][7])
    assert (every.matrix[place] != long.matrix[7]).nnz == 0
