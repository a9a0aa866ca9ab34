"""The engine of a test: operations of people, faults to order, and time that may stand still."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Final, cast

from leasehold import in_process
from leasehold.bootstrap import Around, Bundle, Hooks, boot, load_catalog
from leasehold.domain.delivery import Delivery
from leasehold.domain.effect import Task
from leasehold.domain.event_message import EventMessage
from leasehold.domain.manifest import Manifest
from leasehold.domain.retry import QUEUE_BACKOFF
from leasehold.domain.status import Termination
from leasehold.errors import (
    CatalogError,
    ChannelRefusedError,
    ChannelUnansweredError,
    ChannelUnavailableError,
    StoreUnavailableError,
)
from leasehold.ports.artifacts import Artifacts
from leasehold.ports.channel import Channel
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Documents, Query
from leasehold.ports.event_bus import EventBus
from leasehold.ports.task_queue import PulledTaskQueue
from leasehold.registry.channels import ChannelEntry
from leasehold.registry.pipelines import Catalog
from leasehold.registry.settings import SETTINGS
from leasehold.services.deliver_notification import deliver_message
from leasehold.services.paging import scan
from leasehold.services.read_runs import get_run
from leasehold.testing.arguments import (
    checked_clock,
    checked_folder,
    checked_mapping,
    checked_number,
    checked_run_id,
    checked_seconds,
    refuse,
)
from leasehold.testing.clock import FrozenClock
from leasehold.testing.faults import (
    WORKER_PROCESS,
    Faults,
    FaultyDocuments,
    FaultyTasks,
    KilledError,
    Reached,
    WorkerProcess,
)
from leasehold.testing.operations import Operations
from leasehold.testing.remote_worker import RemoteFunction, checked_remote, play_remote

# The bus and the channels of a test: nothing leaves the process, and announcements can be read.


class FaultyEvents:
    """The event bus; messages may be lost on their way in."""

    def __init__(self, inner: EventBus, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    def publish(self, messages: Sequence[EventMessage]) -> None:
        """Take the messages that are not lost."""
        lost = [it for it in messages if self._faults.takes("lose message", it.delivery.channel)]
        self._inner.publish([message for message in messages if message not in lost])

    def close(self, grace: float = 0.0) -> bool:
        """Close the bus."""
        return self._inner.close(grace)


class RecordedChannels:
    """All channels of a test; they send nothing.

    Args:
        faults: what providers do in place of taking an announcement.
        deliver: delivers the message of a delivery once more.

    Attributes:
        announcements: what providers took, in order; a provider that goes by the key of one that
            it has already shows it once.
    """

    def __init__(self, faults: Faults, deliver: Callable[[Delivery], object]) -> None:
        self.announcements: list[Delivery] = []
        self._faults = faults
        self._deliver = deliver
        self._once_more: list[Delivery] = []

    def open(self, _: ChannelEntry) -> Channel:
        """Return what sends to a channel: a delivery names its own."""
        return self

    def deliver_once_more(self) -> None:
        """Deliver the messages that come twice a second time."""
        while self._once_more:
            self._deliver(self._once_more.pop(0))

    def send(self, delivery: Delivery, *, timeout: float) -> str:
        """Take an announcement, or do what was ordered in place of that."""
        faults, channel = self._faults, delivery.channel
        if faults.is_away(channel):
            problem = "it is away, as the test ordered"
            raise ChannelUnavailableError(channel=channel, problem=problem)
        if faults.takes("channel refuses", channel):
            problem = "refused for good, as the test ordered"
            raise ChannelRefusedError(channel=channel, problem=problem)
        self._repeat(delivery)
        self.announcements.append(delivery)
        self._answer(channel, timeout)
        return f"message-{len(self.announcements)}"

    def _repeat(self, delivery: Delivery) -> None:
        if self._faults.takes("deliver message twice", delivery.channel, concurrently=True):
            self._deliver(delivery)
        if self._faults.takes("deliver message twice", delivery.channel):
            self._once_more.append(delivery)

    def _answer(self, channel: str, timeout: float) -> None:
        if late := self._faults.takes("channel late", channel):
            _wait(self._faults, min(late.seconds, timeout))
            if late.seconds >= timeout:
                raise ChannelUnansweredError(channel=channel, problem="no answer in time")
        if self._faults.takes("channel silent", channel):
            raise ChannelUnansweredError(channel=channel, problem="no answer, as the test ordered")


def _wait(faults: Faults, seconds: float) -> None:
    if isinstance(faults.clock, FrozenClock):
        faults.clock.advance(seconds)
    else:
        threading.Event().wait(seconds)


_ONE_DAY: Final = timedelta(days=1)
_MAX_WITHIN_S: Final = 3650 * 86_400.0

#: How far time is moved where nothing says when the run goes on: a look of the engine for runs.
_ADVANCE_S: Final = 1.0


class InProcessEngine(Operations, in_process.InProcessEngine):
    """The engine in the test's process; it takes what `leasehold.in_process.InProcessEngine` does.

    With `workers=0` and a FrozenClock nothing happens unless the test has it happen:
    `run_until_idle` runs what is due, `run_until_settled` moves the clock as well.

    Nothing leaves the process: channels of a test only note what they get. An operation of
    people, such as `pause`, takes the id of a run, and returns the run as it is then.

    Attributes:
        remote: what plays the remote worker of a step, by the name of the step: a function
            `(step, given)`, which gets a `RemoteStep` and JSON values.
        faults: orders of what only production does; see `Faults`.
        clock: the clock it was given.
    """

    faults: Faults
    clock: Clock
    remote: Mapping[str, RemoteFunction] = MappingProxyType({})

    def _boot(
        self,
        environ: Mapping[str, str] | None,
        catalog: Catalog | None,
        clock: Clock,
        hooks: Hooks,
    ) -> Bundle:
        self.clock = clock
        self.faults = faults = Faults(
            clock,
            steps=lambda: [entry.step_type for entry in self.engine.catalog.steps],
            channels=lambda: [entry.name for entry in self.engine.catalog.channels],
            workers=lambda: len(self._workers.threads),
            deliver=self._play,
            stop=lambda run_id: self.engine.leases.stop_run(run_id, Termination.INSTANCE_SHUTDOWN),
        )
        self._faulty_tasks = FaultyTasks(self._queue, faults)
        self._queue = cast(PulledTaskQueue, self._faulty_tasks)
        may_continue = hooks.may_continue

        def documents(store: Documents) -> Documents:
            return cast(Documents, FaultyDocuments(store, faults))

        def artifacts(store: Artifacts) -> Artifacts:
            return cast(Artifacts, Reached(store, lambda: faults.check_reachable("artifacts")))

        def events(bus: EventBus) -> EventBus:
            return FaultyEvents(bus, faults)

        self._channels = channels = RecordedChannels(faults, self._play_message)
        return boot(
            environ,
            catalog=catalog,
            clock=clock,
            tasks=self._queue,
            hooks=replace(hooks, may_continue=lambda: may_continue() and not faults.is_ordered),
            around=Around(documents, artifacts, events, channels.open),
            isolation="inline",  # a test patches what a handler uses, and holds the clock
            announces_by_hand=self._runs_by_hand,
        )

    @property
    def announcements(self) -> Sequence[Delivery]:
        """What channels took, in order: `[(told.channel, told.event) for told in …]`.

        Each has `channel`, `event`, `run_id`, `summary`, `priority`, and the `key` that a real
        provider gets with it. An announcement without an answer is sent again, and listed twice,
        with the same key.
        """
        return tuple(self._channels.announcements)

    def run(self, pipeline: str, input: Any = None) -> Manifest:  # noqa: A002 - the word of the API
        """Start a run and run it in this thread; return it as its attempts here left it."""
        if not self.faults.is_ordered and not self.remote:
            with self._moved_by_hand(WorkerProcess()):
                return super().run(pipeline, input)
        started = self.start(pipeline, input)
        self.run_until_idle()
        return get_run(self.engine, started.run_id)

    def run_until_idle(self) -> int:
        """Run all that is due now, in this thread; return how many tasks and remote steps.

        Raises:
            InvalidOutputError, TooLargeError: what plays a remote worker returned what is refused.
            KeyboardInterrupt: as `run`.
        """
        ran = super().run_until_idle()
        while played := self._play_remote():
            ran += played + super().run_until_idle()
        return ran

    def _play_remote(self) -> int:
        """Work at the remote steps that wait, as its own process."""
        if not self.remote:
            return 0
        with self._moved_by_hand(WorkerProcess()):
            return play_remote(self.engine, self.remote)

    def advance(self, by: timedelta | float) -> None:
        """Let time pass; what is due then, `run_until_idle` runs.

        Args:
            by: a timedelta, or seconds.

        Raises:
            TypeError: the clock is not a FrozenClock.
        """
        if not isinstance(self.clock, FrozenClock):
            raise TypeError("advance needs an engine with clock=FrozenClock()")
        self.clock.advance(by)

    def run_until_settled(self, run_id: str, within: timedelta | float = _ONE_DAY) -> Manifest:
        """Run what is due, and move the clock on, until nothing but a person moves the run.

        It is terminal, blocked or paused then.

        Args:
            run_id: the run; started or adopted by this engine.
            within: how far the clock is moved at most; a timedelta, or seconds.

        Raises:
            TimeoutError: it still moves after that.
            TypeError: the clock is not a FrozenClock, or the engine has workers: use `wait`.
        """
        clock, run_id = self._clock_by_hand(), checked_run_id(run_id)
        within = _as_time(within)
        end = clock.now() + within
        while True:
            run = self._run_due(run_id)
            if run is not None and not run.is_moving:
                return run
            if clock.now() >= end:
                state = "in a store that is away" if run is None else f"{run.state} at step "
                where = state if run is None else state + run.position.step
                raise TimeoutError(f"run {run_id} still moves after {within}: it is {where}")
            clock.advance(_ADVANCE_S if run is None else _until_next(run, clock))

    def run_until_announced(
        self, run_id: str, within: timedelta | float = _ONE_DAY
    ) -> Sequence[Delivery]:
        """Do as `run_until_settled`, until each channel got its announcement, or was given up.

        Args:
            run_id: the run; started or adopted by this engine.
            within: how far the clock is moved at most; a timedelta, or seconds.

        Returns:
            The deliveries to each channel, oldest first, with what became of them: `state`,
            `tries`, `unknown` (sends without an answer) and `last_error`.

        Raises:
            TimeoutError: a channel is still owed something after that.
            TypeError: the clock is not a FrozenClock, or the engine has workers.
        """
        clock, end = self._clock_by_hand(), self.clock.now() + _as_time(within)
        self.run_until_settled(run_id, within)
        while owed := [each.alarm_at for each in self._deliveries_of(run_id) if each.alarm_at]:
            if clock.now() >= end:
                raise TimeoutError(f"run {run_id} is not announced after {within}")
            clock.advance(max(_ADVANCE_S, (min(owed) - clock.now()).total_seconds()))
            self.sweep()
            self.run_until_idle()
        return self._deliveries_of(run_id)

    def _deliveries_of(self, run_id: str) -> Sequence[Delivery]:
        query = Query("deliveries", order_by="createdAt", equal={"runId": run_id})
        return [Delivery.model_validate(it.document) for it in scan(self.engine.documents, query)]

    def _clock_by_hand(self) -> FrozenClock:
        if not isinstance(self.clock, FrozenClock) or self._workers.threads:
            raise TypeError(
                "run_until_settled needs an engine with clock=FrozenClock() and workers=0; "
                "where time passes by itself, use wait(run_id, timeout)"
            )
        return self.clock

    def _run_due(self, run_id: str) -> Manifest | None:
        """Run what is due, and return the run; None: the store is away."""
        try:
            self.run_until_idle()
            return get_run(self.engine, run_id)
        except StoreUnavailableError:
            if not self.faults.is_ordered:
                raise
            return None

    def _announce_due(self) -> None:
        """Make the announcements that are due, as its own process that may die."""
        is_cut_off = True
        while is_cut_off:
            try:
                with self._moved_by_hand(WorkerProcess()):
                    super()._announce_due()
                is_cut_off = False
            except KilledError:
                continue
        self._channels.deliver_once_more()

    def _play_message(self, delivery: Delivery) -> None:
        """Deliver the message of a delivery once more."""
        deliver_message(self.engine, EventMessage(delivery))

    def _play(self, run_id: str, generation: int) -> None:
        """Deliver the task of a run once more, while its first delivery is at work."""
        run = get_run(self.engine, run_id)
        deadline = timedelta(seconds=run.position.dispatch.deadline_s)
        queue, now = run.position.dispatch.queue, self.clock.now()
        self._deliver(Task(f"{run_id}-again", queue, run_id, generation, now, deadline))

    def _deliver(self, task: Task) -> None:
        """Run the attempt that a task announces, as its own process that may die."""
        process = WorkerProcess()
        try:
            with self._moved_by_hand(process):
                super()._deliver(task)
        except (KilledError, StoreUnavailableError):
            if not self.faults.is_ordered:
                raise
            again = self.clock.now() + QUEUE_BACKOFF.wait(1)
            self._faulty_tasks.repeat(replace(task, not_before=again))

    @contextlib.contextmanager
    def _moved_by_hand(self, process: WorkerProcess) -> Iterator[None]:
        """Play the process inside; as the test moves time, its leases are looked after."""

        def look() -> None:
            if not process.is_dead:
                self.engine.leases.look()

        token = WORKER_PROCESS.set(process)
        try:
            with contextlib.ExitStack() as stack:
                if isinstance(self.clock, FrozenClock):
                    stack.enter_context(self.clock.watched_by(look))
                yield
        finally:
            WORKER_PROCESS.reset(token)


def _as_time(within: timedelta | float) -> timedelta:
    return timedelta(seconds=checked_seconds("within", within, _MAX_WITHIN_S))


def _until_next(run: Manifest, clock: FrozenClock) -> float:
    """Return the seconds until something is due of the run."""
    now, begins, alarm = clock.now(), run.position.dispatch.not_before, run.alarm_at
    due = [at for at in (begins if run.position.lease is None else None, alarm) if at and at > now]
    return (min(due) - now).total_seconds() if due else _ADVANCE_S


@contextlib.contextmanager
def engine(
    catalog: Catalog | ModuleType | str,
    folder: Path | str | None = None,
    *,
    settings: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    workers: int = 0,
    remote: Mapping[str, RemoteFunction] | None = None,
    **hooks: Any,
) -> Iterator[InProcessEngine]:
    """Open an engine for a test, with its own store; the environment has no say in it.

    Args:
        catalog: a module with STEPS and PIPELINES, or its name, or a Catalog.
        folder: where its store and artifacts lie, as pytest's `tmp_path`; None: a temporary
            folder, which is deleted in the end.
        settings: `PIPELINE_…` and other settings, where the defaults will not do.
        clock: in place of a FrozenClock that skips waits.
        workers: how many steps run at once; 0: what the test has run, in its own thread.
        remote: what plays the remote worker of a step, by the name of the step: a function
            `(step, given)`, which gets a RemoteStep and JSON values, and returns the output. It is
            called where the test has things run, so only with `workers=0`.
        hooks: `warn` and `report`, as of `InProcessEngine`.

    Raises:
        CatalogError: there is no such catalog.
        SettingError, InvalidRequestError: a setting cannot be used, or is none.
    """
    known, workers = _catalog_of(catalog), checked_number("workers", workers, least=0)
    checked_remote(remote or {}, known)
    if remote and workers:
        refuse("workers", workers, "0 beside remote, whose functions the test itself runs")
    clock = checked_clock(clock or FrozenClock(skips_waits=True))
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="leasehold-"))
        place = checked_folder(folder)
        with InProcessEngine(
            known.steps,
            known.pipelines,
            known.gates,
            known.channels,
            schedules=known.schedules,
            environ=_environ_of(place, settings or {}, known),
            clock=clock,
            workers=workers,
            **hooks,
        ) as opened:
            opened.remote = dict(remote or {})
            yield opened


def _catalog_of(catalog: Catalog | ModuleType | str) -> Catalog:
    if isinstance(catalog, Catalog):
        return catalog
    name = catalog.__name__ if isinstance(catalog, ModuleType) else catalog
    if not isinstance(name, str) or not name:
        problem = "give a module with STEPS and PIPELINES, its name, or a Catalog"
        raise CatalogError(catalog=repr(catalog)[:200], problem=problem)
    return load_catalog(name)


def _environ_of(folder: Path, settings: Mapping[str, str], catalog: Catalog) -> Mapping[str, str]:
    overrides = {name for entry in catalog.steps for name in entry.env_overrides}
    settings = checked_mapping("settings", settings, str, "texts, as in os.environ")
    for name in settings:
        if name not in SETTINGS and name not in overrides:
            refuse("settings", name, ", ".join([*SETTINGS.keys(), *sorted(overrides)]))
    own = {
        "LEASEHOLD_STORE": f"sqlite:///{folder / 'leasehold.db'}",
        "LEASEHOLD_ARTIFACTS": f"file://{folder / 'artifacts'}",
    }
    return own | dict(settings)
