"""The worker's end of the socket to a child: it never waits for the child, and believes nothing."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Iterator
from typing import Final

from leasehold.worker.sandbox.frames import Frame, FrameReader, encoded
from leasehold.worker.sandbox.messages import Message, from_child

_READ_BYTES: Final = 256 * 1024
#: At a time, so that a child that never stops talking does not keep its worker from the clock.
_MOST_S: Final = 0.05


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

    @property
    def has_unsent(self) -> bool:
        """Whether something waits until the socket takes it."""
        return bool(self._unsent) and not self.is_over

    def send(self, message: Message, body: bytes = b"") -> None:
        """Send a message, as far as the socket takes it now; `flush` sends the rest."""
        self._unsent.append(memoryview(encoded(message, body)))
        if body:
            self._unsent.append(memoryview(body))
        self.flush()

    def flush(self) -> None:
        """Send what the socket takes now."""
        try:
            while self._unsent:
                part = self._unsent[0]
                sent = self._call.send(part)
                if sent == len(part):
                    self._unsent.popleft()
                else:
                    self._unsent[0] = part[sent:]
        except BlockingIOError:
            return
        except OSError:  # it reads no more; what it wrote may still be there
            self._unsent.clear()

    def received(self) -> Iterator[Frame]:
        """Yield the frames that have arrived; of more than can be heard in a moment, the first.

        Raises:
            GarbledError: it is none of ours that sent this.
        """
        over_at = time.monotonic() + _MOST_S
        while True:
            try:
                data = self._call.recv(_READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self.is_over = True
                return
            yield from self._reader.feed(data)
            if time.monotonic() >= over_at:
                return
