"""How minibatches are drawn.

`plan(key, step)` determines the rows of step number `step`; it reads no data, so the plans of many steps are drawn
ahead in one vectorised call. `take` then fetches the rows. `arrange` puts the data into the order that `take` expects.

Effect on the distribution
--------------------------
blocks ("auto" for data in memory)
    The rows are shuffled once. An epoch visits N // n disjoint windows of n rows in random order, from a
    random offset; each epoch draws a new offset and order. Every window start is uniform on 0..N-1, so each single
    estimate is unbiased; within an epoch no row is used twice, so the errors of successive estimates partly cancel and
    the extra variance of the chain is at most that of independent batches (much less for small steps). Reading a
    window is a straight copy: two to four times faster than gathering rows.
rows without replacement
    n distinct rows, drawn independently at each step: covariance N²/n · S² · (1 - n/N).
rows with replacement
    n independent rows: covariance N²/n · S² · (N-1)/N. The textbook case.
strata
    n_s distinct rows of every stratum: only the spread within strata is left, Σ_s N_s²/n_s · S_s² · (1 - n_s/N_s).
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks
from scirocco._random import SeedPurpose
from scirocco._tree import pytree_dataclass, static
from scirocco.data.shuffle import epoch_words, random_order, scale_word, shuffled_numbers, uniform_index
from scirocco.errors import InvalidValueError
from scirocco.types import Array, Data, Key, Rows

_ALIGNMENT = 64  # bytes; JAX copies memory that is not aligned so
_SHORT_ROW, _LARGEST_COPY = 256, 1 << 33  # numbers of a short row; bytes that may be copied
SAMPLING = ("auto", "blocks", "without_replacement", "with_replacement")


class Batch(NamedTuple):
    """Some rows, their numbers in the arranged data, and weights that make Σ_i w_i f(x_i) unbiased for the full sum."""

    rows: Rows
    index: Array | None  # type: ignore[assignment]
    """None: not known (a superbatch for an estimator that does not need them)."""
    weights: Array | None
    """None: every row has the weight `scale`."""
    scale: float
    correction: float
    """Finite-population factor of the covariance of the weighted sum."""
    num_rows: int


class Batching(abc.ABC):
    """Draws batches; a pytree, so that probabilities can be data."""

    num_rows: int
    size: int
    whole = True
    """Whether it draws from all rows, as arrays in one place."""

    @property
    def correction(self) -> float:
        """Finite-population factor of the variance of a batch's sum; 1 for independent draws."""
        return 1.0

    def arrange(self, data: Data, seed: int) -> Data:
        """Put the rows into the order that `take` expects (host side, once per run)."""
        return data

    @abc.abstractmethod
    def plan(self, key: Key, step: Array) -> Any:
        """The plan of the batch of step number `step`."""

    @abc.abstractmethod
    def take(self, data: Data, plan: Any) -> Batch:
        """Fetch the rows of a plan."""

    def for_accelerator(self, data: Data, shared: bool = False) -> tuple[Batching, Data]:
        """The same batches from the same arranged data, in a form that an accelerator reads faster.

        `shared`: several chains use the rows of a batch, so that they are factors of products of matrices.
        """
        return self, data

    def rows(self, data: Data) -> Data:
        """The arranged data with the rows along the first axis, which only `for_accelerator` changes."""
        return data

    def row_weights(self, index: np.ndarray) -> np.ndarray | None:
        """The weights of the rows of one or several batches (host side), if they differ."""
        return None

    @property
    def plan_size(self) -> int:
        """Words needed to hold one plan."""
        return 1

    @property
    def epoch(self) -> int:
        """The number of steps in which no row is used twice; 1 if batches are independent."""
        return 1


@pytree_dataclass
class AllRows(Batching):
    """The batch of all rows, which needs no drawing."""

    num_rows: int = static()
    size: int = static()

    @property
    def correction(self) -> float:
        """An exact sum has no variance."""
        return 0.0

    def plan(self, key: Key, step: Array) -> Array:
        """Always the same."""
        return jnp.zeros((), jnp.int32)

    def take(self, data: Data, plan: Array) -> Batch:
        """Everything."""
        return Batch(data, jnp.arange(self.num_rows), None, 1.0, self.correction, self.num_rows)


