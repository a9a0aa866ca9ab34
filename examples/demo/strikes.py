"""Strikes for the demo: signals to the worker that runs a step, and what became of it.

Only processes of this machine are hit, and only while they hold the lease of the demo's run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final, Self

from leasehold import Client, LeaseholdError
from leasehold.client.run_wait import retry_unreachable
from leasehold.domain.manifest import Manifest
from leasehold.domain.trace import TraceEvent, TraceType
from leasehold.worker.stopping.holder import holder_name, host_name

LOOK_EVERY_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Hit:
    """A signal that was sent to the worker of an attempt."""

    signal: signal.Signals
    pid: int
    at: datetime
    step: str
    attempt: int
    token: int

    def end(self, events: Sequence[TraceEvent]) -> TraceEvent | None:
        """Return how the attempt was cut short; None: it ended by itself."""
        mine = (TraceType.STEP_TERMINATED, self.step, self.attempt)
        ends = (event for event in events if (event.type, event.step, event.attempt) == mine)
        return next(ends, None)


class Striker(ABC):
    """Strikes the workers of a run from its own thread, while inside.

    Args:
        client: where the run is looked at.
        run_id: the run.
        tell: called with a line for each strike, and for its result.

    Attributes:
        hits: the strikes that cut an attempt short.
    """

    def __init__(self, client: Client, run_id: str, tell: Callable[[str], None]) -> None:
        self.hits: list[Hit] = []
        self.tell = tell
        self._look = retry_unreachable(partial(client.get, run_id))
        self._trace = retry_unreachable(partial(client.trace, run_id))
        self.now = client.connection.now
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="strikes", daemon=True)

    @abstractmethod
    def work(self) -> None:
        """Strike as long as there is something to strike, in its own thread."""

    def __enter__(self) -> Self:
        """Begin to look for what to strike."""
        self._thread.start()
        return self

    def __exit__(self, *end: object) -> None:
        """Strike no more."""
        self._over.set()
        self._thread.join()

    def looks(self) -> Iterator[Manifest]:
        """Yield the run until it is idle, or the demo has ended."""
        while True:
            run = self._look()
            yield run
            if not run.is_moving or self._over.wait(LOOK_EVERY_S):
                return

    def strike(self, run: Manifest, number: signal.Signals, words: str) -> bool:
        """Send the signal to the worker that has the run's lease.

        Args:
            run: the run.
            number: the signal.
            words: what is said of it before.

        Returns:
            Whether it cut the attempt short.
        """
        pid = None if run.position.lease is None else _pid_here(run.position.lease.holder)
        if pid is None:
            return False
        step = run.position.step
        self.tell(f"{words} ({number.name}, pid {pid})")
        hit = Hit(number, pid, self.now(), step, run.position.attempt, run.fencing_token)
        with contextlib.suppress(ProcessLookupError):  # it is gone; its end is reported later
            os.kill(pid, number)
        if is_cut_short := self._was_cut_short(hit):
            self.hits.append(hit)
        return is_cut_short

    def _work(self) -> None:
        try:
            self.work()
        except LeaseholdError as error:
            self.tell(f"no further worker is struck: {error.message}")

    def _was_cut_short(self, hit: Hit) -> bool:
        """Wait for the next lease and report it; return whether the strike ended the attempt."""
        run = next((run for run in self.looks() if run.fencing_token > hit.token), None)
        if hit.end(self._trace()) is None:
            if not self._over.is_set():
                self.tell(f"{hit.step} was done before its worker ended; the next one is tried")
            return False
        if run is not None and run.position.lease is not None and run.position.step == hit.step:
            seconds = max(0.0, (run.position.lease.acquired_at - hit.at).total_seconds())
            self.tell(f"{hit.step} runs again, {seconds:.1f} s later")
        return True


def _pid_here(holder: str) -> int | None:
    """Return the process that a lease's holder names, if it is one of this machine that runs."""
    pid = holder.rpartition("/")[2].partition("@")[0]
    if not pid.isdigit() or holder_name(host_name(), int(pid)) != holder:
        return None
    return int(pid)
