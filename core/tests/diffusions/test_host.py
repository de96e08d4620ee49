"""The compiled CPU kernels as functions: what they accept, promise and refuse. Laws are in tests/law."""

from __future__ import annotations

import math
import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from scirocco.diffusions import host
from scirocco.errors import InvalidTypeError, InvalidValueError

pytestmark = pytest.mark.compile

SIZE = 10_000  # ten blocks


def problem(seed, dtype=np.float64, size=SIZE):
    rng = np.random.default_rng([seed, 20])
    shape = rng.choice([1e-3, 0.1, 0.5, 0.8, 4.0, 300.0], size)
    return rng.gamma(shape).astype(dtype), shape.astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_number_of_threads_changes_nothing(seed, dtype):
    theta, shape = problem(seed, dtype, 100_003)
    one = host.cir(seed, theta, shape, 0.1, num_threads=1)
    assert one.dtype == dtype
    for threads in (2, 3, 64, None):
        assert np.array_equal(host.cir(seed, theta, shape, 0.1, num_threads=threads), one)
    many = np.full(100_003, 0.3, dtype)
    assert np.array_equal(host.gamma(seed, many, num_threads=1), host.gamma(seed, many, num_threads=5))
    assert np.array_equal(host.poisson(seed, many, num_threads=1), host.poisson(seed, many, num_threads=5))


def test_calls_from_many_threads(seed):
    theta, shape = problem(seed, size=50_000)
    expected = [host.cir((seed, i), theta, shape, 0.1, num_threads=1) for i in range(8)]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda i: host.cir((seed, i), theta, shape, 0.1, num_threads=3), range(8)))
    assert all(np.array_equal(*pair) for pair in zip(results, expected, strict=True))


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")
def test_works_in_a_forked_child(seed):
    """The threads of the pool do not survive a fork: a child that waited for them would hang."""
    theta, shape = problem(seed, size=20_000)
    host.cir(seed, theta, shape, 0.1, num_threads=2)
    child = multiprocessing.get_context("fork").Process(
        target=lambda: os._exit(int(host.cir(seed, theta, shape, 0.1, num_threads=2).sum() <= 0))
    )
    child.start()
    child.join(60)
    assert child.exitcode == 0


def test_seeds(seed):
    theta, shape = problem(seed)
    one = host.cir(seed, theta, shape, 0.1)
    assert np.array_equal(host.cir((seed, 0), theta, shape, 0.1), one)
    assert np.array_equal(host.cir(np.int32(seed), theta, shape, 0.1), one)
    for other in (seed + 1, (seed, 1), seed + 2**64, (2**64 - 1, 2**64 - 1)):
        assert np.mean(host.cir(other, theta, shape, 0.1) == one) < 0.2  # zeros by underflow may agree
    kinds = [host.gamma(seed, np.full(SIZE, 2.0)), host.cir(seed, np.zeros(SIZE), 2.0, 60.0)]
    assert np.mean(kinds[0] == kinds[1]) < 0.01  # the same law by then, but other numbers


def test_one_number_is_what_an_array_of_it_is(seed):
    theta, shape = problem(seed)
    full = np.full(SIZE, 0.7)
    expected = host.cir(seed, theta, shape, full, full)
    for time in (0.7, np.float64(0.7), np.array([0.7]), full, np.broadcast_to(0.7, SIZE)):
        for rate in (0.7, full):
            assert np.array_equal(host.cir(seed, theta, shape, time, rate), expected)
    assert np.array_equal(host.cir(seed, full, 0.7, 0.7), host.cir(seed, full, full, full, np.ones(SIZE)))
    assert np.array_equal(host.cir(seed, 0.7, full, 0.7), host.cir(seed, full, full, full))


def test_broadcasting_and_layout(seed):
    theta, shape = (x.reshape(100, 100) for x in problem(seed))
    row, column = shape[:1], shape[:, :1]
    for given in (row, column, row[0]):
        expected = host.cir(seed, theta, np.array(np.broadcast_to(given, theta.shape)), 0.1)
        assert np.array_equal(host.cir(seed, theta, given, 0.1), expected)
    expected = host.cir(seed, theta, shape, 0.1)
    assert np.array_equal(host.cir(seed, np.asfortranarray(theta), shape, 0.1), expected)
    wide = np.zeros((100, 200))
    wide[:, ::2] = theta
    assert np.array_equal(host.cir(seed, wide[:, ::2], shape, 0.1), expected)
    theta.flags.writeable = False
    assert np.array_equal(host.cir(seed, theta, shape, 0.1), expected)
    assert host.cir(seed, np.ones(3), np.ones((2, 1)), 0.1).shape == (2, 3)
    assert host.cir(seed, 1.0, 1.0, 1.0).shape == () and host.cir(seed, [1, 2], 1, 1).dtype == np.float64
    assert host.cir(seed, np.ones((0, 3)), 1.0, 1.0).shape == (0, 3)
    assert host.cir(seed, np.float32(1), np.ones(4), 1.0).dtype == np.float32


