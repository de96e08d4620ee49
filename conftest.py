"""Fixtures for all tests, the part each of them belongs to, and the table of parts at the end.

Every test belongs to one of the parts in `PARTS`, by a marker: `pytestmark = pytest.mark.law` for a file, a decorator
for a single test, which then counts in place of the file's. Doctests and the tests of the papers have theirs by where
they are. `pytest -m law` runs one part.

Compiled programs are kept in build/test-cache, where the next run, other workers and the processes that tests start
find them; JAX_COMPILATION_CACHE_DIR names another folder, and an empty one means none.

Files that tests write are in memory where there is room (/dev/shm), since stores wait for the disk at every commit;
PYTEST_DEBUG_TEMPROOT names another folder. Those of tests that passed are deleted.

Random tests must pass for any seed: SCIROCCO_TEST_SEED (0-99) picks it, otherwise the commit does. A seed that fails is
a defect of the test or of the code.

Some tests have many slow cases. `@pytest.mark.rotates(3)` runs every third case of a parametrised test, and the commit
decides which; `rotates(3, "name")` runs every third of all tests with this name. Of the doctests every third is run.
SCIROCCO_TEST_PAIRS (0-99) decides instead of the commit; it also picks the pairs that test_battery.py compiles.
SCIROCCO_TEST_ALL=1 runs all of them. A test that is selected alone always runs, and so do those of files that the last
commit or merge changed, and of the folder X of the tests where it changed the folder X of the sources.
"""

import collections
import contextlib
import ctypes
import gc
import itertools
import os
import resource
import shutil
import signal
import sys
import threading
import time
import zlib
from pathlib import Path

import pytest

PARTS = ("unit", "compile", "law", "process", "papers", "browser")
_HERE = Path(__file__).parent
_CACHE, _CACHE_BYTES = _HERE / "build" / "test-cache", 1 << 30
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")  # before jax is imported
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")  # no lines of Python in compiled programs
os.environ.setdefault("SCIROCCO_TRACEBACK", "full")  # errors with the frames inside the library
os.environ.setdefault("XDG_STATE_HOME", str(_HERE / "build" / "test-state"))
sys.path.append(str(_HERE / "tools"))

from page_blocks import changed_files, choice, quick_compiler  # noqa: E402
from page_blocks import seed as chosen_seed  # noqa: E402

os.environ.setdefault("XLA_FLAGS", quick_compiler())

import jax  # noqa: E402

_SHOWN = 12  # files in the table at the end
_MEMORY, _ROOM = Path("/dev/shm"), 4_000_000_000
_MAPS, _MANY_MAPS, _MANY_BYTES = Path("/proc/self/maps"), 25_000, 1_000_000_000


def pytest_configure(config: pytest.Config) -> None:
    """Who starts the tests in the background has Ctrl-C ignored: tests of it need Python's own handler."""
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if ignored and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        _bound_cache()
        if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM:
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))
        os.environ["SCIROCCO_TEST_PAIRS"] = str(choice())
        os.environ["SCIROCCO_TEST_SEED"] = str(chosen_seed())
        config.pluginmanager.register(_Table(config), "scirocco-table")


def _bound_cache() -> None:
    """Delete the oldest programs until the folder is small enough; what cannot be deleted stays."""
    try:
        files = sorted((file.stat().st_mtime, file.stat().st_size, file) for file in _CACHE.iterdir())
        excess = sum(size for _, size, _ in files) - _CACHE_BYTES
        for _, size, file in files:
            if excess <= 0:
                break
            file.unlink()
            excess -= size
    except OSError:
        pass


# -- parts ----------------------------------------------------------------------------------------------------------


def part_of(item: pytest.Item) -> str:
    """The part of a test: the marker nearest to it, or the rule for where it is."""
    by_node: dict[object, list[str]] = collections.defaultdict(list)
    for node, mark in item.iter_markers_with_node():
        if mark.name in PARTS:
            by_node[node].append(mark.name)
    for nearest in by_node.values():  # the test comes before its class, and that before its file
        if len(nearest) == 1:
            return nearest[0]
        marks = " and ".join(sorted(nearest))
        raise ValueError(f"{item.nodeid} is marked {marks}: it must be one of {', '.join(PARTS)}.")
    if (_HERE / "papers") in item.path.parents:
        return "papers"
    if "src" in item.path.relative_to(_HERE).parts:
        return "compile"
    raise ValueError(f"{item.nodeid} belongs to no part: mark it or its file with one of {', '.join(PARTS)}.")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector):
    """A file with a test of no part, or of two, cannot be collected."""
    report = yield
    mistakes = []
    for item in report.result if report.passed else ():
        try:
            if isinstance(item, pytest.Item):
                part_of(item)
        except ValueError as mistake:
            mistakes.append(str(mistake))
    if mistakes:
        report.outcome, report.longrepr, report.result = "failed", "\n".join(mistakes), []
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]):
    """Leave each test with the marker of its part alone, so that `-m` selects by it; files that hurry come first.

    Of the tests that `-m` and `-k` then select, those that rotate are left with some of their cases.
    """
    quick = {item.path for item in items if _is_quick(item)}
    items.sort(key=lambda item: item.path not in quick)
    parts = [part_of(item) for item in items]
    for node in {node for item in items for node in item.listchain()}:
        node.own_markers[:] = [mark for mark in node.own_markers if mark.name not in PARTS]
    for item, part in zip(items, parts, strict=True):
        item.add_marker(part)
        item.user_properties.append(("part", part))
    yield
    waiting = _waiting(items)
    if waiting and not os.environ.get("SCIROCCO_TEST_ALL"):
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in waiting])
        items[:] = [item for item in items if item.nodeid not in waiting]


