"""An attempt of an agent ends between two calls, and what the engine raises comes through whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from leasehold import testing
from leasehold.errors import ContinuedError
from leasehold.integrations.pydantic_ai import LeaseholdDurability, durable
from leasehold.testing import FrozenClock, step_context
from tests.integrations.pydantic_ai import away

TURNS = 12
TIME = timedelta(seconds=60)
CALL = timedelta(seconds=9)


def agent_of(clock: FrozenClock, made: list[str]) -> Agent[None, str]:
    """Return an agent of twelve turns whose each call takes nine seconds."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        turn = sum(isinstance(each, ModelResponse) for each in messages)
        made.append(f"model {turn}")
        clock.advance(CALL)
        if turn == TURNS:
            return ModelResponse([TextPart("done")])
        return ModelResponse([ToolCallPart("look", {"n": turn}, f"id-{turn}")])

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        response = answer(messages, info)
        for index, part in enumerate(response.parts):
            if isinstance(part, ToolCallPart):
                args = part.args_as_json_str()
                yield {index: DeltaToolCall(part.tool_name, args, tool_call_id=part.tool_call_id)}
            else:
                yield part.content

    agent = Agent(
        FunctionModel(answer, stream_function=stream),
        name="long",
        capabilities=[LeaseholdDurability()],
    )

    @agent.tool_plain
    def look(n: int) -> str:
        made.append(f"look {n}")
        clock.advance(CALL)
        return "a page"

    return agent


@pytest.mark.parametrize("streams", [False, True])
def test_an_agent_longer_than_the_limit_is_a_chain_of_attempts(streams: bool) -> None:
    made: list[str] = []
    calls: dict[str, Any] = {}
    output = None

    async def work(agent: Agent[None, str]) -> str:
        if not streams:
            return (await agent.run("Begin.")).output
        async with agent.run_stream("Begin.") as result:
            return await result.get_output()

    attempts, clock = 0, FrozenClock(skips_waits=True)
    while output is None:
        attempts += 1
        with (
            step_context(calls=calls, time_left=TIME, attempt=attempts, clock=clock) as ctx,
            durable(ctx),
        ):
            try:
                output = asyncio.run(work(agent_of(clock, made)))
            except ContinuedError:
                assert ctx.time_left() > timedelta()
            calls |= ctx.recorded.calls

    assert output == "done"
    assert attempts > 3
    assert len(made) == len(set(made)) == 2 * TURNS + 1


def test_an_agent_within_a_tool_ends_between_two_of_its_calls() -> None:
    made: list[str] = []
    clock = FrozenClock(skips_waits=True)
    with step_context(time_left=TIME, clock=clock) as ctx, durable(ctx):
        inner = agent_of(clock, made)
        asked = ModelResponse([ToolCallPart("delegate", {}, "id-d")])
        outer = Agent(
            FunctionModel(lambda *_: asked), name="outer", capabilities=[LeaseholdDurability()]
        )

        @outer.tool
        async def delegate(run: RunContext[None]) -> str:
            return (await inner.run("Begin.")).output

        with pytest.raises(ContinuedError):
            asyncio.run(outer.run("Begin."))

    assert made
    assert len(ctx.recorded.calls) == 1 + len(made)


def test_an_attempt_does_not_end_while_a_call_beside_is_under_way() -> None:
    """It would be made for nothing: it is paid for, and would not be recorded."""
    made: list[str] = []
    clock = FrozenClock(skips_waits=True)
    with step_context(time_left=TIME, clock=clock) as ctx, durable(ctx) as step:

        async def work() -> None:
            started = asyncio.Event()

            async def long() -> None:
                clock.advance(TIME - CALL / 9)
                started.set()
                await asyncio.sleep(0.05)
                made.append("long")

            async def short() -> None:
                made.append("short")

            async def beside() -> None:
                await started.wait()
                await step.call("short", short, request=None)

            await step.call("first", short, request=None)
            await asyncio.gather(step.call("long", long, request=None), beside())
            await step.call("last", short, request=None)

        with pytest.raises(ContinuedError):
            asyncio.run(work())

    assert "long" in made
    assert "long" in ctx.recorded.calls
    assert "last" not in ctx.recorded.calls


def test_an_attempt_that_is_asked_to_stop_ends_before_the_next_call() -> None:
    with step_context() as ctx, durable(ctx):
        agent = Agent(
            FunctionModel(lambda *_: ModelResponse([ToolCallPart("stop", {}, "id-s")])),
            name="stopped",
            capabilities=[LeaseholdDurability()],
        )
        agent.tool_plain(name="stop")(ctx.request_stop)

        with pytest.raises(ContinuedError):
            asyncio.run(agent.run("Begin."))

    assert [key.split("/")[-1] for key in ctx.recorded.calls] == ["model", "id-s"]


def test_a_store_that_is_away_delays_an_agent_and_fails_no_attempt(tmp_path: Path) -> None:
    with testing.engine(away, tmp_path) as engine:
        away.DOES.append(lambda: engine.faults.store_away(300))
        run = engine.start("away", None)
        done = engine.run_until_settled(run.run_id)

    assert done.status == "COMPLETED"
    assert done.steps["away"].attempts.failed == 0
    assert away.MADE == ["go", "go"]  # its record was lost with the attempt
