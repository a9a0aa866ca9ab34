"""Steps whose agent calls three tools at once, and hands off to one that calls another tool."""

from __future__ import annotations

from typing import Any, Final

from agents import Agent, Model, ModelProvider, RunConfig, RunHooks, Runner, Usage, function_tool
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

from leasehold import StepContext
from leasehold.integrations.openai_agents import durable
from tests.integrations.kills import Deeds, pipelines_of, price_of, steps_of

#: How often the model is asked, and what each time costs, by the list.
TURNS: Final = 4
TOKENS: Final = 1_500
USD: Final = 0.0075
#: What the steps answer.
ANSWER: Final = "Go on: a of x b of x c of x {d}"
#: What a deploy that changes the prompt makes again, after a kill in d: its first difference.
AFTER_A_DEPLOY: Final = ["model 1", "model 2", "d"]
PROMPT: Final = "instructions"


class Models(ModelProvider):
    """Models that go by the results in their input, as each process begins with none.

    Args:
        deeds: which notes their calls.
    """

    def __init__(self, deeds: Deeds) -> None:
        self._deeds = deeds

    def get_model(self, _: str | None) -> Model:
        return ScriptedModel([ModelStep.respond(self._answer)] * 10)

    def _answer(self, call: Any) -> ModelStep:
        results = [each["output"] for each in call.input if each.get("output")]
        turn = {0: 1, 3: 2, 4: 3, 5: 4}[len(results)]
        self._deeds.asked(turn)
        of_tools = " ".join(result for result in results if "second" not in result)
        output = {
            1: [function_call(name, {"of": "x"}, call_id=f"call-{name}") for name in "abc"],
            2: [function_call("transfer_to_second", {}, call_id="call-second")],
            3: [function_call("d", {"of": "x"}, call_id="call-d")],
            4: [assistant_message(f"{call.system_instructions}: {of_tools}")],
        }[turn]
        usage = Usage(requests=1, input_tokens=1_000, output_tokens=500, total_tokens=TOKENS)
        return ModelStep(output, usage)


class Recorded(RunHooks[None]):
    """Notes which tools have ended, and so are recorded.

    Args:
        deeds: which notes it.
    """

    def __init__(self, deeds: Deeds) -> None:
        self._deeds = deeds

    async def on_tool_end(self, _: Any, __: Any, tool: Any, ___: object) -> None:
        self._deeds.recorded(tool.name)


def agent(deeds: Deeds) -> Agent[None]:
    @function_tool
    async def a(of: str) -> str:
        return await deeds.work("a", of)

    @function_tool
    async def b(of: str) -> str:
        return await deeds.work("b", of)

    @function_tool
    async def c(of: str) -> str:
        return await deeds.work("c", of)

    @function_tool
    async def d(of: str) -> str:
        return await deeds.work("d", of)

    second = Agent[None]("second", instructions="Go on", tools=[d], model="gpt-4o")
    return Agent(
        "first",
        instructions=deeds.prompt,
        tools=[a, b, c],
        handoffs=[second],
        model="openai/gpt-4o",
    )


async def answer(ctx: StepContext, given: dict[str, Any]) -> str:
    first, options = _run_of(given)
    with durable(ctx, on_unknown=given.get("on_unknown"), price=price_of(given)):
        return str((await Runner.run(first, "Go", **options)).final_output)


async def streamed(ctx: StepContext, given: dict[str, Any]) -> str:
    first, options = _run_of(given)
    with durable(ctx, on_unknown=given.get("on_unknown"), price=price_of(given)):
        result = Runner.run_streamed(first, "Go", **options)
        async for _ in result.stream_events():
            pass
        return str(result.final_output)


def _run_of(given: dict[str, Any]) -> tuple[Agent[None], dict[str, Any]]:
    deeds = Deeds(given["folder"])
    config = RunConfig(model_provider=Models(deeds), tracing_disabled=True)
    return agent(deeds), {"hooks": Recorded(deeds), "run_config": config}


STEPS = steps_of(__name__, "answer", "streamed")
PIPELINES = pipelines_of(STEPS)
SPENDING: Final = ["answer", "streamed"]
