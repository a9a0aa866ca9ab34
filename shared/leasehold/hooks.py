"""A mark for methods that only Leasehold calls, on objects that users have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_MARK: Final = "is_hook"


def hook(method: F) -> F:
    """Mark a method that users do not call: the reference leaves it out."""
    setattr(method, _MARK, True)
    return method


def is_hook(method: object) -> bool:
    """Return whether a method is marked so."""
    return getattr(method, _MARK, False) is True
