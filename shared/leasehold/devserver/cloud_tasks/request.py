"""What a request says: its address, its query, and its JSON, read field by field and strictly."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import flask

from leasehold.errors import InvalidRequestError, TooLargeError
from leasehold.web.entry import json_body

# The errors of Google's APIs, as far as this one answers with them.


_HTTP_STATUS: Final = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
}

#: A message that repeats what it was sent is cut here.
_MAX_MESSAGE_CHARS: Final = 1000


class ApiError(Exception):
    """A request that is answered with an error.

    Args:
        status: the canonical name, such as NOT_FOUND.
        message: the sentence for people.
        details: what programs read of it, as JSON of the messages of `google.rpc`.
    """

    def __init__(self, status: str, message: str, *details: Mapping[str, Any]) -> None:
        cut = message if len(message) <= _MAX_MESSAGE_CHARS else f"{message[:_MAX_MESSAGE_CHARS]}…"
        printable = "".join(letter if letter.isprintable() else " " for letter in cut)
        super().__init__(printable)
        self.status = status
        self.message = printable
        self.details = details

    @property
    def http_status(self) -> int:
        """The HTTP status that goes with it."""
        return _HTTP_STATUS[self.status]

    def body(self) -> dict[str, Any]:
        """Return the error in the JSON format of Google's APIs."""
        error = {"code": self.http_status, "message": self.message, "status": self.status}
        return {"error": error | ({"details": list(self.details)} if self.details else {})}


def invalid(message: str) -> ApiError:
    """Return the error for a request that could never be right."""
    return ApiError("INVALID_ARGUMENT", message)


def not_found(resource: str) -> ApiError:
    """Return the error for a request that names a resource that does not exist."""
    return ApiError("NOT_FOUND", f"The {resource} does not exist.")


def already_exists(resource: str) -> ApiError:
    """Return the error for a request to create a resource twice."""
    return ApiError("ALREADY_EXISTS", f"The {resource} already exists.")


def existed_too_recently(resource: str) -> ApiError:
    """Return the error for a request to create what was deleted a short while ago."""
    message = f"The {resource} cannot be created because one with this name existed too recently."
    return ApiError("FAILED_PRECONDITION", message)


#: The largest request that is accepted.
MAX_REQUEST_BYTES: Final = 4 * 2**20

#: How much of a task is in an answer.
VIEWS: Final = {0: "VIEW_UNSPECIFIED", 1: "BASIC", 2: "FULL"}

_MAX_PAGE_TASKS: Final = 1000
_QUEUE: Final = re.compile(r"projects/[^/]+/locations/[^/]+/queues/[A-Za-z0-9-]{1,100}", re.ASCII)
_DURATION: Final = re.compile(r"-?\d{1,9}(\.\d{1,9})?s", re.ASCII)


def check_queue_name(name: str) -> str:
    """Return the full name of a queue, or refuse it."""
    if not _QUEUE.fullmatch(name):
        raise invalid(
            "Queue name must be formatted: 'projects/<PROJECT_ID>/locations/<LOCATION_ID>/queues/"
            f"<QUEUE_ID>', its ID 1 to 100 of [A-Za-z0-9-]; it is '{name}'."
        )
    return name


def body() -> Any:
    """Return the JSON of the request, or refuse it."""
    if "Transfer-Encoding" in flask.request.headers:
        raise invalid("A body in chunks is not accepted here; send it with its Content-Length.")
    try:
        return json_body(flask.request, MAX_REQUEST_BYTES)
    except TooLargeError:
        raise invalid(
            f"Request payload size exceeds the limit: {MAX_REQUEST_BYTES} bytes."
        ) from None
    except InvalidRequestError as error:
        raise invalid(f"Invalid JSON payload received. {error.message}") from None


def wants_integers() -> bool:
    """Return whether the caller wants enums as integers, and not as names."""
    return "enum-encoding=int" in flask.request.args.get("$alt", "")


def view() -> str:
    """Return the view of tasks that the caller wants."""
    wanted = flask.request.args.get("responseView", "BASIC")
    return next((name for number, name in VIEWS.items() if wanted == str(number)), wanted)


