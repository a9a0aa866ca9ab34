"""Each part of a request is decided: a response depends on it, or it differs in each attempt.

A new release may add a part. One that counts and is left out gets an answer to another question;
one that differs in each attempt and counts has everything paid for again.
"""

from __future__ import annotations

from google.adk.events import EventActions
from google.adk.models.llm_request import LlmRequest
from google.genai import types

from leasehold.integrations.adk import model
from leasehold.integrations.adk.model import _used
from leasehold.integrations.prices import Used

CONFIG = {
    "audio_timestamp", "audio_transcription_config", "automatic_continuation",
    "automatic_function_calling", "candidate_count", "enable_enhanced_civic_answers",
    "frequency_penalty", "generation_output_config", "image_config", "logprobs",
    "max_output_tokens", "media_resolution", "model_armor_config", "model_selection_config",
    "presence_penalty", "response_json_schema", "response_logprobs", "response_mime_type",
    "response_modalities", "response_schema", "routing_config", "safety_settings", "seed",
    "speech_config", "stop_sequences", "system_instruction", "temperature", "thinking_config",
    "tool_config", "tools", "top_k", "top_p",
}  # fmt: skip
#: All of these count: what an attempt is given again in them was recorded.
PARTS = {
    "audio_transcription", "code_execution_result", "executable_code", "file_data",
    "function_call", "function_response", "inline_data", "media_processing", "media_resolution",
    "part_metadata", "speech_metadata", "text", "thought", "thought_signature", "tool_call",
    "tool_response", "video_metadata",
}  # fmt: skip
#: What a tool may do to the run, and is done again where its call is spared.
ACTIONS = {
    "agent_state", "artifact_delta", "compaction", "end_of_agent", "escalate", "render_ui_widgets",
    "requested_auth_configs", "requested_tool_confirmations", "rewind_before_invocation_id",
    "route", "set_model_response", "skip_summarization", "state_delta", "transfer_reason",
    "transfer_to_agent",
}  # fmt: skip


def test_each_field_of_a_request_counts_or_is_left_out() -> None:
    assert set(LlmRequest.model_fields) == {"model", "contents", "config"} | model.LEFT_OUT


def test_each_field_of_a_config_counts_or_is_left_out() -> None:
    assert set(types.GenerateContentConfig.model_fields) == CONFIG | model.CONFIG_LEFT_OUT


def test_each_field_of_a_message_counts() -> None:
    assert set(types.Content.model_fields) == {"parts", "role"}
    assert set(types.Part.model_fields) == PARTS


def test_each_effect_of_a_tool_is_decided() -> None:
    assert set(EventActions.model_fields) == ACTIONS


def test_what_differs_in_each_attempt_is_no_other_request() -> None:
    one, other, third = LlmRequest(model="m"), LlmRequest(model="m"), LlmRequest(model="m")
    one.config.labels = {"attempt": "1"}
    other.config.http_options = types.HttpOptions(headers={"X-At": "9:00"})
    third.config.temperature = 0.5

    assert model.request_of(one) == model.request_of(other)
    assert model.request_of(one) != model.request_of(third)


def test_tokens_of_a_cache_and_of_thoughts_are_counted_as_such() -> None:
    """They have other prices."""
    usage = types.GenerateContentResponseUsageMetadata(
        prompt_token_count=5,
        tool_use_prompt_token_count=1,
        cached_content_token_count=3,
        candidates_token_count=7,
        thoughts_token_count=11,
    )

    assert _used("m", usage) == Used("m", 6, 18, cache_read_tokens=3)


def test_a_request_with_bytes_and_schemas_is_json() -> None:
    asked = LlmRequest(
        model="m",
        contents=[
            types.UserContent(
                types.Part(inline_data=types.Blob(data=b"\xff", mime_type="image/png"))
            )
        ],
    )
    asked.config.response_schema = dict[str, int]

    request = model.request_of(asked)

    assert request["contents"][0]["parts"][0]["inline_data"]["data"] == "_w=="
