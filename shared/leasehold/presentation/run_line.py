"""A run that moves in one line of a table: where it stands, how far it is, when it was heard of."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from typing import Final

from leasehold.domain.summary import Summary
from leasehold.presentation.formatting import StyledText, ago, one_line
from leasehold.presentation.run_state import state_and_reason

_MAX_ID: Final = 128
_MAX_NAME: Final = 40
_MAX_MESSAGE: Final = 200


@dataclass(frozen=True, slots=True)
class RunLine:
    """What a line shows; `fraction` is that of the current step, None where it said nothing."""

    run_id: str
    pipeline: str
    state: StyledText
    step: str
    attempt: str
    fraction: float | None
    message: str
    heartbeat: str

    @property
    def words(self) -> str:
        """The line for a log; without the age of the heartbeat, which is no news."""
        run = f"run {self.run_id} {self.pipeline} {self.state.text}"
        where = f"{run} step {self.step} attempt {self.attempt}"
        return one_line(f"{where}: {self.reported}" if self.reported else where)

    @property
    def reported(self) -> str:
        """How far the step is, in words."""
        share = "" if self.fraction is None else f"{self.fraction:.0%}"
        return ", ".join(filter(None, (share, self.message)))


def run_line(run: Summary, now: datetime) -> RunLine:
    """Return the line of a run."""
    return RunLine(
        run_id=one_line(run.run_id, _MAX_ID),
        pipeline=one_line(run.pipeline, _MAX_NAME),
        state=state_and_reason(run),
        step=one_line(run.current_step, _MAX_NAME),
        attempt=str(run.attempts.ended + 1),
        fraction=_step_fraction(run),
        message=one_line(run.progress.message, _MAX_MESSAGE),
        heartbeat="" if run.heartbeat_at is None else ago(min(run.heartbeat_at, now), now),
    )


def _step_fraction(run: Summary) -> float | None:
    """Return how far the current step says it is: the part of the run's share that is its own."""
    progress = run.progress
    try:
        share = progress.fraction * progress.steps - progress.steps_done
    except OverflowError:  # a server may say anything
        return None
    if run.heartbeat_at is None or not (progress.message or share):
        return None
    return min(1.0, max(0.0, share)) if isfinite(share) else 0.0
