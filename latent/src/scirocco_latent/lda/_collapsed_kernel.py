"""Compiled code of chains with memory: collapsed Gibbs sweeps, and passes over the stored topics.

Collapsed Gibbs sampling has topics and mixtures integrated out, and one table of counts for the corpus.
A token of word w in document d has topic k with probability proportional to (α_k + n_dk) φ_wk, where
φ_wk = (β + n_wk) / (βV + n_k), all counted without the token. The part n_dk φ_wk runs over the topics of the document,
with the current counts. The part α_k φ_wk needs all topics: it is drawn by binary search in partial sums that are kept
for each word from an earlier visit, and a Metropolis-Hastings step corrects for their age.

In several threads: the words are in groups j, and S_jk = Σ_{w in j} ω_wk of all groups is drawn given the topics of all
tokens, (S_1k, S_2k, ...) ~ Dirichlet(βV_j + n_jk). Given S, a token of a word of group j has
φ_wk = S_jk (β + n_wk) / (βV_j + n_jk), where n_jk counts the tokens of these words. So tokens of different
documents and different groups of words are independent of each other, and the sampler is exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import uint64

from scirocco.diffusions.host._random import called, stream, uniform
from scirocco_latent.lda._gibbs import Arrays, Seed, kept

Array = np.ndarray

_VISITS = 2  # visits that partial sums serve, per token of the word and at most per topic
_BELOW = 1.0 - 1e-9  # nearer to 1 than any partial sum in single precision


@kept
def arrange(rows: Arrays, begins: Array, groups: Array, first: int, end: int, arranged: Arrays) -> None:
    """Sort the entries of the documents first..end-1 of a batch by the groups of their words, then by document.

    `rows` are as in `labelled_documents`. `arranged` is set: (number of entries (groups, documents), words, their
    counts, first token of each entry in the topics of the corpus).
    """
    indptr, words, repeats, documents = rows
    sizes, to_words, to_repeats, starts = arranged
    sizes[:, first:end] = 0
    for d in range(first, end):
        for entry in range(indptr[d], indptr[d + 1]):
            sizes[groups[words[entry]], d] += 1
    place = np.empty(len(sizes) + 1, np.int64)
    place[0] = indptr[first]
    for g in range(len(sizes)):
        place[g + 1] = place[g] + sizes[g, first:end].sum()
    for d in range(first, end):
        token = begins[documents[d]]
        for entry in range(indptr[d], indptr[d + 1]):
            to = place[groups[words[entry]]]
            to_words[to], to_repeats[to], starts[to] = words[entry], repeats[entry], token
            place[groups[words[entry]]] += 1
            token += repeats[entry]


@kept
def collapsed_documents(
    block: tuple[int, int, int, int, uint64],
    rows: Arrays,
    z: Array,
    begins: Array,
    documents: Array,
    table: Array,
    totals: Array,
    masses: Array,
    prior: float,
    sums: tuple[Array, Array, bool],
    alpha: Array,
    beta: float,
    sweeps: int,
    seed: Seed,
) -> int:
    """Sweep over the tokens of some documents whose words are in one group; return the number of rejected proposals.

    Parameters
    ----------
    block, rows
        As in `dense_documents`.
    z, begins, documents
        Topic of each token of the corpus, those of document d from begins[d] on; -1: none yet. Such a token gets its
        topic from the proposal. And the numbers of the documents of the batch.
    table, totals, masses, prior
        n_wk, and for the words of the group its sums, updated in place; the factor of each topic; β times the number of
        words.
    sums
        Partial sums of α_k φ_wk for each word; the number of visits they may still serve: at 0 they are recomputed; and
        whether they age with each visit, or not at all.
    """
    first, stop, group, place_of_block, number = block
    sizes, words, repeats, starts = rows
    begin = uint64(place_of_block)
    cumulative, age, ageing = sums
    num_topics = alpha.size
    last = uint64(num_topics - 1)
    counts, partial = np.zeros(num_topics), np.empty(num_topics)
    active, place = np.zeros(num_topics, np.uint32), np.zeros(num_topics, np.uint32)
    inverse = np.empty(num_topics)
    for k in range(num_topics):
        inverse[k] = masses[k] / (prior + totals[k])
    s0, s1 = stream(seed[0], seed[1], number)
    refused = 0
    for d in range(first, stop):
        if sizes[group, d] == 0:
            continue
        end = begin + uint64(sizes[group, d])
        num: Any = 0
        for token in range(begins[documents[d]], begins[documents[d] + 1]):
            topic = uint64(z[uint64(token)])
            if topic <= last:
                if counts[topic] == 0.0:
                    active[uint64(num)], place[topic] = topic, num
                    num += 1
                counts[topic] += 1.0
        for _ in range(sweeps):
            entry, left, i = begin, 0, uint64(0)
            w = uint64(0)
            while left > 0 or entry < end:
                if left == 0:
                    w, left, i = uint64(words[entry]), repeats[entry], uint64(starts[entry])
                    entry += uint64(1)
                    continue  # an entry may be 0
                left -= 1
                old = uint64(z[i])
                placed = old <= last
                if placed:
                    counts[old] -= 1.0
                    table[w, old] -= 1
                    totals[old] -= 1
                    inverse[old] = masses[old] / (prior + totals[old])
                    if counts[old] == 0.0:
                        num -= 1
                        j, moved = uint64(place[old]), uint64(active[uint64(num)])
                        active[j], place[moved] = moved, j
                if age[w] <= 0:
                    total, below, seen = 0.0, np.float32(0.0), 0
                    for k in range(num_topics):
                        seen += table[w, uint64(k)]
                        total += alpha[uint64(k)] * (beta + table[w, uint64(k)]) * inverse[uint64(k)]
                        single = np.float32(total)
                        # every topic must be reachable, or the chain may never leave it
                        if single <= below:
                            single = np.nextafter(below, np.float32(np.inf))
                        cumulative[w, uint64(k)] = below = single
                    age[w] = min(_VISITS * seen, _VISITS * num_topics) + 1
                if ageing:
                    age[w] -= 1
                mass = 0.0
                for start in range(num):
                    topic = uint64(active[uint64(start)])
                    mass += counts[topic] * (beta + table[w, topic]) * inverse[topic]
                    partial[uint64(start)] = mass
                total = np.float64(cumulative[w, last])
                s0, s1, u = uniform(s0, s1)
                x = u * (mass + total)
                if x < mass:
                    j = uint64(0)
                    while partial[j] <= x:
                        j += uint64(1)
                    topic = uint64(active[j])
                else:  # the first k with a partial sum above x, by bisection
                    x, topic, span = min(x - mass, total * _BELOW), uint64(0), last + uint64(1)
                    while span > uint64(1):
                        half = span >> uint64(1)
                        topic = topic + half if cumulative[w, topic + half - uint64(1)] <= x else topic
                        span -= half
                if placed and topic != old:
                    new_phi = (beta + table[w, topic]) * inverse[topic]
                    old_phi = (beta + table[w, old]) * inverse[old]
                    new_sum, old_sum = np.float64(cumulative[w, topic]), np.float64(cumulative[w, old])
                    if topic > uint64(0):
                        new_sum -= cumulative[w, topic - uint64(1)]
                    if old > uint64(0):
                        old_sum -= cumulative[w, old - uint64(1)]
                    gain = (counts[topic] + alpha[topic]) * new_phi * (counts[old] * old_phi + old_sum)
                    loss = (counts[old] + alpha[old]) * old_phi * (counts[topic] * new_phi + new_sum)
                    if gain < loss:
                        s0, s1, u = uniform(s0, s1)
                        if u * loss > gain:
                            topic = old
                            refused += 1
                z[i] = topic
                if counts[topic] == 0.0:
                    active[uint64(num)], place[topic] = topic, num
                    num += 1
                counts[topic] += 1.0
                table[w, topic] += 1
                totals[topic] += 1
                inverse[topic] = masses[topic] / (prior + totals[topic])
                i += uint64(1)
        for start in range(num):
            counts[uint64(active[uint64(start)])] = 0.0
        begin = end
    return refused


@kept
def labelled_documents(
    rows: Arrays,
    z: Array,
    begins: Array,
    table: Array,
    totals: Array,
    allowed: tuple[Array, Array],
    alpha: Array,
    beta: float,
    sweeps: int,
    seed: Seed,
) -> None:
    """The same for documents that have only some topics: `allowed` is (offsets of the documents, topics).

    The probabilities of all topics of a document are computed for each token. Other arguments as above.
    """
    indptr, words, repeats, documents = rows
    offsets, topics = allowed
    num_words, num_topics = table.shape
    prior = beta * num_words
    counts, partial = np.zeros(num_topics), np.empty(num_topics)
    for d in range(documents.size):
        begin, end = begins[documents[d]], begins[documents[d] + 1]
        first, last = offsets[documents[d]], offsets[documents[d] + 1]
        for token in range(begin, end):
            if z[token] >= 0:
                counts[z[token]] += 1.0
        s0, s1 = stream(seed[0], seed[1], uint64(documents[d]))
        for _ in range(sweeps):
            i = begin
            for entry in range(indptr[d], indptr[d + 1]):
                w = words[entry]
                for _again in range(repeats[entry]):
                    old = z[i]
                    if old >= 0:
                        counts[old] -= 1.0
                        table[w, old] -= 1
                        totals[old] -= 1
                    mass = 0.0
                    for j in range(first, last):
                        k = topics[j]
                        mass += (alpha[k] + counts[k]) * (beta + table[w, k]) / (prior + totals[k])
                        partial[j - first] = mass
                    s0, s1, u = uniform(s0, s1)
                    x, place = u * mass, 0
                    while place < last - first - 1 and partial[place] <= x:
                        place += 1
                    new = topics[first + place]
                    z[i] = new
                    counts[new] += 1.0
                    table[w, new] += 1
                    totals[new] += 1
                    i += 1
        counts[:] = 0.0


@kept
def move_counts(table: Array, totals: Array, words: Array, old: Array, new: Array) -> None:
    """Move each token from its old topic (if any) to its new one; `totals` are the sums over words."""
    for i in range(words.size):
        w, before, after = words[i], old[i], new[i]
        if before == after:
            continue
        if before >= 0:
            table[w, before] -= 1
            totals[before] -= 1
        table[w, after] += 1
        totals[after] += 1


@kept
def gather_runs(source: Array, starts: Array, ends: Array, out: Array) -> None:
    """Copy the entries starts[i]..ends[i]-1 of `source` to `out`, one run after the other."""
    place = 0
    for i in range(starts.size):
        for j in range(starts[i], ends[i]):
            out[place] = source[j]
            place += 1


@kept
def scatter_runs(values: Array, starts: Array, ends: Array, into: Array) -> None:
    """The reverse of `gather_runs`."""
    place = 0
    for i in range(starts.size):
        for j in range(starts[i], ends[i]):
            into[j] = values[place]
            place += 1


@kept
def rename(topics: Array, names: Array) -> None:
    """Rename topic k to names[k], which may be -1 (none); a token without a topic stays without."""
    for i in range(topics.size):
        if topics[i] >= 0:
            topics[i] = names[topics[i]]


@kept
def pairs_in_documents(topics: Array, begins: Array, pairs: Array) -> None:
    """Add Σ_d n_dk (n_dk - 1) for each topic."""
    counts = np.zeros(pairs.size, np.int64)
    for d in range(begins.size - 1):
        for i in range(begins[d], begins[d + 1]):
            if topics[i] >= 0:
                pairs[topics[i]] += 2 * counts[topics[i]]
                counts[topics[i]] += 1
        for i in range(begins[d], begins[d + 1]):
            if topics[i] >= 0:
                counts[topics[i]] = 0


# -- draws of the numbers of tables in Chinese restaurant processes, for α and β


@called
def _tables(count: int, concentration: float, s0: uint64, s1: uint64) -> tuple[Any, Any, int]:
    """Σ_{i<=count} Bernoulli(a/(a + i - 1)): the first guest always opens a table."""
    tables = 1
    for i in range(1, count):
        s0, s1, u = uniform(s0, s1)
        tables += u * (concentration + i) < concentration
    return s0, s1, tables


@kept
def document_tables(memory: Array, begins: Array, alpha: Array, seed: Seed, tables: Array, lengths: Array) -> None:
    """Add the tables of each topic over all documents to `tables`; set `lengths` to the tokens that have a topic."""
    counts, active = np.zeros(alpha.size, np.int64), np.empty(alpha.size, np.int64)
    for d in range(begins.size - 1):
        num, length = 0, 0
        for i in range(begins[d], begins[d + 1]):
            k = np.int64(memory[i])
            if k >= 0:
                if counts[k] == 0:
                    active[num] = k
                    num += 1
                counts[k] += 1
                length += 1
        lengths[d] = length
        s0, s1 = stream(seed[0], seed[1], uint64(2 * d))
        for j in range(num):
            k = active[j]
            s0, s1, found = _tables(counts[k], alpha[k], s0, s1)
            tables[k] += found
            counts[k] = 0


@kept
def word_tables(table: Array, beta: float, seed: Seed) -> int:
    """Number of tables over all words and topics."""
    total = 0
    for w in range(table.shape[0]):
        s0, s1 = stream(seed[0], seed[1], uint64(2 * w + 1))
        for k in range(table.shape[1]):
            if table[w, k] > 0:
                s0, s1, found = _tables(table[w, k], beta, s0, s1)
                total += found
    return total
