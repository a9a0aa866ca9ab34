"""Which attempt a log record was made in: known wherever its handler's context is.

That is in the handler itself, in its coroutines and tasks, and in what `asyncio.to_thread` calls.
Python gives a plain thread, and those of an executor, their own context: a handler passes its
own on with `contextvars.copy_context().run`.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

#: The logger of `ctx.log`.
STEP_LOG: Final = "leasehold.step"
#: The logger of events that people analyse; its messages are JSON objects, of facts that are kept.
EVENTS_LOG: Final = "leasehold.events"
#: The attribute of a record that tells of an event: its facts; the message is the JSON of them.
EVENT_FACTS: Final = "leasehold_event"
_OURS: Final = "leasehold"


class EventFacts(dict[str, Any]):
    """The facts of an event of Leasehold's own.

    What else is logged as an event is a line as any other: alerts count events, and a handler that
    runs in the worker itself has all its loggers.
    """


class AttemptName(NamedTuple):
    """An attempt, as log lines name it."""

    run_id: str = ""
    step: str = ""
    attempt: int = 0


_NONE: Final = AttemptName()
_OF_EVERY_RECORD: Final = frozenset(vars(logging.makeLogRecord({}))) | {
    *AttemptName._fields,
    *("message", "asctime", "_attempt", "_words"),
}
#: One for each attempt whose handler runs in this process.
_UNDER_WAY: Final[list[AttemptName]] = []
_CURRENT: Final[ContextVar[AttemptName]] = ContextVar("leasehold_attempt", default=_NONE)


class AttemptLogRecord(logging.LogRecord):
    """A record with `run_id`, `step` and `attempt`, for the formatter of any program.

    Outside an attempt they are "", "" and 0. What a caller gives with `extra` under one of these
    names stays: they are only filled in where the message is made.
    """

    __slots__ = ("_attempt", "_words")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._attempt = _CURRENT.get()
        self._words: str | None = None

    def getMessage(self) -> str:  # noqa: N802 - as its base has it
        """Return the message; fill in the attempt, which a formatter looks for after this.

        What is logged in an attempt is without its secrets, the traceback and the facts beside it
        as well: a handler's libraries log addresses and headers whole. So is what is logged of no
        attempt while there is one: it may be of a thread of the handler's own.
        """
        for name, value in self._attempt._asdict().items():
            self.__dict__.setdefault(name, value)
        if is_event(self):
            return super().getMessage()
        self.__dict__.pop(EVENT_FACTS, None)  # forged: alerts count the events that have them
        if not (self._attempt.run_id or self._is_perhaps_of_one()):
            return super().getMessage()
        if self._words is None:
            forged = "not an event: " if self.name == EVENTS_LOG else ""  # nor JSON, then
            self._words = f"{forged}{self._redacted()}"
        return self._words

    def _is_perhaps_of_one(self) -> bool:
        """Return whether it may be a handler's; what we say ourselves is, where it was raised."""
        is_ours = self.name.partition(".")[0] == _OURS and self.name != EVENTS_LOG
        if is_ours and self.name != STEP_LOG:
            return bool(self.exc_info)
        return self.name in (STEP_LOG, EVENTS_LOG) or bool(_UNDER_WAY)

    def _redacted(self) -> str:
        from leasehold.domain.redaction import Redaction  # noqa: PLC0415 - when a handler logs

        redaction = Redaction()
        for name, fact in [*self.__dict__.items()]:
            if name not in _OF_EVERY_RECORD:
                self.__dict__[name] = redaction.fact(name, fact)
        if self.exc_info and not self.exc_text and isinstance(self.exc_info, tuple):
            self.exc_text = logging.Formatter().formatException(self.exc_info)
        words = redaction.text(super().getMessage())
        if self.exc_text:
            self.exc_text = redaction.text(self.exc_text)
        if self.stack_info:
            self.stack_info = redaction.text(self.stack_info)
        return words


class LinesOf:
    """Has what is logged inside name this attempt; each enters it, so it is no generator."""

    __slots__ = ("_name", "_token")

    def __init__(self, name: AttemptName) -> None:
        self._name = name

    def __enter__(self) -> None:
        self._token = _CURRENT.set(self._name)
        if self._name.run_id:
            _UNDER_WAY.append(self._name)

    def __exit__(self, *_: object) -> None:
        _CURRENT.reset(self._token)
        if self._name.run_id:
            _UNDER_WAY.remove(self._name)


def is_event(record: logging.LogRecord) -> bool:
    """Return whether a record is an event of Leasehold's own: its message is JSON."""
    facts = record.__dict__.get(EVENT_FACTS)
    return record.name == EVENTS_LOG and isinstance(facts, EventFacts)


def name_attempts_in_records() -> None:
    """Have each record of this process name its attempt, unless someone else makes the records."""
    if logging.getLogRecordFactory() is logging.LogRecord:
        logging.setLogRecordFactory(AttemptLogRecord)


def attempt_of(record: logging.LogRecord) -> AttemptName | None:
    """Return the attempt that a record is of: where it was made, or what `ctx.log` says."""
    known: AttemptName = getattr(record, "_attempt", _NONE)
    if not known.run_id and record.name == STEP_LOG:  # a thread of the handler's own
        known = AttemptName(*(record.__dict__.get(name, "") for name in AttemptName._fields))
    return known if known.run_id else None
