"""What the fuzz tests share: how much is tried, what counts as a good answer, odd values, and damage to files.

SCIROCCO_TEST_FUZZ multiplies the number of examples (1 if not set); SCIROCCO_TEST_SEED picks them, so that a failure
can be repeated.
"""

from __future__ import annotations

import contextlib
import copy
import decimal
import fractions
import json
import os
import shutil
import signal
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

hypothesis = pytest.importorskip("hypothesis", reason="fuzz tests need hypothesis (the extra `dev`)")

from hypothesis import given  # noqa: E402, F401
from hypothesis import strategies as st  # noqa: E402

from scirocco.errors import SciroccoError  # noqa: E402

FACTOR = float(os.environ.get("SCIROCCO_TEST_FUZZ", "1"))
_CPU_SECONDS, _WALL_SECONDS = 20.0, 300.0  # the first call of a kind compiles, on a machine that may be busy


def examples(number):
    """A decorator: the test tries that many examples (times SCIROCCO_TEST_FUZZ), always the same ones for a seed."""
    settings = hypothesis.settings(
        max_examples=max(1, round(number * FACTOR)),
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate, hypothesis.Phase.shrink],
    )
    seed = hypothesis.seed(int(os.environ.get("SCIROCCO_TEST_SEED", "0")))
    return lambda test: settings(seed(test))


class Hang(BaseException):
    """Not caught by `except Exception`."""


def _stop(number, frame):
    raise Hang


@contextlib.contextmanager
def refused_or_done(*allowed):
    """The block ends well, or with an error of the library that is a sentence; other errors and hangs pass through.

    Yields a list, which then contains the error, if any.
    """
    timed = hasattr(signal, "SIGPROF")
    caught = []
    if timed:
        before = [signal.signal(which, _stop) for which in (signal.SIGPROF, signal.SIGALRM)]
        signal.setitimer(signal.ITIMER_PROF, _CPU_SECONDS)
        signal.setitimer(signal.ITIMER_REAL, _WALL_SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield caught
    except SciroccoError as error:
        caught.append(error)
        assert len(str(error).split()) >= 3, f"{error!r} is no sentence"
    except allowed as error:
        caught.append(error)
    except Hang:
        raise AssertionError(f"the call took more than {_CPU_SECONDS} s of CPU time, or hangs") from None
    finally:
        if timed:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGPROF, before[0])
            signal.signal(signal.SIGALRM, before[1])


def finite(tree):
    """No NaN and no infinity in any array."""
    for leaf in jax.tree.leaves(tree):
        array = np.asarray(leaf)
        assert array.dtype.kind != "f" or np.all(np.isfinite(array)), "a draw is NaN or infinite"


_NUMBERS = [-1, 0, 1, 2, 3, 7, 2**31 - 1, 2**31, 2**32, 2**63, 10**20, -(10**20), 0.0, 2.0, 2.5, -0.5]  # fmt: skip
_NUMBERS += [1e-320, 1e300, float("nan"), float("inf"), -float("inf"), 1j, np.float32(3), np.int64(5), np.uint8(3)]
_NUMBERS += [np.array(2), np.array([1, 2]), np.array([]), jnp.array(2), jnp.array([0.1, 0.2]), np.datetime64("2020")]
_NUMBERS += [np.ma.masked, pd.NA, pd.NaT, decimal.Decimal("1.5"), fractions.Fraction(1, 3), True, False, None]
_NUMBERS += [np.bool_(True)]
_WORDS = ["", "auto", "a", "1", "nan", "scir", "\0", "\udcff", "ü" * 300, b"bytes", "../..", "/dev/null", Path("x")]
_THINGS = [[], [1], (), (1, 2), {}, {"a": 1}, {1: 2}, {"a": None}, set(), range(3), object(), type, len, print]
_THINGS += [iter([1]), pd.DataFrame({"a": [1.0]}), sp.csr_array(np.eye(2)), np.array(["a", None], object)]
_THINGS += [Ellipsis]

ODD = st.sampled_from(_NUMBERS + _WORDS + _THINGS)
"""Any value, for any argument."""

_SPECIAL = ["f4", "<f8", "O", "V8", "../x", "/etc/passwd", "posterior", "float99", -1, 0, 1, 2**31, 1e400]
JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(),
        st.text(max_size=8),
        st.sampled_from(_SPECIAL),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=4,
)


# -- arrays -----------------------------------------------------------------------------------------------------------

_DTYPES = ["f4", "f8", "f2", "i4", "i8", "u1", "?", "c8", ">f4", ">i8", "O", "U3", "S2", "M8[D]", "m8[s]", "V3"]
_DTYPES += ["f4,i4"]
_KINDS = ["list", "masked", "frame", "series", "sparse", "jax", "F", "strided", "0d"]


