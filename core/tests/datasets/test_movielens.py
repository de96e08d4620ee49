"""The ratings of MovieLens 100k as its README counts them; skipped where the file is not at hand."""

import numpy as np
import pytest

from scirocco import errors
from scirocco.datasets.relations import MOVIELENS, movielens100k
from shared_data import data_folder

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def ratings():
    return movielens100k(data_folder("movielens100k"))


def test_sizes(ratings):
    assert len(ratings.users) == len(ratings.items) == len(ratings.ratings) == len(ratings.fold) == 100_000
    assert ratings.users.dtype == ratings.items.dtype == np.int32 and ratings.ratings.dtype == np.float32
    assert (ratings.users.min(), ratings.items.min()) == (0, 0)
    assert (ratings.num_users, ratings.num_items) == (943, 1_682)
    assert np.bincount(ratings.ratings.astype(int)).tolist() == [0, 6_110, 11_370, 27_145, 34_174, 21_201]
    assert np.bincount(ratings.fold).tolist() == [0, *[20_000] * 5]
    assert np.bincount(ratings.users).min() == 20, "every user rated twenty films or more"


def test_films(ratings):
    """The first line of u.data is user 196, item 242, 3 stars; item 1 is Toy Story."""
    assert (ratings.users[0], ratings.items[0], ratings.ratings[0]) == (195, 241, 3)
    assert ratings.titles[0] == "Toy Story (1995)" and len(ratings.titles) == 1_682
    assert ratings.genres.shape == (1_682, 19) and ratings.genres.dtype == bool
    assert {ratings.genre_names[k] for k in np.flatnonzero(ratings.genres[0])} == {"Animation", "Children's", "Comedy"}
    assert "may not be redistributed" in ratings.source


def test_no_file(tmp_path):
    with pytest.raises(errors.InvalidValueError, match="the data set `movielens100k` was not found"):
        movielens100k(tmp_path)
    assert "may not be redistributed" in MOVIELENS.licence
