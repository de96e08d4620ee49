"""What both bridges return, latent variables for rows or groups, and how densities are compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco.errors import InvalidValueError
from scirocco.model import Model
from scirocco.model.groups import MOST_LOCAL
from scirocco.transforms import Transform
from scirocco.types import Array, Data, Params

_TOLERANCE = 1e-3  # of two densities: single precision loses about three digits of large sums


class ConvertedModel(NamedTuple):
    """The first three arguments of `sc.sample`, in its order: `sc.sample(*converted)`."""

    model: Model
    data: Data
    params: Params
    """A starting point, by name of the variable, in the units of the model."""


class LocalVariable(NamedTuple):
    """A latent variable with a value for every row, or for every group of rows."""

    start: Array
    """The value of one of them, in the model's own units."""
    transform: Transform | None
    axis: int
    """The axis of the rows or groups in the variable's value."""

    def spread(self, count: int, spread: float, rng: np.random.Generator) -> Array:
        """So many values around the start, (count, ...)."""
        start = self.start if self.transform is None else self.transform.inverse(self.start)
        places = start + (spread * rng.standard_normal((count, *start.shape))).astype(start.dtype)
        return places if self.transform is None else jax.vmap(self.transform.forward)(places)


def placed(local: Params, found: Mapping[str, LocalVariable]) -> Params:
    """Values with leaves (row, ...), with the rows along the axis that the model has them on."""
    return {name: jnp.moveaxis(value, 0, found[name].axis) for name, value in local.items()}


def check_size(found: Mapping[str, LocalVariable], unit: str) -> None:
    """Raise an error if there are too many numbers for each `unit` to integrate over."""
    sizes = {
        name: int(np.size(each.start if each.transform is None else each.transform.inverse(each.start)))
        for name, each in found.items()
    }
    if sum(sizes.values()) > MOST_LOCAL:
        raise InvalidValueError(
            f"the latent variables of each {unit} ({', '.join(f'`{name}`' for name in sizes)}) have "
            f"{sum(sizes.values())} numbers. They are integrated out, which is possible for up to {MOST_LOCAL}: make "
            f"some of them the same for all {unit}s, or sum them out of the likelihood."
        )


def close(a: np.ndarray, b: np.ndarray, size: np.ndarray) -> bool:
    """Whether two log densities agree to single precision, relative to the terms they are sums of."""
    return bool(np.all((np.abs(a - b) <= _TOLERANCE * (1.0 + size)) | (a == b) | (np.isnan(a) & np.isnan(b))))


def said(error: Exception) -> str:
    """The class of an error, and the first line of what it said."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
