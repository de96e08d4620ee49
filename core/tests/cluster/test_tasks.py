"""Tasks on two real worker processes, and the same tasks in this one."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
import time
import types

import jax
import pytest

import sharding
from scirocco import cluster
from scirocco.cluster.client import WAITS
from scirocco.errors import InvalidTypeError, InvalidValueError, WorkerError

pytestmark = pytest.mark.process

pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def client():
    with cluster.local(2) as client:
        yield client


def test_results_come_in_order_and_the_same_with_and_without_a_cluster(client):
    jobs, heard = list(range(6)), []
    here = cluster.run_tasks(sharding.square, jobs)
    there = cluster.run_tasks(sharding.square, jobs, client=client, on_progress=lambda *word: heard.append(word))
    assert [value for value, _ in here] == [value for value, _ in there] == [job**2 for job in jobs]
    assert {pid for _, pid in here} == {os.getpid()}
    assert os.getpid() not in {pid for _, pid in there}
    assert {number for number, _ in heard} == set(jobs)
    assert all(1 <= step <= 3 for _, step in heard)


@pytest.mark.parametrize("with_client", [False, True])
@pytest.mark.parametrize(
    ("job", "kind", "where"), [("fail", InvalidValueError, "message"), ("break", KeyError, "note")]
)
def test_an_error_names_its_job_and_ends_the_others(client, with_client, job, kind, where):
    names = ["the first", "the second"]
    with pytest.raises(kind) as caught:
        cluster.run_tasks(sharding.wait_or_fail, [job, "wait"], client=client if with_client else None, names=names)
    text = str(caught.value) if where == "message" else " ".join(caught.value.__notes__)
    assert "the first" in text and "the second" not in text
    _nothing_runs(client)


def test_ctrl_c_ends_what_runs(client):
    def press():
        _until(lambda: any(client.run(_num_running).values()))
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        cluster.run_tasks(sharding.wait_or_fail, ["wait"] * 5, client=client)
    _nothing_runs(client)
    assert len(cluster.run_tasks(sharding.square, [1, 2], client=client)) == 2


def _nothing_runs(client):
    assert not any(client.run(_num_running).values())
    assert not any(client.processing().values())


def _num_running():
    from scirocco.cluster import tasks

    return sum(tasks.RUNNING_JOBS.values())


_num_running.__module__ = "__main__"  # pickled by value: workers cannot import test files


def test_what_counts_as_a_client(client):
    assert cluster.as_client(None, "a test") is None
    assert cluster.as_client(client, "a test") is client
    with cluster.connected(client.scheduler.address, "a test") as other:
        assert other is not client and other.status == "running"
    assert other.status == "closed"
    with pytest.raises(InvalidValueError, match="`client` of a test is closed"):
        cluster.as_client(other, "a test")
    with pytest.raises(InvalidTypeError, match=r"must be a distributed\.Client.*got LocalCluster.*Client\(cluster\)"):
        cluster.as_client(client.cluster, "a test")
    with pytest.raises(InvalidTypeError, match="got int"):
        cluster.as_client(4, "a test")


def test_the_jobs_of_a_client_that_is_killed_end(client):
    code = (
        f"import sys; sys.path[:0] = [{os.path.dirname(sharding.__file__)!r}]; import sharding\n"
        "from scirocco import cluster\n"
        f"with cluster.connected({client.scheduler.address!r}, 'a test') as found:\n"
        "    cluster.run_tasks(sharding.wait_or_fail, ['wait'] * 3, client=found)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            _until(lambda: all(client.run(_num_running).values()))
        finally:
            process.kill()
    _until(lambda: not any(client.run(_num_running).values()))
    _nothing_runs(client)


def _until(reached):
    """Ten minutes at most, which is not a matter of how busy the machine is."""
    end = time.monotonic() + 600
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_jobs_that_wait_for_others_say_so(client, changed, tmp_path):
    """The others end when it has been said."""
    changed(WAITS, look=0.1, silence=0.2)
    others = client.map(sharding.wait_for, [str(tmp_path / "said")] * 2, pure=False)
    with pytest.warns(UserWarning, match="busy with other work; the jobs wait") as said:

        def release():
            _until(lambda: len(said))
            (tmp_path / "said").touch()

        threading.Thread(target=release, daemon=True).start()
        cluster.run_tasks(sharding.square, [1], client=client)
    client.gather(others)


_Pair = type("_Pair", (list,), {"__module__": "__main__"})  # as in a script
jax.tree_util.register_pytree_node(_Pair, lambda pair: (tuple(pair), None), lambda _, pair: _Pair(pair))


def test_what_cannot_travel_is_named(client, monkeypatch):
    lock = threading.Lock()
    with pytest.raises(InvalidTypeError, match=r"the task → lock, a lock, cannot be sent to workers"):
        cluster.run_tasks(lambda job, tell: lock, [1], client=client)
    with pytest.raises(InvalidTypeError, match=r"job 0 → 'a' → \[1\], a lock, cannot be sent"):
        cluster.run_tasks(sharding.square, [{"a": [0, lock]}], client=client)
    mine = types.ModuleType("mymodels")
    exec("def function(job, tell): return job", mine.__dict__)
    monkeypatch.setitem(sys.modules, "mymodels", mine)
    with pytest.raises(WorkerError, match=r"No module named 'mymodels'.*client\.upload_file\('mymodels\.py'\)"):
        cluster.run_tasks(mine.function, [1], client=client)
    task = functools.partial(sharding.keep, params={"both": _Pair([1.0, 2.0])})
    with pytest.raises(InvalidTypeError, match=r"__main__\._Pair is registered.*module that workers can import"):
        cluster.run_tasks(task, [1], client=client)
    _nothing_runs(client)


@pytest.mark.rotates(2, "killed workers")
def test_a_job_whose_worker_is_killed_is_begun_again(client, tmp_path):
    assert cluster.run_tasks(sharding.die_once, [str(tmp_path / "died")], client=client) == ["alive"]
    assert (tmp_path / "died").exists()


def test_a_job_that_kills_every_worker_is_named(client):
    scheduler = client.cluster.scheduler
    before, scheduler.allowed_failures = scheduler.allowed_failures, 0
    try:
        with pytest.raises(cluster.WorkerError, match="poison: 1 worker died"):
            cluster.run_tasks(sharding.die, [0], client=client, names=["poison"])
    finally:
        scheduler.allowed_failures = before


@pytest.mark.parametrize(
    ("address", "message"),
    [("localhost", "must be the address of a scheduler"), ("tcp://127.0.0.1:1", "no scheduler answers")],
)
def test_bad_addresses(address, message, changed):
    changed(WAITS, answer=1)
    with pytest.raises(InvalidValueError, match=message):
        cluster.as_client(address, "a test")


def test_a_cluster_without_workers_is_said_to_be_one():
    import distributed

    quiet = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    with (
        distributed.LocalCluster(
            n_workers=0, host="127.0.0.1", dashboard_address=None, scheduler_kwargs=quiet
        ) as empty,
        distributed.Client(empty, set_as_default=False) as client,
    ):
        with pytest.warns(UserWarning, match="has no workers yet"):
            with pytest.raises(InvalidValueError, match=r"has no workers\. Start one with `dask worker tcp"):
                cluster.as_client(client, "a test", wait=0.2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_workers": 0}, "`num_workers` must be at least 1"),
        ({"num_workers": 1, "threads_per_worker": 1.5}, "`threads_per_worker` must be a whole number"),
        ({"num_workers": 1, "processes": False}, "require worker processes"),
    ],
)
def test_bad_local_clusters(arguments, message):
    with pytest.raises((InvalidValueError, InvalidTypeError), match=message):
        cluster.local(**arguments)


def test_as_many_names_as_jobs():
    with pytest.raises(InvalidValueError, match="2 jobs, but 1 names"):
        cluster.run_tasks(sharding.square, [1, 2], names=["one"])
