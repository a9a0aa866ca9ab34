"""The announcements queue of a process: what it delivers and when, and whom it never holds up."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.in_process_events import InProcessEvents
from leasehold.domain.event_message import EventMessage
from leasehold.errors import StoreUnavailableError, UnknownKeyError
from leasehold.ports.clock import Clock
from leasehold.testing import FrozenClock
from tests.worlds.builders import message
from tests.worlds.waiting import until

Deliver = Callable[[EventMessage], datetime | None]


class Bus:
    """A queue, what it delivered and what it logged."""

    def __init__(self, clock: Clock, *, by_hand: bool) -> None:
        self.lines: list[str] = []
        self.delivered: list[str] = []
        self.events = InProcessEvents(clock, self.lines.append, by_hand=by_hand)
        self.deliver_by(lambda _: None)

    def deliver_by(self, deliver: Deliver) -> None:
        def noted(message: EventMessage) -> datetime | None:
            self.delivered.append(message.delivery.delivery_id)
            return deliver(message)

        self.events.deliver_by(noted)


@pytest.fixture
def by_hand(clock: FrozenClock) -> Bus:
    return Bus(clock, by_hand=True)


@pytest.fixture
def bus() -> Iterator[Bus]:
    bus = Bus(SystemClock(), by_hand=False)
    yield bus
    assert bus.events.close(10)


def test_nothing_is_delivered_by_hand_until_it_is_asked_for(by_hand: Bus) -> None:
    by_hand.events.publish([message("r-1"), message("r-2")])

    assert by_hand.delivered == []
    assert by_hand.events.deliver_due() == 2
    assert by_hand.delivered == ["r-1:1:log", "r-2:1:log"]
    assert by_hand.events.deliver_due() == 0


def test_a_message_that_waits_is_not_taken_twice(by_hand: Bus) -> None:
    by_hand.events.publish([message("r-1"), message("r-1")])
    by_hand.events.publish([message("r-1")])

    assert by_hand.events.deliver_due() == 1


def test_a_message_that_was_delivered_may_come_again(by_hand: Bus) -> None:
    for _ in range(2):
        by_hand.events.publish([message("r-1")])
        by_hand.events.deliver_due()

    assert by_hand.delivered == ["r-1:1:log"] * 2


def test_what_is_due_later_is_delivered_at_its_time(by_hand: Bus, clock: FrozenClock) -> None:
    later = iter([clock.now() + timedelta(seconds=5), None])
    by_hand.deliver_by(lambda _: next(later))
    by_hand.events.publish([message("r-1")])

    counts = [by_hand.events.deliver_due() for _ in range(2)]
    clock.advance(5)
    counts.append(by_hand.events.deliver_due())

    assert counts == [1, 0, 1]


def test_one_that_is_asked_for_by_hand_does_not_wait_for_the_next_try(
    by_hand: Bus, clock: FrozenClock
) -> None:
    """A person had it told again, while it waited for its next try in an hour."""
    by_hand.events.publish([message("r-1", not_before=clock.now() + timedelta(hours=1))])
    waits = by_hand.events.deliver_due()

    by_hand.events.publish([message("r-1")])

    assert (waits, by_hand.events.deliver_due()) == (0, 1)


def test_a_delivery_that_failed_comes_again_after_a_wait(by_hand: Bus, clock: FrozenClock) -> None:
    def away(_: EventMessage) -> None:
        raise StoreUnavailableError(store="sqlite", problem="away")

    by_hand.deliver_by(away)
    by_hand.events.publish([message("r-1")])
    by_hand.events.deliver_due()
    by_hand.deliver_by(lambda _: None)

    counts = [by_hand.events.deliver_due()]
    clock.advance(10)
    counts.append(by_hand.events.deliver_due())

    assert counts == [0, 1]
    assert "away" in by_hand.lines[0]


def test_what_no_repeat_can_help_is_left_to_its_alarm(by_hand: Bus, clock: FrozenClock) -> None:
    def refuse(_: EventMessage) -> None:
        raise UnknownKeyError(registry="channels", key="log", known="none")

    by_hand.deliver_by(refuse)
    by_hand.events.publish([message("r-1")])

    counts = [by_hand.events.deliver_due()]
    clock.advance(3600)
    counts.append(by_hand.events.deliver_due())

    assert counts == [1, 0]
    assert "log" in by_hand.lines[0]


def test_threads_deliver_what_is_published(bus: Bus) -> None:
    bus.events.publish([message(f"r-{number}") for number in range(20)])

    until(lambda: len(bus.delivered) == 20)
    assert Counter(bus.delivered).most_common(1)[0][1] == 1


def test_a_channel_that_hangs_delays_no_other(bus: Bus) -> None:
    go_on = threading.Event()
    bus.deliver_by(lambda one: go_on.wait(30) and None if one.delivery.channel == "slow" else None)

    bus.events.publish([message(f"r-{number}", channel="slow") for number in range(9)])
    bus.events.publish([message("r-1", channel="quick")])

    until(lambda: "r-1:1:quick" in bus.delivered)
    go_on.set()


def test_a_publisher_never_waits_and_is_never_refused(bus: Bus) -> None:
    """Excess deliveries stay due in the store."""
    go_on = threading.Event()
    bus.deliver_by(lambda _: go_on.wait(30) and None)

    bus.events.publish([message(f"r-{number}") for number in range(6_000)])
    go_on.set()

    assert bus.events.close(60)
    assert 5_000 <= len(bus.delivered) < 6_000


def test_what_is_due_is_tried_once_more_at_the_end() -> None:
    bus, begun, go_on = Bus(SystemClock(), by_hand=False), threading.Event(), threading.Event()

    def slow(_: EventMessage) -> datetime:
        begun.set()
        go_on.wait(30)
        return SystemClock().now()  # it is due at once again

    bus.deliver_by(slow)
    bus.events.publish([message(f"r-{number}") for number in range(10)])
    begun.wait(30)
    go_on.set()

    assert bus.events.close(30)
    assert set(bus.delivered) == {f"r-{number}:1:log" for number in range(10)}


def test_a_delivery_that_hangs_holds_up_no_end() -> None:
    bus, begun, go_on = Bus(SystemClock(), by_hand=False), threading.Event(), threading.Event()

    def hang(_: EventMessage) -> None:
        begun.set()
        go_on.wait(60)

    bus.deliver_by(hang)
    bus.events.publish([message("r-1")])
    begun.wait(30)

    assert not bus.events.close(0.05)
    go_on.set()
    assert bus.events.close(30)


def test_nothing_is_delivered_after_the_end(bus: Bus) -> None:
    bus.events.close()

    bus.events.publish([message("r-1")])

    assert bus.delivered == []


def test_a_message_that_found_no_thread_is_delivered_once_there_is_one(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits already, so the sweep that publishes it again adds none: it wakes that one."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        bus.events.publish([message("r-1")])
    assert bus.delivered == []

    bus.events.publish([message("r-1")])
    until(lambda: bus.delivered == ["r-1:1:log"])


def test_a_message_that_is_due_by_our_clock_and_not_by_the_stores_is_looked_at_once_a_second(
    by_hand: Bus, clock: FrozenClock
) -> None:
    """The clock of the machine is ahead of the store: each look is a read that is billed."""
    by_hand.deliver_by(lambda _: clock.now() if len(by_hand.delivered) < 9 else None)
    by_hand.events.publish([message("r-1")])

    assert by_hand.events.deliver_due() == 1
    assert by_hand.events.deliver_due() == 0
    clock.advance(1)
    assert by_hand.events.deliver_due() == 1