def page(key: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the page that the caller wants: its token is the last name of the page before."""
    args = flask.request.args
    size = args.get("pageSize", 0, type=int)
    size = size if 0 < size < _MAX_PAGE_TASKS else _MAX_PAGE_TASKS
    rest = [row for row in rows if row["name"] > args.get("pageToken", "")]
    more = {"nextPageToken": rest[size - 1]["name"]} if len(rest) > size else {}
    return {key: rest[:size], **more}


class JsonObject:
    """A JSON object of a request; each field is read once, and what is left is unknown.

    Args:
        value: what is to be an object.
        path: where it is in the request, for the errors.
    """

    def __init__(self, value: Any, path: str) -> None:
        if not isinstance(value, dict):
            raise invalid(f"Invalid value at '{path}': a JSON object is needed.")
        self._left = dict(value)
        self._path = path

    def refuse_unknown(self, *ignored: str) -> None:
        """Refuse the fields that were not read, but for those that are to be ignored."""
        for name in self._left:
            if name not in ignored:
                raise invalid(
                    f'Invalid JSON payload received. Unknown name "{name}" at '
                    f"'{self._path}': Cannot find field."
                )

    def _invalid(self, name: str, value: Any, needed: str) -> ApiError:
        """Return the error for a value."""
        return invalid(f"Invalid value at '{self._path}.{name}' ({needed}), {value!r}")

    def object(self, name: str) -> JsonObject | None:
        """Return an object; None when it is missing."""
        value = self._left.pop(name, None)
        return None if value is None else JsonObject(value, f"{self._path}.{name}")

    def string(self, name: str) -> str:
        """Return a string; empty when it is missing."""
        value = self._left.pop(name, "")
        if not isinstance(value, str):
            raise self._invalid(name, value, "TYPE_STRING")
        return value

    def strings(self, name: str) -> dict[str, str]:
        """Return a map of strings; empty when it is missing."""
        value = self._left.pop(name, {})
        is_map = isinstance(value, dict) and all(isinstance(it, str) for it in value.values())
        if not is_map:
            raise self._invalid(name, value, "a map of strings")
        return dict(value)

    def number(self, name: str, default: float, low: float, high: float) -> float:
        """Return a number of this range."""
        value = self._left.pop(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._invalid(name, value, "a number")
        if not low <= value <= high:
            raise self._invalid(name, value, f"{low} to {high}")
        return value

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        """Return an integer of this range."""
        value = self.number(name, default, low, high)
        if value != int(value):
            raise self._invalid(name, value, "TYPE_INT32")
        return int(value)

    def enum(self, name: str, names: Mapping[int, str], default: str) -> str:
        """Return the name of an enum's value, which may come as a name or as an integer."""
        value = self._left.pop(name, default)
        known = names.get(value) if isinstance(value, int) else value
        if known not in names.values():
            raise self._invalid(name, value, "TYPE_ENUM")
        return str(known)

    def bytes_of(self, name: str) -> bytes:
        """Return the bytes of a base64 string, in its plain or its URL form, padded or not."""
        text = self.string(name)
        plain = text.rstrip("=").translate(str.maketrans("-_", "+/"))
        try:
            return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
        except (binascii.Error, ValueError):
            raise self._invalid(name, text[:40], "TYPE_BYTES") from None

    def duration(self, name: str, default: timedelta) -> timedelta:
        """Return a time span such as 20s or 0.100s."""
        if name not in self._left:
            return default
        text = self.string(name)
        if not _DURATION.fullmatch(text):
            raise self._invalid(name, text, "google.protobuf.Duration")
        return timedelta(seconds=float(text[:-1]))

    def timestamp(self, name: str) -> datetime | None:
        """Return a moment in UTC; None when it is missing."""
        if name not in self._left:
            return None
        text = self.string(name)
        try:
            moment = datetime.fromisoformat(text)
            if moment.tzinfo is not None:
                return moment.astimezone(UTC)
        except (ValueError, OverflowError):
            pass
        raise self._invalid(name, text, "google.protobuf.Timestamp")
