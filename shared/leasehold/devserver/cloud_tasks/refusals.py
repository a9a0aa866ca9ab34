"""The errors of Google's APIs, as far as this one answers with them."""

from __future__ import annotations

from typing import Any, Final

_HTTP: Final = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "INTERNAL": 500,
}

#: A message that repeats what it was sent is cut here.
_LONGEST: Final = 1000


class RefusedError(Exception):
    """A request that is answered with an error.

    Args:
        status: the canonical name, such as NOT_FOUND.
        message: the sentence for people.
    """

    def __init__(self, status: str, message: str) -> None:
        cut = message if len(message) <= _LONGEST else f"{message[:_LONGEST]}…"
        said = "".join(letter if letter.isprintable() else " " for letter in cut)
        super().__init__(said)
        self.status = status
        self.message = said

    @property
    def http(self) -> int:
        """The HTTP status that goes with it."""
        return _HTTP[self.status]

    def body(self) -> dict[str, Any]:
        """Return the error in the JSON format of Google's APIs."""
        return {"error": {"code": self.http, "message": self.message, "status": self.status}}


def invalid(message: str) -> RefusedError:
    """Return the refusal of a request that could never be right."""
    return RefusedError("INVALID_ARGUMENT", message)


def missing(what: str) -> RefusedError:
    """Return the refusal of a request that names something that is not there."""
    return RefusedError("NOT_FOUND", f"The {what} does not exist.")


def exists(what: str) -> RefusedError:
    """Return the refusal to make something twice."""
    return RefusedError("ALREADY_EXISTS", f"The {what} already exists.")
