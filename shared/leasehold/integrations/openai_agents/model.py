"""Recorded model calls."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, Final

from agents import Agent, Handoff, ModelProvider
from agents.exceptions import ModelBehaviorError
from agents.items import ModelResponse, TResponseOutputItem
from agents.models.interface import Model
from agents.usage import Usage
from openai.types.responses import Response, ResponseCompletedEvent
from pydantic import BaseModel, TypeAdapter

from leasehold.errors import InvalidRequestError
from leasehold.integrations.openai_agents.request import request_of
from leasehold.integrations.openai_agents.tools import record_tool
from leasehold.integrations.prices import Used
from leasehold.integrations.scope import Scope, scope

_ITEM: Final[TypeAdapter[Any]] = TypeAdapter(TResponseOutputItem)
_USAGE: Final = TypeAdapter(Usage)
_SIGNATURE: Final = inspect.signature(Model.get_response)
#: What a response repeats of its request.
_REPEATED: Final = {"tools", "instructions", "input", "prompt", "metadata"}
_NAMED: Final = "an agent with a name, which its records are kept under: Agent(name=…)"


def record_agent(agent: Agent[Any]) -> None:
    """Have what an agent calls recorded, wherever it is run within a step."""
    if not agent.name.strip():
        raise InvalidRequestError(field="agent", value=agent.name, allowed=_NAMED)
    if isinstance(agent.model, Model):
        agent.model = recorded_model(agent.model)
    for tool in agent.tools:  # one that was approved is called before any model
        record_tool(tool)


class RecordingProvider(ModelProvider):
    """A provider of models whose calls are recorded.

    Args:
        inner: provides the models.
    """

    def __init__(self, inner: ModelProvider) -> None:
        self._inner = inner

    def get_model(self, model_name: str | None) -> Model:
        """Return a model by its name."""
        return recorded_model(self._inner.get_model(model_name), model_name)

    async def aclose(self) -> None:
        """Release what the provider holds."""
        await self._inner.aclose()


def recorded_model(model: Model, name: str | None = None) -> Model:
    """Return a model whose calls within a step are recorded."""
    return model if isinstance(model, RecordedModel) else RecordedModel(model, name)


class RecordedModel(Model):
    """A model whose calls within a step are recorded.

    It sees all that an agent can do next, hand-offs and MCP tools too, and has it recorded.

    Args:
        inner: answers the calls.
        name: of the model.
    """

    def __init__(self, inner: Model, name: str | None) -> None:
        self._inner = inner
        self._name = name or getattr(inner, "model", None) or type(inner).__name__

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # while it is copied
            raise AttributeError(name)
        return getattr(self._inner, name)

    async def _cleanup_on_run_end(self, owner: object) -> None:
        await self._inner._cleanup_on_run_end(owner)  # noqa: SLF001 - part of its interface

    async def close(self) -> None:
        """Release what the model holds."""
        await self._inner.close()

    def get_retry_advice(self, request: Any) -> Any:
        """Say how a call that failed is tried again."""
        return self._inner.get_retry_advice(request)

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """Return the response to a request: the recorded one, or that of the call made now."""
        if (run := scope()) is None:
            return await self._inner.get_response(*args, **kwargs)
        call = _Call(run, self._name, args, kwargs)

        async def made() -> Any:
            response = await self._inner.get_response(*args, **kwargs)
            run.block.step.spend(_used(self._name, response.usage))
            return _written(response)

        return _read(await call.recorded(made))

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """Stream the response to a request; a recorded one comes as a whole."""
        if (run := scope()) is None:
            async for event in self._inner.stream_response(*args, **kwargs):
                yield event
            return
        call = _Call(run, self._name, args, kwargs)
        at = -1

        async def made(emit: Callable[[Any], None]) -> Any:
            stream: Any = self._inner.stream_response(*args, **kwargs)
            async with contextlib.aclosing(stream) as events:
                return await _streamed(events, emit, run, self._name)

        async for event, is_end in run.block.stream(
            lambda emit: call.recorded(lambda: made(emit), stream=True)
        ):
            if not is_end:
                at = getattr(event, "sequence_number", at)
                yield event
                continue
            response = Response.model_validate({"tools": [], **event})
            yield ResponseCompletedEvent(
                response=response, type="response.completed", sequence_number=at + 1
            )


class _Call:
    """A call of a model that is to be made or found.

    Args:
        run: the run that it belongs to.
        model: the model's name.
        args: of the call.
        kwargs: of the call.
    """

    def __init__(
        self, run: Scope, model: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        asked = _SIGNATURE.bind(None, *args, **kwargs).arguments
        self._run = run
        self._request = request_of(model, asked)
        for tool in asked["tools"]:
            record_tool(tool)
        run.block.note_tools(tool.name for tool in asked["tools"])
        for handoff in asked["handoffs"]:
            _record_handoff(handoff)

    async def recorded(self, body: Any, **more: object) -> Any:
        """Return the recorded response, or make the call; one that fails has no number."""
        key = self._run.key("model", str(self._run.made["model"] + 1))
        request = {**self._request, **more}
        response = await self._run.block.call(key, body, request=request)
        self._run.made["model"] += 1
        return response


async def _streamed(
    events: AsyncIterator[Any], emit: Callable[[Any], None], run: Scope, model: str
) -> dict[str, Any]:
    """Return the response that a stream ends with, as JSON values."""
    items = []
    async for event in events:
        if event.type == "response.output_item.done":
            items.append(event.item)
        if event.type != "response.completed":
            emit(event)
            continue
        response: Response = event.response
        if not response.output:  # some servers send the items before, and only there
            response = response.model_copy(update={"output": items})
        if response.usage is not None:
            run.block.step.spend(_used(model, response.usage))
        return response.model_dump(
            mode="json", exclude_unset=True, exclude=_REPEATED, warnings=False
        )
    raise ModelBehaviorError("The model did not end its response")


def _record_handoff(handoff: Handoff[Any, Any]) -> None:
    """Have what the agent calls recorded that a hand-off leads to."""
    invoke = handoff.on_invoke_handoff
    if hasattr(invoke, "leasehold"):
        return

    async def recorded(context: Any, arguments: str) -> Any:
        agent = await invoke(context, arguments)
        if isinstance(agent, Agent):
            record_agent(agent)
        return agent

    recorded.leasehold = True  # type: ignore[attr-defined] # it is known by it
    handoff.on_invoke_handoff = recorded


def _used(model: str, usage: Any) -> Used:
    """Return what a response has used, of the SDK or of the API."""
    cached = getattr(usage.input_tokens_details, "cached_tokens", None) or 0
    return Used(model, usage.input_tokens, usage.output_tokens, cached)


def _written(response: ModelResponse) -> dict[str, Any]:
    """Return a response as JSON values; a field that is unset stays so, as requests repeat it."""
    return {
        "output": [_item(item) for item in response.output],
        "usage": _USAGE.dump_python(response.usage, mode="json"),
        "response_id": response.response_id,
        "request_id": response.request_id,
        "raw_usage": response.raw_usage,
    }


def _item(item: Any) -> Any:
    if not isinstance(item, BaseModel):
        return item
    return item.model_dump(mode="json", exclude_unset=True, warnings=False)


def _read(recorded: dict[str, Any]) -> ModelResponse:
    response = ModelResponse([], _USAGE.validate_python(recorded["usage"]), None)
    return replace(
        response,
        output=[_ITEM.validate_python(item) for item in recorded["output"]],
        **{name: recorded[name] for name in ("response_id", "request_id", "raw_usage")},
    )
