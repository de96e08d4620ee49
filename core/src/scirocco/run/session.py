"""The host loop: how many steps to make next, what to keep, when to commit, when to stop."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from scirocco import _checks
from scirocco._programs import give_back
from scirocco._random import key_of
from scirocco.errors import DataChangedError
from scirocco.run import encoding
from scirocco.run.cadence import Cadence
from scirocco.run.certificate import Certificate
from scirocco.run.keeping import Chains, HostChunk, Keeping, Sink
from scirocco.run.progress import Bar, Callback, Clock, Report, as_scores
from scirocco.run.records import Divergence, Progress, Record
from scirocco.run.result import Origin, Run
from scirocco.run.sizes import RUNNING
from scirocco.types import Key, PyTree

NEVER = 1 << 30  # a thinning with which no draw is kept


class Plan(NamedTuple):
    """The length of a run, and what it keeps."""

    num_samples: int
    num_burnin: int
    thin: int
    num_chains: int
    seed: int
    keeping: Keeping
    chain_method: str
    first_chain: int = 0
    """Number of the first chain, when other chains run elsewhere."""
    group_size: int = 1
    """Chains that share their batches: those numbered 0 to group_size - 1, and so on."""
    cycle: tuple[int, ...] = ()
    """Steps of a cycle, and those of them without draws; empty: there are no cycles."""

    @property
    def cadence(self) -> Cadence:
        """At which steps draws are made."""
        return Cadence(self.num_burnin, self.thin, *self.cycle)

    @property
    def num_steps(self) -> int:
        """The number of steps per chain."""
        return self.cadence.steps(self.num_samples)

    @property
    def key(self) -> Key:
        """The key from which all randomness of the run is derived."""
        return key_of(self.seed)

    @property
    def numbers(self) -> range:
        """The numbers of the chains; the randomness of a chain is derived from its number."""
        return range(self.first_chain, self.first_chain + self.num_chains)

    def leader(self, chain: int) -> int | None:
        """The first chain of the group, whose batches chain number `chain` has; None: its own."""
        return None if self.group_size == 1 else chain - chain % self.group_size


class Session:
    """Drives the chains from their current state to the end of the plan.

    Parameters
    ----------
    chains, plan
        The chains, and the number of steps.
    record
        The description of the run.
    sink
        Where the draws go.
    reached
        The progress of a stored run; its chains have been restored.
    stamp
        A function whose value changes when the data change.
    """

    def __init__(
        self,
        chains: Chains,
        plan: Plan,
        record: Record,
        sink: Sink,
        reached: Progress | None = None,
        stamp: Callable[[], str] | None = None,
    ):
        self.chains, self.plan, self.record, self.sink = chains, plan, record, sink
        self.callbacks: tuple[Callback, ...] = ()
        self.bar, self.setup = Bar(0, False), dict[str, float]()
        self.step, self.made = (0, 0) if reached is None else (reached.step, reached.draws)
        self.rate = self.began = 0.0
        self.scores = [] if reached is None else list(reached.scores)
        self.status = "complete"
        self.bad: Divergence | None = None
        self.timing: dict[str, dict[str, float]] = {}
        self.certificate: Certificate | None = None
        self._stamp, self._asked_to_stop, self._looked = stamp, False, time.perf_counter()
        self._torn = False
        self._ended_by: int | None = None
        self._stamped = stamp() if stamp else ""
        self.look: Callable[[], dict[str, Any]] | None = None
        """Returns the values of the model where the first chain is."""

    def drive(self, callbacks: tuple[Callback, ...], bar: Bar, setup: Clock) -> None:
        """Make chunks until the end, an interrupt, a callback's stop or a divergence; `setup` is read at step 1."""
        self.callbacks, self.bar, self.setup = callbacks, bar, setup.read()
        clock, self.began, first = Clock(), time.perf_counter(), self.step
        try:
            with self._finishing_chunks():
                while self.step < self.plan.num_steps and self.status == "complete":
                    self._chunk()
                    if "first_chunk" not in self.timing:  # includes compilation, so its time is kept separately
                        self.timing["first_chunk"] = clock.read() | {"steps": self.step - first}
                        clock.restart()
                        give_back()
                    if self._asked_to_stop:
                        raise KeyboardInterrupt
            consistent = True
        except KeyboardInterrupt:
            self.status, consistent = "interrupted", self._asked_to_stop and not self._torn
            _checks.warn(f"interrupted after {self.made} of {self.plan.num_samples} draws; the run contains them.")
        finally:
            self.chains.close()
        done = self.step - first - self.timing.get("first_chunk", {}).get("steps", 0)
        self.timing["sampling"] = clock.read() | {"steps": done}
        if consistent:
            self.commit(last=True)
            self._agreed(0)  # all processes wait until the one that writes has finished
        if self._ended_by is not None:
            raise SystemExit(128 + self._ended_by)  # what a process that a signal ends is expected to return

    @contextlib.contextmanager
    def _finishing_chunks(self) -> Iterator[None]:
        """Delay Ctrl-C until the chunk ends, so that all chains have made the same steps; a second one is immediate.

        The same for the signals that end a process (SIGTERM, SIGHUP): the run commits, and then the process ends.
        """

        def stop(number: int, frame: Any) -> None:
            self._ended_by = number if number != signal.SIGINT else self._ended_by
            if self._asked_to_stop:
                self._torn = True
                raise KeyboardInterrupt
            self._asked_to_stop = True

        usual: dict[int, Any] = {signal.SIGINT: signal.default_int_handler}
        usual |= {number: signal.SIG_DFL for number in signal.Signals if number.name in ("SIGTERM", "SIGHUP")}
        main = threading.current_thread() is threading.main_thread()
        taken = [number for number, handler in usual.items() if main and signal.getsignal(number) is handler]
        for number in taken:
            signal.signal(number, stop)
        try:
            yield
        finally:
            for number in taken:
                signal.signal(number, usual[number])

    def _agreed(self, *numbers: int) -> list[int]:
        """The same numbers in all processes that share the chains (the largest of each)."""
        return self.chains.agree(list(numbers))

    def _chunk(self) -> None:
        keeps, thin = self.plan.cadence.stretch(self.step).keeps, self.plan.thin
        known = self.chains.promised or (self._next_steps(self.step, self.made),)
        (steps,) = self._agreed(known[0])
        after, made = self.step + steps, self.made + (steps // thin if keeps else 0)
        self.chains.promised = self._promises(known[1:], after, made)
        begin = time.perf_counter()
        chunk = self.chains.advance(steps, thin if keeps else NEVER)
        seconds = time.perf_counter() - begin
        if self.timing and not self.chains.overlapped:  # the first chunk includes compilation: ignore its speed
            self.rate = steps / seconds
        self._look_for_change()
        self.sink.add(chunk)
        self.made += chunk.num_draws
        if not self._diverged(chunk):
            self.step += steps
            quiet = "exploring" if self.made else "burn-in"
            self._tell("sampling" if keeps else quiet, chunk.draws if keeps else None)
        due, stop, interrupt = self._agreed(self.sink.due(), self.status == "stopped", bool(self._asked_to_stop))
        self._asked_to_stop = bool(interrupt)
        if stop:
            self.status = "stopped"
        if due and self.bad is None:
            self.commit()

    def _promises(self, known: tuple[int, ...], step: int, made: int) -> tuple[int, ...]:
        """The steps of the chunks after this one, of which some are `known`: enough for a third of a second.

        Short chunks (many chains) then need not wait until the draws before have reached the host.
        """
        promised = list(known)
        step, made = step + sum(known), made + sum(known) // self.plan.thin
        while (
            self.timing
            and len(promised) < self.chains.most_ahead
            and step < self.plan.num_steps
            and self.plan.cadence.stretch(step).keeps
            and (not promised or sum(promised) < self.rate * RUNNING.chunk_seconds)
        ):
            promised.append(self._next_steps(step, made))
            step, made = step + promised[-1], made + promised[-1] // self.plan.thin
        return tuple(promised)

    def _next_steps(self, step: int, made: int) -> int:
        """The number of steps that takes about a third of a second, in whole draws, within the buffers."""
        plan = self.plan
        first, second = self.chains.first_chunks or (RUNNING.first_chunk, RUNNING.second_chunk)
        if not self.timing:
            wanted = first
        elif not self.rate:
            wanted = second
        else:
            wanted = int(self.rate * RUNNING.chunk_seconds)
        together = self.chains.steps_together
        wanted = max(1, wanted // together) * together
        keeps, left = plan.cadence.stretch(step)
        if not keeps:
            return min(wanted, left)
        most = min(self.chains.capacity, plan.num_samples - made, left // plan.thin)
        return max(1, min(wanted // plan.thin, most)) * plan.thin

    def _diverged(self, chunk: HostChunk) -> bool:
        bad = np.atleast_1d(chunk.bad_step)
        if np.all(bad < 0):
            return False
        chain = int(np.argmin(np.where(bad < 0, np.iinfo(np.int32).max, bad)))
        self.bad = Divergence(chain, int(bad[chain]), int(np.atleast_1d(chunk.bad_leaf)[chain]))
        self.status = "diverged"
        return True

    def _look_for_change(self, now_or_never: bool = False) -> None:
        """Check every second whether streamed data have changed: then the chain has no single posterior."""
        now = time.perf_counter()
        if self._stamp is None or (now - self._looked < RUNNING.look_seconds and not now_or_never):
            return
        self._looked = now
        if self._stamp() != self._stamped:
            raise DataChangedError(
                f"the data changed during the run, shortly before step {self.step}. The stored draws were committed "
                "before that; later draws would mix two posteriors. Start a new run on the new data."
            )

    def _tell(self, phase: str, draws: PyTree | None) -> None:
        elapsed = time.perf_counter() - self.began
        report = Report(self.step, self.plan.num_steps, self.plan.num_chains, draws, self.rate, elapsed)
        shown: dict[str, float] = {}
        for callback in self.callbacks:
            shown |= as_scores(callback(report))
        if shown:
            self.scores.append((self.step, shown))
        if report.stopped:
            self.status = "stopped"
        self.bar.update(self.step, phase, self.rate, shown)

    def commit(self, last: bool = False) -> None:
        """Commit everything so far, if there is a store; the last commit has the values of the model, too."""
        self._look_for_change(now_or_never=True)
        if self.sink.path is None and not self.chains.among_processes:
            return
        wanted, status = self.plan.num_samples, self._status_now()
        progress = Progress(
            *(self.step, self.made, wanted, status, self.rate, self.scores, self.timing, self.bad),
            model_values=self.look() if last and self.look and not self.bad else None,
        )
        if self.certificate is not None:
            progress = dataclasses.replace(progress, certificate=self.certificate.to_json())
        state = {} if self.bad else self.chains.save()
        self.sink.commit(state | encoding.save_results(self.results()), progress.to_json())

    def run(self, preparation: dict[str, Any], origin: Origin | None = None) -> Run:
        """The run so far."""
        kept = self.sink.collect()
        return Run(
            kept.draws,
            kept.gradients,
            kept.stats,
            self.record.configuration,
            preparation,
            {"setup": self.setup, **self.timing},
            self.status,
            self.scores,
            kept.traces,
            jax.tree.map(np.asarray, self.results()),
            self.sink.path,
            self.certificate,
            origin,
        )

    def results(self) -> dict[str, Any]:
        """The reducers' results so far."""
        return self.plan.keeping.reducing.results(self.chains.reduced())

    def _status_now(self) -> str:
        unfinished = self.status == "complete" and self.step < self.plan.num_steps
        return "running" if unfinished else self.status
