"""The checkpoint of an attempt is kept, and interruptions count from its last progress."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from functools import partial

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.checkpoint import Checkpoint, KeptCounts, KeptValue, PhaseReached
from leasehold.domain.dispatch import Rules
from leasehold.domain.kept_checkpoint import MAX_PHASES_COUNTED, read_results
from leasehold.domain.lease import Fence
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome
from leasehold.domain.stored import replace
from leasehold.errors import InvalidRequestError, LeaseLostError
from tests.unit.domain.runs import At, Bound, Runs
from tests.worlds.builders import at_position


@pytest.fixture
def checkpoint(rules: Rules) -> Bound:
    """Three iterations of the phase read, by the holder of lease-1."""
    return partial(
        lifecycle.checkpoint,
        rules=rules,
        fence=Fence("lease-1", 1),
        iteration_count=3,
        phase="read",
        partial_results=KeptValue(text='["Dear"]'),
    )


def interrupted(runs: Runs, run: Manifest, *, at: float) -> Manifest:
    """The run after its attempt was interrupted, and leased again at once.

    Each time by its own outage: two within ten minutes are one, see test_lapse.
    """
    released = lifecycle.release(
        run, runs.at(at), rules=runs.rules, fence=runs.fence(run), reason="instance_shutdown"
    ).manifest
    return at_position(runs.leased(released, at=at, lease_id=f"lease-{at}"), interrupted_at=None)


# -- what is kept ------------------------------------------------------------------------------


def test_a_checkpoint_keeps_what_the_attempt_has_and_renews_its_lease(
    runs: Runs, checkpoint: Bound, at: At
) -> None:
    change = checkpoint(runs.leased(), at(20))

    run = change.manifest
    assert (change.outcome, run.status) == (Outcome.CHECKPOINTED, "IN_PROGRESS")
    assert (run.position.lease.expires_at, run.alarm_at, run.position.heartbeat_at) == (
        at(50),
        at(50),
        at(20),
    )
    assert (run.fencing_token, change.events, change.owed) == (1, (), ())
    assert run.position.checkpoint == Checkpoint(
        step="draft",
        trial=1,
        phase="read",
        iteration_count=3,
        inline='["Dear"]',
        saved_at=at(20),
        fencing_token=1,
        furthest=(PhaseReached(phase="read", iteration_count=3),),
    )
    assert run.position.checkpoint.partial_results == KeptValue(text='["Dear"]')


@pytest.mark.parametrize(("iterations", "is_kept"), [(2, False), (3, True)])
def test_an_attempt_keeps_as_many_iterations_as_before_and_no_fewer(
    runs: Runs, checkpoint: Bound, at: At, iterations: int, is_kept: bool
) -> None:
    """A handler that counts anew would overwrite what it has by less."""
    run = runs.checkpointed(runs.leased(), at=4)

    with nullcontext() if is_kept else pytest.raises(InvalidRequestError, match="3 or more"):
        run = checkpoint(run, at(9), iteration_count=iterations).manifest

    assert run.position.checkpoint.saved_at == at(9 if is_kept else 4)


def test_large_results_are_kept_by_reference(runs: Runs, checkpoint: Bound, at: At) -> None:
    ref = KeptValue(ref="runs/r-1/values/partial.json")

    run = checkpoint(runs.leased(), at(1), partial_results=ref).manifest

    assert (run.position.checkpoint.inline, run.position.checkpoint.ref) == (
        None,
        "runs/r-1/values/partial.json",
    )
    assert run.position.checkpoint.partial_results == ref


def test_what_is_kept_counts_among_the_texts_of_the_manifest(
    runs: Runs, checkpoint: Bound, at: At
) -> None:
    """Else many checkpoints of 32 KiB would fill a document of 1 MiB."""
    run = runs.leased()

    kept = checkpoint(run, at(1), partial_results=KeptValue(text='"é"')).manifest

    assert kept.text_bytes == run.text_bytes + 4


def test_a_checkpoint_takes_the_place_of_the_one_before(
    runs: Runs, checkpoint: Bound, at: At
) -> None:
    run = runs.checkpointed(runs.leased(), at=5, iterations=2)

    run = checkpoint(run, at(9), partial_results=KeptValue(text='["Dear", "Ada"]')).manifest

    assert (run.position.checkpoint.iteration_count, run.position.checkpoint.saved_at) == (3, at(9))
    assert run.position.checkpoint.inline == '["Dear", "Ada"]'


def test_a_checkpoint_renews_the_lease_at_most_to_its_cap(
    runs: Runs, checkpoint: Bound, at: At
) -> None:
    """However busy an attempt is, it ends."""
    long_leases = replace(runs.rules, lease_ttl=timedelta(minutes=10))

    change = checkpoint(runs.leased(), at(20), rules=long_leases)

    assert (change.manifest.position.lease.expires_at, change.manifest.alarm_at) == (
        at(480),
        at(480),
    )


def test_a_checkpoint_never_makes_a_lease_shorter(runs: Runs, checkpoint: Bound, at: At) -> None:
    run = runs.leased(runs.handed_off(), at=6)

    change = checkpoint(run, at(7), fence=Fence("lease-1", 2))

    assert change.manifest.position.lease.expires_at == at(6 + 20 + 300)


@pytest.mark.parametrize(
    ("fence", "second"),
    [(Fence("lease-1", 1), 30), (Fence("lease-1", 2), 1), (Fence("lease-2", 1), 1)],
    ids=["over", "another token", "another lease"],
)
def test_who_does_not_hold_the_lease_keeps_nothing(
    runs: Runs, checkpoint: Bound, at: At, fence: Fence, second: int
) -> None:
    with pytest.raises(LeaseLostError):
        checkpoint(runs.leased(), at(second), fence=fence)


@pytest.mark.parametrize("state", ["pending", "failed", "blocked", "completed", "dead_lettered"])
def test_nothing_is_kept_for_a_run_without_a_lease(
    runs: Runs, checkpoint: Bound, at: At, state: str
) -> None:
    """A worker that settled and then wants to keep something is one that lost its lease."""
    with pytest.raises(LeaseLostError, match="the run has no lease"):
        checkpoint(getattr(runs, state)(), at(7))


def test_the_attempt_of_a_paused_run_may_keep_what_it_has(
    runs: Runs, checkpoint: Bound, at: At
) -> None:
    """It may end as well; what it has is not lost if it does not."""
    run = checkpoint(runs.paused(runs.leased()), at(8)).manifest

    assert (run.paused, run.position.checkpoint.iteration_count, run.alarm_at) == (True, 3, at(38))


# -- how long it is kept -----------------------------------------------------------------------


def test_the_next_attempt_of_the_step_goes_on_from_it_and_the_trace_says_so(
    runs: Runs, at: At
) -> None:
    run = runs.failed(runs.checkpointed(runs.leased(), at=4))

    change = lifecycle.arrive(
        run, at(15), rules=runs.rules, generation=2, lease_id="lease-2", holder="host-b"
    )

    assert change.manifest.position.checkpoint == run.position.checkpoint
    (event,) = change.events
    assert event.model_dump(exclude_none=True) == {
        "type": "checkpoint_resumed",
        "at": at(15),
        "step": "draft",
        "trial": 1,
        "attempt": 2,
        "phase": "read",
        "iterationCount": 3,
    }


def test_a_look_at_a_blocked_run_says_nothing_of_a_checkpoint(runs: Runs) -> None:
    """Its handler cannot be imported, so that nothing goes on from there."""
    run = runs.checkpointed(runs.leased(), at=4)
    run = runs.unable(runs.leased(runs.failed(run), at=15, lease_id="lease-2"), at=16).manifest

    look = lifecycle.look_again(run, runs.at(26), rules=runs.rules).manifest
    taken = lifecycle.arrive(
        look,
        runs.at(26),
        rules=runs.rules,
        generation=look.position.dispatch.generation,
        lease_id="lease-3",
        holder="host-b",
    )

    assert taken.manifest.position.lease is not None
    assert taken.manifest.position.checkpoint is not None
    assert taken.events == ()


def test_who_takes_a_lease_over_goes_on_from_it_too(elsewhere: Runs, at: At) -> None:
    run = elsewhere.checkpointed(elsewhere.claimed(), at=4)

    change = lifecycle.claim(
        run, at(34), rules=elsewhere.rules, lease_id="lease-2", holder="desktop"
    )

    assert [(event.type, event.attempt) for event in change.events] == [
        ("step_terminated", 1),
        ("checkpoint_resumed", 2),
    ]
    assert change.manifest.position.checkpoint.fencing_token == 1


def test_a_checkpoint_before_the_first_iteration_is_described_too(runs: Runs, at: At) -> None:
    run = runs.checkpointed(runs.leased(), at=4, iterations=0, phase="")

    change = lifecycle.arrive(
        run, at(34), rules=runs.rules, generation=1, lease_id="lease-2", holder="host-b"
    )

    assert change.events[1].model_dump()["iterationCount"] == 0


def test_a_checkpoint_of_another_step_is_never_resumed_from(runs: Runs) -> None:
    """As a run has it that was edited by hand: a step would go on with the work of another."""
    run = runs.checkpointed(runs.leased(), at=1)
    kept = run.position.checkpoint
    assert kept is not None

    own = read_results(run, kept, lambda value: value.text or "")
    foreign = read_results(run, replace(kept, step="send"), lambda value: value.text or "")

    assert (own.text, own.problem) == ('["Dear"]', "")
    assert (foreign.text, foreign.problem) == ("", "It is of step send, trial 1.")


def test_only_the_checkpoint_that_cannot_be_used_is_dropped(runs: Runs, at: At) -> None:
    """Its worker has kept another one since."""
    run = runs.checkpointed(runs.leased(), at=1)
    kept = run.position.checkpoint
    assert kept is not None
    facts = {"rules": runs.rules, "fence": runs.fence(run), "why": "It is damaged."}

    other = lifecycle.reject_checkpoint(run, at(2), rejected=replace(kept, phase="x"), **facts)
    same = lifecycle.reject_checkpoint(run, at(2), rejected=kept, **facts)

    assert (other.manifest.position.checkpoint, other.events) == (kept, ())
    assert same.manifest.position.checkpoint is None


def test_an_attempt_without_a_checkpoint_resumes_nothing(runs: Runs, at: At) -> None:
    change = lifecycle.arrive(
        runs.failed(), at(15), rules=runs.rules, generation=2, lease_id="lease-2", holder="host-b"
    )

    assert change.events == ()


def test_a_step_that_is_handed_off_leaves_no_checkpoint_to_the_next(runs: Runs) -> None:
    run = interrupted(runs, runs.checkpointed(runs.leased(), at=4), at=5)

    run = runs.with_output(run, at=6)

    assert (run.current_step, run.position.checkpoint, run.position.interruptions) == (
        "send",
        None,
        0,
    )


def test_the_last_output_leaves_no_checkpoint(runs: Runs) -> None:
    run = runs.checkpointed(runs.leased(runs.handed_off(), at=6, lease_id="lease-2"), at=7)

    assert runs.with_output(run, at=9).position.checkpoint is None


def test_a_failed_step_that_is_retried_goes_on_and_may_be_interrupted_anew(
    runs: Runs, at: At
) -> None:
    run = runs.failed(interrupted(runs, runs.checkpointed(runs.leased(), at=3), at=4), at=5)

    retried = lifecycle.retry(run, at(8), rules=runs.rules, actor="ada", reason="").manifest

    assert (run.position.interruptions, retried.position.interruptions) == (1, 0)
    assert retried.position.checkpoint == run.position.checkpoint
    assert (retried.position.attempts.interrupted, retried.position.attempts.failed) == (1, 1)


def test_a_blocked_step_that_is_retried_keeps_its_checkpoint_unless_a_person_says_otherwise(
    runs: Runs, at: At
) -> None:
    run = runs.blocked(interrupted(runs, runs.checkpointed(runs.leased(), at=3), at=4))
    facts = {"rules": runs.rules, "actor": "ada", "reason": ""}

    retried = lifecycle.retry(run, at(8), **facts)
    anew = lifecycle.retry(run, at(8), **facts, anew=True)

    assert run.position.checkpoint is not None
    assert (retried.manifest.position.checkpoint, retried.manifest.position.interruptions) == (
        run.position.checkpoint,
        0,
    )
    assert retried.kept == KeptCounts(checkpoint=run.position.checkpoint.iteration_count)
    assert (anew.manifest.position.checkpoint, anew.kept) == (None, KeptCounts())


# -- interruptions since the last progress -----------------------------------------------------


@pytest.mark.parametrize(
    ("iterations", "phase", "interruptions"),
    [(4, "read", 0), (3, "read", 1), (2, "read", 1), (0, "write", 0), (9, "write", 0)],
    ids=["one more", "the same", "back", "another phase", "another phase, and more"],
)
def test_progress_is_more_iterations_or_another_phase(
    runs: Runs, at: At, iterations: int, phase: str, interruptions: int
) -> None:
    """Going back is kept, for it is what the attempt has; but it is no reason for more patience."""
    run = interrupted(runs, runs.checkpointed(runs.leased(), at=4), at=5)

    run = runs.checkpointed(run, at=6, iterations=iterations, phase=phase)

    assert (run.position.checkpoint.iteration_count, run.position.checkpoint.phase) == (
        iterations,
        phase,
    )
    assert (run.position.interruptions, run.position.attempts.interrupted) == (interruptions, 1)


def test_to_come_again_to_where_it_was_is_no_progress(runs: Runs) -> None:
    """A handler that ignores its checkpoint and is cut short each time ends all the same."""
    run = runs.leased()
    for at in (1, 2):
        run = runs.checkpointed(run, at=at, iterations=1)
        run = runs.checkpointed(run, at=at, iterations=2)
        run = interrupted(runs, run, at=at)

    assert run.position.interruptions == 2


def test_phases_beyond_the_most_that_are_told_apart_are_no_progress(runs: Runs) -> None:
    """Names that are made up each time would let a step run forever."""
    run = runs.leased()
    for number in range(MAX_PHASES_COUNTED):
        run = runs.checkpointed(run, at=1, iterations=0, phase=f"phase {number}")
    run = interrupted(runs, run, at=2)

    run = runs.checkpointed(run, at=3, iterations=9, phase="one more")

    assert (run.position.checkpoint.phase, run.position.interruptions) == ("one more", 1)
    assert len(run.position.checkpoint.furthest) == MAX_PHASES_COUNTED


def test_the_first_checkpoint_is_progress(runs: Runs) -> None:
    run = interrupted(runs, runs.leased(), at=5)

    assert runs.checkpointed(run, at=6, iterations=0, phase="").position.interruptions == 0


def test_a_step_that_gets_on_is_interrupted_as_often_as_it_takes(runs: Runs) -> None:
    """A long step on machines that are taken away is not stuck; all of it is counted still."""
    run = runs.leased()
    for iteration in range(1, 8):
        run = runs.checkpointed(run, at=iteration, iterations=iteration)
        run = interrupted(runs, run, at=iteration)

    assert (run.status, run.position.interruptions) == ("IN_PROGRESS", 1)
    assert (run.position.attempts.interrupted, run.position.attempt) == (7, 8)
    assert run.steps["draft"].attempts.interrupted == 7


def test_a_step_that_does_not_get_on_is_given_up(runs: Runs, at: At) -> None:
    run = runs.checkpointed(runs.leased(), at=1)
    for second in (2, 3):
        run = runs.checkpointed(interrupted(runs, run, at=second), at=second)

    change = lifecycle.release(
        run, at(4), rules=runs.rules, fence=runs.fence(run), reason="instance_shutdown"
    )

    assert (change.outcome, change.manifest.position.interruptions) == (Outcome.DEAD_LETTERED, 3)
    assert change.manifest.position.attempts.interrupted == 3


def test_expiries_and_interruptions_count_together_and_failures_do_not(runs: Runs, at: At) -> None:
    run = interrupted(runs, runs.leased(), at=1)
    run = runs.failed(run, at=2)
    run = runs.leased(run, at=12, lease_id="lease-3")

    run = lifecycle.expire(run, at(42), rules=runs.rules, lease_id="lease-3").manifest

    assert run.position.interruptions == 2
    assert run.position.attempts.model_dump() == {
        "failed": 1,
        "interrupted": 1,
        "expired": 1,
        "continued": 0,
        "repeated": 0,
        "deferred": 0,
    }
