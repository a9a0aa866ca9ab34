"""What a child and its programs print: logged line by line, and no more than is bearable."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from typing import Final

from leasehold.logs.attempt import STEP_LOG

_LOG: Final = logging.getLogger(STEP_LOG)

#: Of a line, and of all that one attempt prints; in bytes.
MAX_LINE: Final = 4096
MAX_PRINTED: Final = 1024 * 1024

_READ_BYTES: Final = 64 * 1024
#: At a time, as of the frames of a child (`channel.py`).
_MOST_S: Final = 0.05
_LAST_LINES: Final = 5
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
        self._dropped = 0
        self._last: deque[str] = deque(maxlen=_LAST_LINES)

    @property
    def last_lines(self) -> str:
        """The last lines that were printed."""
        return "\n".join(self._last)

    def read(self) -> None:
        """Log what has been printed since."""
        over_at = time.monotonic() + _MOST_S
        while True:
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
            if time.monotonic() >= over_at:
                return

    def end(self) -> None:
        """Log the last line, and how much was dropped."""
        if self._line:
            self._log_line()
        if self._dropped:
            words = "%d more bytes that the handler printed were dropped; %d are logged"
            _LOG.warning(words, self._dropped, MAX_PRINTED, extra=_FACTS)

    def _take(self, data: bytes) -> None:
        *whole, rest = data.split(b"\n")
        for part in whole:
            self._line_grows(part)
            self._log_line()
        self._line_grows(rest)

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
        if self._printed + size > MAX_PRINTED:
            self._dropped += size
            return
        self._printed += size
        _LOG.info("%s", text, extra=_FACTS)
