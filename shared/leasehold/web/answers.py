"""How values and errors are answered over HTTP."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import flask
import pydantic_core

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
    "store_unavailable": 503,
}


def answer(value: Any, status: int = 200) -> flask.Response:
    """Answer with JSON."""
    body = pydantic_core.to_json(value, by_alias=True, fallback=str)
    return flask.Response(body, status=status, mimetype="application/json")


def refusal(status: int, code: str, message: str, details: Any = None) -> flask.Response:
    """Answer with an error: `{"error": {"code", "message", "details"}}`."""
    said = message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE]}…"
    return answer({"error": {"code": code, "message": said, "details": details or {}}}, status)


def refusal_of(error: LeaseholdError) -> flask.Response:
    """Answer with an error of Leasehold."""
    details = pydantic_core.from_json(pydantic_core.to_json(error.details, fallback=str))
    return refusal(_STATUS.get(error.code, 400), error.code, error.message, details)


def guarded(call: Callable[[], flask.Response]) -> flask.Response:
    """Answer with what `call` answers, or with the error it raises; never with a traceback."""
    try:
        return call()
    except LeaseholdError as error:
        if error.retryable:
            _LOG.warning("%s", error)
        return refusal_of(error)
    except Exception:  # noqa: BLE001 - logged whole; the caller gets an answer
        _LOG.exception("a request failed")
        return refusal(500, "internal", "Something failed here; the log has it.")
