"""SCIR on a large matrix at the cost of the columns in a minibatch: the others are advanced when needed."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from scirocco import _checks
from scirocco.diffusions.host import _arguments as arguments
from scirocco.diffusions.host._arguments import Array, Seed
from scirocco.diffusions.host._threads import run_blocks
from scirocco.diffusions.host.draws import compiled
from scirocco.errors import InvalidTypeError, InvalidValueError

_LAZY = 4  # the purpose, for the seed
_FEW_ENTRIES = 4096  # too few for several threads
_FIELDS = ("theta", "ahead", "when", "span", "concentration", "excess", "now", "step", "seed")
_PIECE = 4096  # columns, for sums that are not compiled


class LazySCIR:
    """A V × K matrix of exact CIR processes. Each step uses a few columns, and its cost depends only on those.

    Entry (w, k) follows dθ = (a - θ) dt + sqrt(2θ) dW. In a step of length h the touched columns have shapes a of their
    own, estimated from a minibatch; in all others a is the `concentration` β, as for a word that is absent from the
    batch. By the Markov property an untouched column may be advanced later, once, by all the time that has passed; so
    may an entry of a touched column whose shape is β (a topic with no token in the batch). A column is a row of
    the arrays: its K entries are contiguous.

    Exact: the distribution of the columns that are read, jointly over columns and times and with everything computed
    from them, as shapes may be. It is the same as when the whole matrix is advanced in every step. Not exact: the sums
    over all columns while columns are overdue. `row_sums` gives their conditional mean, so a sampler that normalises by
    it is approximate. The variance of an overdue entry whose mean is m is 2θ(e - e²) + β(1 - e)² <= 2(1 - e) m, where
    e = e^(-Δ) and Δ is the overdue time; so the relative standard deviation of a sum about `row_sums` is at most
    sqrt(2 / row sum). `row_sums_sd` gives it exactly.

    The sums are stored in double precision. A step adds rounding errors of about 1e-16 of a sum, and earlier errors
    decay by e^(-h): after any number of steps of length h they are below about 1e-15 / h. `catch_up` recomputes them.

    Parameters
    ----------
    concentration
        β > 0 of the untouched entries: a number or K numbers.
    theta
        V × K, >= 0, float32 or float64: the start, which is copied.
    seed
        A non-negative int, or a pair of ints below 2**64. A draw depends on it, on the number of the step, on the
        column and its past; not on the order of columns, on which column is read first, or on the number of threads.
    num_threads
        Default: all cores.

    Attributes
    ----------
    now
        The time since the start.
    step
        The number of calls of `advance`.

    Examples
    --------
    >>> import numpy as np
    >>> from scirocco.simplex import LazySCIR
    >>> lazy = LazySCIR(0.1, np.full((1000, 3), 0.1), seed=1)
    >>> for batch in ([3, 14, 15], [9, 26, 5]):
    ...     theta = lazy.read(batch)  # at the present time
    ...     weights = theta / lazy.row_sums()
    ...     lazy.advance(batch, 0.1 + 40.0 * weights, 0.5)
    >>> lazy.now
    1.0
    >>> lazy.catch_up().shape
    (1000, 3)
    """

    def __init__(self, concentration: ArrayLike, theta: ArrayLike, *, seed: Seed = 0, num_threads: int | None = None):
        start = arguments.as_real(theta, "theta")
        if start.ndim != 2 or start.shape[1] == 0:
            raise InvalidValueError(
                f"`theta` must be a V × K array, a column of the model in each row; got shape {start.shape}."
            )
        arguments.check_sign(start, "theta", sign=">= 0")
        base = arguments.as_real(concentration, "concentration")
        arguments.check_sign(base, "concentration", sign="> 0")
        if base.shape not in ((), (start.shape[1],)):
            raise InvalidValueError(
                f"`concentration` must be a number or {start.shape[1]} numbers, one for each entry of a column; "
                f"got shape {base.shape}."
            )
        if num_threads is not None:
            _checks.positive_int(num_threads, "num_threads")
        self.num_threads = num_threads
        self.now = 0.0
        self.step = 0
        self._theta = np.array(start, order="C")
        self._ahead = np.zeros(start.shape, np.uint8)
        self._when, self._span = np.zeros(start.shape[0]), np.zeros(start.shape[0])
        rounded = np.asarray(base, self._theta.dtype)  # like the shapes, so that equal ones are recognised
        self._base = np.array(np.broadcast_to(rounded, start.shape[1:]), np.float64)
        self._seed = arguments.seed_words(seed, _LAZY)
        self._marks, self._calls = np.zeros(start.shape[0], np.int64), 0  # for _checked: named in which call
        self._last = np.empty(0, np.int64)
        self._excess = self._sum_excess()

    def read(self, columns: ArrayLike) -> Array:
        """Columns at the present time, n × K: overdue ones are drawn now, the others are returned unchanged.

        Parameters
        ----------
        columns
            Different numbers from 0 to V - 1.

        Returns
        -------
        array
            A copy, in the type of the start.
        """
        return self._read(self._checked(columns))

    def advance(self, columns: ArrayLike, shapes: ArrayLike, time: float) -> None:
        """Advance the time; during this step these columns have their own shapes, all others the concentration.

        Columns that have not been read since they became overdue are brought to the present first. Entries whose shape
        is the concentration wait: shapes should be `concentration + counts`, so that no counts give it to the last bit.

        Parameters
        ----------
        columns
            n different numbers from 0 to V - 1; may be empty.
        shapes
            n × K, or an array that broadcasts to it; > 0. Rounded to the type of the start, like the concentration.
        time
            Length of the step, > 0, in units of 1 / rate, which is 1.
        """
        chosen = self._checked(columns)
        _checks.positive(time, "time")
        length = float(time)
        if self.now + length == self.now:
            raise InvalidValueError(f"`time` = {time} is too short to be added to the present time, {self.now}.")
        size = (chosen.size, self._theta.shape[1])
        given = arguments.as_real(shapes, "shapes")
        arguments.check_sign(given, "shapes", sign="> 0")
        try:
            full = given if given.shape == size else np.broadcast_to(given, size)
        except ValueError:
            raise InvalidValueError(
                f"`shapes` must have a row for each of the {size[0]} columns and {size[1]} entries in it, "
                f"got shape {given.shape}."
            ) from None
        own = np.require(full, self._theta.dtype, ["C", "W"])
        gone, came = self._move(chosen, own, length, np.empty((0, size[1]), self._theta.dtype))
        self._excess = (self._excess - gone) * math.exp(-length) + came
        self.now += length
        self.step += 1

    def catch_up(self) -> Array:
        """The whole matrix at the present time, V × K, as a copy; the sums are recomputed."""
        theta = self._read(np.arange(self._theta.shape[0]))
        self._excess = self._sum_excess()
        return theta

    def row_sums(self) -> Array:
        """The sums over all columns, K numbers: their mean at the present time given all draws so far.

        Σ_w β + (θ_w - β) e^(-Δ_w), where θ_w was drawn a time Δ_w ago; updated at each step, so this is free.
        """
        return self._theta.shape[0] * self._base + self._excess

    def row_sums_sd(self) -> Array:
        """The standard deviations of the sums over all columns about `row_sums`, given all draws so far.

        Computed on request, in V K operations. Entries are independent, and the variance of an overdue one
        is 2θ(e^(-Δ) - e^(-2Δ)) + β(1 - e^(-Δ))².
        """
        total = np.zeros_like(self._base)
        for begin in range(0, len(self._when), _PIECE):
            part = slice(begin, begin + _PIECE)
            late = self.now - self._when[part]
            overdue = np.where(self._ahead[part], (late - self._span[part])[:, None], late[:, None])
            moved = -np.expm1(-overdue)
            total += np.sum(2 * np.exp(-overdue) * moved * self._theta[part] + self._base * moved**2, axis=0)
        return np.sqrt(total)

    def state(self, copy: bool = True) -> dict[str, Array]:
        """Everything that the next step needs, as a dict of arrays: `LazySCIR.restore` continues bit for bit.

        Without copies they are valid until the next call of any other method.
        """
        times = (self._ahead, self._when, self._span)
        values = (self._theta, *times, self._base, self._excess, self.now, self.step, self._seed)
        make = np.array if copy else np.asarray
        return {name: make(value) for name, value in zip(_FIELDS, values, strict=True)}

    @classmethod
    def restore(cls, state: dict[str, Array], *, num_threads: int | None = None) -> LazySCIR:
        """An object that continues from `state`.

        Parameters
        ----------
        state
            The result of `state()`.
        num_threads
            Default: all cores. Does not change the draws.

        Returns
        -------
        LazySCIR
            A new object; the arrays are copied.
        """
        missing = [name for name in _FIELDS if name not in state]
        if missing:
            raise InvalidValueError(f"`state` lacks {missing}: give the dict that LazySCIR.state() returned.")
        lazy = cls(state["concentration"], state["theta"], num_threads=num_threads)
        wanted = {"ahead": lazy._ahead, "when": lazy._when, "span": lazy._span, "excess": lazy._excess}
        for name, like in wanted.items():
            if np.shape(state[name]) != like.shape:
                raise InvalidValueError(
                    f"`{name}` of `state` has shape {np.shape(state[name])}; `theta` requires {like.shape}."
                )
        lazy._ahead = np.array(state["ahead"], np.uint8)
        lazy._when, lazy._span = np.array(state["when"], np.float64), np.array(state["span"], np.float64)
        lazy._excess = np.array(state["excess"], np.float64)
        lazy.now, lazy.step = float(state["now"]), int(state["step"])
        first, second = (np.uint64(word) for word in state["seed"])
        lazy._seed = (first, second)
        return lazy

    def _read(self, columns: Array) -> Array:
        out = np.empty((columns.size, self._theta.shape[1]), self._theta.dtype)
        gone, came = self._move(columns, out, 0.0, out)
        self._excess = self._excess + (came - gone)
        return out

    def _move(self, columns: Array, shapes: Array, time: float, out: Array) -> tuple[Array, Array]:
        """One compiled pass; the expected excess of the columns over the concentration before it, and after it."""
        size = self._theta.shape[1]
        width = max(64, 2048 // size)  # columns to a block; independent of threads, so that sums are too
        blocks = -(-columns.size // width)
        gone, came = np.zeros((blocks, size)), np.zeros((blocks, size))
        matrix = (self._theta, self._ahead, self._when, self._span, self._base)
        clock = (self.step, self.now, time)
        kernels = compiled("LazySCIR")

        def work(first: int, last: int) -> None:
            kernels.move_columns(*matrix, columns, shapes, clock, out, gone, came, self._seed, width, first, last)

        few = columns.size * size <= _FEW_ENTRIES
        run_blocks(work, blocks, 1 if few else self.num_threads)
        return gone.sum(axis=0), came.sum(axis=0)

    def _checked(self, columns: ArrayLike) -> Array:
        """`columns` as distinct integers in range, in time proportional to their number."""
        array = np.asarray(columns)
        if array.size == 0 and array.ndim == 1:
            return np.empty(0, np.int64)
        if array.dtype.kind not in "iu" or array.ndim != 1:
            hint = " Use np.flatnonzero(mask) for a mask." if array.dtype.kind == "b" else ""
            raise InvalidTypeError(
                f"`columns` must be a list of whole numbers, got {array.dtype} of shape {array.shape}.{hint}"
            )
        chosen = np.array(array, np.int64)
        if np.array_equal(chosen, self._last):  # the usual read followed by advance
            return chosen
        self._calls += 1
        position, repeated = compiled("LazySCIR").first_bad(chosen, self._marks, self._calls)
        if position >= 0:
            problem = (
                "is given twice. Use np.unique, and add up the values of a column"
                if repeated
                else f"is not one of 0 to {self._marks.size - 1}"
            )
            raise InvalidValueError(f"`columns` must be distinct: {chosen[position]} at position {position} {problem}.")
        self._last = chosen
        return chosen

    def _sum_excess(self) -> Array:
        return np.sum(self._theta, axis=0, dtype=np.float64) - self._theta.shape[0] * self._base
