"""One queue: what it holds, and what is due. Pure: no threads, and time comes in as a value."""

from __future__ import annotations

import heapq
import itertools
import math
import threading
from collections.abc import Callable
from dataclasses import field
from datetime import datetime, timedelta
from typing import Final

from leasehold.devserver.cloud_tasks.faults import Fault, Faults, FiredFault, OrderedFault
from leasehold.devserver.cloud_tasks.request import (
    already_exists,
    existed_too_recently,
    not_found,
)
from leasehold.devserver.cloud_tasks.task import (
    Attempt,
    DeliveryResult,
    HttpTask,
    RetryConfig,
    TaskState,
)
from leasehold.domain.retry import doubling
from leasehold.frozen import dataclass
from leasehold.ports.clock import Clock

# How fast one queue may start deliveries. Pure: time comes in as a value.


#: The pauses after responses 429 or 503 in a row. The service does not say its own.
PAUSES: Final = doubling(timedelta(seconds=1), timedelta(seconds=60))


@dataclass(frozen=True, slots=True)
class RateLimits:
    """How fast a queue goes.

    Args:
        max_dispatches_per_second: more than 0.
        max_concurrent_dispatches: deliveries whose response it waits for, at a time.
    """

    max_dispatches_per_second: float = 500.0
    max_concurrent_dispatches: int = 1000

    @property
    def max_burst_size(self) -> int:
        """How many deliveries an idle queue starts at once. The service does not say how."""
        return max(10, min(100, math.ceil(self.max_dispatches_per_second / 5)))


class RateLimiter:
    """A leaky bucket for the rate, and pauses after responses that ask for them.

    A pause doubles with each 429 or 503 that comes after the one before is over, is at least as
    long as Retry-After says, and any other response sets it back. That the service also slows
    down at a high error rate, and starts slowly after a queue was paused, is left out.
    """

    def __init__(self, limits: RateLimits, now: datetime) -> None:
        self._full_until = now
        self._paused_until = now
        self._refusals = 0  # in a row
        self.configure(limits)

    def configure(self, limits: RateLimits) -> None:
        """Apply these limits from now on."""
        self._interval = timedelta(seconds=1 / limits.max_dispatches_per_second)
        self._burst = self._interval * (limits.max_burst_size - 1)

    def opens_at(self) -> datetime:
        """Return when the next delivery may start."""
        return max(self._full_until - self._burst, self._paused_until)

    def started(self, now: datetime) -> None:
        """Count a delivery."""
        self._full_until = max(self._full_until, now) + self._interval

    def finished(self, result: DeliveryResult, now: datetime) -> None:
        """Pause, or go on, as the result of a delivery asks."""
        if not result.throttles:
            self._refusals = 0
        elif now >= self._paused_until:
            self._refusals += 1
            self._paused_until = now + max(PAUSES.wait(self._refusals), result.retry_after)


