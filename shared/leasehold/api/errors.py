"""The answer to each request that is refused or fails, of every function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import field_serializer
from pydantic.alias_generators import to_camel

from leasehold.api.request_model import ResponseModel

#: What a caller can do about an error, by its code; everything else is a 400.
_STATUS: Final[Mapping[str, int]] = {
    "unauthenticated": 401,
    "caller_not_allowed": 403,
    "unknown_pipeline": 404,
    "unknown_run": 404,
    "unknown_step": 404,
    "unknown_file": 404,
    "unknown_key": 404,
    "unknown_delivery": 404,
    "unknown_signal": 404,
    "nothing_to_claim": 404,
    "idempotency_key_reused": 409,
    "run_being_purged": 409,
    "delivery_claimed": 409,
    "not_allowed": 409,
    "signal_not_awaited": 409,
    "signal_id_reused": 409,
    "budget_used_up": 409,
    "run_unfinished": 409,
    "run_not_completed": 409,
    "step_not_completed": 409,
    "state_changed": 409,
    "already_recreated": 409,
    "catalog_misfit": 409,
    "lease_held": 409,
    "lease_lost": 409,
    "call_varies": 409,
    "output_gone": 410,
    "artifact_not_found": 410,
    "too_large": 413,
    "file_too_large": 413,
    "body_encoding": 415,
    "too_many_attempts": 429,
    "unreadable_delivery": 500,
    "unreadable_run": 500,
    "unreadable_schedule": 500,
    "missing_extra": 500,
    "certificates_unavailable": 500,  # a 503 would have Cloud Tasks throttle the whole queue
    "store_unavailable": 503,
    "not_ready": 503,
    "metrics_unavailable": 503,
}


class ErrorInfo(ResponseModel):
    """What is wrong: a code for programs, a sentence for people, and the facts in it."""

    code: str | None = None
    message: str
    details: Mapping[str, Any] = {}

    @field_serializer("details")
    def _as_sent(self, details: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the facts by names as all others of the API have them; a client maps them back."""
        return {to_camel(name): value for name, value in details.items()}


class ErrorResponse(ResponseModel):
    """`{"error": {"code", "message", "details"}}`, with a status of 400 or above."""

    error: ErrorInfo


def status_of(code: str) -> int:
    """Return the status with which an error of Leasehold is answered."""
    return _STATUS.get(code, 400)
