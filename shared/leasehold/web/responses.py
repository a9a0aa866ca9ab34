"""How values and errors are answered over HTTP."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import flask
import pydantic_core

from leasehold.api.errors import ErrorInfo, ErrorResponse, status_of
from leasehold.errors import LeaseholdError

_LOG: Final = logging.getLogger("leasehold.web")

#: A message that repeats what it was sent is cut here.
_LONGEST_MESSAGE: Final = 1000

_OUTAGE: Final = 503


def respond(value: Any, status: int = 200, *, exclude_none: bool = False) -> flask.Response:
    """Answer with JSON."""
    body = pydantic_core.to_json(value, by_alias=True, exclude_none=exclude_none, fallback=str)
    return respond_json_text(body, status)


def respond_json_text(text: str | bytes, status: int = 200) -> flask.Response:
    """Answer with what is JSON text already."""
    answer = flask.Response(text, status=status, mimetype="application/json")
    answer.headers["X-Content-Type-Options"] = "nosniff"
    return answer


def refuse(
    status: int, code: str, message: str, details: Mapping[str, Any] | None = None
) -> flask.Response:
    """Answer with an error: `{"error": {"code", "message", "details"}}`."""
    cut = message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE]}…"
    error = ErrorInfo(code=code, message=cut, details=details or {})
    return respond(ErrorResponse(error=error), status)


def refuse_path(path: str, known: Iterable[str]) -> flask.Response:
    """Answer that nothing is served at a path; name those that are."""
    names = ", ".join(known)
    return refuse(404, "not_found", f"{path} is not served here; known: {names}.")


def refuse_for(error: LeaseholdError) -> flask.Response:
    """Answer with an error of Leasehold."""
    return refuse(status_of(error.code), error.code, error.message, error.details)


def refuse_method(path: str, allowed: str) -> flask.Response:
    """Answer that a path takes other methods."""
    refused = refuse(405, "method_not_allowed", f"{path} takes {allowed}.")
    refused.headers["Allow"] = allowed
    return refused


def guarded(call: Callable[[], flask.Response]) -> flask.Response:
    """Answer with what `call` answers, or with the error it raises; never with a traceback."""
    try:
        return call()
    except LeaseholdError as error:
        if error.retryable and status_of(error.code) == _OUTAGE:  # a run to wait for is no trouble
            _LOG.warning("%s", error)
        return refuse_for(error)
    except Exception:  # noqa: BLE001 - logged whole; the caller gets an answer
        _LOG.exception("a request failed")
        return refuse(500, "internal", "Something failed here; the log has it.")
