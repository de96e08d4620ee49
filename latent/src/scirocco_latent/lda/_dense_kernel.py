"""Compiled collapsed Gibbs sweeps that compute the probabilities of all topics of a token, as vectors.

For up to some hundred topics this is faster than lists of the topics of a document, and each draw is exact. A vector
has `LANES` topics; arrays are padded to a multiple of it, with topics of weight 0. Weights are in single precision, the
sums of the lanes in double precision, so that a topic of small weight keeps its probability.

The functions of vectors are written in LLVM's language, because Numba's loops are vectorised only in part. LLVM maps a
vector to the registers of the processor. No operation is reordered, so the draws are the same on all processors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy import uint64

from scirocco.diffusions.host._random import called, stream, uniform
from scirocco_latent.lda._gibbs import Arrays, Seed, kept
from scirocco_latent.lda.word_groups import LANES

Array = np.ndarray

_INT, _LONG, _DOUBLE = ir.IntType(32), ir.IntType(64), ir.DoubleType()  # types of the generated code
# vectors of them
_SINGLES, _DOUBLES, _INTS = (ir.VectorType(kind, LANES) for kind in (ir.FloatType(), _DOUBLE, _INT))
_ZEROS = ir.Constant(_DOUBLES, [0.0] * LANES)  # the first sums

Code = tuple[Any, Callable[..., Any]]


def _vectorised(function: Callable[..., Code]) -> Any:
    """A function for compiled code that writes LLVM's language."""
    return intrinsic(function)


def _all(build: Any, kind: Any, value: Any) -> Any:
    """A vector with the same value in all lanes."""
    nothing = ir.Constant(kind, ir.Undefined)
    first = build.insert_element(nothing, value, ir.Constant(_INT, 0))
    return build.shuffle_vector(first, nothing, ir.Constant(_INTS, [0] * LANES))


def _load(build: Any, kind: Any, place: Any) -> Any:
    """A vector from memory, which is aligned as its elements are."""
    value = build.load(build.bitcast(place, kind.as_pointer()))
    value.align = 8 if kind is _DOUBLES else 4
    return value


def _store(build: Any, value: Any, place: Any) -> None:
    stored = build.store(value, build.bitcast(place, value.type.as_pointer()))
    stored.align = 8 if value.type is _DOUBLES else 4


def _sum(build: Any, value: Any) -> Any:
    """The sum of the lanes, by halves."""
    width = LANES
    while width > 1:
        width //= 2
        places = [ir.Constant(ir.VectorType(_INT, width), list(range(b, b + width))) for b in (0, width)]
        value = build.fadd(*(build.shuffle_vector(value, value, place) for place in places))
    return build.extract_element(value, ir.Constant(_INT, 0))


@_vectorised
def _weigh(_context: Any, scale: Any, table: Any, start: Any, width: Any, beta: Any, weights: Any, lanes: Any) -> Code:
    """Set `weights` to (β + n_wk) scale_k, where n_wk begins at `start` of the table; return their sum.

    `lanes` are set to the sums of the lanes: topics 0, 16, 32, ..., topics 1, 17, 33, ... and so on.
    """
    kinds = (types.uint64, types.uint64, types.float32)
    signature = types.float64(scale, table, *kinds, weights, lanes)

    def write(context: Any, build: Any, signature: Any, given: Any) -> Any:
        scale, table, weights, lanes = (
            context.make_array(signature.args[i])(context, build, given[i]).data for i in (0, 1, 5, 6)
        )
        start, width, beta = given[2:5]
        row, prior = build.gep(table, [start]), _all(build, _SINGLES, beta)
        before, loop, after = build.block, build.append_basic_block(), build.append_basic_block()
        build.branch(loop)
        build.position_at_end(loop)
        k, sums = build.phi(_LONG), build.phi(_DOUBLES)
        count = build.sitofp(_load(build, _INTS, build.gep(row, [k])), _SINGLES)
        weight = build.fmul(build.fadd(count, prior), _load(build, _SINGLES, build.gep(scale, [k])))
        _store(build, weight, build.gep(weights, [k]))
        total, following = (build.fadd(sums, build.fpext(weight, _DOUBLES)), build.add(k, ir.Constant(_LONG, LANES)))
        for value, first, later in ((k, ir.Constant(_LONG, 0), following), (sums, _ZEROS, total)):
            value.add_incoming(first, before)
            value.add_incoming(later, loop)
        build.cbranch(build.icmp_unsigned("<", following, width), loop, after)
        build.position_at_end(after)
        _store(build, total, lanes)
        return _sum(build, total)

    return signature, write


@_vectorised
def _find_lane(_context: Any, lanes: Any, lane: Any, less: Any, x: Any) -> Code:
    """The first lane whose partial sum is above x, and x less the sum before it; `less` is taken off one lane."""
    pair = types.Tuple((types.uint64, types.float64))
    signature = pair(lanes, types.uint64, types.float64, types.float64)

    def write(context: Any, build: Any, signature: Any, given: Any) -> Any:
        lanes = context.make_array(signature.args[0])(context, build, given[0]).data
        lane, less, x = given[1:]
        numbers = ir.Constant(_INTS, list(range(LANES)))
        here = build.icmp_unsigned("==", _all(build, _INTS, build.trunc(lane, _INT)), numbers)
        sums = build.fsub(_load(build, _DOUBLES, lanes), build.select(here, _all(build, _DOUBLES, less), _ZEROS))
        for shift in (1, 2, 4, 8):
            sums = build.fadd(sums, _shifted(build, sums, shift))
        below = build.bitcast(build.fcmp_ordered("<=", sums, _all(build, _DOUBLES, x)), ir.IntType(LANES))
        found = build.zext(build.ctpop(below), _INT)
        rest = build.fsub(x, build.extract_element(_shifted(build, sums, 1), found))
        return context.make_tuple(build, signature.return_type, [build.zext(found, _LONG), rest])

    return signature, write


