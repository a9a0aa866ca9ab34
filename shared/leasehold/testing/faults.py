"""Faults to order: what only production does to a run, at a point that a test names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import field
from datetime import datetime
from typing import Any, Final, NamedTuple, NoReturn

from leasehold.domain.change import Change
from leasehold.domain.delivery import DeliveryState
from leasehold.domain.effect import Task
from leasehold.domain.recorded_calls import recorded_call
from leasehold.domain.status import Outcome
from leasehold.domain.stored import Answer, DecideDocument, Document, Ref, Write
from leasehold.errors import StoreUnavailableError
from leasehold.frozen import dataclass
from leasehold.hooks import hook
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Committed, Documents, Snapshot
from leasehold.ports.task_queue import PulledTaskQueue
from leasehold.testing.arguments import checked_number, checked_seconds, refuse

# Orders of faults: each happens once, at the first point that fits.


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """A fault that is to happen once; `of` names a step or a channel, None: any."""

    kind: str
    of: str | None
    number: int = 1
    seconds: float = 0.0
    concurrently: bool = False
    place: str = "step"

    def __str__(self) -> str:
        where = f"any {self.place}" if self.of is None else f"{self.place} {self.of!r}"
        number = f" {self.number}" if self.kind.endswith("checkpoint") else ""
        return f"{self.kind}{number} of {where}"


@dataclass(slots=True)
class Orders:
    """The faults that are ordered and have not happened."""

    pending: list[Order] = field(default_factory=list)

    def add(self, order: Order) -> None:
        """Order a fault."""
        self.pending.append(order)

    def take(
        self, kind: str, of: str | None, *, number: int = 1, concurrently: bool = False
    ) -> Order | None:
        """Return an order that this point fits, which is none any more; or None."""
        for order in self.pending:
            fits = (order.kind, order.number, order.concurrently) == (kind, number, concurrently)
            if fits and order.of in (None, of):
                self.pending.remove(order)
                return order
        return None


_MAX_FAULT_S: Final = 30 * 86_400.0

#: Those that an engine with its own threads may meet too.
_WITH_THREADS: Final = frozenset({"store away", "artifacts away", "lose answer"})

#: What a handler has written of its own; a thread of it may want to when its process is dead.
_OF_HANDLERS: Final = frozenset({Outcome.CHECKPOINTED, Outcome.RENEWED})


class KilledError(BaseException):
    """The process of this attempt is dead: nothing that it does from here on has an effect.

    A `BaseException`, so that a broad `except Exception` of a handler does not survive it.
    """


@dataclass(slots=True)
class WorkerProcess:
    """A stand-in for the process that a task is delivered to."""

    is_dead: bool = False


#: The process that this thread plays; None: that of the test itself.
WORKER_PROCESS: Final[ContextVar[WorkerProcess | None]] = ContextVar("worker", default=None)


class _Leased(NamedTuple):
    """The attempt that has a run's lease; threads of its handler are of the same process."""

    step: str
    lease_id: str
    process: WorkerProcess


# Faults of announcements: of the messages on their way, and of the channels that take them.


