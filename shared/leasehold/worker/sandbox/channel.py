"""The worker's end of the socket to a child: it never waits for the child, and believes nothing."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Iterator
from typing import Final

from leasehold.worker.sandbox.frames import Frame, FrameReader, GarbledError, encoded
from leasehold.worker.sandbox.messages import Message, from_child

_READ_BYTES: Final = 64 * 1024
#: A body up to this length goes with its header in one piece.
_SHORT: Final = 32 * 1024
#: At a time: more than the socket holds, so what a child said before it ended is all there.
_MOST_READS: Final = 64
#: With more than this on its way to a child that does not take it, nothing more is heard of it.
_MOST_UNSENT: Final = 1024 * 1024


class Channel:
    """Frames to and from a child; for one thread.

    Args:
        call: the socket; it is made not to block.

    Attributes:
        is_over: whether nothing more will come.
    """

    def __init__(self, call: socket.socket) -> None:
        call.setblocking(False)
        self.is_over = False
        self._call = call
        self._reader = FrameReader(from_child)
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0

    @property
    def has_unsent(self) -> bool:
        """Whether something waits until the socket takes it."""
        return bool(self._unsent) and not self.is_over

    @property
    def is_at_rest(self) -> bool:
        """Whether all was sent, and what came was whole."""
        return not self._unsent and not self.is_over and self._reader.is_between

    @property
    def is_behind(self) -> bool:
        """Whether the child does not take what it asked for: its calls would pile up here."""
        return self._unsent_bytes > _MOST_UNSENT

    def send(self, message: Message, body: bytes = b"") -> None:
        """Send a message, as far as the socket takes it now; `flush` sends the rest."""
        frame = encoded(message, body)
        parts = (frame, body) if len(body) > _SHORT else (frame + body,)  # a child wakes for each
        for part in parts:
            self._unsent.append(memoryview(part))
            self._unsent_bytes += len(part)
        self.flush()

    def flush(self) -> None:
        """Send what the socket takes now."""
        try:
            while self._unsent:
                part = self._unsent[0]
                sent = self._call.send(part)
                self._unsent_bytes -= sent
                if sent == len(part):
                    self._unsent.popleft()
                else:
                    self._unsent[0] = part[sent:]
        except BlockingIOError:
            return
        except OSError:  # it reads no more; what it wrote may still be there
            self._unsent.clear()
            self._unsent_bytes = 0

    def received(self, until: float | None = None) -> Iterator[Frame]:
        """Yield the frames that have arrived; those after nonsense are lost with it.

        Args:
            until: in monotonic seconds: a child that never stops talking is heard no longer. None:
                all that is there is taken, and it is known whether that was the end.

        Raises:
            GarbledError: it is none of ours that sent this.
        """
        for _ in range(_MOST_READS):
            if self.is_over or (until is not None and time.monotonic() > until):
                return
            try:
                data = self._call.recv(_READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self.is_over = True
                return
            try:
                yield from self._reader.feed(data)
            except GarbledError:
                self.is_over = True
                raise
            if until is not None and len(data) < _READ_BYTES:
                return  # the next poll says whether there is more
