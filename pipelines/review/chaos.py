"""Chaos for the demo: workers end in the middle of steps, one step hangs, and the run continues.

One worker is killed without warning; another is asked to stop, and can react. Only processes of
this machine are hit, and only while they hold the lease of the demo's run. The step that hangs is
left alone: it is ended at its limit.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Self

from leasehold import Client, LeaseholdError
from leasehold.client.patience import retry_unreachable
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Termination
from leasehold.domain.trace import TraceEvent, TraceType
from leasehold.worker.holder import holder_name, host_name
from pipelines.review.chaos_catalog import HANGING
from pipelines.review.hanging_publish import LIMIT

STRIKES: Final = (
    (signal.SIGKILL, "killing the worker that runs {step}"),
    (signal.SIGTERM, "asking the worker that runs {step} to stop"),
)
MIDDLE: Final = timedelta(seconds=0.2)  # a step that has run so long is in its middle
LOOK_EVERY_S: Final = 0.03

#: A call of a stack, the most recent last.
_FRAME: Final = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')

#: A step's agent calls take about so long together: enough for a middle, and not for a yawn.
STEP_MS: Final = 3000
SHORTEST_PACE_MS: Final = 50
LONGEST_PACE_MS: Final = 600


def pace_for(documents: int) -> str:
    """Return the REVIEW_AGENT_PACE_MS with which the steps of so many documents have a middle."""
    return str(min(LONGEST_PACE_MS, max(SHORTEST_PACE_MS, STEP_MS // max(1, documents))))


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


class Chaos:
    """Strikes the workers of a run from a thread of its own, while inside.

    Args:
        client: where the run is looked at.
        run_id: the run.
        tell: called with a line for each strike, and for its result.

    Attributes:
        hits: the strikes that cut an attempt short.
    """

    def __init__(self, client: Client, run_id: str, tell: Callable[[str], None]) -> None:
        self.hits: list[Hit] = []
        self._look = retry_unreachable(partial(client.get, run_id))
        self._trace = retry_unreachable(partial(client.trace, run_id))
        self._now = client.source.now
        self._tell = tell
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="chaos", daemon=True)

    def __enter__(self) -> Self:
        """Begin to look for a step in its middle."""
        self._thread.start()
        return self

    def __exit__(self, *end: object) -> None:
        """Strike no more."""
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        try:
            for number, words in STRIKES:
                self._strike_until_it_counts(number, words)
            self._wait_for_the_one_that_hangs()
        except LeaseholdError as error:
            self._tell(f"the chaos ends: {error.message}")

    def _strike_until_it_counts(self, number: signal.Signals, words: str) -> None:
        """Strike; if a step was done before it was hit, the next one is."""
        for run in self._looks():
            hit = self._strike(run, number, words)
            if hit is not None and self._was_cut_short(hit):
                self.hits.append(hit)
                return

    def _strike(self, run: Manifest, number: signal.Signals, words: str) -> Hit | None:
        """Send the signal to the run's worker, if it is in the middle of a step."""
        lease, step = run.lease, run.current_step
        if lease is None or self._now() - lease.acquired_at < MIDDLE or self._spares(run):
            return None
        pid = _pid_here(lease.holder)
        if pid is None:
            return None
        self._tell(f"{words.format(step=step)} ({number.name}, pid {pid})")
        hit = Hit(number, pid, self._now(), step, run.attempt, run.fencing_token)
        with contextlib.suppress(ProcessLookupError):  # it is gone; its end is reported later
            os.kill(pid, number)
        return hit

    def _spares(self, run: Manifest) -> bool:
        """Return whether another step can bear the next strike: after the first one there is."""
        first, step = run.plan[0], run.current_step
        return step == HANGING or (step == first and any(hit.step == first for hit in self.hits))

    def _was_cut_short(self, hit: Hit) -> bool:
        """Wait for the next lease and report it; return whether the strike ended the attempt."""
        run = next((run for run in self._looks() if run.fencing_token > hit.token), None)
        if hit.end(self._trace()) is None:
            if not self._over.is_set():
                self._tell(f"{hit.step} was done before its worker ended; the next one is tried")
            return False
        if run is not None and run.lease is not None and run.current_step == hit.step:
            seconds = max(0.0, (run.lease.acquired_at - hit.at).total_seconds())
            self._tell(f"{hit.step} runs again, {seconds:.1f} s later")
        return True

    def _wait_for_the_one_that_hangs(self) -> None:
        """Say so when the step begins to hang, and when it runs again."""
        for run in self._looks():
            if run.current_step == HANGING and run.lease is not None and run.attempt == 1:
                seconds = f"{LIMIT.total_seconds():g} s"
                self._tell(f"{HANGING} hangs, and hears nobody; its limit is {seconds}")
                break
        if any(run.current_step == HANGING and run.attempt > 1 for run in self._looks()):
            self._tell(f"{HANGING} was ended at its limit, and runs again")

    def _looks(self) -> Iterator[Manifest]:
        """Yield the run until it is idle, or nobody waits for it any more."""
        while True:
            run = self._look()
            yield run
            if run.alarm_at is None or self._over.wait(LOOK_EVERY_S):
                return


def account(
    hits: Sequence[Hit], run: Manifest, events: Sequence[TraceEvent]
) -> tuple[bool, list[str]]:
    """Return whether all strikes were survived, and what the trace says of them, in lines."""
    lines = []
    for hit in hits:
        end = hit.end(events)
        why = "" if end is None else ": ".join(part for part in (end.reason, end.detail) if part)
        lines.append(f"{hit.step}, attempt {hit.attempt}: {hit.signal.name}, pid {hit.pid}; {why}")
    hung = [event for event in events if event.reason == Termination.AGENT_TIMEOUT_EXCEEDED]
    lines += [f"{event.step}, attempt {event.attempt}: {_told(event)}" for event in hung]
    given = Counter(event.step for event in events if event.type is TraceType.STEP_HANDED_OFF)
    wrong = [f"{step} {given[step]} times" for step in run.plan[:-1] if given[step] != 1]
    handoffs = "each step handed off once" if not wrong else f"handed off: {', '.join(wrong)}"
    lines.append(f"{handoffs}; {run.fencing_token} leases for {len(run.plan)} steps")
    missing = [number.name for number, _ in STRIKES[len(hits) :]]
    if missing:
        lines.append(f"not done: {' and '.join(missing)}; no step was hit before it was done")
    if not hung:
        lines.append(f"not done: {HANGING} did not hang")
    return not (missing or wrong) and bool(hung), lines


def _told(event: TraceEvent) -> str:
    """Return how an attempt ended that hung, and the line at which it did."""
    calls = list(_FRAME.finditer(event.stacks or ""))
    at = f"it hung at {calls[-1]['file']}:{calls[-1]['line']}" if calls else "nobody knows where"
    return f"{event.reason}; {at}"


def _pid_here(holder: str) -> int | None:
    """Return the process that a lease's holder names, if it is one of this machine that runs."""
    pid = holder.rpartition("/")[2].partition("@")[0]
    if not pid.isdigit() or holder_name(host_name(), int(pid)) != holder:
        return None
    return int(pid)