@st.composite
def arrays(draw, rows=(0, 1, 2, 20), row_shapes=((), (3,), (1,), (0,), (2, 2))):
    """An array of any dtype, with special values in some places; now and then not an array, or one of another kind."""
    shape = (draw(st.sampled_from(rows)), *draw(st.sampled_from(row_shapes)))
    dtype = np.dtype(draw(st.sampled_from(["f4", "f4", "f4", "f8", *_DTYPES])))
    values = np.random.default_rng(draw(st.integers(0, 5))).normal(size=shape)
    try:
        array = values.astype(dtype)
    except (TypeError, ValueError):
        array = np.zeros(shape, dtype)
    if array.size and dtype.kind in "fciO" and draw(st.integers(0, 3)) == 0:
        special = draw(st.sampled_from([np.nan, np.inf, -np.inf, 1e30, -1e30, 1e-40, 0, 2**31 - 1, -1]))
        with contextlib.suppress(OverflowError, ValueError), np.errstate(all="ignore"):
            array.flat[draw(st.integers(0, array.size - 1))] = special
    wrap = draw(st.sampled_from([None] * 12 + _KINDS))
    with contextlib.suppress(Exception):
        if wrap == "list":
            return array.tolist()
        if wrap == "masked":
            return np.ma.array(array, mask=np.arange(array.size).reshape(shape) % 3 == 0)
        if wrap == "frame":
            return pd.DataFrame(array)
        if wrap == "series":
            return pd.Series(array)
        if wrap == "sparse":
            return draw(st.sampled_from([sp.csr_array, sp.coo_array, sp.csc_matrix]))(array)
        if wrap == "jax":
            return jnp.asarray(array)
        if wrap == "F":
            return np.asfortranarray(array)
        if wrap == "strided":
            return np.repeat(array, 2, axis=0)[::-2]
        if wrap == "0d":
            return array.reshape(-1)[:1].reshape(())
    return array


class Broken(sp.csr_array):
    """SciPy cannot show all of them."""

    def __repr__(self):
        return f"csr({self.indptr!r}, {self.indices!r}, {self.data!r})"


@st.composite
def broken_csr(draw, shape=(20, 6)):
    """A sparse matrix one of whose three arrays was changed afterwards; SciPy itself crashes on some."""
    matrix = Broken(np.random.default_rng(0).poisson(1.0, shape).astype(float))
    part = draw(st.sampled_from(["indptr", "indices", "data"]))
    array = getattr(matrix, part).copy()
    kind = draw(st.sampled_from(["value", "short", "long", "dtype", "empty", "2d"]))
    if kind == "value":
        value = draw(st.sampled_from([-1, 0, 5, 6, 7, 10**6, 2**31 - 1, -(2**31)]))
        array[draw(st.integers(0, len(array) - 1))] = value
    elif kind == "short":
        array = array[: draw(st.integers(0, len(array)))]
    elif kind == "long":
        array = np.append(array, array[-1:])
    elif kind == "dtype":
        array = array.astype(draw(st.sampled_from(["f8", "i8", "u1", "O", "U3", "?"])))
    elif kind == "empty":
        array = array[:0]
    else:
        array = array[:, None]
    setattr(matrix, part, array)
    return matrix


# -- files ------------------------------------------------------------------------------------------------------------


class Folder:
    """The files of a folder, and damaged copies of it."""

    def __init__(self, path):
        self.path = Path(path)
        self.files = sorted(
            str(file.relative_to(path))
            for file in self.path.rglob("*")
            if file.is_file() and file.name not in ("lock", "wanted.npy")
        )

    def damaged(self, where, data, kinds):
        """A copy of the folder in `where` with a random change of one file; returns what was done."""
        where = Path(where)
        shutil.rmtree(where, ignore_errors=True)
        shutil.copytree(self.path, where)
        name = data.draw(st.sampled_from(self.files), label="file")
        kind = data.draw(st.sampled_from(kinds), label="damage")
        file = where / name
        raw = file.read_bytes()
        if kind == "missing":
            file.unlink()
        elif kind == "folder":
            file.unlink()
            file.mkdir()
        elif kind == "cut":
            file.write_bytes(raw[: data.draw(st.integers(0, len(raw)), label="length")])
        elif kind == "grown":
            file.write_bytes(raw + data.draw(st.binary(min_size=1, max_size=9), label="more"))
        elif kind == "flip":
            place = data.draw(st.integers(0, max(0, len(raw) - 1)), label="byte")
            mask = data.draw(st.integers(1, 255), label="bits")
            file.write_bytes(raw[:place] + bytes([raw[place] ^ mask]) + raw[place + 1 :] if raw else b"\0")
        elif kind == "noise":
            file.write_bytes(data.draw(st.binary(max_size=40), label="content"))
        elif kind == "swapped":
            other = where / data.draw(st.sampled_from(self.files), label="other")
            file.write_bytes(other.read_bytes())
            other.write_bytes(raw)
        elif kind == "value":  # by someone who knows the format
            change_document(file, data)
        return name, kind


DAMAGES = ["missing", "folder", "cut", "grown", "flip", "noise", "swapped", "value"]


def change_document(file, data):
    """Replace one value somewhere inside a JSON document, and make its checksum anew."""
    from scirocco.store import files

    try:
        document = json.loads(file.read_bytes())
    except (ValueError, UnicodeDecodeError):
        return
    checked = isinstance(document, dict) and set(document) == {"crc32", "content"}
    content = copy.deepcopy(document["content"] if checked else document)
    if not isinstance(content, (dict, list)) or not content:
        return
    node = content
    while True:
        keys = sorted(node) if isinstance(node, dict) else range(len(node))
        key = data.draw(st.sampled_from(list(keys)), label="key")
        deeper = node[key] if isinstance(node[key], (dict, list)) and node[key] else None
        if deeper is None or data.draw(st.integers(0, 3), label="here") == 0:
            break
        node = deeper
    what = data.draw(st.sampled_from(["replace", "replace", "remove", "add"]), label="change")
    if what == "remove":
        del node[key]
    elif what == "add" and isinstance(node, dict):
        node[data.draw(st.text(max_size=4), label="new key")] = data.draw(JSON, label="value")
    else:
        node[key] = data.draw(JSON, label="value")
    if checked:
        files.write_document(str(file), content)
    else:
        file.write_text(json.dumps(content))
