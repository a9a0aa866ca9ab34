"""Attempts that are ended at a limit, and what the trace says of all that are cut short."""

from __future__ import annotations

from functools import partial

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.change import Change
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.dispatch import Rules
from leasehold.domain.lease import Fence
from leasehold.domain.lifecycle.termination import MAX_STACKS_BYTES
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import ErrorRecord, Progress, RetryRule
from leasehold.domain.notes import Notes
from leasehold.domain.status import Outcome, RunStatus, Termination
from leasehold.domain.stored import replace
from tests.unit.domain.runs import At, Bound, Runs
from tests.worlds.builders import at_position, with_step

#: The step draft has a dispatch deadline of 180 s and two retries.
DEADLINE_S = 180
HALF = Progress(fraction=0.5, message="half way")
DOWN = "SIGTERM: the instance was shut down; the lease was released."
STACKS = 'The thread of the handler (most recent call last):\n  File "shop.py", line 7, in charge'
TIMEOUT = ErrorRecord(type="AgentTimeoutError", code="agent_timeout_exceeded", message="Too long.")
LIMITS = (
    Termination.AGENT_TIMEOUT_EXCEEDED,
    Termination.MEMORY_LIMIT_EXCEEDED,
    Termination.DISPATCH_DEADLINE_EXCEEDED,
)


@pytest.fixture
def exceed(rules: Rules) -> Bound:
    """The holder of lease-1 ended its attempt at its agent timeout."""
    return partial(
        lifecycle.exceed_limit,
        rules=rules,
        fence=Fence("lease-1", 1),
        reason=Termination.AGENT_TIMEOUT_EXCEEDED,
        error=TIMEOUT,
        stacks=STACKS,
    )


# -- at a limit --------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", LIMITS)
def test_an_attempt_at_its_limit_failed_and_the_trace_has_one_event_of_it(
    runs: Runs, exceed: Bound, at: At, limit: Termination
) -> None:
    change = exceed(runs.leased(), at(25), reason=limit)

    run = change.manifest
    assert (change.outcome, run.status, run.position.lease) == ("retry_scheduled", "ERROR", None)
    assert (run.position.attempts.failed, run.position.interruptions, run.position.silences) == (
        1,
        0,
        0,
    )
    assert run.steps["draft"].attempts.failed == 1
    assert (run.position.dispatch.generation, run.position.dispatch.not_before) == (2, at(35))
    (event,) = change.events
    assert event.model_dump(exclude_none=True) == {
        "type": "step_terminated",
        "at": at(25),
        "step": "draft",
        "trial": 1,
        "attempt": 1,
        "reason": str(limit),
        "detail": "Too long.",
        "stacks": STACKS,
        "holder": "host-a",
        "executionSeconds": 25.0,
        "lastHeartbeatAt": at(0),
        "leaseExpiresAt": at(30),
    }


def test_the_run_keeps_the_error_of_an_attempt_at_its_limit(
    runs: Runs, exceed: Bound, at: At
) -> None:
    """And what it did, where a traceback would stand: `show` and `why` have it."""
    run = exceed(runs.leased(), at(25)).manifest

    assert run.error == replace(TIMEOUT, step="draft", attempt=1, traceback=STACKS)
    assert run.error_at == at(25)


def test_an_error_with_its_own_traceback_keeps_it(runs: Runs, exceed: Bound, at: At) -> None:
    run = exceed(runs.leased(), at(25), error=replace(TIMEOUT, traceback="its own")).manifest

    assert run.error is not None
    assert run.error.traceback == "its own"


def test_limits_use_up_the_retries(runs: Runs, exceed: Bound, at: At) -> None:
    run, changes = runs.pending(), []
    for number, limit in enumerate(LIMITS, start=1):
        run = runs.leased(run, at=1000 * number, lease_id=f"lease-{number}")
        change = exceed(run, at(1000 * number + 5), reason=limit, fence=runs.fence(run))
        changes.append(change)
        run = change.manifest

    assert [change.outcome for change in changes[:2]] == [Outcome.RETRY_SCHEDULED] * 2
    assert (run.dead_letter_reason, run.position.attempts.failed) == ("RETRIES_EXHAUSTED", 3)
    assert run.dead_letter_detail == (
        "Step draft failed 3 of 3 times without progress; last: AgentTimeoutError: Too long."
    )
    assert [event.type for event in changes[-1].events] == ["step_terminated", "step_dead_lettered"]


