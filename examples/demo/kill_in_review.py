"""The kill of the demo: the worker that supervises the digest, before its last iteration."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Final

from examples.demo.catalog import SUPERVISED
from examples.demo.strikes import Hit, Striker
from leasehold.domain.manifest import Manifest
from leasehold.domain.trace import TraceEvent, TraceType
from pipelines.review.models import Supervision
from pipelines.review.supervision import ASPECTS

ITERATIONS: Final = len(ASPECTS)
KEPT: Final = ITERATIONS - 1  # by then


class KillInSupervision(Striker):
    """Kills the worker that supervises the digest, once it has kept all but its last iteration."""

    def work(self) -> None:
        """Wait for that moment, and kill."""
        words = (
            f"killing the worker that runs {SUPERVISED}, iteration {KEPT} of {ITERATIONS} is kept"
        )
        for run in self.looks():
            if _waits_for_it(run):
                self.strike(run, signal.SIGKILL, words)
                return


def account(
    hit: Hit, supervision: Supervision, events: Sequence[TraceEvent]
) -> tuple[bool, list[str]]:
    """Return whether the supervision went on where it was, and what there is to say of it."""
    later = [
        event
        for event in events
        if (event.type, event.step) == (TraceType.CHECKPOINT_RESUMED, hit.step)
        and (event.attempt or 0) > hit.attempt
    ]
    kept = [(event.model_extra or {}).get("iterationCount") for event in later[:1]]
    pid, calls, before = hit.pid, supervision.calls, supervision.calls_before
    place = f"iteration {KEPT} of {ITERATIONS} kept"
    killed = f"{hit.step} was killed with {place} ({hit.signal.name}, pid {pid})"
    if kept != [KEPT]:
        return False, [killed, "not done: it did not go on from there"]
    return before >= KEPT, [
        killed,
        f"it went on with iteration {KEPT + 1}: the trace says {later[0].type}",
        f"{before} of {calls} calls to the agent were not made again",
    ]


def _waits_for_it(run: Manifest) -> bool:
    at, kept = run.position, run.position.checkpoint
    is_there = kept is not None and kept.step == SUPERVISED and kept.iteration_count == KEPT
    return is_there and at.lease is not None and at.attempt == at.trial == 1
