"""What a child and its programs print: logged line by line, and no more than is bearable."""

from __future__ import annotations

import logging
import math
import os
import time
from collections import deque
from typing import Final

from leasehold.domain.printable import counted
from leasehold.domain.redaction import MAX_LOOKED_AT, LinesRedaction
from leasehold.logs.attempt import STEP_LOG

_LOG: Final = logging.getLogger(STEP_LOG)

#: Of a line, and of all that one attempt prints; in bytes.
MAX_LINE: Final = 4096
MAX_PRINTED: Final = 1024 * 1024
#: A line costs its worker more than its bytes do.
MAX_LINES: Final = 10_000

#: At a time: more than a pipe holds, so what a child printed before it ended is all there.
_READ_BYTES: Final = 64 * 1024
_MOST_READS: Final = 16
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
        return text if len(text) <= MAX_LOOKED_AT else text[-MAX_LOOKED_AT:].partition("\n")[2]

    def read(self, until: float = math.inf) -> None:
        """Log what has been printed since, until then (monotonic seconds) at the latest."""
        for _ in range(_MOST_READS):
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
        room = MAX_LINE - len(self._line)
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
        self._is_full |= self._printed + size > MAX_PRINTED or self._lines == MAX_LINES
        if self._is_full:
            self._dropped += size
            return
        self._printed += size
        self._lines += 1
        _LOG.info("%s", text, extra=_FACTS)
