"""Topic models whose local steps are made on Dask workers: the same draws, whatever happens to the workers."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest
from scipy import sparse, stats

pytest.importorskip("numba", reason="topic models need numba (the extra `compiled`)")
pytest.importorskip("distributed", reason="workers need Dask (the extra `cluster`)")

from scirocco import schedules
from scirocco.cluster.client import WAITS
from scirocco.cluster.client import local as local_cluster
from scirocco.cluster.rounds import Workers, opened, spread_over
from scirocco.data.native.corpus import CorpusSource, write_corpus
from scirocco.diffusions import host
from scirocco.errors import InvalidValueError
from scirocco.simplex import theory
from scirocco_latent.lda import LDA, DocumentStream
from scirocco_latent.lda.document_batches import Delivery
from scirocco_latent.lda.settings import Size, resolve
from scirocco_latent.lda.sharded import Found, summed
from scirocco_latent.lda.stochastic_chain import StepLengths, StochasticChain

pytestmark = pytest.mark.process

RNG = np.random.default_rng(0)
SHARES = RNG.dirichlet(np.full(120, 0.05), 6)
X = np.stack([RNG.multinomial(30, RNG.dirichlet(np.full(6, 0.1)) @ SHARES) for _ in range(200)])
X[7] = 0  # an empty document
OPTIONS: dict[str, Any] = {"beta": 0.5, "batch_size": 40, "seed": 1, "num_samples": 2, "sweeps": 6}


@pytest.fixture(scope="module")
def client():
    """Two workers; on a busy machine it takes minutes until one that was killed is replaced."""
    with local_cluster(2) as made, WAITS.changed(worker=1_200.0):
        yield made


def both(client: Any) -> None:
    """Wait until there are two workers again."""
    end = time.monotonic() + 60
    while len(client.nthreads()) < 2 and time.monotonic() < end:
        time.sleep(0.1)


def _tasks(dask_scheduler: Any) -> list[str]:
    """What a scheduler knows of."""
    return [str(key) for key in dask_scheduler.tasks]


def topics(model: LDA) -> np.ndarray:
    """All draws."""
    assert model.run_ is not None and model.run_.draws is not None
    return np.asarray(model.run_.draws["topics"])


def here(num_topics: int = 30, num_steps: int = 7, **changes: Any) -> np.ndarray:
    """The draws of a fit in this process."""
    how = {"steps_per_exchange": changes.pop("steps_per_exchange", 1)}
    model = LDA(num_topics, memory="none", **OPTIONS | changes)
    return topics(model.fit(X, num_steps=num_steps, progress=False, **how))


# -- the same draws --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_shards", [1, 2, 4, None])
def test_draws_are_those_of_one_process(client, num_shards):
    there = LDA(30, **OPTIONS).fit(X, num_steps=7, client=client, num_shards=num_shards, progress=False)
    np.testing.assert_array_equal(topics(there), here())


@pytest.mark.parametrize(
    ("num_topics", "changes"),
    [
        (5, {}),  # the kernel for few topics
        (30, {"sampler": "scir_cv", "refresh_every": 3, "refresh_size": 60}),
        (30, {"sampler": "sgrld"}),
        (30, {"sampler": "sgld_cv", "refresh_every": 3}),
        (30, {"num_chains": 2}),
        (30, {"steps_per_exchange": 3}),
    ],
    ids=["dense", "scir_cv", "sgrld", "sgld_cv", "chains", "exchange"],
)
def test_every_method_without_memory_can_be_shared_out(client, num_topics, changes):
    changes = dict(changes)
    how = {"steps_per_exchange": changes.pop("steps_per_exchange", 1)}
    model = LDA(num_topics, **OPTIONS | changes)
    model.fit(X, num_steps=7, client=client, num_shards=3, progress=False, **how)
    np.testing.assert_array_equal(topics(model), here(num_topics, **changes, **how))


def test_a_corpus_on_disk_is_read_where_it_is(client, tmp_path):
    write_corpus(tmp_path / "corpus", sparse.csr_array(X), shuffle=False)
    there = LDA(30, **OPTIONS).fit(tmp_path / "corpus", num_steps=7, client=client, progress=False)
    np.testing.assert_array_equal(topics(there), here())
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]


def test_a_stored_fit_goes_on_with_and_without_workers(client, tmp_path):
    """The state is this process's: a fit that was stopped on workers is taken up in one process, and the other way."""

    def stop(report: Any) -> None:
        report.stop()

    how: dict[str, Any] = {"num_steps": 7, "store": tmp_path / "run", "progress": False}
    model = LDA(30, memory="none", **OPTIONS)
    with pytest.raises(InvalidValueError, match="stopped in its burn-in"):
        model.fit(X, client=client, callbacks=[stop], **how)
    with pytest.raises(InvalidValueError, match="stopped in its burn-in"):
        model.fit(X, resume=True, callbacks=[stop], **how)
    model.fit(X, resume=True, client=client, **how)
    np.testing.assert_array_equal(topics(model), here())
    assert [path.name for path in tmp_path.iterdir()] == ["run"]  # what was written for the workers is gone


