"""The soft limit reaches a handler also where it is given at the worst moment."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from leasehold.errors import SoftTimeoutError
from leasehold.worker.failures.tracebacks import frames_of
from leasehold.worker.handler.handlers import handler_of
from leasehold.worker.sandbox.child.soft_limit import SoftLimit
from tests.worlds.attempts import Step

_LIMIT = SoftLimit()


async def blocks_in_a_task_that_began_after_the_limit(ctx: Any, given: Any) -> str:
    async def other() -> None:
        end = time.monotonic() + 30
        while time.monotonic() < end:
            time.sleep(0.01)  # noqa: ASYNC251 - that is what it is for

    asyncio.get_running_loop().call_soon(_LIMIT.give)
    task = asyncio.create_task(other())
    try:
        await task
    except SoftTimeoutError:
        await asyncio.sleep(0)
        return "cleaned up"
    return "awaited"


def test_a_limit_given_before_a_task_blocks_the_loop_is_raised_all_the_same() -> None:
    step = Step(f"{__name__}:{blocks_in_a_task_that_began_after_the_limit.__name__}")

    context: Any = None
    assert _LIMIT.within(handler_of(step))(context, None) == "cleaned up"


_SECOND = SoftLimit()


def works_on(ctx: Any, given: Any) -> None:
    _SECOND.give()
    time.sleep(30)


def test_what_raises_the_limit_is_not_in_the_traceback_of_a_handler() -> None:
    context: Any = None
    with pytest.raises(SoftTimeoutError) as raised:
        _SECOND.within(handler_of(Step(f"{__name__}:works_on")))(context, None)

    frames = frames_of(raised.value, own="")
    assert [frame.function for frame in frames][-1] == "works_on"
