"""Compiled Gibbs sweeps over the documents of a batch, with the topics fixed.

A token of word w in document d has topic k with probability proportional to (α_k + n_dk) ω_kw, n_dk counted without the
token. Two kernels draw from it. Both are given the documents `first` to `last` and release the interpreter's lock, so
that threads can share a batch; a document has a stream of random numbers of its own, and sums are integers, so who
takes which document changes nothing.

Sparse: Σ_k n_dk ω_kw runs over a list of the topics that the document has, Σ_k α_k ω_kw is the same for all tokens of a
word: its partial sums at every eighth topic are prepared once for the batch. Eight neighbours, in the list or among all
topics, are a block: a draw finds the block by the sums of blocks, then the topic in it.
Dense: partial sums of all K products, and a binary search.

Conditional probabilities are summed as whole multiples of 2⁻³², which keeps their sums independent of the order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy import uint64

from scirocco.diffusions.host._random import cached, called, stream, uniform

UNIT = 2.0**32  # of summed probabilities: 2³¹ tokens times sweeps fit in 64 bits with sign
_BLOCK, _SHIFT = 8, uint64(3)  # topics in a block of the sparse kernel
_REMEMBERED = 64  # sweeps of a document whose topics are kept, to be counted together
_IGNORED, _DRAWN, _EXPECTED = 0, 1, 2  # what is summed in a sweep: nothing, topics, or their probabilities
_BELOW = 1.0 - 1e-9  # nearer to 1 than any partial sum in single precision
_reordered = njit(
    nogil=True, error_model="numpy", fastmath={"reassoc", "contract"}
)  # sums may become vectors
_TINY = 1e-20  # rows below are scaled up, so that products with α stay in the range of single precision


def kept(function: Callable[..., Any]) -> Any:
    """`cached`, under a name that changes with this folder's compiled code: installed files may all have one date."""
    sources = sorted(Path(__file__).parent.glob("_*.py"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    function.__qualname__ += f"_{digest}"
    return cached(function)


@called
def blocks(num_topics: int) -> int:
    """How many blocks hold all topics."""
    return (num_topics + _BLOCK - 1) // _BLOCK


@kept
def first_bad(weights: Any) -> tuple[int, bool]:
    """The first row with an entry that is negative or not finite (-1: none), and whether rows need `scaled`."""
    small: Any = False
    for w in range(weights.shape[0]):
        bad, high = np.uint8(0), np.uint8(0)  # not booleans with `or`: these become vectors
        for k in range(weights.shape[1]):
            bad |= np.uint8(not 0.0 <= weights[w, k] < np.inf)
            high |= np.uint8(weights[w, k] >= _TINY)
        if bad:
            return w, False
        small |= not high
    return -1, small


@kept
def scaled(weights: Any) -> Any:
    """A copy in which tiny rows have the maximum 1, and rows of zeros are ones: such a word says nothing of topics."""
    out = weights.copy()
    for w in range(out.shape[0]):
        high = out[w].max()
        if high < _TINY:
            for k in range(out.shape[1]):
                out[w, k] = np.float64(weights[w, k]) / high if high > 0.0 else 1.0
    return out


@kept
def accumulate(weights: Any, alpha: Any, cumulative: Any, first: int, last: int) -> None:
    """Partial sums of α_k ω_kw after 0, 8, 16, ... topics, for the rows `first` to `last`; then infinities.

    The number of columns is 1 more than a multiple of 16, which lets whole vectors be compared.
    """
    num_blocks, single = blocks(alpha.size), alpha.astype(np.float32)
    terms = np.zeros(_BLOCK * num_blocks, np.float32)
    for w in range(first, last):
        for k in range(alpha.size):
            terms[uint64(k)] = single[uint64(k)] * weights[uint64(w), uint64(k)]
        total = 0.0
        cumulative[w] = np.inf
        cumulative[w, 0] = 0.0
        for block in range(num_blocks):
            part: Any = np.float32(0.0)
            for step in range(_BLOCK):
                part += terms[uint64(_BLOCK * block + step)]
            total += part
            cumulative[w, block + 1] = total


# Some things that cost more than the arithmetic if they are forgotten. Indices are unsigned: for signed ones numba must
# ask, at every access, whether they count from the end. No function with arrays as arguments is called for a token: its
# references are counted by atomic operations, even where the code is inlined. What is chosen at random is chosen by
# arithmetic, not by branches, of which every second one is mispredicted. And a sum that reads a list must not follow
# a store whose place in the list was drawn a moment ago: reading waits for the place, or is done twice.


@called
def _expect(w: Any, factor: float, weights: Any, held: Any, num: Any, slab: Any) -> None:
    """Add the part n_dk ω_kw of a token's conditional probabilities."""
    names, shares = held[0], held[1]
    for start in range(num):
        j = uint64(start)
        topic = uint64(names[j])
        slab[w, topic] += np.int64(shares[j] * weights[w, topic] * factor + 0.5)


@_reordered
def _sparse_sweep(
    tokens: Any, topics: Any, z: Any, held: Any, slab: Any, rest: Any, expected: bool, s0: Any, s1: Any
) -> tuple[Any, Any]:
    """One sweep over one document.

    `held` has slots for topics, in blocks: their names and their shares n_k, 0 in those not used; behind them all
    topics with α_k for a share. Then where in the list a topic is (if it is there), sums of blocks, and the length.

    A topic that was drawn enters the list one token late. Meanwhile it is a term of its own in the next token's
    conditional, so that the sum over the list can begin before the topic is known.
    """
    weights, _, cumulative = topics
    names, shares, place, sums, length = held
    num, last, size = uint64(length[0]), uint64(weights.shape[1] - 1), uint64(tokens.size)
    end = uint64(blocks(weights.shape[1]))
    columns, behind = uint64(cumulative.shape[1]), uint64(shares.size) - (end << _SHIFT)
    w, topic, fresh, used, mass, total = uint64(0), uint64(0), uint64(0), uint64(0), 0.0, 0.0
    i = uint64(0)
    while i <= size + uint64(1):
        if uint64(0) < i <= size:  # draw the topic of token i - 1, which has left the list
            single = np.float64(weights[w, fresh]) if i > uint64(1) else 0.0
            s0, s1, u = uniform(s0, s1)
            x = u * (mass + single + total)
            above = x - (mass + single)
            if x < mass:
                block = uint64(0)
                for start in range(used):
                    block += uint64(sums[uint64(start) + uint64(1)] <= x)
                j, y = block << _SHIFT, np.float32(x - sums[block])
            else:
                below, found = np.float32(above), np.uint32(0)
                for start in range(uint64(1), columns):
                    found += np.uint32(cumulative[w, uint64(start)] <= below)
                block = min(uint64(found), end - uint64(1))
                j, y = behind + (block << _SHIFT), below - cumulative[w, block]
            # Partial sums in a tree; a term of 0 adds nothing, so it is never the first above y.
            p0 = shares[j] * weights[w, uint64(names[j])]
            p1 = shares[j + uint64(1)] * weights[w, uint64(names[j + uint64(1)])]
            p2 = shares[j + uint64(2)] * weights[w, uint64(names[j + uint64(2)])]
            p3 = shares[j + uint64(3)] * weights[w, uint64(names[j + uint64(3)])]
            p4 = shares[j + uint64(4)] * weights[w, uint64(names[j + uint64(4)])]
            p5 = shares[j + uint64(5)] * weights[w, uint64(names[j + uint64(5)])]
            p6 = shares[j + uint64(6)] * weights[w, uint64(names[j + uint64(6)])]
            p1, p3, p5 = p0 + p1, p2 + p3, p4 + p5
            p2, p3, p6 = p1 + p2, p1 + p3, p5 + p6
            p4, p5, p6 = p3 + p4, p3 + p5, p3 + p6
            slot = j + uint64(p0 <= y) + uint64(p1 <= y) + uint64(p2 <= y) + uint64(p3 <= y)
            slot += uint64(p4 <= y) + uint64(p5 <= y) + uint64(p6 <= y)
            topic = uint64(names[slot])
            if shares[slot] * weights[w, topic] <= 0.0:  # y was rounded up beyond the block: its largest term
                best = np.float32(0.0)
                for start in range(_BLOCK):
                    other = uint64(names[j + uint64(start)])
                    if shares[j + uint64(start)] * weights[w, other] > best:
                        best, topic = shares[j + uint64(start)] * weights[w, other], other
            topic = fresh if (x >= mass) & (above < 0.0) else topic
            z[i - uint64(1)] = topic
            if expected:
                factor = UNIT / (mass + single + total)
                _expect(w, factor, weights, held, num, slab)
                slab[w, fresh] += np.int64(single * factor + 0.5)
                rest[w] += np.int64(total * factor + 0.5)
        if i > uint64(1):  # token i - 2 enters the list
            j = uint64(place[fresh])
            there = (j < num) & (uint64(names[j]) == fresh)
            j = j if there else num
            num = num if there else num + uint64(1)
            names[j], place[fresh] = fresh, j
            shares[j] += np.float32(1.0)
        fresh = topic
        if (
            i < size
        ):  # token i leaves it, if it has a topic; the last topic takes the place of one that has gone
            w, topic = uint64(tokens[i]), uint64(z[i])
            if topic <= last:
                j = uint64(place[topic])
                share = shares[j] - np.float32(1.0)
                gone = share == 0.0
                num = num - uint64(1) if gone else num
                share = shares[num] if gone else share
                name = uint64(names[num if gone else j])
                names[j], place[name], shares[j] = name, j, share
                shares[num] = 0.0
            used, mass = (num + uint64(_BLOCK - 1)) >> _SHIFT, 0.0
            for start in range(used):
                part: Any = np.float32(0.0)
                for step in range(_BLOCK):
                    j = (uint64(start) << _SHIFT) + uint64(step)
                    part += shares[j] * weights[w, uint64(names[j])]
                mass += part
                sums[uint64(start) + uint64(1)] = mass
            total = np.float64(cumulative[w, end])
        i += uint64(1)
    length[0] = num
    return s0, s1


@called
def _listed(z: Any, held: Any, room: int) -> None:
    """The list for the topics `z`, in `room` slots; tokens without a topic are left out."""
    names, shares, place, _, length = held
    shares[:room] = 0.0
    num = 0
    for i in range(z.size):
        topic = uint64(z[i])
        if topic < uint64(place.size):
            j: Any = np.int64(place[topic])
            if j >= num or names[j] != topic:
                j = num
                num += 1
            names[j], place[topic] = topic, j
            shares[j] += np.float32(1.0)
    length[0] = num


@called
def _tally(tokens: Any, drawn: Any, num: int, slab: Any, mixes: Any, plan: Any) -> None:
    """Add `num` sweeps' topics of a document, word by word: the lines of a row of the slab come to the cache once."""
    _, _, expected, keep = plan
    for i in range(tokens.size):
        w = uint64(tokens[i])
        for sweep in range(num):
            topic = uint64(drawn[uint64(sweep), uint64(i)])
            if not expected:
                slab[w, topic] += 1
            if keep:
                mixes[topic] += 1.0


@kept
def sparse_documents(
    texts: Any,
    topics: Any,
    z: Any,
    plan: Any,
    slab: Any,
    rest: Any,
    mixes: Any,
    seed: Any,
    first: int,
    last: int,
) -> None:
    """Sweeps over some documents; `plan` is (sweeps, burn-in, expectations?, keep topics of documents?)."""
    indptr, tokens, documents = texts
    sweeps, burn_in, expected, keep = plan
    num_topics = topics[0].shape[1]
    room = _BLOCK * (blocks(num_topics) + 1)
    names = np.zeros(room + _BLOCK * blocks(num_topics), np.uint32)
    shares = np.zeros(names.size, np.float32)
    for k in range(num_topics):
        names[room + k], shares[room + k] = k, topics[1][k]
    held = names, shares, np.zeros(num_topics, np.uint32), np.zeros(room // _BLOCK + 1), np.zeros(1, np.int64)
    longest = 0
    for d in range(first, last):
        longest = max(longest, indptr[d + 1] - indptr[d])
    drawn, num = np.empty((min(sweeps - burn_in, _REMEMBERED), longest), np.uint32), 0
    for d in range(first, last):
        text, state = tokens[indptr[d] : indptr[d + 1]], z[indptr[d] : indptr[d + 1]]
        _listed(state, held, room)
        s0, s1 = stream(seed[0], seed[1], uint64(documents[d]))
        for sweep in range(sweeps):
            s0, s1 = _sparse_sweep(
                text, topics, state, held, slab, rest, expected and sweep >= burn_in, s0, s1
            )
            if sweep >= burn_in and (keep or not expected):
                for i in range(state.size):
                    drawn[num, i] = state[i]
                num += 1
                if num == drawn.shape[0] or sweep == sweeps - 1:
                    _tally(text, drawn, num, slab, mixes[d if keep else 0], plan)
                    num = 0


@called
def _count(z: Any, counts: Any) -> None:
    """How many tokens have each topic; those without one are left out."""
    counts[:] = 0.0
    for i in range(z.size):
        topic = uint64(z[i])
        if topic < uint64(counts.size):
            counts[topic] += 1.0


@called
def _dense_sweep(
    tokens: Any, topics: Any, z: Any, counts: Any, partial: Any, slab: Any, mode: int, s0: Any, s1: Any
) -> tuple[Any, Any]:
    """One sweep over one document, with all K products for every token."""
    weights, alpha = topics
    last = uint64(weights.shape[1] - 1)
    for i in range(tokens.size):
        w, topic = uint64(tokens[i]), uint64(z[i])
        if topic <= last:  # else the token is placed for the first time
            counts[topic] -= 1.0
        total = 0.0
        for k in range(weights.shape[1]):
            total += (alpha[uint64(k)] + counts[uint64(k)]) * weights[w, uint64(k)]
            partial[uint64(k)] = total
        s0, s1, u = uniform(s0, s1)
        x, topic, span = min(u * total, total * _BELOW), uint64(0), last + uint64(1)
        while span > uint64(1):
            half = span >> uint64(1)
            topic = topic + half if partial[topic + half - uint64(1)] <= x else topic
            span -= half
        z[i] = topic
        counts[topic] += 1.0
        if mode == _DRAWN:
            slab[w, topic] += 1
        elif mode == _EXPECTED:
            factor, before = UNIT / total, 0.0
            for k in range(weights.shape[1]):
                slab[w, uint64(k)] += np.int64((partial[uint64(k)] - before) * factor + 0.5)
                before = partial[uint64(k)]
    return s0, s1


@kept
def dense_documents(
    texts: Any,
    topics: Any,
    z: Any,
    plan: Any,
    slab: Any,
    rest: Any,
    mixes: Any,
    seed: Any,
    first: int,
    last: int,
) -> None:
    """Sweeps over some documents with all K products; arguments as above, but `topics` is (ω, α), `rest` unused."""
    indptr, tokens, documents = texts
    sweeps, burn_in, expected, keep = plan
    counts, partial = np.empty(topics[1].size), np.empty(topics[1].size)
    for d in range(first, last):
        begin, end = indptr[d], indptr[d + 1]
        _count(z[begin:end], counts)
        s0, s1 = stream(seed[0], seed[1], uint64(documents[d]))
        for sweep in range(sweeps):
            mode = _IGNORED if sweep < burn_in else _EXPECTED if expected else _DRAWN
            s0, s1 = _dense_sweep(
                tokens[begin:end], topics, z[begin:end], counts, partial, slab, mode, s0, s1
            )
            if keep and sweep >= burn_in:
                for k in range(counts.size):
                    mixes[d, k] += counts[k]


@kept
def spread(slab: Any, rest: Any, topics: Any, factor: float, out: Any, first: int, last: int) -> None:
    """Sums to means: `factor` times the slab and, where there is a `rest`, its share by α_k ω_kw."""
    weights, alpha, cumulative = topics
    for w in range(first, last):
        share = rest[w] / np.float64(cumulative[w, blocks(slab.shape[1])]) if rest.size else 0.0
        for k in range(slab.shape[1]):
            out[w, k] = (slab[w, k] + share * alpha[k] * weights[w, k]) * factor
