"""The errors of Google's APIs, as far as this one answers with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

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
_MAX_MESSAGE: Final = 1000


class ApiError(Exception):
    """A request that is answered with an error.

    Args:
        status: the canonical name, such as NOT_FOUND.
        message: the sentence for people.
        details: what programs read of it, as JSON of the messages of `google.rpc`.
    """

    def __init__(self, status: str, message: str, *details: Mapping[str, Any]) -> None:
        cut = message if len(message) <= _MAX_MESSAGE else f"{message[:_MAX_MESSAGE]}…"
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
