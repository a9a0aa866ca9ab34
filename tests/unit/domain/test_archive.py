"""The archive of an ended run: when it is owed, what came of a try, and when the next one comes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.change import as_write
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.children import Children
from leasehold.domain.dispatch import Rules
from leasehold.domain.effect import Archive, owed_effects
from leasehold.domain.explanation import explain
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome, RunStatus
from leasehold.domain.stored import Ref, replace
from leasehold.domain.trace import TraceType
from leasehold.errors import NotAllowedError
from tests.unit.domain.runs import ARCHIVE, At, Runs
from tests.worlds.builders import at_position

ENDED = ("completed", "cancelled", "dead_lettered")


def ended(runs: Runs, how: str) -> Manifest:
    return runs.cancelled(runs.leased()) if how == "cancelled" else getattr(runs, how)()


@pytest.mark.parametrize("how", ENDED)
def test_however_a_run_with_files_ends_it_owes_its_archive_from_that_commit_on(
    runs: Runs, how: str
) -> None:
    run = ended(runs, how)

    assert owed_effects(run)[-1] == ARCHIVE
    assert run.archive is not None
    assert run.archive.ended_at == run.updated_at
    assert run.alarm_at == run.updated_at + runs.rules.grace
    assert (run.is_moving, run.is_idle) == (False, True)


def test_a_run_without_files_or_channels_owes_nothing_once_it_has_ended(runs: Runs, at: At) -> None:
    """Its end costs no commit beside the one that ends it, which writes its ledger too."""
    handed_off = runs.with_output(runs.leased(), at=5, stores_files=False)
    held = runs.leased(handed_off, at=6, lease_id="lease-2")

    change = lifecycle.complete(
        held, at(9), rules=runs.rules, fence=runs.fence(held), output=KeptValue(text="1")
    )

    assert (change.manifest.archive, change.manifest.alarm_at, change.owed) == (None, None, ())
    assert list(as_write(change).puts or ()) == [Ref("ledger", "r-1")]


@pytest.mark.parametrize(
    "left",
    [
        lambda runs: runs.failed(),
        lambda runs: replace(runs.pending(), has_files=True),
        lambda runs: replace(runs.pending(), owed=("runs/r-1/checkpoints/draft-1",)),
        lambda runs: runs.elsewhere().claimed(),
    ],
    ids=["an attempt that was cut short", "a file", "a checkpoint", "a remote worker"],
)
def test_what_may_have_left_artifacts_makes_an_end_owe_an_archive(
    runs: Runs, left: Callable[[Runs], Manifest]
) -> None:
    run = at_position(replace(left(runs), status=RunStatus.PENDING), lease=None, step="send")

    ended = runs.with_output(runs.leased(run, at=100), at=101, stores_files=False)

    assert (ended.status, owed_effects(ended)) == (RunStatus.COMPLETED, (ARCHIVE,))


def test_an_archive_knows_the_outputs_that_may_give_people_addresses(runs: Runs) -> None:
    run = runs.completed()
    outputs = tuple(step.output for step in run.steps.values())
    (archive,) = (one for one in owed_effects(run) if isinstance(one, Archive))

    assert archive.outputs == outputs != ()


@pytest.mark.parametrize("state", ["pending", "leased", "failed", "blocked", "handed_off"])
def test_a_live_run_owes_no_archive(runs: Runs, state: str) -> None:
    run = getattr(runs, state)()

    assert run.archive is None
    assert not [effect for effect in owed_effects(run) if isinstance(effect, Archive)]


@pytest.mark.parametrize("how", ENDED)
def test_once_all_is_done_it_owes_nothing(runs: Runs, how: str) -> None:
    change = runs.archive_noted(ended(runs, how), at=3700)

    assert change.outcome is Outcome.ARCHIVED
    assert (change.manifest.archive, change.manifest.alarm_at, change.owed) == (None, None, ())
    assert change.events == ()
    assert not as_write(change).puts
    again = runs.archive_noted(change.manifest, at=3701)
    assert (again.outcome, again.changed) == (Outcome.MOVED_ON, False)


def test_for_an_hour_a_worker_that_was_not_heard_to_end_may_leave_another_file(
    runs: Runs, at: At
) -> None:
    """It works on until it hears that its run was cancelled: its files are deleted once more."""
    run = runs.cancelled(runs.leased())  # it was heard of at second 0

    first = runs.archive_noted(run, at=10)
    again = runs.archive_noted(first.manifest, at=3600)

    assert first.manifest.archive is not None
    assert (first.outcome, first.manifest.archive.not_before) == ("archive_owed", at(3600))
    assert again.outcome is Outcome.ARCHIVED


def test_what_failed_is_traced_and_kept(runs: Runs, at: At) -> None:
    change = runs.archive_noted(runs.completed(), at=10, compress_artifacts="It is away.")

    (event,) = change.events
    assert (event.type, event.reason) == (TraceType.ARCHIVE_FAILED, "compress_artifacts")
    assert event.detail == "It is away."
    assert change.outcome is Outcome.ARCHIVE_OWED
    assert change.manifest.archive is not None
    assert change.manifest.archive.failed == ("compress_artifacts",)
    assert change.manifest.alarm_at == at(10 + 60)


def test_a_failure_is_traced_again_only_when_it_is_another_one(runs: Runs) -> None:
    run = runs.archive_noted(runs.completed(), at=10, compress_artifacts="away").manifest
    for at in (100, 400):
        on_alarm = partial(lifecycle.on_alarm, rules=runs.rules, generation=1, in_queue=False)
        run = on_alarm(run, runs.at(at)).manifest

    same = runs.archive_noted(run, at=401, compress_artifacts="still away")
    other = runs.archive_noted(
        run, at=401, compress_artifacts="still away", delete_checkpoints="away"
    )

    assert not same.changed
    assert [event.reason for event in other.events] == ["delete_checkpoints"]


def test_what_is_still_under_way_is_no_failure(runs: Runs) -> None:
    change = runs.archive_noted(runs.completed(), at=10, is_over=False)

    assert (change.outcome, change.events) == (Outcome.ARCHIVE_OWED, ())


def test_the_sweep_tries_again_after_the_grace_then_after_twice_as_long_up_to_an_hour(
    runs: Runs,
) -> None:
    run = runs.completed()
    waits = []
    for _ in range(9):
        assert run.alarm_at is not None
        now = run.alarm_at
        change = lifecycle.on_alarm(run, now, rules=runs.rules, generation=1, in_queue=False)
        assert change.outcome is Outcome.REPUBLISHED
        assert change.owed[-1] == ARCHIVE
        run = change.manifest
        assert run.alarm_at is not None
        waits.append(round((run.alarm_at - now).total_seconds()))

    assert waits == [120, 240, 480, 960, 1920, 3600, 3600, 3600, 3600]
    assert not list(lifecycle.breaches(run, run.updated_at, runs.rules))


def test_no_time_in_a_run_keeps_it_from_the_sweep_for_longer_than_that(runs: Runs) -> None:
    run = runs.completed()
    assert run.archive is not None
    far = replace(run.archive, not_before=runs.at(10**9))

    again = runs.archive_noted(replace(run, archive=far), at=10, compress_artifacts="x").manifest

    assert again.alarm_at == runs.at(10) + timedelta(hours=1)


def test_an_alarm_that_another_version_took_away_is_found_and_set(
    runs: Runs, rules: Rules, at: At
) -> None:
    """The sweep of a version that knows no archive finds a stray alarm on the run."""
    run = replace(runs.completed(), alarm_at=None)

    (breach,) = lifecycle.breaches(run, at(20), rules)
    change = lifecycle.on_audit(run, at(20), rules=rules, generation=1, in_queue=False)

    assert breach.finding == "It is COMPLETED, and owes its archive, and has no alarm."
    assert change.manifest.alarm_at == at(20 + 60)
    assert change.owed == (ARCHIVE,)


def test_a_run_may_be_purged_before_it_is_archived(runs: Runs, at: At) -> None:
    """Its ledger was written when it ended, and stays."""
    run = runs.completed()
    assert lifecycle.is_purgeable(run, at(10))

    assert lifecycle.purge(run, at(20), ended_before=at(10)).outcome is Outcome.PURGED


def test_a_run_whose_children_have_not_heard_of_its_end_is_not_purged(runs: Runs, at: At) -> None:
    """They would work on, and nothing would know whose they are."""
    children = Children(
        kind="each", items=2, runs=2, since=at(1), look_at=at(61), word=1, say="cancel"
    )
    run = at_position(runs.cancelled(runs.pending()), children=children)
    told = at_position(run, children=replace(children, told=1))

    assert [lifecycle.is_purgeable(one, at(10)) for one in (run, told)] == [False, True]
    with pytest.raises(NotAllowedError, match="owes nothing"):
        lifecycle.purge(run, at(20), ended_before=at(10))


def test_why_says_that_the_run_is_over_and_what_is_still_done(
    runs: Runs, rules: Rules, at: At
) -> None:
    run = runs.completed()
    failed = runs.archive_noted(run, at=10, compress_artifacts="away").manifest
    words = {
        name: explain(each, at(20), rules).words.removeprefix(
            "Run r-1 waits for nothing: it is completed."
        )
        for name, each in {
            "owed": run,
            "failed": failed,
            "unseen": replace(run, alarm_at=None),
            "done": runs.archived(run),
        }.items()
    }

    assert words == {
        "owed": " It is not archived yet, and is at 2026-01-01T12:01:09Z at the latest.",
        "failed": " Its archive failed (compress_artifacts), and is tried again at "
        "2026-01-01T12:01:10Z.",
        "unseen": " It is not archived, and no sweep looks at it: leasehold audit --repair.",
        "done": "",
    }


def test_the_archive_of_an_earlier_life_changes_nothing_of_the_next(runs: Runs, at: At) -> None:
    """The key was started again while the try of the run before it was under way."""
    run = runs.completed()

    change = lifecycle.note_archive(
        run, at(40), rules=runs.rules, life="another", failed={}, is_over=True
    )

    assert (change.outcome, change.changed, change.manifest) == (Outcome.MOVED_ON, False, run)