def test_out_may_be_an_argument(seed):
    theta, shape = problem(seed)
    expected = host.cir(seed, theta, shape, 0.1)
    for which in (0, 1):
        arrays = [theta.copy(), shape.copy()]
        assert host.cir(seed, *arrays, 0.1, out=arrays[which]) is arrays[which]
        assert np.array_equal(arrays[which], expected)
    memory = np.concatenate([theta, [0.0] * 7])
    assert np.array_equal(host.cir(seed, memory[:SIZE], shape, 0.1, out=memory[7:]), expected)
    counts = np.empty(SIZE, np.int64)
    assert host.poisson(seed, theta, out=counts) is counts
    assert host.gamma(seed, shape, dtype=np.float32).dtype == np.float32


def test_single_precision_is_double_rounded(seed):
    """The arithmetic is in double: operands that are floats in both give the same draws, up to rounding."""
    theta, shape = problem(seed, np.float32)
    single = host.cir(seed, theta, shape, 0.1)
    double = host.cir(seed, theta.astype(np.float64), shape.astype(np.float64), 0.1)
    assert np.array_equal(single, double.astype(np.float32))


def test_continuous_through_rate_zero(seed):
    """The same seed at neighbouring rates: the same draws, but for a block in which a decision fell the other way."""
    theta, shape = problem(seed, size=100_000)
    flat = host.cir(seed, theta, shape, 0.4, 0.0)
    for rate in (1e-9, -1e-9, 1e-18, 5e-324):
        near = host.cir(seed, theta, shape, 0.4, rate)
        agree = np.isclose(near, flat, rtol=1e-4, atol=1e-300)
        assert agree.mean() > 0.9


def test_extremes_are_numbers(seed):
    """From the smallest to the largest double: no NaN, nothing negative, and the mean where it is sharp."""
    values = np.array([5e-324, 1e-300, 1e-30, 1e-4, 1.0, 1e6, 1e30, 1e100])
    theta = np.append(values, 0.0)[:, None, None, None]
    shape, time = values[:, None, None], np.clip(values, 1e-300, 1e2)[:, None]
    rate = np.array([1e300, 1e3, 1.0, 1e-300, 0.0, -1e-300, -1.0, -3.0])
    draws = host.cir(seed, theta, shape, time, rate)
    assert np.isfinite(draws).all() and draws.min() >= 0
    assert host.cir(seed, 1e40, 0.1, 1.0) == pytest.approx(1e40 * math.exp(-1.0))
    assert host.cir(seed, 1e300, 0.1, 1e-300) == pytest.approx(1e300)
    assert host.cir(seed, 1.0, 0.1, 1e-20) == pytest.approx(1.0, rel=1e-8)
    assert np.isfinite(host.gamma(seed, values)).all()
    assert not host.poisson(seed, np.zeros(100)).any()
    counts = host.poisson(seed, np.full(100, 1e15))
    assert np.abs(counts - 1e15).max() < 10 * math.sqrt(1e15)


def test_zero_is_not_absorbing(seed):
    assert np.all(host.cir(seed, np.zeros(SIZE), 0.7, 1e-3) > 0)
    assert np.all(host.cir(seed, np.zeros(SIZE, np.float32), 0.5, 0.1) > 0)


