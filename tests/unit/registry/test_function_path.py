"""A handler or gate may be given as the function; the entry keeps its path, or refuses it."""

from __future__ import annotations

import functools
import sys
import types
from datetime import timedelta
from typing import Any

import pytest

from leasehold import GateEntry, StepDispatchEntry
from leasehold.errors import InvalidEntryError


def ask(ctx: Any, given: Any) -> Any:
    return given


async def ask_later(ctx: Any, given: Any) -> Any:
    return given


@functools.wraps(ask)
def _wrapper(ctx: Any, given: Any) -> Any:
    return ask(ctx, given)


class Maker:
    def make(self, _: Any, given: Any) -> Any:
        return given


class Callable2:
    def __call__(self, _: Any, given: Any) -> Any:
        return given


def entry(handler: Any, **fields: Any) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type="ask",
        handler=handler,
        agent_timeout=timedelta(seconds=30),
        dispatch_deadline=timedelta(seconds=60),
        **fields,
    )


def refusal(handler: Any, **fields: Any) -> str:
    with pytest.raises(InvalidEntryError) as caught:
        entry(handler, **fields)
    message = caught.value.message
    assert "\n" not in message
    return message


@pytest.mark.parametrize("function", [ask, ask_later])
def test_an_entry_keeps_the_path_of_a_function(function: Any) -> None:
    path = f"{__name__}:{function.__name__}"

    assert entry(function) == entry(path)
    assert entry(function).handler == path
    assert GateEntry(name="good", check=function) == GateEntry(name="good", check=path)


def test_a_function_that_no_path_leads_to_is_refused_in_one_line() -> None:
    def inner(ctx: Any, given: Any) -> Any:
        return given

    odd = [
        (lambda _, given: given, "test_function_path:test_a_function_that_no_path"),
        (inner, ".<locals>.inner'; allowed: a function that stands in a module"),
        (functools.partial(ask), "allowed: 'module:function'"),
        (Maker().make, "allowed: 'module:function'"),
        (Callable2(), "allowed: 'module:function'"),
        (Callable2, "allowed: 'module:function'"),
        (_wrapper, ":ask'; allowed: "),  # what the module has under that name is another one
    ]
    for function, words in odd:
        message = refusal(function)
        assert message.startswith("handler of 'ask' in the dispatch registry is ")
        assert words in message
        with pytest.raises(InvalidEntryError, match="check of 'good' in the gates registry is "):
            GateEntry(name="good", check=function)


@pytest.mark.parametrize("value", [7, None, ["a"], "no path"])
def test_a_value_that_is_not_a_function_is_refused_as_before(value: Any) -> None:
    assert "allowed: 'module:function' or 'remote'." in refusal(value)


def test_a_function_of_the_program_itself_runs_inline_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own process has another `__main__`."""
    program = types.ModuleType("__main__")
    exec("def ask(ctx, given): return given", vars(program))  # noqa: S102 - as a script has it
    monkeypatch.setitem(sys.modules, "__main__", program)

    assert "isolation='inline'" in refusal(program.ask)
    assert entry(program.ask, isolation="inline").handler == "__main__:ask"
