"""Recorded model calls."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from typing import Any, Final

from google.adk.flows.llm_flows.functions import AF_FUNCTION_CALL_ID_PREFIX
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse

from leasehold.integrations.prices import Used
from leasehold.integrations.scope import Scope

#: Who asks a model in this task.
ASKING: Final[ContextVar[Scope | None]] = ContextVar("leasehold_adk_asking", default=None)
_MARK: Final = 16
_METHOD: Final = "generate_content_async"
#: Of a request: what a response does not depend on, or what differs in each attempt.
LEFT_OUT: Final = frozenset(
    {
        "live_connect_config", "cache_config", "cache_metadata", "cacheable_contents_token_count",
        "previous_interaction_id", "service_tier", "tools_dict",
    }
)  # fmt: skip
#: Of its config, the same.
CONFIG_LEFT_OUT: Final = frozenset(
    {
        "http_options", "should_return_http_response", "labels", "cached_content", "service_tier",
        "continuation_token", "store",
    }
)  # fmt: skip


def record_model(model: BaseLlm) -> None:
    """Have the calls of a model recorded, in place, wherever it is called within a step."""
    if _METHOD in vars(model):
        return
    ask = getattr(model, _METHOD)

    async def recorded(llm_request: LlmRequest, stream: bool = False) -> Any:
        run = ASKING.get()
        if run is None:
            async for response in ask(llm_request, stream=stream):
                yield response
            return

        async def made(emit: Callable[[Any], None]) -> Any:
            async with contextlib.aclosing(ask(llm_request, stream=stream)) as responses:
                return await _answered(responses, emit, run, key, llm_request.model or model.model)

        name = f"model {'/'.join(run.place)}"
        key = run.key("model", str(run.made[name] + 1))
        request = request_of(llm_request)
        async for response, is_end in run.block.stream(
            lambda emit: run.block.call(key, lambda: made(emit), request=request)
        ):
            if not is_end:
                yield response
                continue
            run.made[name] += 1
            for each in response:
                yield LlmResponse.model_validate(each)

    vars(model)[_METHOD] = recorded  # as a field it would be part of what the model is


async def _answered(
    responses: AsyncIterator[LlmResponse],
    emit: Callable[[Any], None],
    run: Scope,
    key: str,
    model: str,
) -> list[Any]:
    """Return the responses of a model that are whole, as JSON values.

    A call of a tool that has no id gets one here that is the same in each attempt: the library
    would make up another one each time. Its prefix has the library keep it from the model.
    """
    whole: list[Any] = []
    ctx = run.ctx
    of_call = f"{ctx.run_id}/{ctx.step}/{ctx.trial}/{key}"
    async for response in responses:
        if response.partial:
            emit(response)
            continue
        for number, call in enumerate(response.get_function_calls()):
            mark = hashlib.sha256(f"{of_call}/{len(whole)}/{number}".encode()).hexdigest()
            call.id = call.id or f"{AF_FUNCTION_CALL_ID_PREFIX}{mark[:_MARK]}"
        if (usage := response.usage_metadata) is not None:
            run.block.step.spend(_used(model, usage), usage.total_token_count)
        whole.append(response.model_dump(mode="json", exclude_none=True))
    return whole


def _used(model: str, usage: Any) -> Used:
    """Return what a response has used."""
    given = (usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0)
    said = (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)
    return Used(model, given, said, usage.cached_content_token_count or 0)


def request_of(asked: LlmRequest) -> dict[str, Any]:
    """Return what the response to a request depends on, as JSON values."""
    config = asked.config.model_dump(
        mode="json", exclude_none=True, exclude=set(CONFIG_LEFT_OUT), fallback=_name_of
    )
    return {
        "model": asked.model,
        "instructions": config.pop("system_instruction", None),
        "contents": [each.model_dump(mode="json", exclude_none=True) for each in asked.contents],
        "tools": config.pop("tools", None),
        "config": config,
    }


def _name_of(value: object) -> str:
    """Return the name of what JSON has not: a class as a schema, a function as a tool."""
    return str(getattr(value, "__qualname__", type(value).__qualname__))
