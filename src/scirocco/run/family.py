"""A folder with several runs that belong together: each in a folder of its own, and a page that says what they are."""

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

from scirocco._version import __version__
from scirocco.cluster import Cancelled
from scirocco.errors import InvalidTypeError, InvalidValueError, StoreError
from scirocco.run import records
from scirocco.store import files, holds_run, open_stored
from scirocco.store import folder as run_folder

VERSION = 1
_DATA = "data"
A_RUN = "a run"
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

    def begin(
        self,
        folder: str,
        page: dict[str, Any],
        *,
        resume: bool,
        overwrite: bool,
        left_out: Set[str] = frozenset(),
    ) -> None:
        """Make the folder, or look whether the one that is there is of the same configuration.

        `page["count"]` is the number of runs; what was `left_out` of `page["asked"]` is not compared.
        """
        page = files.plain_json({"format": self.format, "version": VERSION, **page}, "page")
        if self.is_at(folder) and resume:
            was, now = _compared(self.read(folder), left_out), _compared(page, left_out)
            records.refuse_differences(was, now, folder, "these arguments")
            return
        if not (overwrite and clear(folder)):
            self._refuse_unless_free(folder)
        os.makedirs(folder, exist_ok=True)
        files.write_document(os.path.join(folder, self.page), page | {"scirocco": __version__})

    def _refuse_unless_free(self, folder: str) -> None:
        if self.is_at(folder):
            raise InvalidValueError(
                f"{folder} holds {self.name} already; pass resume=True to go on with them, overwrite=True to delete "
                "them, or choose another folder."
            )
        found = name_of(folder)
        if found is not None:
            raise InvalidValueError(
                f"{folder} holds {found} and no {self.name}: go on with the call that made it, pass overwrite=True to "
                "delete it, or choose another folder."
            )
        if os.path.lexists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):
            raise InvalidValueError(
                f"`store`: {folder} exists and holds no {self.name}, so nothing in it was touched. Choose another path."
            )

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
        _refuse_strangers(folder, {self.page, _DATA, *map(os.path.basename, paths)}, self.name)
        for path in paths:
            _refuse_written_to(path)
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
        check_precision(double)


CHAINS, SHARDS = Family("chain", "chains"), Family("shard", "subposteriors")


def check_switches(store: Any, resume: Any, overwrite: Any) -> None:
    """Refuse what `resume` and `overwrite` cannot mean."""
    if store is None and (resume or overwrite):
        name = "resume" if resume else "overwrite"
        raise InvalidValueError(f"`{name}` needs `store`, the folder it speaks of.")
    if resume and overwrite:
        raise InvalidValueError(
            "`resume` goes on with what is in `store`, `overwrite` deletes it: choose one."
        )


def name_of(folder: str | os.PathLike[str]) -> str | None:
    """What scirocco has written there: "chains", "subposteriors", "a run", or None."""
    for kind in (CHAINS, SHARDS):
        if kind.is_at(folder):
            return kind.name
    return A_RUN if holds_run(folder) else None


def clear(folder: str | os.PathLike[str]) -> bool:
    """Delete what scirocco has written there, and nothing else; whether there was something."""
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
    """`clear` for all but single runs, which the store replaces itself."""
    root = os.path.abspath(os.fspath(folder))
    found = [kind for kind in (CHAINS, SHARDS) if kind.is_at(root)]
    for kind in found:
        kind._clear(root)
    return bool(found)


def _refuse_strangers(folder: str, own: set[str], what: str) -> None:
    strangers = sorted(name for name in set(os.listdir(folder)) - own if not name.endswith(files.TMP))
    if strangers:
        raise InvalidValueError(
            f"`store`: {folder} holds {strangers[0]!r} beside {what}, so nothing in it was touched. Move it, or choose "
            "another path."
        )


def _refuse_written_to(path: str) -> None:
    if is_written_to(path):
        raise StoreError(f"another process writes to {path}. Wait for it, or stop it.")


def check_precision(double: bool) -> None:
    """On a worker: it must compute as the client does."""
    if double_precision() != double:
        here, there = ("32", "64") if double else ("64", "32")
        raise StoreError(
            f"JAX runs in {here} bits on the worker and in {there} bits where the work was started: set "
            f"JAX_ENABLE_X64={int(double)} in the workers' environment."
        )


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


def driven(drive: Callable[[Callable[[Any], None]], Any], tell: Callable[[int], None]) -> Any:
    """The run that `drive(callback)` makes; when it is no longer wanted, it commits what it has before it ends."""
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
    if run.status == "interrupted":  # Ctrl-C in this process: the other runs are not begun
        raise KeyboardInterrupt
    return run


@contextlib.contextmanager
def place_for_rows(folder: str) -> Iterator[str]:
    """Where rows that were in memory are written for workers: a new folder each time, deleted in the end.

    Another attempt, with other rows perhaps, may have been killed, or may still be under way.
    """
    place = os.path.join(folder, _DATA, uuid.uuid4().hex)
    try:
        yield place
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        with contextlib.suppress(OSError):  # there are rows of others
            os.rmdir(os.path.dirname(place))
        raise
    forget_data(folder)  # all is done: nobody needs any of them


def forget_data(folder: str) -> None:
    """Delete all rows that were written for workers."""
    shutil.rmtree(os.path.join(folder, _DATA), ignore_errors=True)


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


def _compared(page: dict[str, Any], left_out: Set[str]) -> dict[str, Any]:
    apart = ("scirocco", "format", "version", "model")
    found = {key: value for key, value in page.items() if key not in apart}
    asked = found.get("asked", {})
    return found | {"asked": {name: value for name, value in asked.items() if name not in left_out}}
