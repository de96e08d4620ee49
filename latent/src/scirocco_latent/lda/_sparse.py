"""The sparse kernel: Gibbs sweeps whose cost grows with the number of topics in a document, not with K.

In the sum of the probabilities (α_k + n_dk) ω_kw, the part Σ_k n_dk ω_kw runs over a list of the topics in the
document. The part Σ_k α_k ω_kw is the same for all tokens of a word: its partial sums at every eighth topic are
computed once per batch. Eight neighbours, in the list or among all topics, form a block: a draw first finds the block
by the sums of blocks, then the topic in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy import uint64

from scirocco.diffusions.host._random import called, stream, uniform
from scirocco_latent.lda._gibbs import BLOCK, Arrays, Seed, blocks, kept

Array = np.ndarray

_SHIFT = uint64(3)  # BLOCK = 2³
_REMEMBERED = 64  # sweeps of a document whose topics are buffered and counted together
# allows vectorised sums
_reordered = njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})


@kept
def accumulate(weights: Array, alpha: Array, cumulative: Array, first: int, last: int) -> None:
    """Partial sums of α_k ω_kw after 0, 8, 16, ... topics, for the rows `first` to `last`; padded with inf.

    The number of columns is 1 more than a multiple of 16, so that whole vectors can be compared.
    """
    num_blocks, single = blocks(alpha.size), alpha.astype(np.float32)
    terms = np.zeros(BLOCK * num_blocks, np.float32)
    for w in range(first, last):
        for k in range(alpha.size):
            terms[uint64(k)] = single[uint64(k)] * weights[uint64(w), uint64(k)]
        total = 0.0
        cumulative[w] = np.inf
        cumulative[w, 0] = 0.0
        for block in range(num_blocks):
            part: Any = np.float32(0.0)
            for step in range(BLOCK):
                part += terms[uint64(BLOCK * block + step)]
            total += part
            cumulative[w, block + 1] = total


# Performance notes; each of these costs more than the arithmetic. Indices are unsigned: with signed ones numba checks
# at every access whether they count from the end. No function with array arguments is called per token: reference
# counts are updated by atomic operations, even in inlined code. Blocks, and topics in them, are found by summing
# comparisons: branches on random numbers are often mispredicted, so there is only one per token, between the list and
# all topics. A sum over a list must not follow a store to a position that was only just drawn: the load waits for the
# store, or is repeated.


@_reordered
def _sparse_sweep(tokens: Array, topics: Arrays, z: Array, held: Arrays, s0: uint64, s1: uint64) -> tuple[Any, Any]:
    """One sweep over one document.

    `held` has slots for topics, in blocks: their names and their shares n_k, 0 in unused slots; after them all
    topics with α_k as share. Then the position of each topic in the list (if any), sums of blocks, and the length.

    A drawn topic enters the list one token late. Until then it is a separate term in the next token's conditional, so
    that the sum over the list can start before the topic is known.
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
            # Partial sums in a tree; a term of 0 is never the first above y.
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
                for start in range(BLOCK):
                    other = uint64(names[j + uint64(start)])
                    if shares[j + uint64(start)] * weights[w, other] > best:
                        best, topic = shares[j + uint64(start)] * weights[w, other], other
            topic = fresh if (x >= mass) & (above < 0.0) else topic
            z[i - uint64(1)] = topic
        if i > uint64(1):  # token i - 2 enters the list
            j = uint64(place[fresh])
            there = (j < num) & (uint64(names[j]) == fresh)
            j = j if there else num
            num = num if there else num + uint64(1)
            names[j], place[fresh] = fresh, j
            shares[j] += np.float32(1.0)
        fresh = topic
        # token i leaves it, if it has a topic; the last topic fills the place of a removed one
        if i < size:
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
            used, mass = (num + uint64(BLOCK - 1)) >> _SHIFT, 0.0
            for start in range(used):
                part: Any = np.float32(0.0)
                for step in range(BLOCK):
                    j = (uint64(start) << _SHIFT) + uint64(step)
                    part += shares[j] * weights[w, uint64(names[j])]
                mass += part
                sums[uint64(start) + uint64(1)] = mass
            total = np.float64(cumulative[w, end])
        i += uint64(1)
    length[0] = num
    return s0, s1


@called
def _listed(z: Array, held: Arrays, room: int) -> None:
    """Build the list for the topics `z`, in `room` slots; tokens without a topic are skipped."""
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
def _tally(tokens: Array, drawn: Array, num: int, slab: Array, mixes: Array, keep: bool) -> None:
    """Add the topics of `num` sweeps of a document, word by word: each row of the slab enters the cache once."""
    for i in range(tokens.size):
        w = uint64(tokens[i])
        for sweep in range(num):
            topic = uint64(drawn[uint64(sweep), uint64(i)])
            slab[w, topic] += 1
            if keep:
                mixes[topic] += 1.0


@kept
def sparse_documents(
    texts: Arrays,
    topics: Arrays,
    z: Array,
    plan: tuple[int, int, bool],
    slab: Array,
    mixes: Array,
    seed: Seed,
    first: int,
    last: int,
) -> None:
    """Sweep over some documents; `plan` is (sweeps, burn-in, keep topics of documents?)."""
    indptr, tokens, documents = texts
    sweeps, burn_in, keep = plan
    num_topics = topics[0].shape[1]
    room = BLOCK * (blocks(num_topics) + 1)
    names = np.zeros(room + BLOCK * blocks(num_topics), np.uint32)
    shares = np.zeros(names.size, np.float32)
    for k in range(num_topics):
        names[room + k], shares[room + k] = k, topics[1][k]
    held = names, shares, np.zeros(num_topics, np.uint32), np.zeros(room // BLOCK + 1), np.zeros(1, np.int64)
    longest = 0
    for d in range(first, last):
        longest = max(longest, indptr[d + 1] - indptr[d])
    drawn, num = np.empty((min(sweeps - burn_in, _REMEMBERED), longest), np.uint32), 0
    for d in range(first, last):
        text, state = tokens[indptr[d] : indptr[d + 1]], z[indptr[d] : indptr[d + 1]]
        _listed(state, held, room)
        s0, s1 = stream(seed[0], seed[1], uint64(documents[d]))
        for sweep in range(sweeps):
            s0, s1 = _sparse_sweep(text, topics, state, held, s0, s1)
            if sweep >= burn_in:
                for i in range(state.size):
                    drawn[num, i] = state[i]
                num += 1
                if num == drawn.shape[0] or sweep == sweeps - 1:
                    _tally(text, drawn, num, slab, mixes[d if keep else 0], keep)
                    num = 0
