"""The log of a process of ours: who writes it to stderr, in which form, and from which level on."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final

from leasehold.domain.printable import printable
from leasehold.domain.traceparent import parent_in
from leasehold.errors import SettingsFileError
from leasehold.logs.attempt import (
    EVENT_FACTS,
    EVENTS_LOG,
    AttemptName,
    EventFacts,
    LogSpan,
    attempt_of,
    gives_way,
    is_event,
    keep,
    span_of_attempt,
)

# Log lines for Cloud Logging: one JSON object a record, in the form that it takes apart.


#: Python has levels between these; Cloud Logging does not.
_SEVERITIES: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_STEP_OF_LEVELS: Final = 10

#: An entry may be 256 KiB; in JSON a character may take six bytes.
_MAX_MESSAGE_CHARS: Final = 40_000

#: `TRACE/SPAN;o=1`, whose span is decimal, and `00-TRACE-SPAN-01`.
_CLOUD_TRACE: Final = re.compile(
    r"(?P<trace>[0-9a-f]{32})(?:/(?P<span>[0-9]{1,20})?(?:;o=(?P<flags>[01]))?.*)?", re.ASCII
)
_NO_FIELDS: Final[Mapping[str, Any]] = {}
_OF_REQUEST: Final[ContextVar[Mapping[str, Any]]] = ContextVar(
    "leasehold_trace", default=_NO_FIELDS
)
#: A span has 64 bits.
_SPANS: Final = 2**64
_PROJECT: Final = re.compile(r"(?:firestore|cloud-tasks)://([^/]+)/")


class JsonFormatter(logging.Formatter):
    """Makes an entry: severity, message, logger, the attempt, and its trace or its request's."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        message = super().format(record)
        if is_event(record):
            return _with_trace(message, record.__dict__[EVENT_FACTS])
        entry: dict[str, Any] = {
            "severity": severity_of(record.levelno),
            "message": message[:_MAX_MESSAGE_CHARS].encode("utf-8", "replace").decode(),
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "logger": record.name,
        }
        attempt = attempt_of(record)
        if attempt is not None:
            entry |= {"runId": attempt.run_id, "step": attempt.step, "attempt": attempt.attempt}
        entry |= _fields_of(None if attempt is None else span_of_attempt(attempt))
        return json.dumps(entry, ensure_ascii=False)


