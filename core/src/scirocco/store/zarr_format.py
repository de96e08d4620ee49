"""Zarr version 3 in plain NumPy: the metadata documents, the names of nodes, and raw chunk files.

Only what the store needs: regular chunks, little-endian bytes without compression (draws hardly compress), all chunks
of an array in one folder (`c.0.17.0`), so that a commit has one folder per array to sync.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from scirocco import _checksum
from scirocco.errors import InvalidTypeError, StoreError

DOCUMENT = "zarr.json"
_CODES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()
_MAX_NODE_BYTES = 150  # file systems allow 255; `.tmp` or the suffix of a dimension may be added
_UNSAFE = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|]')


def stored_dtype(dtype: DTypeLike, name: str) -> np.dtype:
    """The little-endian dtype that stores values of `dtype` without loss: bfloat16 as float32."""
    try:
        dtype = np.dtype(dtype)
    except TypeError as error:
        raise InvalidTypeError(f"`{name}` has dtype {dtype}, which is not a NumPy dtype.") from error
    if dtype.name in _CODES:
        return dtype.newbyteorder("<")
    if dtype.kind == "V" and dtype.names is None and np.can_cast(dtype, np.float32, "safe") and dtype.itemsize <= 2:
        return np.dtype("<f4")
    raise InvalidTypeError(f"`{name}` has dtype {dtype}, which cannot be stored. Convert it to float32 or int32.")


def _fill_value(dtype: np.dtype) -> Any:
    if dtype.kind == "c":
        return ["NaN", "NaN"]
    return {"f": "NaN", "b": False}.get(dtype.kind, 0)


def array_document(
    shape: Sequence[int], chunks: Sequence[int], dtype: np.dtype, dimensions: Sequence[str], attributes: dict[str, Any]
) -> dict[str, Any]:
    """The content of an array's `zarr.json`."""
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [max(1, length) for length in chunks]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "fill_value": _fill_value(dtype),
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": attributes,
        "dimension_names": list(dimensions),
        "storage_transformers": [],
    }


def group_document(attributes: str, members: dict[str, str] | None = None) -> str:
    """The text of a group's `zarr.json`; with `members`, it includes the documents of all nodes below it.

    A reader that finds them there needs no other document, so that replacing this one file extends all arrays of
    the group at once. The parts are JSON already: attributes and arrays are in several documents.
    """
    text = f'{{"zarr_format": 3, "node_type": "group", "attributes": {attributes}'
    if members is None:
        return text + "}"
    inner = ", ".join(f"{json.dumps(node)}: {document}" for node, document in members.items())
    kind = '"kind": "inline", "must_understand": false'
    return f'{text}, "consolidated_metadata": {{{kind}, "metadata": {{{inner}}}}}}}'


# ----------------------------------------------------------------------------------------------------- names


def node_names(names: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """A node name for each variable: the name itself if Zarr and every file system allow it.

    Zarr forbids `/`, names of dots only and the prefix `__`; Windows forbids more characters, and, like macOS, `Beta`
    and `beta` in one folder. Such names get a readable, unique replacement.
    """
    used = {_folded(name) for name in (DOCUMENT, *taken)}
    out: dict[str, str] = {}
    for name in names:
        node = _readable(name)
        if _folded(node) in used:
            node = f"{node}~{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:10]}"
        while _folded(node) in used:
            node += "~"
        used.add(_folded(node))
        out[name] = node
    return out


def dimension_names(node: str, num_axes: int, nodes: Iterable[str]) -> list[str]:
    """`x_dim_0`, `x_dim_1`, ...: ArviZ's names for the axes of one draw, unless a variable has that name."""
    nodes = set(nodes)
    out = []
    for axis in range(num_axes):
        dimension = f"{node}_dim_{axis}"
        while dimension in nodes:
            dimension += "_"
        out.append(dimension)
    return out


def _readable(name: str) -> str:
    node = _UNSAFE.sub("_", name.encode("utf-8", "replace").decode())
    while len(node.encode()) > _MAX_NODE_BYTES:
        node = node[: min(len(node) - 1, _MAX_NODE_BYTES)]
    node = node.rstrip(". ")  # Windows drops them
    if node.startswith("__"):
        node = "_" + node.lstrip("_")
    return node or "_"


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def is_node_name(name: object) -> bool:
    """True for the names that `node_names` creates; a foreign document could contain a path out of the folder."""
    return (
        isinstance(name, str)
        and name not in ("", ".", "..", DOCUMENT)
        and not name.startswith("__")
        and not _UNSAFE.search(name)
    )


# ---------------------------------------------------------------------------------------------------- chunks


def chunk_path(folder: str, number: int, ndim: int) -> str:
    """The file of the chunk at `number` along the draws (the second axis; the only one for a coordinate)."""
    key = [0] * ndim
    key[min(1, ndim - 1)] = number
    return os.path.join(folder, ".".join(["c", *map(str, key)]))


def check_chunk(path: str, shape: Sequence[int], dtype: np.dtype, rescue: str) -> None:
    """Raise an error if a chunk file is missing or has the wrong size."""
    try:
        size = os.stat(path).st_size
    except FileNotFoundError as error:
        raise StoreError(f"{path} is missing. {rescue}") from error
    expected = math.prod(shape) * dtype.itemsize
    if size != expected:
        raise StoreError(f"{path} has {size} bytes instead of {expected}: it is damaged. {rescue}")


def checksum(values: np.ndarray, num_draws: int) -> str:
    """The checksum of the first `num_draws` draws of every chain of a chunk.

    What lies behind them does not count: a process that ended before its commit may have written more draws.
    """
    crc = 0
    for chain in values:
        crc = _checksum.checksum(chain[:num_draws], crc)
    return f"{crc:08x}"


def read_chunk(path: str, shape: Sequence[int], dtype: np.dtype, rescue: str) -> np.ndarray:
    """The values of one chunk file."""
    if not math.prod(shape):
        return np.empty(shape, dtype)
    check_chunk(path, shape, dtype, rescue)
    values = np.fromfile(path, dtype)
    if values.size != math.prod(shape):
        raise StoreError(f"{path} changed size while it was read. {rescue}")
    return values.reshape(shape)