def _waiting(items: list[pytest.Item]) -> set[str]:
    """The tests with the marker `rotates` that another commit runs; of each group at least one is run."""
    groups, changed = collections.defaultdict(list), _changed_folders()
    for item in items:
        if _room(item.path.relative_to(_HERE)) & changed:
            continue
        if isinstance(item, pytest.DoctestItem):
            groups[3, "examples"].append(item.nodeid)
        elif mark := item.get_closest_marker("rotates"):
            every, *name = mark.args
            groups[every, *(name or [item.nodeid.split("[")[0]])].append(item.nodeid)
    waiting = set()
    for (every, name), tests in groups.items():
        every = min(every, len(tests))
        turn = (int(os.environ["SCIROCCO_TEST_PAIRS"]) + zlib.crc32(name.encode())) % every
        waiting.update(test for number, test in enumerate(tests) if number % every != turn)
    return waiting


def _changed_folders() -> set[str]:
    """Files that changed, and the folders and files that test what they are part of.

    A change of `core/src/scirocco/model/blocks.py` adds `core/tests/model`, `core/tests/model/test_blocks.py` and
    `core/tests/test_model.py`, and the same names in `tests`.
    """
    changed = changed_files()
    for file in list(changed):
        match Path(file).with_suffix("").parts:
            case (distribution, "src", _, *parts):
                parts = ["cli" if part == "commands" else part for part in parts]
                for folder, depth in itertools.product((f"{distribution}/tests", "tests"), range(len(parts))):
                    *above, name = parts[: depth + 1]
                    changed |= {"/".join([folder, *above, name]), "/".join([folder, *above, f"test_{name}.py"])}
    return changed


def _room(test: Path) -> set[str]:
    """What must not have changed if a test of this file is to wait its turn: itself, and the folder that it is in."""
    return {str(test), str(test.parent)}


def pytest_collection_finish() -> None:
    """What was imported and collected stays: later collections of garbage need not look at it, JAX causes many."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


# -- the table at the end -------------------------------------------------------------------------------------------


def _cpu_seconds() -> float:
    """CPU time of this process and of those it started and waited for."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def _peak_memory() -> float:
    """Of this process, in GB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e9 if sys.platform == "darwin" else 1e6)


_since = {"cpu": _cpu_seconds(), "peak": _peak_memory()}


def pytest_runtest_logstart() -> None:
    """What was imported before is nobody's."""
    _since.update(cpu=_cpu_seconds(), peak=_peak_memory())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    """Reports carry the part of their test, and CPU time and growth of the peak memory since the last report."""
    report = yield
    cpu, peak = _cpu_seconds(), _peak_memory()
    report.part, report.cpu = dict(item.user_properties)["part"], cpu - _since["cpu"]
    report.growth = peak - _since["peak"]
    _since.update(cpu=cpu, peak=peak)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Workers tell what they used."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["used"] = (_cpu_seconds(), _peak_memory())


