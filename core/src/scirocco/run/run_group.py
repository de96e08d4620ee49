"""A folder of related runs, such as shards or chains: each run has a subfolder, and a page describes the set."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Set
from typing import Any, NamedTuple

import jax

from scirocco import _checks
from scirocco._version import __version__
from scirocco.cluster import Cancelled
from scirocco.errors import InvalidTypeError, InvalidValueError, StoreError
from scirocco.run import records
from scirocco.store import files, holds_run, open_stored
from scirocco.store import folder as run_folder

VERSION = 1  # of the page
_DATA = "data"
A_RUN = "a run"
_WRITER_SECONDS = 60.0  # that an abandoned worker may need for its last chunk


class RunFamily(NamedTuple):
    """The kind of runs: "shard" and "subposteriors", "chain" and "chains"."""

    member: str
    name: str

    @property
    def page(self) -> str:
        """The file that identifies such a folder."""
        return f"{self.name}.json"

    @property
    def format(self) -> str:
        """The format that the page states."""
        return f"scirocco {self.name}"

    def is_at(self, folder: str | os.PathLike[str]) -> bool:
        """Whether a folder holds such runs."""
        return os.path.exists(os.path.join(folder, self.page))

    def path(self, folder: str, number: int) -> str:
        """The folder of one of the runs."""
        return os.path.join(folder, f"{self.member}-{number:03d}")

    def begin(
        self, folder: str, page: dict[str, Any], *, resume: bool, overwrite: bool, left_out: Set[str] = frozenset()
    ) -> None:
        """Make the folder, or check that the existing one has the same configuration.

        `page["count"]` is the number of runs; the entries of `page["asked"]` in `left_out` are not compared.
        """
        page = files.plain_json({"format": self.format, "version": VERSION, **page}, "page")
        if self.is_at(folder) and resume:
            was, now = _compared(self.read(folder), left_out), _compared(page, left_out)
            records.refuse_differences(was, now, folder, "these arguments")
            return
        if not (overwrite and clear(folder)):
            self._refuse_unless_free(folder)
        _checks.make_folder(folder, "store")
        files.write_document(os.path.join(folder, self.page), page | {"scirocco": __version__})

    def _refuse_unless_free(self, folder: str) -> None:
        if self.is_at(folder):
            raise InvalidValueError(
                f"{folder} holds {self.name} already; pass resume=True to resume them, overwrite=True to delete "
                "them, or choose another folder."
            )
        found = name_of(folder)
        if found is not None:
            raise InvalidValueError(
                f"{folder} holds {found}, not {self.name}: resume with the call that made it, pass overwrite=True to "
                "delete it, or choose another folder."
            )
        if os.path.lexists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):
            raise InvalidValueError(
                f"`store`: {folder} exists but holds no {self.name}, so nothing in it was touched. Choose another path."
            )

    def read(self, folder: str) -> dict[str, Any]:
        """Read the page of a folder."""
        path = os.path.join(folder, self.page)
        intact = f"The runs of the {self.member}s are intact: open each of them with sc.load."
        if not os.path.exists(path):
            raise InvalidValueError(
                f"{folder} holds no {self.name}: it has no file {self.page}. Open a single run with sc.load."
            )
        page = files.read_document(path, intact)
        if page.get("format") != self.format or page.get("version") != VERSION:
            raise StoreError(
                f"{path} has the format {page.get('format')!r}, version {page.get('version')!r}; this scirocco reads "
                f"{self.format!r}, version {VERSION}. {intact}"
            )
        return page

    def _clear(self, folder: str) -> None:
        """Delete the files of these runs, and nothing else; the page goes last, so that a deletion can be repeated."""
        paths = [self.path(folder, number) for number in range(self.read(folder)["count"])]
        _refuse_strangers(folder, {self.page, _DATA, *map(os.path.basename, paths)}, self.name)
        for path in paths:
            _refuse_written_to(path)
        for path in paths:
            shutil.rmtree(path, ignore_errors=True)
        forget_data(folder)
        os.unlink(os.path.join(folder, self.page))

    def check_place(self, path: str, double: bool) -> None:
        """On a worker, before the run at `path`: check that it sees the client's files and uses the same precision."""
        top = os.path.dirname(path)
        if not self.is_at(top):
            raise StoreError(
                f"the worker on {socket.gethostname()!r} cannot find {top}: workers and client require a common file "
                "system. Pass store=..., a folder that all of them have mounted under the same path."
            )
        check_precision(double)


CHAINS, SHARDS = RunFamily("chain", "chains"), RunFamily("shard", "subposteriors")


