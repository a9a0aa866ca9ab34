"""A clock that moves only by calls of a test."""

from __future__ import annotations

import contextlib
import itertools
import secrets
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from leasehold.hooks import hook

START: Final = datetime(2026, 1, 1, tzinfo=UTC)

#: While a caller watches, time moves in steps of this many seconds at most.
_MAX_STEP_S: Final = 1.0


class FrozenClock:
    """A clock for tests: time stands still unless `advance` moves it, and ids come in order.

    Two clocks give different ids, as two processes do, unless they are given the same `salt`.

    Args:
        now: where it stands first, in UTC.
        salt: how its ids begin; None: at random.
        skips_waits: a wait in the test's own thread does not: `ctx.wait_or_shutdown(60)`
            moves the clock by a minute at once. Not for handlers that wait so for a real server.
    """

    def __init__(
        self, now: datetime = START, salt: str | None = None, *, skips_waits: bool = False
    ) -> None:
        self._skips_waits = skips_waits
        self._now = now
        self._passed = 0.0
        self._ids = itertools.count(1)
        self._salt = secrets.token_hex(4) if salt is None else salt
        self._moving = threading.Lock()
        self._watchers: list[Callable[[], object] | None] = []

    def now(self) -> datetime:
        """Return where it stands, in UTC."""
        return self._now

    @hook
    def monotonic(self) -> float:
        """Return the seconds it was moved on."""
        return self._passed

    @hook
    def new_id(self) -> str:
        """Return the next id: the salt, then a number from 1 on."""
        return f"{self._salt}{next(self._ids):08x}"

    def advance(self, by: timedelta | float) -> None:
        """Let time pass.

        Args:
            by: a timedelta, or seconds.
        """
        left = by.total_seconds() if isinstance(by, timedelta) else float(by)
        while any(self._watchers) and left > _MAX_STEP_S:
            self._move(_MAX_STEP_S)
            left -= _MAX_STEP_S
        self._move(left)

    @property
    @hook
    def skip(self) -> Callable[[float], None] | None:
        """Lets so many seconds pass at once, in place of waiting; None: waits are real."""
        return self._skip if self._skips_waits and self._watchers else None

    @hook
    @contextlib.contextmanager
    def watched_by(self, look: Callable[[], object] | None) -> Iterator[None]:
        """Have `look` called for each second that passes inside, and for what is left of one.

        None: waits are skipped inside, and time passes at once.
        """
        self._watchers.append(look)
        try:
            yield
        finally:
            self._watchers.remove(look)

    def _skip(self, seconds: float) -> None:
        self.advance(max(0.0, seconds))

    def _move(self, seconds: float) -> None:
        with self._moving:
            self._now += timedelta(seconds=seconds)
            self._passed += seconds
        for look in filter(None, tuple(self._watchers)):
            look()
