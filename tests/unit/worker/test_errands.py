"""Calls that nobody needs the end of now: one that hangs holds up nobody, and nothing is hidden."""

from __future__ import annotations

import threading

import pytest

from leasehold.worker.errands import Errands
from tests.waiting import until


def test_a_call_that_is_over_soon_is_waited_for() -> None:
    made: list[int] = []

    assert Errands().run(lambda: made.append(1)) is True
    assert made == [1]


def test_what_a_call_raises_is_raised_where_it_was_asked_for() -> None:
    with pytest.raises(ZeroDivisionError):
        Errands().run(lambda: 1 / 0)


def test_calls_that_hang_hold_up_nobody_and_are_few() -> None:
    over = threading.Event()
    begun: list[int] = []
    errands = Errands(patience_s=0.01, most_late=2)

    def hang() -> None:
        begun.append(1)
        over.wait(60)

    assert [errands.run(hang) for _ in range(4)] == [False] * 4
    assert len(begun) == 2
    over.set()
    until(lambda: errands.run(lambda: None))
