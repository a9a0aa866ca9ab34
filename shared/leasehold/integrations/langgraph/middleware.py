"""A middleware that records the calls of an agent of `create_agent` (`LeaseholdMiddleware`)."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Final
from weakref import WeakKeyDictionary

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.tools.tool_node import ToolCallRequest
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.config import get_config
from langgraph.types import Command

from leasehold.integrations.durable import (
    Durable,
    checked_on_unknown,
    current,
    key_of,
    refuse_misspelt,
    warn_of_tools,
)
from leasehold.integrations.langgraph.recorded import (
    Fingerprints,
    name_of_model,
    name_of_tool,
    recorded_response,
    recorded_result,
    response_of,
    result_of,
)
from leasehold.integrations.prices import Used
from leasehold.worker.context.once import OnUnknown

#: The tool call that an agent works within, of another agent.
_WITHIN: Final[ContextVar[tuple[str, ...]]] = ContextVar("leasehold_within", default=())


class LeaseholdMiddleware(AgentMiddleware[Any, Any, Any]):
    """Records each model call and each tool call of an agent in the step that it runs in.

        agent = create_agent(model, tools, middleware=[LeaseholdMiddleware()])

        async def research(ctx: StepContext, given: Question) -> str:
            with durable(ctx):
                state = await agent.ainvoke({"messages": [("user", given.text)]})
            return state["messages"][-1].text

    An attempt that comes later runs the agent from its beginning, and each recorded call returns
    what it returned; only calls that were under way are made again. Between two calls the attempt
    ends where its time is short, and the next one goes on.

    It belongs at the end of the list: what it records is what the model gets, and what a tool
    returns; other middleware does its work again. One that itself calls a model, as for a summary,
    pays for it again: give the agent a `LeaseholdSaver` as well. Outside of `durable` it does
    nothing.

    Args:
        on_unknown: for tools that must not be repeated, by name: "ask" or "fail", as of `ctx.once`.

    Raises:
        InvalidRequestError: `on_unknown` has another word.
    """

    def __init__(self, on_unknown: Mapping[str, OnUnknown] | None = None) -> None:
        super().__init__()
        self._on_unknown = checked_on_unknown(on_unknown)
        self._by_step: WeakKeyDictionary[Durable, _StepCalls] = WeakKeyDictionary()

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Return the recorded response of a model, or have the call made, and record it."""
        step = current()
        if step is None:
            return await handler(request)

        async def body() -> Any:
            response = await handler(request)
            _spend(step, request.model, response)
            return recorded_response(response)

        with self._calls(step, request).numbered(request) as (key, fingerprint):
            recorded = await step.call(key, body, request=fingerprint)
        return response_of(recorded, request.response_format)

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any]:
        """Do as `awrap_model_call`, for `agent.invoke`."""
        step = current()
        if step is None:
            return handler(request)

        def body() -> Any:
            response = handler(request)
            _spend(step, request.model, response)
            return recorded_response(response)

        with self._calls(step, request).numbered(request) as (key, fingerprint):
            recorded = step.call_in_thread(key, body, request=fingerprint)
        return response_of(recorded, request.response_format)

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        """Return the recorded result of a tool, or have the call made, and record it."""
        step = current()
        if step is None:
            return await handler(request)
        call = _ToolCall(request, self._on_unknown)

        async def body() -> Any:
            with call.within():
                return recorded_result(call.key, await handler(request))

        return call.result_of(await step.call(call.key, body, **call.facts))

    def wrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]],
    ) -> ToolMessage | Command[Any]:
        """Do as `awrap_tool_call`, for `agent.invoke`."""
        step = current()
        if step is None:
            return handler(request)
        call = _ToolCall(request, self._on_unknown)

        def body() -> Any:
            with call.within():
                return recorded_result(call.key, handler(request))

        return call.result_of(step.call_in_thread(call.key, body, **call.facts))

    def _calls(self, step: Durable, request: ModelRequest[Any]) -> _StepCalls:
        calls = self._by_step.get(step)
        if calls is None:
            tools = {name_of_tool(each) for each in request.tools}
            refuse_misspelt(self._on_unknown, tools)
            calls = self._by_step[step] = _StepCalls()
            if self._on_unknown:
                warn_of_tools(step.ctx, set(self._on_unknown) - tools, tools)
        return calls


