"""The answer to each request that is refused or fails, of every function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leasehold.api.response_model import ResponseModel


class ErrorInfo(ResponseModel):
    """What is wrong: a code for programs, a sentence for people, and the facts in it."""

    code: str | None = None
    message: str
    details: Mapping[str, Any] = {}


class ErrorResponse(ResponseModel):
    """`{"error": {"code", "message", "details"}}`, with a status of 400 or above."""

    error: ErrorInfo
