"""How a step is retried that says so itself: its waits, and which errors no retry repairs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from leasehold.domain.manifest_parts import RetryRule
from leasehold.domain.retry import Backoff

_LONGEST: Final = timedelta(days=1)
_MAX_FACTOR: Final = 100
_MAX_NAMES: Final = 20
_MAX_NAME: Final = 200
_NAME: Final = re.compile(r"[\w.-]+(?::[\w.]+)?")
_NAMES: Final = (
    "a tuple of at most 20 classes of exceptions, their names ('ValueError', 'module:Class') "
    "or codes of errors ('rate_limited')"
)

_WAITS: Final = "a timedelta above 0, at most a day, or None"

#: Whether a value can be used, its field, the value, and what is allowed.
Check = tuple[bool, str, object, str]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How a step is retried. How often, its `max_retries` says.

    The waits are `first`, `first * factor`, `first * factor * factor`, and so on up to `max`.

    Args:
        first: the wait after the first failure; None: PIPELINE_MIN_BACKOFF_S.
        factor: how much longer each wait is than the one before; 1 to 100.
        max: no wait is longer; None: PIPELINE_MAX_BACKOFF_S, or `first` where that is longer.
        non_retryable: errors that give the run up at once, as PERMANENT_FAILURE: classes of
            exceptions, which stand for their subclasses too; their names, as `ValueError` or
            `module:Class`, so that a catalog imports no client library; or codes of errors.
    """

    first: timedelta | None = None
    factor: float = 2.0
    max: timedelta | None = None
    non_retryable: tuple[type[BaseException] | str, ...] = ()

    def checks(self) -> Iterator[Check]:
        """Yield each field with whether its value can be used, and what is allowed."""
        for field, wait in (("first", self.first), ("max", self.max)):
            fits = wait is None or (isinstance(wait, timedelta) and timedelta() < wait <= _LONGEST)
            yield fits, f"retry.{field}", _shown(wait), _WAITS
        allowed = f"a number from 1 to {_MAX_FACTOR}"
        yield _is_factor(self.factor), "retry.factor", self.factor, allowed
        if isinstance(self.first, timedelta) and isinstance(self.max, timedelta):
            allowed = f"retry.first ({self.first}) or more"
            yield self.first <= self.max, "retry.max", str(self.max), allowed
        listed: Any = self.non_retryable
        is_list = isinstance(listed, tuple | list) and len(listed) <= _MAX_NAMES
        yield is_list, "retry.non_retryable", listed, _NAMES
        for one in listed:
            yield _is_name(one), "retry.non_retryable", one, _NAMES

    def in_force(self, backoff: Backoff) -> RetryRule:
        """Return the policy as a dispatch keeps it.

        Args:
            backoff: the waits of steps without a policy: those hold that this one leaves out.
        """
        first = self.first or min(backoff.minimum, self.max or backoff.minimum)
        longest = self.max or max(first, backoff.maximum)
        return RetryRule(
            first_s=first.total_seconds(),
            factor=float(self.factor),
            max_s=longest.total_seconds(),
            non_retryable=tuple(map(_name, self.non_retryable)),
        )


def _name(listed: type[BaseException] | str) -> str:
    return listed if isinstance(listed, str) else f"{listed.__module__}:{listed.__qualname__}"


def _is_name(listed: Any) -> bool:
    if isinstance(listed, type):
        return issubclass(listed, BaseException)
    is_text = isinstance(listed, str) and len(listed) <= _MAX_NAME
    return is_text and _NAME.fullmatch(listed) is not None


def _is_factor(factor: Any) -> bool:
    is_number = isinstance(factor, int | float) and not isinstance(factor, bool)
    return is_number and math.isfinite(factor) and 1 <= factor <= _MAX_FACTOR


def _shown(value: object) -> object:
    return str(value) if isinstance(value, timedelta) else value
