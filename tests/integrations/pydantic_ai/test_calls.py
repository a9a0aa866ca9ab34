"""Each kind of call of an agent is recorded, and an attempt that comes later is spared it."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import warnings
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    CallDeferred,
    DeferredToolRequests,
    DeferredToolResults,
    FunctionToolset,
    ModelRetry,
    RunContext,
)
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.durable_exec import JSON_CODEC
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, DynamicToolset, ToolsetTool
from pydantic_ai.usage import RequestUsage
from pydantic_core import SchemaValidator, core_schema

from leasehold.errors import InvalidRequestError, UnrestorableResultError
from leasehold.integrations.durable import warn_of_version
from leasehold.integrations.pydantic_ai import LeaseholdDurability, durable
from leasehold.integrations.pydantic_ai.durability import without_defaults
from leasehold.testing import RecordingContext, step_context
from tests.worlds.waiting import until

Work = Callable[[RecordingContext], Awaitable[Any]]


def attempts(work: Work, count: int = 2) -> list[Any]:
    """Return what each attempt returns; the first one makes the calls, all others find them."""
    answers, calls = [], {}
    for number in range(count):
        with step_context(calls=calls, attempt=number + 1) as ctx:
            with durable(ctx):
                answers.append(asyncio.run(work(ctx)))
            assert calls == {} or not ctx.recorded.calls
            calls = calls | ctx.recorded.calls
    return answers


def test_of_a_response_only_what_it_says_is_recorded_and_it_comes_back_whole() -> None:
    """Most of its JSON is `null` and 0: three quarters of its bytes."""
    asked = ToolCallPart("look", {"page": None}, "id-1", provider_details={"seen": None})
    usage = RequestUsage(input_tokens=7, details={"thoughts": 0})
    says = ModelResponse([TextPart(""), asked], usage=usage, metadata={"score": None})
    whole = JSON_CODEC.dump(ModelResponse, says)

    short = without_defaults(says, whole)

    assert JSON_CODEC.load(ModelResponse, short) == says
    assert short["usage"] == {"input_tokens": 7, "details": {"thoughts": 0}}
    assert "finish_reason" not in short
    assert len(json.dumps(short)) < len(json.dumps(whole)) / 2


def script(*responses: ModelResponse, made: list[str] | None = None) -> FunctionModel:
    """Return a model that gives these responses, one a turn of the conversation."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if made is not None:
            made.append("model")
        return responses[sum(isinstance(each, ModelResponse) for each in messages)]

    return FunctionModel(answer)


def call(tool: str, id_: str = "id-1", **args: object) -> ModelResponse:
    return ModelResponse([ToolCallPart(tool, args, id_)])


def text(words: str) -> ModelResponse:
    return ModelResponse([TextPart(words)])


def test_outside_of_a_step_an_agent_works_as_without() -> None:
    agent = Agent(script(text("hello")), name="greeter", capabilities=[LeaseholdDurability()])

    assert asyncio.run(agent.run("Hi")).output == "hello"


def test_a_run_may_be_given_another_model() -> None:
    made: list[str] = []
    agent = Agent(script(), name="greeter", capabilities=[LeaseholdDurability()])

    async def work(ctx: RecordingContext) -> list[str]:
        first = await agent.run("Hi", model=script(text("hello"), made=made))
        with agent.override(model=script(text("good day"), made=made)):
            second = await agent.run("Hi!")
        return [first.output, second.output]

    assert attempts(work) == [["hello", "good day"]] * 2
    assert len(made) == 2


def test_keys_say_which_agent_calls_what_in_which_turn() -> None:
    agent = Agent(
        script(call("look", n=1), text("seen")), name="seer", capabilities=[LeaseholdDurability()]
    )
    agent.tool_plain(name="look")(lambda n: n)

    with step_context() as ctx, durable(ctx):
        asyncio.run(agent.run("Look!"))

    first, second, third = ctx.recorded.calls
    run = first.split("/")[1]
    assert (first, second, third) == (
        f"seer/{run}/1/model",
        f"seer/{run}/1/look/id-1",
        f"seer/{run}/2/model",
    )


def test_runs_beside_one_another_need_no_order() -> None:
    made: list[str] = []
    agent = Agent(
        FunctionModel(
            lambda messages, _: (made.append("model"), text(str(messages[0].parts[-1].content)))[1]
        ),
        name="echo",
        capabilities=[LeaseholdDurability()],
    )

    async def work(ctx: RecordingContext) -> list[str]:
        prompts = ["a", "b", "a", "c"]
        order = prompts if ctx.attempt == 1 else list(reversed(prompts))
        results = await asyncio.gather(*(agent.run(prompt) for prompt in order))
        return sorted(result.output for result in results)

    assert attempts(work) == [["a", "a", "b", "c"]] * 2
    assert len(made) == 4


