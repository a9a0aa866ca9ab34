"""What the response of a model depends on: the part of a request that is equal in each attempt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

#: Of a request: the others are of the run, or of its traces.
LEFT_OUT: Final = frozenset({"tracing", "previous_response_id", "conversation_id"})
#: Of `ModelSettings`: what a response depends on.
SETTINGS: Final = frozenset(
    {
        "temperature", "top_p", "frequency_penalty", "presence_penalty", "tool_choice",
        "parallel_tool_calls", "truncation", "max_tokens", "reasoning", "verbosity",
        "response_include", "top_logprobs", "extra_query", "extra_body", "extra_args",
        "context_management",
    }
)  # fmt: skip
#: What it does not depend on, or what differs in each attempt.
SETTINGS_LEFT_OUT: Final = frozenset(
    {
        "metadata", "store", "prompt_cache_retention", "prompt_cache_options", "include_usage",
        "extra_headers", "retry", "preserve_raw_usage", "timeout",
    }
)  # fmt: skip
#: Of extra arguments: the library makes it up for each run.
_OF_THE_RUN: Final = frozenset({"prompt_cache_key"})
#: Of an item of the input: ids that a server gave it, and what became of it there.
ITEM_LEFT_OUT: Final = frozenset({"id", "status", "created_at", "created_by", "provider_data"})
#: Of each kind of tool: what the model sees of it, without secrets.
TOOLS: Final[Mapping[str, tuple[str, ...]]] = {
    "FunctionTool": ("name", "description", "params_json_schema", "strict_json_schema"),
    "CustomTool": ("name", "description", "format"),
    "FileSearchTool": ("vector_store_ids", "max_num_results", "ranking_options", "filters"),
    "WebSearchTool": ("user_location", "filters", "search_context_size"),
    "CodeInterpreterTool": ("tool_config",),
    "ImageGenerationTool": ("tool_config",),
    "ToolSearchTool": ("description", "execution", "parameters"),
    "HostedMCPTool": (),  # its config has an access token, which is another one each hour
    "ComputerTool": (),
    "ShellTool": (),
    "LocalShellTool": (),
    "ApplyPatchTool": (),
    "ProgrammaticToolCallingTool": (),
}


def request_of(model: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the response of a model depends on, as JSON values.

    Args:
        model: its name.
        asked: the arguments of `Model.get_response`, by their names.
    """
    given, output = asked["input"], asked["output_schema"]
    return {
        "model": model,
        "instructions": asked["system_instructions"],
        "input": given if isinstance(given, str) else [_item(item) for item in given],
        "settings": _settings(asked["model_settings"]),
        "tools": [_tool(tool) for tool in asked["tools"]],
        "output": None if output is None else _schema(output),
        "handoffs": [
            [each.tool_name, each.tool_description, _json(each.input_json_schema)]
            for each in asked["handoffs"]
        ],
        "prompt": _json(asked["prompt"]),
    }


def _item(item: Any) -> Any:
    if isinstance(item, BaseModel):
        item = item.model_dump(mode="json", exclude_unset=True, warnings=False)
    if not isinstance(item, Mapping):
        return _json(item)
    return {name: _json(value) for name, value in item.items() if name not in ITEM_LEFT_OUT}


def _settings(settings: Any) -> dict[str, Any]:
    """Return the settings that are set, as those that a later version adds are not."""
    kept = {name: getattr(settings, name, None) for name in SETTINGS}
    for name in ("extra_args", "extra_body"):
        extra = kept[name]
        if isinstance(extra, Mapping):
            of_all = {key: each for key, each in extra.items() if key not in _OF_THE_RUN}
            kept[name] = of_all or None
    return {name: _json(value) for name, value in kept.items() if value is not None}


def _tool(tool: Any) -> dict[str, Any]:
    kind = next((each.__name__ for each in type(tool).__mro__ if each.__name__ in TOOLS), "")
    told = {name: _json(getattr(tool, name, None)) for name in TOOLS.get(kind, ())}
    return {"type": kind or type(tool).__name__, "name": tool.name, **told}


def _schema(output: Any) -> Any:
    return "text" if output.is_plain_text() else _json(output.json_schema())


def _json(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        value = {each.name: getattr(value, each.name) for each in fields(value)}
    return to_jsonable_python(value, fallback=lambda other: type(other).__name__)
