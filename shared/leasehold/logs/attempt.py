"""Which attempt a log record was made in: known wherever its handler's context is.

That is in the handler itself, in its coroutines and tasks, and in what `asyncio.to_thread` calls.
Python gives a plain thread, and those of an executor, a context of their own: a handler passes its
own on with `contextvars.copy_context().run`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

#: The logger of `ctx.log`.
STEP_LOG: Final = "leasehold.step"


class AttemptName(NamedTuple):
    """An attempt, as log lines name it."""

    run_id: str = ""
    step: str = ""
    attempt: int = 0


_NONE: Final = AttemptName()
_CURRENT: Final[ContextVar[AttemptName]] = ContextVar("leasehold_attempt", default=_NONE)


class AttemptLogRecord(logging.LogRecord):
    """A record with `run_id`, `step` and `attempt`, for the formatter of any program.

    Outside an attempt they are "", "" and 0. What a caller gives with `extra` under one of these
    names stays: they are only filled in where the message is made.
    """

    __slots__ = ("_attempt",)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._attempt = _CURRENT.get()

    def getMessage(self) -> str:  # noqa: N802 - as its base has it
        """Return the message; fill in the attempt, which a formatter looks for after this."""
        for name, value in self._attempt._asdict().items():
            self.__dict__.setdefault(name, value)
        return super().getMessage()


@contextmanager
def lines_of(run_id: str, step: str, attempt: int) -> Iterator[None]:
    """Have what is logged inside name this attempt."""
    token = _CURRENT.set(AttemptName(run_id, step, attempt))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def name_attempts_in_records() -> None:
    """Have each record of this process name its attempt, unless somebody else makes the records."""
    if logging.getLogRecordFactory() is logging.LogRecord:
        logging.setLogRecordFactory(AttemptLogRecord)


def attempt_of(record: logging.LogRecord) -> AttemptName | None:
    """Return the attempt that a record is of: where it was made, or what `ctx.log` says."""
    known: AttemptName = getattr(record, "_attempt", _NONE)
    if not known.run_id and record.name == STEP_LOG:  # a thread of the handler's own
        known = AttemptName(*(record.__dict__.get(name, "") for name in AttemptName._fields))
    return known if known.run_id else None
