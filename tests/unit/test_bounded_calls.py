"""Calls in threads: one that hangs delays nothing, none is made twice, and none is hidden."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from leasehold.bounded_calls import BoundedCalls, Call, KeptThreads, side_by_side
from tests.worlds.waiting import until


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


def test_a_call_that_is_over_soon_is_waited_for() -> None:
    made: list[int] = []

    assert BoundedCalls("errand").run(lambda: made.append(1)) is True
    assert made == [1]


def test_what_a_call_raises_is_raised_where_it_was_asked_for() -> None:
    with pytest.raises(ZeroDivisionError):
        BoundedCalls("errand").run(lambda: 1 / 0)


def test_calls_that_hang_delay_nothing_and_are_few() -> None:
    over = threading.Event()
    begun: list[int] = []
    errands = BoundedCalls("errand", patience_s=0.01, most_late=2)

    def hang() -> None:
        begun.append(1)
        over.wait(60)

    assert [errands.run(hang) for _ in range(4)] == [False] * 4
    assert len(begun) == 2
    over.set()
    until(lambda: errands.run(lambda: None))


def giving(calls: list[Call]) -> Callable[[], Call | None]:
    """Return what gives these calls, one after the other."""
    left: Iterator[Call] = iter(calls)
    return lambda: next(left, None)


def test_a_call_that_hangs_holds_up_no_other() -> None:
    others_done, made = threading.Event(), []

    def hang() -> None:
        assert others_done.wait(60)

    def work() -> None:
        made.append(1)
        if len(made) == 50:
            others_done.set()

    side_by_side(giving([hang, *[work] * 50]), at_most=3)

    assert len(made) == 50


def test_no_more_run_at_once_than_are_allowed() -> None:
    running, most, lock = 0, 0, threading.Lock()
    together = threading.Barrier(3, timeout=60)

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait()
        with lock:
            running -= 1

    side_by_side(giving([work] * 12), at_most=3)

    assert most == 3


def test_what_a_call_leaves_to_be_done_is_made_too() -> None:
    later: list[Call] = []
    made: list[str] = []

    def first() -> None:
        later.append(lambda: made.append("later"))

    calls = [first]

    def take() -> Call | None:
        return later.pop() if later else calls.pop() if calls else None

    side_by_side(take, at_most=4)

    assert made == ["later"]


def test_what_a_helper_leaves_to_be_done_is_made_although_the_caller_had_nothing_more() -> None:
    caller, later, made = threading.get_ident(), [], []
    caller_is_done = threading.Event()

    def helps() -> None:
        assert caller_is_done.wait(60)
        later.append(lambda: made.append("later"))

    def take() -> Call | None:
        if later:
            return later.pop()
        if threading.get_ident() != caller:
            return helping.pop() if helping else None
        if not given:
            given.append(True)
            return lambda: helper_came.wait(10)
        caller_is_done.set()
        return None

    helper_came = threading.Event()
    helping: list[Call] = [helps, helper_came.set]
    given: list[bool] = []
    side_by_side(take, at_most=3)

    assert made == ["later"]


def test_one_at_a_time_needs_no_thread_but_the_callers() -> None:
    threads: set[int] = set()

    side_by_side(giving([lambda: threads.add(threading.get_ident())] * 5), at_most=1)

    assert threads == {threading.get_ident()}


def test_the_first_failure_ends_it_and_is_raised() -> None:
    made: list[int] = []

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        side_by_side(giving([fail, *[lambda: made.append(1)] * 1000]), at_most=1)

    assert made == []


@pytest.mark.parametrize("at_most", [1, 4])
def test_an_impossible_call_is_reported_by_the_callers_thread(at_most: int) -> None:
    taken = 0

    def take() -> Call | None:
        nonlocal taken
        taken += 1
        if taken > 3:
            raise ValueError("the store is away")
        return lambda: None

    with pytest.raises(ValueError, match="the store is away"):
        side_by_side(take, at_most)


def test_an_interrupted_caller_takes_no_more_and_leaves_no_thread() -> None:
    """Ctrl-C in a sweep must not wait for all that is due."""
    caller, go_on, made = threading.get_ident(), threading.Event(), []

    def work() -> None:
        if threading.get_ident() == caller:
            go_on.set()
            raise KeyboardInterrupt
        assert go_on.wait(60)
        made.append(1)

    with pytest.raises(KeyboardInterrupt):
        side_by_side(giving([work] * 1000), at_most=4)

    assert len(made) < 1000
    assert not [one for one in threading.enumerate() if one.name == "side-by-side"]


def test_a_process_without_threads_makes_the_calls_in_the_callers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none_left(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none_left)
    made: list[int] = []

    side_by_side(giving([lambda: made.append(1)] * 5), at_most=4)

    assert made == [1] * 5
