"""How a store is cut into files."""

from __future__ import annotations

from dataclasses import dataclass

from scirocco._adjustable import Adjustable


@dataclass
class StoreSizes(Adjustable):
    """Limits of files and of what waits to be written."""

    chunk_draws: int = 8_192
    """The most draws in a chunk of an array."""
    unsynced_files: int = 256
    """Files written since the last sync."""


STORING = StoreSizes()
