"""A recorded response depends on all that its model is given, but for ids that change each time.

Else each attempt would pay for everything again, silently, or be given a stale answer.
"""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any

import pytest
from langchain.agents.middleware import ModelRequest
from langchain_core import messages
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
from pydantic import BaseModel

from leasehold.integrations.langgraph.recorded import FINGERPRINTED, LEFT_OUT, Fingerprints
from tests.integrations.langgraph.answering import ScriptedModel

CLASSES = sorted(
    {
        each
        for each in (getattr(messages, name) for name in messages.__all__)
        if inspect.isclass(each) and issubclass(each, BaseMessage)
    },
    key=lambda each: each.__name__,
)


def request(**changes: Any) -> ModelRequest[Any]:
    given: dict[str, Any] = {
        "model": ScriptedModel(),
        "messages": [HumanMessage("Hello.")],
        "system_message": SystemMessage("Be brief."),
        "tools": [look],
        "tool_choice": "auto",
        "response_format": None,
        "state": {"messages": []},
        "runtime": None,
        "model_settings": {"temperature": 0},
    }
    return ModelRequest(**(given | changes))


def fingerprint(**changes: Any) -> dict[str, Any]:
    return Fingerprints().of_model_call(request(**changes))


@tool
def look(place: str) -> str:
    """Look at a place."""
    return place


@tool("look")
def look_twice(place: str, times: int) -> str:
    """Look at a place."""
    return place * times


class Answer(BaseModel):
    text: str


@pytest.mark.parametrize("kind", CLASSES, ids=lambda each: each.__name__)
def test_every_field_of_every_message_is_decided_on(kind: type[BaseMessage]) -> None:
    """A field that is new in a release of the library fails here, and is put where it belongs."""
    assert set(kind.model_fields) <= FINGERPRINTED | LEFT_OUT
    assert not FINGERPRINTED & LEFT_OUT


def test_every_field_of_a_request_is_decided_on() -> None:
    assert {each.name for each in fields(ModelRequest)} == {
        *("model", "messages", "system_message", "tools", "tool_choice"),
        *("response_format", "model_settings"),
        *("state", "runtime"),  # what of them the model gets is in the others
    }


def message(**fields: Any) -> AnyMessage:
    return AIMessage(**({"content": "Yes.", "id": "1"} | fields))


def test_two_attempts_have_the_same_fingerprint() -> None:
    """In each, ids, times and counts of tokens are others."""
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    first = fingerprint(messages=[HumanMessage("Hello.", id="a"), message()])
    second = fingerprint(
        messages=[
            HumanMessage("Hello.", id="b"),
            message(id="2", usage_metadata=usage, response_metadata={"created": 1764}),
        ],
        state={"messages": [], "thread": "another"},
    )

    assert first == second


CALL = {"name": "look", "args": {"place": "here"}, "id": "call-1"}


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("model", {"model": ScriptedModel(model="scripted-2")}),
        ("prompt", {"system_message": SystemMessage("Be long.")}),
        ("messages", {"messages": [HumanMessage("Goodbye.")]}),
        ("messages", {"messages": [HumanMessage("Hello.", name="Ada")]}),
        ("messages", {"messages": [AIMessage("Hello.")]}),
        ("messages", {"messages": [HumanMessage("Hello."), message(tool_calls=[CALL])]}),
        ("messages", {"messages": [HumanMessage([{"type": "text", "text": "Hello."}])]}),
        ("tools", {"tools": [look_twice]}),
        ("tools", {"tools": []}),
        ("tool_choice", {"tool_choice": "any"}),
        ("response_format", {"response_format": Answer}),
        ("model_settings", {"model_settings": {"temperature": 1}}),
    ],
)
def test_what_a_model_is_given_counts(field: str, change: dict[str, Any]) -> None:
    usual, other = fingerprint(), fingerprint(**change)

    assert {each for each in usual if usual[each] != other[each]} == {field}
