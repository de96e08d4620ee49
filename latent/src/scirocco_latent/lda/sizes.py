"""In which pieces topics are fitted and compared, and from which sizes on by other kernels."""

from __future__ import annotations

from dataclasses import dataclass

from scirocco._adjustable import Adjustable


@dataclass
class TopicSizes(Adjustable):
    """Pieces of work."""

    least_block: int = 1 << 14
    """Tokens of a block of whole-array chains, at least: starting a program takes as long as 200,000 tokens on a fast
    accelerator."""
    most_block: int = 1 << 22
    """The same, at most."""
    rounded_to: int = 1 << 10
    """Tokens: block sizes are multiples, so that few are compiled."""
    dense_topics: int = 512
    """Topics up to which the weights of all of them are computed for each token."""
    most_groups: int = 16
    """Groups of words in which threads share a batch, at most."""
    shared_tokens: int = 6_000
    """Tokens of such a block, about 0.3 ms: threads meet after each row of blocks."""
    visit_tokens: int = 8
    """Tokens of a document and a group of words: a visit has a cost of its own."""
    compared_words: int = 4_096
    """Words of topics that are compared together, to save memory."""
    counted_documents: int = 1 << 13
    """Documents whose words are counted together for the coherence."""
    usual_tokens: int = 150_000_000
    """Default length of chains with memory on a CPU, in token-samples."""
    word_share: float = 0.4
    """Largest share of the documents of the embedded corpus that a word of its vocabulary is in."""


FITTING = TopicSizes()