#: How long a name stays used up after its task is gone.
NAME_REUSE_AFTER: Final = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What can be set of a queue; as the service has it by default."""

    retry: RetryConfig = field(default_factory=RetryConfig)
    rate: RateLimits = field(default_factory=RateLimits)


class Queue:
    """Tasks by their time, with the retries, limits and faults of the service.

    Args:
        name: the full name.
        settings: may be changed at any time with `configure`.
        now: the time it begins.
        fired: where faults that happen are recorded.
    """

    def __init__(
        self,
        name: str,
        settings: QueueSettings,
        now: datetime,
        fired: list[FiredFault] | None = None,
    ) -> None:
        self.name = name
        self.settings = settings
        self.paused = False
        self.purged_at: datetime | None = None
        self.tasks: dict[str, TaskState] = {}
        self.fired: list[FiredFault] = [] if fired is None else fired
        self._rate_limiter = RateLimiter(settings.rate, now)
        self._schedule: list[tuple[datetime, int, TaskState]] = []  # a heap, with stale entries
        self._held_back: list[TaskState] = []  # reordered: until a later task was delivered
        self._running: dict[int, TaskState] = {}  # by the number of the attempt
        self._used_names = _UsedNames()
        self._numbers = itertools.count(1)
        self._newest_started = 0  # the number of the newest task that was ever started

    @property
    def running(self) -> int:
        """How many deliveries it waits for."""
        return len(self._running)

    def configure(self, settings: QueueSettings) -> None:
        """Apply these settings to deliveries and retries from now on."""
        self.settings = settings
        self._rate_limiter.configure(settings.rate)

    def check_new_name(self, name: str, now: datetime) -> None:
        """Refuse the name of a task that is here, or was here a short time ago.

        Raises:
            ApiError: ALREADY_EXISTS.
        """
        if name in self.tasks or self._used_names.has(name, now):
            raise already_exists("task")

    def add(self, task: HttpTask, now: datetime, fault: OrderedFault | None = None) -> TaskState:
        """Accept a task, and schedule it as its fault has it.

        Raises:
            ApiError: its name is used up; see `check_new_name`.
        """
        self.check_new_name(task.name, now)
        eta = max(task.not_before, now)
        state = TaskState(task, next(self._numbers), created=now, eta=eta, fault=fault)
        if state.use_up(Fault.LOST):
            self._used_names.add(task.name, now)
            self._fire(Fault.LOST, state, now)
            return state
        self.tasks[task.name] = state
        delay = timedelta()
        if fault and fault.kind in {Fault.LATE, Fault.REORDERED}:
            delay = fault.delay
        if fault and fault.kind is Fault.REORDERED:
            self._held_back.append(state)
        self._schedule_at(eta + delay, state)
        return state

    def next_time(self) -> datetime | None:
        """Return when a delivery may start next; None: not before something else happens."""
        if self.paused or self.running >= self.settings.rate.max_concurrent_dispatches:
            return None
        while self._schedule and self._schedule[0][1] != self._schedule[0][2].ticket:
            heapq.heappop(self._schedule)
        return max(self._schedule[0][0], self._rate_limiter.opens_at()) if self._schedule else None

    def start(self, now: datetime) -> Attempt | None:
        """Return the delivery that is to start now, counted as started; None: there is none."""
        opens = self.next_time()
        if opens is None or opens > now:
            return None
        state = heapq.heappop(self._schedule)[2]
        attempt = state.begin(self.name, next(self._numbers), now)
        self._rate_limiter.started(now)
        self._fire_if_late(state, now)
        self._running[attempt.number] = state
        self._overlap(state, attempt, now)
        return attempt

    def finished(self, attempt: Attempt, result: DeliveryResult, now: datetime) -> datetime | None:
        """Return when the task comes again after this result; None: it does not.

        A result that is not waited for any more, and that of a task that was deleted, changes
        nothing but the rate.
        """
        self._rate_limiter.finished(result, now)
        state = self._running.pop(attempt.number, None)
        if state is None:
            return None
        self._release_held_back(state, now)
        if self.tasks.get(state.task.name) is not state:
            return None
        if state.use_up(Fault.TWICE):
            self._fire(Fault.TWICE, state, now)
            state.attempts -= 1  # the second is like the first
            return self._schedule_at(now, state)
        state.record(result)
        return self._retry(state, result, now)

    def delete(self, name: str, now: datetime) -> None:
        """Drop a task. A delivery that runs goes on; its result is ignored."""
        self.tasks.pop(name).ticket = None
        self._used_names.add(name, now)

    def purge(self, now: datetime) -> None:
        """Drop all tasks."""
        for name in list(self.tasks):
            self.delete(name, now)
        self._schedule.clear()
        self.purged_at = now

    def _retry(self, state: TaskState, result: DeliveryResult, now: datetime) -> datetime | None:
        retry = state.task.retry or self.settings.retry
        tried_for = now - (state.first_attempt or now)
        if result.is_success or retry.gives_up(state.attempts, tried_for):
            self.delete(state.task.name, now)
            return None
        state.eta = self._schedule_at(now + retry.wait(state.attempts), state)
        return state.eta

    def _schedule_at(self, time: datetime, state: TaskState) -> datetime:
        state.ticket = next(self._numbers)
        heapq.heappush(self._schedule, (time, state.ticket, state))
        return time

    def _fire_if_late(self, state: TaskState, now: datetime) -> None:
        """Record that a task was held up, if it was."""
        if state.use_up(Fault.LATE):
            self._fire(Fault.LATE, state, now)
        if state.use_up(Fault.REORDERED) and state.number < self._newest_started:
            self._fire(Fault.REORDERED, state, now)
        self._held_back = [other for other in self._held_back if other is not state]
        self._newest_started = max(self._newest_started, state.number)

    def _overlap(self, state: TaskState, attempt: Attempt, now: datetime) -> None:
        """Stop waiting for the first delivery at once, as if its deadline were over."""
        fault = state.fault
        if fault and state.use_up(Fault.OVERLAPPING):
            self._fire(Fault.OVERLAPPING, state, now)
            del self._running[attempt.number]
            state.eta = self._schedule_at(now + fault.delay, state)

    def _release_held_back(self, delivered: TaskState, now: datetime) -> None:
        """Schedule the tasks that waited for a later one to be delivered before them."""
        overtaken = [state for state in self._held_back if state.number < delivered.number]
        for state in overtaken:
            self._held_back.remove(state)
            if state.ticket is not None:
                self._schedule_at(max(state.eta, now), state)

    def _fire(self, kind: Fault, state: TaskState, now: datetime) -> None:
        self.fired.append(FiredFault(kind, self.name, state.task.name, now))


class _UsedNames:
    """Names that no new task may have."""

    def __init__(self) -> None:
        self._since: dict[str, datetime] = {}  # in the order of their times

    def add(self, name: str, now: datetime) -> None:
        """Remember the name of a task that is gone now."""
        self._since[name] = now

    def has(self, name: str, now: datetime) -> bool:
        """Return whether the name is still used up."""
        while self._since and next(iter(self._since.values())) + NAME_REUSE_AFTER <= now:
            del self._since[next(iter(self._since))]
        return name in self._since


# All queues of the double, for many threads at once.


#: How long the name of a queue stays used up after the queue is deleted.
QUEUE_NAME_REUSE_AFTER: Final = timedelta(days=3)


class Queues:
    """Queues by their full names.

    Args:
        clock: says what is due.
        defaults: the settings of a queue that was not created explicitly.
        strict: refuse tasks for such queues, as the service does.

    A thread that reads or changes a queue holds `changed`, and notifies it when something may be
    due sooner. The methods whose docstrings say "held" leave that to the caller.
    """

    def __init__(self, clock: Clock, defaults: QueueSettings, *, strict: bool) -> None:
        self.changed = threading.Condition()  # its lock can be taken again
        self.faults = Faults()
        self._clock = clock
        self._defaults = defaults
        self._strict = strict
        self._queues: dict[str, Queue] = {}
        self._deleted: dict[str, datetime] = {}

    def now(self) -> datetime:
        """Return the time by which tasks are due."""
        return self._clock.now()

    def add(self, name: str, task: HttpTask) -> TaskState:
        """Add a task to a queue, with the fault that is ordered for it."""
        with self.changed:
            queue = self._queue_for_task(name)
            now = self.now()
            queue.check_new_name(task.name, now)  # a task that is refused uses up no fault
            state = queue.add(task, now, self.faults.take(name, task.body))
            self.changed.notify()
            return state

    def task(self, name: str, task: str) -> TaskState:
        """Return a task of a queue."""
        with self.changed:
            state = self.queue(name).tasks.get(task)
            if state is None:
                raise not_found("task")
            return state

    def tasks(self, name: str) -> list[TaskState]:
        """Return all tasks of a queue, in the order of their names."""
        with self.changed:
            return [state for _, state in sorted(self.queue(name).tasks.items())]

    def delete(self, name: str, task: str) -> None:
        """Drop a task."""
        with self.changed:
            self.task(name, task)
            self.queue(name).delete(task, self.now())

    def queue(self, name: str) -> Queue:
        """Return the queue, or raise ApiError."""
        with self.changed:
            if name not in self._queues:
                raise not_found("queue")
            return self._queues[name]

    def all(self, parent: str) -> list[Queue]:
        """Return all queues of a location, in the order of their names."""
        with self.changed:
            names = sorted(name for name in self._queues if name.startswith(f"{parent}/queues/"))
            return [self._queues[name] for name in names]

    def create(self, name: str, settings: QueueSettings) -> Queue:
        """Create a queue; one that exists is refused."""
        with self.changed:
            if name in self._queues:
                raise already_exists("queue")
            return self._create(name, settings)

    def update(self, name: str, change: Callable[[QueueSettings], QueueSettings]) -> Queue:
        """Change the settings of a queue; one that is missing is created."""
        with self.changed:
            queue = self._queues.get(name)
            if queue is None:
                return self._create(name, change(QueueSettings()))
            queue.configure(change(queue.settings))
            self.changed.notify()
            return queue

    def remove(self, name: str) -> None:
        """Delete a queue with all its tasks; its name stays used up for a while."""
        with self.changed:
            self.purge(name)
            del self._queues[name]
            self._deleted[name] = self.now()

    def pause(self, name: str, *, paused: bool) -> Queue:
        """Start no more deliveries from a queue, or go on."""
        with self.changed:
            queue = self.queue(name)
            queue.paused = paused
            self.changed.notify()
            return queue

    def purge(self, name: str) -> Queue:
        """Drop all tasks of a queue."""
        with self.changed:
            queue = self.queue(name)
            queue.purge(self.now())
            return queue

    def start(self) -> Attempt | None:
        """Return a delivery that is to start now; `changed` is held."""
        now = self.now()
        for name, queue in self._queues.items():
            if attempt := queue.start(now):
                self._queues[name] = self._queues.pop(name)  # the others come first next time
                return attempt
        return None

    def finished(self, attempt: Attempt, result: DeliveryResult) -> None:
        """Record the result of a delivery; `changed` is held."""
        if queue := self._queues.get(attempt.queue):  # else it was deleted meanwhile
            queue.finished(attempt, result, self.now())

    def next_time(self) -> datetime | None:
        """Return when a delivery may start next, if that is known; `changed` is held."""
        times = (queue.next_time() for queue in self._queues.values())
        return min((time for time in times if time is not None), default=None)

    def _queue_for_task(self, name: str) -> Queue:
        if name in self._queues or self._strict:
            return self.queue(name)
        return self._create(name, self._defaults)

    def _create(self, name: str, settings: QueueSettings) -> Queue:
        deleted = self._deleted.get(name)
        if deleted is not None and self.now() < deleted + QUEUE_NAME_REUSE_AFTER:
            raise existed_too_recently("queue")
        self._queues[name] = Queue(name, settings, self.now(), self.faults.fired)
        return self._queues[name]
