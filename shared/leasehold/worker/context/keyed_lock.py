"""Turns: what has a key is done by one thread or task at a time."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Final

#: The keys whose turn this thread or task has, by the turns that they are of.
_OWN: Final[ContextVar[frozenset[tuple[int, str]]]] = ContextVar("turns", default=frozenset())


class OwnTurnError(Exception):
    """Who has the turn of a key wants it once more, and would wait for itself."""


class Turns:
    """The turns of keys, for threads and for tasks of event loops alike."""

    def __init__(self) -> None:
        self._taken: dict[str, Future[None]] = {}
        self._taking = threading.Lock()

    @contextlib.contextmanager
    def turn(self, key: str) -> Iterator[None]:
        """Wait for the turn of a key, and have it inside.

        Raises:
            OwnTurnError: to wait would be to wait forever.
        """
        while before := self._taken_before(key):
            if _in_event_loop():
                raise OwnTurnError  # the loop that it would block may have to end the other turn
            before.result()
        with self._having(key):
            yield

    @contextlib.asynccontextmanager
    async def aturn(self, key: str) -> AsyncIterator[None]:
        """Do as `turn`, without blocking the loop."""
        while before := self._taken_before(key):
            await asyncio.wrap_future(before)
        with self._having(key):
            yield

    def _taken_before(self, key: str) -> Future[None] | None:
        """Return the turn that is to be waited for; None: it is the caller's now."""
        if (id(self), key) in _OWN.get():
            raise OwnTurnError
        with self._taking:
            before = self._taken.get(key)
            if before is None:
                mine: Future[None] = Future()
                mine.set_running_or_notify_cancel()  # a task that waits for it may be cancelled
                self._taken[key] = mine
            return before

    @contextlib.contextmanager
    def _having(self, key: str) -> Iterator[None]:
        token = _OWN.set(_OWN.get() | {(id(self), key)})
        try:
            yield
        finally:
            _OWN.reset(token)
            self._taken.pop(key).set_result(None)


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
