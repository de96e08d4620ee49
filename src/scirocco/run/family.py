"""A folder with several runs that belong together: each in a folder of its own, and a page that says what they are."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax

from scirocco._version import __version__
from scirocco.errors import InvalidTypeError, InvalidValueError, StoreError
from scirocco.run import records
from scirocco.store import files, holds_run, open_stored

VERSION = 1
_DATA = "data"
_WRITER_SECONDS = 60.0


class Family(NamedTuple):
    """What kind of runs: "shard" and "subposteriors", "chain" and "chains"."""

    member: str
    name: str

    @property
    def page(self) -> str:
        """The file that tells such a folder from others."""
        return f"{self.name}.json"

    @property
    def format(self) -> str:
        """What the page calls itself."""
        return f"scirocco {self.name}"

    def is_at(self, folder: str | os.PathLike[str]) -> bool:
        """Whether a folder holds such runs."""
        return os.path.exists(os.path.join(folder, self.page))

    def path(self, folder: str, number: int) -> str:
        """Where one of the runs is."""
        return os.path.join(folder, f"{self.member}-{number:03d}")

    def begin(self, folder: str, page: dict[str, Any], *, resume: bool, overwrite: bool) -> None:
        """Make the folder, or look whether the one that is there is of the same configuration.

        `page["count"]` is the number of runs.
        """
        page = files.plain_json({"format": self.format, "version": VERSION, **page}, "page")
        if self.is_at(folder):
            if overwrite:
                self._clear(folder)
            elif resume:
                records.refuse_differences(
                    _compared(self.read(folder)), _compared(page), folder, "these arguments"
                )
                return
            else:
                raise InvalidValueError(
                    f"{folder} holds {self.name} already; pass resume=True to go on with them, overwrite=True to "
                    "delete them, or choose another folder."
                )
        if os.path.lexists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):
            raise InvalidValueError(
                f"`store`: {folder} exists and holds no {self.name}, so nothing in it was touched. Choose another path."
            )
        os.makedirs(folder, exist_ok=True)
        files.write_document(os.path.join(folder, self.page), page | {"scirocco": __version__})

    def read(self, folder: str) -> dict[str, Any]:
        """The page of a folder."""
        path = os.path.join(folder, self.page)
        intact = f"The runs of the {self.member}s are intact: sc.load opens each."
        if not os.path.exists(path):
            raise InvalidValueError(
                f"{folder} holds no {self.name}: it has no file {self.page}. A single run is opened with sc.load."
            )
        page = files.read_document(path, intact)
        if page.get("format") != self.format or page.get("version") != VERSION:
            raise StoreError(
                f"{path} has the format {page.get('format')!r}, version {page.get('version')!r}; this scirocco reads "
                f"{self.format!r}, version {VERSION}. {intact}"
            )
        return page

    def _clear(self, folder: str) -> None:
        """Delete what belongs to these runs, and nothing else; the page goes last, so that this can be done again."""
        paths = [self.path(folder, number) for number in range(self.read(folder)["count"])]
        for path in paths:
            if is_written_to(path):
                raise StoreError(f"another process writes to {path}. Wait for it, or stop it.")
        for path in paths:
            shutil.rmtree(path, ignore_errors=True)
        forget_data(folder)
        os.unlink(os.path.join(folder, self.page))

    def check_place(self, path: str, double: bool) -> None:
        """On a worker, before the run at `path`: it must see the client's files, and compute as the client does."""
        top = os.path.dirname(path)
        if not self.is_at(top):
            raise StoreError(
                f"the worker on {socket.gethostname()!r} does not see {top}: workers and client need a common file "
                "system. Pass store=..., a folder on a disk that all of them have mounted under the same name."
            )
        if double_precision() != double:
            here, there = ("32", "64") if double else ("64", "32")
            raise StoreError(
                f"JAX runs in {here} bits on the worker and in {there} bits where the run was started: set "
                f"JAX_ENABLE_X64={int(double)} in the workers' environment."
            )


CHAINS, SHARDS = Family("chain", "chains"), Family("shard", "subposteriors")


def double_precision() -> bool:
    """Whether JAX runs in 64 bits."""
    return bool(jax.config.read("jax_enable_x64"))


def is_written_to(path: str) -> bool:
    """Whether a process holds a run open for writing."""
    return holds_run(path) and open_stored(path).running


def wait_for_writer(path: str, tell: Callable[[int], None]) -> None:
    """A worker that was given up may still be writing its last chunk."""
    end = time.monotonic() + _WRITER_SECONDS
    while is_written_to(path) and time.monotonic() < end:
        tell(0)
        time.sleep(0.5)


def data_path(folder: str) -> str:
    """Where rows that were in memory are written for workers."""
    return os.path.join(folder, _DATA)


def forget_data(folder: str) -> None:
    """Delete the rows that were written for workers."""
    shutil.rmtree(data_path(folder), ignore_errors=True)


@contextlib.contextmanager
def folder_for(store: str | os.PathLike[str] | None) -> Iterator[str]:
    """The user's folder, or one for the time being."""
    if store is not None:
        if not isinstance(store, (str, os.PathLike)):
            raise InvalidTypeError(f"`store` must be the path of a folder, got {type(store).__name__}.")
        yield os.path.abspath(os.fspath(store))
        return
    top = tempfile.mkdtemp(prefix="scirocco-")
    try:
        yield os.path.join(top, "runs")
    finally:
        shutil.rmtree(top, ignore_errors=True)


def _compared(page: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value for key, value in page.items() if key not in ("scirocco", "format", "version", "model")
    }