class AnnouncementFaults(ABC):
    """Orders of faults of announcements; `channel=None` means any channel.

    Each is for an engine with workers=0, whose announcements are made by the test's own thread.
    """

    clock: Clock
    channels: Callable[[], Sequence[str]]
    workers: Callable[[], int]
    is_ordered: bool
    _orders: Orders
    _away: dict[str, float]

    # -- orders ------------------------------------------------------------------------------------

    def lose_message(self, channel: str | None = None) -> None:
        """Lose the next message; after PIPELINE_DISPATCH_GRACE_S the sweep publishes it again."""
        self._order_announcement("lose message", channel)

    def deliver_message_twice(
        self, channel: str | None = None, *, concurrently: bool = False
    ) -> None:
        """Deliver a message twice: once more after it was sent, or while it is being sent."""
        self._order_announcement("deliver message twice", channel, concurrently=concurrently)

    def channel_away(self, seconds: float, channel: str | None = None) -> None:
        """Have a provider refuse connections for this time from now on."""
        self._check_channel(channel)
        seconds = checked_seconds("seconds", seconds, _MAX_FAULT_S, zero=False)
        self.is_ordered = True
        for name in self.channels() if channel is None else (channel,):
            self._away[_away(name)] = self.clock.monotonic() + seconds

    def channel_late(self, seconds: float, channel: str | None = None) -> None:
        """Have a provider take an announcement, and answer so late.

        After PIPELINE_DELIVERY_TIMEOUT_S its answer is ignored: it is sent again, with the same
        key.
        """
        seconds = checked_seconds("seconds", seconds, _MAX_FAULT_S, zero=False)
        self._order_announcement("channel late", channel, seconds=seconds)

    def channel_silent(self, channel: str | None = None) -> None:
        """Have a provider take an announcement and end the connection without an answer."""
        self._order_announcement("channel silent", channel)

    def channel_refuses(self, channel: str | None = None) -> None:
        """Have a provider refuse an announcement for good: it is given up."""
        self._order_announcement("channel refuses", channel)

    def kill_before_record(self, channel: str | None = None) -> None:
        """Kill the process that announces when the provider has answered, before that is recorded.

        Its claim runs out, and the announcement is sent again, with the same key.
        """
        self._order_announcement("kill before record", channel)

    # -- what happens, as the bus and the channels of the engine tell it ---------------------------

    @hook
    def takes(self, kind: str, channel: str, *, concurrently: bool = False) -> Order | None:
        """Return an order of a fault that this announcement fits; it happens now."""
        return self._orders.take(kind, channel, concurrently=concurrently)

    @hook
    def is_away(self, channel: str) -> bool:
        """Return whether a provider refuses connections now."""
        return self.clock.monotonic() < self._away.get(_away(channel), 0.0)

    @hook
    def before_write(self, ref: Ref, document: Document | None) -> None:
        """Hear of a document that is decided and not written."""
        if ref.collection != "deliveries" or document is None:
            return
        is_record = document.get("state") == DeliveryState.ANNOUNCED
        if is_record and self.takes("kill before record", str(document.get("channel"))):
            self.kill_process()

    @hook
    @abstractmethod
    def kill_process(self) -> NoReturn:
        """Let the process that this thread plays be dead."""

    # -- inside ------------------------------------------------------------------------------------

    def _order_announcement(
        self, kind: str, channel: str | None, *, seconds: float = 0.0, concurrently: bool = False
    ) -> None:
        self._check_channel(channel)
        self.is_ordered = True
        order = Order(kind, channel, seconds=seconds, concurrently=concurrently, place="channel")
        self._orders.add(order)

    def _check_channel(self, channel: str | None) -> None:
        known = self.channels()
        if not known or (channel is not None and channel not in known):
            refuse("channel", channel, ", ".join(known) or "none: the catalog has no channels")
        if self.workers():
            refuse("workers", self.workers(), "0, for an engine of which this fault is ordered")


def _away(channel: str) -> str:
    return f"channel {channel}"


