"""The fields of a JSON body: each refusal names the field and says what it may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from leasehold.domain.json_text import canonical
from leasehold.errors import InvalidRequestError

_MAX_SHOWN: Final = 200

#: Every store keeps a whole number of 64 bits.
LARGEST: Final = 2**63 - 1


def check_known(given: Mapping[str, Any], known: tuple[str, ...], within: str = "") -> None:
    """Refuse a field that is not one of those known."""
    for name in given:
        if name not in known:
            allowed = f"one of the fields {', '.join(known)}"
            raise _refused(f"{within}{name}", given[name], allowed)


def word(given: Mapping[str, Any], name: str, longest: int = 128, within: str = "") -> str:
    """Return a field that is a printable text of 1 to `longest` characters."""
    value = given.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= longest or not value.isprintable():
        allowed = f"a text of 1 to {longest} printable characters"
        raise _refused(f"{within}{name}", value, allowed)
    return value


def text(given: Mapping[str, Any], name: str, within: str = "") -> str:
    """Return a field that is a text, and not an empty one."""
    value = given.get(name)
    if not isinstance(value, str) or not value:
        raise _refused(f"{within}{name}", value, "a text that is not empty")
    return value


def phrase(given: Mapping[str, Any], name: str, longest: int) -> str:
    """Return a field that is a printable text of at most `longest` characters, or missing."""
    return word(given, name, longest) if given.get(name, "") != "" else ""


def whole(given: Mapping[str, Any], name: str, least: int, most: int = LARGEST) -> int:
    """Return a field that is a whole number from `least` to `most`."""
    value = given.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise _refused(name, value, f"a whole number from {least} to {most}")
    return value


def share(given: Mapping[str, Any], name: str, within: str = "") -> float:
    """Return a field that is a number from 0 to 1."""
    value = given.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise _refused(f"{within}{name}", value, "a number from 0 to 1")
    return float(value)


def flag(given: Mapping[str, Any], name: str, within: str = "") -> bool:
    """Return a field that is true or false; false where it is missing."""
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise _refused(f"{within}{name}", value, "true or false")
    return value


def one_of(given: Mapping[str, Any], name: str, known: tuple[str, ...]) -> str:
    """Return a field that is one of those known; the first where it is missing."""
    return chosen({name: known[0], **given}, name, known)


def chosen(given: Mapping[str, Any], name: str, known: tuple[str, ...], within: str = "") -> str:
    """Return a field that is there and is one of those known."""
    value = given.get(name)
    if value not in known:
        raise _refused(f"{within}{name}", value, ", ".join(known))
    return str(value)


def labels(given: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the field `labels`, texts by texts; what a label may be, the service checks."""
    value = given.get("labels")
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise _refused("labels", value, '{"key": "value"}')
    return value


def part(given: Mapping[str, Any], name: str, known: tuple[str, ...]) -> Mapping[str, Any]:
    """Return a field that is an object with some of the fields known."""
    value = given.get(name)
    if not isinstance(value, dict):
        raise _refused(name, value, f"an object with the fields {', '.join(known)}")
    check_known(value, known, f"{name}.")
    return value


def json_text(given: Mapping[str, Any], name: str, within: str = "") -> str:
    """Return the JSON text of a field, which must be there and may be null."""
    if name not in given:
        raise InvalidRequestError(field=f"{within}{name}", value="missing", allowed="a JSON value")
    try:
        return canonical(given[name])
    except (ValueError, RecursionError) as error:  # 1e400 is JSON, and no number that can be kept
        raise _refused(f"{within}{name}", str(error), "a JSON value") from None


def _refused(field: str, value: object, allowed: str) -> InvalidRequestError:
    shown = value if not isinstance(value, str | dict | list) else str(value)[:_MAX_SHOWN]
    return InvalidRequestError(field=field[:_MAX_SHOWN], value=shown, allowed=allowed)
