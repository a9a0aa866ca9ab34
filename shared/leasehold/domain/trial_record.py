"""The trials of a run, as its manifest has them."""

from __future__ import annotations

from pydantic import AwareDatetime

from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.stored import Stored


class TrialRule(Stored):
    """The trials of a run, as its pipeline had them when it began."""

    author: str
    reviewer: str
    max_trials: int


class TrialVerdict(Stored):
    """The verdict of a reviewer on a trial. Its findings stand in its output."""

    settled: bool
    score: float


class TrialRecord(Stored):
    """What became of a step in one trial; `verdict`: of a reviewer."""

    trial: int
    output: str | None = None
    output_ref: str | None = None
    output_status: str | None = None
    summary: str | None = None
    started_at: AwareDatetime | None = None
    completed_at: AwareDatetime | None = None
    handed_off_at: AwareDatetime | None = None
    bootstrap_seconds: float | None = None
    execution_seconds: float | None = None
    cold_start: bool | None = None
    first_tool: str | None = None
    attempts_ended: int = 0  # in this trial, without an output that counts
    verdict: TrialVerdict | None = None

    @property
    def kept_output(self) -> KeptValue | None:
        """The output, if there is one."""
        if self.output is None and self.output_ref is None:
            return None
        return KeptValue(text=self.output, ref=self.output_ref)
