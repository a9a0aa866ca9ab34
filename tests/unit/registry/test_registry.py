"""The registry mechanism: built whole, never changed, refuses a key twice."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass
from typing import Any

import pytest

from leasehold.errors import DuplicateKeyError, InvalidEntryError, UnknownKeyError
from leasehold.registry.registry import Registry


@dataclass(frozen=True)
class Tool:
    key: str
    size: int = 0


@pytest.fixture
def tools() -> Registry[Tool]:
    return Registry("tools", [Tool("saw"), Tool("axe", 2), Tool("nail")])


def test_rows_keep_their_order(tools: Registry[Tool]) -> None:
    """It is the order people see them in."""
    assert tools.keys() == ("saw", "axe", "nail")
    assert [tool.key for tool in tools] == ["saw", "axe", "nail"]
    assert len(tools) == 3


def test_a_row_is_found_by_its_key(tools: Registry[Tool]) -> None:
    assert tools["axe"] == Tool("axe", 2)
    assert tools.get("axe") == Tool("axe", 2)
    assert "axe" in tools


def test_a_key_that_stands_there_twice_is_refused() -> None:
    """The second row would hide the first, without a sign of which one applies."""
    with pytest.raises(DuplicateKeyError) as refused:
        Registry("tools", [Tool("saw"), Tool("axe"), Tool("saw", 2)])

    assert refused.value.details == {"registry": "tools", "key": "saw"}


def test_an_unknown_key_is_answered_with_the_known_ones(tools: Registry[Tool]) -> None:
    with pytest.raises(UnknownKeyError) as unknown:
        tools["hammer"]

    assert unknown.value.message == (
        "'hammer' is not in the tools registry; known: saw, axe, nail."
    )
    assert tools.get("hammer") is None
    assert "hammer" not in tools


def test_an_empty_registry_says_that_it_knows_none() -> None:
    nothing: Registry[Tool] = Registry("tools", [])

    with pytest.raises(UnknownKeyError, match="known: none"):
        nothing["saw"]


def test_a_registry_does_not_change_with_the_list_it_was_built_from() -> None:
    rows = [Tool("saw")]
    tools = Registry("tools", rows)

    rows.append(Tool("axe"))

    assert tools.keys() == ("saw",)


def test_its_rows_cannot_be_changed_either(tools: Registry[Tool]) -> None:
    with pytest.raises(FrozenInstanceError):
        tools["saw"].size = 3


def test_a_registry_shows_its_name_and_keys(tools: Registry[Tool]) -> None:
    assert repr(tools) == "Registry('tools', ['saw', 'axe', 'nail'])"


def test_a_row_that_is_not_an_entry_is_refused_with_its_place() -> None:
    rows: list[Any] = [Tool("saw"), "axe"]

    with pytest.raises(InvalidEntryError) as refused:
        Registry("tools", rows)

    assert refused.value.message == (
        "class of 'row 2' in the tools registry is 'str'; "
        "allowed: a class of entries, which have a key."
    )
