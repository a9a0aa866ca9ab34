"""An override: limits that a person set for a step type until a time, as a store keeps them.

People edit these documents in the Firestore console too, so each is read as a stranger's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from leasehold.domain.deadlines import MAX_DEADLINE
from leasehold.domain.printable import printable
from leasehold.domain.step_pause import MAX_WHY_CHARS
from leasehold.domain.stored import Document, Ref, UnreadableDocument
from leasehold.domain.timestamps import TIME_OR_DATE, time_or_date
from leasehold.frozen import dataclass

#: The source of a value that an override gives.
OVERRIDE: Final = "override"

#: How many overrides are read: those with the first ids.
MAX_OVERRIDES_READ: Final = 1000

#: The most seconds that either limit can have.
MAX_LIMIT_S: Final = round(MAX_DEADLINE.total_seconds())
_MIN_LIMIT_S: Final = 0.001

_LIMITS: Final = ("timeoutS", "deadlineS")
_FIELDS: Final = (*_LIMITS, "until", "why", "setBy", "setAt")
_MAX_VALUE_SHOWN_CHARS: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """The limits that a person set for a step type.

    Args:
        timeout: in place of the agent timeout; None: as it would be without.
        deadline: in place of the dispatch deadline, whole seconds; None: as it would be without.
        until: when it ends, by the store's time.
        why: the reason.
        set_by: who did it; empty: the document does not say.
        set_at: when; None: as above.
    """

    timeout: timedelta | None
    deadline: timedelta | None
    until: datetime
    why: str = ""
    set_by: str = ""
    set_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class StoredOverride:
    """A document of `overrides`.

    Args:
        step_type: its id; there may be no such step.
        override: what it says; None: it cannot be used.
        refused: why not, in a sentence; empty where it can.
        is_over: whether its time has passed.
    """

    step_type: str
    override: Override | None
    refused: str = ""
    is_over: bool = False


class _UnusableError(Exception):
    """A field is not what it may be; the message is the sentence that says so."""


def override_ref(step_type: str) -> Ref:
    """Return where the override of a step type is stored."""
    return Ref("overrides", step_type)


def to_document(override: Override) -> Document:
    """Return the document that keeps an override; a limit that is not given is left out."""
    given = {
        "timeoutS": None if override.timeout is None else seconds_of(override.timeout),
        "deadlineS": None if override.deadline is None else seconds_of(override.deadline),
        "until": override.until,
        "why": override.why,
        "setBy": override.set_by,
        "setAt": override.set_at,
    }
    return {name: value for name, value in given.items() if value is not None}


def stored_override(step_type: str, document: Document, now: datetime) -> StoredOverride:
    """Read a document, which a person may have written.

    Args:
        step_type: its id.
        document: what is in it.
        now: the store's time.
    """
    try:
        override = _override(document)
    except _UnusableError as problem:
        place = f"overrides/{printable(step_type[:_MAX_VALUE_SHOWN_CHARS])}"
        return StoredOverride(step_type, None, f"{place} refused: {problem}")
    return StoredOverride(step_type, override, is_over=override.until <= now)


def whole_milliseconds(seconds: float) -> timedelta:
    """Return a timeout as a dispatch keeps it."""
    return timedelta(milliseconds=round(seconds * 1000))


def seconds_of(limit: timedelta) -> float:
    """Return a limit in seconds, as a whole number where it is one."""
    seconds = limit.total_seconds()
    return int(seconds) if seconds.is_integer() else seconds


def _override(document: Document) -> Override:
    if isinstance(document, UnreadableDocument):
        raise _UnusableError(f"it cannot be read: {printable(document.problem)}.")
    unknown = [name for name in document if name not in _FIELDS]
    if unknown:  # a limit with a wrong name would silently not apply
        raise _UnusableError(f"unknown field {_shown(unknown[0])}; known: {', '.join(_FIELDS)}.")
    timeout, deadline = _timeout(document), _deadline(document)
    if timeout is None and deadline is None:
        raise _UnusableError(f"it sets no limit; allowed: {' or '.join(_LIMITS)}, or both.")
    if document.get("until") is None:
        raise _UnusableError(f"until is missing; allowed: {TIME_OR_DATE}.")
    return Override(
        timeout=timeout,
        deadline=deadline,
        until=_time(document, "until"),
        why=_words(document, "why"),
        set_by=_words(document, "setBy"),
        set_at=None if document.get("setAt") is None else _time(document, "setAt"),
    )


def _timeout(document: Document) -> timedelta | None:
    seconds = document.get("timeoutS")
    if seconds is None:
        return None
    if not _is_number(seconds) or not _MIN_LIMIT_S <= seconds <= MAX_LIMIT_S:
        raise _bad("timeoutS", seconds, f"seconds above 0, at most {MAX_LIMIT_S}")
    return whole_milliseconds(seconds)


def _deadline(document: Document) -> timedelta | None:
    seconds = document.get("deadlineS")
    if seconds is None:
        return None
    if not _is_number(seconds) or seconds != seconds // 1 or not 0 < seconds <= MAX_LIMIT_S:
        raise _bad("deadlineS", seconds, f"whole seconds from 15 to {MAX_LIMIT_S}")
    return timedelta(seconds=int(seconds))


def _is_number(value: object) -> bool:
    """Return whether it is a number that can be counted with: not true, and not NaN."""
    is_plain = isinstance(value, int | float) and not isinstance(value, bool)
    return is_plain and not (isinstance(value, float) and not math.isfinite(value))


def _time(document: Mapping[str, Any], field: str) -> datetime:
    """Return a time that the console's timestamp is, or a text that a person typed."""
    value = document[field]
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value
    if isinstance(value, str):
        try:
            return time_or_date(value.strip())
        except ValueError:
            pass
    raise _bad(field, value, TIME_OR_DATE)


def _words(document: Mapping[str, Any], field: str) -> str:
    value = document.get(field)
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > MAX_WHY_CHARS:
        raise _bad(field, value, f"a text of at most {MAX_WHY_CHARS} characters")
    return value


def _bad(field: str, value: object, allowed: str) -> _UnusableError:
    return _UnusableError(f"{field} is {_shown(value)}; allowed: {allowed}.")


def _shown(value: object) -> str:
    """Return a value of a stranger as a short piece of a line."""
    try:
        text = str(value)
    except ValueError:  # Python writes out no number of 5,000 digits
        return "a number too long to show"
    short = text if len(text) <= _MAX_VALUE_SHOWN_CHARS else f"{text[:_MAX_VALUE_SHOWN_CHARS]}…"
    return repr(short) if isinstance(value, str) else printable(short)