def check_switches(store: Any, resume: Any, overwrite: Any) -> None:
    """Raise an error for combinations of `resume`, `overwrite` and `store` that have no meaning."""
    _checks.flag(resume, "resume")
    _checks.flag(overwrite, "overwrite")
    if store is None and (resume or overwrite):
        name = "resume" if resume else "overwrite"
        raise InvalidValueError(f"`{name}` requires `store`, the folder of the run.")
    if resume and overwrite:
        raise InvalidValueError("`resume` continues the run in `store`, `overwrite` deletes it: choose one.")


def name_of(folder: str | os.PathLike[str]) -> str | None:
    """The kind of runs that scirocco has stored there: "chains", "subposteriors", "a run", or None."""
    for kind in (CHAINS, SHARDS):
        if kind.is_at(folder):
            return kind.name
    return A_RUN if holds_run(folder) else None


def clear(folder: str | os.PathLike[str]) -> bool:
    """Delete what scirocco has stored there, and nothing else; return whether there was anything."""
    root = os.path.abspath(os.fspath(folder))
    if holds_run(root):
        own = {run_folder.INNER, "zarr.json", *run_folder.read_header(root).groups}
        _refuse_strangers(root, own, A_RUN)
        _refuse_written_to(root)
        run_folder.clear(root)
        shutil.rmtree(os.path.join(root, run_folder.INNER))
        return True
    return clear_families(root)


def clear_families(folder: str | os.PathLike[str]) -> bool:
    """`clear` for everything except single runs, which the store replaces itself."""
    root = os.path.abspath(os.fspath(folder))
    found = [kind for kind in (CHAINS, SHARDS) if kind.is_at(root)]
    for kind in found:
        kind._clear(root)
    return bool(found)


def _refuse_strangers(folder: str, own: set[str], what: str) -> None:
    strangers = sorted(name for name in set(os.listdir(folder)) - own if not name.endswith(files.TMP))
    if strangers:
        raise InvalidValueError(
            f"`store`: {folder} also holds {strangers[0]!r}, not only {what}, so nothing in it was touched. Move it or "
            "choose another path."
        )


def _refuse_written_to(path: str) -> None:
    if is_written_to(path):
        raise StoreError(f"another process is writing to {path}. Wait until it ends, or stop it.")


def check_precision(double: bool) -> None:
    """On a worker: check that it uses the same precision as the client."""
    if double_precision() != double:
        here, there = ("32", "64") if double else ("64", "32")
        raise StoreError(
            f"JAX uses {here} bits on the worker and {there} bits in the process that started the work: set "
            f"JAX_ENABLE_X64={int(double)} in the workers' environment."
        )


def double_precision() -> bool:
    """Whether JAX uses 64 bits."""
    return bool(jax.config.read("jax_enable_x64"))


def is_written_to(path: str) -> bool:
    """Whether a process has a run open for writing."""
    return holds_run(path) and open_stored(path).running


def wait_for_writer(path: str, tell: Callable[[int], None]) -> None:
    """Wait: a worker that was abandoned may still be writing its last chunk."""
    end = time.monotonic() + _WRITER_SECONDS
    while is_written_to(path) and time.monotonic() < end:
        tell(0)
        time.sleep(0.5)


def driven(drive: Callable[[Callable[[Any], None]], Any], tell: Callable[[int], None]) -> Any:
    """The run made by `drive(callback)`; when it is no longer needed, it commits its draws before it ends."""
    ended: list[Cancelled] = []

    def after_chunk(report: Any) -> None:
        try:
            tell(report.step)
        except Cancelled as error:
            ended.append(error)
            report.stop()

    run = drive(after_chunk)
    if ended:
        raise ended[0]
    if run.status == "interrupted":  # Ctrl-C in this process: do not start the other runs
        raise KeyboardInterrupt
    return run


@contextlib.contextmanager
def place_for_rows(folder: str) -> Iterator[str]:
    """The folder in which rows in memory are written for workers: a new one each time, deleted at the end.

    An earlier attempt, perhaps with other rows, may have been killed or may still be running.
    """
    place = os.path.join(folder, _DATA, uuid.uuid4().hex)
    try:
        yield place
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        with contextlib.suppress(OSError):  # rows of other attempts are there
            os.rmdir(os.path.dirname(place))
        raise
    forget_data(folder)  # all runs are complete: no rows are needed


def forget_data(folder: str) -> None:
    """Delete all rows that were written for workers."""
    shutil.rmtree(os.path.join(folder, _DATA), ignore_errors=True)


@contextlib.contextmanager
def folder_for(store: str | os.PathLike[str] | None) -> Iterator[str]:
    """The user's folder, or a temporary one."""
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


def _compared(page: dict[str, Any], left_out: Set[str]) -> dict[str, Any]:
    apart = ("scirocco", "format", "version", "model")
    found = {key: value for key, value in page.items() if key not in apart}
    asked = found.get("asked", {})
    return found | {"asked": {name: value for name, value in asked.items() if name not in left_out}}
