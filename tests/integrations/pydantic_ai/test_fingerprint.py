"""The request of a recorded call has what a model is asked, and nothing that differs each time."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from datetime import UTC, datetime
from typing import Any, Final, get_args, get_origin, get_type_hints

import pytest
from pydantic_ai.messages import (
    BinaryContent,
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from leasehold.integrations.pydantic_ai.fingerprint import (
    LEFT_OUT,
    SETTINGS_LEFT_OUT,
    Fingerprints,
    digest,
)

#: Each class that can be in what a model is asked, with the fields that count. A class or a field
#: of a new version of the library is not here: decide whether it says something of the answer.
COUNTED: Final = {
    "AbstractNativeTool": "kind optional",
    "AdvisorTool": "caching kind max_tokens max_uses model optional provider_settings",
    "AgentInstructionSource": "",
    "AudioUrl": "_identifier _media_type force_download kind url vendor_metadata",
    "BinaryAudio": "_identifier data kind media_type vendor_metadata",
    "BinaryContent": "_identifier data kind media_type vendor_metadata",
    "BinaryImage": "_identifier data kind media_type vendor_metadata",
    "CachePoint": "kind ttl",
    "CapabilityInstructionSource": "id",
    "CapabilityLoadDeltaPart": "loaded part_kind tool_call_id",
    "Citation": "anchor sources",
    "CodeExecutionTool": "files kind optional",
    "CompactionPart": "content id part_kind provider_details provider_name",
    "ContentCitationAnchor": "end kind start",
    "DocumentCitationSource": "document_id excerpts kind title",
    "DocumentUrl": "_identifier _media_type force_download kind url vendor_metadata",
    "FilePart": "content id part_kind provider_details provider_name",
    "FileSearchTool": (
        "file_store_ids instructions kind max_num_results optional provider_settings retrieval_mode"
    ),
    "ImageGenerationTool": (
        "action aspect_ratio background input_fidelity kind model moderation optional "
        "output_compression output_format partial_images provider_settings quality size"
    ),
    "ImageUrl": "_identifier _media_type force_download kind url vendor_metadata",
    "InstructionBaselinePart": "instructions part_kind",
    "InstructionDeltaPart": "base_hash content id part_kind",
    "InstructionDigest": "content_hash dynamic id part_kind",
    "InstructionId": "name source",
    "InstructionPart": "content dynamic id name on_change part_kind",
    "LoadCapabilityCallPart": (
        "args id part_kind provider_details provider_name tool_call_id tool_kind tool_name"
    ),
    "LoadCapabilityReturnPart": "content outcome part_kind retry tool_call_id tool_kind tool_name",
    "MCPServerTool": "allowed_tools description id kind optional url",
    "MarkerCitationAnchor": "end kind start",
    "MemoryTool": "kind optional",
    "ModelRequest": "instructions kind parts state",
    "ModelRequestParameters": (
        "allow_image_output allow_text_output cache deferred_capability_ids function_tools "
        "instruction_parts instruction_visibility introduced_tool_names native_tools "
        "output_mode output_object output_tools prompted_output_template revealed_tool_names "
        "thinking tool_visibility"
    ),
    "ModelResponse": (
        "canonical_system finish_reason history_digest kind model_id model_name parts "
        "provider_details provider_name provider_response_id provider_url state"
    ),
    "ModelSettingsDeltaPart": "part_kind settings top_level",
    "NativeToolCallPart": (
        "args id part_kind provider_details provider_name tool_call_id tool_kind tool_name"
    ),
    "NativeToolReturnPart": (
        "content outcome part_kind provider_details provider_name tool_call_id tool_kind tool_name"
    ),
    "NativeToolSearchCallPart": (
        "args id part_kind provider_details provider_name tool_call_id tool_kind tool_name"
    ),
    "NativeToolSearchReturnPart": (
        "content outcome part_kind provider_details provider_name tool_call_id tool_kind tool_name"
    ),
    "OutputObjectDefinition": "description json_schema name strict",
    "RetryFeedbackPart": "content part_kind retry",
    "RetryInfo": "attempt cause max_retries",
    "RetryPromptPart": "content part_kind tool_call_id tool_name",
    "RunInstructionSource": "",
    "SpeechPart": (
        "audio id interrupted_at_ms part_kind provider_details provider_name speaker "
        "timestamps transcript"
    ),
    "SpeechTimestamp": "duration_ms granularity start_ms text",
    "StructuredContent": "content description kind tag value",
    "SystemPromptPart": "content context_id dynamic_ref part_kind scope",
    "TextContent": "content kind",
    "TextPart": "citations content id part_kind provider_details provider_name",
    "ThinkingPart": "content id part_kind provider_details provider_name signature",
    "ToolAvailabilityDeltaPart": "part_kind tool_call_id tools_added",
    "ToolCallPart": (
        "args id part_kind provider_details provider_name tool_call_id tool_kind tool_name"
    ),
    "ToolDefinition": (
        "capability_id defer_loading description include_return_schema kind name "
        "outer_typed_dict_key parameters_json_schema return_schema strict "
        "tool_kind toolset_id unless_native unless_tool_kind with_native"
    ),
    "ToolReturnPart": "content outcome part_kind retry tool_call_id tool_kind tool_name",
    "ToolSearchCallPart": (
        "args id part_kind provider_details provider_name tool_call_id tool_kind tool_name"
    ),
    "ToolSearchReturnPart": "content outcome part_kind retry tool_call_id tool_kind tool_name",
    "ToolSearchTool": "kind optional strategy",
    "ToolsetInstructionSource": "id",
    "UploadedFile": "_identifier _media_type file_id kind provider_name vendor_metadata",
    "UserPromptPart": "content part_kind",
    "VideoUrl": "_identifier _media_type force_download kind url vendor_metadata",
    "WebCitationSource": "excerpts kind title url",
    "WebFetchTool": (
        "allowed_domains blocked_domains enable_citations kind max_content_tokens max_uses "
        "optional provider_settings"
    ),
    "WebSearchTool": (
        "allowed_domains blocked_domains external_web_access kind max_uses optional "
        "provider_settings search_context_size user_location"
    ),
    "XSearchTool": (
        "allowed_x_handles enable_image_understanding enable_video_understanding "
        "excluded_x_handles from_date include_output kind optional to_date"
    ),
    "_FrameworkInstructionPart": "content dynamic id name on_change part_kind",
    "_FrameworkNote": "content context_id dynamic_ref part_kind scope",
    "_FrameworkUserPromptPart": "content part_kind",
}


def _reached(kind: Any, found: dict[str, set[str]]) -> None:
    """Note each class of the library that a type leads to, with its fields."""
    if hasattr(kind, "__value__"):
        kind = kind.__value__
    origin = get_origin(kind)
    if origin is not None:
        for part in () if origin is typing.Literal else get_args(kind):
            _reached(part, found)
        kind = origin
    if not inspect.isclass(kind) or not kind.__module__.startswith("pydantic_ai"):
        return
    if typing.is_typeddict(kind):
        found[kind.__name__] = set(kind.__annotations__) - SETTINGS_LEFT_OUT
        return
    for below in kind.__subclasses__():
        _reached(below, found)
    if dataclasses.is_dataclass(kind) and kind.__name__ not in found:
        names = [field.name for field in dataclasses.fields(kind) if field.name not in LEFT_OUT]
        found[kind.__name__] = set(names)
        hints = get_type_hints(kind, include_extras=True)
        for name in names:
            _reached(hints[name], found)


def test_each_field_that_a_model_can_be_sent_is_decided_on() -> None:
    found: dict[str, set[str]] = {}
    for kind in (ModelMessage, ModelRequestParameters, ModelSettings):
        _reached(kind, found)

    decided = {name: set(fields.split()) for name, fields in COUNTED.items()}

    assert found == decided


def asked(
    attempt: int,
    *,
    system: str = "You look.",
    instructions: str = "Be brief.",
    prompt: str = "Look!",
    **settings: Any,
) -> dict[str, object]:
    """Return what a model is asked in an attempt: one differs from another in times and ids."""
    at = datetime(2026, 1, attempt, tzinfo=UTC)
    ids: Any = {"run_id": f"run-{attempt}", "conversation_id": f"talk-{attempt}"}
    generated = f"pyd_ai_{attempt}"
    messages: list[ModelMessage] = [
        ModelRequest(
            [SystemPromptPart(system, timestamp=at), UserPromptPart(prompt, timestamp=at)],
            timestamp=at,
            instructions=instructions,
            metadata={"attempt": attempt},
            **ids,
        ),
        ModelResponse(
            [TextPart("I look."), ToolCallPart("look", {"n": 1}, generated)],
            timestamp=at,
            usage=RequestUsage(input_tokens=attempt),
            **ids,
        ),
        ModelRequest([ToolReturnPart("look", "a page", generated, timestamp=at)], timestamp=at),
    ]
    parameters = ModelRequestParameters(
        function_tools=[ToolDefinition(name="look", timeout=attempt)],
        instruction_parts=[InstructionPart(instructions)],
    )
    asked = {"timeout": attempt, "extra_headers": {"x-attempt": str(attempt)}, **settings}
    return Fingerprints().of_model_request("m", messages, asked, parameters)


def test_what_differs_in_each_attempt_does_not_count() -> None:
    assert asked(1) == asked(2)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"system": "You hear."}, "instructions"),
        ({"instructions": "Be long."}, "instructions"),
        ({"prompt": "Look away!"}, "messages"),
        ({"temperature": 0.5}, "settings"),
    ],
)
def test_what_was_changed_is_named(change: dict[str, Any], field: str) -> None:
    before, after = asked(1), asked(2, **change)

    assert [name for name in before if before[name] != after[name]] == [field]


def test_a_tool_that_says_something_else_is_named() -> None:
    def of(words: str) -> dict[str, object]:
        tools = [ToolDefinition(name="look", description=words)]
        parameters = ModelRequestParameters(function_tools=tools)
        return Fingerprints().of_model_request("m", [], None, parameters)

    before, after = of("Looks."), of("Looks away.")

    assert [name for name in before if before[name] != after[name]] == ["tools"]


def test_a_message_is_digested_once_but_the_newest_is_looked_at_again() -> None:
    of, request = Fingerprints(), ModelRequest([UserPromptPart("Look!")])
    before = of.of_messages([request])

    request.parts = [UserPromptPart("Look away!")]
    changed = of.of_messages([request])

    assert before != changed
    assert of.of_messages([request, request]) == of.of_messages([request, request])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            BinaryContent(b"\xff", media_type="image/png"),
            BinaryContent(b"\xfe", media_type="image/png"),
        ),
        ({"a": 1}, {"a": 2}),
        ([1, 2], [2, 1]),
        ({1, 2}, {1, 3}),
        (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)),
        (float("nan"), float("inf")),
    ],
)
def test_values_of_tools_and_prompts_count(one: object, other: object) -> None:
    assert digest(one) != digest(other)
    assert digest(one) == digest(one)


def test_an_object_counts_by_its_class_and_not_by_its_place_in_memory() -> None:
    assert digest(object()) == digest(object())
