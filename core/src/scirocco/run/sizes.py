"""How a run is cut into chunks and commits, and how much is held at once."""

from __future__ import annotations

from dataclasses import dataclass

from scirocco._adjustable import Adjustable


@dataclass
class RunSizes(Adjustable):
    """Pieces of runs. Draws do not depend on them (sums and noise that are computed together round differently)."""

    first_chunk: int = 128
    """Steps of the first chunk, which includes compilation."""
    second_chunk: int = 1_024
    """Steps of the second, by which the speed is measured."""
    chunk_seconds: float = 0.3
    """Seconds of all others: between two looks at callbacks and Ctrl-C."""
    look_seconds: float = 1.0
    """Seconds between two looks at whether streamed data have changed."""
    buffer_bytes: int = 1 << 25
    """The most bytes of the draws of a chunk on the device."""
    buffer_draws: int = 8_192
    """The most draws of a chunk on the device."""
    commit_seconds: float = 2.0
    """Seconds between commits."""
    commit_share: float = 0.05
    """The largest share of the time that commits may take."""
    ahead_steps: int = 256
    """The most steps whose randomness is drawn together."""
    ahead_words_accelerator: int = 1 << 24
    """Numbers in that randomness on an accelerator: 64 MB."""
    long_step: int = 1 << 23
    """Parameters: a step then takes so long on an accelerator that fewer kernels gain nothing, and the program
    has it only once."""
    predicted_numbers: int = 1 << 22
    """Numbers that a chunk of predictions holds at once: rows × draws × the widest intermediate value."""
    recorded_bytes: int = 1 << 25
    """Bytes of an array up to which a record has it whole: a full metric of 2,000 parameters in double precision."""
    recorded_parameters: int = 1_000_000
    """Numbers in a position above which models are compared at one of the same mean and spread, and at few points."""


RUNNING = RunSizes()
