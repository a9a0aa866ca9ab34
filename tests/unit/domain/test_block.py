"""A mistake that a deploy can correct blocks a run, costs it nothing, and is tried again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.change import alarm_for
from leasehold.domain.checkpoint import KeptCounts, KeptValue
from leasehold.domain.lifecycle.repair import breaches
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import BlockCode, Outcome
from leasehold.domain.stored import replace
from leasehold.services.reporting import reports
from tests.unit.domain.runs import At, Runs


def found_again(runs: Runs, run: Manifest, *, at: float) -> Manifest:
    """The run, looked at and found to be blocked for the same reason."""
    leased = runs.looked_at(run, at=at, lease_id=f"lease-{at}")
    return runs.unable(leased, at=at).manifest


def test_an_attempt_that_cannot_begin_counts_for_nothing(runs: Runs, at: At) -> None:
    leased = runs.checkpointed(runs.leased(), at=3)

    change = runs.unable(leased)

    run = change.manifest
    assert run.block is not None
    assert (change.outcome, run.status, run.position.lease) == (Outcome.BLOCKED, "BLOCKED", None)
    assert (run.block.code, run.block.look_at, run.alarm_at) == (
        "handler_unavailable",
        at(15),
        at(15),
    )
    assert (run.position.attempts.ended, run.position.interruptions) == (0, 0)
    assert (run.position.checkpoint, run.is_moving) == (leased.position.checkpoint, False)


def test_it_is_looked_at_later_and_later_and_said_once(runs: Runs) -> None:
    first = runs.unable()
    run, said, waits = first.manifest, [len(list(reports(first)))], []
    for _ in range(9):
        assert run.block is not None
        assert run.block.look_at is not None
        waits.append((run.block.look_at - run.updated_at).total_seconds())
        due = (run.block.look_at - runs.at(0)).total_seconds()
        leased = runs.looked_at(run, at=due, lease_id=f"lease-{due}")
        change = runs.unable(leased, at=due)
        said.append(len(list(reports(change))) + len(change.events) + len(change.deliveries))
        run = change.manifest

    assert waits == [10, 20, 40, 80, 160, 320, 600, 600, 600]
    assert said == [1] + [0] * 9
    assert run.position.attempts.ended == 0


def test_another_reason_is_another_block(runs: Runs, at: At) -> None:
    again = found_again(runs, runs.unable().manifest, at=15)
    error = replace(runs.import_error(), message="It does not fit.")
    leased = runs.looked_at(again, at=35, lease_id="lease-9")

    change = runs.unable(leased, at=35, code=BlockCode.INPUT_MISMATCH, error=error)

    block = change.manifest.block
    assert block is not None
    assert (block.code, block.looks, block.look_at) == ("input_mismatch", 0, at(45))
    assert [(event.type, event.reason) for event in change.events] == [
        ("step_blocked", "input_mismatch")
    ]


def test_other_words_at_each_look_are_the_same_block(runs: Runs) -> None:
    """They name addresses and ports, or two servers find something else each."""
    run, told, looks = runs.unable().manifest, 0, []
    for number in range(4):
        assert run.block is not None
        assert run.block.look_at is not None
        due = (run.block.look_at - runs.at(0)).total_seconds()
        error = replace(runs.import_error(), message=f"<HTTPSConnection object at 0x7f{number}>")
        leased = runs.looked_at(run, at=due, lease_id=f"lease-{due}")
        change = runs.unable(leased, at=due, error=error)
        told += len(list(reports(change))) + len(change.events) + len(change.deliveries)
        run = change.manifest
        assert run.block is not None
        looks.append(run.block.looks)

    assert (looks, told) == ([1, 2, 3, 4], 0)
    assert run.block is not None
    assert run.block.finding == "<HTTPSConnection object at 0x7f3>"


def test_of_two_servers_that_find_another_reason_each_both_are_said_once(runs: Runs) -> None:
    """They look in turn, and later and later, as one that looks alone."""
    codes = [BlockCode.HANDLER_UNAVAILABLE, BlockCode.INPUT_MISMATCH] * 3
    change, told, looks = runs.unable(code=codes[0]), [], []
    for code in codes[1:]:
        block = change.manifest.block
        assert block is not None
        assert block.look_at is not None
        told.append(len(list(reports(change))))
        looks.append(block.looks)
        due = (block.look_at - runs.at(0)).total_seconds()
        leased = runs.looked_at(change.manifest, at=due, lease_id=f"lease-{due}")
        change = runs.unable(leased, at=due, code=code)

    assert (told, looks) == ([1, 1, 0, 0, 0], [0, 0, 1, 2, 3])
    assert change.manifest.block is not None
    assert change.manifest.block.codes_before == ("handler_unavailable",)


@pytest.mark.parametrize("goes_on", ["output", "checkpoint"])
def test_what_blocks_a_step_that_went_on_is_another_block(runs: Runs, goes_on: str) -> None:
    again = found_again(runs, runs.unable().manifest, at=15)
    leased = runs.looked_at(again, at=35, lease_id="lease-9")
    if goes_on == "checkpoint":
        change = runs.unable(runs.checkpointed(leased, at=36), at=37)
    else:
        change = runs.unable(leased, at=37, output=KeptValue(text='"Dear Ada"'))

    assert change.manifest.block is not None
    assert change.manifest.block.looks == 0
    assert [event.type for event in change.events] == ["step_blocked"]


def test_what_is_put_right_goes_on_where_it_stands(runs: Runs) -> None:
    kept = runs.checkpointed(runs.leased(), at=3)
    blocked = runs.unable(kept).manifest

    healed = runs.with_output(runs.looked_at(blocked, at=15, lease_id="lease-2"), at=16)

    assert (healed.current_step, healed.block, healed.position.dispatch.after_block) == (
        "send",
        None,
        None,
    )
    assert healed.steps["draft"].attempts.ended == 0


@pytest.mark.parametrize("end", ["release", "expire", "fail"])
def test_a_look_that_is_cut_short_still_knows_what_it_looks_at(runs: Runs, end: str) -> None:
    """Else the next one would tell people anew; a failure says that the handler was called."""
    blocked = runs.unable().manifest
    leased = runs.looked_at(blocked, at=15, lease_id="lease-2")
    facts = {"rules": runs.rules, "fence": runs.fence(leased)}
    ended = {
        "release": lambda: lifecycle.release(
            leased, runs.at(16), **facts, reason="instance_shutdown"
        ),
        "expire": lambda: lifecycle.expire(
            leased, runs.at(45), rules=runs.rules, lease_id="lease-2"
        ),
        "fail": lambda: lifecycle.fail(leased, runs.at(16), **facts, error=runs.error()),
    }[end]()

    expected = None if end == "fail" else blocked.block
    assert ended.manifest.position.dispatch.after_block == expected


def test_who_does_not_know_the_step_leaves_the_look_to_those_who_do(runs: Runs, at: At) -> None:
    run, nothing = runs.unknown(), runs.knowing_nothing()

    early = lifecycle.look_again(run, at(70), rules=nothing)
    late = lifecycle.look_again(run, at(130), rules=nothing)

    assert (early.outcome, early.changed) == (Outcome.STEP_UNKNOWN, False)
    assert (late.outcome, late.manifest.alarm_at) == (Outcome.ALARM_SET, at(150))
    assert late.manifest.status == "BLOCKED"
    assert (late.events, late.deliveries) == ((), ())


def test_a_process_that_begins_looks_at_once_but_not_again_and_again(runs: Runs, at: At) -> None:
    mine = replace(runs.rules, code_hash="one")
    run = replace(runs, rules=mine).unable().manifest
    assert run.block is not None
    assert run.block.code_hash == "one"

    def look(second: float, code_hash: str) -> Outcome:
        rules = replace(runs.rules, code_hash=code_hash)
        return lifecycle.look_again(run, at(second), rules=rules, at_once=True).outcome

    assert look(6, "two") is Outcome.LOOKED_AGAIN
    assert look(6, "one") is Outcome.NOT_DUE
    assert look(15, "one") is Outcome.LOOKED_AGAIN
    assert look(-3600, "one") is Outcome.LOOKED_AGAIN, "the clock was set back since"


@pytest.mark.parametrize(
    ("code_hash", "outcome"), [("one", Outcome.NOT_DUE), ("two", Outcome.LOOKED_AGAIN)]
)
def test_a_mistake_is_not_tried_again_by_a_process_with_the_code_that_made_it(
    runs: Runs, at: At, code_hash: str, outcome: Outcome
) -> None:
    """Each try may pay for a call whose result cannot be kept."""
    mine = replace(runs.rules, code_hash="one")
    run = replace(runs, rules=mine).unable(code=BlockCode.HANDLER_MISTAKE).manifest

    rules = replace(runs.rules, code_hash=code_hash)
    look = lifecycle.look_again(run, at(3600), rules=rules, at_once=True)

    assert look.outcome is outcome


def test_a_person_may_have_it_look_now(runs: Runs) -> None:
    again = found_again(runs, runs.unable().manifest, at=15)

    change = lifecycle.retry(again, runs.at(16), rules=runs.rules, actor="ada", reason="")

    run = change.manifest
    assert (change.outcome, run.status) == (Outcome.RETRIED, "PENDING")
    assert run.position.dispatch.after_block == replace(again.block, looks=0)
    assert len(change.owed) == 1


# -- an output that cannot be judged ---------------------------------------------------------------


def test_an_output_that_no_gate_can_judge_is_kept_and_judged_again(runs: Runs) -> None:
    output = KeptValue(text='"Dear Ada"')
    blocked = runs.unable(output=output).manifest
    before = blocked.steps["draft"]

    leased = runs.looked_at(blocked, at=15, lease_id="lease-2")
    healed = lifecycle.complete(
        leased, runs.at(17), rules=runs.rules, fence=runs.fence(leased), output=output
    ).manifest

    assert (before.output, before.execution_seconds) == ('"Dear Ada"', 5.0)
    assert leased.has_unjudged_output
    after = healed.steps["draft"]
    assert (healed.current_step, after.output) == ("send", '"Dear Ada"')
    assert (after.completed_at, after.execution_seconds) == (before.completed_at, 5.0)


def test_the_output_of_a_remote_worker_is_judged_here(elsewhere: Runs) -> None:
    """No worker claims the step once more: its work was paid for."""
    blocked = elsewhere.unable(output=KeptValue(text='"Dear Ada"')).manifest

    look = lifecycle.look_again(blocked, elsewhere.at(15), rules=elsewhere.rules)
    leased = lifecycle.arrive(
        look.manifest,
        elsewhere.at(15),
        rules=elsewhere.rules,
        generation=look.manifest.position.dispatch.generation,
        lease_id="lease-2",
        holder="host-a",
    )

    assert (look.manifest.claimable, len(look.owed)) == (None, 1)
    assert (leased.outcome, leased.manifest.has_unjudged_output) == (Outcome.ACQUIRED, True)


def test_a_gate_that_raises_is_asked_again_without_the_handler(runs: Runs) -> None:
    blocked = runs.unable(output=KeptValue(text='"Dear Ada"')).manifest
    failed = runs.failed(runs.looked_at(blocked, at=15, lease_id="lease-2"), at=16)

    again = runs.leased(failed, at=60, lease_id="lease-3")

    assert (failed.status, failed.position.attempts.failed) == ("ERROR", 1)
    assert again.has_unjudged_output


def refailed(runs: Runs) -> Manifest:
    """A run whose output waits to be judged, and whose gate has raised."""
    blocked = runs.unable(output=KeptValue(text='"Dear Ada"')).manifest
    return runs.failed(runs.looked_at(blocked, at=15, lease_id="lease-2"), at=16)


def test_a_retry_has_an_output_judged_that_was_paid_for(runs: Runs, at: At) -> None:
    failed = refailed(runs)
    asks = {"rules": runs.rules, "actor": "ada", "reason": "the gate is repaired"}

    again = lifecycle.retry(failed, at(17), **asks).manifest
    anew = lifecycle.retry(failed, at(17), **asks, anew=True).manifest

    assert (again.status, again.has_unjudged_output, again.position.failures) == (
        "PENDING",
        True,
        0,
    )
    assert lifecycle.has_own_work(failed)
    assert lifecycle.retry(failed, at(17), **asks).kept == KeptCounts(unjudged=1)
    assert (anew.has_unjudged_output, anew.steps["draft"].output) == (False, None)


@pytest.mark.parametrize("state", ["blocked", "looked at", "given up"])
def test_a_new_run_has_an_output_judged_that_was_paid_for(
    elsewhere: Runs, at: At, state: str
) -> None:
    """Whether its gate could never be asked, or raised until the run was given up."""
    runs = elsewhere
    blocked = runs.unable(output=KeptValue(text='"Dear Ada"')).manifest
    look = lifecycle.look_again(blocked, at(15), rules=runs.rules).manifest
    old = {
        "blocked": lambda: runs.cancelled(blocked),
        "looked at": lambda: runs.cancelled(look),
        "given up": lambda: (
            lifecycle.fail(
                leased := runs.leased(look, at=15, lease_id="lease-2"),
                at(16),
                rules=runs.rules,
                fence=runs.fence(leased),
                error=runs.error(),
                permanent=True,
            ).manifest
        ),
    }[state]()

    facts = {"rules": runs.rules, "new": runs.new("r-2", nonce="nonce-2"), "actor": "ada"}
    created = lifecycle.recreate(old, at(20), **facts, reason="").created
    anew = lifecycle.recreate(old, at(20), **facts, reason="", anew=True).created

    assert created is not None
    assert created.has_unjudged_output
    assert (created.claimable, created.alarm_at) == (None, at(80))
    leased = runs.leased(created, at=21)
    said = [event.type for event in runs.unable(leased, at=22).events]
    assert said == ["step_blocked"], "of a run that nobody was told of"
    assert runs.with_output(leased, at=22).steps["draft"].output == '"Dear Ada"'
    assert anew is not None
    assert (anew.claimable, anew.steps["draft"].output) == ("draft", None)


# -- other versions --------------------------------------------------------------------------------


def test_an_alarm_that_an_older_sweep_took_away_is_found_by_the_audit(runs: Runs, at: At) -> None:
    """It knows blocks only without one; the next process that begins looks in any case."""
    stripped = replace(runs.unable().manifest, alarm_at=None)

    assert [breach.code for breach in breaches(stripped, at(20), runs.rules)] == ["no_alarm"]
    look = lifecycle.look_again(stripped, at(20), rules=runs.rules, at_once=True)
    assert look.outcome is Outcome.LOOKED_AGAIN


def test_a_pause_holds_it_and_a_resume_lets_it_look(runs: Runs, at: At) -> None:
    paused = runs.paused(runs.unable().manifest)

    resumed = lifecycle.resume(paused, at(600), rules=runs.rules, actor="ada", reason="").manifest

    assert (paused.alarm_at, resumed.status) == (None, "BLOCKED")
    assert alarm_for(resumed, timedelta(seconds=60)) == at(15)


def test_a_clock_that_was_ahead_puts_no_look_off(runs: Runs, at: At) -> None:
    ahead = replace(runs, at=lambda second: at(second + 30 * 86_400))
    run = ahead.unable(ahead.leased(), at=5).manifest

    repaired = lifecycle.on_audit(
        run, at(100), rules=runs.rules, generation=run.position.dispatch.generation, in_queue=None
    ).manifest

    assert repaired.status == "PENDING"


def test_code_that_cannot_run_a_step_uses_up_no_retry(runs: Runs) -> None:
    """A person's mistake costs a run nothing."""
    blocked = runs.unable().manifest

    assert (blocked.position.failures, blocked.position.interruptions) == (0, 0)
    assert blocked.position.attempts.failed == 0
