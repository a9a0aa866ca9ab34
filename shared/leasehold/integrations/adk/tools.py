"""Recorded calls of tools."""

from __future__ import annotations

from typing import Any, Final

from google.adk.events import EventActions
from google.adk.tools.base_tool import BaseTool
from google.genai import types
from pydantic import BaseModel

from leasehold.integrations.scope import Scope, inside

_METHOD: Final = "run_async"
#: Classes of tools that run agents; the library does not export all of them.
_AGENTS: Final = frozenset({"AgentTool", "NodeTool"})
_KIND: Final = "$google.genai.types"


def record_tool(tool: BaseTool) -> None:
    """Have the calls of a tool recorded, in place, wherever it is called within a step.

    Of an agent that is a tool, its own calls are recorded, and not it as one.
    """
    if _METHOD in vars(tool):
        return
    run = tool.run_async

    async def recorded(*, args: dict[str, Any], tool_context: Any) -> Any:
        agent: Scope | None = getattr(tool_context, "leasehold", None)
        if agent is None:
            return await run(args=args, tool_context=tool_context)
        with inside(agent.within(tool.name, str(tool_context.function_call_id))) as call:
            if _is_agent(tool):
                return await run(args=args, tool_context=tool_context)
            return await _recorded(tool, run, args, tool_context, call)

    vars(tool)[_METHOD] = recorded


async def _recorded(tool: BaseTool, run: Any, args: Any, context: Any, call: Scope) -> Any:
    is_made = False

    async def made() -> Any:
        nonlocal is_made
        result = await run(args=args, tool_context=context)
        is_made = True
        actions = context.actions.model_dump(mode="json", exclude_defaults=True)
        return {"result": _written(result), "actions": actions}

    confirmation = context.tool_confirmation
    record = await call.block.call(
        call.key(*(("confirmed",) if confirmation else ())),
        made,
        request={
            "arguments": args,
            "confirmation": confirmation and confirmation.model_dump(mode="json"),
        },
        on_unknown=call.block.on_unknown.get(tool.name, "repeat"),
        tool=tool.name,
        arguments=args,
    )
    if not (isinstance(record, dict) and record.keys() == {"result", "actions"}):
        return _read(record)  # it is what a person has said of it
    if not is_made:
        _do_again(EventActions.model_validate(record["actions"]), context)
    return _read(record["result"])


def _do_again(actions: EventActions, context: Any) -> None:
    """Have the effects that a recorded call had on the run."""
    for name in actions.model_fields_set - {"state_delta"}:
        setattr(context.actions, name, getattr(actions, name))
    context.state.update(actions.state_delta)


def _is_agent(tool: BaseTool) -> bool:
    """Return whether a tool runs agents or nodes: they have other tools within them."""
    kinds = {kind.__name__ for kind in type(tool).__mro__}
    return bool(kinds & _AGENTS) or bool(getattr(tool, "_defers_response", False))


def _written(value: Any) -> Any:
    """Return a result as JSON values; media in it keep what they are."""
    if isinstance(value, BaseModel) and type(value).__module__ == types.__name__:
        return {_KIND: type(value).__name__, "value": value.model_dump(mode="json")}
    if isinstance(value, dict):
        return {name: _written(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_written(each) for each in value]
    return value


def _read(value: Any) -> Any:
    if isinstance(value, dict):
        if _KIND in value:
            return getattr(types, value[_KIND]).model_validate(value["value"])
        return {name: _read(each) for name, each in value.items()}
    return [_read(each) for each in value] if isinstance(value, list) else value
