"""Whatever ends the writing (a kill, a full disk, no rights, Ctrl-C), the last commit is intact and the run goes on."""

import builtins
import errno
import os
import shutil
import tempfile

import numpy as np
import pytest

from scirocco.errors import StoreError
from scirocco.store import Store, Stored, Variable, files, open_stored, zarr_format
from store import kill, truth

pytestmark = pytest.mark.process

resource = pytest.importorskip("resource", reason="limits and kills as Unix has them")


@pytest.fixture
def quick_folder():
    """A folder in memory where there is one: kills and failed calls do not care what the files lie on."""
    root = tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    yield root
    shutil.rmtree(root)


def test_kill_at_random_moments(quick_folder, seed):
    count = int(os.environ.get("SCIROCCO_TEST_KILLS", "5"))
    assert kill.run_kills(quick_folder, "random", count, seed)["kills"] == count


def test_kill_around_every_call_that_touches_the_disk(quick_folder, seed):
    stride = int(os.environ.get("SCIROCCO_TEST_KILL_STRIDE", "7"))  # 1: every call
    report = kill.run_kills(quick_folder, "everywhere", stride, seed)
    assert report["kills"] * stride > 400 and report["in_creation"] * stride > 100


class Saboteur:
    """Makes call number `fatal` fail among those that open, write, sync, rename or make a folder."""

    def __init__(self, monkeypatch, fatal, error):
        self.calls, self.fatal, self.error = 0, fatal, error
        monkeypatch.setattr(files, "open", self.open, raising=False)
        for name in ("fsync", "replace", "mkdir"):
            monkeypatch.setattr(os, name, self.wrap(getattr(os, name)))

    def step(self):
        self.calls += 1
        if self.calls == self.fatal:
            raise self.error

    def wrap(self, function):
        def call(*arguments, **options):
            self.step()
            return function(*arguments, **options)

        return call

    def open(self, path, mode="r"):
        if "w" not in mode:
            return builtins.open(path, mode)
        self.step()
        return SabotagedFile(builtins.open(path, mode), self)


