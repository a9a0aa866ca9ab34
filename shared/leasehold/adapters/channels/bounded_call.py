"""One call to a provider, which is over at its time whatever the provider does.

The call is made in its own thread: neither a name server that hangs, nor a server that sends a
byte now and then, nor a function that never returns blocks the caller.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from leasehold.bounded_calls import MAX_LATE_CALLS, BoundedCalls
from leasehold.errors import ChannelUnansweredError, ChannelUnavailableError, LeaseholdError

T = TypeVar("T")

#: The least that one wait of a call is given, in seconds: with 0 a socket does not wait at all.
_MIN_WAIT_S: Final = 0.001


#: The calls to each channel, of which some may hang.
_calls: Final[dict[str, BoundedCalls]] = {}


class CallOverError(TimeoutError):
    """The caller does not wait for the call any more."""


class BoundedCall:
    """A call that ends in time.

    Args:
        channel: the channel that it tells.
        timeout: seconds it may take in total.
    """

    def __init__(self, channel: str, timeout: float) -> None:
        self.channel = channel
        self._timeout = timeout
        self._end = time.monotonic() + timeout
        self._has_begun_sending = False
        self._is_over = False
        self._connection: socket.socket | None = None
        self._deciding = threading.Lock()

    def run(self, send: Callable[[], T]) -> T:
        """Return what `send` returns.

        Raises:
            ChannelUnansweredError: it had begun to send, and did not end well or in time.
            ChannelUnavailableError: it had not begun.
            LeaseholdError: as `send` raised it.
        """
        calls = _calls.setdefault(self.channel, BoundedCalls("channel"))
        if calls.are_taken():
            raise self._failure(f"{MAX_LATE_CALLS} sends to it hang")
        try:
            done = calls.make(send, wait_s=self.seconds_left())
            is_in_time = done is not None and done.done()  # what comes of its end is no answer
        finally:
            self._end_now()
        if done is None:
            raise self._failure("this process can start no further thread")
        if not is_in_time:
            raise self._failure(f"no answer within {self._timeout:g} s")
        error = done.exception()
        if error is None:
            return done.result()
        if isinstance(error, TimeoutError) and error.errno is None:  # our own limit, on the socket
            raise self._failure(f"no answer within {self._timeout:g} s")
        raise error if isinstance(error, LeaseholdError) else self._failure(words_of(error))

    def begin_sending(self) -> None:
        """Say that from here on the provider may have it.

        Raises:
            CallOverError: the time is over; nothing may be sent.
        """
        with self._deciding:
            if self._is_over or time.monotonic() >= self._end:  # it may have been frozen meanwhile
                raise CallOverError
            self._has_begun_sending = True

    def use(self, connection: socket.socket) -> None:
        """Let no wait on a connection be longer than the call, and end it with the call.

        Raises:
            CallOverError: the time is over.
        """
        connection.settimeout(self.seconds_left())
        with self._deciding:
            if self._is_over:
                raise CallOverError
            self._connection = connection.dup()  # ends it, whatever is wrapped around it by then

    def seconds_left(self) -> float:
        """Return how many seconds the call may still take."""
        return max(self._end - time.monotonic(), _MIN_WAIT_S)

    def _end_now(self) -> None:
        with self._deciding:
            self._is_over = True
            if self._connection is not None:
                with contextlib.suppress(OSError):  # the provider has ended it already
                    self._connection.shutdown(socket.SHUT_RDWR)
                self._connection.close()

    def _failure(self, problem: str) -> ChannelUnavailableError:
        kind = ChannelUnansweredError if self._has_begun_sending else ChannelUnavailableError
        return kind(channel=self.channel, problem=problem)


def words_of(error: BaseException) -> str:
    """Return what failed, in words of ours and of the system: an error's own may hold a secret."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"the exchange ended with {type(error).__name__}"