def test_a_second_block_of_a_step_goes_on_with_its_own_calls() -> None:
    """Each run of an agent that is asked the same once more is another run."""
    made: list[str] = []
    agent = Agent(
        FunctionModel(lambda *_: (made.append("model"), text(f"answer {len(made)}"))[1]),
        name="chooser",
        capabilities=[LeaseholdDurability()],
    )

    async def work(ctx: RecordingContext) -> list[str]:
        answers = []
        for _ in range(2):
            with durable(ctx):
                answers.append((await agent.run("Choose.")).output)
        return answers

    assert attempts(work) == [["answer 1", "answer 2"]] * 2


def test_a_stream_is_recorded_as_its_response() -> None:
    made: list[str] = []
    events: list[str] = []

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        made.append("model")
        if len(messages) == 1:
            yield {0: DeltaToolCall(name="look", json_args="{}", tool_call_id="id-1")}
        else:
            yield "all "
            yield "seen"

    async def hear(ctx: RunContext[None], heard: AsyncIterator[Any]) -> None:
        events.extend([type(event).__name__ async for event in heard])

    agent = Agent(
        FunctionModel(stream_function=stream),
        name="streamer",
        capabilities=[LeaseholdDurability(event_stream_handler=hear)],
    )
    agent.tool_plain(name="look")(lambda: made.append("look") or "a page")

    async def work(ctx: RecordingContext) -> str:
        return (await agent.run("Look!")).output

    assert attempts(work) == ["all seen"] * 2
    assert made == ["model", "look", "model"]
    assert events.count("FunctionToolCallEvent") == events.count("FunctionToolResultEvent") == 1


def test_run_stream_yields_what_was_recorded() -> None:
    made: list[str] = []

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        made.append("model")
        yield "all "
        yield "seen"

    agent = Agent(
        FunctionModel(stream_function=stream),
        name="streamer",
        capabilities=[LeaseholdDurability()],
    )

    async def work(ctx: RecordingContext) -> str:
        async with agent.run_stream("Look!") as result:
            return [each async for each in result.stream_text()][-1]

    assert attempts(work) == ["all seen"] * 2
    assert made == ["model"]


def test_what_a_tool_says_instead_of_a_result_is_a_result() -> None:
    """ModelRetry asks the model once more: it is recorded, and asks each attempt for the same."""
    made: list[str] = []
    agent = Agent(
        script(call("look", n=0), call("look", "id-2", n=1), text("seen"), made=made),
        name="seer",
        capabilities=[LeaseholdDurability()],
    )

    @agent.tool_plain
    def look(n: int) -> str:
        made.append(f"look {n}")
        if n == 0:
            raise ModelRetry("count from one")
        return "a page"

    async def work(ctx: RecordingContext) -> list[str]:
        result = await agent.run("Look!")
        parts = [part for message in result.all_messages() for part in message.parts]
        return [type(part).__name__ for part in parts] + [result.output]

    first, second = attempts(work)
    assert first == second
    assert made == ["model", "look 0", "model", "look 1", "model"]


def test_an_approval_and_a_deferred_result_are_asked_for_once() -> None:
    made: list[str] = []
    asked = ModelResponse(
        [ToolCallPart("pay", {"usd": 5}, "id-p"), ToolCallPart("phone", {}, "id-f")]
    )
    agent = Agent(
        script(asked, text("paid"), made=made),
        name="payer",
        output_type=[str, DeferredToolRequests],
        capabilities=[LeaseholdDurability()],
    )

    @agent.tool
    def pay(ctx: RunContext[None], usd: int) -> str:
        if not ctx.tool_call_approved:
            made.append("asked")
            raise ApprovalRequired(metadata={"why": "money"})
        made.append(f"paid {usd}")
        return "paid"

    @agent.tool_plain
    def phone() -> str:
        made.append("deferred")
        raise CallDeferred

    async def work(ctx: RecordingContext) -> str:
        first = await agent.run("Pay!")
        assert isinstance(first.output, DeferredToolRequests)
        assert first.output.metadata == {"id-p": {"why": "money"}}
        results = DeferredToolResults(approvals={"id-p": True}, calls={"id-f": "they agree"})
        second = await agent.run(
            message_history=first.all_messages(), deferred_tool_results=results
        )
        return second.output

    assert attempts(work) == ["paid", "paid"]
    assert sorted(made) == sorted(["model", "asked", "deferred", "paid 5", "model"])


