"""Loops that keep what they have done: each item once, whatever ends an attempt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leasehold import ContinuedError, IncrementalState
from leasehold.errors import CheckpointMisusedError, InvalidRequestError
from leasehold.testing import step_context
from leasehold.testing.contexts import RecordingContext
from leasehold.worker.context.checkpointed import Phases

#: Goes through items in a context, and returns the results.
Work = Callable[..., list[Any]]


def work(
    ctx: RecordingContext, items: Iterable[Any], *, every: int = 2, phase: str = ""
) -> list[Any]:
    loop = ctx.checkpointed(items, every, phase)
    for item in loop:
        loop.results.append(f"{item}!")
    return loop.results


def work_later(ctx: RecordingContext, items: Any, *, every: int = 2, phase: str = "") -> list[Any]:
    async def handler() -> list[Any]:
        loop = ctx.acheckpointed(items, every, phase)
        async for item in loop:
            await asyncio.sleep(0)
            loop.results.append(f"{item}!")
        return loop.results

    return asyncio.run(handler())


@pytest.fixture(params=[work, work_later])
def do(request: pytest.FixtureRequest) -> Work:
    """Goes through the items, in a function or in a coroutine."""
    found: Work = request.param
    return found


def counts(ctx: RecordingContext) -> list[tuple[str, int]]:
    return [(kept.phase, kept.iteration_count) for kept in ctx.recorded.checkpoints]


def kept_by(do: Work, *items: Any, **names: Any) -> IncrementalState:
    """Return what an attempt keeps in the end that goes through the items."""
    with step_context() as ctx:
        do(ctx, items, **names)
        return ctx.recorded.checkpoints[-1]


def test_a_checkpoint_is_kept_after_every_few_items_and_at_the_end(do: Work) -> None:
    with step_context() as ctx:
        results = do(ctx, "abcde")

    assert results == ["a!", "b!", "c!", "d!", "e!"]
    assert counts(ctx) == [("", 2), ("", 4), ("", 5)]


@pytest.mark.parametrize(("items", "kept"), [("", 0), ("ab", 1), ("abcd", 2)])
def test_nothing_is_kept_twice(do: Work, items: str, kept: int) -> None:
    with step_context() as ctx:
        do(ctx, items)

    assert len(ctx.recorded.checkpoints) == kept


def test_what_is_done_is_skipped_and_its_results_are_there(do: Work) -> None:
    kept = kept_by(do, "a", "b")
    with step_context(attempt=2, resume=kept) as ctx:
        results = do(ctx, ["a", "b", "c"])

    assert (results, counts(ctx)) == (["a!", "b!", "c!"], [("", 3)])


def test_results_are_whatever_the_handler_makes_of_the_items(do: Work) -> None:
    """None of an item, or several: they are counted apart."""
    with step_context() as ctx:
        loop = ctx.checkpointed(range(6), 3)
        for number in loop:
            loop.results.extend([number] * (number % 3))
        kept = ctx.recorded.checkpoints[0]
    with step_context(resume=kept) as again:
        loop = again.checkpointed(range(6), 3)
        left = list(loop)

    assert (left, loop.results) == ([3, 4, 5], [1, 2, 2])


def test_what_was_made_of_an_item_that_is_not_done_is_not_kept() -> None:
    """The next attempt does that item again, and its results would be there twice."""
    phases = Phases()
    phase = phases["pages"]
    phase.results.append("of the first")
    phase.finish_item()
    phase.results.append("half of the second")

    (kept,) = phases.to_json()["checkpointed"]
    assert kept == {"phase": "pages", "done": 1, "isOver": False, "results": ["of the first"]}


def test_items_may_come_from_anywhere(do: Work) -> None:
    def made() -> Iterator[int]:
        yield from range(5)

    kept = kept_by(do, 0, 1)
    with step_context(resume=kept) as ctx:
        assert do(ctx, made()) == ["0!", "1!", "2!", "3!", "4!"]


def test_items_may_come_asynchronously() -> None:
    async def pages() -> AsyncIterator[int]:
        for number in range(5):
            await asyncio.sleep(0)
            yield number

    with step_context() as ctx:
        results = work_later(ctx, pages())
    with step_context(resume=ctx.recorded.checkpoints[0]) as again:
        assert work_later(again, pages()) == results

    assert counts(again) == [("", 4), ("", 5)]


def test_a_phase_that_an_earlier_attempt_came_to_the_end_of_is_skipped(do: Work) -> None:
    def two(ctx: RecordingContext, second: Iterable[Any]) -> Any:
        return [do(ctx, "abc", phase="read"), do(ctx, second, phase="write")]

    def stops() -> Iterator[str]:
        yield from "xy"
        raise KeyError("the disk is full")

    def never() -> Iterator[str]:
        raise AssertionError("nobody looks at what is done")
        yield ""

    with step_context() as ctx, pytest.raises(KeyError):
        two(ctx, stops())
    kept = ctx.recorded.checkpoints[-1]
    with step_context(attempt=2, resume=kept) as again:
        results = [do(again, never(), phase="read"), do(again, "xyz", phase="write")]

    assert (kept.phase, kept.iteration_count) == ("write", 2)
    assert results == [["a!", "b!", "c!"], ["x!", "y!", "z!"]]
    assert counts(again) == [("write", 3)]


def test_a_loop_that_was_left_is_over_once_the_next_one_begins(do: Work) -> None:
    """Its handler had what it looked for."""
    with step_context() as ctx:
        search = ctx.checkpointed(range(100), 2, "search")
        for number in search:
            if number == 3:
                search.results.append(number)
                break
        do(ctx, "ab", phase="use")
    with step_context(resume=ctx.recorded.checkpoints[-1]) as again:
        search = again.checkpointed(range(100), 2, "search")

        assert (list(search), search.results) == ([], [3])


def test_an_async_loop_may_be_left_as_well() -> None:
    async def handler(ctx: RecordingContext) -> list[Any]:
        search = ctx.acheckpointed(range(100), 2, "search")
        async for number in search:
            if number == 3:
                search.results.append(number)
                break
        use = ctx.acheckpointed("ab", 2, "use")
        async for letter in use:
            use.results.append(letter)
        return [search.results, use.results]

    with step_context() as ctx:
        assert asyncio.run(handler(ctx)) == [[3], ["a", "b"]]


def test_at_a_stop_what_is_done_is_kept_and_nothing_more_is_begun(do: Work) -> None:
    def asked() -> Iterator[int]:
        yield from (1, 2, 3)
        ctx.request_stop()
        yield 4

    with step_context() as ctx, pytest.raises(ContinuedError):
        do(ctx, asked(), every=100)

    assert counts(ctx) == [("", 3)]


def test_an_attempt_that_is_to_stop_begins_nothing(do: Work) -> None:
    with step_context() as ctx:
        ctx.request_stop()
        with pytest.raises(ContinuedError):
            do(ctx, [1])

    assert counts(ctx) == []


def test_a_stop_at_the_last_item_lets_the_handler_finish(do: Work) -> None:
    """It has only to return what it has."""

    def items() -> Iterator[int]:
        yield 1
        ctx.request_stop()

    with step_context() as ctx:
        results = do(ctx, items(), every=5)

    assert (results, counts(ctx)) == (["1!"], [("", 1)])


def slow(ctx: RecordingContext, seconds: float) -> Iterator[int]:
    for number in range(100):
        ctx.clock.advance(seconds)  # type: ignore[attr-defined]
        yield number


def test_where_time_is_short_the_attempt_ends_between_two_items(do: Work) -> None:
    with step_context(time_left=timedelta(minutes=10)) as ctx, pytest.raises(ContinuedError) as end:
        do(ctx, slow(ctx, 42), every=100)

    assert end.value.at_checkpoint
    assert counts(ctx) == [("", 12)]  # another item would end in the time to clean up
    assert ctx.time_left() == timedelta(seconds=54)  # the next item was there, and was not begun


def test_where_time_is_short_from_the_beginning_one_item_is_done(do: Work) -> None:
    """Else no attempt would ever come further."""
    with step_context(time_left=10) as ctx:
        ctx.wait_or_shutdown(9)
        with pytest.raises(ContinuedError):
            do(ctx, slow(ctx, 0), every=100)

    assert counts(ctx) == [("", 1)]


def test_the_end_of_the_items_ends_no_attempt(do: Work) -> None:
    with step_context(time_left=10) as ctx:
        ctx.wait_or_shutdown(9)
        results = do(ctx, ["a"])

    assert (results, counts(ctx)) == (["a!"], [("", 1)])


@pytest.mark.parametrize(
    "results",
    [
        None,
        [1, 2],
        {"checkpointed": {}},
        {"checkpointed": [], "more": 1},
        {"checkpointed": [["read", 1]]},
        {"checkpointed": [{"phase": "", "done": 1}]},
        {"checkpointed": [{"phase": "", "done": True, "isOver": False, "results": []}]},
        {"checkpointed": [{"phase": "", "done": -1, "isOver": False, "results": []}]},
        {"checkpointed": [{"phase": 1, "done": 1, "isOver": False, "results": []}]},
        {"checkpointed": [{"phase": "", "done": 1, "isOver": 0, "results": []}]},
        {"checkpointed": [{"phase": "", "done": 1, "isOver": False, "results": {}}]},
    ],
)
def test_a_checkpoint_of_another_kind_is_rejected_and_the_step_starts_over(
    do: Work, results: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with step_context(resume=IncrementalState("", 1, results)) as ctx:
        assert do(ctx, "abc") == ["a!", "b!", "c!"]

    (message,) = caplog.messages
    assert "It is none of ctx.checkpointed" in message
    assert ctx.resume is None


def test_items_that_became_fewer_are_all_done_again(
    do: Work, caplog: pytest.LogCaptureFixture
) -> None:
    """Their results may belong to others."""
    kept = kept_by(do, *"abcd")
    with step_context(resume=kept) as ctx:
        results = do(ctx, "xyz")

    assert results == ["x!", "y!", "z!"]
    (message,) = caplog.messages
    assert "Phase '' has done 4 items, and now has 3." in message


@pytest.mark.parametrize("every", [0, -1, 1.5, True, "2", None])
def test_every_is_a_number_of_items(every: Any) -> None:
    with step_context() as ctx, pytest.raises(InvalidRequestError, match="every is"):
        ctx.checkpointed("ab", every)


@pytest.mark.parametrize("phase", [7, None, "a\nb", "x" * 129])
def test_a_phase_is_a_short_text(phase: Any) -> None:
    with step_context() as ctx, pytest.raises(InvalidRequestError, match="phase is"):
        ctx.acheckpointed("ab", 2, phase)


def test_items_are_an_iterable() -> None:
    with step_context() as ctx:
        with pytest.raises(InvalidRequestError, match="items is 'int'"):
            ctx.checkpointed(7)  # type: ignore[arg-type]
        with pytest.raises(InvalidRequestError, match="items is 'int'"):
            ctx.acheckpointed(7)  # type: ignore[arg-type]


def test_async_items_are_for_an_async_loop() -> None:
    async def pages() -> AsyncIterator[int]:
        yield 1

    with step_context() as ctx, pytest.raises(InvalidRequestError, match=r"ctx\.acheckpointed"):
        ctx.checkpointed(pages())  # type: ignore[type-var]


def test_a_loop_within_another_one_is_refused_before_anything_is_kept() -> None:
    """The checkpoint of the outer one would look complete."""
    with step_context() as ctx:
        for _ in ctx.checkpointed("a", phase="a"):
            with pytest.raises(CheckpointMisusedError, match="'b' begins within"):
                work(ctx, "xy", phase="b")

    assert counts(ctx) == [("a", 1)]


def test_an_async_loop_within_another_one_is_refused() -> None:
    async def handler(ctx: RecordingContext) -> None:
        async for _ in ctx.acheckpointed("ab", phase="a"):
            async for _ in ctx.acheckpointed("xy", phase="b"):
                pass

    with step_context() as ctx, pytest.raises(CheckpointMisusedError, match="'b' begins within"):
        asyncio.run(handler(ctx))


def test_each_loop_has_its_own_phase(do: Work) -> None:
    with step_context() as ctx:
        do(ctx, "ab")
        with pytest.raises(CheckpointMisusedError, match="Give each loop its own phase"):
            do(ctx, "cd")


def test_checkpoints_by_hand_and_by_a_loop_would_replace_each_other(do: Work) -> None:
    with step_context() as ctx:
        do(ctx, "ab")
        with pytest.raises(CheckpointMisusedError, match="uses both"):
            ctx.checkpoint(3, [])
    with step_context() as ctx:
        ctx.checkpoint(3, [])
        with pytest.raises(CheckpointMisusedError, match="uses both"):
            do(ctx, "ab")


def test_results_that_are_not_json_are_refused_by_name() -> None:
    with step_context() as ctx:
        loop = ctx.checkpointed("ab", 1)
        items = iter(loop)
        next(items)
        loop.results.append(object())
        with pytest.raises(InvalidRequestError, match="partial_results"):
            next(items)


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 7), min_size=1, max_size=3),
    every=st.integers(1, 4),
    cuts=st.lists(st.integers(0, 12), max_size=6),
)
def test_each_item_is_done_once_and_again_at_most_as_many_as_are_not_kept(
    sizes: list[int], every: int, cuts: list[int]
) -> None:
    """Each cut kills an attempt after so many items, wherever it is then."""
    done: list[tuple[int, int]] = []
    kept: IncrementalState | None = None

    def handler(ctx: RecordingContext, left: int) -> list[list[Any]] | None:
        made = []
        for phase, size in enumerate(sizes):
            loop = ctx.checkpointed(range(size), every, f"phase {phase}")
            for item in loop:
                if left == 0:
                    return None
                left -= 1
                done.append((phase, item))
                loop.results.append(item)
            made.append(loop.results)
        return made

    results = None
    for cut in [*cuts, 1000]:
        with step_context(resume=kept) as ctx:
            results = handler(ctx, cut)
            kept = ctx.recorded.checkpoints[-1] if ctx.recorded.checkpoints else kept
        if results is not None:
            break

    assert results == [[*range(size)] for size in sizes]
    again = len(done) - len(set(done))
    assert again <= len(cuts) * (every - 1)