class SabotagedFile:
    """A file of which a failing write leaves half the bytes behind."""

    def __init__(self, file, saboteur):
        self.file, self.saboteur = file, saboteur

    def write(self, data):
        try:
            self.saboteur.step()
        except BaseException:
            view = memoryview(data).cast("B") if memoryview(data).nbytes else b""
            self.file.write(view[: len(view) // 2])
            raise
        return self.file.write(data)

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()


@pytest.mark.rotates(2)
@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize(("kind", "stride"), [("disk full", 3), ("Ctrl-C", 7)])
def test_a_failure_at_every_call_in_turn(quick_folder, monkeypatch, seed, kind, stride, resumed):
    """Every `stride`-th, beginning at the seed; a file takes four calls, so that each kind of call has its turn."""
    stride = int(os.environ.get("SCIROCCO_TEST_KILL_STRIDE", stride))
    fatal, finished = seed % stride + 1 - stride, False
    while not finished:
        fatal += stride
        path, reached = os.path.join(quick_folder, str(fatal)), 0
        if resumed:
            with truth.create(path) as store:
                truth.go_on(store, 100)
            reached = 100
        error = OSError(errno.ENOSPC, "No space left on device") if kind == "disk full" else KeyboardInterrupt()
        with monkeypatch.context() as patch:
            saboteur = Saboteur(patch, fatal, error)
            try:
                with Store.open(path) if resumed else truth.create(path) as store:
                    for stop in (350, 700):
                        _go_on_or_refuse(store, stop)
                        reached = stop
            except (OSError, KeyboardInterrupt) as raised:
                assert raised is error, raised
            finished = saboteur.calls < fatal
        truth.check_reopened(path, reached)
        shutil.rmtree(path)
    assert fatal > 100


def _go_on_or_refuse(store, stop):
    """Go on; when that fails, the store takes nothing more and says what is safe."""
    before = store.draws("posterior")
    try:
        truth.go_on(store, stop)
    except BaseException as error:
        if isinstance(error, OSError):
            safe = "sc.resume" if store.draws("posterior") else "Nothing had been committed"
            assert safe in error.__notes__[0]
        assert store.draws("posterior") in (before, stop)
        for attempt in (
            lambda: store.append("posterior", truth.values("posterior", 0, 1)),
            lambda: store.commit({}, {}),
        ):
            with pytest.raises(StoreError, match=r"an earlier write failed.*(The last commit is safe|Nothing had)"):
                attempt()
        raise


def test_a_file_size_limit(tmp_path):
    """The system's own refusal in the middle of a large write, not a made-up one."""
    store = truth.create(tmp_path / "run")
    truth.go_on(store, 400)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        with pytest.raises(OSError) as raised:
            truth.go_on(store, 1_200)  # two snapshots of 1.6 MB
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        store.close()
    assert raised.value.errno == errno.EFBIG and "400 draws of 'posterior'" in raised.value.__notes__[0]
    assert truth.check(tmp_path / "run") == 400
    truth.check_reopened(tmp_path / "run", 400)


def test_a_commit_stands_when_only_telling_the_readers_failed(tmp_path, monkeypatch):
    replace = os.replace

    def full(draft, path):
        if os.path.basename(path) == zarr_format.DOCUMENT:
            raise OSError(errno.ENOSPC, "full")
        replace(draft, path)

    with truth.create(tmp_path / "run") as store:
        truth.go_on(store, 100)
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", full)
            with pytest.raises(OSError, match="full"):
                truth.go_on(store, 200)
    assert truth.check(tmp_path / "run") == 200
    truth.check_reopened(tmp_path / "run", 200)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_rights(tmp_path):
    path = tmp_path / "run"
    with truth.create(path) as store:
        truth.go_on(store, 100)
    folders = [path, *(folder for folder in path.rglob("*") if folder.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    (path / "scirocco" / "lock").chmod(0o444)
    try:
        assert truth.check(path) == 100 and not Stored.open(path).running
        with pytest.raises(PermissionError):
            Store.open(path)
        with pytest.raises(PermissionError):
            truth.create(path / "posterior" / "below")
    finally:
        for folder in folders:
            folder.chmod(0o755)
        (path / "scirocco" / "lock").chmod(0o644)
    truth.check_reopened(path, 100)


def test_a_file_system_without_locks_is_used_with_a_warning(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def refuse(fd, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.warns(UserWarning, match="only one process"), truth.create(tmp_path / "run") as store:
        truth.go_on(store, 10)
    assert not open_stored(tmp_path / "run").running


def test_what_replaces_committed_draws_is_on_the_disk_first(tmp_path, monkeypatch):
    """A power cut cannot be tried here; the order of the calls can be looked at."""
    groups = {"g": {"x": Variable((), np.dtype("float32"))}}
    store = Store.create(tmp_path / "run", groups, 1, {})
    events = []
    real_replace, real_fsync = os.replace, os.fsync

    def fsync(fd):
        events.append(("sync", os.readlink(f"/proc/self/fd/{fd}").removesuffix(".tmp")))
        real_fsync(fd)

    def replace(tmp, path):
        events.append(("name", path))
        real_replace(tmp, path)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    if not os.path.exists("/proc/self/fd"):
        pytest.skip("needs /proc to see which file is synced")
    chunk, commit = str(tmp_path / "run/g/x/c.0.0"), str(tmp_path / "run/scirocco/commit.json")
    for number in (1, 2):
        events.clear()
        store.append("g", {"x": np.ones((1, 5), np.float32)})
        store.commit({"k": np.ones(2)}, {})
        committed = events.index(("name", commit))
        state = str(tmp_path / f"run/scirocco/state-{number}.npz")
        for before, after in [
            (("sync", chunk), committed),
            (("sync", os.path.dirname(chunk)), committed),
            (("sync", state), events.index(("name", state))),
            (("name", state), committed),
            (("sync", commit), committed),
        ]:
            assert events.index(before) < after, before
        assert ("sync", os.path.dirname(commit)) in events[committed:]
        documents = [place for place, event in enumerate(events) if event[0] == "name" and "zarr.json" in event[1]]
        assert min(documents) > committed
        assert all(events[place - 1] == ("sync", events[place][1]) for place in documents)
        if number == 2:
            assert events.index(("sync", chunk)) < events.index(("name", chunk))
    store.close()


def test_many_writers_of_one_file_use_names_of_their_own(tmp_path):
    path = str(tmp_path / "shared.json")
    with files.writing(path, sync=False, many_writers=True) as file:
        file.write(b"new")
        assert os.listdir(tmp_path) == [f"shared.json.{os.getpid()}.tmp"]
    with pytest.raises(ZeroDivisionError), files.writing(path, sync=False, many_writers=True) as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == ["shared.json"] and (tmp_path / "shared.json").read_bytes() == b"new"


@pytest.mark.parametrize("how", ["removed", "replaced", "emptied"])
def test_a_store_that_is_gone_is_not_called_safe(tmp_path, how):
    store = truth.create(tmp_path / "run")
    truth.go_on(store, 400)
    shutil.rmtree(tmp_path / "run")
    if how == "replaced":
        with truth.create(tmp_path / "run") as other:
            truth.go_on(other, 100)
        shutil.rmtree(tmp_path / "run" / "snapshots")
    elif how == "emptied":
        (tmp_path / "run").mkdir()
    with pytest.raises(OSError) as raised:
        truth.go_on(store, 1_200)
    store.close()
    assert "no longer in" in raised.value.__notes__[0] and "safe" not in raised.value.__notes__[0]


def _saved(path, count=300, **options):
    """A store that is written at once, as `run.save` does."""
    with Store.whole(path, truth.GROUPS, truth.NUM_CHAINS, truth.RECORD, **options) as store:
        truth.go_on(store, count)


@pytest.mark.rotates(2)
@pytest.mark.parametrize("there", [False, True])
def test_what_is_saved_at_once_is_whole_or_not_there(tmp_path, monkeypatch, seed, there):
    """A full disk at any call: nothing at the path, or the run that was there before; and no leftovers."""
    fatal, finished, path = seed % 5 - 4, False, tmp_path / "run"
    while not finished:
        fatal += 5
        if there:
            _saved(path, 100, overwrite=True)
            (path / "notes.txt").write_text("mine")
        with monkeypatch.context() as patch:
            saboteur = Saboteur(patch, fatal, OSError(errno.ENOSPC, "No space left on device"))
            try:
                _saved(path, overwrite=there)
            except OSError:
                pass
            finished = saboteur.calls < fatal
        assert os.listdir(tmp_path) in ([], ["run"])
        if there or finished:
            assert truth.check(path) == (300 if finished else 100)
        assert not there or (path / "notes.txt").read_text() == "mine"
    assert fatal > 50