@pytest.mark.parametrize("name", ["agent_timeout_exceeded", "AgentTimeoutError"])
def test_the_policy_of_a_step_may_say_that_a_limit_is_final(
    runs: Runs, exceed: Bound, at: At, name: str
) -> None:
    run = runs.leased()
    rule = RetryRule(first_s=10, factor=2, max_s=300, non_retryable=(name,))
    run = at_position(run, dispatch=replace(run.position.dispatch, retry=rule))

    change = exceed(run, at(5))

    assert change.manifest.dead_letter_reason == "PERMANENT_FAILURE"
    assert change.manifest.error is not None
    assert change.manifest.error.permanent


def test_a_paused_run_whose_attempt_is_ended_at_a_limit_waits_for_its_person(
    runs: Runs, exceed: Bound, at: At
) -> None:
    change = exceed(runs.paused(runs.leased()), at(10))

    run = change.manifest
    assert (run.status, run.paused, run.position.attempts.failed) == (RunStatus.ERROR, True, 1)
    assert (run.position.dispatch.generation, run.alarm_at, change.owed) == (1, None, ())


def test_a_cancelled_run_is_ended_at_no_limit(runs: Runs, exceed: Bound, at: At) -> None:
    cancelled = runs.cancelled(runs.leased())

    change = exceed(cancelled, at(10))

    assert (change.outcome, change.changed, change.manifest) == ("cancelled", False, cancelled)


def test_a_repeated_request_gets_the_first_answer(runs: Runs, exceed: Bound, at: At) -> None:
    """The watchdog and the handler's own thread may both say it."""
    first = exceed(runs.leased(), at(10))

    second = exceed(first.manifest, at(11))

    assert (second.outcome, second.changed) == (Outcome.RETRY_SCHEDULED, False)


