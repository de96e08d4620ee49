"""Scalar random numbers for compiled code: a stream is two 64-bit words that the caller keeps in registers.

Every routine takes the words and returns the new ones before its value:

    s0, s1 = stream(seed0, seed1, counter)
    s0, s1, z = normal(s0, s1)

The generator is xoroshiro128++ (Blackman & Vigna 2021), of which all bits are good, so one word gives the layer, the
sign and the abscissa of a ziggurat (Marsaglia & Tsang 2000; 256 layers, 52 bits of abscissa). A stream is started by
hashing a seed of 128 bits and a counter: the draws then depend on them alone, not on which thread draws them or when.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numba.core.caching import IndexDataCacheFile
from numpy import uint64

_GOLDEN = uint64(0x9E3779B97F4A7C15)  # ⌊2⁶⁴/φ⌋, the increment of splitmix64
_OTHER = uint64(0xD1B54A32D192ED03)  # an odd number without pattern, for the second word
_UNIT = 2.0**-52  # of an integer abscissa
_LAYERS = 256  # of a ziggurat: one byte
_NORMAL_EDGE = 3.6541528853610088  # where the tail begins: makes 256 layers of equal area close at the mode
_EXPONENTIAL_EDGE = 7.697117470131050  # the same for exponential numbers

Table = np.ndarray[Any, np.dtype[Any]]


def _layers(edge: float, area: float, density: str) -> tuple[Table, Table, Table]:
    """Widths (times 2⁻⁵², for an integer abscissa), safe fractions and heights of the layers of a ziggurat.

    Layer 0 is the base strip with the tail, layer i > 0 spans the heights f(x_i) to f(x_{i+1}), x falling to 0.
    """
    x = np.zeros(_LAYERS + 1)
    normal = density == "normal"
    height = (lambda t: math.exp(-0.5 * t * t)) if normal else (lambda t: math.exp(-t))
    x[0], x[1] = area / height(edge), edge
    for i in range(2, _LAYERS):
        y = -math.log(height(x[i - 1]) + area / x[i - 1])
        x[i] = math.sqrt(2 * y) if normal else y
    inside = np.floor(x[1:] / x[:-1] * 2.0**52).astype(np.uint64)
    return x[:-1] * _UNIT, inside, np.array([height(t) for t in x])


# areas of a layer: that of the base strip, with the tail
_NORMAL_TAIL = math.sqrt(math.pi / 2) * math.erfc(_NORMAL_EDGE / math.sqrt(2))  # beyond the edge
_NORMAL_AREA = _NORMAL_EDGE * math.exp(-0.5 * _NORMAL_EDGE**2) + _NORMAL_TAIL  # of each layer
_NORMAL_WIDTH, _NORMAL_INSIDE, _NORMAL_HEIGHT = _layers(_NORMAL_EDGE, _NORMAL_AREA, "normal")
_EXPONENTIAL_AREA = (_EXPONENTIAL_EDGE + 1.0) * math.exp(-_EXPONENTIAL_EDGE)  # the same
_EXPONENTIAL_WIDTH, _EXPONENTIAL_INSIDE, _EXPONENTIAL_HEIGHT = _layers(
    _EXPONENTIAL_EDGE, _EXPONENTIAL_AREA, "exponential"
)


# Divisions by zero give inf, as in NumPy, instead of a check and an exception. `inlined` is for what is on the path of
# every number, `called` for the rest: both can be used in other compiled functions.
called = njit(nogil=True, error_model="numpy")
inlined = njit(nogil=True, error_model="numpy", forceinline=True)


def cached(function: Callable[..., Any]) -> Any:
    """Compile once, and cache on disk for later processes.

    Numba checks only the file of the outermost function to see whether its cache is out of date, and installed files
    may all have the same date. So the name in the cache includes a digest of everything in this folder.
    """
    function.__qualname__ += f"_{_digest()}"
    compiled: Any = njit(nogil=True, cache=True, error_model="numpy")(function)
    with contextlib.suppress(AttributeError):  # compiled code that is not kept has no files
        files = compiled._cache._cache_file
        if type(files) is IndexDataCacheFile:
            files.__class__ = Files
    return compiled


class Files(IndexDataCacheFile):
    """The files of a function: one for each combination of types, with a name of its own, written before it is listed.

    Numba numbers them, and lists a file before it writes it. Of two processes that compile the function for different
    types at the same time, both then take the same number, and a third one can load the code for other types.
    """

    def save(self, key: Any, data: Any) -> None:
        """Write a file and list it; what another process lists at the same moment is compiled again later."""
        name = self._data_name(int(hashlib.sha256(repr(key).encode()).hexdigest()[:12], 16))
        self._save_data(name, data)
        self._save_index(self._load_index() | {key: name})


def cached_for(*files: str) -> Callable[[Callable[..., Any]], Any]:
    """`cached` for the compiled code in the folders of `files`: the name includes digests of these folders too."""
    digest = "_".join(map(_digest, files))

    def keep(function: Callable[..., Any]) -> Any:
        function.__qualname__ += f"_{digest}"
        return cached(function)

    return keep


def _digest(file: str = __file__) -> str:
    sources = sorted(Path(file).parent.glob("_*.py"))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]


@called
def _mix(word: uint64) -> uint64:
    """The finaliser of splitmix64: a bijection of 64-bit words in which every bit depends on every bit."""
    word = (word ^ (word >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> uint64(27))) * uint64(0x94D049BB133111EB)
    return word ^ (word >> uint64(31))


@called
def stream(seed0: uint64, seed1: uint64, counter: uint64) -> tuple[uint64, uint64]:
    """The two words at which stream number `counter` of a seed starts.

    For one seed the first words differ for all counters; over seeds the pair is as good as 128 random bits, so that
    two streams of a length L among n overlap with probability below n²L/2¹²⁷.
    """
    first = _mix(seed0 + _GOLDEN)
    second = _mix(seed1 + _OTHER + first)
    first = _mix(first + second)
    s0 = _mix(first + _GOLDEN * counter)
    s1 = _mix(_mix(second ^ (_OTHER * counter)) + s0)
    return s0, s1 | uint64(1)  # the state must not be all zeros


@inlined
def word(s0: uint64, s1: uint64) -> tuple[uint64, uint64, uint64]:
    """64 random bits."""
    total = s0 + s1
    result = ((total << uint64(17)) | (total >> uint64(47))) + s0
    s1 ^= s0
    s0 = ((s0 << uint64(49)) | (s0 >> uint64(15))) ^ s1 ^ (s1 << uint64(21))
    s1 = (s1 << uint64(28)) | (s1 >> uint64(36))
    return s0, s1, result


@inlined
def uniform(s0: uint64, s1: uint64) -> tuple[uint64, uint64, float]:
    """A uniform number in the open interval (0, 1): odd multiples of 2⁻⁵³."""
    s0, s1, bits = word(s0, s1)
    return s0, s1, (np.int64(bits >> uint64(12)) + 0.5) * _UNIT


@called
def _normal_rare(s0: uint64, s1: uint64, layer: uint64, x: float) -> tuple[uint64, uint64, float, bool]:
    """The tail, or the wedge of a layer: (words, |z|, accepted)."""
    s0, s1, u = uniform(s0, s1)
    if layer == uint64(0):
        while True:  # Marsaglia's tail: x ~ exponential of rate r, kept with probability exp(-x²/2)
            s0, s1, v = uniform(s0, s1)
            x = -math.log(u) / _NORMAL_EDGE
            if -2.0 * math.log(v) >= x * x:
                return s0, s1, _NORMAL_EDGE + x, True
            s0, s1, u = uniform(s0, s1)
    low, high = _NORMAL_HEIGHT[layer], _NORMAL_HEIGHT[layer + uint64(1)]
    return s0, s1, x, low + u * (high - low) < math.exp(-0.5 * x * x)


@inlined
def normal(s0: uint64, s1: uint64) -> tuple[uint64, uint64, float]:
    """A standard normal number."""
    while True:
        s0, s1, bits = word(s0, s1)
        layer, abscissa = bits & uint64(255), bits >> uint64(12)
        x = np.int64(abscissa) * _NORMAL_WIDTH[layer]
        accepted = abscissa < _NORMAL_INSIDE[layer]
        if not accepted:
            s0, s1, x, accepted = _normal_rare(s0, s1, layer, x)
        if accepted:
            return s0, s1, (x if bits & uint64(256) else -x)


@called
def _exponential_rare(s0: uint64, s1: uint64, layer: uint64, x: float) -> tuple[uint64, uint64, float, bool]:
    """The tail, or the wedge of a layer: (words, x, accepted)."""
    s0, s1, u = uniform(s0, s1)
    if layer == uint64(0):
        return s0, s1, _EXPONENTIAL_EDGE - math.log(u), True
    low, high = _EXPONENTIAL_HEIGHT[layer], _EXPONENTIAL_HEIGHT[layer + uint64(1)]
    return s0, s1, x, low + u * (high - low) < math.exp(-x)


@inlined
def exponential(s0: uint64, s1: uint64) -> tuple[uint64, uint64, float]:
    """An exponential number of mean 1: minus the logarithm of a uniform one, without the logarithm."""
    while True:
        s0, s1, bits = word(s0, s1)
        layer, abscissa = bits & uint64(255), bits >> uint64(12)
        x = np.int64(abscissa) * _EXPONENTIAL_WIDTH[layer]
        accepted = abscissa < _EXPONENTIAL_INSIDE[layer]
        if not accepted:
            s0, s1, x, accepted = _exponential_rare(s0, s1, layer, x)
        if accepted:
            return s0, s1, x
