"""Runs with trials, moved by the lifecycle itself: collect, then write to review, then publish."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from leasehold.domain import lifecycle
from leasehold.domain.change import Change
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.dispatch import Rules
from leasehold.domain.lease import Fence
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Block, ErrorRecord, TrialRule
from leasehold.domain.notes import MadeOutput, Notes
from leasehold.domain.status import BlockCode
from leasehold.domain.timeline import timeline
from leasehold.domain.trace import TraceEvent
from leasehold.domain.trials import verdict_in
from tests.worlds.builders import new_run, rules_of, step_settings

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
PLAN = ("collect", "write", "polish", "review", "publish")
RULE = TrialRule(author="write", reviewer="review", max_trials=3)
RULES = rules_of(*map(step_settings, PLAN), max_interruptions=2)
FOUND = Block(code="TOO_SHORT", finding="2 letters", remediation="Approve or retry.")


def review(score: float, *, settled: bool = False) -> Mapping[str, Any]:
    """What a reviewer says."""
    return {"settled": settled, "score": score, "findings": [f"of {score}"]}


@dataclass
class TrialRun:
    """One run, and what was traced of it; each move takes a second."""

    run: Manifest
    rules: Rules = RULES
    now: datetime = START
    events: list[TraceEvent] = field(default_factory=list)
    leases: int = 0
    change: Change | None = None

    @classmethod
    def begun(cls, *, rule: TrialRule | None = RULE, plan: tuple[str, ...] = PLAN) -> TrialRun:
        new = new_run(plan=plan, trials=rule)
        run = lifecycle.start(None, START, rules=RULES, new=new).manifest
        return cls(run)

    def do(self, transition: Any, **facts: Any) -> TrialRun:
        """Move on; what is stored is read again, as the next worker does."""
        self.now += timedelta(seconds=1)
        change = transition(self.run, self.now, rules=self.rules, **facts)
        self.events += change.events
        self.change = change
        self.run = Manifest.model_validate(change.manifest.model_dump(exclude_none=True))
        return self

    def lease(self) -> TrialRun:
        self.leases += 1
        generation = self.run.position.dispatch.generation
        facts = {"lease_id": f"lease-{self.leases}", "holder": "host-a"}
        return self.do(lifecycle.arrive, generation=generation, **facts)

    @property
    def fence(self) -> Fence:
        assert self.run.position.lease is not None
        return Fence(self.run.position.lease.lease_id, self.run.fencing_token)

    def output(self, value: Any = None, status: str = "SUCCESS") -> TrialRun:
        """The current step runs, and has an output; by default, one that says what it is of."""
        facts = self._output(value, status)
        return self.do(lifecycle.complete, **facts)

    def refused(self, value: Any = None, status: str = "SUCCESS") -> TrialRun:
        """The current step runs, and a gate refuses its output."""
        return self.do(lifecycle.block, **self._output(value, status), found=FOUND)

    def unjudged(self, value: Any = None) -> TrialRun:
        """The current step runs, and a gate cannot be asked for its output."""
        error = ErrorRecord(type="E", code="handler_not_found", message="No gate.")
        facts = {"code": BlockCode.HANDLER_UNAVAILABLE, "error": error}
        made = self._output(value, "SUCCESS")
        output = MadeOutput(made["output"], made["output_status"], made["verdict"])
        notes = Notes(output=output)
        return self.do(lifecycle.block_attempt, fence=made["fence"], notes=notes, **facts)

    def _output(self, value: Any, status: str) -> dict[str, Any]:
        if self.run.position.lease is None:
            self.lease()
        text = json.dumps(value or f"{self.run.current_step} of trial {self.run.position.trial}")
        verdict = verdict_in(self.run, text)
        return {
            "fence": self.fence,
            "output": KeptValue(text=text),
            "output_status": status,
            "verdict": verdict,
        }

    def trial(self, score: float, *, settled: bool = False, author: str = "SUCCESS") -> TrialRun:
        """One trial from its author to its reviewer."""
        return self.output(status=author).output().output(review(score, settled=settled))

    def fails(self, *, permanent: bool = False) -> TrialRun:
        self.lease()
        error = ErrorRecord(type="E", code="overloaded", message="Later.")
        self.do(lifecycle.fail, fence=self.fence, error=error, permanent=permanent)
        self.now += timedelta(minutes=10)
        return self

    def operate(self, transition: Any) -> TrialRun:
        return self.do(transition, actor="ada", reason="")

    def knowing(self, *steps: str) -> TrialRun:
        self.rules = replace(RULES, settings_for={s: step_settings(s) for s in steps}.get)
        return self

    def timeline(self) -> list[TraceEvent]:
        return timeline(self.run, self.events)

    def traced(self, *types: str) -> list[tuple[Any, ...]]:
        """Type, step, trial and reason of the events of these types."""
        return [
            (str(event.type), event.step, event.trial, event.reason)
            for event in self.events
            if event.type in types
        ]

    def outputs(self) -> dict[str, Any]:
        """The output of each step that has one."""
        kept = {step: record.output for step, record in self.run.steps.items()}
        return {step: json.loads(text) for step, text in kept.items() if text is not None}
