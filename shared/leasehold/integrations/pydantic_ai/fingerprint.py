"""What a model is asked, without what differs in every attempt: the request of a recorded call.

A naive hash of the messages has their times and the ids of runs in it, so an attempt that comes
later would find no recorded answer, and pay for all of them again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pydantic_core
from pydantic_ai.messages import ModelMessage, ModelRequest, SystemPromptPart
from pydantic_ai.models import ModelRequestParameters

#: What a model is not sent, or what says nothing of its answer, by the field's name, in whichever
#: class of the library it is: times and ids of attempts, notes of the application, credentials,
#: how long a tool may take.
LEFT_OUT: Final = frozenset(
    {
        "_framing_announcement",
        "_telemetry_mcp_url_ids",
        "_telemetry_mcp_url_tool_names",
        "_telemetry_mcp_url_toolset_ids",
        "authorization_token",
        "conversation_id",
        "failed_attempts",
        "headers",
        "metadata",
        "run_id",
        "sequential",
        "timeout",
        "timestamp",
        "usage",
        "workspace_ref",
    }
)
#: Settings that decide how long is waited, or who asks, and not what is answered.
SETTINGS_LEFT_OUT: Final = frozenset(
    {"extra_headers", "first_event_timeout", "max_retries", "request_timeout", "timeout"}
)
#: What the library makes up where a model does not name its calls; other ones in every attempt.
_GENERATED: Final = "pyd_ai_"
_LIBRARY: Final = "pydantic_ai."


class Fingerprints:
    """The requests of models in one step; a message is looked at once, however often it is sent."""

    def __init__(self) -> None:
        self._digests: dict[int, tuple[ModelMessage, str]] = {}

    def of_model_request(
        self,
        model: str,
        messages: Sequence[ModelMessage],
        settings: Mapping[str, Any] | None,
        parameters: ModelRequestParameters,
    ) -> dict[str, object]:
        """Return what the answer of a model depends on; its fields name the first difference."""
        asked = projected(parameters)
        told = [asked.pop(name, None) for name in ("instruction_parts", "instruction_visibility")]
        tools = [asked.pop(name, None) for name in ("function_tools", "native_tools")]
        kept = {k: v for k, v in (settings or {}).items() if k not in SETTINGS_LEFT_OUT}
        return {
            "model": model,
            "settings": projected(kept),
            "instructions": digest([told, _instructions(messages)]),
            "tools": digest(tools),
            "output": digest(asked),
            "messages": self.of_messages(messages),
        }

    def of_messages(self, messages: Sequence[ModelMessage]) -> str:
        """Return the digest of messages; the newest one may still be changed."""
        digests = [self._kept(message) for message in messages[:-1]]
        digests += [_message_digest(message) for message in messages[-1:]]
        return hashlib.sha256("".join(digests).encode()).hexdigest()

    def _kept(self, message: ModelMessage) -> str:
        found = self._digests.get(id(message))
        if found is None or found[0] is not message:
            found = self._digests[id(message)] = (message, _message_digest(message))
        return found[1]


def _message_digest(message: ModelMessage) -> str:
    """Return the digest of a message without its instructions: another field has them."""
    if isinstance(message, ModelRequest):
        parts = [part for part in message.parts if not isinstance(part, SystemPromptPart)]
        message = dataclasses.replace(message, parts=parts, instructions=None)
    return digest(message)


def _instructions(messages: Sequence[ModelMessage]) -> list[str | None]:
    found: list[str | None] = []
    for message in messages:
        if isinstance(message, ModelRequest):
            found += [part.content for part in message.parts if isinstance(part, SystemPromptPart)]
            found.append(message.instructions)
    return found


def digest(value: object) -> str:
    """Return what tells a value from others, whatever of it differs in every attempt."""
    text = json.dumps(projected(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def projected(value: Any) -> Any:
    """Return a value as JSON values, without what is left out of the library's classes.

    A field that has its default is left out as well: one that a later version of the library adds
    changes nothing.
    """
    match value:
        case None | bool() | int() | float() | str():
            shown: Any = value
        case bytes() | bytearray():
            shown = {"sha256": hashlib.sha256(value).hexdigest()}
        case Mapping():
            shown = {str(key): projected(each) for key, each in value.items()}
        case list() | tuple():
            shown = [projected(each) for each in value]
        case set() | frozenset():
            shown = sorted(map(digest, value))
        case _ if dataclasses.is_dataclass(value) and type(value).__module__.startswith(_LIBRARY):
            fields = {field.name: _field(value, field) for field in _fields(value)}
            shown = {"": type(value).__name__, **fields}
        case _:
            shown = _json_of(value)
    return shown


def _fields(value: Any) -> list[dataclasses.Field[Any]]:
    return [
        field
        for field in dataclasses.fields(value)
        if field.name not in LEFT_OUT and not _is_default(field, getattr(value, field.name))
    ]


def _is_default(field: dataclasses.Field[Any], found: object) -> bool:
    if field.default is not dataclasses.MISSING:
        return bool(found is field.default or found == field.default)
    return found is None or found in ([], {}, set())


def _field(value: Any, field: dataclasses.Field[Any]) -> Any:
    found = getattr(value, field.name)
    if field.name == "tool_call_id" and isinstance(found, str) and found.startswith(_GENERATED):
        return _GENERATED
    return projected(found)


def _json_of(value: object) -> Any:
    """Return a value of any class as JSON values; one that has none, by the name of its class."""
    return pydantic_core.to_jsonable_python(
        value,
        fallback=lambda each: f"{type(each).__module__}.{type(each).__qualname__}",
        inf_nan_mode="strings",
        bytes_mode="base64",
    )
