"""Looks are made at once, and each is left behind that does not come to an end."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.doctor.finding import Finding
from leasehold.doctor.probes import Look, examine

SMALL = Finding("small", "It is small.")


class Hanging:
    """A look that finds something and then hangs, and a clock by which its time is over then."""

    def __init__(self) -> None:
        self.hangs, self.end = threading.Event(), threading.Event()

    def find(self) -> Iterator[Finding]:
        yield SMALL
        self.hangs.set()
        self.end.wait(30)

    def clock(self) -> SystemClock:
        hangs = self.hangs

        class Clock(SystemClock):
            times = iter((0.0,))

            def monotonic(self) -> float:
                began = next(self.times, None)
                assert began is not None or hangs.wait(30)
                return 100.0 if began is None else began

        return Clock()


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    hanging = Hanging()
    yield hanging
    hanging.end.set()


def test_what_a_look_has_found_before_it_hangs_is_kept(hanging: Hanging) -> None:
    found = examine([Look("the queues", hanging.find)], hanging.clock(), within_s=10)

    why = "The queues could not be looked at: no answer within 10 s."
    assert found == [SMALL, Finding("not_looked_at", why)]


def test_what_keeps_several_from_looking_is_said_once() -> None:
    def fail() -> Iterator[Finding]:
        raise ConnectionError("no network")

    looks = [Look("the queues", fail), Look("the jobs", fail)]

    assert [one.message for one in examine(looks, SystemClock(), within_s=30)] == [
        "The queues, the jobs could not be looked at: ConnectionError: no network."
    ]


def test_what_ends_a_look_ends_no_other_one() -> None:
    """Code of the user may end its process, as it thinks."""

    def leave() -> Iterator[Finding]:
        raise SystemExit(3)

    looks = [Look("the handlers", leave), Look("the jobs", lambda: [SMALL])]

    assert [one.message for one in examine(looks, SystemClock(), within_s=30)] == [
        SMALL.message,
        "The handlers could not be looked at: SystemExit: 3.",
    ]


def test_what_two_looks_find_is_said_once() -> None:
    looks = [Look("the queues", lambda: iter([SMALL])), Look("the jobs", lambda: iter([SMALL]))]

    assert examine(looks, SystemClock(), within_s=10) == [SMALL]
