"""The operations of people on a run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hypothesis import strategies as st
from hypothesis.stateful import (
    precondition,
    rule,
)

from leasehold.domain import lifecycle
from leasehold.domain.change import Change, Draft, Transition
from leasehold.domain.give_up_rules import Verdict
from leasehold.domain.status import DeadLetterReason, Outcome, RunStatus
from leasehold.errors import (
    InvalidRequestError,
    LeaseholdError,
    NotAllowedError,
    PartialOutputError,
    UnknownKeyError,
)
from tests.properties.model import (
    FOUND,
    PLAN,
    TRIALS,
    new_run,
)
from tests.properties.world import RECENT, World


class People(World):
    """Operations by hand, allowed or refused."""

    def pause(self, run_id: str) -> None:
        manifest = self.runs[run_id]
        allowed = not manifest.is_terminal and not manifest.paused

        self.operate(run_id, lifecycle.pause, allowed, Outcome.PAUSED)

    def resume(self, run_id: str) -> None:
        manifest, known = self.runs[run_id], self.known[run_id]
        at_work = known.holder is not None and self.now < known.ends_at
        cut_short = known.holder is not None and not at_work
        expected = Outcome.RESUMED
        if cut_short:
            expected = self.after_lapse(run_id, expected, expected)

        change = self.operate(run_id, lifecycle.resume, manifest.paused, expected)

        if change is not None and cut_short:
            known.lapsed(self.now, silent=False)

    def cancel(self, run_id: str) -> None:
        manifest, known = self.runs[run_id], self.known[run_id]

        change = self.operate(run_id, lifecycle.cancel, not manifest.is_terminal, Outcome.CANCELLED)

        if change is not None and known.holder is not None:
            known.settled = (known.holder, Outcome.CANCELLED)
            known.let_go()

    def retry(self, run_id: str) -> None:
        manifest = self.runs[run_id]
        waits = manifest.status in (RunStatus.ERROR, RunStatus.BLOCKED)
        allowed = waits and not manifest.is_terminal

        change = self.operate(run_id, lifecycle.retry, allowed, Outcome.RETRIED)

        if change is not None:
            known = self.known[run_id]
            known.progress()
            if known.kept is not None:
                known.ends["repeated"] += 1
                known.kept = None

    def approve(self, run_id: str) -> None:
        manifest, known = self.runs[run_id], self.known[run_id]
        kept, step = known.kept, manifest.current_step
        allowed = kept is not None and not manifest.is_terminal
        expected = Outcome.APPROVED
        if kept is not None:
            expected = self.after_output(run_id, expected, kept)

        change = self.operate(run_id, lifecycle.approve, allowed, expected)

        if change is not None and kept is not None:
            self.went_on(run_id, step, kept)

    @precondition(lambda self: len(self.runs) < 4 and self.runs[self.nth_run(0)].is_terminal)
    @rule(
        recent=RECENT,
        from_step=st.sampled_from([*PLAN, "nowhere"]),
        keep_partial=st.booleans(),
    )
    def recreate(self, recent: int, from_step: str, keep_partial: bool) -> None:
        run_id = self.nth_run(recent)
        manifest, known = self.runs[run_id], self.known[run_id]
        new = new_run(f"r-{len(self.runs) + 1}", manifest.trials)
        recreate = partial(
            lifecycle.recreate, from_step=from_step, new=new, keep_partial=keep_partial
        )
        earlier = PLAN[: PLAN.index(from_step)] if from_step in PLAN else PLAN
        done = known.handed_off
        if known.trials and known.kept is None and TRIALS.reviewer in earlier:
            done = known.best_trial() | done if TRIALS.reviewer in done else known.best_trial()
        error: type[LeaseholdError] = UnknownKeyError
        if from_step not in PLAN or any(step not in done for step in earlier):
            error = InvalidRequestError
        elif not keep_partial and any(done[step].is_partial for step in earlier):
            error = PartialOutputError
        if not manifest.is_terminal:
            self.operate(run_id, recreate, False, Outcome.RECREATED)
            return
        if error is not UnknownKeyError or not self.is_known(from_step):
            self.refused(run_id, self.as_transition(recreate), error)
            return

        change = self.operate(run_id, recreate, True, Outcome.RECREATED)

        assert change is not None
        assert change.created is not None
        assert change.created.recreated_from == run_id
        assert change.created.current_step == from_step
        assert change.manifest.recreated_as[-1] == new.run_id
        if from_step == manifest.current_step and manifest.completed_at is None:
            self.known[new.run_id].goes_on(known)

    def give_up(self, run_id: str) -> None:
        manifest = self.runs[run_id]
        if manifest.block == FOUND:
            return  # nothing gives up what a gate has refused: it waits for a person
        expected = Outcome.ALREADY_COMPLETED if manifest.completed_at else Outcome.DEAD_LETTERED
        expected = Outcome.CANCELLED if manifest.cancelled else expected

        change = self.commit(
            run_id,
            lambda m, now: lifecycle.dead_letter(
                Draft(m, now, self.in_force), Verdict(DeadLetterReason.NEVER_STARTED, "none came")
            ),
        )

        assert change.outcome is expected
        self.known[run_id].let_go()

    def as_transition(self, operation: Callable[..., Change]) -> Transition:
        return partial(operation, rules=self.in_force, actor="ada", reason="testing")

    def operate(
        self, run_id: str, operation: Callable[..., Change], allowed: bool, expected: Outcome
    ) -> Change | None:
        if not allowed:
            self.refused(run_id, self.as_transition(operation), NotAllowedError)
            return None
        change = self.commit(run_id, self.as_transition(operation))
        assert change.changed
        assert change.outcome is expected
        return change
