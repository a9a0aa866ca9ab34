"""Processes that wait for a further attempt of their step."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Self

from leasehold.ports.handler_runner import EnteredStep
from leasehold.worker.sandbox.forking.child import Child
from leasehold.worker.sandbox.wire.assignment import environment, working_directory

#: In all; the one that waits longest makes room.
_MOST: Final = 32
_LOOK_S: Final = 1.0


class Purpose(NamedTuple):
    """What a process is for: one step, in a worker that is as it was when the process was forked.

    The code is the same as long as the worker lives: it has read it once.
    """

    step_type: str
    handler: str
    entry_actions: tuple[str, ...]
    path: Sequence[str]
    environ: Mapping[bytes, bytes]
    cwd: str | None

    @classmethod
    def of(cls, step: EnteredStep) -> Self:
        """Return the purpose of a process that is forked for a step now."""
        return cls(
            step.step_type,
            step.handler,
            tuple(step.entry_actions),
            list(sys.path),
            environment(),
            working_directory(),
        )


class IdleChildren:
    """Keeps processes for a further attempt of their step. Any thread may call.

    Of a step they are never more than were at work at once: a new one is forked when none waits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[tuple[Purpose, Child]] = []
        self._look_at = 0.0

    def take(self, purpose: Purpose) -> Child | None:
        """Return a process for an attempt, the last one that came; None: a new one is needed."""
        while found := self._next(purpose):
            if _is_useful(found):
                return found
            found.close()
        return None

    def keep(self, purpose: Purpose, child: Child) -> None:
        """Keep a process whose attempt is over."""
        with self._lock:
            gone = self._useless()
            self._waiting.append((purpose, child))
            if len(self._waiting) > _MOST:
                gone.append(self._waiting.pop(0)[1])
        _close(gone)

    def end(self) -> None:
        """End all that wait."""
        with self._lock:
            gone, self._waiting = [child for _, child in self._waiting], []
        _close(gone)

    def _next(self, purpose: Purpose) -> Child | None:
        with self._lock:
            found = next((it for it in reversed(self._waiting) if it[0] == purpose), None)
            if found is None:
                return None
            self._waiting.remove(found)
            return found[1]

    def _useless(self) -> list[Child]:
        """Return those that are for no attempt any more; each look at one costs a moment."""
        if time.monotonic() < self._look_at:
            return []
        self._look_at = time.monotonic() + _LOOK_S
        gone = {child for _, child in self._waiting if not _is_useful(child)}
        self._waiting = [it for it in self._waiting if it[1] not in gone]
        return [*gone]


def _is_useful(child: Child) -> bool:
    return child.is_quiet and not child.is_outdated


def _close(children: Sequence[Child]) -> None:
    for child in children:
        child.close()
