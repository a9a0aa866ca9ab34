"""Recorded calls of tools."""

from __future__ import annotations

import functools
import inspect
import json
from typing import Any, Final, get_type_hints

from agents import (
    ApplyPatchTool,
    ComputerTool,
    CustomTool,
    FunctionTool,
    LocalShellTool,
    ShellTool,
)

from leasehold.integrations.scope import inside, scope

#: They change the machine that an attempt works on, and leave nothing to the next attempt.
_OF_THE_MACHINE: Final = (ApplyPatchTool, ComputerTool, LocalShellTool, ShellTool)
#: Where the library keeps a function, within what tells the model of its errors.
_WITHIN_ERRORS: Final = "_invoke_tool_impl"


def record_tool(tool: Any) -> None:
    """Have the calls of a tool recorded, wherever it is called within a step.

    Its errors are not: what the library tells the model of them is made outside of the record.
    """
    if isinstance(tool, _OF_THE_MACHINE):
        if (run := scope()) is not None and not run.made[tool.name]:
            run.made[tool.name] += 1
            run.ctx.log.warning(
                "calls of the tool %s are not recorded, as it works on the machine: a later "
                "attempt makes them again",
                tool.name,
            )
    elif isinstance(tool, FunctionTool | CustomTool):
        invoke = tool.on_invoke_tool
        if hasattr(invoke, _WITHIN_ERRORS):
            function = getattr(invoke, _WITHIN_ERRORS)
            if not hasattr(function, "leasehold"):
                setattr(invoke, _WITHIN_ERRORS, _recorded(tool, function))
        elif not hasattr(invoke, "leasehold"):
            tool.on_invoke_tool = _recorded(tool, invoke)


def _recorded(tool: FunctionTool | CustomTool, function: Any) -> Any:
    returns = _returned_by(tool)
    is_agent = getattr(tool, "_is_agent_tool", False)

    @functools.wraps(function)
    async def recorded(context: Any, given: str) -> Any:
        async def call() -> Any:
            result = function(context, given)
            return await result if inspect.isawaitable(result) else result

        if (run := scope()) is None:
            return await call()
        with inside(run.within(context.tool_name, context.tool_call_id)) as within:
            if is_agent:  # what its agent calls is recorded
                return await call()
            arguments = _json(given)
            return await run.block.call(
                within.key(),
                call,
                request={"arguments": arguments},
                arguments=arguments if isinstance(arguments, dict) else {"input": arguments},
                on_unknown=run.block.on_unknown.get(tool.name, "repeat"),
                returns=returns,
                tool=context.tool_name,
            )

    recorded.leasehold = True  # type: ignore[attr-defined] # it is known by it
    return recorded


def _returned_by(tool: FunctionTool | CustomTool) -> Any:
    """Return the type that a tool's function is annotated to return; Any: plain JSON values."""
    function = getattr(tool, "__wrapped__", None)
    if function is None:
        return Any
    try:
        return get_type_hints(function).get("return", Any)
    except Exception:  # noqa: BLE001 - names that are not there; the library needs none of them
        return Any


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
