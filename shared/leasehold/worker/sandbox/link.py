"""The child's end of the conversation: calls are asked and answered, from any of its threads.

One thread writes and one reads, so nothing that is raised in a thread of the handler (a signal of
its own, a soft limit) leaves half a frame in the socket. A fork of the process has no part in it.
"""

from __future__ import annotations

import itertools
import math
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from queue import SimpleQueue
from typing import Final

from leasehold.errors import restored_error
from leasehold.worker.sandbox.frames import Frame, FrameReader, GarbledError, encoded
from leasehold.worker.sandbox.messages import (
    MAX_CALLS,
    Answer,
    Call,
    Message,
    Refusal,
    from_worker,
)

#: What the process exits with at its own hard limit, and where it has lost its worker.
OUT_OF_TIME: Final = 10
LINK_LOST: Final = 113

#: What a call raises besides the errors of Leasehold; any other is a RuntimeError with its name.
_PLAIN: Final = {kind.__name__: kind for kind in (OSError, RuntimeError, TypeError, ValueError)}

#: How often it looks whether the handler has closed the socket: nothing tells it so.
_LOOK_MS: Final = 500.0

#: A worker that is not frozen has ended the process by then.
_WORKERS_MARGIN_S: Final = 2.0

_NOTHING: Final = nullcontext()
_READ_BYTES: Final = 256 * 1024
#: So many messages wait to be written; who has a further one waits.
_MOST_UNWRITTEN: Final = 256


class Link:
    """The conversation, once it is started; what is said before waits until then.

    Args:
        call: the socket.

    Attributes:
        hard_at: when this process ends if its worker has not ended it, in monotonic seconds.
    """

    def __init__(self, call: socket.socket) -> None:
        self.hard_at = math.inf
        self._call = call
        self._pid = os.getpid()
        self._outbox: SimpleQueue[tuple[Message, bytes | memoryview] | None] = SimpleQueue()
        self._room = _tokens(_MOST_UNWRITTEN)
        self._calls = _tokens(MAX_CALLS)
        self._numbers = itertools.count(1)
        self._answers: dict[int, SimpleQueue[Frame]] = {}
        self._reader = FrameReader(from_worker)
        self._early: list[Frame] = []
        self._threads: list[threading.Thread] = []
        os.register_at_fork(after_in_child=call.close)

    @property
    def is_here(self) -> bool:
        """Whether this is the process that has the conversation, and no fork of it."""
        return os.getpid() == self._pid

    def first(self) -> Frame:
        """Return the first frame, before the conversation is started."""
        while not self._early:
            self._early = list(self._reader.feed(self._received()))
        return self._early.pop(0)

    def start(self, hear: Callable[[Frame], None], first: Message) -> None:
        """Read and write from now on.

        Args:
            hear: called in the thread that reads, with each frame that answers no call.
            first: sent before all that waits, and before this returns: what it says has to be
                known, however the process ends after that.

        Raises:
            RuntimeError, MemoryError: the system has no thread for it; `first` is not sent.
        """
        sent = threading.Lock()
        write = partial(self._write, after=sent)
        with sent:
            for work, name in ((write, "write"), (partial(self._read, hear), "read")):
                thread = threading.Thread(target=work, name=f"leasehold-{name}", daemon=True)
                thread.start()
                self._threads.append(thread)
            with suppress(OSError):  # the worker is gone; the thread that reads will see it
                self._call.sendall(encoded(first, b""))

    def say(self, message: Message, body: bytes | memoryview = b"") -> None:
        """Send a message; nothing where this is a fork of the process."""
        if self.is_here:
            if self._threads:
                self._room.get()
            self._outbox.put((message, body))

    def ask(self, call: Call, body: bytes | memoryview = b"") -> Frame:
        """Make a call, and return its answer.

        Raises:
            LeaseholdError, or another error: what the call raised in the worker.
            RuntimeError: this is a fork of the process.
        """
        if not self.is_here:
            raise RuntimeError("ctx cannot be used in a fork of the handler's process")
        token = self._calls.get()
        number = next(self._numbers)
        answer = self._answers[number] = SimpleQueue()
        try:
            self.say(call.model_copy(update={"call": number}), body)
            frame = answer.get()
        finally:
            del self._answers[number]
            self._calls.put(token)
        if isinstance(frame.message, Refusal):
            raise _error_of(frame.message)
        return frame

    def end(self, message: Message, body: bytes = b"") -> None:
        """Send the last message, and wait until all is written."""
        self.say(message, body)
        self._outbox.put(None)
        if self._threads:
            self._threads[0].join()
        else:
            self._write()  # it ends before it was started

    def _write(self, after: AbstractContextManager[object] = _NOTHING) -> None:
        with after:
            pass
        while item := self._outbox.get():
            message, body = item
            try:
                self._call.sendall(encoded(message, body))
                if body:
                    self._call.sendall(body)
            except OSError:
                return  # the thread that reads ends the process, if the worker is gone
            self._room.put(None)

    def _read(self, hear: Callable[[Frame], None]) -> None:
        poll = select.poll()
        poll.register(self._call, select.POLLIN)
        try:
            for frame in self._early:
                self._dispatch(frame, hear)
            while True:
                if poll.poll(min(_LOOK_MS, self._left_ms())):
                    for frame in self._reader.feed(self._received()):
                        self._dispatch(frame, hear)
                elif not self._left_ms():
                    os._exit(OUT_OF_TIME)
        except (OSError, GarbledError):
            os._exit(LINK_LOST)

    def _received(self) -> bytes:
        data = self._call.recv(_READ_BYTES)
        if not data:
            os._exit(LINK_LOST)
        return data

    def _dispatch(self, frame: Frame, hear: Callable[[Frame], None]) -> None:
        if not isinstance(frame.message, Answer | Refusal):
            hear(frame)
        elif waiting := self._answers.get(frame.message.call):
            waiting.put(frame)

    def _left_ms(self) -> float:
        return max(0.0, self.hard_at + _WORKERS_MARGIN_S - time.monotonic()) * 1000


def _tokens(count: int) -> SimpleQueue[None]:
    """Return what at most so many get before one of them gives back; a signal may cut in."""
    tokens: SimpleQueue[None] = SimpleQueue()
    for _ in range(count):
        tokens.put(None)
    return tokens


def _error_of(refusal: Refusal) -> Exception:
    error = restored_error(refusal.code, refusal.message, refusal.details)
    if error is not None:
        return error
    kind = _PLAIN.get(refusal.type)
    return (
        RuntimeError(f"{refusal.type}: {refusal.message}")
        if kind is None
        else kind(refusal.message)
    )