def severity_of(level: int) -> str:
    """Return the severity of a level; of one in between, that of the level below it."""
    place = min(max(level // _STEP_OF_LEVELS, 1), len(_SEVERITIES))
    return _SEVERITIES[place - 1]


@contextmanager
def lines_of_request(header: Callable[[str, str], str]) -> Iterator[None]:
    """Have what is logged inside name the trace of the request, where it has one.

    Args:
        header: returns the header of a name, or else what it is given beside it.
    """
    token = _OF_REQUEST.set(_fields_in(header))
    try:
        yield
    finally:
        _OF_REQUEST.reset(token)


def _fields_in(header: Callable[[str, str], str]) -> Mapping[str, Any]:
    """Return the trace of a request, as entries have it; nothing where it is not known."""
    if found := _CLOUD_TRACE.fullmatch(header("X-Cloud-Trace-Context", "")):
        span, flags = int(found["span"] or 0), found["flags"]
        span_id = format(span, "016x") if 0 < span < _SPANS else ""
        return _fields(found["trace"], span_id, None if flags is None else flags == "1")
    given = header("traceparent", "")
    parent = parent_in(given) if given else None
    return _NO_FIELDS if parent is None else _fields(*parent)


def _with_trace(event: str, facts: EventFacts) -> str:
    """Return the JSON of an event with the trace of its attempt, or of the request."""
    attempt = AttemptName(*(facts.get(name, "") for name in ("runId", "step", "attempt")))
    fields = _fields_of(span_of_attempt(attempt))
    return json.dumps({**facts, **fields}, ensure_ascii=False) if fields else event


def _fields_of(span: LogSpan | None) -> Mapping[str, Any]:
    """Return the span of an attempt, as entries have it, or else the trace of the request."""
    return _OF_REQUEST.get() if span is None else _fields(*span)


def _fields(trace_id: str, span_id: str, is_sampled: bool | None) -> Mapping[str, Any]:
    """Return what Cloud Logging links an entry to its trace by; it takes no trace of no project.

    https://cloud.google.com/logging/docs/structured-logging#special-payload-fields
    """
    project = _project()
    if not project:
        return _NO_FIELDS
    fields: dict[str, Any] = {
        "logging.googleapis.com/trace": f"projects/{project}/traces/{trace_id}"
    }
    if span_id:
        fields["logging.googleapis.com/spanId"] = span_id
    if is_sampled is not None:
        fields["logging.googleapis.com/trace_sampled"] = is_sampled
    return fields


def _project() -> str:
    named = os.environ.get("GOOGLE_CLOUD_PROJECT", "")
    addresses = (os.environ.get(name, "") for name in ("LEASEHOLD_TASKS", "LEASEHOLD_STORE"))
    found = next(filter(None, map(_PROJECT.match, addresses)), None)
    return named or (found[1] if found else "")


# Log lines for a terminal or a journal: one line a record, which names run, step and attempt.


_OURS: Final = "leasehold"


class PrintableFormatter(logging.Formatter):
    """Keeps the lines of a traceback, and spells out what would steer the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as lines that are safe to show."""
        return "\n".join(map(printable, super().format(record).split("\n")))


class LineFormatter(PrintableFormatter):
    """Puts in front of a message when, how severe, of which attempt and by whom it is.

    Lines of Leasehold itself without an attempt are sentences for people already. Further
    lines, such as a traceback, are indented: only records begin at the margin.

    Args:
        is_terminal: whether events are sentences; else they stay JSON, for a program that reads
            the file or the journal.
        is_uniform: every line has this form: what Leasehold says of no attempt, and events, too.
    """

    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self, *, is_terminal: bool = False, is_uniform: bool = False) -> None:
        super().__init__()
        self._is_terminal = is_terminal
        self._is_uniform = is_uniform
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as lines that are safe to show."""
        return super().format(record).replace("\n", "\n  ")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as its base has it
        """Return the line, without a traceback."""
        facts = record.__dict__[EVENT_FACTS] if is_event(record) else None
        message = record.message if facts is None or not self._is_uniform else facts["message"]
        if self._is_terminal and not self._is_uniform and facts is not None:
            return f"{self.formatTime(record)} {facts['severity']} {facts['message']}"
        attempt = attempt_of(record)
        is_forged = record.name == EVENTS_LOG and facts is None
        is_ours = record.name.partition(".")[0] == _OURS and not is_forged
        if attempt is None and is_ours and not self._is_uniform:
            return message
        words = [self.formatTime(record), record.levelname]
        if attempt is not None:
            words += [f"run={attempt.run_id}", f"step={attempt.step}", f"attempt={attempt.attempt}"]
        return f"{' '.join(words)} {record.name}: {message}"


def print_printable_logs() -> None:
    """Have the log of last resort, which writes to stderr, show no control characters."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(PrintableFormatter())


#: The handler of functions-framework under LOG_EXECUTION_ID, which Cloud Functions sets unless the
#: deploy does: it writes warnings as plain text, and no event of the level INFO at all.
#: https://github.com/GoogleCloudPlatform/functions-framework-python/pull/320
_OF_THE_FRAMEWORK: Final = "wsgi"


class StderrHandler(logging.Handler):
    """Writes to what stderr is at that time: a display that is drawn there keeps lines apart."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record."""
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001 - a line that cannot be written ends no step
            self.handleError(record)


def log_to_stderr() -> None:
    """Have all loggers of this process write to stderr, in the form of LEASEHOLD_LOG_FORMAT."""
    log_by(_formatter(_setting("LEASEHOLD_LOG_FORMAT")))


def log_as_json() -> None:
    """Have all loggers of this process write entries to stderr, where Cloud Run reads them.

    The handlers of functions-framework are not the user's choice, and are removed.
    """
    for handler in list(logging.root.handlers):
        if handler.get_name() == _OF_THE_FRAMEWORK:
            logging.root.removeHandler(handler)
    log_by(JsonFormatter())


def log_by(formatter: logging.Formatter) -> None:
    """Have all loggers of this process write to stderr, unless the user has set them up.

    LEASEHOLD_LOG_LEVEL says from which level on each of them does.
    """
    if any(not gives_way(handler) for handler in logging.root.handlers):
        return
    handler = StderrHandler()
    handler.setFormatter(formatter)
    keep(handler)
    for logger, level in _setting("LEASEHOLD_LOG_LEVEL").items():
        logging.getLogger(logger).setLevel(level)


def _formatter(form: str) -> logging.Formatter:
    if form == "json":
        return JsonFormatter()
    return LineFormatter(is_terminal=sys.stderr.isatty(), is_uniform=form == "text")


def _setting(name: str) -> Any:
    from leasehold.registry.settings import (  # noqa: PLC0415 - not for each command
        SETTINGS,
        with_config_file,
    )

    entry = SETTINGS[name]
    try:
        return entry.read(with_config_file(os.environ).get(entry.name, entry.default))
    except (ValueError, SettingsFileError):  # who reads the settings says so
        return entry.read(entry.default)
