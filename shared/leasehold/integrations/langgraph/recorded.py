"""Messages and results as JSON values, and fingerprints of model calls."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final

from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain.agents.structured_output import AutoStrategy, ProviderStrategy, ToolStrategy
from langchain_core.messages import BaseMessage, messages_from_dict
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.types import Command
from pydantic import BaseModel, TypeAdapter

from leasehold.errors import UnrestorableResultError

#: The fields of messages that a model's answer depends on.
FINGERPRINTED: Final = frozenset({
    "type", "role", "content", "name", "additional_kwargs",
    "tool_calls", "invalid_tool_calls", "tool_call_id", "status",
})  # fmt: skip
#: And those that it does not: ids are made anew in each attempt; the others no model is sent.
LEFT_OUT: Final = frozenset({
    "id", "response_metadata", "usage_metadata", "artifact", "example",
    "tool_call_chunks", "chunk_position",
})  # fmt: skip

_MESSAGE: Final = "langchain:message"
_COMMAND: Final = "langgraph:command"
_BEGINNING: Final = 12
_DIGEST: Final = 32


class Fingerprints:
    """The fingerprints of the model calls of one attempt: all that their results depend on.

    A message or a tool is looked at once, so that a call costs no more late in a conversation.
    """

    def __init__(self) -> None:
        self._marks: dict[int, tuple[object, str]] = {}  # with the object: else its id is reused

    def of_model_call(self, request: ModelRequest[Any]) -> dict[str, Any]:
        """Return what a response depends on, field by field."""
        return {
            "model": _model(request.model),
            "prompt": request.system_message and _projection(request.system_message),
            "messages": _digest([self._of_message(each) for each in request.messages]),
            "tools": [self._of_tool(each) for each in request.tools],
            "tool_choice": request.tool_choice,
            "response_format": [_schema_json(each) for each in _schemas(request.response_format)],
            "model_settings": _digest(request.model_settings),
        }

    def of_beginning(self, messages: Sequence[BaseMessage]) -> str:
        """Return what tells a conversation from others that began otherwise."""
        return self._of_message(messages[0])[:_BEGINNING] if messages else ""

    def _of_message(self, message: BaseMessage) -> str:
        if id(message) not in self._marks:
            self._marks[id(message)] = message, _digest(_projection(message))
        return self._marks[id(message)][1]

    def _of_tool(self, tool: Any) -> str:
        if id(tool) not in self._marks:
            self._marks[id(tool)] = tool, _digest(convert_to_openai_tool(tool))
        return self._marks[id(tool)][1]


def _projection(message: BaseMessage) -> dict[str, Any]:
    return message.model_dump(mode="json", include=set(FINGERPRINTED))


def _model(model: Any) -> dict[str, Any]:
    """Return what tells a model and its settings from others: the library has it for traces."""
    settings = {**model._identifying_params, **model._get_ls_params()}  # noqa: SLF001 - no other way
    return {"class": type(model).__name__, "settings": _digest(settings)}


def name_of_model(model: Any) -> str:
    """Return the name by which the provider of a model knows it."""
    return str(model._get_ls_params().get("ls_model_name") or type(model).__name__)  # noqa: SLF001 - no other way


def name_of_tool(tool: Any) -> str:
    """Return the name by which a model calls a tool."""
    described = tool if isinstance(tool, dict) else convert_to_openai_tool(tool)
    return str(described.get("function", described).get("name") or "")


def _digest(value: Any) -> str:
    # Where an object is in memory says nothing of what it is, and is other in each attempt.
    text = json.dumps(value, sort_keys=True, default=lambda each: type(each).__name__)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]


# Responses of models.


def recorded_response(response: ModelResponse[Any]) -> dict[str, Any]:
    """Return a response as JSON values."""
    structured = response.structured_response
    is_typed = isinstance(structured, BaseModel) or is_dataclass(structured)
    kept = None  # most have none, and an adapter takes longer than all else here
    if structured is not None:
        kept = TypeAdapter(type(structured)).dump_python(structured, mode="json")
    return {
        "messages": [_packed(each) for each in response.result],
        "structured": kept,
        "type": type(structured).__name__ if is_typed else None,
    }


def response_of(recorded: dict[str, Any], response_format: Any) -> ModelResponse[Any]:
    """Return a response that was recorded."""
    structured = recorded["structured"]
    for schema in _schemas(response_format):
        if getattr(schema, "__name__", "") == recorded["type"]:
            structured = TypeAdapter(schema).validate_python(structured)
    messages = [_unpacked(each) for each in recorded["messages"]]
    return ModelResponse(result=messages, structured_response=structured)


def _schemas(response_format: Any) -> list[Any]:
    if response_format is None:
        return []
    if isinstance(response_format, ToolStrategy):
        return [each.schema for each in response_format.schema_specs]
    if isinstance(response_format, AutoStrategy | ProviderStrategy):
        return [response_format.schema]
    return [response_format]


def _schema_json(schema: Any) -> Any:
    return schema if isinstance(schema, dict) else TypeAdapter(schema).json_schema()


# Results of tools: a message, or a command for the graph.


def recorded_result(key: str, result: Any) -> Any:
    """Return a result as JSON values, or raise UnrestorableResultError."""
    try:
        packed = _packed(result)
        if _unpacked(json.loads(json.dumps(packed))) == result:
            return packed
        problem = "would not come back as what it is"
    except (TypeError, ValueError) as error:
        problem = f"cannot be kept as JSON: {error}"
    recipe = "Return text or JSON values from the tool, and JSON values alone as its artifact"
    raise UnrestorableResultError(key=key, problem=f"{problem}. {recipe}")


def result_of(recorded: Any) -> Any:
    """Return a result that was recorded."""
    return _unpacked(recorded)


def _packed(value: Any) -> Any:
    if isinstance(value, BaseMessage):
        return {_MESSAGE: {"type": value.type, "data": value.model_dump(mode="json")}}
    if isinstance(value, Command):
        parts = {each.name: getattr(value, each.name) for each in fields(value)}
        return {_COMMAND: _packed({name: part for name, part in parts.items() if part})}
    if isinstance(value, dict):
        return {name: _packed(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_packed(each) for each in value]
    return value


def _unpacked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpacked(each) for each in value]
    if not isinstance(value, dict):
        return value
    if _MESSAGE in value:
        return messages_from_dict([value[_MESSAGE]])[0]
    if _COMMAND in value:
        return Command(**_unpacked(value[_COMMAND]))
    return {name: _unpacked(each) for name, each in value.items()}
