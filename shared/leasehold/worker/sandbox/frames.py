"""Frames: how messages cross the socket between a worker and its child.

A frame is two lengths, a header of JSON, and a raw body: a file crosses as it is. The child is
whatever the handler made of it, so what it sends is taken for a stranger's.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from leasehold.worker.sandbox.messages import Message

_LENGTHS: Final = struct.Struct("!II")

#: No header is longer; what can be long is in the body.
MAX_HEADER: Final = 256 * 1024


class GarbledError(Exception):
    """What came is no frame, or no message."""


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
        if not 0 < header <= MAX_HEADER:
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
