"""Waits of an agent for external events (`RequestInput`, `wait_for_external_event`) as signals."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Final

from pydantic import JsonValue
from pydantic_ai.external_events import ExternalEventError, ExternalEventWaiter

from leasehold.domain.signal import SHORTEST_WAIT
from leasehold.errors import WaitTimedOutError
from leasehold.integrations.durable import Durable, key_of

_NOT_OF_NAMES: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST: Final = 80


class SignalWaiter(ExternalEventWaiter):
    """Has the attempt end while an agent waits; the next one is given the signal.

    The token is `RUN/signals/NAME`: the answer goes to `/runs/{token}`, or by `leasehold signal`.

    Args:
        step: the step that the agent works in.
        agent: its name, and that of its run, which each attempt gives to it.
    """

    def __init__(self, step: Durable, *agent: str) -> None:
        self._step = step
        self._agent = agent

    async def wait(
        self,
        name: str,
        *,
        ask: Callable[[str], Awaitable[JsonValue]],
        timeout: timedelta | None,  # noqa: ASYNC109 - the shape of the library
    ) -> JsonValue:
        """Ask once, which is recorded; then wait for the signal, unless the answer was there."""
        step, ctx = self._step, self._step.ctx
        base = _NOT_OF_NAMES.sub("-", f"{name}-{self._agent[-1]}")[:_LONGEST]
        signal = _NOT_OF_NAMES.sub("-", step.numbered(f"signal {base}").removeprefix("signal "))
        token = f"{ctx.run_id}/signals/{signal}"
        answer: JsonValue = await step.call(
            key_of(*self._agent, "ask", signal), partial(ask, token), request=None
        )
        if answer is not None:
            return answer
        try:
            value: JsonValue = await ctx.await_for(
                signal,
                timeout=None if timeout is None else max(timeout, SHORTEST_WAIT),
                otherwise="block" if timeout is None else "fail",
            )
        except WaitTimedOutError as error:
            raise ExternalEventError(str(error)) from None
        return value