# -- workers that die ------------------------------------------------------------------------------------------------


@pytest.mark.rotates(2, "killed workers")
def test_a_killed_worker_changes_nothing(client):
    before = dict(client.run(os.getpid))
    killed: list[int] = []

    def kill(report: Any) -> None:
        if not killed:
            killed.append(next(iter(before.values())))
            os.kill(killed[0], signal.SIGKILL)

    there = LDA(30, **OPTIONS).fit(X, num_steps=12, client=client, callbacks=[kill], progress=False)
    np.testing.assert_array_equal(topics(there), here(num_steps=12))
    both(client)
    assert killed and killed[0] not in client.run(os.getpid).values()


@pytest.mark.rotates(2, "killed workers")
def test_a_task_that_loses_its_worker_is_made_again(client, tmp_path):
    # the one that has been there longest: nannies were seen not to replace workers that die right after their start
    oldest, mark = min(client.run(os.getpid).values()), tmp_path / "mark"

    def die_once(common: int, job: int) -> int:
        if os.getpid() == common and not mark.exists():
            mark.touch()
            os.kill(common, signal.SIGKILL)
        return job

    assert Workers(client, 4).each(die_once, oldest, [0, 1, 2, 3]) == [0, 1, 2, 3]
    assert mark.exists()
    both(client)


