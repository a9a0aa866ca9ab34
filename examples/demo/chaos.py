"""Chaos for the demo: workers end in the middle of steps, one step hangs, and the run continues.

One worker is killed without warning; another is asked to stop, and can react. Only processes of
this machine are hit, and only while they hold the lease of the demo's run. The step that hangs is
left alone: it is ended at its limit.
"""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from examples.demo.catalog import SUPERVISED
from examples.demo.chaos_catalog import HANGING
from examples.demo.hanging_publish import LIMIT
from examples.demo.strikes import Hit, Striker
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Termination
from leasehold.domain.trace import TraceEvent, TraceType

STRIKES: Final = (
    (signal.SIGKILL, "killing the worker that runs {step}"),
    (signal.SIGTERM, "asking the worker that runs {step} to stop"),
)
MIDDLE: Final = timedelta(seconds=0.2)  # a step that has run so long is in its middle

#: A call of a stack, the most recent last.
_FRAME: Final = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')

#: A step's agent calls take about so long together: enough for a middle, and not for a yawn.
STEP_MS: Final = 3000
SHORTEST_PACE_MS: Final = 50
LONGEST_PACE_MS: Final = 600


def pace_for(documents: int) -> str:
    """Return the REVIEW_AGENT_PACE_MS with which the steps of so many documents have a middle."""
    return str(min(LONGEST_PACE_MS, max(SHORTEST_PACE_MS, STEP_MS // max(1, documents))))


class Chaos(Striker):
    """Strikes two workers of a run, and says how the step that hangs is ended."""

    def work(self) -> None:
        """Strike with each signal until that counts; then wait for the step that hangs."""
        for number, words in STRIKES:
            self._strike_until_it_counts(number, words)
        self._wait_for_the_one_that_hangs()

    def _strike_until_it_counts(self, number: signal.Signals, words: str) -> None:
        """Strike; if a step was done before it was hit, the next one is."""
        for run in self.looks():
            told = words.format(step=run.position.step)
            if self._is_in_its_middle(run) and self.strike(run, number, told):
                return

    def _is_in_its_middle(self, run: Manifest) -> bool:
        """Return whether the run is in the middle of a step that can bear a strike.

        That is after the first one there is, and has not its own end, as has the supervision.
        """
        first, step, lease = run.plan[0], run.position.step, run.position.lease
        if step in (HANGING, SUPERVISED) or any(hit.step == first == step for hit in self.hits):
            return False
        return lease is not None and self.now() - lease.acquired_at >= MIDDLE

    def _wait_for_the_one_that_hangs(self) -> None:
        """Say so when the step begins to hang, and when it runs again."""
        for run in self.looks():
            at = run.position
            if at.step == HANGING and at.lease is not None and at.attempt == 1:
                seconds = f"{LIMIT.total_seconds():g} s"
                self.tell(f"{HANGING} hangs, and ignores its stop; its limit is {seconds}")
                break
        if any(run.position.step == HANGING and run.position.attempt > 1 for run in self.looks()):
            self.tell(f"{HANGING} was ended at its limit, and runs again")


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
    at = f"it hung at {calls[-1]['file']}:{calls[-1]['line']}" if calls else "at an unknown place"
    return f"{event.reason}; {at}"
