"""Forms: the body of a row as a form has it, and the token that only a page of this server knows.

The token is that of a cookie, which no page of another origin can read, masked anew for each page:
a page is compressed, and what is in it each time could be guessed from its length.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qs

from leasehold.api.call_row import AnyRow
from leasehold.api.request_model import fields_of
from leasehold.api.runs import RunsQuery
from leasehold.domain.json_text import json_value
from leasehold.domain.timestamps import stamp
from leasehold.errors import InvalidRequestError

_SECRET_BYTES: Final = 16
_MAX_PROBLEM_CHARS: Final = 100
_MAX_OVERRIDE_HOURS: Final = 24 * 366
#: Fields of a list, and not of its filter.
_OF_LISTS: Final = ("limit", "pageToken")


def new_secret() -> str:
    """Return what the cookie of a browser holds."""
    return secrets.token_hex(_SECRET_BYTES)


def is_secret(text: str) -> bool:
    """Return whether a cookie holds what `new_secret` makes."""
    return len(text) == 2 * _SECRET_BYTES and _bytes(text) is not None


def token_of(secret: str) -> str:
    """Return the secret of a cookie, masked, as a form sends it."""
    mask = secrets.token_bytes(_SECRET_BYTES)
    return (mask + _xor(mask, bytes.fromhex(secret))).hex()


def is_token_of(token: str, secret: str) -> bool:
    """Return whether a form was made for the browser that has the secret."""
    found = _bytes(token)
    if found is None or len(found) != 2 * _SECRET_BYTES or not is_secret(secret):
        return False
    mask, masked = found[:_SECRET_BYTES], found[_SECRET_BYTES:]
    return hmac.compare_digest(_xor(mask, masked), bytes.fromhex(secret))


def body_of(row: AnyRow, form: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """Return the body of a row as its form has it; an empty field is left out.

    Raises:
        InvalidRequestError: a field is not what it may be.
    """
    if row.takes is None:
        return {}
    names = {one.name for one in fields_of(row.takes).values()}
    body: dict[str, Any] = {}
    for name, text in form.items():
        if name in names and text.strip():
            body[name] = _FIELDS.get(name, str)(text.strip())
    if "hours" in form and "until" in names:
        body["until"] = stamp(now + timedelta(hours=_hours(form["hours"])))
    return body


def _filter(text: str) -> dict[str, Any]:
    """Return the filter of an address, with the types that a body has."""
    given = {name: found if len(found) > 1 else found[0] for name, found in parse_qs(text).items()}
    wanted = RunsQuery.read(given).to_json()
    return {name: value for name, value in wanted.items() if name not in _OF_LISTS}


def _number(name: str, read: Callable[[str], float]) -> Callable[[str], float]:
    def number(text: str) -> float:
        try:
            return read(text)
        except ValueError:
            raise InvalidRequestError(field=name, value=text[:100], allowed="a number") from None

    return number


def json_field(name: str, text: str) -> Any:
    """Return the JSON value that a person typed into a field, or raise InvalidRequestError."""
    try:
        return json_value(text)
    except ValueError as error:
        allowed = f"JSON ({str(error)[:_MAX_PROBLEM_CHARS]})"
        raise InvalidRequestError(field=name, value=text[:100], allowed=allowed) from None


def _hours(text: str) -> float:
    hours = _number("hours", float)(text)
    if not 0 < hours <= _MAX_OVERRIDE_HOURS:
        raise InvalidRequestError(field="hours", value=text[:100], allowed="hours, at most a year")
    return hours


def _dollars(text: str) -> dict[str, float]:
    return {"usd": _number("budget", float)(text)}


def _flag(text: str) -> bool:
    return text == "true"


#: How the text of a field is read; any other is a text.
_FIELDS: Final[Mapping[str, Callable[[str], Any]]] = {
    "generation": _number("generation", int),
    "limit": _number("limit", int),
    "deadlineS": _number("deadlineS", int),
    "timeoutS": _number("timeoutS", float),
    "budget": _dollars,
    "anew": _flag,
    "all": _flag,
    "dryRun": _flag,
    "keepPartial": _flag,
    "input": partial(json_field, "input"),
    "output": partial(json_field, "output"),
    "value": partial(json_field, "value"),
    "filter": _filter,
}


def _bytes(text: str) -> bytes | None:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return None


def _xor(mask: bytes, text: bytes) -> bytes:
    return bytes(one ^ other for one, other in zip(mask, text, strict=True))
