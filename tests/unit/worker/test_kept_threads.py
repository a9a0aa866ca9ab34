"""Threads that go on to the next call: as many as calls at once, and none for long."""

from __future__ import annotations

import threading

import pytest

from leasehold.worker.kept_threads import KeptThreads
from tests.waiting import until


def made(threads: KeptThreads) -> int:
    """The thread that a call is made in."""
    call = threads.start_call(threading.get_ident)
    assert call is not None
    return call.result(30)


def is_gone(name: str) -> bool:
    return name not in [thread.name for thread in threading.enumerate()]


def test_calls_one_after_another_are_made_in_one_thread() -> None:
    threads = KeptThreads("kept-one", kept_s=30)

    assert len({made(threads) for _ in range(100)}) == 1
    threads.close()
    until(lambda: is_gone("kept-one"))


def test_calls_at_once_have_a_thread_each() -> None:
    threads, met = KeptThreads("kept-many", kept_s=30), threading.Barrier(3)

    calls = [threads.start_call(met.wait) for _ in range(2)]
    met.wait(30)

    assert all(call is not None and call.result(30) in (0, 1, 2) for call in calls)
    threads.close()
    until(lambda: is_gone("kept-many"))


def test_a_thread_that_gets_no_call_ends_and_another_makes_the_next() -> None:
    threads = KeptThreads("kept-short", kept_s=0.001)

    for _ in range(5):
        for _ in range(20):  # also while one is about to end
            made(threads)
        until(lambda: is_gone("kept-short"))


def test_what_a_call_raises_ends_no_thread() -> None:
    threads = KeptThreads("kept-raising", kept_s=30)
    failing = threads.start_call(lambda: 1 / 0)
    assert failing is not None

    with pytest.raises(ZeroDivisionError):
        failing.result(30)
    made(threads)
    threads.close()


def test_a_thread_at_work_ends_after_its_call_once_they_are_closed() -> None:
    threads, over = KeptThreads("kept-closed", kept_s=30), threading.Event()
    call = threads.start_call(lambda: over.wait(30))

    threads.close()
    over.set()

    assert call is not None
    assert call.result(30)
    until(lambda: is_gone("kept-closed"))