def test_an_agent_within_a_tool_keeps_its_own_calls() -> None:
    """A kill in the middle of it repeats the one call that it was in."""
    made: list[str] = []
    inner = Agent(
        script(call("look"), text("seen"), made=made),
        name="inner",
        capabilities=[LeaseholdDurability()],
    )
    inner.tool_plain(name="look")(lambda: made.append("look") or "a page")
    outer = Agent(
        script(call("delegate"), text("done"), made=made),
        name="outer",
        capabilities=[LeaseholdDurability()],
    )

    @outer.tool
    async def delegate(ctx: RunContext[None]) -> str:
        answer = (await inner.run("Look!")).output
        made.append("delegated")
        if made.count("delegated") == 1:
            raise ConnectionError("it dies before it is recorded")
        return answer

    calls: dict[str, Any] = {}
    for attempt in (1, 2):
        with step_context(calls=calls, attempt=attempt) as ctx, durable(ctx):
            if attempt == 1:
                with pytest.raises(ConnectionError):
                    asyncio.run(outer.run("Begin."))
            else:
                assert asyncio.run(outer.run("Begin.")).output == "done"
        calls = ctx.recorded.calls

    assert made == ["model", "model", "look", "model", "delegated", "delegated", "model"]


def test_tools_that_a_function_makes_are_not_made_again_for_what_is_recorded() -> None:
    made: list[str] = []

    def tools(ctx: RunContext[None]) -> FunctionToolset[None]:
        def look(n: int) -> str:
            made.append(f"look {n}")
            return f"page {n}"

        made.append("tools")
        return FunctionToolset([look], id="shelf")

    agent = Agent(
        script(call("look", n=3), text("seen"), made=made),
        name="reader",
        toolsets=[DynamicToolset(tools, id="library")],
        capabilities=[LeaseholdDurability()],
    )
    once: list[list[str]] = []

    async def work(ctx: RecordingContext) -> str:
        output = (await agent.run("Look!")).output
        once.append(list(made))
        return output

    assert attempts(work) == ["seen"] * 2
    assert once[0] == once[1]
    assert {"tools", "look 3"} <= set(made)


class Server(AbstractToolset[None]):
    """A server of tools, as the library takes one, without its client.

    Args:
        made: notes each start, and each call of the tool.
    """

    id = "library"
    cache_tools = include_instructions = False

    def __init__(self, made: list[str]) -> None:
        self._made = made

    async def __aenter__(self) -> Self:
        self._made.append("started")
        return self

    def tool_for_tool_def(
        self,
        tool_def: ToolDefinition,
        *,
        ctx: RunContext[None],  # noqa: ARG002 - the library's
    ) -> ToolsetTool[None]:
        any_arguments = SchemaValidator(core_schema.dict_schema())
        return ToolsetTool(
            toolset=self, tool_def=tool_def, max_retries=1, args_validator=any_arguments
        )

    async def get_tools(self, ctx: RunContext[None]) -> dict[str, ToolsetTool[None]]:
        return {"look": self.tool_for_tool_def(ToolDefinition(name="look"), ctx=ctx)}

    async def call_tool(self, name: str, tool_args: dict[str, Any], *_: Any) -> str:
        self._made.append(f"{name} {tool_args['n']}")
        return f"page {tool_args['n']}"


def test_a_server_of_tools_is_not_started_for_what_is_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []
    monkeypatch.setitem(sys.modules, "pydantic_ai.mcp", SimpleNamespace(MCPToolset=Server))
    agent = Agent(
        script(call("look", n=3), text("seen")),
        name="reader",
        toolsets=[Server(made)],
        capabilities=[LeaseholdDurability()],
    )

    async def work(ctx: RecordingContext) -> str:
        return (await agent.run("Look!")).output

    assert attempts(work) == ["seen"] * 2
    assert made == ["started", "look 3"]


@pytest.mark.nightly  # to import its client takes two seconds of CPU
def test_a_server_of_tools_is_not_started_again_for_what_is_recorded(tmp_path: Path) -> None:
    from fastmcp.client.transports import StdioTransport  # noqa: PLC0415 - see the mark
    from pydantic_ai.mcp import MCPToolset  # noqa: PLC0415

    from tests.integrations.pydantic_ai import library_server  # noqa: PLC0415

    noted = tmp_path / "noted"
    transport = StdioTransport(sys.executable, ["-m", library_server.__name__, str(noted)])
    agent = Agent(
        script(call("look", n=3), text("seen")),
        name="reader",
        toolsets=[MCPToolset(transport, id="library")],
        capabilities=[LeaseholdDurability()],
    )

    async def work(ctx: RecordingContext) -> list[Any]:
        result = await agent.run("Look!")
        return [part.content for part in result.all_messages()[2].parts] + [result.output]

    assert attempts(work) == [["page 3", "seen"]] * 2
    assert noted.read_text().split("\n") == ["started", "look 3", ""]


