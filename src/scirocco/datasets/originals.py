"""Data sets from their public sources: the original files, downloaded and checked, made into what loaders read.

What is made is compared with a digest of its arrays, so that it is exactly what the loaders were written for, whatever
happened on the way.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scirocco._extras import require
from scirocco.errors import InvalidValueError, MissingDataError

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Original:
    """A file of the public source."""

    name: str
    address: str
    checksum: str
    """`sha256:...` or `md5:...`, whichever its publishers give."""


@dataclass(frozen=True)
class Recipe:
    """How a data set is made of its originals."""

    originals: tuple[Original, ...]
    make: Callable[[list[Path]], Arrays]
    """From the files, in the order of `originals`."""
    content: str
    """`digest` of what `make` must return."""


def digest(arrays: Arrays) -> str:
    """sha256 over names, types, shapes and bytes of some arrays."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        total.update(f"{name} {array.dtype.str} {array.shape}".encode())
        total.update(array.tobytes())
    return total.hexdigest()


def obtain(name: str, recipe: Recipe, path: Path) -> None:
    """Download the originals into the cache, make the arrays, and write them to `path` by one rename."""
    arrays = recipe.make([download(name, original, path.parent) for original in recipe.originals])
    found = digest(arrays)
    if found != recipe.content:
        raise InvalidValueError(
            f"what was made of the originals of `{name}` differs from what it should be (digest {found}, should be "
            f"{recipe.content}): the public source has changed. Nothing was kept."
        )
    partial = path.with_name(f"{path.name}.{os.getpid()}.part.npz")
    try:
        np.savez_compressed(partial, **arrays)  # type: ignore[arg-type]
        os.replace(partial, path)
    except OSError as error:
        raise InvalidValueError(f"`{name}` cannot be written to {path.parent}: {error}.") from error
    finally:
        partial.unlink(missing_ok=True)


def download(name: str, original: Original, folder: Path) -> Path:
    """One file, checked before it gets its name; what is there already is not asked for again."""
    pooch = require("pooch", f"downloading the data set `{name}`")
    pooch.get_logger().setLevel("WARNING")
    try:
        found = pooch.retrieve(original.address, original.checksum, fname=original.name, path=folder)
    except ValueError as error:
        raise InvalidValueError(
            f"what {original.address} sent for {original.name} of the data set `{name}` is damaged or another version: "
            f"its checksum should be {original.checksum}. Nothing was kept."
        ) from error
    except Exception as error:  # requests has a family of its own; what matters is that there is no file
        raise MissingDataError(
            f"{original.name} of the data set `{name}` could not be downloaded from {original.address} ({error}). Put "
            f"it into {folder} by hand (checksum {original.checksum}), or give a folder that has the data set."
        ) from error
    return Path(found)
