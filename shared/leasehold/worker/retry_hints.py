"""What an error says of the next attempt: that there is to be none, or when it may begin."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from leasehold.domain.manifest_parts import RetryRule
from leasehold.domain.retry import MAX_RETRY_AFTER
from leasehold.errors import AgentClientError, LeaseholdError, PermanentError
from leasehold.worker.error_chain import leaves_of


def is_permanent(error: BaseException, retry: RetryRule | None = None) -> bool:
    """Return whether no retry can repair the error: it says so, or the policy of its step does.

    One error of a group decides for all of them: it would be raised again.
    """
    listed = frozenset(() if retry is None else retry.non_retryable)
    try:
        return any(
            isinstance(one, PermanentError) or _is_listed(one, listed)
            for one in (error, *leaves_of(error))
        )
    except Exception:  # noqa: BLE001 - a class of the user's may do anything when it is looked at
        return False


def retry_after_of(error: BaseException) -> float | None:
    """Return in how many seconds the error says that it may be tried again; None: it says nothing.

    What is no time is none, and longer than a day is a day. Of a group, the longest counts.
    """
    waits = [seconds for one in leaves_of(error) if (seconds := _retry_after(one)) is not None]
    return max(waits, default=None)


def _is_listed(error: BaseException, listed: frozenset[str]) -> bool:
    return any(name in listed for name in _names(error)) or any(
        isinstance(error, kind) for name in listed for kind in _class_at(name)
    )


def _class_at(path: str) -> Iterator[type]:
    """Yield the class at `module:Class`, which need not be where the class was defined.

    A module that is not imported has raised nothing.
    """
    module, _, name = path.partition(":")
    found = getattr(sys.modules.get(module), name, None) if name else None
    if isinstance(found, type):
        yield found


def _names(error: BaseException) -> Iterator[str]:
    """Yield all that a policy may name the error by: its code, its class, and those above it."""
    if isinstance(error, AgentClientError | PermanentError | LeaseholdError):
        code: Any = error.code
        if isinstance(code, str):
            yield code
    for kind in type(error).__mro__[:-1]:
        yield kind.__qualname__
        yield f"{kind.__module__}.{kind.__qualname__}"
        yield f"{kind.__module__}:{kind.__qualname__}"


def _retry_after(error: BaseException) -> float | None:
    if not isinstance(error, AgentClientError):
        return None
    retry_after: Any = error.retry_after
    try:
        seconds = (
            retry_after.total_seconds()
            if isinstance(retry_after, timedelta)
            else float(retry_after)
        )
    except Exception:  # noqa: BLE001 - None, a header that is a date, whatever was passed on
        return None
    return min(seconds, MAX_RETRY_AFTER.total_seconds()) if seconds > 0 else None  # NaN is not