def test_replayed_work_stays_out_of_traces_and_metrics() -> None:
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    settings = InstrumentationSettings(
        tracer_provider=tracers, meter_provider=MeterProvider([reader])
    )
    agent = Agent(
        script(call("look"), text("seen")),
        name="seer",
        capabilities=[Instrumentation(settings), LeaseholdDurability()],
    )
    agent.tool_plain(name="look")(lambda: "a page")
    seen: list[list[str]] = []

    async def work(ctx: RecordingContext) -> str:
        spans.clear()
        output = (await agent.run("Look!")).output
        seen.append([span.name for span in spans.get_finished_spans()])
        return output

    attempts(work)
    first, second = seen
    assert sum(name.startswith("chat") for name in first) == 2
    assert not [name for name in second if name.startswith("chat") or "tool" in name]
    assert _measured(reader) == 2


def _measured(reader: InMemoryMetricReader) -> int:
    """Return how many requests the metric of their tokens counts."""
    data = reader.get_metrics_data()
    metrics = [
        metric
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == "gen_ai.client.token.usage"
    ]
    points = [point for metric in metrics for point in metric.data.data_points]
    return max(point.count for point in points)


def test_siblings_of_a_tool_that_fails_are_paid_for_and_recorded() -> None:
    made: list[str] = []
    asked = ModelResponse([ToolCallPart("fails", {}, "id-1"), ToolCallPart("slow", {}, "id-2")])
    agent = Agent(script(asked), name="both", capabilities=[LeaseholdDurability()])
    failing = asyncio.Event()

    @agent.tool_plain
    async def fails() -> str:
        await failing.wait()
        raise ConnectionError("the provider is away")

    @agent.tool_plain
    async def slow() -> str:
        failing.set()
        for _ in range(20):
            await asyncio.sleep(0.001)
        made.append("slow")
        return "done"

    with step_context() as ctx, durable(ctx), pytest.raises(ConnectionError):
        asyncio.run(agent.run("Begin."))

    assert made == ["slow"]
    assert [key for key in ctx.recorded.calls if "/slow/" in key]


def test_a_call_that_its_caller_gives_up_ends_at_once() -> None:
    agent = Agent(script(call("endless")), name="waiter", capabilities=[LeaseholdDurability()])
    agent.tool_plain(name="endless")(lambda: asyncio.Event().wait())

    async def work() -> None:
        async with asyncio.timeout(0.05):
            await agent.run("Wait.")

    with step_context() as ctx, durable(ctx), pytest.raises(TimeoutError):
        asyncio.run(work())


def test_a_tool_whose_result_is_not_json_is_named() -> None:
    agent = Agent(script(call("opaque")), name="seer", capabilities=[LeaseholdDurability()])
    agent.tool_plain(name="opaque")(object)

    with (
        step_context() as ctx,
        durable(ctx),
        pytest.raises(UnrestorableResultError, match=r"opaque/id-1.*is not JSON"),
    ):
        asyncio.run(agent.run("Look!"))


def test_a_tool_says_in_its_metadata_how_it_is_called() -> None:
    made: list[str] = []
    agent = Agent(
        script(call("free"), call("odd", "id-2")), name="seer", capabilities=[LeaseholdDurability()]
    )
    agent.tool_plain(name="free", metadata={"leasehold": False})(lambda: made.append("free") or "")
    agent.tool_plain(name="odd", metadata={"leasehold": {"on_unknown": "perhaps"}})(lambda: "")

    with (
        step_context() as ctx,
        durable(ctx),
        pytest.raises(InvalidRequestError, match=r"on_unknown.*perhaps"),
    ):
        asyncio.run(agent.run("Look!"))

    assert made == ["free"]
    assert not [key for key in ctx.recorded.calls if "free" in key]


def test_an_agent_without_a_name_and_a_toolset_without_an_id_are_refused() -> None:
    with pytest.raises(UserError, match="needs to have a unique `name`"):
        Agent(script(), capabilities=[LeaseholdDurability()])
    with pytest.raises(UserError, match=r"needs? to have a unique `id`"):
        Agent(
            script(), name="a", toolsets=[FunctionToolset()], capabilities=[LeaseholdDurability()]
        )


def test_a_version_that_was_not_tested_is_warned_of_by_name() -> None:
    with pytest.warns(UserWarning, match=r"pydantic-ai-slim 9\.1 was not tested.*tested: 2\.68"):
        warn_of_version("pydantic-ai-slim", "9.1", ("2.68",))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_version("pydantic-ai-slim", "2.68.3", ("2.68",))


def test_nothing_is_kept_of_a_step_that_is_over() -> None:
    """A worker of many steps in one process would fill its memory."""
    agent = Agent(script(text("hello")), name="greeter", capabilities=[LeaseholdDurability()])
    with step_context() as ctx, durable(ctx) as step:
        asyncio.run(agent.run("Hi"))
        gone = [weakref.ref(ctx), weakref.ref(step)]

    del ctx, step

    def nothing_is_kept() -> bool:
        gc.collect()
        return [kept() for kept in gone] == [None, None]

    until(nothing_is_kept)  # a thread of a call holds it for a moment after it gave the result
