"""Fixtures for all tests, the part each of them belongs to, and the table of parts at the end.

Every test belongs to one of the parts in `PARTS`, by a marker: `pytestmark = pytest.mark.law` for a file, a decorator
for a single test, which then counts in place of the file's. Doctests and the tests of the papers have theirs by where
they are. `pytest -m law` runs one part.

Random tests must pass for any seed: SCIROCCO_TEST_SEED (0-99) picks it.
"""

import collections
import gc
import os
import signal
import threading
from pathlib import Path

import jax
import pytest

PARTS = ("unit", "compile", "law", "process", "papers", "browser")
_HERE = Path(__file__).parent
_MAPS, _MANY_MAPS = Path("/proc/self/maps"), 25_000


def pytest_configure():
    """Who starts the tests in the background has Ctrl-C ignored: tests of it need Python's own handler."""
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if ignored and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


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
    if (_HERE / "src") in item.path.parents:
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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave each test with the marker of its part alone, so that `-m` selects by it."""
    parts = [part_of(item) for item in items]
    for node in {node for item in items for node in item.listchain()}:
        node.own_markers[:] = [mark for mark in node.own_markers if mark.name not in PARTS]
    for item, part in zip(items, parts, strict=True):
        item.add_marker(part)
        item.user_properties.append(("part", part))


# -- fixtures -------------------------------------------------------------------------------------------------------


@pytest.fixture
def seed() -> int:
    """The seed of this session's random tests."""
    return int(os.environ.get("SCIROCCO_TEST_SEED", "0"))


@pytest.fixture(scope="module")
def quick_compiler():
    """Programs that make a few steps spend nearly all their time in the compiler: it is told to hurry."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(autouse=True, scope="module")
def _forget_programs():
    """Compiled programs take memory maps, of which a process may have 65,530: beyond that the compiler crashes."""
    yield
    if _MAPS.exists() and _MAPS.read_bytes().count(b"\n") > _MANY_MAPS:
        jax.clear_caches()
        gc.collect()
