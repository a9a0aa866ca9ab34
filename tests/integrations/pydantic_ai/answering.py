"""A step whose agent calls three tools at once, and then another one, on a scripted model."""

from __future__ import annotations

from typing import Any, Final

from pydantic_ai import Agent, Tool
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from leasehold import StepContext
from leasehold.integrations.pydantic_ai import LeaseholdDurability, durable
from tests.integrations.kills import Deeds, pipelines_of, price_of, steps_of

#: How often the model is asked, and what each time costs, by the list.
TURNS: Final = 3
TOKENS: Final = 1_500
USD: Final = 0.0075
#: What the step answers.
ANSWER: Final = "{prompt}: a of x b of x c of x {d}"
#: What a deploy that changes the prompt makes again, after a kill in d: its first difference.
AFTER_A_DEPLOY: Final = ["model 1", "model 2", "d"]
PROMPT: Final = "instructions"


def model_of(deeds: Deeds) -> FunctionModel:
    """Return a model that goes by the messages before, as each process begins with none."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        turn = 1 + sum(isinstance(message, ModelResponse) for message in messages)
        deeds.asked(turn)
        parts = [part for message in messages for part in message.parts]
        results = " ".join(str(each.content) for each in parts if isinstance(each, ToolReturnPart))
        said: dict[int, list[Any]] = {
            1: [ToolCallPart(name, {"of": "x"}, f"id-{name}") for name in "abc"],
            2: [ToolCallPart("d", {"of": "x"}, "id-d")],
            3: [TextPart(f"{info.instructions}: {results}")],
        }
        usage = RequestUsage(input_tokens=1_000, output_tokens=500)
        return ModelResponse(said[turn], usage=usage, provider_name="openai")

    return FunctionModel(answer, model_name="gpt-4o")


class Recorded(AbstractCapability[None]):
    """Notes which tools have ended, and so are recorded.

    Args:
        deeds: which notes it.
    """

    def __init__(self, deeds: Deeds) -> None:
        self._deeds = deeds

    async def after_tool_execute(self, *_: Any, call: Any, result: Any, **__: Any) -> Any:
        self._deeds.recorded(call.tool_name)
        return result


async def answer(ctx: StepContext, given: dict[str, Any]) -> str:
    deeds, on_unknown = Deeds(given["folder"]), given.get("on_unknown", {})

    def tool_of(name: str) -> Tool[None]:
        async def work(of: str) -> str:
            return await deeds.work(name, of)

        unknown = {"leasehold": {"on_unknown": on_unknown.get(name, "repeat")}}
        return Tool(work, name=name, metadata=unknown)

    agent = Agent(
        model_of(deeds),
        name="first",
        instructions=deeds.prompt,
        tools=[tool_of(name) for name in "abcd"],
        capabilities=[LeaseholdDurability(), Recorded(deeds)],
    )
    with durable(ctx, price=price_of(given)):
        return (await agent.run("Go")).output


STEPS = steps_of(__name__, "answer")
PIPELINES = pipelines_of(STEPS)
SPENDING: Final = ["answer"]
