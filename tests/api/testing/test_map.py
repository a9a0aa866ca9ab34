"""`ctx.map`: many calls, some at a time, each made once; none that is paid for is thrown away."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import aclosing
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel

from leasehold import AgentClientError, CallRetry, ContinuedError, PermanentError
from leasehold.errors import InvalidRequestError, LeaseLostError
from leasehold.testing import step_context
from leasehold.testing.contexts import RecordingContext


def in_a_loop(test: Callable[..., Any]) -> Callable[..., None]:
    """Return a test that runs a coroutine function."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


class Page(BaseModel):
    title: str


class Client:
    """Counts its calls, and how many are under way at once.

    Args:
        meet: each call ends once so many have been under way at once.
    """

    def __init__(self, meet: int = 1) -> None:
        self.calls: Counter[Any] = Counter()
        self.most = self._now = 0
        self._meet, self._have_met = meet, threading.Event()
        self._counting = threading.Lock()

    def double(self, number: int) -> int:
        self._begin(number)
        assert self._have_met.wait(30)
        return self._end(number)

    async def adouble(self, number: int) -> int:
        self._begin(number)
        assert await asyncio.to_thread(self._have_met.wait, 30)
        return self._end(number)

    def _begin(self, number: int) -> None:
        with self._counting:
            self.calls[number] += 1
            self._now += 1
            self.most = max(self.most, self._now)
            if self._now >= self._meet:
                self._have_met.set()

    def _end(self, number: int) -> int:
        with self._counting:
            self._now -= 1
        return 2 * number


@pytest.fixture
def ctx() -> Iterator[RecordingContext]:
    with step_context() as ctx:
        yield ctx


# -- results -----------------------------------------------------------------------------------


def test_results_are_in_the_order_of_the_items(ctx: RecordingContext) -> None:
    client = Client(meet=4)

    results = ctx.map(client.double, range(30), at_once=4)

    assert results == [2 * number for number in range(30)]
    assert client.most == 4
    assert len(ctx.recorded.calls) == 30


@in_a_loop
async def test_a_loop_makes_them_as_tasks(ctx: RecordingContext) -> None:
    client = Client(meet=4)

    results = await ctx.amap(client.adouble, range(30), at_once=4)

    assert results == [2 * number for number in range(30)]
    assert client.most == 4


@in_a_loop
async def test_a_function_that_blocks_is_called_in_threads_of_a_loop(
    ctx: RecordingContext,
) -> None:
    assert await ctx.amap(Client().double, [3, 1, 3]) == [6, 2, 6]


def test_no_items_give_no_results(ctx: RecordingContext) -> None:
    assert ctx.map(Client().double, []) == []


def test_they_come_as_they_are_done(ctx: RecordingContext) -> None:
    go_on = threading.Event()

    def wait_for_the_second(number: int) -> int:
        if number == 0:
            go_on.wait(30)
        return number

    ends = ctx.map_as_completed(wait_for_the_second, [0, 1], at_once=2)
    first = next(ends)
    go_on.set()

    assert (first.index, first.item, first.result, first.error) == (1, 1, 1, None)
    assert [one.index for one in ends] == [0]


@in_a_loop
async def test_in_a_loop_they_come_as_they_are_done(ctx: RecordingContext) -> None:
    go_on = asyncio.Event()

    async def wait_for_the_second(number: int) -> int:
        if number == 0:
            await go_on.wait()
        return number

    async with aclosing(ctx.amap_as_completed(wait_for_the_second, [0, 1])) as ends:
        first = await anext(ends)
        go_on.set()
        rest = [one.index async for one in ends]

    assert (first.index, first.result, rest) == (1, 1, [0])


def test_items_are_taken_one_by_one(ctx: RecordingContext) -> None:
    taken = []

    def items() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    ends = ctx.map_as_completed(Client().double, items(), at_once=2)
    next(ends)
    ends.close()  # type: ignore[attr-defined] # it is a generator

    assert len(taken) <= 4


# -- recorded results --------------------------------------------------------------------------