def test_a_limit_long_stack_is_cut(runs: Runs, exceed: Bound, at: At) -> None:
    change = exceed(runs.leased(), at(10), stacks="é" * 10_000)

    (event,) = change.events
    assert event.stacks == "é" * (MAX_STACKS_BYTES // 2)
    assert change.manifest.error is not None
    assert change.manifest.error.traceback == event.stacks


# -- whoever renews for ever ---------------------------------------------------------------------


def _renewed(runs: Runs, run: Manifest, second: float) -> Change:
    fence = runs.fence(run)
    return lifecycle.renew(run, runs.at(second), rules=runs.rules, fence=fence, notes=Notes(HALF))


def _checkpointed(runs: Runs, run: Manifest, second: float) -> Change:
    return lifecycle.checkpoint(
        run,
        runs.at(second),
        rules=runs.rules,
        fence=runs.fence(run),
        iteration_count=7,
        phase="read",
        partial_results=KeptValue(text='["Dear"]'),
        notes=Notes(HALF),
    )


def _almost_late(runs: Runs) -> Manifest:
    run = runs.leased()
    assert run.position.lease is not None
    return at_position(run, lease=replace(run.position.lease, expires_at=runs.at(DEADLINE_S + 20)))


@pytest.mark.parametrize("write", [_renewed, _checkpointed])
def test_a_write_at_the_deadline_ends_the_attempt_in_its_own_commit(
    runs: Runs, write: Bound
) -> None:
    early = write(runs, _almost_late(runs), DEADLINE_S - 0.001)
    late = write(runs, _almost_late(runs), DEADLINE_S)

    assert early.manifest.position.lease is not None
    run = late.manifest
    assert (late.outcome, run.status, run.position.lease) == ("retry_scheduled", "ERROR", None)
    assert run.position.attempts.failed == 1
    assert [(event.type, event.reason) for event in late.events] == [
        ("step_terminated", "dispatch_deadline_exceeded")
    ]
    assert run.error is not None
    assert (run.error.code, run.error.attempt) == ("dispatch_deadline_exceeded", 1)
    assert run.steps["draft"].progress == HALF
    assert [task.generation for task in late.owed] == [2]


def test_a_checkpoint_at_the_deadline_is_kept_for_the_next_attempt(runs: Runs) -> None:
    change = _checkpointed(runs, _almost_late(runs), DEADLINE_S + 1)

    kept = change.manifest.position.checkpoint
    assert kept is not None
    assert (kept.iteration_count, kept.inline) == (7, '["Dear"]')
    assert change.manifest.position.attempts.failed == 1


def test_a_write_at_the_deadline_of_a_paused_run_parks_it(runs: Runs) -> None:
    run = runs.paused(_almost_late(runs))

    after = _renewed(runs, run, DEADLINE_S).manifest

    assert (after.status, after.paused, after.position.lease, after.alarm_at) == (
        "ERROR",
        True,
        None,
        None,
    )


def test_an_output_after_the_deadline_counts_while_the_lease_holds(runs: Runs) -> None:
    """It is there: to throw it away would be to pay for it twice."""
    run = runs.with_output(_almost_late(runs), at=DEADLINE_S + 5)

    assert run.steps["draft"].status is RunStatus.COMPLETED
    assert run.position.attempts.failed == 0


# -- what was said of the progress is kept by every end --------------------------------------------


@pytest.mark.parametrize(
    "end", ["complete", "block", "fail", "exceed_limit", "release", "expiry", "defer"]
)
def test_every_end_keeps_what_was_said_since_the_last_renewal(runs: Runs, at: At, end: str) -> None:
    run = runs.leased()
    output = KeptValue(text='"Dear Ada"')
    facts: dict[str, dict[str, object]] = {
        "complete": {"output": output},
        "block": {"output": output, "output_status": "SUCCESS", "found": runs.found()},
        "fail": {"error": runs.error()},
        "exceed_limit": {"reason": LIMITS[0], "error": TIMEOUT},
        "release": {"reason": Termination.INSTANCE_SHUTDOWN},
        "expiry": {"reason": Termination.LEASE_EXPIRED},
        "defer": {"reason": Termination.STORE_UNAVAILABLE, "detail": "It is away."},
    }
    settle = getattr(lifecycle, "release" if end == "expiry" else end)

    def settled(progress: Progress | None) -> Manifest:
        change: Change = settle(
            replace(run, steps=with_step(run, "draft", progress=Progress(fraction=0.1))),
            at(5),
            rules=runs.rules,
            fence=runs.fence(run),
            notes=Notes(progress),
            **facts[end],
        )
        return change.manifest

    assert settled(HALF).steps["draft"].progress == HALF
    assert settled(None).steps["draft"].progress == Progress(fraction=0.1)


# -- sentences ------------------------------------------------------------------------------------


def _sentence(change: Change) -> str | None:
    (event,) = [event for event in change.events if event.type == "step_terminated"]
    return event.detail


def test_the_trace_says_in_a_sentence_what_cut_an_attempt_short(runs: Runs, at: At) -> None:
    run = runs.leased()
    fence, rules = runs.fence(run), runs.rules
    release = partial(lifecycle.release, run, at(5), rules=rules, fence=fence)
    cancel = partial(lifecycle.cancel, run, at(5), rules=rules)

    sentences = [
        _sentence(release(reason=Termination.INSTANCE_SHUTDOWN)),
        _sentence(release(reason=Termination.INSTANCE_SHUTDOWN, detail="Ctrl-C.")),
        _sentence(release(reason=Termination.INSTANCE_SHUTDOWN, killed=True)),
        _sentence(release(reason=Termination.LEASE_EXPIRED)),
        _sentence(cancel(actor="ada", reason="wrong folder.")),
        _sentence(cancel(actor="", reason="")),
    ]

    assert sentences == [
        DOWN,
        "Ctrl-C.",
        f"{DOWN} The handler did not end, and was killed.",
        "The worker could not renew its lease in time, and released it before its end.",
        "The run was cancelled by ada: wrong folder; what the attempt still answers is discarded.",
        "The run was cancelled by someone; what the attempt still answers is discarded.",
    ]


def test_a_sentence_has_an_end(runs: Runs, at: At) -> None:
    change = lifecycle.cancel(
        runs.leased(), at(5), rules=runs.rules, actor="ada", reason="why " * 1000
    )

    assert len(_sentence(change) or "") == 500
