"""One queue: what it holds, and what is due. Pure: no threads, and time comes in as a value."""

from __future__ import annotations

import heapq
from datetime import datetime

from leasehold.devserver.cloud_tasks.faults import Fault, FiredFault, OrderedFault
from leasehold.devserver.cloud_tasks.held import HeldTask, UsedNames
from leasehold.devserver.cloud_tasks.limits import QueueSettings
from leasehold.devserver.cloud_tasks.pace import Pace
from leasehold.devserver.cloud_tasks.refusals import exists
from leasehold.devserver.cloud_tasks.tasks import Answer, Attempt, HttpTask


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
        self.tasks: dict[str, HeldTask] = {}
        self._pace = Pace(settings.rate, now)
        self._waiting: list[tuple[datetime, int, HeldTask]] = []  # with leftovers
        self._held_back: list[HeldTask] = []
        self._listening: dict[int, HeldTask] = {}
        self._used = UsedNames()
        self._numbers = 0
        self._latest = 0  # the newest task that was ever started
        self.fired: list[FiredFault] = [] if fired is None else fired

    @property
    def listening(self) -> int:
        """How many deliveries it waits for."""
        return len(self._listening)

    def configure(self, settings: QueueSettings) -> None:
        """Go by these settings, for retries that are scheduled from now on."""
        self.settings = settings
        self._pace.limit(settings.rate)

    def refuse_again(self, name: str, now: datetime) -> None:
        """Refuse the name of a task that is here, or was here a short time ago.

        Raises:
            RefusedError: ALREADY_EXISTS.
        """
        if name in self.tasks or self._used.has(name, now):
            raise exists("task")

    def add(self, task: HttpTask, now: datetime, fault: OrderedFault | None = None) -> HeldTask:
        """Take a task.

        Raises:
            RefusedError: its name is used up; see `refuse_again`.
        """
        self.refuse_again(task.name, now)
        eta = max(task.not_before, now)
        held = HeldTask(task, self._number(), created=now, eta=eta, fault=fault)
        self._place(held, now)
        return held

    def start(self, now: datetime) -> Attempt | None:
        """Return the delivery that is to start now, counted as started; None: there is none."""
        opens = self.next_time()
        if opens is None or opens > now:
            return None
        held = heapq.heappop(self._waiting)[2]
        attempt = self._attempt(held, now)
        self._pace.started(now)
        self._listening[attempt.number] = held
        self._overlap(held, attempt, now)
        return attempt

    def next_time(self) -> datetime | None:
        """Return when a delivery may start next; None: not before something else happens."""
        if self.paused or self.listening >= self.settings.rate.max_concurrent_dispatches:
            return None
        while self._waiting and self._waiting[0][1] != self._waiting[0][2].place:
            heapq.heappop(self._waiting)
        return max(self._waiting[0][0], self._pace.opens_at()) if self._waiting else None

    def finished(self, attempt: Attempt, answer: Answer, now: datetime) -> datetime | None:
        """Return when the task comes again after this answer; None: it does not.

        An answer that nobody waits for any more, and that of a task that was deleted, changes
        nothing but the pace.
        """
        self._pace.answered(answer, now)
        held = self._listening.pop(attempt.number, None)
        if held is None:
            return None
        self._release_held_back(held, now)
        if self.tasks.get(held.task.name) is not held:
            return None
        if held.spends(Fault.TWICE):
            self._fire(Fault.TWICE, held, now)
            held.attempts -= 1  # the second is like the first
            return self._wait(held, now)
        held.previous = answer.status
        held.answers += answer.status is not None
        held.executions += answer.counted
        return self._retry(held, answer, now)

    def delete(self, name: str, now: datetime) -> None:
        """Drop a task. A delivery that runs goes on; its answer is ignored."""
        held = self.tasks.pop(name)
        held.place = None
        self._used.add(name, now)

    def purge(self, now: datetime) -> None:
        """Drop all tasks."""
        for name in list(self.tasks):
            self.delete(name, now)
        self._waiting.clear()
        self.purged_at = now

    def _place(self, held: HeldTask, now: datetime) -> None:
        """Let a new task wait, as its fault has it."""
        if held.spends(Fault.LOST):
            self._used.add(held.task.name, now)
            self._fire(Fault.LOST, held, now)
            return
        self.tasks[held.task.name] = held
        if held.fault and held.fault.kind is Fault.REORDERED:
            self._held_back.append(held)
            self._wait(held, held.eta + held.fault.delay)
        elif held.fault and held.fault.kind is Fault.LATE:
            self._wait(held, held.eta + held.fault.delay)
        else:
            self._wait(held, held.eta)

    def _attempt(self, held: HeldTask, now: datetime) -> Attempt:
        held.place = None
        held.attempts += 1
        held.first_attempt = held.first_attempt or now
        held.last_attempt = now
        self._came_late(held, now)
        return Attempt(
            queue=self.name,
            task=held.task,
            number=self._number(),
            eta=held.eta,
            retries=held.attempts - 1,
            executions=held.executions,
            previous=held.previous,
        )

    def _came_late(self, held: HeldTask, now: datetime) -> None:
        """Record that a task was held up, if it was."""
        if held.spends(Fault.LATE):
            self._fire(Fault.LATE, held, now)
        if held.spends(Fault.REORDERED) and held.number < self._latest:
            self._fire(Fault.REORDERED, held, now)
        self._held_back = [other for other in self._held_back if other is not held]
        self._latest = max(self._latest, held.number)

    def _overlap(self, held: HeldTask, attempt: Attempt, now: datetime) -> None:
        """Stop listening to the first delivery at once, as if its deadline were over."""
        fault = held.fault
        if fault and held.spends(Fault.OVERLAPPING):
            self._fire(Fault.OVERLAPPING, held, now)
            del self._listening[attempt.number]
            held.eta = self._wait(held, now + fault.delay)

    def _release_held_back(self, done: HeldTask, now: datetime) -> None:
        """Let the tasks come that waited for a later one to be answered before them."""
        overtaken = [held for held in self._held_back if held.number < done.number]
        for held in overtaken:
            self._held_back.remove(held)
            if held.place is not None:
                self._wait(held, max(held.eta, now))

    def _retry(self, held: HeldTask, answer: Answer, now: datetime) -> datetime | None:
        retry = held.task.retry or self.settings.retry
        tried_for = now - (held.first_attempt or now)
        if answer.good or retry.gives_up(held.attempts, tried_for):
            self.delete(held.task.name, now)
            return None
        held.eta = self._wait(held, now + retry.wait(held.attempts))
        return held.eta

    def _wait(self, held: HeldTask, until: datetime) -> datetime:
        held.place = self._number()
        heapq.heappush(self._waiting, (until, held.place, held))
        return until

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _fire(self, kind: Fault, held: HeldTask, now: datetime) -> None:
        self.fired.append(FiredFault(kind, self.name, held.task.name, now))