def test_a_later_attempt_makes_only_the_calls_that_are_left(ctx: RecordingContext) -> None:
    """The order of the items may be another one by then, and one may be there twice."""
    ctx.map(Client().double, [1, 2, 2])
    client = Client()

    with step_context(attempt=2, calls=ctx.recorded.calls) as later:
        results = later.map(client.double, [5, 2, 1, 2, 2])

    assert results == [10, 4, 2, 4, 4]
    assert client.calls == {5: 1, 2: 1}


def test_a_result_is_recorded_under_the_key_that_its_item_has(ctx: RecordingContext) -> None:
    def ask(item: dict[str, str]) -> str:
        return item["text"]

    ctx.map(ask, [{"id": "a", "text": "one"}], key=lambda item: item["id"])

    assert list(ctx.recorded.calls) == ["a"]


def test_maps_of_one_function_are_told_apart_by_their_names(ctx: RecordingContext) -> None:
    def ask(model: str, item: int) -> str:
        return f"{model} {item}"

    small = ctx.map(partial(ask, "small"), [1], name="small")
    large = ctx.map(partial(ask, "large"), [1], name="large")

    assert (small, large) == (["small 1"], ["large 1"])


def test_models_are_items(ctx: RecordingContext) -> None:
    assert ctx.map(lambda page: page.title, [Page(title="a"), Page(title="b")]) == ["a", "b"]


