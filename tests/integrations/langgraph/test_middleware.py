"""The middleware records the calls of an agent, and lets pass what ends an attempt."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelRetryMiddleware, ToolRetryMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, tool
from langgraph.types import Command
from pydantic import BaseModel

from leasehold.errors import (
    ContinuedError,
    InvalidRequestError,
    LeaseholdError,
    LeaseLostError,
    StoreUnavailableError,
    UnrestorableResultError,
)
from leasehold.integrations.langgraph import LeaseholdMiddleware, durable
from leasehold.integrations.prices import Used
from leasehold.testing import FrozenClock, RecordingContext, step_context
from tests.integrations.langgraph.answering import ScriptedModel


class Answers(ScriptedModel):
    """A model that says one message after the other."""

    says: Any

    def _generate(self, messages: Any, *_: Any, **__: Any) -> Any:
        turn = sum(isinstance(message, AIMessage) for message in messages)
        return ChatResult(generations=[ChatGeneration(message=self.says(turn))])


def asks(*calls: tuple[str, dict[str, Any]]) -> Callable[[int], AIMessage]:
    """Return what a model says that asks for tools in its first turn, and answers in its second."""
    asked = [
        {"name": name, "args": args, "id": f"call-{n}"} for n, (name, args) in enumerate(calls)
    ]
    return lambda turn: AIMessage("Done.") if turn else AIMessage("", tool_calls=asked)


def run(
    ctx: RecordingContext,
    says: Callable[[int], AIMessage],
    tools: Sequence[BaseTool],
    *,
    middleware: Sequence[Any] = (),
    in_threads: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Run an agent to its end; in threads, by what it can do without a loop."""
    middleware = [*middleware, LeaseholdMiddleware()]
    agent = create_agent(Answers(says=says), tools, middleware=middleware, **options)
    with durable(ctx):
        return invoked(agent, "Go.", in_threads=in_threads)


def invoked(agent: Any, text: str, *, in_threads: bool) -> dict[str, Any]:
    given = {"messages": [("user", text)]}
    state: dict[str, Any] = agent.invoke(given) if in_threads else asyncio.run(agent.ainvoke(given))
    return state


in_both_ways = pytest.mark.parametrize("in_threads", [False, True], ids=["in a loop", "in threads"])


