"""The sampler's state as a file of arrays: never pickled, never code."""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from typing import Any, BinaryIO

import numpy as np

from scirocco.errors import InvalidTypeError, StoreError
from scirocco.store import files

_FILE_NAME = re.compile(r"state-\d{1,18}\.npz")
_BLOCK = 1 << 20


def is_state_file(name: Any) -> bool:
    """True for names that `write_state` gives (and so never for a way out of the folder)."""
    return isinstance(name, str) and _FILE_NAME.fullmatch(name) is not None


def write_state(
    folder: str, number: int, arrays: dict[str, np.ndarray], dtypes: dict[str, str]
) -> dict[str, Any]:
    """Write prepared arrays; return what the commit must know of them."""
    name = f"state-{number}.npz"
    with files.writing(os.path.join(folder, name), sync=True) as file:
        # As `np.savez` does, which cannot store an array called `file`.
        with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
            for key, array in arrays.items():
                with archive.open(f"{key}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
        file.flush()
        crc = _checksum(file)
    files.sync_folder(folder)
    return {"file": name, "crc32": crc, "dtypes": dtypes}


def prepare(state: dict[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """NumPy arrays that a file can hold, and the types of those that are held as plain bits (bfloat16)."""
    arrays, dtypes = {}, {}
    for key, value in state.items():
        if not isinstance(key, str) or not key or "\0" in key or "\\" in key:
            raise InvalidTypeError(f"the state has an array called {key!r}: names must be plain strings.")
        try:
            array = np.asarray(value)
        except Exception as error:
            raise InvalidTypeError(f"`{key}` of the state cannot become a NumPy array: {error}") from error
        if array.dtype.hasobject or array.dtype.names is not None:
            raise InvalidTypeError(
                f"`{key}` of the state has the type {array.dtype}: only numbers can be stored."
            )
        if array.dtype.kind == "V":
            dtypes[key] = array.dtype.name
            array = array.view(f"u{array.dtype.itemsize}")
        arrays[key] = array
    return arrays, dtypes


def _checksum(file: BinaryIO) -> int:
    """Of the whole file, in blocks: the state of SAGA can be as large as the data."""
    file.seek(0)
    crc = 0
    while block := file.read(_BLOCK):
        crc = zlib.crc32(block, crc)
    file.seek(0, os.SEEK_END)
    return crc


def read_state(folder: str, entry: dict[str, Any], rescue: str) -> dict[str, np.ndarray]:
    """The arrays that the commit tells of."""
    name = entry.get("file")
    if not is_state_file(name):
        raise StoreError(
            f"the commit names a state file {name!r}, which scirocco cannot have written. {rescue}"
        )
    path = os.path.join(folder, str(name))
    try:
        with open(path, "rb") as file:
            if _checksum(file) != entry.get("crc32"):
                raise StoreError(f"{path} is damaged: its checksum is not the commit's. {rescue}")
            file.seek(0)
            return _read_arrays(file, entry.get("dtypes", {}))
    except FileNotFoundError as error:
        raise StoreError(f"{path} is missing. {rescue}") from error
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise StoreError(
            f"{path} does not hold plain arrays ({error}); it was not loaded. {rescue}"
        ) from error


def _read_arrays(file: BinaryIO, dtypes: dict[str, str]) -> dict[str, np.ndarray]:
    out = {}
    with zipfile.ZipFile(file) as archive:
        for member in archive.namelist():
            key = member.removesuffix(".npy")
            with archive.open(member) as stream:
                array = np.lib.format.read_array(stream, allow_pickle=False)
            out[key] = array.view(np.dtype(dtypes[key])) if key in dtypes else array
    return out
