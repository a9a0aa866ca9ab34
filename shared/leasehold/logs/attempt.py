"""Which attempt a log record was made in: known wherever its handler's context is.

That is in the handler itself, in its coroutines and tasks, and in what `asyncio.to_thread` calls.
Python gives a plain thread, and those of an executor, their own context: a handler passes its
own on with `contextvars.copy_context().run`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import suppress
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
#: What is called with each line of those that may not be silent for too long.
_LISTENERS: Final[dict[AttemptName, Callable[[], object]]] = {}
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
        if hear := _LISTENERS.get(self._attempt):
            hear()
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


class LogSpan(NamedTuple):
    """The span of an attempt, as Cloud Logging names it: hexadecimal ids."""

    trace_id: str
    span_id: str
    is_sampled: bool


#: The spans of the latest attempts of this process; none, where telemetry is off.
_SPANS: Final[dict[AttemptName, LogSpan]] = {}
#: More attempts than a process can have under way.
_MAX_SPANS: Final = 1000


def name_span(attempt: AttemptName, span: LogSpan) -> None:
    """Have the log lines of an attempt name its span."""
    while len(_SPANS) >= _MAX_SPANS:
        with suppress(KeyError, StopIteration, RuntimeError):  # another thread does the same
            del _SPANS[next(iter(_SPANS))]
    _SPANS[attempt] = span


def span_of_attempt(attempt: AttemptName) -> LogSpan | None:
    """Return the span of an attempt; None: it is not known."""
    return _SPANS.get(attempt)


class LinesOf:
    """Has what is logged inside name this attempt; each enters it, so it is no generator.

    Args:
        name: the attempt.
        hear: called with each line; None: nothing is.
    """

    __slots__ = ("_hear", "_name", "_token")

    def __init__(self, name: AttemptName, hear: Callable[[], object] | None = None) -> None:
        self._name = name
        self._hear = hear

    def __enter__(self) -> None:
        self._token = _CURRENT.set(self._name)
        if self._name.run_id:
            _UNDER_WAY.append(self._name)
        if self._hear is not None:
            _LISTENERS[self._name] = self._hear

    def __exit__(self, *_: object) -> None:
        _CURRENT.reset(self._token)
        if self._name.run_id:
            _UNDER_WAY.remove(self._name)
        if self._hear is not None:
            _LISTENERS.pop(self._name, None)


def is_event(record: logging.LogRecord) -> bool:
    """Return whether a record is an event of Leasehold's own: its message is JSON."""
    facts = record.__dict__.get(EVENT_FACTS)
    return record.name == EVENTS_LOG and isinstance(facts, EventFacts)


def name_attempts_in_records() -> None:
    """Have each record of this process name its attempt, unless other code makes the records."""
    if logging.getLogRecordFactory() is logging.LogRecord:
        logging.setLogRecordFactory(AttemptLogRecord)


def attempt_of(record: logging.LogRecord) -> AttemptName | None:
    """Return the attempt that a record is of: where it was made, or what `ctx.log` says."""
    known: AttemptName = getattr(record, "_attempt", _NONE)
    if not known.run_id and record.name == STEP_LOG:  # a thread of the handler's own
        known = AttemptName(*(record.__dict__.get(name, "") for name in AttemptName._fields))
    return known if known.run_id else None


# Our handler stays on the root logger, whatever a module of a user's sets up for stderr.
#
# `logging.basicConfig(force=True)` in a handler's module takes every handler away, and its own
# form has neither run nor step. A process of ours has one form of its lines, so that one gives
# way again.


_kept: list[logging.Handler] = []


def keep(handler: logging.Handler) -> None:
    """Have this handler get what all loggers of this process say, from now on.

    A plain handler of the root logger for stderr or stdout gives way to it, unless its format has
    the run. Others stay, and so does the level: those are the user's choice.
    """
    _kept[:] = [handler]
    logging.root.addHandler(handler)
    if logging.getLogRecordFactory() in (logging.LogRecord, AttemptLogRecord):
        logging.setLogRecordFactory(_record)


def _record(*args: Any, **options: Any) -> logging.LogRecord:
    """Make a record; its handlers are looked for only after that."""
    for plain in [each for each in logging.root.handlers if gives_way(each)]:
        for kept in _kept:
            logging.root.addHandler(kept)
        logging.root.removeHandler(plain)
    return AttemptLogRecord(*args, **options)


def gives_way(handler: logging.Handler) -> bool:
    """Return whether it is a plain one for stderr or stdout whose lines would name no run."""
    if type(handler) is not logging.StreamHandler:
        return False
    if handler.stream not in (sys.stderr, sys.stdout, sys.__stderr__, sys.__stdout__):
        return False
    form = handler.formatter
    return form is None or (type(form) is logging.Formatter and "(run_id)" not in str(form._fmt))  # noqa: SLF001 - there is no other way to ask for it


# A log that does not say the same again and again.


#: What the sweep finds wrong it finds wrong again each second; a person needs it less often.
REPEAT_AFTER_S: Final = 600.0
_MAX_LINES_KNOWN: Final = 1000


def without_repeats(
    log: Callable[[str], object], monotonic: Callable[[], float]
) -> Callable[[str], None]:
    """Return a log that leaves out a line it was given before, for REPEAT_AFTER_S.

    Args:
        log: takes a line.
        monotonic: returns seconds that only grow.
    """
    logged_at: dict[str, float] = {}  # the line, and when it was logged

    def log_once(line: str) -> None:
        now = monotonic()
        if line in logged_at and now - logged_at[line] < REPEAT_AFTER_S:
            return
        if len(logged_at) >= _MAX_LINES_KNOWN:
            logged_at.clear()  # rather log something twice than keep it forever
        logged_at[line] = now
        log(line)

    return log_once