def test_ctrl_c_leaves_nothing_behind(client):
    """One task is running and others wait: after an interrupt none is left on the scheduler."""
    threading.Timer(0.5, lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        Workers(client, 6).each(lambda common, job: time.sleep(job), "", [1, 1, 30, 30, 30, 30])
    end = time.monotonic() + 10
    while (left := client.run_on_scheduler(_tasks)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left


# -- parts -----------------------------------------------------------------------------------------------------------


def test_every_document_is_in_one_shard(seed):
    numbers = np.sort(np.random.default_rng(seed).choice(1000, 300, replace=False))
    parts = spread_over(numbers, 1000, 7)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(300))
    for part in parts:
        assert len({int(number) * 7 // 1000 for number in numbers[part]}) == 1
    assert len(spread_over(np.array([3]), 1000, 7)) == 1


@pytest.mark.parametrize("highest", [1, 250, 70_000, 2**33])
def test_sums_are_packed_and_added_exactly(seed, highest):
    rng = np.random.default_rng(seed)
    parts, wanted = [], np.zeros((9, 5), np.int64)
    for _ in range(3):
        words = np.sort(rng.choice(9, 4, replace=False))
        sums = rng.integers(0, highest, (4, 5), endpoint=True) * rng.integers(0, 2, (4, 5))
        wanted[words] += sums
        parts.append(Found.packed(words, sums))
    np.testing.assert_array_equal(summed(parts, (9, 5), 0.25), (wanted * 0.25).astype(np.float32))


# -- what several steps on the same counts do to the law ---------------------------------------------------------------


def test_steps_with_fixed_shapes_are_one_longer_step(seed):
    """CIR: four steps of h = 0.2 have the law of one of 0.8, for every start."""
    many, shape = np.full(20_000, 2.0), np.full(20_000, 1.5)
    by_steps = many.copy()
    for step in range(4):
        by_steps = host.cir((seed, step), by_steps, shape, 0.2)
    at_once = host.cir((seed, 99), many, shape, 0.8)
    assert stats.ks_2samp(by_steps, at_once).pvalue > 1e-6
    shorter = host.cir((seed, 98), many, shape, 0.2)
    assert stats.ks_2samp(by_steps, shorter).pvalue < 1e-6


class _Conjugate:
    """A model whose topics are known: category 0 of `count` among N rows; a batch of n for each topic apart."""

    total, count, batch_size = 100, 30, 10

    def __init__(self, seed: int, replicates: int):
        self.rng, self.replicates = np.random.default_rng(seed), replicates

    def next(self, count: int) -> Delivery:
        nothing = (np.zeros(count + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.int32))
        return Delivery(np.arange(count), nothing)

    def prepare(self, delivery: Delivery) -> Any:
        class Batch:
            distinct = np.arange(2)

        return Batch

    def counts(self, batch: Any, weights: np.ndarray, seed: Any) -> np.ndarray:
        left = self.total - self.count
        first = self.rng.hypergeometric(self.count, left, self.batch_size, self.replicates)
        return np.stack([first, self.batch_size - first]).astype(np.float32)


def test_stale_counts_have_the_law_of_a_longer_step(seed):
    """Every topic is a chain of its own, of known law: that of ℓh = 0.9, far from that of h = 0.3."""
    replicates, beta, h, together = 20_000, 0.5, 0.3, 3
    given = LDA(replicates, beta=beta, batch_size=10, step_size=h, memory="none").get_params()
    settings = resolve(given | {"steps_per_exchange": together}, Size(100, 2))
    model = _Conjugate(seed, replicates)
    engine = StochasticChain(2, settings, seed, model)
    for number in range(12):
        engine.step(model, number, lambda purpose, number=number: (seed, 8 * number + purpose))
    theta = engine.topics.lazy.catch_up()[0].astype(np.float64)  # type: ignore[attr-defined]
    counts = theory.Counts.hypergeometric(beta, model.count, model.total, model.batch_size)
    wanted = theory.stationary("scir", counts, together * h)
    error = np.sqrt(np.mean((theta - theta.mean()) ** 4) / replicates)
    assert abs(theta.mean() - wanted.mean) < 5 * np.sqrt(wanted.variance / replicates) + 1e-3 * wanted.mean
    assert abs(theta.var() - wanted.variance) < 5 * error
    shorter = theory.stationary("scir", counts, h)
    assert abs(theta.var() - shorter.variance) > 20 * error


def test_a_schedule_is_gone_through_as_fast(seed):
    """Batch t drives the steps 3t, 3t + 1 and 3t + 2 of the schedule."""
    schedule = schedules.polynomial(0.5, 10.0, 0.33)
    steps = StepLengths("scir", schedule, 5, 2, 3)
    wanted = sum(float(schedule(step)) for step in (6, 7, 8))
    assert steps.time(2, np.ones((5, 2)), 4, 10) == pytest.approx(wanted, rel=1e-12)


# -- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "how", "message"),
    [
        ({"memory": "documents"}, {}, "are not available"),
        ({"sampler": "gibbs"}, {}, "are not available"),
        ({"sampler": "sgrld"}, {"steps_per_exchange": 2}, "Euler steps"),
        ({}, {"num_shards": 0}, "num_shards"),
        ({}, {"steps_per_exchange": 0}, "steps_per_exchange"),
    ],
)
def test_what_workers_cannot_do_is_refused(client, options, how, message):
    with pytest.raises(InvalidValueError, match=message):
        LDA(4, **options).fit(X, num_steps=2, client=client, progress=False, **how)


def test_a_stream_is_not_for_workers(client):
    stream = DocumentStream([[(0, 2)], [(1, 1)]], vocabulary=2, num_documents=2)
    with pytest.raises(InvalidValueError, match="DocumentStream"):
        LDA(4).fit(stream, num_steps=2, client=client, progress=False)


def test_shards_need_a_client_and_memory_needs_no_exchange():
    with pytest.raises(InvalidValueError, match="num_shards"):
        LDA(4).fit(X, num_steps=2, num_shards=2, progress=False)
    with pytest.raises(InvalidValueError, match="draws new topics at every step"):
        LDA(4).fit(X, num_steps=2, steps_per_exchange=2, progress=False)


def test_files_that_a_worker_cannot_read_are_named(tmp_path):
    with pytest.raises(InvalidValueError, match="a worker cannot read"):
        opened(CorpusSource, str(tmp_path / "nothing"), "")
    write_corpus(tmp_path / "corpus", sparse.csr_array(X), shuffle=False)
    with pytest.raises(InvalidValueError, match="other data"):
        opened(CorpusSource, str(tmp_path / "corpus"), "another")
