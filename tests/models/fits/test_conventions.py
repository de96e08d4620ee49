"""Arguments of models that were renamed: the old names work, and say which the new ones are."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import ClassVar

import pytest

from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models import fits
from scirocco.models.fits.conventions import new_names

pytestmark = pytest.mark.unit


class Renamed(fits.Conventions):
    _renamed: ClassVar[Mapping[str, str]] = {"num_draws": "num_samples"}

    @fits.renamed_arguments(_renamed)
    def __init__(self, num_samples: int = 3, *, seed: int = 0):
        self.num_samples, self.seed = num_samples, seed


def test_new_names_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = Renamed(num_samples=5).set_params(num_samples=6)
        assert model.get_params() == {"num_samples": 6, "seed": 0}
        assert repr(model) == "Renamed(num_samples=6)"


def test_old_names_work_and_name_the_new_one():
    with pytest.warns(FutureWarning, match="`num_draws` is now `num_samples`") as caught:
        model = Renamed(num_draws=5)
    assert caught[0].filename == __file__
    assert model.get_params() == {"num_samples": 5, "seed": 0}
    with pytest.warns(FutureWarning, match="num_samples"):
        assert model.set_params(num_draws=7).num_samples == 7
    with pytest.warns(FutureWarning, match="num_samples"):
        assert model.num_draws == 7
    with pytest.warns(FutureWarning, match="num_samples"):
        model.num_draws = 8
    assert model.num_samples == 8


def test_one_name_alone():
    with pytest.raises(InvalidTypeError, match="pass only `num_samples`"):
        Renamed(num_draws=5, num_samples=6)
    with pytest.raises(InvalidValueError, match="no parameter `other`"):
        Renamed().set_params(other=1)
    with pytest.raises(TypeError, match="other"):
        Renamed(other=1)


def test_of_a_stored_fit_silently():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert new_names({"num_draws": 2}, Renamed._renamed, warn=False) == {"num_samples": 2}


def test_sklearn_clones_it():
    base = pytest.importorskip("sklearn.base")
    assert base.clone(Renamed(num_samples=9)).num_samples == 9
