"""The engine in this process: worker threads, a queue rebuilt from the manifests, many runs."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from leasehold.bootstrap import Bundle, Hooks, boot, in_process_queue, log_report, system_clock
from leasehold.domain.change import Change
from leasehold.domain.manifest import Manifest
from leasehold.domain.retry import QUEUE_BACKOFF
from leasehold.domain.status import Outcome
from leasehold.domain.task import Task, dispatch_task
from leasehold.domain.trace import TraceEvent
from leasehold.errors import LeaseholdError
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Committed
from leasehold.ports.lease_keeper import HeldAttempt
from leasehold.registry.dispatch import StepDispatchEntry
from leasehold.registry.gates import NO_GATES, GateEntry
from leasehold.registry.pipelines import Catalog, PipelineEntry
from leasehold.registry.registry import Registry
from leasehold.services.adopt_runs import (
    adopt_all,
    adopt_run,
    parked_runs,
    take_up_dispatched,
)
from leasehold.services.engine import Engine, publish_or_leave
from leasehold.services.execute_step import Hint, execute_step, has_lease, run_steps
from leasehold.services.read_runs import get_run, timeline_of
from leasehold.services.reporting import Facts
from leasehold.services.shut_down import GRACE_S, shut_down
from leasehold.services.start_run import StartRequest, begin, start_run
from leasehold.services.sweep import sweep
from leasehold.worker.holder import host_name, is_gone

_LOG: Final = logging.getLogger("leasehold.in_process")

#: How often runs are looked for whose alarm is due.
TICK_S: Final = 1.0

#: How long one sweep begins to attend to runs: the engine may be closed meanwhile.
_SWEEP_TIME: Final = timedelta(seconds=5)

#: How long threads may take to end once the leases of their runs are settled.
_SETTLING_S: Final = 1.0


class InProcessEngine:
    """Runs pipelines with the same services as the functions, without HTTP.

    With `workers=0` nothing runs by itself: `run_until_idle` runs what is due, in the caller's
    thread, which makes tests with a frozen clock deterministic.

    Args:
        steps: the dispatch registry; None: that of LEASEHOLD_CATALOG.
        pipelines: the pipeline registry; given with `steps`.
        gates: the gate registry of those.
        environ: the settings; None: those of the process.
        clock: in place of the machine's.
        workers: how many steps run at once.
        warn: given each override that is refused, once; None: the log.
        report: given dead letters and refused outputs, as facts; the log by default.
    """

    def __init__(
        self,
        steps: Registry[StepDispatchEntry] | None = None,
        pipelines: Registry[PipelineEntry] | None = None,
        gates: Registry[GateEntry] = NO_GATES,
        *,
        environ: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        workers: int = 4,
        warn: Callable[[str], object] | None = None,
        report: Callable[[Facts], object] = log_report,
    ) -> None:
        if (steps is None) != (pipelines is None):
            raise TypeError("steps and pipelines are given together, or neither")
        catalog = None
        if steps is not None and pipelines is not None:
            catalog = Catalog(steps=steps, pipelines=pipelines, gates=gates)
        self._mine: set[str] = set()  # the runs that this engine is to bring to their end
        self._looked_at = -math.inf
        self._listeners: list[Callable[[Manifest], object]] = []
        self._closing = threading.Event()
        clock = clock or system_clock()
        self._dispatched_since = clock.now()
        self._queue = in_process_queue(clock)
        self._begun: dict[str, Committed[Change]] = {}  # by task: runs that have a worker's lease
        self._bundle: Bundle = boot(
            environ,
            catalog=catalog,
            clock=clock,
            tasks=self._queue,
            hooks=Hooks(
                observe=self._observe,
                may_continue=lambda: not self._closing.is_set(),
                warn=warn or _LOG.warning,
                report=report,
            ),
        )
        self.engine: Engine = self._bundle.engine
        self._width = max(1, workers)
        self._threads = [
            threading.Thread(target=self._work, name=f"worker-{number}", daemon=True)
            for number in range(workers)
        ]
        if workers:
            self._threads.append(threading.Thread(target=self._tick, name="clockwork", daemon=True))
        self._start_threads()

    def _start_threads(self) -> None:
        """Start all threads, or none: with a part of them, runs would wait and nobody see why."""
        try:
            for thread in self._threads:
                thread.start()
        except (RuntimeError, MemoryError):
            self._threads = [thread for thread in self._threads if thread.ident is not None]
            self.close()
            raise

    def start(
        self,
        pipeline: str,
        input: Any = None,  # noqa: A002 - the word of the API
        *,
        idempotency_key: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Manifest:
        """Start a run, or take up the one the key started before; see `services.start_run`.

        Where a worker is idle, it has the lease of the first step already when this returns.
        """
        request = StartRequest(pipeline, input, idempotency_key, labels or {})
        change = self._begin(request)
        if change.outcome is Outcome.EXISTING:
            self.adopt(change.manifest.run_id)
        return change.manifest

    def run(self, pipeline: str, input: Any = None) -> Manifest:  # noqa: A002 - as above
        """Start a run and run it in this thread; return it as its attempts here left it.

        It is idle then, unless it waits for a retry or for another worker.

        Raises:
            KeyboardInterrupt: Ctrl-C came while a handler ran; its attempt was released, and the
                run can go on.
        """
        begun = begin(self.engine, StartRequest(pipeline, input), eager=True)
        with self._raising_interrupts():
            return run_steps(self.engine, begun).manifest

    def adopt(self, run_id: str) -> None:
        """Take up a run where another process left it.

        A lease whose holder was a process of this host that is gone is ended at once; any other
        live lease is waited for.
        """
        self._mine.add(run_id)
        adopt_run(self.engine, run_id, is_gone=_is_gone)

    def adopt_all(self) -> int:
        """Take up every live run of the store, as after a restart; return how many.

        Those that a person holds are not counted; they go on here once they are let go.
        """
        adopted = adopt_all(self.engine, is_gone=_is_gone)
        self._mine.update(adopted, parked_runs(self.engine))
        return len(adopted)

    def run_until_idle(self) -> int:
        """Run all that is due now, in this thread; return how many tasks that were.

        Raises:
            KeyboardInterrupt: as `run`.
        """
        ran = 0
        self._look()
        while task := self._queue.take_due():
            with self._raising_interrupts():
                execute_step(self.engine, Hint(task.run_id, task.generation))
            ran += 1
        return ran

    def on_idle(self, listener: Callable[[Manifest], object]) -> Callable[[], None]:
        """Have `listener` called with each run that becomes idle; return what ends that.

        Idle is a run that nothing moves any more: it is terminal, blocked or paused.
        """
        self._listeners.append(listener)
        return partial(self._listeners.remove, listener)

    def wait(self, run_id: str, timeout: float | None = None) -> Manifest:
        """Wait until the run is idle.

        Raises:
            TimeoutError: it still moves after `timeout` seconds.
        """
        idle = threading.Event()
        forget = self.on_idle(_setting(idle, run_id))
        try:
            end = math.inf if timeout is None else time.monotonic() + timeout
            while (run := self.show(run_id)).alarm_at is not None:
                left = end - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"run {run_id} still moves after {timeout} s")
                idle.wait(min(left, TICK_S))  # another process may make it so
        finally:
            forget()
        return run

    def show(self, run_id: str) -> Manifest:
        """Return the manifest, with the progress that running handlers made since."""
        manifest = get_run(self.engine, run_id)
        for held in self.held_runs():
            if held.manifest.run_id == run_id and held.progress is not None:
                step = held.manifest.current_step
                return manifest.with_(steps=manifest.with_step(step, progress=held.progress))
        return manifest

    def held_runs(self) -> Sequence[HeldAttempt]:
        """Return the attempts that run here now."""
        return self.engine.leases.held_attempts()

    def trace(self, run_id: str) -> list[TraceEvent]:
        """Return all that happened to the run, oldest first."""
        return timeline_of(self.engine, run_id)

    def close(self, grace: float = GRACE_S) -> None:
        """Let running attempts know, wait for them, and close the store.

        A handler that does not end within `grace` seconds is left behind: its lease is given
        back, and its thread ends with the process. The next engine takes its run up.
        """
        self._closing.set()
        self._queue.close()
        end = time.monotonic() + grace + _SETTLING_S
        shut_down(self.engine, grace=grace)
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        if not any(thread.is_alive() for thread in self._threads):
            self._bundle.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @contextlib.contextmanager
    def _raising_interrupts(self) -> Iterator[None]:
        """Raise in the end what interrupted a handler inside, whose attempt is released then."""
        try:
            yield
        finally:
            self.engine.raise_interrupt()

    def _begin(self, request: StartRequest) -> Change:
        """Start a run; where a worker is idle, it gets the first lease in the same commit."""
        if not self._queue.reserve_worker():
            return start_run(self.engine, request)
        task = None
        try:
            begun = begin(self.engine, request, eager=True)
            if has_lease(begun.answer):
                task = dispatch_task(begun.answer.manifest)
                self._begun[task.name] = begun
        finally:
            self._queue.end_reservation(task)
        return begun.answer if task else publish_or_leave(self.engine, begun.answer)

    def _work(self) -> None:
        """Run tasks until the queue closes; what a step owes is exchanged for the next task."""
        owed = _OwedTasks()
        engine = replace(self.engine, tasks=owed)
        done: Task | None = None
        failures = 0
        while task := self._queue.exchange(done, owed.drain()):
            done = task
            try:
                if begun := self._begun.pop(task.name, None):
                    run_steps(engine, begun)
                else:
                    execute_step(engine, Hint(task.run_id, task.generation))
                failures = 0
            except Exception as error:  # noqa: BLE001 - the thread must outlive any step
                failures += 1
                again = self.engine.clock.now() + QUEUE_BACKOFF.wait(failures)
                owed.create(replace(task, not_before=again))
                log = _LOG.warning if isinstance(error, LeaseholdError) else _LOG.exception
                log("run %s could not be worked on, again at %s: %s", task.run_id, again, error)

    def _tick(self) -> None:
        """Look for runs of this engine that nobody moves any more."""
        while not self._closing.wait(TICK_S):
            try:
                self._look()
            except Exception as error:  # noqa: BLE001 - nobody else would look for them
                log = _LOG.warning if isinstance(error, LeaseholdError) else _LOG.exception
                log("the sweep failed, again in %s s: %s", TICK_S, error)

    def _look(self) -> None:
        """Take up what others dispatched of the runs of this engine, and sweep them."""
        now = self.engine.clock.monotonic()
        if not self._mine or now - self._looked_at < TICK_S:
            return
        self._looked_at = now
        try:
            self._dispatched_since = take_up_dispatched(
                self.engine, among=self._mine, since=self._dispatched_since
            )
        finally:  # its index may still be built: the sweep can do without
            sweep(self.engine, among=self._mine, time=_SWEEP_TIME, width=self._width)

    def _observe(self, change: Change) -> None:
        if change.outcome is Outcome.STARTED:
            self._mine.add(change.manifest.run_id)
        if change.manifest.is_terminal:
            self._mine.discard(change.manifest.run_id)
        if change.manifest.alarm_at is None:
            for listener in tuple(self._listeners):
                listener(change.manifest)


class _OwedTasks:
    """A task queue that only notes: what one step owes, until its worker exchanges it."""

    def __init__(self) -> None:
        self._tasks: list[Task] = []

    def create(self, task: Task) -> None:
        """Note the task."""
        self._tasks.append(task)

    def exists(self, task: Task) -> bool:
        """Return whether the task is noted."""
        return task in self._tasks

    def drain(self) -> list[Task]:
        """Return what was noted, and forget it."""
        tasks, self._tasks = self._tasks, []
        return tasks


def _is_gone(holder: str) -> bool:
    return is_gone(holder, host=host_name())


def _setting(event: threading.Event, run_id: str) -> Callable[[Manifest], None]:
    """Return a listener that sets the event when that run becomes idle."""

    def listener(manifest: Manifest) -> None:
        if manifest.run_id == run_id:
            event.set()

    return listener
