"""A fit whose chains disagree says so; one that is short, or whose chains agree or stand still, says nothing."""

import warnings

import numpy as np
import pytest

from scirocco.errors import SciroccoWarning
from scirocco.models.fits.mixing import warn_if_unmixed

pytestmark = pytest.mark.unit


def test_chains_that_disagree_are_named(seed):
    draws = np.random.default_rng(seed).normal(size=(2, 300, 3))
    apart = draws.copy()
    apart[0, :, 1] += 3.0
    with pytest.warns(SciroccoWarning, match=r"R-hat of `b` is 1\.\d\d.* Draw more\."):
        warn_if_unmixed({"a": draws, "b": apart}, "Model", "Draw more.")


def test_nothing_is_said_where_nothing_is_known_or_wrong(seed):
    draws = np.random.default_rng(seed).normal(size=(2, 301, 3))
    still = np.zeros((2, 301))
    still[1] = 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_unmixed({"a": draws, "still": still}, "Model", "")
        warn_if_unmixed({"short": draws[:, :18] + np.arange(2)[:, None, None]}, "Model", "")
        warn_if_unmixed({"few": draws[:, :40]}, "Model", "")
        warn_if_unmixed({"one chain": draws[:1]}, "Model", "")


def test_one_chain_that_still_moves_is_named(seed):
    draws = np.random.default_rng(seed).normal(size=(1, 40))
    with pytest.warns(SciroccoWarning, match="of this Model have not converged: R-hat of `a`"):
        warn_if_unmixed({"a": draws + np.linspace(0, 8, 40)}, "Model", "")
