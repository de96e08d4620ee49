"""What both bridges return, and how they compare densities."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scirocco.model import Model
from scirocco.types import Data, Params

_TOLERANCE = 1e-3


class ConvertedModel(NamedTuple):
    """The first three arguments of `sc.sample`, in its order: `sc.sample(*converted)`."""

    model: Model
    data: Data
    params: Params
    """A starting point, by name of the variable, in the units of the model."""


def close(a: np.ndarray, b: np.ndarray, size: np.ndarray) -> bool:
    """Whether two log densities agree to single precision, relative to the terms they are sums of."""
    return bool(np.all((np.abs(a - b) <= _TOLERANCE * (1.0 + size)) | (a == b) | (np.isnan(a) & np.isnan(b))))
