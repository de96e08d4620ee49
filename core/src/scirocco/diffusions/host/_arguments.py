"""The arguments of the kernels: checked operands, one number or one flat array each, and two words of seed."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from scirocco.errors import InvalidTypeError, InvalidValueError

Array = np.ndarray[Any, np.dtype[Any]]
Words = tuple[np.uint64, np.uint64]
Seed: TypeAlias = int | tuple[int, int]
"""A non-negative int below 2¹²⁸, or a pair of ints below 2⁶⁴."""

_WORD = 1 << 64  # one more than the largest word


class Operand(NamedTuple):
    """An argument after broadcasting: `array` is flat and holds it if `varies`, else it is `value` everywhere."""

    array: Array
    varies: bool
    value: float


def seed_words(seed: Seed, purpose: int) -> Words:
    """Two words from a non-negative int below 2¹²⁸ or a pair of ints below 2⁶⁴; different for each purpose."""
    parts: list[Any] = [seed]
    if isinstance(seed, (tuple, list, np.ndarray)) and len(seed) == 2:
        parts = [*seed]
    pair = len(parts) == 2
    for part in parts:
        if isinstance(part, (bool, np.bool_)) or not isinstance(part, (int, np.integer)):
            raise InvalidTypeError(f"`seed` must be a non-negative int or a pair of them, got {seed!r}.")
        if part < 0 or part >= (_WORD if pair else _WORD**2):
            limit = "each word of `seed` must be in [0, 2**64)" if pair else "`seed` must be in [0, 2**128)"
            raise InvalidValueError(f"{limit}, got {seed!r}. Take it modulo the limit.")
    low, high = (int(parts[0]), int(parts[1])) if pair else reversed(divmod(int(parts[0]), _WORD))
    return np.uint64(low), np.uint64((high + purpose * 0x9E3779B97F4A7C15) % _WORD)


def as_real(value: ArrayLike, name: str) -> Array:
    """`value` as a float32 or float64 array; whole numbers become float64."""
    array = np.asarray(value)
    if array.dtype.kind in "iu":
        array = array.astype(np.float64)
    if array.dtype not in (np.float32, np.float64):
        raise InvalidTypeError(
            f"`{name}` must contain real numbers of type float32 or float64, got {array.dtype}. "
            f"Convert it: np.asarray({name}, np.float64)."
        )
    return array


def check_sign(array: Array, name: str, *, sign: str) -> None:
    """Check that all entries are finite and `sign` ("> 0", ">= 0" or "" for any); name the first that is not."""
    if array.size == 0:
        return
    low, high = array.min(), array.max()  # both are NaN if any entry is: two fast passes instead of five
    lowest_ok = low > 0 if sign == "> 0" else low >= 0 if sign == ">= 0" else low > -np.inf
    if lowest_ok and high < np.inf:
        return
    good = np.isfinite(array)
    if sign:
        good &= array > 0 if sign == "> 0" else array >= 0
    index = np.unravel_index(int(np.argmin(good)), array.shape)
    where = f" at index {tuple(int(i) for i in index)}" if array.ndim else ""
    wanted = f"finite and {sign}" if sign else "finite"
    raise InvalidValueError(f"`{name}` must be {wanted}, got {array[index]}{where}.")


def common_shape(**arrays: Array) -> tuple[int, ...]:
    """The shape that the arguments broadcast to."""
    try:
        return np.broadcast_shapes(*(array.shape for array in arrays.values()))
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise InvalidValueError(
            f"the arguments must broadcast to one shape, got {shapes}. "
            "Shapes are matched from the last axis; insert axes with x[:, None]."
        ) from None


def operand(array: Array, shape: tuple[int, ...], dtype: DTypeLike, out: Array) -> Operand:
    """How a kernel reads `array`, broadcast to `shape`. One repeated number is not expanded; other broadcasts are."""
    repeated = all(step == 0 or length == 1 for step, length in zip(array.strides, array.shape, strict=True))
    if repeated and array.size:
        return Operand(np.empty(1, dtype), False, float(array.flat[0]))
    full = np.ascontiguousarray(np.broadcast_to(array, shape), dtype)
    shifted = np.may_share_memory(full, out) and full.ctypes.data != out.ctypes.data
    # a read-only array would be another type for numba, and require another compilation
    if shifted or not full.flags.writeable:
        full = full.copy()
    return Operand(full.reshape(-1), True, 1.0)


def output(out: Array | None, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """A new array, or `out` if it can be written to."""
    if out is None:
        return np.empty(shape, dtype)
    wanted = f"a writeable, C-contiguous NumPy array of shape {shape} and type {np.dtype(dtype)}"
    if not isinstance(out, np.ndarray):
        raise InvalidTypeError(f"`out` must be {wanted}, got {type(out).__name__}.")
    if out.shape != shape or out.dtype != dtype or not out.flags.c_contiguous or not out.flags.writeable:
        raise InvalidValueError(
            f"`out` must be {wanted}, got shape {out.shape}, type {out.dtype}. "
            f"Use np.empty({shape}, np.{np.dtype(dtype)})."
        )
    return out