def _shifted(build: Any, value: Any, by: int) -> Any:
    """Lanes moved up, zeros moved in."""
    places = [lane - by if lane >= by else LANES for lane in range(LANES)]
    return build.shuffle_vector(value, _ZEROS, ir.Constant(_INTS, places))


@called
def _search(weights: Array, lane: uint64, x: float, last: uint64) -> uint64:
    """The first topic of a lane whose partial sum is above x; `last` + 1 if there is no topic of positive weight."""
    topic, k, total, width = lane, lane + uint64(LANES), 0.0, uint64(weights.size)
    while k < width:
        total += weights[k - uint64(LANES)]
        topic = topic + uint64(LANES) if x >= total else topic
        k += uint64(LANES)
    if topic <= last and weights[topic] > np.float32(0.0):
        return topic
    for back in range(last + uint64(1)):  # x was rounded up to the very end: the last topic that is possible
        if weights[last - uint64(back)] > np.float32(0.0):
            return last - uint64(back)
    return last + uint64(1)


@kept
def dense_documents(
    block: tuple[int, int, int, int, uint64],
    rows: Arrays,
    z: Array,
    counts: Array,
    table: Array,
    totals: Array,
    masses: Array,
    prior: float,
    alpha: Array,
    beta: float,
    sweeps: int,
    seed: Seed,
) -> int:
    """Sweep over the tokens of some documents whose words are in one group; return how many have changed topic.

    Parameters
    ----------
    block
        First and last document of the batch (exclusive), number of the group, first entry, number of the random stream.
    rows
        The entries of the batch, see `_collapsed_kernel.arrange`.
    z
        Topic of each token of the corpus; -1: none yet.
    counts
        n_dk of the documents of the batch, updated in place.
    table, totals
        n_wk, and its sums over the words of the group; both are updated in place.
    masses, prior
        Factor of each topic, and β times the number of words of the group.
    """
    first, stop, group, place_of_block, number = block
    sizes, words, repeats, starts = rows
    begin = uint64(place_of_block)
    last, width, single = uint64(alpha.size - 1), uint64(table.shape[1]), np.float32(beta)
    pad, inverse = np.zeros(width, np.float32), np.zeros(width, np.float32)
    for k in range(alpha.size):
        pad[k], inverse[k] = alpha[k], masses[k] / (prior + totals[k])
    scale, weights, lanes = np.zeros(width, np.float32), np.zeros(width, np.float32), np.zeros(LANES)
    s0, s1 = stream(seed[0], seed[1], number)
    moved = 0
    for d in range(first, stop):
        if sizes[group, d] == 0:
            continue
        inside, end = counts[d], begin + uint64(sizes[group, d])
        for k in range(width):
            scale[k] = (pad[k] + np.float32(inside[k])) * inverse[k]
        for _ in range(sweeps):
            for entry in range(begin, end):
                w, i = uint64(words[entry]), uint64(starts[entry])
                row = table[w]
                for _again in range(repeats[entry]):
                    old = uint64(z[i])
                    full, stay = 0.0, 0.0  # weight of the old topic, with the token and without it
                    if old <= last:
                        full = np.float64((np.float32(row[old]) + single) * scale[old])
                        stay = (alpha[old] + (inside[old] - 1)) * (beta + (row[old] - 1))
                        stay *= masses[old] / (prior + (totals[old] - 1))
                    others = _weigh(scale, table, w * width, width, single, weights, lanes) - full
                    s0, s1, u = uniform(s0, s1)
                    x = u * (others + stay)
                    if x >= stay:
                        if old <= last:
                            weights[old] = np.float32(0.0)
                        lane, x = _find_lane(lanes, old & uint64(LANES - 1), full, x - stay)
                        topic = _search(weights, lane, x, last)
                        if topic > last:  # no other topic has a positive weight
                            topic = old if old <= last else uint64(u * alpha.size)
                        if old <= last:
                            inside[old] -= 1
                            row[old] -= 1
                            totals[old] -= 1
                            inverse[old] = masses[old] / (prior + totals[old])
                            scale[old] = (pad[old] + np.float32(inside[old])) * inverse[old]
                        inside[topic] += 1
                        row[topic] += 1
                        totals[topic] += 1
                        inverse[topic] = masses[topic] / (prior + totals[topic])
                        scale[topic] = (pad[topic] + np.float32(inside[topic])) * inverse[topic]
                        z[i] = topic
                        moved += 1
                    i += uint64(1)
        begin = end
    return moved


@kept
def count_topics(z: Array, begins: Array, documents: Array, first: int, end: int, counts: Array) -> None:
    """Set n_dk of the documents first..end-1 of a batch."""
    for d in range(first, end):
        counts[d, :] = 0
        for i in range(begins[documents[d]], begins[documents[d] + 1]):
            topic = z[uint64(i)]
            if topic >= 0:
                counts[d, uint64(topic)] += 1
