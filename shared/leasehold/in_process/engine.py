"""The engine that users drive in their own process."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from functools import partial
from typing import Any, Final, Self

from leasehold.attempt.attempt import Attempt
from leasehold.bootstrap import Bundle, Hooks, boot, in_process_queue, log_report, system_clock
from leasehold.bounded_calls import start_call
from leasehold.domain.change import Change
from leasehold.domain.effect import Task, dispatch_task
from leasehold.domain.json_text import plain
from leasehold.domain.manifest import Manifest
from leasehold.domain.retry import QUEUE_BACKOFF
from leasehold.domain.slots import Priority
from leasehold.domain.spend import Budget, checked_budget
from leasehold.domain.status import Outcome, Termination
from leasehold.domain.stored import replace
from leasehold.domain.trace import TraceEvent
from leasehold.errors import LeaseholdError
from leasehold.hooks import hook
from leasehold.in_process.timer import TICK_S, Timer
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Committed
from leasehold.ports.task_queue import PulledTaskQueue
from leasehold.registry.channels import NO_CHANNELS, ChannelEntry
from leasehold.registry.dispatch import StepDispatchEntry
from leasehold.registry.gates import NO_GATES, GateEntry
from leasehold.registry.pipelines import Catalog, PipelineEntry
from leasehold.registry.registry import Registry
from leasehold.registry.schedules import NO_SCHEDULES, ScheduleEntry
from leasehold.services.check_chain import check_chains
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, execute_step, has_lease, run_steps
from leasehold.services.read_children import read_children_of, with_progress_of_children
from leasehold.services.read_runs import get_run, timeline_of
from leasehold.services.reporting import Facts
from leasehold.services.shut_down import GRACE_S, shut_down
from leasehold.services.start_run import StartRequest, begin, start_run
from leasehold.worker.sandbox.forking.project_sources import ProjectSources

# The threads that run steps, and a start that gives an idle one of them its lease at once.


class Workers:
    """Runs what is due in a queue, until the queue is closed.

    Args:
        engine: returns the parts, as they are then.
        queue: where the tasks wait; that of the engine.
        count: how many steps run at once.

    Attributes:
        threads: one a worker; not started yet.
    """

    def __init__(self, engine: Callable[[], Engine], queue: PulledTaskQueue, count: int) -> None:
        self._engine = engine
        self._queue = queue
        self._begun: dict[str, Committed[Change]] = {}  # by task: runs that have a worker's lease
        self.threads: Sequence[threading.Thread] = [
            threading.Thread(target=self._work, name=f"worker-{number}", daemon=True)
            for number in range(count)
        ]

    def begin(self, request: StartRequest) -> Change:
        """Start a run; where a worker is idle, it gets the first lease in the same commit."""
        engine = self._engine()
        if not self._queue.reserve_worker():
            return start_run(engine, request)
        task = None
        try:
            begun = begin(engine, request, eager=True)
            if has_lease(begun.answer):
                task = dispatch_task(begun.answer.manifest)
                self._begun[task.name] = begun
        finally:
            self._queue.end_reservation(task)
        return begun.answer if task else engine.publish_or_leave(begun.answer)

    def _work(self) -> None:
        """Run tasks until the queue closes; what a step owes is exchanged for the next task."""
        owed = _OwedTasks(self._queue)
        engine = replace(self._engine(), tasks=owed)
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
                again = engine.clock.now() + QUEUE_BACKOFF.wait(failures)
                owed.create(replace(task, not_before=again))
                log = _LOG.warning if isinstance(error, LeaseholdError) else _LOG.exception
                log("run %s could not be worked on, again at %s: %s", task.run_id, again, error)


class _OwedTasks:
    """A task queue that only notes: what one step owes, until its worker exchanges it.

    Args:
        queue: gets at once what another thread owes: the thread that ends a hanging attempt does
            not wait for its worker.
    """

    def __init__(self, queue: PulledTaskQueue) -> None:
        self._queue = queue
        self._worker = threading.get_ident()
        self._tasks: list[Task] = []

    def create(self, task: Task) -> None:
        """Note the task."""
        if threading.get_ident() == self._worker:
            self._tasks.append(task)
        else:
            self._queue.create(task)

    def exists(self, task: Task) -> bool | None:
        """Return True if the task is noted; None: it may wait elsewhere."""
        return True if task in self._tasks else self._queue.exists(task)

    def drain(self) -> list[Task]:
        """Return what was noted, and forget it."""
        tasks, self._tasks = self._tasks, []
        return tasks


_LOG: Final = logging.getLogger("leasehold.in_process")

_UNANSWERED: Final = (
    "the store did not answer in time; what was not released is taken up when its lease is over"
)

#: How long threads may take to end once the leases of their runs are settled.
_SETTLE_TIMEOUT_S: Final = 1.0
#: Most of it: telemetry is sent when all else is closed.
_TELEMETRY_FLUSH_S: Final = 0.8


class InProcessEngine:
    """Runs pipelines with the same services as the functions, without HTTP.

    With `workers=0` nothing runs by itself: `run_until_idle` runs what is due, in the caller's
    thread, which makes tests with a frozen clock deterministic.

    Args:
        steps: the dispatch registry; None: that of LEASEHOLD_CATALOG.
        pipelines: the pipeline registry; given with `steps`.
        gates: the gate registry of those.
        channels: the channel registry of those.
        schedules: the schedule registry of those.
        environ: the settings; None: those of the process.
        clock: in place of the machine's.
        workers: how many steps run at once.
        warn: given each override that is refused, once; None: the log.
        report: given dead letters and refused outputs, as facts; the log by default.
        allow_broken: begin also where a pipeline could never reach its end.

    Raises:
        CatalogError, SettingError: the catalog or a setting cannot be used. Nothing was written.
        ChainError: a pipeline could never reach its end.
        StoreVersionError: a newer Leasehold wrote the store.

    Raises, in each method:
        UnknownRunError: no run has that id.
        StoreUnavailableError: there is no answer. Retryable.
    """

    def __init__(
        self,
        steps: Registry[StepDispatchEntry] | None = None,
        pipelines: Registry[PipelineEntry] | None = None,
        gates: Registry[GateEntry] = NO_GATES,
        channels: Registry[ChannelEntry] = NO_CHANNELS,
        *,
        schedules: Registry[ScheduleEntry] = NO_SCHEDULES,
        environ: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        workers: int = 4,
        warn: Callable[[str], object] | None = None,
        report: Callable[[Facts], object] = log_report,
        allow_broken: bool = False,
    ) -> None:
        if (steps is None) != (pipelines is None):
            raise TypeError("steps and pipelines are given together, or neither")
        catalog = None
        if steps is not None and pipelines is not None:
            catalog = Catalog(steps, pipelines, gates, channels, schedules)
        self._runs_by_hand = not workers
        self._listeners: list[Callable[[Manifest], object]] = []
        self._closing = threading.Event()
        clock = clock or system_clock()
        self._queue = in_process_queue(clock)
        hooks = Hooks(
            observe=self._observe,
            may_continue=lambda: not self._closing.is_set(),
            warn=warn or _LOG.warning,
            report=report,
        )
        self._bundle: Bundle = self._boot(environ, catalog, clock, hooks)
        self.engine: Engine = self._bundle.engine
        if not allow_broken:
            self._check_chains()
        sources = self._bundle.sources
        self._timer = Timer(lambda: self.engine, sources, max(1, workers), self._closing)
        self._workers = Workers(lambda: self.engine, self._queue, workers)
        self._threads = [*self._workers.threads]
        if workers:
            tick = self._timer.tick
            self._threads.append(threading.Thread(target=tick, name="timer", daemon=True))
        self._start_threads()

    def _check_chains(self) -> None:
        """Refuse a catalog with a pipeline that could never reach its end; keep no store open."""
        try:
            check_chains(self.engine.catalog, self.engine.handlers.checks)
        except BaseException:
            self._bundle.close()
            raise

    def _boot(
        self,
        environ: Mapping[str, str] | None,
        catalog: Catalog | None,
        clock: Clock,
        hooks: Hooks,
    ) -> Bundle:
        return boot(
            environ,
            catalog=catalog,
            clock=clock,
            tasks=self._queue,
            hooks=hooks,
            announces_by_hand=self._runs_by_hand,
        )

    def _start_threads(self) -> None:
        """Start all threads, or none: with only some, runs would wait without a visible reason."""
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
        max_retries: int | None = None,
        budget: Budget | None = None,
        priority: str = Priority.NORMAL,
        files: Mapping[str, bytes] | None = None,
    ) -> Manifest:
        """Start a run, or take up the one the key started before.

        The arguments and the errors are those of `Client.start`. Where a worker is idle, it has the
        lease of the first step already when this returns.
        """
        limit = None if budget is None else checked_budget(budget.usd, budget.tokens)
        request = StartRequest(
            pipeline,
            plain(input),
            idempotency_key,
            labels or {},
            max_retries,
            files or {},
            budget=limit,
            priority=priority,
        )
        change = self.start_run(request)
        if change.outcome is Outcome.EXISTING:
            self.adopt(change.manifest.run_id)
        return change.manifest

    @hook
    def start_run(self, request: StartRequest) -> Change:
        """Do as `start`, for an API: say whether the run is new, and adopt no other one."""
        return self._workers.begin(request)

    def run(self, pipeline: str, input: Any = None) -> Manifest:  # noqa: A002 - as above
        """Start a run and run it in this thread; return it as its attempts here left it.

        It is idle then, unless it waits for a retry or for another worker.

        Raises:
            KeyboardInterrupt: Ctrl-C came while a handler ran; its attempt was released, and the
                run can go on.
        """
        begun = begin(self.engine, StartRequest(pipeline, plain(input)), eager=True)
        try:
            ended = run_steps(self.engine, begun).manifest
        finally:
            self.engine.handlers.raise_interrupt()
        self._announce_due()
        return ended

    def adopt(self, run_id: str) -> None:
        """Take up a run where another process left it.

        A lease whose holder was a process of this host that is gone is ended at once; any other
        live lease is waited for.
        """
        self._timer.adopt(run_id)

    def adopt_all(self) -> int:
        """Take up every live run of the store, as after a restart; return how many.

        Those that a person holds are not counted; they go on here once they are let go.
        """
        return self._timer.adopt_all()

    def look_after_every_run(self, tick_s: float = TICK_S) -> None:
        """Move every run of the store from now on; look for them every `tick_s` seconds.

        Several engines that do so on one store share the work. One that dies is noticed at once
        on the same host, and else when its leases end; the others go on with its runs.
        """
        self._timer.look_after_every_run(tick_s)

    @property
    @hook
    def sources(self) -> ProjectSources:
        """The project's own sources, as this engine read them."""
        return self._bundle.sources

    @hook
    def import_all(self) -> None:
        """Import all handlers now, in the background, for later attempts."""
        self._bundle.processes.import_all()

    @property
    @hook
    def looks_after_runs(self) -> bool:
        """Whether its timer has looked after runs within the last minute."""
        return self._timer.is_alive

    def run_until_idle(self) -> int:
        """Run all that is due now, in this thread; return how many tasks that were.

        Announcements that are due are made too.

        Raises:
            KeyboardInterrupt: as `run`.
        """
        ran = 0
        self._timer.look()
        while task := self._queue.take_due():
            self._deliver(task)
            ran += 1
        self._announce_due()
        return ran

    def _announce_due(self) -> None:
        """Make the announcements that are due, in this thread."""
        self._bundle.deliver_due()

    def _deliver(self, task: Task) -> None:
        """Run the attempt that a task announces, in this thread."""
        try:
            execute_step(self.engine, Hint(task.run_id, task.generation))
        finally:
            self.engine.handlers.raise_interrupt()

    def on_idle(self, listener: Callable[[Manifest], object]) -> Callable[[], None]:
        """Have `listener` called with each run that becomes idle; return what ends that.

        Idle is a run that is terminal, blocked or paused.
        """
        self._listeners.append(listener)
        return partial(self._listeners.remove, listener)

    def wait(self, run_id: str, timeout: float | None = None) -> Manifest:
        """Wait until the run is idle: it is terminal, blocked or paused.

        Args:
            run_id: the run.
            timeout: seconds; None: as long as it takes.

        Raises:
            TimeoutError: it still moves after `timeout` seconds.
        """
        idle = threading.Event()
        forget = self.on_idle(_setting(idle, run_id))
        try:
            end = math.inf if timeout is None else time.monotonic() + timeout
            while (run := self.show(run_id)).is_moving:
                left = end - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"run {run_id} still moves after {timeout} s")
                idle.wait(min(left, TICK_S))  # another process may make it so
        finally:
            forget()
        return run

    def show(self, run_id: str) -> Manifest:
        """Return the manifest, with the progress that running handlers and children made since."""
        manifest = get_run(self.engine, run_id)
        if manifest.is_resting:
            read = read_children_of(self.engine, manifest)
            return with_progress_of_children(manifest, read.fraction, read.words)
        for held in self.held_runs():
            if held.manifest.run_id == run_id and held.notes.progress is not None:
                step = held.manifest.position.step
                return replace(
                    manifest,
                    steps={
                        **manifest.steps,
                        step: replace(manifest.steps[step], progress=held.notes.progress),
                    },
                )
        return manifest

    @hook
    def held_runs(self) -> Sequence[Attempt]:
        """Return the attempts that run here now."""
        return self.engine.leases.held_attempts()

    def trace(self, run_id: str) -> list[TraceEvent]:
        """Return all that happened to the run, oldest first."""
        return timeline_of(self.engine, run_id)

    def close(self, grace: float = GRACE_S) -> None:
        """Let running attempts know, wait for them, and close the store.

        A handler that does not end within `grace` seconds is left behind: its lease is given
        back, and its thread ends with the process. The next engine takes its run up. What is to
        be announced is tried once more; what is not announced then stays due. The store stays
        open for what is left behind: called again once that has ended, this closes it.

        Args:
            grace: seconds.
        """
        is_announced = self.drain(grace)
        if not any(thread.is_alive() for thread in self._threads):
            close = partial(
                self._bundle.close, is_announced=is_announced, telemetry_s=_TELEMETRY_FLUSH_S
            )
            self._within(_SETTLE_TIMEOUT_S, close)
        else:
            self.engine.telemetry.flush(_TELEMETRY_FLUSH_S)

    @hook
    def drain(self, grace: float = GRACE_S, *, signal_name: str | None = None) -> bool:
        """Do as `close`, but leave the store open: an API may answer from it until the end.

        A store that does not answer, such as a file that another process has locked, is not
        waited for beyond the grace and a second: then the leases run out by themselves.

        Args:
            grace: seconds.
            signal_name: what ends this process, such as SIGTERM; None: the engine is only closed.

        Returns:
            Whether nothing is being announced any more.
        """
        self._closing.set()
        self._queue.close()
        end = time.monotonic() + grace + _SETTLE_TIMEOUT_S
        stop = partial(shut_down, self.engine, grace=grace, signal_name=signal_name)
        is_answered = self._within(grace + _SETTLE_TIMEOUT_S, stop)
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        if not is_answered:
            _LOG.warning("%s", _UNANSWERED)
            return self._bundle.events.close()
        self._timer.end()
        return self._bundle.events.close(max(_SETTLE_TIMEOUT_S, end - time.monotonic()))

    def _within(self, seconds: float, call: Callable[[], object]) -> bool:
        """Make a call of what ends this engine; return whether it was over in time.

        Those that were begun before it, and wait for the store, may hold it up: it goes on without
        anyone who waits for it.
        """
        if self._runs_by_hand:
            call()  # by a clock that may stand still, and in the caller's thread
            return True
        done = start_call(call, "stop")
        if done is None:
            call()
            return True
        wait([done], seconds)
        return done.done() and done.result() is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _observe(self, change: Change) -> None:
        outcome, run = change.outcome, change.manifest
        if run.cancelled:  # its handler need not wait for the next renewal to hear it
            self.engine.leases.stop_run(run.run_id, Termination.CANCELLED)
        if outcome is Outcome.STACK_REQUESTED:  # nor this
            self.engine.leases.renew_soon(run.run_id)
        self._timer.note(run, is_new=outcome is Outcome.STARTED)
        for child in change.children:
            self._timer.note(child, is_new=True)
        if change.created is not None and outcome is Outcome.ITEMS_TAKEN:
            self._timer.note(change.created, is_new=True)
        if not run.is_moving and outcome not in (Outcome.ARCHIVED, Outcome.ARCHIVE_OWED):
            for listener in tuple(self._listeners):
                listener(run)


def _setting(event: threading.Event, run_id: str) -> Callable[[Manifest], None]:
    """Return a listener that sets the event when that run becomes idle."""

    def listener(manifest: Manifest) -> None:
        if manifest.run_id == run_id:
            event.set()

    return listener
