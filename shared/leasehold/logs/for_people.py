"""Log lines for a terminal or a journal: one line a record, which names run, step and attempt."""

from __future__ import annotations

import logging
import time
from typing import Final

from leasehold.domain.printable import printable
from leasehold.logs.attempt import EVENT_FACTS, EVENTS_LOG, attempt_of, is_event

_OURS: Final = "leasehold"


class PrintableFormatter(logging.Formatter):
    """Keeps the lines of a traceback, and spells out what would steer the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as lines that are safe to show."""
        return "\n".join(map(printable, super().format(record).split("\n")))


class LineFormatter(PrintableFormatter):
    """Puts in front of a message when, how severe, of which attempt and by whom it is.

    What Leasehold itself says of no attempt is a sentence for people already. Further lines, as of
    a traceback, are indented: what begins at the margin is a record, whatever a text says.

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
