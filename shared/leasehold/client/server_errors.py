"""Errors in a server's answers, as the classes that a store raises."""

from __future__ import annotations

from leasehold.api.errors import ErrorInfo
from leasehold.errors import LeaseholdError, restored_error


def error_of(info: ErrorInfo) -> LeaseholdError | None:
    """Return the error in an answer; None: this version has none of that code."""
    return restored_error(info.code, info.message, info.details)
