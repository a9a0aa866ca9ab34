"""How an attempt ends: from what its handler and gates came to, to a transition of its run."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any, Final

from leasehold.attempt.attempt import LIMITS_OF_THREADS, Attempt
from leasehold.attempt.values import inline, put
from leasehold.domain import lifecycle
from leasehold.domain.artifact_name import values_folder
from leasehold.domain.change import Transition
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.json_text import MAX_OUTPUT_BYTES, check_size, digest
from leasehold.domain.lifecycle.termination import limit_error
from leasehold.domain.manifest_parts import ErrorRecord
from leasehold.domain.notes import MadeOutput, summary_of_output
from leasehold.domain.result import (
    Begun,
    Continued,
    Deferred,
    Failed,
    Finished,
    Incomplete,
    LimitExceeded,
    Refused,
    Result,
    Stopped,
    Unable,
    Waiting,
)
from leasehold.domain.status import BlockCode, Termination
from leasehold.domain.trials import verdict_in
from leasehold.errors import InvalidVerdictError, StoreUnavailableError, TooLargeError

_NOT_RENEWED: Final = "The store did not answer, so the lease was not renewed in time."
_MAY_END_STEP: Final = (Finished, Refused, Unable, Failed, LimitExceeded)


def ending_of(attempt: Attempt, result: Result) -> Transition:
    """Return the transition that ends an attempt with this result.

    Raises:
        StoreUnavailableError: the output could not be kept.
    """
    run = attempt.manifest
    if run.steps[run.position.step].attempts.expired and isinstance(result, _MAY_END_STEP):
        _count_calls_of_lost_workers(attempt)
    facts: dict[str, Any] = {
        "rules": attempt.engine.dispatch_rules(),
        "fence": attempt.fence,
        "notes": attempt.notes,
    }
    if isinstance(result, Stopped) and result.reason is Termination.LEASE_EXPIRED:
        away = Deferred(Termination.STORE_UNAVAILABLE, _NOT_RENEWED)
        result = away if attempt.is_cut_off else result
    match result:
        case Finished() | Refused() | Unable():
            return _judged(attempt, result, facts)
        case Failed(failure, permanent):
            return partial(lifecycle.fail, **facts, error=failure, permanent=permanent)
        case LimitExceeded(reason, failure, stacks):
            facts |= {"error": failure, "stacks": stacks}
            return partial(lifecycle.exceed_limit, **facts, reason=reason)
        case Stopped(reason) if reason in LIMITS_OF_THREADS:
            failure = limit_error(attempt.manifest, reason)
            return partial(lifecycle.exceed_limit, **facts, reason=reason, error=failure)
        case Stopped(reason, detail):
            facts |= {"detail": detail or attempt.stop_detail, "killed": attempt.is_killed}
            return partial(lifecycle.release, **facts, reason=reason)
        case Deferred() | Continued() | Waiting() | Begun() | Incomplete():
            return _put_off(result, facts)


def _count_calls_of_lost_workers(attempt: Attempt) -> None:
    """Count what killed workers recorded and did not live to count: with the step it would go."""
    from leasehold.attempt.recorded_calls import recorded_calls_of  # noqa: PLC0415 - it is rare

    with suppress(StoreUnavailableError):  # then the settlement has more to wait for than this
        recorded_calls_of(attempt).count()


def _put_off(
    result: Deferred | Continued | Waiting | Begun | Incomplete, facts: dict[str, Any]
) -> Transition:
    """Return the ending of an attempt whose work is left to the next one, or to children."""
    if isinstance(result, Waiting | Begun | Incomplete):
        return _set_aside(result, facts)
    if isinstance(result, Continued) and result.over_budget:
        return partial(lifecycle.exceed_budget, **facts, detail=result.over_budget)
    if isinstance(result, Continued) and result.wanted is not None:
        return partial(lifecycle.wait_for, **facts, wanted=result.wanted)
    if isinstance(result, Continued):
        return partial(lifecycle.continue_later, **facts, at_checkpoint=result.at_checkpoint)
    return partial(lifecycle.defer, **facts, reason=result.reason, detail=result.detail)


def _set_aside(result: Waiting | Begun | Incomplete, facts: dict[str, Any]) -> Transition:
    """Return the ending of an attempt whose run waits for other runs, or for a person."""
    if isinstance(result, Waiting):
        return partial(lifecycle.await_slot, **facts, bound=result.bound, group=result.group)
    if isinstance(result, Begun):
        facts |= {"kind": result.kind, "items": result.items, "runs": result.runs}
        return partial(lifecycle.begin_children, **facts)
    facts |= {"finding": result.finding, "code": result.code}
    return partial(lifecycle.block_gathering, **facts)


def _judged(
    attempt: Attempt,
    result: Finished | Refused | Unable,
    facts: dict[str, Any],
) -> Transition:
    """Return the ending of an attempt that has an output, or one that the code cannot begin.

    An output that cannot be judged now is kept, and judged later, because it was paid for.
    """
    try:
        if isinstance(result, Unable):
            return _unable(attempt, result, facts)
        made = made_output(attempt, result)
    except InvalidVerdictError as error:
        return partial(lifecycle.fail, **facts, error=ErrorRecord.of(error))
    except TooLargeError as error:
        facts |= {"code": BlockCode.HANDLER_MISTAKE, "error": ErrorRecord.of(error)}
        return partial(lifecycle.block_attempt, **facts)
    facts |= {"output": made.value, "output_status": made.status, "verdict": made.verdict}
    facts |= {"summary": made.summary, "skip_to": made.skip_to}
    if isinstance(result, Refused):
        return partial(lifecycle.block, **facts, found=result.found)
    return partial(lifecycle.complete, **facts)


def _unable(attempt: Attempt, result: Unable, facts: dict[str, Any]) -> Transition:
    if result.finished is not None:
        made = made_output(attempt, result.finished)
        facts["notes"] = attempt.notes._replace(output=made)
    return partial(lifecycle.block_attempt, **facts, code=result.code, error=result.error)


def made_output(attempt: Attempt, made: Finished | Refused) -> MadeOutput:
    """Return the output of an attempt as its run keeps it; a large one is stored first.

    Raises:
        InvalidVerdictError: it is a reviewer's, and has no verdict.
        TooLargeError: no output may be as large; nothing was stored.
        StoreUnavailableError: it could not be stored.
    """
    summary = summary_of_output(made.summary) if made.summary else None
    if attempt.output is not None:
        return attempt.output._replace(summary=summary)
    verdict = None if attempt.manifest.trials is None else verdict_in(attempt.manifest, made.output)
    value = _stored_output(attempt, made.output)
    return MadeOutput(value, made.status, verdict, summary, made.skip_to)


def _stored_output(attempt: Attempt, output: str) -> KeptValue:
    """Store the output of the current step under a name that no other attempt's output has.

    One that is judged again is there; what a remote worker sends is always another one.
    """
    run = attempt.manifest
    before = run.steps[run.position.step].kept_output if run.has_unjudged_output else None
    if before is not None and not run.position.dispatch.remote:
        return before
    if kept := inline(output, beside=run.text_bytes):
        return kept
    step = run.position.step
    check_size(f"the output of step {step}", output, MAX_OUTPUT_BYTES)
    # names are shown to those who read the run, and the id of a lease is its holder's
    mark = f"{digest(attempt.fence.lease_id)[:16]}-{digest(output)[:16]}"
    name = f"{values_folder(run)}/{step}-{mark}.json"
    return attempt.insist(partial(put, attempt.engine.artifacts, output, name))
