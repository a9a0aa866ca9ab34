"""Errors in a server's answers, as the classes that a store raises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from leasehold import errors
from leasehold.api.errors import ErrorInfo
from leasehold.errors import LeaseholdError

_BY_CODE: Final[Mapping[str, type[LeaseholdError]]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, LeaseholdError) and kind is not LeaseholdError
}


def error_of(info: ErrorInfo) -> LeaseholdError | None:
    """Return the error in an answer; None: this version has none of that code."""
    kind = _BY_CODE.get(info.code or "")
    return None if kind is None else kind.restored(info.message, info.details)
