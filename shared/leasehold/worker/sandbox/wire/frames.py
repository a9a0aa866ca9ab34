"""Frames: how messages cross the socket between a worker and its child.

A frame is two lengths, a header of JSON, and a raw body: a file crosses as it is. `Channel` is
the worker's end: it never waits for the child. The child is whatever the handler made of it, so
what it sends is taken for a stranger's.
"""

from __future__ import annotations

import io
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from leasehold.worker.sandbox.wire.messages import Message, from_child

_LENGTHS: Final = struct.Struct("!II")

#: No header is longer; what can be long is in the body.
MAX_HEADER_BYTES: Final = 256 * 1024


class GarbledError(Exception):
    """The received bytes are not a frame, or not a message."""


class Frame(NamedTuple):
    """A message and its body."""

    message: Message
    body: bytes


def encoded(message: Message, body: bytes | memoryview = b"") -> bytes:
    """Return what a frame begins with; the body follows it."""
    header = message.model_dump_json().encode()
    return _LENGTHS.pack(len(header), len(body)) + header


class FrameReader:
    """Puts frames together from whatever pieces of them arrive.

    A body grows as it arrives: a length alone takes no memory. It is not copied when it is whole.

    Args:
        parse: returns the message of a header, or raises ValueError.
    """

    def __init__(self, parse: Callable[[bytes], Message]) -> None:
        self._parse = parse
        self._part = io.BytesIO()
        self._missing = _LENGTHS.size
        self._take: Callable[[bytes], Frame | None] = self._take_lengths
        self._body_length = 0
        self._message: Message | None = None

    @property
    def is_between(self) -> bool:
        """Whether no frame has begun that is not whole yet."""
        return self._take == self._take_lengths and not self._part.tell()

    def feed(self, data: bytes | memoryview) -> Iterator[Frame]:
        """Yield the frames that are whole with this.

        Raises:
            GarbledError: they are no frames; nothing that follows can be read.
        """
        left = memoryview(data)
        while True:
            self._part.write(left[: self._missing])
            taken = min(len(left), self._missing)
            left, self._missing = left[taken:], self._missing - taken
            if self._missing:
                return
            whole, self._part = self._part.getvalue(), io.BytesIO()
            if frame := self._take(whole):
                yield frame

    def _take_lengths(self, data: bytes) -> None:
        header, self._body_length = _LENGTHS.unpack(data)
        if not 0 < header <= MAX_HEADER_BYTES:
            raise GarbledError(f"it announced a header of {header} bytes")
        self._missing, self._take = header, self._take_header

    def _take_header(self, data: bytes) -> None:
        try:
            self._message = message = self._parse(data)
        except ValueError as error:
            problem = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise GarbledError(f"it sent no message ({problem})") from None
        if self._body_length > message.longest_body:
            problem = f"a body of {self._body_length} bytes with a message {message.kind!r}"
            raise GarbledError(f"it announced {problem}")
        self._missing, self._take = self._body_length, self._take_body

    def _take_body(self, data: bytes) -> Frame:
        message, self._message = self._message, None
        assert message is not None  # noqa: S101 - its header came before
        self._missing, self._take = _LENGTHS.size, self._take_lengths
        return Frame(message, data)


_READ_BYTES: Final = 64 * 1024
#: A body up to this length goes with its header in one piece.
_SHORT_BYTES: Final = 32 * 1024
#: At a time: more than the socket holds, so what a child said before it ended is all there.
_MAX_READS: Final = 64
#: With more than this on its way to a child that does not take it, nothing more is heard of it.
_MAX_UNSENT_BYTES: Final = 1024 * 1024


class Channel:
    """Frames to and from a child; for one thread.

    Args:
        call: the socket; it is made not to block.

    Attributes:
        is_over: whether nothing more will come.
    """

    def __init__(self, call: socket.socket) -> None:
        if call.gettimeout() != 0:  # of the attempt before it does not: to ask takes no system call
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
        return self._unsent_bytes > _MAX_UNSENT_BYTES

    def send(self, message: Message, body: bytes = b"") -> None:
        """Send a message, as far as the socket takes it now; `flush` sends the rest."""
        frame = encoded(message, body)
        parts = (
            (frame, body) if len(body) > _SHORT_BYTES else (frame + body,)
        )  # a child wakes for each
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
        for _ in range(_MAX_READS):
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
