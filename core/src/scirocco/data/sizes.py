"""In which pieces data are read, and how much of them is held at once."""

from __future__ import annotations

from dataclasses import dataclass

from scirocco._adjustable import Adjustable


@dataclass
class ReadSizes(Adjustable):
    """Pieces of data. What is read does not depend on them (sums over other pieces round differently)."""

    superbatch_batches: int = 256
    """The most batches in a superbatch."""
    pass_bytes: int = 8 << 20
    """Bytes of a piece in a pass over all rows."""
    share_of_memory: float = 0.25
    """Share of the free memory that rows may take; more are streamed."""
    share_of_cache: float = 0.7
    """Share of the free memory that the page cache may take: rows that fit are read one by one."""
    shared_bytes: int = 1 << 20
    """Bytes of an array from which the device uses the host's memory; smaller ones are copied."""
    threaded_blocks: int = 64
    """Blocks from which on threads compute a fingerprint."""
    chunk_bytes: int = 16 << 20
    """Bytes that a conversion reads at once."""
    line_characters: int = 1 << 27
    """The most characters of a line or of a field in quotes: a quote that is never closed would otherwise take the
    rest of the file."""
    text_values: int = 1 << 18
    """Values of a text file that are held as Python strings at once."""


READING = ReadSizes()
