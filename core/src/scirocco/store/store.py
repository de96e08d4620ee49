"""The writer of a stored run: append draws, commit periodically, resume after any kind of end.

`scirocco/commit.json` defines which draws are valid; it is replaced atomically, after everything it refers to is on
disk. Everything beyond it (chunks, states, incomplete files) was left by a process that ended, and is overwritten.
"""

from __future__ import annotations

import contextlib
import datetime
import math
import os
import secrets
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np

from scirocco import _checks
from scirocco._version import __version__
from scirocco.errors import InvalidValueError, StoreError
from scirocco.store import files, folder, layout, zarr_format
from scirocco.store.folder import Commit, RunHeader
from scirocco.store.layout import INNER, Variable
from scirocco.store.writer import GroupWriter


class Store:
    """A run's folder, open for writing by this process.

    Use `Store.create` or `Store.open` to make one. After an error in `append` or `commit` the object accepts no more
    draws; the last commit remains valid, and `Store.open` resumes from it.
    """

    def __init__(self, root: str, header: RunHeader, lock: files.Lock, commit: Commit | None):
        self.path = root
        self.record = header.record
        self._header = header
        self.groups = header.groups
        self._lock = lock
        self._commit = commit
        self._failure: str | None = None
        self.unsynced = files.Unsynced()
        counts = commit.draws if commit else dict.fromkeys(header.groups, 0)
        self.writers = {
            name: GroupWriter(root, group, self.unsynced, counts[name], commit.checksums[name] if commit else None)
            for name, group in header.groups.items()
        }
        self._published: dict[str, str] = {}

    # ---------------------------------------------------------------------------------------------- beginning

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        groups: dict[str, dict[str, Variable]],
        num_chains: int,
        record: dict[str, Any],
        *,
        overwrite: bool = False,
    ) -> Store:
        """Make the folder of a new run.

        Parameters
        ----------
        path
            A folder that does not exist, is empty, or holds a run that never committed (with `overwrite`: any run).
        groups
            For each group its variables by name, with the shape and dtype of one draw.
        num_chains
            Number of chains; they are stored together.
        record
            What defines the run, as plain JSON values; `Store.open` and `Stored.open` return it.
        overwrite
            Delete an existing run. Other files are never deleted.
        """
        root = os.path.abspath(_checks.path(path, "store"))
        num_chains = _checks.positive_int(num_chains, "num_chains")
        planned = layout.plan(groups, num_chains)
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        header = RunHeader(planned, files.plain_json(record, "record"), __version__, now, secrets.token_hex(8))
        folder.refuse_unless_free(root, overwrite)
        _checks.make_folder(root, "store")
        files.sync_folder(os.path.dirname(root))
        files.make_folder(os.path.join(root, INNER))
        lock = files.Lock(folder.inner(root, folder.LOCK))
        try:
            folder.refuse_unless_free(root, overwrite)  # another process may have created it meanwhile
            folder.clear(root)
            folder.write_header(root, header)
            store = cls(root, header, lock, None)
            store._make_arrays()
            store._publish()
        except BaseException:
            lock.release()
            raise
        return store

    @classmethod
    @contextlib.contextmanager
    def whole(
        cls,
        path: str | os.PathLike[str],
        groups: dict[str, dict[str, Variable]],
        num_chains: int,
        record: dict[str, Any],
        *,
        overwrite: bool = False,
    ) -> Iterator[Store]:
        """As `create`, for a run that is written at once: it is at `path` when the block ends well, else nothing is.

        An existing run is deleted only then.
        """
        root = os.path.realpath(_checks.path(path, "path"))
        folder.refuse_unless_free(root, overwrite)
        draft = f"{root}.{os.getpid()}{files.TMP}"
        try:
            with cls.create(draft, groups, num_chains, record, overwrite=True) as store:
                yield store
            folder.adopt(root, draft)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Store:
        """Reopen a run at its last commit; raises an error while another process writes to it."""
        root = os.path.abspath(os.fspath(path))
        folder.read_header(root)  # before a lock file is created in a folder that is not a run
        lock = files.Lock(folder.inner(root, folder.LOCK))
        try:
            header = folder.read_header(root)
            store = cls(root, header, lock, folder.read_commit(root, header))
            store._restore()
        except BaseException:
            lock.release()
            raise
        return store

    def _make_arrays(self) -> None:
        for name, group in self.groups.items():
            files.make_folder(os.path.join(self.path, name))
            for node in ("chain", "draw", *(column.node for column in group.columns)):
                files.make_folder(os.path.join(self.path, name, node))
            chains = np.arange(group.num_chains, dtype="<i8")
            self.unsynced.write(group.coordinate_path(self.path, "chain", 0), chains.data)

    def _restore(self) -> None:
        commit = self._last()
        for name, group in self.groups.items():
            for column in group.columns if commit.draws[name] else ():
                for number in range(group.num_chunks(commit.draws[name]) if math.prod(column.shape) else 0):
                    before = number * group.chunk_draws
                    zarr_format.check_chunk(
                        group.chunk_path(self.path, column, number),
                        group.chunk_shape(column),
                        column.dtype,
                        f"The run cannot be resumed; the {before:,} draws of {name!r} before it are intact: "
                        f"`scirocco.store.open_stored({self.path!r}).arrays[{name!r}]`, [:, :{before}].",
                    )
        folder.sweep(self.path, self._header, commit)
        self._make_arrays()
        for writer in self.writers.values():
            writer.load_last(folder.rescue(self.path))
        self._publish()

    # ------------------------------------------------------------------------------------------------ writing

    def append(self, group: str, arrays: dict[str, Any]) -> None:
        """Append draws to a group: for each of its variables an array (chain, draw, ...), with any number of draws.

        Full chunks go to disk, the rest stays in memory; nothing is valid before `commit`.
        """
        self._need_open()
        if group not in self.writers:
            raise InvalidValueError(f"there is no group {group!r}; the groups are {sorted(self.writers)}.")
        writer = self.writers[group]
        checked, num_draws = writer.check(arrays)
        with self._or_fail():
            writer.append(checked, num_draws)

    def commit(self, state: dict[str, Any], progress: dict[str, Any]) -> None:
        """Make everything appended so far valid, together with the state to resume from and the progress.

        After the call it survives a killed process and a power failure, and readers see the new draws.
        """
        self._need_open()
        progress = files.plain_json(progress, "progress")
        arrays, dtypes = folder.prepare(state)
        number = self._commit.number + 1 if self._commit else 1
        with self._or_fail():
            for writer in self.writers.values():
                writer.flush()
            self.unsynced.settle()
            entry = folder.write_state(os.path.join(self.path, INNER), number, arrays, dtypes)
            draws = {name: writer.num_draws for name, writer in self.writers.items()}
            old = self._commit
            checksums = {name: writer.checksums for name, writer in self.writers.items()}
            commit = Commit(number, draws, entry, progress, checksums)
            folder.write_commit(self.path, commit, self._header.run_id)
            self._commit = commit
            if old is not None:
                with contextlib.suppress(OSError):  # `Store.open` removes it
                    os.unlink(folder.inner(self.path, old.state["file"]))
            self._publish()

    def _publish(self) -> None:
        """Publish the number of valid draws to Zarr readers: each array, then each group, then the root, file by file.

        The documents are on disk before they are renamed; which of them survive a power failure does not matter.
        """
        attributes = folder.attributes(self._header, self.progress)
        draws = {name: self.draws(name) for name in self.groups}
        for node, document in layout.documents(self.groups, draws, attributes).items():
            if self._published.get(node) != document:
                self._write_node(node, document)
                self._published[node] = document

    def _write_node(self, node: str, document: str) -> None:
        path = os.path.join(self.path, node, zarr_format.DOCUMENT)
        files.write_file(path, document.encode(), sync=True)

    # ------------------------------------------------------------------------------------------------- asking

    def draws(self, group: str) -> int:
        """The number of committed draws of a group, per chain."""
        return self._commit.draws[group] if self._commit else 0

    @property
    def progress(self) -> dict[str, Any]:
        """The progress of the last commit."""
        return self._commit.progress if self._commit else {}

    def read_state(self) -> dict[str, np.ndarray]:
        """The arrays of the last commit."""
        return folder.read_state(os.path.join(self.path, INNER), self._last().state, folder.rescue(self.path))

    def _last(self) -> Commit:
        if self._commit is None:
            raise StoreError(f"the run in {self.path} has no commit yet.")
        return self._commit

    # ------------------------------------------------------------------------------------------------- ending

    def close(self) -> None:
        """Release the folder. Draws that were not committed are discarded: a resumed run recomputes them."""
        self._failure = self._failure or "it was closed"
        self._lock.release()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _need_open(self) -> None:
        if self._failure:
            raise StoreError(f"the store in {self.path} accepts no more draws: {self._failure}. {self._safe()}")

    def _safe(self) -> str:
        """What is left after a failed write, and what to do."""
        if self._commit is None:
            return "Nothing had been committed: start the run again."
        try:
            here = folder.read_header(self.path)
            number = folder.read_commit(self.path, here).number
            lost = here.run_id != self._header.run_id or number < self._commit.number
        except (InvalidValueError, StoreError, OSError):
            lost = True
        if lost:
            return f"The run is no longer in {self.path}: the folder was removed, replaced or damaged meanwhile."
        counts = ", ".join(f"{self.draws(name):,} draws of {name!r}" for name in self.groups)
        return (
            f"The last commit is safe ({counts}). After you have fixed the cause (disk space, permissions), resume "
            f"with `sc.resume({self.path!r}, ...)`."
        )

    @contextlib.contextmanager
    def _or_fail(self) -> Iterator[None]:
        """After an incomplete write, buffers and files disagree: accept no more draws, and report what is safe."""
        try:
            yield
        except BaseException as error:
            self._failure = f"an earlier write failed ({error!r})"
            if isinstance(error, OSError):
                error.add_note(self._safe())
            raise
