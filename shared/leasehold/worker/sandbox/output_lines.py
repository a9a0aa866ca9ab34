"""Output of a child: its log lines and printed lines, logged here up to a limit."""

from __future__ import annotations

import logging
import math
import os
import time
from collections import deque
from typing import Final

from leasehold.domain.printable import counted
from leasehold.domain.redaction import MAX_SEARCHED_CHARS, LinesRedaction
from leasehold.logs.attempt import EVENT_FACTS, EVENTS_LOG, STEP_LOG
from leasehold.worker.sandbox.wire.messages import LogLine

_LOG: Final = logging.getLogger(STEP_LOG)

#: Of a line, and of all that one attempt prints; in bytes.
MAX_LINE_BYTES: Final = 4096
MAX_PRINTED_BYTES: Final = 1024 * 1024
#: A line costs its worker more than its bytes do.
MAX_PRINTED_LINES: Final = 10_000

#: At a time: more than a pipe holds, so what a child printed before it ended is all there.
_READ_BYTES: Final = 64 * 1024
_MAX_READS: Final = 16
_LAST_LINES: Final = 60
_FACTS: Final = {"stream": "output"}


class Prints:
    """Reads the pipe that stdout and stderr of a child are.

    It is read even where nothing of it is logged any more: a child never waits for its worker.

    Args:
        pipe: the descriptor; it is made not to block.

    Attributes:
        is_over: whether nothing more will come.
    """

    def __init__(self, pipe: int) -> None:
        os.set_blocking(pipe, False)
        self.is_over = False
        self._pipe = pipe
        self._line = bytearray()
        self._printed = 0
        self._lines = 0
        self._dropped = 0
        self._is_full = False
        self._redaction = LinesRedaction()
        self._last: deque[str] = deque(maxlen=_LAST_LINES)

    @property
    def last_lines(self) -> str:
        """The last lines that were printed: as much as is looked at for secrets in one text."""
        text = "\n".join(self._last)
        return (
            text
            if len(text) <= MAX_SEARCHED_CHARS
            else text[-MAX_SEARCHED_CHARS:].partition("\n")[2]
        )

    def read(self, until: float = math.inf) -> None:
        """Log what has been printed since, until then (monotonic seconds) at the latest."""
        for _ in range(_MAX_READS):
            if time.monotonic() > until:
                return
            try:
                data = os.read(self._pipe, _READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self.is_over = True
                return
            self._take(data)

    def end(self) -> None:
        """Log the last line, and how much was dropped."""
        if self._line:
            self._log_line()
        if self._dropped:
            dropped, logged = counted(self._dropped, "more byte"), counted(self._lines, "line")
            words = "dropped %s that the handler printed; %d in %s are logged"
            _LOG.warning(words, dropped, self._printed, logged, extra=_FACTS)

    def _take(self, data: bytes) -> None:
        *whole, rest = (self._end_of(data) if self._is_full else data).split(b"\n")
        for part in whole:
            self._line_grows(part)
            self._log_line()
        self._line_grows(rest)

    def _end_of(self, data: bytes) -> bytes:
        """Drop all but the last lines: nothing is logged any more, and to look costs time."""
        first, *lines = data.rsplit(b"\n", _LAST_LINES + 1)
        if len(lines) <= _LAST_LINES:
            return data
        self._dropped += len(self._line) + len(first) - first.count(b"\n")
        self._line.clear()
        return b"\n".join(lines)

    def _line_grows(self, part: bytes) -> None:
        room = MAX_LINE_BYTES - len(self._line)
        self._line += part[:room]
        self._dropped += len(part[room:])

    def _log_line(self) -> None:
        text = self._line.decode("utf-8", "replace").rstrip("\r")
        size = len(self._line)
        self._line.clear()
        if not text:
            return
        self._last.append(text)
        text = self._redaction.line(text)
        are_many = self._lines == MAX_PRINTED_LINES
        self._is_full |= are_many or self._printed + size > MAX_PRINTED_BYTES
        if self._is_full:
            self._dropped += size
            return
        self._printed += size
        self._lines += 1
        _LOG.info("%s", text, extra=_FACTS)


_MAX_LOGGER_LEVELS: Final = 200


def levels_in_force() -> dict[str, int]:
    """Return the levels that loggers of this process have; "" is that of all others."""
    loggers = list(logging.root.manager.loggerDict.items())
    set_here = {
        name: one.level for name, one in loggers if isinstance(one, logging.Logger) and one.level
    }
    named = dict(list(set_here.items())[:_MAX_LOGGER_LEVELS])
    return {"": logging.root.level, **named}


def relay(line: LogLine) -> None:
    """Log what a child has logged; its own loggers have decided that it is to be seen.

    It is a record of the attempt that the caller's lines are of, and no event of Leasehold's own:
    those are logged as they are.
    """
    name = STEP_LOG if line.logger == EVENTS_LOG else line.logger
    record = logging.makeLogRecord(
        {
            "name": name,
            "levelno": line.level,
            "levelname": logging.getLevelName(line.level),
            "msg": line.message,
            "args": (),
            "exc_text": line.error or None,
            "created": line.created,
            "msecs": line.created % 1 * 1000,
            "pathname": line.path,
            "filename": line.path.rpartition("/")[2],
            "lineno": line.line,
            "funcName": line.function,
            "threadName": line.thread,
        }
    )
    for fact, value in line.facts.items():
        # what a record is made of stays, and what makes it an event that alerts count is no child's
        if not fact.startswith("_") and fact != EVENT_FACTS and not hasattr(record, fact):
            setattr(record, fact, value)
    _logger_of(name).handle(record)


def _logger_of(name: str) -> logging.Logger:
    """Return the logger, or the one above it that is there: loggers stay forever."""
    loggers = logging.root.manager.loggerDict
    while name:
        found = loggers.get(name)
        if isinstance(found, logging.Logger):
            return found
        name = name.rpartition(".")[0]
    return logging.root
