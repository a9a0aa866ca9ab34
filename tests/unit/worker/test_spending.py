"""What a handler says that it has spent: beside its recorded calls, or within one of them."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from decimal import Decimal

import pytest

from leasehold.bounded_calls import in_thread
from leasehold.domain.spend import NOTHING, Spend
from leasehold.errors import InvalidRequestError
from leasehold.testing import step_context
from leasehold.worker.context.spending import SpentInCall, add_to_call, collecting

CENT = Spend(tokens=10, usd=0.01)


def kept(spends: list[Spend]) -> SpentInCall:
    """Return the spend of a call in its own thread, two threads of `in_thread`, and two tasks."""

    async def call() -> None:
        await asyncio.gather(in_thread(spend), in_thread(spend), aspend(), aspend())
        spend()

    def spend() -> None:
        assert add_to_call(CENT)

    async def aspend() -> None:
        spend()

    with collecting(spends.append) as spent:
        asyncio.run(call())
    return spent


def test_what_is_spent_beside_calls_is_the_attempts() -> None:
    with step_context() as ctx:
        ctx.spend(tokens=10)
        ctx.spend(usd=Decimal("0.01"))
        ctx.spend()

        assert ctx._attempt.notes.spent == CENT  # noqa: SLF001 - it is kept with the next write


def test_a_value_that_is_not_an_amount_is_refused_and_nothing_noted() -> None:
    with step_context() as ctx:
        with pytest.raises(InvalidRequestError, match=r"usd is nan; allowed: a number of dollars"):
            ctx.spend(tokens=5, usd=float("nan"))

        assert ctx._attempt.notes.spent is None  # noqa: SLF001 - as above


def test_threads_and_tasks_of_a_call_spend_for_the_call() -> None:
    noted: list[Spend] = []

    assert kept(noted).spend == Spend(tokens=50, usd=0.05)
    assert noted == []


def test_calls_side_by_side_spend_each_for_itself() -> None:
    async def call(times: int) -> Spend:
        with collecting(lambda _: None) as spent:
            for _ in range(times):
                await asyncio.sleep(0)
                add_to_call(CENT)
        return spent.spend

    async def both() -> list[Spend]:
        return await asyncio.gather(call(1), call(2))

    assert asyncio.run(both()) == [CENT, Spend(tokens=20, usd=0.02)]


def test_a_call_within_a_call_spends_for_itself_alone() -> None:
    with collecting(lambda _: None) as outer:
        add_to_call(CENT)
        with collecting(lambda _: None) as inner:
            add_to_call(Spend(usd=5.0))
        assert add_to_call(CENT)

    assert (outer.spend, inner.spend) == (CENT.plus(CENT), Spend(usd=5.0))


def test_a_call_that_raises_has_spent_all_the_same() -> None:
    noted: list[Spend] = []

    for cents in (1, 0):
        with suppress(ZeroDivisionError), collecting(noted.append):
            add_to_call(Spend(tokens=10 * cents, usd=0.01 * cents))
            _ = 1 / 0

    assert noted == [CENT]


def test_what_a_call_leaves_behind_spends_for_the_attempt() -> None:
    """Its result is recorded by then, and what came later would be lost."""
    is_over, added = threading.Event(), []

    def left() -> None:
        is_over.wait(10)
        added.append(add_to_call(CENT))

    async def call() -> asyncio.Future[None]:
        with collecting(lambda _: None) as spent:
            task = asyncio.ensure_future(in_thread(left))
            await asyncio.sleep(0)
        is_over.set()
        await task
        assert spent.spend == NOTHING
        return task

    asyncio.run(call())
    assert added == [False]