class _Table:
    """Adds up reports in the process that shows them, and says what is run and where the time went."""

    def __init__(self, config: pytest.Config):
        self.config, self.began, self.used = config, time.monotonic(), []
        self.tests = collections.defaultdict(lambda: collections.defaultdict(float))
        """Of each part: seconds by test."""
        self.counts = {part: collections.Counter() for part in PARTS}
        self.growth = collections.Counter()
        """Of each file: what it added to the peak memory of a process, in GB."""

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self) -> None:
        chosen, pairs = self.config.option.markexpr, os.environ["SCIROCCO_TEST_PAIRS"]
        cache = os.environ["JAX_COMPILATION_CACHE_DIR"] or "not kept"
        self._write(f"parts: {chosen or ', '.join(PARTS)}; compiled programs: {cache}")
        seed = os.environ["SCIROCCO_TEST_SEED"]
        self._write(f"to repeat the choices of this run: SCIROCCO_TEST_PAIRS={pairs} SCIROCCO_TEST_SEED={seed}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        part = getattr(report, "part", None)
        if part is None:  # a worker crashed
            return
        self.tests[part][report.nodeid] += report.cpu
        self.growth[report.nodeid.split("::")[0]] += report.growth
        if report.when == "call" or report.outcome != "passed":
            self.counts[part][report.outcome] += 1

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        self.used.append(getattr(node, "workeroutput", {}).get("used"))

    def pytest_terminal_summary(self) -> None:
        if not self.tests:
            return
        self._write(f"{'part':8} {'tests':>6} {'passed':>7} {'failed':>7} {'skipped':>8} {'CPU s':>7}  slowest")
        total = 0.0
        for part in PARTS:
            if not (tests := self.tests[part]):
                continue
            count, seconds, slowest = self.counts[part], sum(tests.values()), max(tests, key=tests.get)
            total += seconds
            numbers = (len(tests), count["passed"], count["failed"], count["skipped"])
            self._write(
                "{:8} {:6} {:7} {:7} {:8} {:7.0f}  {:.1f} s {}".format(part, *numbers, seconds, tests[slowest], slowest)
            )
        files = collections.Counter()
        for test, seconds in ((test, s) for tests in self.tests.values() for test, s in tests.items()):
            files[test.split("::")[0]] += seconds
        if len(files) > _SHOWN:
            dear = ", ".join(f"{file} {seconds:.0f}" for file, seconds in files.most_common(_SHOWN))
            self._write(f"files with the most CPU s: {dear}")
            large = ", ".join(f"{file} {size:.2f}" for file, size in self.growth.most_common(_SHOWN // 2))
            self._write(f"files that added the most GB to a peak: {large}")
        used = [each or (float("nan"),) * 2 for each in self.used] or [(_cpu_seconds(), _peak_memory())]
        cpu, peaks = sum(each[0] for each in used), ", ".join(f"{each[1]:.2f}" for each in used)
        wall = time.monotonic() - self.began
        self._write(
            f"{total:.0f} CPU s in tests, {cpu - total:.0f} in imports and collecting; {wall:.0f} s in all; "
            f"peak memory of {len(used)} process{'es' if len(used) > 1 else ''}: {peaks} GB"
        )

    def _write(self, line: str) -> None:
        self.config.pluginmanager.get_plugin("terminalreporter").write_line(line)


# -- fixtures -------------------------------------------------------------------------------------------------------


@pytest.fixture
def seed() -> int:
    """The seed of this session's random tests."""
    return int(os.environ["SCIROCCO_TEST_SEED"])


@pytest.fixture
def changed():
    """Gives numbers of the library other values until the test ends: `changed(RUNNING, first_chunk=5)`."""
    with contextlib.ExitStack() as stack:
        yield lambda numbers, **values: stack.enter_context(numbers.changed(**values))


@pytest.fixture(scope="module")
def quick_compiler():
    """Programs that make a few steps spend nearly all their time in the compiler: it is told to hurry.

    From the first test of a file that asks for this to its last one, see `pytest_runtest_setup`; in the processes that
    these tests start, too. Doctests are always compiled like this.
    """


_hurried: list[Path] = []
"""The file whose tests are compiled in a hurry, if one is."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Programs compiled in a hurry round differently, so none is shared with tests that do without.

    To clear what JAX has compiled costs half a second, so that files of one kind follow each other and it is done where
    the kind changes.
    """
    if _is_quick(item):
        _hurried[:] = [item.path]
    quick = _hurried == [item.path]
    if quick != jax.config.read("jax_disable_most_optimizations"):
        _forget()
        jax.config.update("jax_disable_most_optimizations", quick)
        os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = str(int(quick))  # of processes that tests start


def _is_quick(item: pytest.Item) -> bool:
    return isinstance(item, pytest.DoctestItem) or "quick_compiler" in getattr(item, "fixturenames", ())


def _forget() -> None:
    """Clear what JAX has compiled."""
    global _left
    jax.clear_caches()
    gc.collect()
    _trim(0)
    _left = _resident() if _MAPS.exists() else 0


_left = 0
"""Memory after programs were cleared, in bytes."""


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Compiled programs take memory, and memory maps, of which a process may have 65,530: then the compiler crashes.

    They are cleared early at the end of a file, and late within it, where more of them are used again.
    """
    if not _MAPS.exists():
        return
    ends = nextitem is None or nextitem.path != item.path
    bytes_, maps = (_MANY_BYTES, _MANY_MAPS) if ends else (_MANY_BYTES * 5 // 4, 2 * _MANY_MAPS)
    if _resident() < bytes_ and (not ends or _count_maps() < maps):
        return
    _trim(0)  # what was freed stays with the process otherwise
    if _resident() > max(bytes_, _left + bytes_ // 4) or _count_maps() > maps:
        _forget()


_trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda pad: None)


def _count_maps() -> int:
    return _MAPS.read_bytes().count(b"\n")


def _resident() -> int:
    """Memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
