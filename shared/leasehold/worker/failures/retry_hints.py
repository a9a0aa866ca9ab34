"""What an error says of the next attempt: that there is to be none, or when it may begin."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from itertools import islice
from typing import Any, Final

from leasehold.domain.manifest_parts import RetryRule
from leasehold.domain.retry import MAX_RETRY_AFTER
from leasehold.errors import AgentClientError, LeaseholdError, PermanentError
from leasehold.worker.failures.error_chain import MAX_GROUP_LEVELS, came_from, leaves_of

#: How many errors of a chain, and how many headers of an answer, are looked at.
_MAX_ERRORS_SEARCHED: Final = 100
#: The code of an error that says that a provider takes no more for now.
RATE_LIMITED: Final = "rate_limited"
#: Where the errors of client libraries have the status of an answer.
_STATUSES: Final = ("status_code", "status", "code")
_TOO_MANY: Final = 429
#: The longest text that may be a time.
_MAX_TIME_CHARS: Final = 100


def is_permanent(error: BaseException, retry: RetryRule | None = None) -> bool:
    """Return whether no retry can repair the error: it says so, or the policy of its step does.

    One error of a group decides for all of them: it would be raised again.
    """
    listed = frozenset(() if retry is None else retry.non_retryable)
    try:
        return any(
            isinstance(one, PermanentError)
            or (isinstance(one, LeaseholdError) and one.permanent)
            or _is_listed(one, listed)
            for one in (error, *leaves_of(error))
        )
    except Exception:  # noqa: BLE001 - a class of the user's may do anything when it is looked at
        return False


def is_mistake(error: BaseException) -> bool:
    """Return whether the handler uses its context wrongly: one error of a group says so for all."""
    known = (one for one in (error, *leaves_of(error)) if isinstance(one, LeaseholdError))
    return any(one.is_mistake for one in known)


def retry_after_of(error: BaseException) -> float | None:
    """Return in how many seconds the error says that it may be tried again; None: it says nothing.

    The error, or its nearest cause, has `retry_after` of an `AgentClientError`, or the header
    `Retry-After` of a provider's answer (`response.headers`, as in httpx, openai and requests). In
    a group, the longest counts. Any other value counts as absent, and more than a day as a day.
    """
    return _wait_of(error, set(), 0)


def is_rate_limited(error: BaseException) -> bool:
    """Return whether a provider takes no more for now: the error, or one it came from, is its 429.

    So is an `AgentClientError` of the code `rate_limited`. Of a group, each member has to be one.
    """
    try:
        return _is_rate_limited(error, set(), 0)
    except Exception:  # noqa: BLE001 - a class of the user's may do anything when it is looked at
        return False


def wait_of_rate_limit(error: BaseException) -> float | None:
    """Return for how many seconds a provider takes no more; None: it does, or does not say."""
    return retry_after_of(error) if is_rate_limited(error) else None


def _is_rate_limited(error: BaseException, seen: set[int], depth: int) -> bool:
    current: BaseException | None = error
    while current is not None and id(current) not in seen and len(seen) < _MAX_ERRORS_SEARCHED:
        seen.add(id(current))
        if isinstance(current, BaseExceptionGroup):
            members = list(leaves_of(current)) if depth < MAX_GROUP_LEVELS else []
            return bool(members) and all(_is_rate_limited(one, seen, depth + 1) for one in members)
        if _is_limit(current):
            return True
        current, _ = came_from(current)
    return False


def _is_limit(error: BaseException) -> bool:
    if isinstance(error, AgentClientError) and error.code == RATE_LIMITED:
        return True
    answer = getattr(error, "response", None)
    told = [getattr(error, name, None) for name in _STATUSES]
    told += [getattr(answer, name, None) for name in _STATUSES]
    return any(isinstance(one, int) and one == _TOO_MANY for one in told)


def _wait_of(error: BaseException, seen: set[int], depth: int) -> float | None:
    current: BaseException | None = error
    while current is not None and id(current) not in seen and len(seen) < _MAX_ERRORS_SEARCHED:
        seen.add(id(current))
        if (seconds := _retry_after(current, seen, depth)) is not None:
            return seconds
        current, _ = came_from(current)
    return None


def _retry_after(error: BaseException, seen: set[int], depth: int) -> float | None:
    """Return what the error itself, or the members of the group that it is, ask for."""
    try:
        if isinstance(error, BaseExceptionGroup):
            members = leaves_of(error) if depth < MAX_GROUP_LEVELS else iter(())
            waits = [_wait_of(one, seen, depth + 1) for one in members]
            return max((wait for wait in waits if wait is not None), default=None)
        asked = error.retry_after if isinstance(error, AgentClientError) else None
        return _seconds(asked) or _header_seconds(error)
    except Exception:  # noqa: BLE001 - a class of the user's may do anything when it is looked at
        return None


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


def _header_seconds(error: BaseException) -> float | None:
    """Return the seconds of the header of the answer that the error has, or has the headers of."""
    answer = getattr(error, "response", None)
    headers = getattr(error if answer is None else answer, "headers", None)
    if headers is None:
        return None
    # from the date of the answer on, so that it does not count how a clock is set here
    return _seconds(_header(headers, "retry-after"), _date(_header(headers, "date")))


def _header(headers: Any, name: str) -> str | None:
    """Return a header whose name is written in any case; None: it is not there, or no text."""
    found = headers.get(name)
    if found is None:
        pairs = islice(headers.items(), _MAX_ERRORS_SEARCHED)
        found = next((value for key, value in pairs if str(key).lower() == name), None)
    text = found.decode("latin-1") if isinstance(found, bytes) else found
    return text if isinstance(text, str) and len(text) <= _MAX_TIME_CHARS else None


def _seconds(asked: Any, now: datetime | None = None) -> float | None:
    """Return a time as seconds above 0: a number, as text too, a timedelta, or an HTTP date."""
    try:
        if isinstance(asked, timedelta):
            seconds = asked.total_seconds()
        elif date := _date(asked):
            # of the world's time: no clock of a test moves a provider
            now = now or datetime.now(UTC)  # noqa: TID251 - see above
            seconds = (date - now).total_seconds()
        else:
            seconds = float(asked)
    except Exception:  # noqa: BLE001 - None, whatever was passed on
        return None
    return min(seconds, MAX_RETRY_AFTER.total_seconds()) if seconds > 0 else None  # NaN is not


def _date(text: Any) -> datetime | None:
    if not isinstance(text, str) or not 0 < len(text) <= _MAX_TIME_CHARS:
        return None
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