def twice(
    says: Callable[[int], AIMessage], tools: Sequence[BaseTool], **options: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run an agent in one attempt, and in one that is given what the first has recorded."""

    def never(turn: int) -> AIMessage:
        raise AssertionError(turn)

    with step_context() as ctx:
        first = run(ctx, says, tools, **options)
        calls = ctx.recorded.calls
    with step_context(attempt=2, calls=calls) as ctx:
        second = run(ctx, never, tools, **options)
        assert ctx.recorded.calls == {}
    return first, second


class Weather(BaseModel):
    place: str
    degrees: int


@in_both_ways
def test_an_attempt_that_goes_on_from_a_checkpoint_is_given_the_answers_behind_it(
    in_threads: bool,
) -> None:
    """A checkpoint of LangGraph may be older than the last recorded call."""

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    with step_context() as ctx:
        whole = run(ctx, asks(("look", {})), [look], in_threads=in_threads)["messages"]
        calls = ctx.recorded.calls
    last = {key: each for key, each in calls.items() if key.endswith("/1")}
    with step_context(attempt=2, calls=last) as ctx, durable(ctx):
        model = Answers(says=lambda turn: AIMessage(f"asked again for {turn}"))
        agent = create_agent(model, [look], middleware=[LeaseholdMiddleware()])
        given = {"messages": whole[:-1]}
        state = agent.invoke(given) if in_threads else asyncio.run(agent.ainvoke(given))

    assert [each.text for each in state["messages"]] == [each.text for each in whole]


def test_a_typed_answer_comes_back_as_its_type() -> None:
    def says(_: int) -> AIMessage:
        args = {"place": "Oslo", "degrees": 3}
        return AIMessage("", tool_calls=[{"name": "Weather", "args": args, "id": "1"}])

    first, second = twice(says, [], response_format=ToolStrategy(Weather))

    expected = Weather(place="Oslo", degrees=3)
    assert (first["structured_response"], second["structured_response"]) == (expected, expected)


def test_a_tool_may_change_the_state_of_the_graph() -> None:
    made = []

    @tool
    def note(text: str) -> Any:
        """Take a note."""
        made.append(text)
        message = ToolMessage("Noted.", tool_call_id="call-0", artifact={"text": text})
        return Command(update={"messages": [message]})

    first, second = twice(asks(("note", {"text": "x"})), [note])

    assert made == ["x"]
    kept = [[(each.text, each.type) for each in state["messages"]] for state in (first, second)]
    assert kept[0] == kept[1] == [("Go.", "human"), ("", "ai"), ("Noted.", "tool"), ("Done.", "ai")]
    assert second["messages"][2].artifact == {"text": "x"}


def test_what_would_come_back_as_something_else_is_refused_with_what_to_do() -> None:
    @tool(response_format="content_and_artifact")
    def look() -> tuple[str, Any]:
        """Look."""
        return "Seen.", Weather(place="Oslo", degrees=3)

    with step_context() as ctx, pytest.raises(UnrestorableResultError) as error:
        run(ctx, asks(("look", {})), [look])

    assert "would not come back as what it is. Return text or JSON values" in str(error.value)


def test_an_error_of_a_tool_is_not_recorded() -> None:
    made = []

    @tool
    def fail() -> str:
        """Fail."""
        made.append(len(made))
        message = "no connection"
        raise ConnectionError(message)

    with step_context() as ctx:
        for _ in range(2):
            with pytest.raises(ConnectionError):
                run(ctx, asks(("fail", {})), [fail])

    assert made == [0, 1]
    assert len(ctx.recorded.calls) == 1  # that of the model


@in_both_ways
def test_an_attempt_whose_time_is_short_ends_between_two_calls_whatever_tries_again(
    in_threads: bool,
) -> None:
    made = []

    @tool
    def look() -> str:
        """Look for a long time."""
        made.append(1)
        clock.advance(timedelta(seconds=58))
        return "Seen."

    clock = FrozenClock()
    middleware = [ModelRetryMiddleware(max_retries=3, initial_delay=0)]
    with step_context(time_left=60, clock=clock) as ctx, pytest.raises(ContinuedError):
        run(ctx, asks(("look", {})), [look], middleware=middleware, in_threads=in_threads)
    with step_context(attempt=2, calls=ctx.recorded.calls) as ctx:
        state = run(ctx, asks(("look", {})), [look], middleware=middleware, in_threads=in_threads)

    assert made == [1]
    assert state["messages"][-1].text == "Done."


@in_both_ways
def test_an_agent_within_a_tool_has_its_own_calls(in_threads: bool) -> None:
    """Two of them at work at once, on the same question: neither has the other's answers."""
    made = []

    @tool
    def research(topic: str) -> str:
        """Research a topic."""

        @tool
        def look(number: int) -> str:
            """Look."""
            made.append((topic, number))
            return f"{topic} {number}"

        model = Answers(says=asks(("look", {"number": 1}), ("look", {"number": 2})))
        agent = create_agent(model, [look], middleware=[LeaseholdMiddleware()])
        state = invoked(agent, "What is there?", in_threads=in_threads)
        return ", ".join(each.text for each in state["messages"] if each.type == "tool")

    topics = [("research", {"topic": topic}) for topic in ("salt", "iron")]
    first, second = twice(asks(*topics), [research], in_threads=in_threads)

    assert sorted(made) == [("iron", 1), ("iron", 2), ("salt", 1), ("salt", 2)]
    texts = [each.text for each in second["messages"]]
    assert texts == [each.text for each in first["messages"]]
    assert texts[2:4] == ["salt 1, salt 2", "iron 1, iron 2"]


def test_a_call_under_the_id_of_an_earlier_one_is_another_call() -> None:
    """Some models number the calls of each message anew."""
    made = []

    @tool
    def look() -> str:
        """Look."""
        made.append("look")
        return f"seen {len(made)}"

    called = {"name": "look", "args": {}, "id": "call-0"}
    _, second = twice(
        lambda turn: AIMessage("Done.") if turn == 2 else AIMessage("", tool_calls=[called]), [look]
    )

    assert [each.text for each in second["messages"] if each.type == "tool"] == ["seen 1", "seen 2"]


def test_tokens_of_a_cache_are_counted_as_such() -> None:
    """They have other prices."""
    details = {"cache_read": 3, "cache_creation": 2}
    usage = {"input_tokens": 9, "output_tokens": 7, "total_tokens": 16}
    said = AIMessage("Done.", usage_metadata={**usage, "input_token_details": details})
    used: list[Used] = []

    with step_context() as ctx, durable(ctx, price=lambda each: float(used.append(each) or 0)):
        agent = create_agent(Answers(says=lambda _: said), [], middleware=[LeaseholdMiddleware()])
        invoked(agent, "Go.", in_threads=False)

    assert used == [Used("gpt-4o", 9, 7, cache_read_tokens=3, cache_write_tokens=2)]


@in_both_ways
def test_a_call_that_failed_does_not_move_the_others(in_threads: bool) -> None:
    """The second attempt has no failure, and the same results."""
    failed = []

    def says(turn: int) -> AIMessage:
        if not failed:
            failed.append(turn)
            message = "overloaded"
            raise ConnectionError(message)
        return AIMessage(f"Answer {turn}.")

    class Retry(AgentMiddleware[Any, Any, Any]):
        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            try:
                return await handler(request)
            except ConnectionError:
                return await handler(request)

        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            try:
                return handler(request)
            except ConnectionError:
                return handler(request)

    first, second = twice(says, [], middleware=[Retry()], in_threads=in_threads)

    assert second["messages"][-1].text == first["messages"][-1].text == "Answer 0."


@in_both_ways
def test_outside_of_a_step_an_agent_runs_as_without_it(in_threads: bool) -> None:
    @tool
    def look() -> str:
        """Look."""
        return "Seen."

    model = Answers(says=asks(("look", {})))
    agent = create_agent(model, [look], middleware=[LeaseholdMiddleware()])

    state = invoked(agent, "Go.", in_threads=in_threads)

    assert state["messages"][-1].text == "Done."


@in_both_ways
@pytest.mark.parametrize("ends_with", [LeaseLostError, StoreUnavailableError])
def test_what_ends_an_attempt_passes_a_middleware_that_tries_tools_again(
    in_threads: bool, ends_with: type[LeaseholdError]
) -> None:
    """Each further try would be one more paid call."""
    clock, called = FrozenClock(skips_waits=True), []

    @tool
    def search(words: str) -> str:
        """Search."""
        called.append(words)
        if ends_with is StoreUnavailableError:  # as a call of the context in the tool meets it
            raise StoreUnavailableError(store="store", problem="it is away")
        clock.advance(timedelta(days=366))
        return "found"

    again = ToolRetryMiddleware(max_retries=3, initial_delay=0.0)
    asked = asks(("search", {"words": "a"}))
    with step_context(clock=clock) as ctx, pytest.raises(ends_with):
        run(ctx, asked, [search], middleware=[again], in_threads=in_threads)

    assert called == ["a"]


@tool
def order() -> str:
    """Order."""
    return "ordered"


def test_a_tool_that_must_not_be_repeated_and_that_no_agent_has_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An agent may have it for some inputs alone."""
    with step_context() as ctx, durable(ctx):
        middleware = LeaseholdMiddleware(on_unknown={"cancel": "ask"})
        agent = create_agent(Answers(says=asks(("order", {}))), [order], middleware=[middleware])
        invoked(agent, "Go.", in_threads=False)

    said = [each for each in caplog.messages if each.startswith("on_unknown")]
    assert said == ["on_unknown names cancel, and the agents had no such tool; they had: order"]


@pytest.mark.parametrize("in_threads", [False, True])
def test_a_misspelt_tool_is_refused_before_a_model_is_paid(*, in_threads: bool) -> None:
    """The tool that is meant would be repeated without a word."""
    middleware = LeaseholdMiddleware(on_unknown={"oder": "ask"})
    agent = create_agent(Answers(says=[]), [order], middleware=[middleware])

    with (
        step_context() as ctx,
        pytest.raises(InvalidRequestError, match="'order' is one"),
        durable(ctx),
    ):
        invoked(agent, "Go.", in_threads=in_threads)

    assert ctx.recorded.calls == {}


def test_another_word_for_such_a_tool_is_refused_before_a_model_is_paid() -> None:
    allowed = "on_unknown['order'] is 'aks'; allowed: repeat, ask, fail"

    with pytest.raises(InvalidRequestError, match=re.escape(allowed)):
        LeaseholdMiddleware(on_unknown={"order": "aks"})  # type: ignore[dict-item]
