"""Messages and sends of announcements: one that hangs delays the others only briefly.

`BoundedSends` is the bound of every send, whatever class of channel makes it. Those of ours end by
themselves before it: `adapters.channels.bounded_call` knows what was sent by then, and cuts the
connection.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from leasehold.bounded_calls import MAX_LATE_CALLS, BoundedCalls
from leasehold.domain.delivery import MAX_MESSAGE_ID_CHARS
from leasehold.domain.event_message import EventMessage
from leasehold.domain.printable import printable
from leasehold.errors import (
    ChannelRefusedError,
    ChannelUnansweredError,
    ChannelUnavailableError,
    StoreUnavailableError,
)
from leasehold.ports.clock import Clock
from leasehold.ports.event_bus import EventBus
from leasehold.worker.failures.kept_text import cut, try_text

#: A channel knows its own timeout best, and says more of it than that it did not come back.
TIMEOUT_GRACE_S: Final = 0.5

MAX_ERROR_CHARS: Final = 300
_MAX_SEARCHED_CHARS: Final = 4000
_MAX_RETRY_AFTER_S: Final = 10.0**9

#: A bus that fails only after this time gets no calls for a while: otherwise each run that ends
#: would wait for it. What is refused meanwhile the sweep publishes.
_SLOW_FAILURE_S: Final = 1.0
_BUS_REST_S: Final = 20.0

#: Where a webhook's secret is, as libraries have it in the words of their errors.
_PATH_OF_URL: Final = re.compile(
    r"""(?P<kept>\b[a-z][a-z0-9+.-]{1,20}://[^\s/?#"'<>]{1,300}|\burl:?\s{0,3}["']?(?=/))"""
    r"""[/?#][^\s"'<>]*""",
    re.IGNORECASE,
)

_Known = ChannelRefusedError | ChannelUnavailableError


class BoundedSends:
    """Makes sends that come back in time; see `ports.channel.Sending`.

    Args:
        most_late: how many sends to one channel may go on past their time.
        grace_s: how many seconds more a channel has to say what came of its own timeout.
    """

    def __init__(self, most_late: int = MAX_LATE_CALLS, grace_s: float = TIMEOUT_GRACE_S) -> None:
        self._most_late = most_late
        self._grace_s = grace_s
        self._threads: dict[str, BoundedCalls] = {}  # of each channel

    def run(self, channel: str, send: Callable[[], object], *, timeout: float) -> str | None:
        """Make a send; see `Sending`."""
        fresh = BoundedCalls(f"send-{channel}", most_late=self._most_late)
        threads = self._threads.setdefault(channel, fresh)
        if threads.are_taken():
            problem = f"{self._most_late} sends to it hang"
            raise ChannelUnavailableError(channel=channel, problem=problem)
        made = threads.make(send, wait_s=timeout + self._grace_s)
        if made is None:
            problem = "no thread is to be had for a send"
            raise StoreUnavailableError(store="of threads", problem=problem)
        if not made.done():
            problem = f"it did not come back within {timeout:g} s"
            raise ChannelUnansweredError(channel=channel, problem=problem)
        error = made.exception()
        if error is not None:
            raise _kept(channel, error) from error
        return _message_id(made.result())

    def close(self) -> None:
        """End the threads that have no send to make."""
        for threads in self._threads.values():
            threads.close()


class BoundedEvents:
    """Publishes in its own thread, and waits for a limited time.

    Its threads are its own: files that cannot be deleted keep no message from being sent.

    Args:
        bus: where the messages go.
        clock: for how long it takes.
        calls: how long is waited, and how many calls may hang.
    """

    def __init__(self, bus: EventBus, clock: Clock, calls: BoundedCalls | None = None) -> None:
        self._bus = bus
        self._clock = clock
        self._calls = calls or BoundedCalls("publish")
        self._rests_until = -math.inf

    def publish(self, messages: Sequence[EventMessage]) -> None:
        """Publish the messages, or raise StoreUnavailableError: they may be taken yet, or not."""
        began = self._clock.monotonic()
        if began < self._rests_until:
            raise _unavailable("it did not answer a moment ago, and is not asked now")
        try:
            if not self._calls.run(partial(self._bus.publish, messages)):
                raise _unavailable("it has not answered yet")
        except StoreUnavailableError:
            now = self._clock.monotonic()
            if now - began >= _SLOW_FAILURE_S:
                self._rests_until = now + _BUS_REST_S
            raise

    def close(self, grace: float = 0.0) -> bool:
        """Close the bus."""
        self._calls.close()
        return self._bus.close(grace)


def _kept(channel: str, error: BaseException) -> _Known:
    """Return what a channel raised, as it can be kept and shown.

    After an error outside the port's list it is unknown whether the provider took the announcement.
    """
    for kind in (ChannelRefusedError, ChannelUnansweredError, ChannelUnavailableError):
        if isinstance(error, kind):
            problem = _one_line(str(error.details.get("problem", "")))
            wait = _seconds(error.details.get("retry_after_s"))
            asked = {} if wait is None else {"retry_after_s": wait}
            return kind(channel=channel, problem=problem, **asked)
    words = try_text(lambda: str(error))
    problem = _one_line(f"it raised {type(error).__name__}: {words}")
    return ChannelUnansweredError(channel=channel, problem=problem)


def _seconds(given: object) -> float | None:
    """Return how long a provider asks to wait; None: it does not say, or nothing that is a wait."""
    is_wait = isinstance(given, int | float) and 0 < given <= _MAX_RETRY_AFTER_S  # nor a NaN
    return float(given) if is_wait else None  # type: ignore[arg-type] # checked above


def _message_id(answer: object) -> str | None:
    """Return the name that a provider gave a message, whatever it is."""
    if answer is None:
        return None
    from leasehold.domain.redaction import without_secrets  # noqa: PLC0415 - when it is needed

    text = without_secrets(try_text(lambda: str(answer))[:_MAX_SEARCHED_CHARS])
    return cut(printable(text), MAX_MESSAGE_ID_CHARS)


def _one_line(text: str) -> str:
    from leasehold.domain.redaction import Redaction  # noqa: PLC0415 - when it is needed

    safe = Redaction().text(_PATH_OF_URL.sub(r"\g<kept>/[not shown]", text[:_MAX_SEARCHED_CHARS]))
    return cut(" ".join(printable(safe).split()), MAX_ERROR_CHARS)


def _unavailable(problem: str) -> StoreUnavailableError:
    return StoreUnavailableError(store="event bus", problem=problem)
