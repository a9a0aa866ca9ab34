"""How a run ended, in one line, and what to do next."""

from __future__ import annotations

from typing import Final

from leasehold.cli.exit_codes import DONE, NOT_COMPLETED
from leasehold.cli.formatting import SKULL, Styled, duration, one_line, state_of, value_in_short
from leasehold.cli.invocation import at, shown
from leasehold.cli.stderr import say
from leasehold.cli.stdout import answer_json, answer_line
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import RunStatus
from leasehold.domain.summary import summary_of

_MAX_OUTPUT: Final = 200


def tell_ending(run: Manifest, *, as_json: bool, url: str | None = None) -> int:
    """Answer with the run at rest; return the exit code that says whether it completed."""
    if as_json:
        answer_json(summary_of(run))
    else:
        answer_line(result_of(run))
        if run.status is RunStatus.COMPLETED:
            output = run.steps[run.current_step].kept_output
            say(f"output: {value_in_short(output, _MAX_OUTPUT)}")
        there = (run.run_id, *at(url))
        say("next:", f"{shown('show', *there)} · {shown('trace', *there)}")
    return DONE if run.status is RunStatus.COMPLETED else NOT_COMPLETED


def result_of(run: Manifest) -> Styled:
    """Return how the run rests: `run ID STATE after TIME`, and why."""
    state, style, _ = state_of(run)
    passed = duration((run.completed_at or run.updated_at) - run.created_at)
    if run.status is RunStatus.COMPLETED:
        return Styled(f"run {run.run_id} {state} in {passed}", style)
    words = state
    if run.dead_letter_reason is not None:
        words = f"{SKULL} dead-lettered, {run.dead_letter_reason}"
    line = f"run {run.run_id} {words} after {passed} at step {run.current_step}"
    why = _why(run)
    return Styled(one_line(f"{line}: {why}" if why else line), style)


def _why(run: Manifest) -> str | None:
    if run.block is not None:
        return f"{run.block.code}: {run.block.finding} {run.block.remediation}"
    return run.dead_letter_detail