class _StepCalls:
    """The model calls of one attempt of a step."""

    def __init__(self) -> None:
        self.fingerprints = Fingerprints()
        self._taken: defaultdict[tuple[str, ...], set[int]] = defaultdict(set)
        self._taking = threading.Lock()

    @contextlib.contextmanager
    def numbered(self, request: ModelRequest[Any]) -> Iterator[tuple[str, object]]:
        """Return the key of a call, and what it depends on; one that fails leaves its number free.

        So the calls after it have the same numbers in an attempt in which it does not fail. The
        number is that of the answers before it, as an attempt that goes on from a checkpoint does
        not make the calls of those again.
        """
        fingerprint = self.fingerprints.of_model_call(request)
        first = sum(isinstance(each, AIMessage) for each in request.messages)
        # The beginning of a conversation tells agents apart that work side by side.
        beginning = self.fingerprints.of_beginning(request.messages)
        place = (*_WITHIN.get(), "model", _agent(), beginning)
        taken = self._taken[place]
        with self._taking:
            number = next(each for each in itertools.count(first) if each not in taken)
            taken.add(number)
        try:
            yield key_of(*place, str(number)), fingerprint
        except BaseException:
            taken.discard(number)
            raise


class _ToolCall:
    """A call of a tool that is to be made or found.

    Args:
        request: of the library.
        on_unknown: as of the middleware.

    Attributes:
        facts: of the call, as of `Durable.call`.
    """

    def __init__(self, request: ToolCallRequest, on_unknown: Mapping[str, OnUnknown]) -> None:
        name, arguments = request.tool_call["name"], request.tool_call["args"]
        self._name = name
        self._id = request.tool_call["id"] or ""
        self.key = key_of(*_WITHIN.get(), "tool", name, _asked_by(request), self._id)
        self.facts: dict[str, Any] = {
            "request": {"tool": name, "arguments": arguments},
            "on_unknown": on_unknown.get(name, "repeat"),
            "tool": name,
            "arguments": arguments,
        }

    @contextlib.contextmanager
    def within(self) -> Iterator[None]:
        """Have the calls of other agents inside belong to this one."""
        token = _WITHIN.set((*_WITHIN.get(), self._id))
        try:
            yield
        finally:
            _WITHIN.reset(token)

    def result_of(self, recorded: Any) -> ToolMessage | Command[Any]:
        """Return a recorded result; what a person has said of it is what the tool has said."""
        result = result_of(recorded)
        if isinstance(result, ToolMessage | Command):
            return result
        text = result if isinstance(result, str) else json.dumps(result)
        return ToolMessage(text, tool_call_id=self._id, name=self._name)


def _agent() -> str:
    """Return the name of the agent that makes a call."""
    return str(get_config().get("metadata", {}).get("lc_agent_name") or "")


def _asked_by(request: ToolCallRequest) -> str:
    """Return the id of the message that asked for a tool call: some models number theirs anew."""
    state = request.state
    messages = state if isinstance(state, list) else _messages(state)
    for message in reversed(messages):
        calls = message.tool_calls if isinstance(message, AIMessage) else ()
        if any(call["id"] == request.tool_call["id"] for call in calls):
            return message.id or ""
    return ""


def _messages(state: Any) -> list[Any]:
    found = state.get("messages") if isinstance(state, dict) else getattr(state, "messages", None)
    return found or []


def _spend(step: Durable, model: Any, response: ModelResponse[Any]) -> None:
    for message in response.result:
        usage = message.usage_metadata if isinstance(message, AIMessage) else None
        if usage:
            name = message.response_metadata.get("model_name") or name_of_model(model)
            details = usage.get("input_token_details", {})
            of_cache = details.get("cache_read", 0), details.get("cache_creation", 0)
            used = Used(name, usage["input_tokens"], usage["output_tokens"], *of_cache)
            step.spend(used, usage["total_tokens"])
