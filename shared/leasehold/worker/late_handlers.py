"""Handlers that run on although they were told to stop: what the log says of each, once.

Nothing that they do counts any more, but a thread of this process cannot be killed: what is lost
is a part of what the worker can do.
"""

from __future__ import annotations

import logging
from typing import Final

from leasehold.logs.attempt import lines_of
from leasehold.ports.clock import Clock
from leasehold.worker.held_attempt import HeldAttempt
from leasehold.worker.thread_stacks import UserCall, stack_of

_LOG: Final = logging.getLogger("leasehold.lease_keeper")

#: Who was told to stop may take so long to clean up before anybody is told.
LATE_S: Final = 15.0


class LateHandlers:
    """Says of each handler that does not stop that it runs on, and when it came back.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._noted: set[str] = set()

    def look_at(self, held: HeldAttempt) -> None:
        """Say, once, that the handler of this attempt runs on."""
        call, since = held.user_call, self._since(held)
        if call is None or since < LATE_S or held.fence.lease_id in self._noted:
            return
        self._noted.add(held.fence.lease_id)
        with lines_of(*held.name):
            _LOG.warning(
                "%s %s of run %s still runs %.0f s after it was told to stop (%s)%s",
                call.kind,
                call.path,
                held.name.run_id,
                since,
                held.stop.reason,
                _where(call),
            )

    def note_return(self, held: HeldAttempt) -> None:
        """Say that what was said to run on came back; what it brings is discarded."""
        if held.fence.lease_id not in self._noted:
            return
        self._noted.discard(held.fence.lease_id)
        with lines_of(*held.name):
            _LOG.warning(
                "step %s of run %s came back %.0f s after it was told to stop, and its thread is "
                "free again; what it brought is discarded",
                held.name.step,
                held.name.run_id,
                self._since(held),
            )

    def _since(self, held: HeldAttempt) -> float:
        return 0.0 if held.told_at is None else self._clock.monotonic() - held.told_at


def _where(call: UserCall) -> str:
    """Return where it is, and what that costs; nothing where it runs in a process of its own."""
    at = stack_of(call.thread, call.path).origin
    if at is None:
        return ""
    remedy = '; isolation="process" would have killed it' if call.kind == "handler" else ""
    return f", at {at}: it holds a thread of this worker until it returns{remedy}"
