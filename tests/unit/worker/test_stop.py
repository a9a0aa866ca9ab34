"""A stop signal reaches every waiter, in whatever way it waits."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

import pytest

from leasehold.attempt.stop import StopSignal
from leasehold.domain.status import Termination

LONG_S = 300.0


class Calls:
    """Takes note of the calls of a callback, and in which thread they came."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []
        self.called = threading.Event()

    def __call__(self) -> None:
        self.threads.append(threading.current_thread())
        self.called.set()


def fail() -> None:
    raise ValueError("this callback is broken")


def test_the_first_reason_stays() -> None:
    stop = StopSignal()
    before = (stop.is_requested, stop.reason)

    stop.request("instance_shutdown")
    stop.request("lease_expired")

    assert before == (False, None)
    assert (stop.is_requested, stop.reason) == (True, "instance_shutdown")


def test_a_woken_thread_knows_the_reason() -> None:
    stop = StopSignal()
    reasons: list[str | None] = []

    def wait() -> None:
        stop.wait(LONG_S)
        reasons.append(stop.reason)

    threads = [threading.Thread(target=wait) for _ in range(20)]
    for thread in threads:
        thread.start()

    stop.request("cancelled")
    for thread in threads:
        thread.join(60)

    assert reasons == ["cancelled"] * 20


def test_a_wait_without_a_signal_ends_by_itself() -> None:
    assert not StopSignal().wait(0.01)


def test_a_callback_is_called_once_and_in_another_thread() -> None:
    stop, calls = StopSignal(), Calls()
    stop.on_stop(calls)

    stop.request("one")
    stop.request("two")

    assert calls.called.wait(60)
    assert len(calls.threads) == 1
    assert calls.threads != [threading.current_thread()]


def test_a_callback_that_comes_late_is_called_at_once_in_another_thread() -> None:
    """Its errors and its duration do not concern the caller of the stop."""
    stop, calls = StopSignal(), Calls()
    stop.request("one")

    stop.on_stop(calls)()

    assert calls.called.wait(60)
    assert calls.threads != [threading.current_thread()]


def test_a_callback_that_hangs_keeps_no_other_from_running() -> None:
    stop, calls, never = StopSignal(), Calls(), threading.Event()
    stop.on_stop(never.wait)
    stop.on_stop(calls)

    stop.request("one")

    assert calls.called.wait(60)
    never.set()


def test_a_callback_that_was_forgotten_is_not_called() -> None:
    stop, forgotten, last = StopSignal(), Calls(), Calls()
    forget = stop.on_stop(forgotten)
    stop.on_stop(last)

    forget()
    forget()
    stop.request("one")

    assert last.called.wait(60)
    assert forgotten.threads == []


def test_a_callback_that_fails_disturbs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    stop, calls = StopSignal(), Calls()
    stop.on_stop(fail)
    stop.on_stop(calls)

    stop.request("one")
    assert calls.called.wait(60)
    stop.on_stop(fail)

    end = time.monotonic() + 10
    while len(failures := [it for it in caplog.records if it.name == "leasehold.stop"]) < 2:
        assert time.monotonic() < end
    assert [record.levelno for record in failures] == [logging.ERROR] * 2


def test_a_callback_may_ask_and_listen_again() -> None:
    """It is called under no lock."""
    stop, late = StopSignal(), Calls()

    def again() -> None:
        stop.request("two")
        stop.on_stop(late)

    stop.on_stop(again)
    stop.request("one")

    assert late.called.wait(60)
    assert stop.reason == "one"


def test_a_coroutine_that_waits_is_woken_from_another_thread() -> None:
    stop = StopSignal()

    async def wait() -> list[bool]:
        asyncio.get_running_loop().call_later(0, threading.Thread(target=ask).start)
        return await asyncio.gather(*(stop.wait_async(LONG_S) for _ in range(5)))

    def ask() -> None:
        stop.request("one")

    began = time.monotonic()
    assert asyncio.run(wait()) == [True] * 5
    assert time.monotonic() - began < 10


def test_a_coroutine_waits_no_longer_than_it_wants() -> None:
    stop = StopSignal()

    async def waits() -> tuple[bool, bool]:
        return await stop.wait_async(0.01), await stop.wait_async(0)

    assert asyncio.run(waits()) == (False, False)


def test_a_coroutine_that_comes_late_does_not_wait() -> None:
    stop = StopSignal()
    stop.request("one")

    assert asyncio.run(stop.wait_async())


def test_a_coroutine_that_is_cancelled_waits_no_more() -> None:
    """The cancellation is not taken for the end of the wait."""
    stop = StopSignal()

    async def cancel() -> bool:
        waiting = asyncio.ensure_future(stop.wait_async(LONG_S))
        await asyncio.sleep(0)
        waiting.cancel()
        try:
            return await waiting
        except asyncio.CancelledError:
            return False

    assert not asyncio.run(cancel())
    stop.request("one")


def test_a_loop_that_was_closed_while_it_waited_is_passed_over() -> None:
    stop, calls = StopSignal(), Calls()
    stop.on_stop(calls)
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(stop.wait_async(LONG_S))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()

    stop.request("one")

    assert calls.called.wait(60)
    waiting._log_destroy_pending = False  # type: ignore[attr-defined] # noqa: SLF001 - as meant


def test_all_threads_that_wait_are_woken_and_who_comes_late_does_not_wait() -> None:
    """Their event is made for the first waiter."""
    stop, woken = StopSignal(), threading.Semaphore(0)

    def wait() -> None:
        assert stop.wait()
        woken.release()

    waiting = [threading.Thread(target=wait) for _ in range(4)]
    for thread in waiting:
        thread.start()
    assert not stop.wait(0.01)

    stop.request(Termination.CANCELLED)

    for thread in waiting:
        assert woken.acquire(timeout=60)
        thread.join()
    assert stop.wait()
