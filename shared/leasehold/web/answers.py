"""How values and errors are answered over HTTP."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import flask
import pydantic_core

from leasehold.errors import InvalidRequestError, LeaseholdError, TooLargeError

_LOG: Final = logging.getLogger("leasehold.web")

#: A body larger than this is refused unread: an input of 1 MiB, and what stands around it.
BODY_BYTES: Final = 1024 * 1024 + 64 * 1024

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
    return answer({"error": {"code": code, "message": message, "details": details or {}}}, status)


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


def json_body(request: flask.Request, limit: int = BODY_BYTES) -> Mapping[str, Any]:
    """Return the JSON object of the body, of at most `limit` bytes; none is an empty one.

    Raises:
        TooLargeError, InvalidRequestError: it is too large, or no JSON object.
    """
    size = request.content_length
    if size is not None and size > limit:
        raise TooLargeError(what="the body", size=size, limit=limit)
    text = request.stream.read(limit + 1) if size is None else request.get_data()
    if len(text) > limit:
        raise TooLargeError(what="the body", size=len(text), limit=limit)
    try:
        value = pydantic_core.from_json(text, allow_inf_nan=False) if text.strip() else {}
    except ValueError as error:
        raise InvalidRequestError(
            field="body", value=str(error)[:200], allowed="a JSON object"
        ) from None
    if not isinstance(value, dict):
        raise InvalidRequestError(field="body", value=type(value).__name__, allowed="a JSON object")
    return value
