"""Exact CIR transitions, gamma and Poisson numbers on NumPy arrays, compiled for the CPU and multi-threaded."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from scirocco import _extras
from scirocco.diffusions.host import _arguments as arguments
from scirocco.diffusions.host._arguments import Array, Seed
from scirocco.diffusions.host._threads import run_blocks
from scirocco.errors import InvalidTypeError, InvalidValueError

_CIR, _GAMMA, _POISSON = 1, 2, 3  # different functions get unrelated numbers from the same seed
_FEW_BLOCKS = 4  # too few for several threads: about 0.1 ms of work
_LARGEST_MEAN = 1e15  # counts are exact doubles
_LARGEST_GROWTH = 700.0  # exp of it is still a double
_SHORTEST = 1e-300  # so is one over it


def cir(
    seed: Seed,
    theta: ArrayLike,
    shape: ArrayLike,
    time: ArrayLike,
    rate: ArrayLike = 1.0,
    *,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """Exact transitions of independent Cox-Ingersoll-Ross processes, on the CPU.

    The process dθ = (a - bθ) dt + sqrt(2θ) dW of `scirocco.diffusions.cir`, which says how it is drawn. Nothing is
    clipped: a value that underflows is 0, and 0 is not absorbing.

    Parameters
    ----------
    seed
        A non-negative int, or a pair of ints below 2**64. The result depends on it and on the arguments, not on the
        number of threads. Use a different one for every call, for example (seed of the chain, number of the step).
    theta
        Current values, >= 0; float32 or float64. The result is of the same type; the arithmetic is in double.
    shape
        a > 0, without a unit. Broadcasts against the others; arrays are rounded to the type of `theta`, single numbers
        are not, and are not expanded either.
    time
        t > 0, in units of 1 / rate.
    rate
        b, any finite number, including 0 and negative ones (then there is no stationary distribution).
    out
        Array to write to; may be `theta` itself.
    num_threads
        Default: all cores.

    Examples
    --------
    >>> import numpy as np
    >>> from scirocco.diffusions import host
    >>> theta = np.zeros((1000, 100))
    >>> later = host.cir(7, theta, shape=0.1, time=50.0)
    >>> bool(abs(later.mean() - 0.1) < 0.01)  # the stationary mean
    True
    """
    start = arguments.as_real(theta, "theta")
    others = {name: arguments.as_real(x, name) for name, x in (("shape", shape), ("time", time), ("rate", rate))}
    arguments.check_sign(start, "theta", sign=">= 0")
    arguments.check_sign(others["shape"], "shape", sign="> 0")
    arguments.check_sign(others["time"], "time", sign="> 0")
    arguments.check_sign(others["rate"], "rate", sign="")
    _check_extremes(others["time"], others["rate"])
    common = arguments.common_shape(theta=start, **others)
    result = arguments.output(out, common, start.dtype)
    operands = [arguments.operand(x, common, start.dtype, result) for x in (start, *others.values())]
    arrays, varies, values = zip(*operands, strict=True)
    return _run("cir_blocks", (*arrays, varies, values), result, arguments.seed_words(seed, _CIR), num_threads)


def gamma(
    seed: Seed,
    shape: ArrayLike,
    *,
    out: Array | None = None,
    num_threads: int | None = None,
    dtype: DTypeLike | None = None,
) -> Array:
    """Independent gamma numbers of scale 1, on the CPU.

    Density x^(a-1) e^(-x) / Γ(a), for every a > 0; underflow gives 0.

    Parameters
    ----------
    seed, out, num_threads
        As for `cir`.
    shape
        a > 0. For many numbers of one shape use np.broadcast_to(a, (n,)), which takes no memory.
    dtype
        float32 or float64; default: that of `shape`.

    Examples
    --------
    >>> import numpy as np
    >>> from scirocco.diffusions import host
    >>> x = host.gamma(7, np.broadcast_to(3.0, (100_000,)))
    >>> bool(abs(x.mean() - 3.0) < 0.05)
    True
    """
    shapes = arguments.as_real(shape, "shape")
    arguments.check_sign(shapes, "shape", sign="> 0")
    kind = shapes.dtype if dtype is None else np.dtype(dtype)
    if kind not in (np.float32, np.float64):
        raise InvalidTypeError(f"`dtype` must be float32 or float64, got {kind}.")
    result = arguments.output(out, shapes.shape, kind)
    operand = arguments.operand(shapes, shapes.shape, kind, result)
    return _run("gamma_blocks", operand, result, arguments.seed_words(seed, _GAMMA), num_threads)


def poisson(seed: Seed, mean: ArrayLike, *, out: Array | None = None, num_threads: int | None = None) -> Array:
    """Independent Poisson numbers, on the CPU.

    Mass e^(-λ) λ^k / k!, for every λ from 0 to 10¹⁵.

    Parameters
    ----------
    seed, out, num_threads
        As for `cir`; `out` has the type int64.
    mean
        λ >= 0. For many numbers of one mean use np.broadcast_to(λ, (n,)), which takes no memory.

    Examples
    --------
    >>> import numpy as np
    >>> from scirocco.diffusions import host
    >>> counts = host.poisson(7, np.broadcast_to(12.5, (100_000,)))
    >>> bool(abs(counts.mean() - 12.5) < 0.1)
    True
    """
    means = arguments.as_real(mean, "mean")
    arguments.check_sign(means, "mean", sign=">= 0")
    if means.size and means.max() > _LARGEST_MEAN:
        raise InvalidValueError(f"`mean` must be at most {_LARGEST_MEAN:g}, got {means.max()}.")
    result = arguments.output(out, means.shape, np.int64)
    operand = arguments.operand(means, means.shape, np.float64, result)
    return _run("poisson_blocks", operand, result, arguments.seed_words(seed, _POISSON), num_threads)


def compiled(purpose: str = "compiled CPU kernels") -> ModuleType:
    """The compiled part, imported when it is first needed."""
    _extras.require("numba", purpose)
    from scirocco.diffusions.host import _kernels

    return _kernels


def _run(name: str, operands: tuple[Any, ...], result: Array, words: arguments.Words, num_threads: int | None) -> Array:
    """Fill `result` by a kernel, block by block."""
    kernels = compiled()
    work = functools.partial(getattr(kernels, name), *operands, result.reshape(-1), words)
    blocks = -(-result.size // kernels.BLOCK)
    run_blocks(work, blocks, 1 if blocks <= _FEW_BLOCKS and num_threads is None else num_threads)
    return result


def _check_extremes(time: Array, rate: Array) -> None:
    """Reject values that overflow: a negative rate makes the process grow like e^(-bt)."""
    if rate.size == 0 or time.size == 0:
        return
    if time.min() < _SHORTEST:
        raise InvalidValueError(
            f"`time` must be at least {_SHORTEST:g}, got {time.min()}: nothing moves in a shorter time."
        )
    if rate.min() >= 0:
        return
    try:
        growth = float(np.max(-rate.astype(np.float64) * time))
    except ValueError:  # shapes that do not match: reported with the names of all arguments
        return
    if growth > _LARGEST_GROWTH:
        raise InvalidValueError(
            f"`rate` * `time` must be at least {-_LARGEST_GROWTH:g}, got {-growth:g}: the process grows like "
            "exp(-rate * time). Use a shorter time."
        )
