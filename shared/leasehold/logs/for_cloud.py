"""Log lines for Cloud Logging: one JSON object a record, in the form that it takes apart."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final

from leasehold.logs.attempt import attempt_of, is_event

#: Python has levels between these; Cloud Logging does not.
_SEVERITIES: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_STEP_OF_LEVELS: Final = 10

#: An entry may be 256 KiB; in JSON a character may take six bytes.
_LONGEST: Final = 40_000

#: `TRACE/SPAN;o=1` and `00-TRACE-SPAN-01`.
_TRACES: Final = (
    ("X-Cloud-Trace-Context", re.compile(r"([0-9a-f]{32})(?:/.*)?")),
    ("traceparent", re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-.*")),
)
_TRACE: Final[ContextVar[str]] = ContextVar("leasehold_trace", default="")
_PROJECT: Final = re.compile(r"(?:firestore|cloud-tasks)://([^/]+)/")


class JsonFormatter(logging.Formatter):
    """Makes an entry: severity, message, logger, the attempt, and the trace of its request."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        message = super().format(record)
        if is_event(record):
            return message
        entry: dict[str, Any] = {
            "severity": severity_of(record.levelno),
            "message": message[:_LONGEST].encode("utf-8", "replace").decode(),
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "logger": record.name,
        }
        if attempt := attempt_of(record):
            entry |= {"runId": attempt.run_id, "step": attempt.step, "attempt": attempt.attempt}
        if trace := _TRACE.get():
            entry["logging.googleapis.com/trace"] = trace
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
    token = _TRACE.set(_trace_in(header))
    try:
        yield
    finally:
        _TRACE.reset(token)


def _trace_in(header: Callable[[str, str], str]) -> str:
    """Return the trace's name, `projects/…/traces/…`; empty where it is not known."""
    for name, form in _TRACES:
        if (found := form.fullmatch(header(name, ""))) and (project := _project()):
            return f"projects/{project}/traces/{found[1]}"
    return ""


def _project() -> str:
    named = os.environ.get("GOOGLE_CLOUD_PROJECT", "")
    addresses = (os.environ.get(name, "") for name in ("LEASEHOLD_TASKS", "LEASEHOLD_STORE"))
    found = next(filter(None, map(_PROJECT.match, addresses)), None)
    return named or (found[1] if found else "")
