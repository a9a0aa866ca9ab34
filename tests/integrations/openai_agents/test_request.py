"""Each part of a request is decided: a response depends on it, or it differs in each attempt.

A new release may add a part. One that counts and is left out gets an answer to another question;
one that differs in each attempt and counts has everything paid for again.
"""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from agents import ModelSettings, Tool
from agents.items import TResponseInputItem, TResponseOutputItem
from agents.models.interface import Model
from agents.usage import Usage
from openai.types.responses.response_usage import InputTokensDetails

from leasehold.integrations.openai_agents import request
from leasehold.integrations.openai_agents.model import _used
from leasehold.integrations.prices import Used

#: The types of items that were looked at, and whose fields are all of these.
ITEMS = {
    "additional_tools", "apply_patch_call", "apply_patch_call_output", "code_interpreter_call",
    "compaction", "compaction_trigger", "computer_call", "computer_call_output",
    "configuration_update", "custom_tool_call", "custom_tool_call_output", "file_search_call",
    "function_call", "function_call_output", "image_generation_call", "item_reference",
    "local_shell_call", "local_shell_call_output", "mcp_approval_request", "mcp_approval_response",
    "mcp_call", "mcp_list_tools", "message", "program", "program_output", "reasoning", "shell_call",
    "shell_call_output", "tool_search_call", "tool_search_output", "web_search_call",
}  # fmt: skip
ITEM_FIELDS = {
    "acknowledged_safety_checks", "action", "actions", "approval_request_id", "approve",
    "arguments", "async", "background", "call_id", "caller", "code", "container_id", "content",
    "encrypted_content", "environment", "error", "execution", "fingerprint", "input",
    "max_output_length", "name", "namespace", "operation", "output", "output_format", "outputs",
    "pending_safety_checks", "phase", "quality", "queries", "reason", "reasoning", "result",
    "results", "revised_prompt", "role", "server_label", "size", "summary", "svg_usage", "text",
    "tools", "type",
}  # fmt: skip


def test_each_argument_of_a_model_counts_or_is_left_out() -> None:
    counts = {
        "system_instructions", "input", "model_settings", "tools", "output_schema", "handoffs",
        "prompt",
    }  # fmt: skip

    arguments = set(inspect.signature(Model.get_response).parameters) - {"self"}

    assert arguments == counts | request.LEFT_OUT


def test_each_setting_counts_or_is_left_out() -> None:
    assert {each.name for each in fields(ModelSettings)} == (
        request.SETTINGS | request.SETTINGS_LEFT_OUT
    )


def test_each_kind_of_tool_is_decided() -> None:
    kinds = {getattr(kind, "__origin__", kind).__name__ for kind in get_args(Tool)}

    assert kinds == set(request.TOOLS)


def test_each_type_of_item_and_each_field_of_one_is_decided() -> None:
    types, names = set(), set()
    for kind in get_args(TResponseInputItem):
        hints = get_type_hints(kind)
        types |= set(_literals(hints["type"]))
        names |= set(kind.__annotations__)

    assert types == ITEMS
    assert names - request.ITEM_LEFT_OUT == ITEM_FIELDS


def test_each_type_of_output_becomes_an_item_that_is_decided() -> None:
    outputs = set()
    for kind in get_args(get_args(TResponseOutputItem)[0]):
        outputs |= set(_literals(kind.model_fields["type"].annotation))

    assert outputs <= ITEMS


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"extra_args": {"prompt_cache_key": "a"}}, {"extra_args": {"prompt_cache_key": "b"}}),
        ({"metadata": {"run": "1"}}, {"metadata": {"run": "2"}}),
        ({"extra_headers": {"X-At": "9:00"}}, {"extra_headers": {"X-At": "9:01"}}),
    ],
)
def test_what_differs_in_each_attempt_is_no_other_request(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert _request(ModelSettings(**one)) == _request(ModelSettings(**other))
    assert _request(ModelSettings()) != _request(ModelSettings(temperature=0.5))


def test_tokens_of_a_cache_are_counted_as_such() -> None:
    """They have another price."""
    details = InputTokensDetails.model_construct(cached_tokens=3)
    usage = Usage(input_tokens=5, input_tokens_details=details, output_tokens=7)

    assert _used("m", usage) == Used("m", 5, 7, cache_read_tokens=3)


def _request(settings: ModelSettings) -> dict[str, Any]:
    asked = {
        "system_instructions": None, "input": "Go", "model_settings": settings, "tools": [],
        "output_schema": None, "handoffs": [], "prompt": None,
    }  # fmt: skip
    return request.request_of("model", asked)


def _literals(hint: Any) -> list[str]:
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    return [each for argument in get_args(hint) for each in _literals(argument)]