@dataclass(slots=True)
class Faults(AnnouncementFaults):
    """Orders of faults; each happens once, at the first point that fits.

    `step=None` means any step, and `channel=None` any channel; `n` counts from 1 within an attempt,
    and `seconds` are those of the engine's clock.
    Outages and lost answers are also for an engine with threads, and all others only for one with
    `workers=0`: the test's own thread plays the process that dies.

    From the first order on each step has its own task, as in functions: an engine in a process
    would take the next step along with a hand-off.

    Raises, in each method:
        InvalidRequestError: an argument is not what it may be; nothing was ordered.
    """

    clock: Clock  # measures outages
    steps: Callable[[], Sequence[str]] = field(repr=False)  # the names of the step types
    channels: Callable[[], Sequence[str]] = field(repr=False)  # their names
    workers: Callable[[], int] = field(repr=False)  # how many threads the engine has
    #: Runs what a task announces; given its run and generation.
    deliver: Callable[[str, int], None] = field(repr=False)
    stop: Callable[[str], None] = field(repr=False)  # asks an attempt to end, as SIGTERM does
    is_ordered: bool = False
    _orders: Orders = field(default_factory=Orders)
    _away: dict[str, float] = field(default_factory=dict, repr=False)  # in monotonic seconds
    _steps_of: dict[str, str] = field(default_factory=dict, repr=False)
    _leased: dict[str, _Leased] = field(default_factory=dict, repr=False)
    _checkpoints: Counter[str] = field(default_factory=Counter, repr=False)
    _calls: Counter[str] = field(default_factory=Counter, repr=False)

    @property
    def pending(self) -> list[str]:
        """What was ordered and did not happen yet: a test ends with `== []`."""
        return [str(order) for order in self._orders.pending]

    # -- orders ------------------------------------------------------------------------------------

    def kill_at_checkpoint(self, step: str | None = None, n: int = 1) -> None:
        """Kill the process of an attempt as its n-th checkpoint is stored, as SIGKILL does.

        Nothing is released: the lease runs out, and the next attempt resumes from the checkpoint.
        """
        self._order("kill at checkpoint", step, number=n)

    def kill_at_call(self, step: str | None = None, n: int = 1) -> None:
        """Kill the process of an attempt as its n-th call by `ctx.once` is recorded, as SIGKILL.

        The next attempt is given its result.
        """
        self._order("kill at call", step, number=n)

    def kill_before_settlement(self, step: str | None = None) -> None:
        """Kill the process of an attempt when its work is done and before that is recorded."""
        self._order("kill before settlement", step)

    def sigterm_at_checkpoint(self, step: str | None = None, n: int = 1) -> None:
        """Ask an attempt to stop as its n-th checkpoint is stored, as a deploy does.

        A handler that ends by raising is released, and its step dispatched again at once.
        """
        self._order("SIGTERM at checkpoint", step, number=n)

    def lose_task(self, step: str | None = None) -> None:
        """Lose the next task: the sweep finds the run after PIPELINE_DISPATCH_GRACE_S."""
        self._order("lose task", step)

    def deliver_twice(self, step: str | None = None, *, concurrently: bool = False) -> None:
        """Deliver a task twice: once more after its attempt, or while its handler is to begin."""
        self._order("deliver twice", step, concurrently=concurrently)

    def lose_answer(self, step: str | None = None) -> None:
        """Lose the answer to the commit that ends an attempt: the commit stands."""
        self._order("lose answer", step)

    def store_away(self, seconds: float, step: str | None = None) -> None:
        """Have the store away for this time: from now on, or from the next attempt of `step` on."""
        self._outage("store", seconds, step)

    def artifacts_away(self, seconds: float, step: str | None = None) -> None:
        """Have the artifact store away, as `store_away` does the store."""
        self._outage("artifacts", seconds, step)

    # -- what happens, as the stores and the queue of the engine tell it ---------------------------

    @hook
    def check_alive(self) -> None:
        """Raise KilledError in a process that is dead."""
        process = WORKER_PROCESS.get()
        if process is not None and process.is_dead:
            raise KilledError

    @hook
    def check_reachable(self, what: str) -> None:
        """Raise StoreUnavailableError while the store is away; KilledError as `check_alive`."""
        self.check_alive()
        if self.clock.monotonic() < self._away.get(what, 0.0):
            raise StoreUnavailableError(store=what, problem="it is away, as the test ordered")

    @hook
    def before_commit(self, change: Change) -> None:
        """Hear of a change that is decided and not written."""
        leased = self._leased.get(change.manifest.run_id)
        if leased and leased.process.is_dead and change.outcome in _OF_HANDLERS:
            raise KilledError
        if (
            self._settled(change)
            and leased
            and self._orders.take("kill before settlement", leased.step)
        ):
            self._kill(leased)

    @hook
    def after_commit(self, change: Change) -> None:
        """Hear of a change whose commit stands."""
        run = change.created or change.manifest
        self._steps_of[run.run_id] = run.position.step
        if not change.changed:
            return
        if leased := self._settled(change):
            self._leased.pop(run.run_id, None)  # another thread may have heard of its end as well
            if self._orders.take("lose answer", leased.step):
                raise StoreUnavailableError(store="store", problem="its answer was lost")
        if change.outcome is Outcome.CHECKPOINTED:
            self._on_checkpoint(change)
        elif change.manifest.position.lease is not None:
            self._on_lease(change)

    @hook
    def after_call(self, run_id: str) -> None:
        """Hear of a call that is recorded."""
        leased = self._leased.get(run_id)
        if leased is not None:
            self._calls[leased.lease_id] += 1
            number = self._calls[leased.lease_id]
            if self._orders.take("kill at call", leased.step, number=number):
                self._kill(leased)

    @hook
    def loses(self, task: Task) -> bool:
        """Return whether a task that is created is to be lost."""
        return self._orders.take("lose task", self._steps_of.get(task.run_id)) is not None

    @hook
    def repeats(self, task: Task) -> bool:
        """Return whether a task that is taken for delivery is to come once more after it."""
        step = self._steps_of.get(task.run_id)
        return self._orders.take("deliver twice", step, concurrently=False) is not None

    # -- inside ------------------------------------------------------------------------------------

    def _on_checkpoint(self, change: Change) -> None:
        run, lease = change.manifest, change.manifest.position.lease
        assert lease is not None  # noqa: S101 - a checkpoint is written under a lease
        self._checkpoints[lease.lease_id] += 1
        number = self._checkpoints[lease.lease_id]
        if self._orders.take("SIGTERM at checkpoint", run.position.step, number=number):
            self.stop(run.run_id)
        if self._orders.take("kill at checkpoint", run.position.step, number=number):
            self._kill(self._leased[run.run_id])

    def _on_lease(self, change: Change) -> None:
        """Hear of a lease: of a new one an attempt begins."""
        run, lease = change.manifest, change.manifest.position.lease
        known = self._leased.get(run.run_id)
        if lease is None or (known and known.lease_id == lease.lease_id):
            return
        process = WORKER_PROCESS.get() or WorkerProcess()
        self._leased[run.run_id] = _Leased(run.position.step, lease.lease_id, process)
        for what in ("store", "artifacts"):
            if order := self._orders.take(f"{what} away", run.position.step):
                self._away[what] = self.clock.monotonic() + order.seconds
        if self._orders.take("deliver twice", run.position.step, concurrently=True):
            self.deliver(run.run_id, run.position.dispatch.generation)

    def _settled(self, change: Change) -> _Leased | None:
        """Return the attempt that the change ends by its own word, or None."""
        leased, note = (
            self._leased.get(change.manifest.run_id),
            change.manifest.position.last_settlement,
        )
        is_end = change.changed and leased and note and note.lease_id == leased.lease_id
        return leased if is_end else None

    @hook
    def kill_process(self) -> NoReturn:
        """Let the process that this thread plays be dead."""
        process = WORKER_PROCESS.get()
        if process is not None:
            process.is_dead = True
        raise KilledError

    def _kill(self, leased: _Leased) -> None:
        leased.process.is_dead = True
        raise KilledError

    def _outage(self, what: str, seconds: float, step: str | None) -> None:
        seconds = checked_seconds("seconds", seconds, _MAX_FAULT_S, zero=False)
        if step is None:
            self.is_ordered = True
            self._away[what] = self.clock.monotonic() + seconds
        else:
            self._order(f"{what} away", step, seconds=seconds)

    def _order(
        self,
        kind: str,
        step: str | None,
        *,
        number: int = 1,
        seconds: float = 0.0,
        concurrently: bool = False,
    ) -> None:
        if step is not None and (not isinstance(step, str) or step not in self.steps()):
            refuse("step", step, ", ".join(self.steps()) or "none: the catalog has no steps")
        checked_number("n", number)
        if kind not in _WITH_THREADS and self.workers():
            refuse("workers", self.workers(), "0, for an engine of which this fault is ordered")
        self.is_ordered = True
        self._orders.add(Order(kind, step, number, seconds, concurrently))