@pytest.mark.parametrize("position", [0, 4_321])
@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name in ("theta", "shape", "time", "rate") for value in (math.nan, math.inf, -math.inf)]
    + [("theta", -1e-300), ("shape", 0.0), ("shape", -1.0), ("time", 0.0), ("time", -0.1)],
)
def test_bad_values_are_named(name, value, position):
    arrays = {key: np.ones((100, 100)) for key in ("theta", "shape", "time", "rate")}
    arrays[name].flat[position] = value
    arrays[name].flat[position + 5] = value
    out = np.full((100, 100), 7.0)
    index = tuple(int(i) for i in np.unravel_index(position, (100, 100)))
    with pytest.raises(InvalidValueError) as caught:
        host.cir(0, **arrays, out=out)
    assert f"`{name}`" in str(caught.value) and f"at index {index}" in str(caught.value)
    assert np.all(out == 7.0)  # nothing was written
    with pytest.raises(InvalidValueError, match=f"`{name}`"):
        host.cir(0, **{**dict.fromkeys(arrays, 1.0), name: value})


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: host.cir(-1, 1.0, 1.0, 1.0), InvalidValueError, r"2\*\*128"),
        (lambda: host.cir((0, 2**64), 1.0, 1.0, 1.0), InvalidValueError, r"2\*\*64"),
        (lambda: host.cir(0.5, 1.0, 1.0, 1.0), InvalidTypeError, "`seed`"),
        (lambda: host.cir(True, 1.0, 1.0, 1.0), InvalidTypeError, "`seed`"),
        (lambda: host.cir((1, 2, 3), 1.0, 1.0, 1.0), InvalidTypeError, "pair"),
        (lambda: host.cir(0, np.ones(3, np.float16), 1.0, 1.0), InvalidTypeError, "float16"),
        (lambda: host.cir(0, "a", 1.0, 1.0), InvalidTypeError, "`theta`"),
        (lambda: host.cir(0, 1.0, np.ones(2) + 1j, 1.0), InvalidTypeError, "`shape`"),
        (lambda: host.cir(0, np.ones(3), np.ones(2), 1.0), InvalidValueError, "broadcast"),
        (lambda: host.cir(0, 1.0, 1.0, np.ones(3), -np.ones(2)), InvalidValueError, "broadcast"),
        (lambda: host.cir(0, 1.0, 1.0, 100.0, -8.0), InvalidValueError, "shorter time"),
        (lambda: host.cir(0, 1.0, 1.0, 1e-310), InvalidValueError, "1e-300"),
        (lambda: host.cir(0, np.ones(3), 1.0, 1.0, out=np.ones(4)), InvalidValueError, "`out`"),
        (lambda: host.cir(0, np.ones(3), 1.0, 1.0, out=np.ones(3, "f4")), InvalidValueError, "`out`"),
        (lambda: host.cir(0, np.ones(3), 1.0, 1.0, out=[1.0]), InvalidTypeError, "`out`"),
        (lambda: host.cir(0, np.ones(3), 1.0, 1.0, num_threads=0), InvalidValueError, "`num_threads`"),
        (lambda: host.gamma(0, 0.0), InvalidValueError, "`shape`"),
        (lambda: host.gamma(0, 1.0, dtype=np.int64), InvalidTypeError, "`dtype`"),
        (lambda: host.poisson(0, -1.0), InvalidValueError, "`mean`"),
        (lambda: host.poisson(0, 1e16), InvalidValueError, "at most"),
    ],
)
def test_bad_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.process
def test_numba_is_imported_when_it_is_needed():
    code = (
        "import sys; import scirocco.diffusions.host as h, scirocco.simplex.lazy; assert 'numba' not in sys.modules; "
        "sys.modules['numba'] = None\n"
        "try: h.gamma(0, 1.0)\n"
        "except ImportError as error: assert 'pip install numba' in str(error)\n"
        "else: raise SystemExit('no error')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)


def test_processes_that_compile_at_the_same_time_do_not_mix_up_their_kernels(tmp_path):
    """One process has listed its kernel and not written it, another has written one for other types in between."""
    from scirocco.diffusions.host import _kernels, _random

    kind = type(_kernels.gamma_blocks._cache._cache_file)
    assert kind is _random.Files
    one, other, reader = (kind(str(tmp_path), "kernel", 0) for _ in range(3))
    found, listed, write = [], one._load_index(), one._save_data

    def between(name, data):
        found.append(reader.load("integers"))
        write(name, data)
        found.append(reader.load("integers"))

    other.save("floats", "code for floats")
    one._load_index, one._save_data = lambda: listed, between
    one.save("integers", "code for integers")
    assert set(found) <= {None, "code for integers"}
    assert reader.load("integers") == "code for integers" and reader.load("floats") is None


def test_kept_kernels_are_named_after_their_sources():
    """So that a change in any file of the folder makes numba compile anew, whatever the files' dates are."""
    host.gamma(0, np.ones(3))
    from scirocco.diffusions.host import _kernels, _random

    assert _random._digest() in _kernels.gamma_blocks.py_func.__qualname__
