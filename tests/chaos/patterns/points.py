"""A process that does one thing to the runs of a place, and is killed at one of its writes."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple, cast

from leasehold.domain.stored import Answer, DecideDocument, Document, Ref, Write
from leasehold.errors import SignalNotAwaitedError
from leasehold.ports.documents import Committed, Documents, Snapshot
from leasehold.services.pauses import pause_step, resume_step
from leasehold.services.schedules import attend_schedules
from leasehold.services.signal_run import SignalRequest, send_signal
from leasehold.services.sweep import sweep
from tests.chaos.patterns.processes import Engine, Place
from tests.chaos.storm.processes import forked
from tests.worlds.wrapped import Wrapped

PATIENCE_S: Final = 60.0


class Point(NamedTuple):
    """Which write of a process is its last: the first one is 1, and whether it is committed."""

    number: int
    is_after: bool


def points() -> Iterator[Point]:
    """Yield each point of a process in turn, without end."""
    for number in itertools.count(1):
        yield Point(number, is_after=False)
        yield Point(number, is_after=True)


class LethalDocuments(Wrapped[Documents]):
    """The documents port of a process that dies at a point."""

    def __init__(self, inner: Documents, point: Point | None) -> None:
        super().__init__(inner)
        self._point, self._writes = point, 0

    def transact(
        self, ref: Ref, decide: DecideDocument[Answer], **options: Any
    ) -> Committed[Answer]:
        writes = False

        def decided(stored: Document | None, now: Any) -> Write[Answer]:
            nonlocal writes
            write = decide(stored, now)
            writes = write.document is not None or write.has_others
            self._reach(writes, is_after=False)
            return write

        committed: Committed[Answer] = self.inner.transact(ref, decided, **options)
        self._reach(writes, is_after=True)
        return committed

    def delete(self, ref: Ref, *, if_version: Snapshot | None = None) -> None:
        self._reach(True, is_after=False)
        self.inner.delete(ref, if_version=if_version)
        self._reach(True, is_after=True)

    def _reach(self, writes: bool, *, is_after: bool) -> None:
        self._writes += writes and not is_after
        if writes and self._point == (self._writes, is_after):
            os.kill(os.getpid(), signal.SIGKILL)


def work(engine: Engine, run_id: str) -> None:
    """Move the run on until it waits."""
    engine.adopt(run_id)
    engine.run_until_idle()


def signal_first(engine: Engine, run_id: str) -> None:
    """Send the first signal."""
    _send(engine, run_id, "first")


def signal_second(engine: Engine, run_id: str) -> None:
    """Send another one of the same name."""
    _send(engine, run_id, "second")


def approve(engine: Engine, run_id: str) -> None:
    """Send the approval."""
    _send(engine, run_id, "yes", "approval")


def _send(engine: Engine, run_id: str, word: str, name: str = "reply") -> None:
    request = SignalRequest(name, {"word": word}, "test", word)
    with suppress(SignalNotAwaitedError):  # the one before was killed, and it went on with it
        send_signal(engine.engine, run_id, request)


def let_time_out(engine: Engine, run_id: str) -> None:
    """Wait until the time of the wait is over, and sweep."""
    until = engine.show(run_id).wait_until
    if until is not None:
        time.sleep(max(0.0, (until - engine.engine.clock.now()).total_seconds()))
    engine.adopt(run_id)
    sweep(engine.engine)
    engine.run_until_idle()


def pause(engine: Engine, _: str) -> None:
    """Pause the first step of the run."""
    pause_step(engine.engine, "take", why="test", actor="test")


def resume(engine: Engine, _: str) -> None:
    """Resume it."""
    resume_step(engine.engine, "take")


def attend(engine: Engine, _: str) -> None:
    """Start what is due of the schedule."""
    attend_schedules(engine.engine, lambda: False)


Action = Callable[[Engine, str], None]


def act(place: Place, action: Action, run_id: str, point: Point | None) -> None:
    """Do it, and die at the point."""
    lethal = partial(LethalDocuments, point=point)
    with Engine(place, 0, around=lambda store: cast(Documents, lethal(store))) as engine:
        action(engine, run_id)


def is_killed(place: Place, action: Action, run_id: str, point: Point) -> bool:
    """Have a process do it and die at the point; return whether it came to that."""
    process = forked(act, place, action, run_id, point)
    process.join(PATIENCE_S)
    code = process.exitcode
    process.kill()
    process.join()
    assert code in (0, -signal.SIGKILL)
    return bool(code)