@pytest.mark.parametrize("count", [2_000, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_thousands_of_items_are_mapped(ctx: RecordingContext, count: int) -> None:
    """More than a stack has calls, or a process has threads."""
    assert sum(ctx.map(Client().double, range(count))) == count * (count - 1)


# -- errors ------------------------------------------------------------------------------------


def test_siblings_end_and_are_recorded_before_an_error_is_raised(ctx: RecordingContext) -> None:
    failed = threading.Event()

    def ask(number: int) -> int:
        if number == 1:
            failed.set()
            raise ValueError("the second")
        failed.wait(30)
        time.sleep(0.05)
        if number == 2:
            raise ValueError("the third")
        return number

    with pytest.raises(ValueError, match="the second"):
        ctx.map(ask, range(100), at_once=4)

    assert sorted(ctx.recorded.calls.values()) == [0, 3]


@in_a_loop
async def test_so_do_tasks(ctx: RecordingContext) -> None:
    async def ask(number: int) -> int:
        if number == 1:
            raise ValueError("the second")
        await asyncio.sleep(0.05)
        return number

    with pytest.raises(ValueError, match="the second"):
        await ctx.amap(ask, range(100), at_once=3)

    assert sorted(ctx.recorded.calls.values()) == [0, 2]


@in_a_loop
async def test_what_is_under_way_is_recorded_where_the_map_is_cancelled(
    ctx: RecordingContext,
) -> None:
    begun: list[int] = []
    all_have_begun, go_on = asyncio.Event(), asyncio.Event()

    async def ask(number: int) -> int:
        begun.append(number)
        if len(begun) == 3:
            all_have_begun.set()
        await go_on.wait()
        return number

    mapping = asyncio.create_task(ctx.amap(ask, range(100), at_once=3))
    await all_have_begun.wait()
    mapping.cancel()
    await asyncio.sleep(0)  # the map hears of it before its calls end
    go_on.set()

    with pytest.raises(asyncio.CancelledError):
        await mapping
    assert sorted(begun) == sorted(ctx.recorded.calls.values()) == [0, 1, 2]


def _end_after_the_first(call: Callable[[int], int], time_left: float) -> dict[str, Any]:
    """Leave a map after its first result, with so much time left; return what is recorded."""
    with step_context(time_left=60) as ctx:
        ends = ctx.map_as_completed(call, [0, 1], at_once=2)
        next(ends)
        ctx.wait_or_shutdown(60 - time_left)
        ends.close()  # type: ignore[attr-defined] # it is a generator
        return dict(ctx.recorded.calls)


def test_what_is_under_way_is_recorded_where_the_map_is_left() -> None:
    recorded = _end_after_the_first(lambda number: time.sleep(0.1 * number) or 2 * number, 30)

    assert sorted(recorded.values()) == [0, 2]


def test_what_is_under_way_does_not_take_the_last_of_the_time_to_clean_up() -> None:
    """A quarter of its 5 s is the handler's, to say what it has."""
    left = threading.Event()

    recorded = _end_after_the_first(lambda number: int(number and left.wait(10)), 1)
    left.set()

    assert [*recorded.values()] == [0]


@in_a_loop
async def test_a_task_that_there_is_no_time_for_is_cancelled() -> None:
    has_begun, cancelled = asyncio.Event(), asyncio.Event()

    async def ask(number: int) -> int:
        if number == 0:
            await has_begun.wait()
            return 0
        has_begun.set()
        try:
            return await asyncio.sleep(30, 1)
        finally:
            cancelled.set()

    with step_context(time_left=60) as ctx:
        async with aclosing(ctx.amap_as_completed(ask, [0, 1])) as ends:
            await anext(ends)
            ctx.wait_or_shutdown(59)
        async with asyncio.timeout(10):
            await cancelled.wait()


def test_some_may_fail(ctx: RecordingContext) -> None:
    def ask(number: int) -> int:
        if number % 2:
            raise ValueError(f"odd: {number}")
        return number

    results = ctx.map(ask, range(5), return_exceptions=True)

    assert [str(one) for one in results] == ["0", "odd: 1", "2", "odd: 3", "4"]
    assert ctx.recorded.progress[-1].fraction == 1.0
    assert messages(ctx)[-1] == "5 of 5, 2 failed"


def test_of_items_that_are_not_counted_it_is_shown_how_many_are_done(
    ctx: RecordingContext,
) -> None:
    ends = ctx.map_as_completed(Client().double, iter([1, 2]), at_once=1)
    next(ends)

    assert messages(ctx)[-1] == "1 done"
    ends.close()  # type: ignore[attr-defined] # as above


def test_what_the_engine_says_ends_a_map_that_may_fail(ctx: RecordingContext) -> None:
    def ask(number: int) -> int:
        raise LeaseLostError(lease_id="l", run_id="r", known="it is another's")

    with pytest.raises(LeaseLostError):
        ctx.map(ask, range(5), return_exceptions=True)


# -- tries -------------------------------------------------------------------------------------


def failing(times: int, error: Exception) -> tuple[Counter[int], Any]:
    calls: Counter[int] = Counter()

    def ask(number: int) -> int:
        calls[number] += 1
        if calls[number] <= times:
            raise error
        return number

    return calls, ask


def messages(ctx: RecordingContext) -> list[str]:
    return [progress.message for progress in ctx.recorded.progress]


def test_a_call_is_tried_again_within_its_attempt(ctx: RecordingContext) -> None:
    """In time that its waits move: 1 s and 2 s."""
    calls, ask = failing(2, OSError("busy"))
    before = ctx.time_left()

    assert ctx.map(ask, [7], retry=3) == [7]
    assert calls == {7: 3}
    assert before - ctx.time_left() == timedelta(seconds=3)
    assert messages(ctx) == ["0 of 1", "1 of 1"]  # one that waits is not silent


@in_a_loop
async def test_in_a_loop_it_is_tried_again(ctx: RecordingContext) -> None:
    calls, ask = failing(2, OSError("busy"))

    async def later(number: int) -> int:
        return int(ask(number))

    assert await ctx.amap(later, [7], retry=3) == [7]
    assert calls == {7: 3}
    assert messages(ctx) == ["0 of 1", "1 of 1"]


@pytest.mark.parametrize("is_later", [False, True])
def test_no_try_is_waited_for_once_another_call_has_failed(
    ctx: RecordingContext, is_later: bool
) -> None:
    """Which is known once the map has heard of it: the wait ends then at the latest."""
    failed, wait = threading.Event(), timedelta(minutes=8)
    retry = CallRetry(first=wait, max=wait)
    before = ctx.time_left()

    def ask(number: int) -> int:
        if not number:
            failed.set()
            raise PermanentError("no")
        failed.wait(30)
        time.sleep(0.05)
        raise OSError("busy")

    async def handler() -> object:
        return await ctx.amap(ask, [0, 1], retry=retry)

    with pytest.raises(PermanentError):
        asyncio.run(handler()) if is_later else ctx.map(ask, [0, 1], retry=retry)

    assert before - ctx.time_left() < wait


def test_an_error_says_when_to_come_back(ctx: RecordingContext) -> None:
    _, ask = failing(1, AgentClientError("busy", code="rate_limited", retry_after=40))
    before = ctx.time_left()

    assert ctx.map(ask, [7], retry=CallRetry(tries=2)) == [7]
    assert before - ctx.time_left() == timedelta(seconds=40)


@pytest.mark.parametrize(
    ("error", "retry"),
    [
        (PermanentError("no"), CallRetry(tries=9)),
        (ValueError("no"), CallRetry(tries=9, non_retryable=(ValueError,))),
        (ValueError("no"), None),
        (ValueError("no"), 1),
    ],
)
def test_what_no_try_repairs_is_not_tried_again(
    ctx: RecordingContext, error: Exception, retry: Any
) -> None:
    calls, ask = failing(99, error)

    with pytest.raises(type(error), match="no"):
        ctx.map(ask, [7], retry=retry)

    assert calls == {7: 1}


def test_a_wait_that_the_attempt_has_no_time_for_is_left_to_the_step() -> None:
    """Its error says when to come back; with results that are new, the attempt is continued."""
    _, ask = failing(1, AgentClientError("busy", code="rate_limited", retry_after=57))

    with step_context(time_left=60) as ctx, pytest.raises(AgentClientError, match="busy"):
        ctx.map(ask, [7], retry=3)

    with step_context(time_left=60) as ctx, pytest.raises(ContinuedError):
        ctx.map(lambda number: number or ask(number), [1, 2, 0], at_once=1, retry=3)
    assert sorted(ctx.recorded.calls.values()) == [1, 2]


# -- the end of an attempt ---------------------------------------------------------------------


def test_an_attempt_whose_time_is_short_ends_between_items_with_all_recorded() -> None:
    with step_context(time_left=100) as ctx:

        def ask(number: int) -> int:
            ctx.wait_or_shutdown(20)  # moves the time
            return number

        with pytest.raises(ContinuedError):
            ctx.map(ask, range(100), at_once=1)

    assert sorted(ctx.recorded.calls.values()) == [0, 1, 2, 3]


def test_a_long_call_beside_short_ones_says_how_much_time_the_next_one_may_take() -> None:
    is_long_over, is_long_taken = threading.Event(), threading.Event()

    with step_context(time_left=100) as ctx:

        def ask(number: int) -> int:
            if number == 0:
                is_long_over.wait(30)
                return number
            if number == 6:
                is_long_taken.wait(30)
            ctx.wait_or_shutdown(10)  # moves the time
            if number == 5:
                is_long_over.set()
            return number

        def take_all() -> None:
            for end in ctx.map_as_completed(ask, range(100), at_once=2):
                if end.index == 0:
                    is_long_taken.set()

        with pytest.raises(ContinuedError):
            take_all()

    assert max(ctx.recorded.calls.values()) == 6


def test_an_attempt_that_is_to_stop_begins_no_item(ctx: RecordingContext) -> None:
    client = Client()
    ends = ctx.map_as_completed(client.double, range(100), at_once=2)
    next(ends)

    ctx.request_stop()
    with pytest.raises(ContinuedError):
        list(ends)

    assert len(client.calls) == len(ctx.recorded.calls) <= 3


# -- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"at_once": 0}, "at_once is '0'; allowed: a whole number from 1 to 64"),
        ({"at_once": True}, "at_once is 'True'; allowed: a whole number from 1 to 64"),
        ({"retry": 0}, "retry.tries is '0'; allowed: a whole number from 1 to 100"),
        ({"retry": "3"}, "retry is 'str'; allowed: a CallRetry, or a number of tries"),
        ({"retry": CallRetry(factor=0.5)}, "retry.factor is '0.5'; allowed: a number from 1"),
        ({"items": 5}, "items is 'int'; allowed: an iterable"),
        ({"items": [object()]}, "items is 'object'; allowed: JSON values, or models of them"),
        ({"items": [float("nan")]}, "items is 'float'; allowed: JSON values, or models of them"),
        ({"key": lambda _: "one"}, "key is 'one'; allowed: another key for each item"),
        ({"key": lambda _: ""}, "key is ''; allowed: a text of 1 to 128 printable characters"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_line(
    ctx: RecordingContext, arguments: dict[str, Any], words: str
) -> None:
    arguments = {"items": [1, 2], "at_once": 1, **arguments}

    with pytest.raises(InvalidRequestError) as refused:
        ctx.map(Client().double, **arguments)

    assert words in refused.value.message