@pytree_dataclass
class Blocks(Batching):
    """Windows of rows that were shuffled once; a new random offset and order each epoch."""

    num_rows: int = static()
    size: int = static()

    @property
    def correction(self) -> float:
        """Finite-population factor of the variance, in expectation over the shuffle."""
        return 1.0 - self.size / self.num_rows

    @property
    def epoch(self) -> int:
        """The number of windows in the data."""
        return self.num_rows // self.size

    def arrange(self, data: Data, seed: int) -> Data:
        """Shuffled rows, with the first n - 1 repeated at the end so that a window never wraps around."""
        order = shuffled_numbers(self.num_rows, seed, SeedPurpose.RESIDENT_ORDER)
        order = np.concatenate([order, order[: self.size - 1]])
        return jax.tree.map(lambda leaf: _take_aligned(np.asarray(leaf), order), data)

    def plan(self, key: Key, step: Array) -> Array:
        """Where the window of this step starts."""
        words = epoch_words(key, step // self.epoch, 3)
        offset = scale_word(words[2], self.num_rows)
        slot = random_order(words, jnp.asarray(step % self.epoch), self.epoch)
        start = offset.astype(jnp.uint32) + (slot * self.size).astype(jnp.uint32)
        return jnp.where(start >= self.num_rows, start - self.num_rows, start).astype(jnp.int32)

    def take(self, data: Data, plan: Array) -> Batch:
        """A contiguous copy."""
        rows = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, plan, self.size), data)
        return self._batch(rows, plan)

    def _batch(self, rows: Rows, plan: Array) -> Batch:
        index = (plan + jnp.arange(self.size)) % self.num_rows
        return Batch(rows, index, None, self.num_rows / self.size, self.correction, self.num_rows)

    def for_accelerator(self, data: Data, shared: bool = False) -> tuple[Batching, Data]:
        """Short rows column by column: sums over a window read consecutive numbers, and the window is never copied.

        Factors of products of matrices are copied anyway, and whole rows are copied faster.
        """
        batching = BlocksByColumns(self.num_rows, self.size)
        return batching, data if shared else jax.tree.map(_columns, data)


class _ColumnArray(NamedTuple):
    """An array with the rows along the last axis."""

    leaf: Array


def _columns(leaf: Array) -> Array | _ColumnArray:
    short = leaf.size <= _SHORT_ROW * leaf.shape[0] and leaf.nbytes <= _LARGEST_COPY
    return _ColumnArray(jnp.moveaxis(leaf, 0, -1)) if short else leaf


@pytree_dataclass
class BlocksByColumns(Blocks):
    """The same windows, of data with the rows along the last axis where they are short."""

    num_rows: int = static()
    size: int = static()

    def take(self, data: Data, plan: Array) -> Batch:
        """Windows of columns, or a gather of rows: for several chains it is faster than windows of rows."""

        def one(leaf: Array | _ColumnArray) -> Array:
            if isinstance(leaf, _ColumnArray):
                window = jax.lax.dynamic_slice_in_dim(leaf.leaf, plan, self.size, axis=-1)
                return jnp.moveaxis(window, -1, 0)
            return gather(leaf, plan + jnp.arange(self.size))

        return self._batch(jax.tree.map(one, data, is_leaf=_is_columns), plan)

    def rows(self, data: Data) -> Data:
        """The data with the rows along the first axis."""

        def one(leaf: Array | _ColumnArray) -> Array:
            return jnp.moveaxis(leaf.leaf, -1, 0) if isinstance(leaf, _ColumnArray) else leaf

        return jax.tree.map(one, data, is_leaf=_is_columns)


def _is_columns(node: Any) -> bool:
    return isinstance(node, _ColumnArray)


@pytree_dataclass
class IndependentRows(Batching):
    """Rows drawn independently at every step, with or without replacement."""

    num_rows: int = static()
    size: int = static()
    replace: bool = static()

    @property
    def correction(self) -> float:
        """Finite-population factor; 1 for independent draws."""
        return 1.0 if self.replace else 1.0 - self.size / self.num_rows

    @property
    def plan_size(self) -> int:
        """One number per row."""
        return self.size

    def plan(self, key: Key, step: Array) -> Array:
        """Row numbers."""
        key = jax.random.fold_in(key, step)
        if self.replace:
            return uniform_index(key, (self.size,), self.num_rows)
        return random_order(jax.random.bits(key, (2,), jnp.uint32), jnp.arange(self.size), self.num_rows)

    def take(self, data: Data, plan: Array) -> Batch:
        """A gather."""
        return Batch(gather(data, plan), plan, None, self.num_rows / self.size, self.correction, self.num_rows)


def _take_aligned(leaf: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The rows in this order, in aligned memory that JAX can use without another copy."""
    out = aligned_empty((len(order), *leaf.shape[1:]), leaf.dtype)
    return np.take(leaf, order, axis=0, out=out, mode="clip")  # "raise" would go through a buffer


def aligned_empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Memory for an array, at an address from which JAX can use it without a copy."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.empty(size + _ALIGNMENT, np.uint8)
    begin = -raw.ctypes.data % _ALIGNMENT
    return raw[begin : begin + size].view(dtype).reshape(shape)


def gather(data: Data, index: Array) -> Rows:
    """Rows by their numbers, which must be in range."""
    return jax.tree.map(lambda leaf: leaf.at[index].get(mode="promise_in_bounds"), data)


def batching(size: int, num_rows: int, sampling: str) -> Batching:
    """The batching with the name `sampling`, with the batch size checked against the data."""
    check_batch_size(size, num_rows)
    _checks.choice(sampling, "sampling", SAMPLING)
    if sampling in ("auto", "blocks"):
        return Blocks(num_rows, size)
    return IndependentRows(num_rows, size, sampling == "with_replacement")


def check_batch_size(size: int, num_rows: int) -> None:
    """Raise an error if the batch size is not a positive int, or larger than the data."""
    _checks.positive_int(size, "batch_size")
    if size > num_rows:
        raise InvalidValueError(
            f"`batch_size` is {size}, but the data have only {num_rows} rows. Use sc.Full() for all rows at every step."
        )