# The stores and the queue of an engine, with the faults that a test ordered in between.


#: What a store that is away, and a process that is dead, can still do.
_ALWAYS: Final = frozenset({"close"})


class Reached:
    """A port whose every call may find that its store is away, or its own process dead.

    Args:
        inner: the port.
        check: raises what a call meets; or nothing.
    """

    def __init__(self, inner: Any, check: Callable[[], None]) -> None:
        self._inner = inner
        self._check = check

    def __getattr__(self, name: str) -> Any:
        """Return what the port has under that name; a call of it is checked first."""
        found = getattr(self._inner, name)
        if not callable(found) or name in _ALWAYS:
            return found

        def call(*given: Any, **named: Any) -> Any:
            self._check()
            return found(*given, **named)

        return call


class FaultyDocuments(Reached):
    """The documents port; the faults are called before and after each commit."""

    def __init__(self, inner: Documents, faults: Faults) -> None:
        super().__init__(inner, lambda: faults.check_reachable("store"))
        self._faults = faults

    def transact(
        self, ref: Ref, decide: DecideDocument[Answer], **options: Any
    ) -> Committed[Answer]:
        """Do as the store does, unless a fault was ordered for this commit."""

        def decided(stored: Document | None, now: datetime) -> Write[Answer]:
            write = decide(stored, now)
            if isinstance(write.answer, Change):
                self._faults.before_commit(write.answer)
            self._faults.before_write(ref, write.document)
            return write

        self._check()
        committed: Committed[Answer] = self._inner.transact(ref, decided, **options)
        if isinstance(committed.answer, Change):
            self._faults.after_commit(committed.answer)
        if committed.snapshot is not None and _is_result(committed.snapshot):
            self._faults.after_call(ref.collection.split("/")[1])
        return committed


