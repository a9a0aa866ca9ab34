"""A clock that moves only when it is told to."""

from __future__ import annotations

import itertools
import secrets
from datetime import UTC, datetime, timedelta
from typing import Final

START: Final = datetime(2026, 1, 1, tzinfo=UTC)


class FrozenClock:
    """The clock port for tests: time stands still, and ids come in order.

    Two clocks give different ids, as two processes do, unless they are given the same `salt`.
    """

    def __init__(self, now: datetime = START, salt: str | None = None) -> None:
        self._now = now
        self._passed = 0.0
        self._ids = itertools.count(1)
        self._salt = secrets.token_hex(4) if salt is None else salt

    def now(self) -> datetime:
        """Return the time it was set to."""
        return self._now

    def monotonic(self) -> float:
        """Return the seconds it was moved on."""
        return self._passed

    def new_id(self) -> str:
        """Return the next id: the salt, then a number from 1 on."""
        return f"{self._salt}{next(self._ids):08x}"

    def advance(self, by: timedelta | float) -> None:
        """Let time pass: a timedelta, or seconds."""
        passed = by if isinstance(by, timedelta) else timedelta(seconds=by)
        self._now += passed
        self._passed += passed.total_seconds()
