"""The event bus port inside one process. It keeps nothing: deliveries are the outbox."""

from __future__ import annotations

import heapq
import itertools
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from leasehold.domain.event_message import EventMessage
from leasehold.domain.retry import QUEUE_BACKOFF
from leasehold.errors import LeaseholdError
from leasehold.ports.clock import Clock

#: So many messages of a channel are delivered at once: one provider that is slow keeps neither the
#: other channels waiting nor all its own messages.
_SENDS_AT_ONCE: Final = 4
#: With so many of a channel that wait, no other is taken: the sweep comes to it.
_MAX_MESSAGES_WAITING: Final = 5_000
#: A time of day that jumps, or a machine that slept, is noticed after this long at most.
_MAX_SLEEP_S: Final = 60.0
#: The wait for a message that is due by our clock, and not by that of the store.
_LOOK_EVERY_S: Final = 1.0

#: Delivers a message; returns when to do it again, None: it is done with.
Deliver = Callable[[EventMessage], datetime | None]


class UndeliveredEvents:
    """For a process that delivers nothing: deliveries stay due, and the sweep sees to them."""

    def publish(self, messages: Sequence[EventMessage]) -> None:
        """Forget the messages."""

    def close(self, grace: float = 0.0) -> bool:  # noqa: ARG002 - nothing is under way
        """Do nothing."""
        return True


@dataclass(order=True, slots=True)
class _Entry:
    """A message that waits for its time; `failures` are those of the calls so far."""

    at: float
    number: int
    message: EventMessage = field(compare=False)
    failures: int = field(compare=False, default=0)


@dataclass(slots=True)
class _Lane:
    """The messages of one channel, and the threads that deliver them."""

    heap: list[_Entry] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)
    idle: int = 0


class InProcessEvents:
    """Messages by their time, delivered by threads of this process: a few for each channel.

    A message that waits no longer than this one would, or is being delivered, is not taken again.
    A publisher never waits, and is never refused.

    Args:
        clock: decides which messages are due.
        log: given a line where a delivery failed.
        by_hand: deliver nothing but by `deliver_due`.
    """

    def __init__(
        self, clock: Clock, log: Callable[[str], object], *, by_hand: bool = False
    ) -> None:
        self._clock = clock
        self._log = log
        self._by_hand = by_hand
        self._deliver: Deliver = lambda _: None
        self._changed = threading.Condition()
        self._lanes: dict[str, _Lane] = {}
        self._known: dict[
            str, float
        ] = {}  # waiting or being delivered: by name, since or until when
        self._numbers = itertools.count()
        self._over_at: float | None = None  # monotonic; None: it is open

    def deliver_by(self, deliver: Deliver) -> None:
        """Have messages delivered by this call from now on; it may be made by several threads."""
        self._deliver = deliver

    def publish(self, messages: Sequence[EventMessage]) -> None:
        """Take the messages."""
        now = self._clock.now().timestamp()
        with self._changed:
            for message in messages:
                about = message.delivery
                at = max(now, about.not_before.timestamp()) if about.not_before else now
                lane = self._lanes.setdefault(about.channel, _Lane())
                is_known = self._known.get(about.delivery_id, math.inf) <= at
                if not is_known and len(lane.heap) < _MAX_MESSAGES_WAITING:
                    self._known[about.delivery_id] = at
                    heapq.heappush(lane.heap, _Entry(at, next(self._numbers), message))
                self._wake(about.channel, lane)  # one that waits may have had no thread so far

    def deliver_due(self) -> int:
        """Deliver what is due now in this thread; return how many messages that were."""
        count = 0
        while entry := self._take_any():
            self._deliver_one(entry)
            count += 1
        return count

    def close(self, grace: float = 0.0) -> bool:
        """Deliver what is due once more, then end the threads.

        Returns:
            Whether they ended within `grace` seconds; what is not delivered stays due.
        """
        over_at = time.monotonic() + grace
        with self._changed:
            self._over_at = over_at
            self._changed.notify_all()
            threads = [thread for lane in self._lanes.values() for thread in lane.threads]
        for thread in threads:
            thread.join(max(0.0, over_at - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def _wake(self, channel: str, lane: _Lane) -> None:
        """Have a thread see what waits; where the system has none to give, the next call does."""
        self._changed.notify_all()
        is_enough = lane.idle >= len(lane.heap) or len(lane.threads) >= _SENDS_AT_ONCE
        if self._by_hand or self._over_at is not None or is_enough:
            return
        name = f"announce-{channel}-{len(lane.threads) + 1}"
        thread = threading.Thread(target=self._work, args=(lane,), name=name, daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError):
            return
        lane.threads.append(thread)

    def _work(self, lane: _Lane) -> None:
        while entry := self._wait_for(lane):
            self._deliver_one(entry)

    def _wait_for(self, lane: _Lane) -> _Entry | None:
        """Return what is due next of a lane; None once nothing is due and this is closed."""
        with self._changed:
            while True:
                is_over = self._over_at is not None and time.monotonic() >= self._over_at
                if not is_over and (entry := self._pop_due(lane)):
                    return entry
                if self._over_at is not None:
                    return None
                lane.idle += 1
                try:
                    self._changed.wait(self._seconds_to_wait(lane))
                finally:
                    lane.idle -= 1

    def _seconds_to_wait(self, lane: _Lane) -> float | None:
        if not lane.heap:
            return None
        wait = lane.heap[0].at - self._clock.now().timestamp()
        return min(max(0.0, wait), _MAX_SLEEP_S)

    def _take_any(self) -> _Entry | None:
        with self._changed:
            entries = (self._pop_due(lane) for lane in self._lanes.values())
            return next((entry for entry in entries if entry is not None), None)

    def _pop_due(self, lane: _Lane) -> _Entry | None:
        if lane.heap and lane.heap[0].at <= self._clock.now().timestamp():
            return heapq.heappop(lane.heap)
        return None

    def _deliver_one(self, entry: _Entry) -> None:
        """Deliver a message; one that failed comes again after a backoff, as from any bus."""
        about, failures, again = entry.message.delivery, 0, None
        try:
            again = self._deliver(entry.message)
        except Exception as error:  # noqa: BLE001 - the thread must outlive any delivery
            failures = entry.failures + 1
            is_known = isinstance(error, LeaseholdError)
            problem = str(error) if is_known else f"{type(error).__name__}: {error}"
            self._log(f"an announcement could not be looked after: {problem}")
            if not isinstance(error, LeaseholdError) or error.retryable:
                again = self._clock.now() + QUEUE_BACKOFF.wait(failures)
        except BaseException:  # a delivery by hand is interrupted: it may be taken again
            with self._changed:
                self._known.pop(about.delivery_id, None)
            raise
        with self._changed:
            if again is None or self._over_at is not None:
                self._known.pop(about.delivery_id, None)
                return
            now, at = self._clock.now().timestamp(), again.timestamp()
            at = at if at > now else now + _LOOK_EVERY_S  # else each look, which is billed, has one
            entry = replace(entry, at=at, failures=failures)
            self._known[about.delivery_id] = entry.at
            heapq.heappush(self._lanes[about.channel].heap, entry)
            self._changed.notify_all()