def _is_result(snapshot: Snapshot) -> bool:
    """Return whether a document is the result of a recorded call, not the intent to make one."""
    if not snapshot.ref.collection.endswith("/calls"):
        return False
    call = recorded_call(snapshot.document)
    return call is not None and not call.is_open


class FaultyTasks(Reached):
    """The queue; tasks may be lost on their way in, and come twice on their way out."""

    def __init__(self, inner: PulledTaskQueue, faults: Faults) -> None:
        super().__init__(inner, faults.check_alive)
        self._faults = faults
        self._once_more: deque[Task] = deque()
        self._lost: set[str] = set()  # a queue remembers names, also those of tasks it lost

    def create(self, task: Task) -> None:
        """Take the task, or lose it."""
        self._check()
        if not self._loses(task):
            self._inner.create(task)

    def exists(self, task: Task) -> bool | None:
        """Return whether it has the task; it knows what it lost, as a deployed queue does."""
        self._check()
        return False if task.name in self._lost else self._inner.exists(task)

    def exchange(self, done: Task | None, created: Iterable[Task]) -> Task | None:
        """Do as the queue does with the tasks that are not lost."""
        kept = [task for task in created if not self._loses(task)]
        following: Task | None = self._inner.exchange(done, kept)
        return following

    def take_due(self) -> Task | None:
        """Return a task that is due now; one that comes twice again, right after."""
        if self._once_more:
            return self._once_more.popleft()
        task: Task | None = self._inner.take_due()
        if task is not None and self._faults.repeats(task):
            self._once_more.append(task)
        return task

    def repeat(self, task: Task) -> None:
        """Take a task back whose delivery was not answered."""
        self._inner.create(task)

    def _loses(self, task: Task) -> bool:
        if task.name not in self._lost and self._faults.loses(task):
            self._lost.add(task.name)
        return task.name in self._lost
