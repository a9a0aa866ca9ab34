"""How values and errors are answered over HTTP."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import flask
import pydantic_core

from leasehold.api.errors import ErrorInfo, ErrorResponse
from leasehold.errors import LeaseholdError

_LOG: Final = logging.getLogger("leasehold.web")

#: A message that repeats what it was sent is cut here.
_LONGEST_MESSAGE: Final = 1000

#: What a caller can do about an error, by its code; everything else is a 400.
_STATUS: Final[Mapping[str, int]] = {
    "unknown_pipeline": 404,
    "unknown_run": 404,
    "unknown_key": 404,
    "nothing_to_claim": 404,
    "idempotency_key_reused": 409,
    "not_allowed": 409,
    "state_changed": 409,
    "already_recreated": 409,
    "lease_held": 409,
    "lease_lost": 409,
    "too_large": 413,
    "unreadable_run": 500,
    "missing_extra": 500,
    "store_unavailable": 503,
}


def respond(value: Any, status: int = 200, *, exclude_none: bool = False) -> flask.Response:
    """Answer with JSON."""
    body = pydantic_core.to_json(value, by_alias=True, exclude_none=exclude_none, fallback=str)
    return flask.Response(body, status=status, mimetype="application/json")


def refuse(
    status: int, code: str, message: str, details: Mapping[str, Any] | None = None
) -> flask.Response:
    """Answer with an error: `{"error": {"code", "message", "details"}}`."""
    cut = message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE]}…"
    error = ErrorInfo(code=code, message=cut, details=details or {})
    return respond(ErrorResponse(error=error), status)


def refuse_for(error: LeaseholdError) -> flask.Response:
    """Answer with an error of Leasehold."""
    return refuse(_STATUS.get(error.code, 400), error.code, error.message, error.details)


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
        if error.retryable:
            _LOG.warning("%s", error)
        return refuse_for(error)
    except Exception:  # noqa: BLE001 - logged whole; the caller gets an answer
        _LOG.exception("a request failed")
        return refuse(500, "internal", "Something failed here; the log has it.")
