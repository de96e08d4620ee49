"""Data sources (arrays, folders on disk, or your own class), and how batches of rows are drawn from them."""

from scirocco.data.arrays import ArraySource, standardise
from scirocco.data.devices import Devices, Spread, as_devices, spread_over
from scirocco.data.formats.conversion import convert
from scirocco.data.native.corpus import CorpusSource, write_corpus
from scirocco.data.native.folder import FolderSource, FolderWriter
from scirocco.data.native.folder import describe_folder as describe
from scirocco.data.native.folder import open_folder as open
from scirocco.data.native.folder import write_folder as write
from scirocco.data.sources import Source, as_source
from scirocco.data.streams import Streamed
from scirocco.data.tables import Probed, Resident, Table, to_device

__all__ = [
    "ArraySource",
    "CorpusSource",
    "Devices",
    "FolderSource",
    "FolderWriter",
    "Probed",
    "Resident",
    "Source",
    "Spread",
    "Streamed",
    "Table",
    "as_devices",
    "as_source",
    "convert",
    "describe",
    "open",
    "spread_over",
    "standardise",
    "to_device",
    "write",
    "write_corpus",
]


def __dir__() -> list[str]:
    return __all__
