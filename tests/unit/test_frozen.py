"""A frozen dataclass of ours answers as the one of the standard library does."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from typing import Any

import pytest

from leasehold import frozen


def shapes(dataclass: Callable[..., Any]) -> dict[str, Any]:
    """Return classes of many shapes, made by this decorator."""

    @dataclass(frozen=True, slots=True)
    class Empty:
        """Nothing."""

    @dataclass(frozen=True, slots=True)
    class Plain:
        """Two fields, and one that is made."""

        number: int
        word: str = "one"
        made: list[int] = field(default_factory=list)

    @dataclass(frozen=True, slots=True)
    class Longer(Plain):
        """A field more, which nothing shows or compares."""

        hidden: str = field(default="", repr=False, compare=False)

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Named(Plain):
        """Fields by name, one of them derived."""

        last: int
        derived: int = field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "derived", self.last * 2)

    @dataclass(frozen=True, slots=True, eq=False)
    class Same:
        """Equal to itself alone."""

        number: int = 1

    @dataclass(frozen=True, slots=True)
    class Spoken:  # noqa: PLW1641 - the decorator gives it a hash
        """With a text and an equality that it has written itself."""

        number: int

        def __repr__(self) -> str:
            return f"number {self.number}"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Spoken) and self.number % 2 == other.number % 2

    found = {each.__name__: each for each in (Empty, Plain, Longer, Named, Same, Spoken)}
    for each in found.values():
        each.__qualname__ = each.__name__
    return found


OURS, THEIRS = shapes(frozen.dataclass), shapes(dataclasses.dataclass)
globals().update(OURS)  # where pickle looks for them

CALLS = [
    ("Empty", (), {}),
    ("Empty", (1,), {}),
    ("Plain", (), {}),
    ("Plain", (1,), {}),
    ("Plain", (1, "two"), {"made": [3]}),
    ("Plain", (1,), {"other": 2}),
    ("Longer", (1, "two", [3], "four"), {}),
    ("Named", (1,), {"last": 2}),
    ("Named", (1, "two", [3], 4), {}),
    ("Same", (), {}),
    ("Spoken", (3,), {}),
]


def said(make: Callable[[], Any]) -> object:
    """Return the text of what this makes, or the error."""
    try:
        return repr(make())
    except TypeError as error:
        return str(error)


@pytest.mark.parametrize(("name", "positional", "named"), CALLS)
def test_it_is_made_and_shown_as_there(
    name: str, positional: tuple[Any, ...], named: dict[str, Any]
) -> None:
    ours = said(lambda: OURS[name](*positional, **named))
    theirs = said(lambda: THEIRS[name](*positional, **named))

    assert ours == theirs


@pytest.mark.parametrize("name", OURS)
def test_its_signature_and_its_fields_are_those_of_there(name: str) -> None:
    ours, theirs = OURS[name], THEIRS[name]

    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
    assert [(f.name, f.type, f.kw_only) for f in dataclasses.fields(ours)] == [
        (f.name, f.type, f.kw_only) for f in dataclasses.fields(theirs)
    ]
    assert ours.__match_args__ == theirs.__match_args__
    assert ours.__slots__ == theirs.__slots__


@pytest.mark.parametrize("made", [OURS, THEIRS])
def test_equal_fields_are_equal_and_hash_alike(made: dict[str, Any]) -> None:
    plain, longer, same, spoken = (made[name] for name in ("Plain", "Longer", "Same", "Spoken"))

    assert plain(1, "a", ()) == plain(1, "a", ())
    assert hash(plain(1, "a", ())) == hash(plain(1, "a", ()))
    assert plain(1) != plain(2)
    assert plain(1) != longer(1)
    assert longer(1, hidden="a") == longer(1, hidden="b")
    assert same() != same()
    assert len({same(), same()}) == 2
    assert spoken(1) == spoken(3)
    assert made["Empty"]() == made["Empty"]()
    with pytest.raises(TypeError, match="unhashable"):
        hash(plain(1))  # of a list


@pytest.mark.parametrize("made", [OURS, THEIRS])
def test_no_field_is_assigned_to_or_deleted(made: dict[str, Any]) -> None:
    value = made["Plain"](1)

    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'number'"):
        value.number = 2
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'number'"):
        del value.number
    with pytest.raises((FrozenInstanceError, AttributeError, TypeError)):
        value.other = 2
    assert value == made["Plain"](1)


@pytest.mark.parametrize("name", ["Empty", "Plain", "Longer", "Named"])
def test_a_copy_has_its_fields(name: str) -> None:
    value = OURS[name](**{"Empty": {}, "Named": {"number": 1, "last": 2}}.get(name, {"number": 1}))

    assert pickle.loads(pickle.dumps(value)) == value  # noqa: S301 - our own
    assert copy.copy(value) == copy.deepcopy(value) == dataclasses.replace(value) == value


def test_a_replaced_field_is_another() -> None:
    assert dataclasses.replace(OURS["Plain"](1, "a"), number=2) == OURS["Plain"](2, "a")


def test_what_is_made_is_made_each_time() -> None:
    assert OURS["Plain"](1).made is not OURS["Plain"](1).made


def test_a_value_that_has_itself_is_shown_once() -> None:
    value = OURS["Plain"](1, "a", made=[])
    value.made.append(value)

    assert repr(value) == "Plain(number=1, word='a', made=[...])"


@pytest.mark.parametrize("options", [{}, {"slots": True}, {"frozen": True}])
def test_any_other_dataclass_is_that_of_there(options: dict[str, bool]) -> None:
    @frozen.dataclass(**options)
    class Other:
        """Not frozen, or without slots."""

        number: int

    assert Other(1) == Other(1)
    assert vars(Other)["__dataclass_params__"].frozen == options.get("frozen", False)
