"""The invariants of every change, and of every run after it."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pydantic_core

from leasehold.domain.change import Change
from leasehold.domain.checkpoint import CallCount
from leasehold.domain.effect import owed_tasks
from leasehold.domain.lease import held_lease
from leasehold.domain.manifest import Manifest, to_document
from leasehold.domain.status import Outcome, RunStatus
from leasehold.domain.stored import replace
from leasehold.errors import LeaseLostError
from tests.properties.model import (
    FOUND,
    GRACE,
    LOOKS,
    MAX_FAILURES,
    MAX_INTERRUPTIONS,
    MAX_RETRIES,
    PLAN,
    TRIALS,
    WAIT,
    Known,
    Worker,
)

#: The steps of a trial.
LOOPED = (TRIALS.author, TRIALS.reviewer)

#: The fields of a run that has ended which a recreation may still write; who had no catalog has
#: left its announcement to it.
LINEAGE = ("recreated_as", "operations", "updated_at", "traced", "alarm_at", "announcement")


def text(manifest: Manifest) -> str:
    return pydantic_core.to_json(to_document(manifest)).decode()


def from_store(manifest: Manifest) -> Manifest:
    """Return the run as it comes back from a store, and check that it is the same."""
    stored = Manifest.model_validate(json.loads(text(manifest)))
    assert stored == manifest, "a manifest survives its store"
    return stored


def check_change(before: Manifest, change: Change, now: datetime) -> None:
    after = change.manifest
    if not change.changed:
        assert after == before
        assert (change.events, change.created, change.deliveries) == ((), None, ())
        return
    assert after.updated_at == now
    assert after.traced == before.traced + len(change.events)
    if before.is_terminal:
        assert replace(after, **{name: getattr(before, name) for name in LINEAGE}) == before
        return
    assert after.position.dispatch.generation - before.position.dispatch.generation in (0, 1)
    if is_dispatched(before, after):
        assert after.position.dispatch.generation == before.position.dispatch.generation + 1
        assert not after.paused, "a paused run is not dispatched"
    _check_kept(before, after)
    new_lease = _lease_id(after) not in (None, _lease_id(before))
    assert after.fencing_token == before.fencing_token + new_lease
    was, is_ = PLAN.index(before.current_step), PLAN.index(after.current_step)
    reviewed = before.steps[before.current_step].handed_off_at is None and (
        after.steps[before.current_step].trials != before.steps[before.current_step].trials
        or after.steps[before.current_step].trial is not None
    )
    if is_ < was:
        _check_opened(before, after)
        return
    assert is_ - was in (0, 1)
    for step in PLAN[:was] if not reviewed else ():
        assert after.steps[step] == before.steps[step], "what was handed off never changes"
    if is_ == was:
        assert after.steps[PLAN[was]].handed_off_at is None
    else:
        assert after.steps[PLAN[was]].handed_off_at == now


def _check_opened(before: Manifest, after: Manifest) -> None:
    """A review sends the run back to its author; what the trial came to is kept whole."""
    assert (before.current_step, after.current_step) == (TRIALS.reviewer, TRIALS.author)
    for step in LOOPED:
        filed = after.steps[step].trials or ()
        assert filed[:-1] == (before.steps[step].trials or ()), "what is over never changes"
        assert (after.steps[step].output, filed[-1].trial) == (None, len(filed))
    assert after.position.trial == before.position.trial + 1 <= TRIALS.max_trials


def is_dispatched(before: Manifest, after: Manifest) -> bool:
    """Return whether the dispatch is another one, and not the same under another generation."""
    noted = (
        "generation",
        "enqueued",
        "seen_at",
        "redispatched",
        "lost_since",
        "deferred",
        "after_block",
    )
    seen = {name: getattr(after.position.dispatch, name) for name in noted}
    same = after.position.dispatch == replace(before.position.dispatch, **seen)
    return not same or after.position.dispatch.enqueued < before.position.dispatch.enqueued


def check_generation(before: Manifest, change: Change, known: Known) -> None:
    """A generation names one block or none: a decision that names it can hit no other."""
    after = change.manifest
    generation = after.position.dispatch.generation
    blocks = change.changed and after.block is not None
    if blocks and (before.block is None or change.outcome is Outcome.BLOCKED):
        assert generation not in known.blocks
        known.blocks.append(generation)
    elif after.block is not None:
        assert generation == known.blocks[-1]
    elif not after.is_terminal:
        assert generation not in known.blocks


def _check_kept(before: Manifest, after: Manifest) -> None:
    """Only the holder of the lease writes a checkpoint; it keeps the lease, unless it is late."""
    if after.position.checkpoint in (None, before.position.checkpoint):
        return
    assert before.position.lease is not None
    assert after.position.checkpoint.fencing_token == before.fencing_token
    assert (after.position.checkpoint.step, after.position.checkpoint.trial) == (
        before.current_step,
        before.position.trial,
    )
    if (
        before.position.lease.acquired_at + timedelta(seconds=before.position.dispatch.deadline_s)
        > after.updated_at
    ):
        assert _lease_id(after) == before.position.lease.lease_id
        looked_at_no_more = replace(before.position.dispatch, after_block=None)  # it is progress
        assert after.position.dispatch in (before.position.dispatch, looked_at_no_more)
    else:
        assert after.position.lease is None


def _lease_id(manifest: Manifest) -> str | None:
    return None if manifest.position.lease is None else manifest.position.lease.lease_id


def check_lease(manifest: Manifest, known: Known) -> None:
    assert (manifest.status is RunStatus.IN_PROGRESS) is (manifest.position.lease is not None)
    assert _lease_id(manifest) == known.holder
    if manifest.position.lease is not None:
        assert (
            manifest.position.lease.expires_at
            == known.ends_at
            <= manifest.position.lease.max_expires_at
        )
        assert manifest.position.lease.max_expires_at == known.cap
        assert manifest.position.dispatch.enqueued
        assert manifest.position.dispatch.step == manifest.current_step


def check_alarm(manifest: Manifest, known: Known) -> None:
    ends = (manifest.status is RunStatus.COMPLETED, manifest.cancelled, manifest.dead_lettered)
    assert sum(ends) <= 1
    assert manifest.is_terminal is any(ends)
    assert not (manifest.is_terminal and (manifest.paused or manifest.position.lease))
    if manifest.position.lease is not None:
        assert manifest.alarm_at == manifest.position.lease.expires_at
    elif manifest.announcement is not None and manifest.announcement.pending:
        assert manifest.alarm_at == manifest.updated_at + GRACE
    elif manifest.archive is not None:
        again_at = manifest.archive.not_before or manifest.updated_at + GRACE
        assert any(ends)
        assert manifest.alarm_at == min(again_at, manifest.updated_at + timedelta(hours=1))
    elif any(ends) or manifest.paused or manifest.block == FOUND:
        assert manifest.alarm_at is None
    elif manifest.block is not None:
        assert manifest.alarm_at == manifest.block.look_at
    else:
        dispatch = manifest.position.dispatch
        since = max(dispatch.seen_at or dispatch.not_before, dispatch.not_before)
        wait = GRACE
        if known.elsewhere:
            wait = next((each for each in LOOKS if since + each > manifest.updated_at), WAIT)
        assert manifest.alarm_at == since + wait


def check_owed(manifest: Manifest, known: Known) -> None:
    live = not manifest.is_terminal and not manifest.paused
    waits = live and manifest.status in (RunStatus.PENDING, RunStatus.ERROR)
    owed = [(task.generation, task.not_before, task.queue) for task in owed_tasks(manifest)]
    dispatch = manifest.position.dispatch
    assert manifest.claimable == (manifest.current_step if waits and known.elsewhere else None)
    assert dispatch.remote is known.elsewhere
    if waits:
        assert dispatch.step == manifest.current_step
        if not known.elsewhere:
            assert dispatch.enqueued is (dispatch.seen_at is not None), "only a sweep can know"
    if waits and not dispatch.enqueued and not known.elsewhere:
        queue = dispatch.queue if known.provisional else manifest.current_step
        assert owed == [(dispatch.generation, dispatch.not_before, queue)]
        assert dispatch.provisional is known.provisional
    else:
        assert owed == []


def check_counts(manifest: Manifest, known: Known) -> None:
    assert manifest.position.attempts.model_dump() == {
        "failed": known.ends["failed"],
        "interrupted": known.ends["interrupted"],
        "expired": known.ends["expired"],
        "continued": known.ends["continued"],
        "repeated": known.ends["repeated"],
        "deferred": known.ends["deferred"],
    }
    one_more = 1 if manifest.dead_lettered else 0
    assert manifest.position.failures == known.vain <= MAX_RETRIES + one_more
    assert known.ends["failed"] <= MAX_FAILURES + one_more
    assert manifest.position.dispatch.redispatched == known.lost <= MAX_INTERRUPTIONS
    assert manifest.position.dispatch.lost_since == known.lost_since
    assert manifest.position.interruptions == known.stuck <= MAX_INTERRUPTIONS + one_more
    assert manifest.position.continuations == known.continued
    assert manifest.position.silences == known.silences <= 1 + one_more


def check_steps(manifest: Manifest, known: Known) -> None:
    kept_last = manifest.position.checkpoint
    if kept_last is None:
        assert known.checkpoint is None
    else:
        facts = (kept_last.phase, kept_last.iteration_count, kept_last.fencing_token)
        assert facts == known.checkpoint
        assert kept_last.step == manifest.current_step
    place = PLAN.index(manifest.current_step)
    current = manifest.steps[manifest.current_step]
    assert current.status is manifest.status
    assert (manifest.block is not None) is (manifest.status is RunStatus.BLOCKED)
    assert [manifest.steps[step].status for step in PLAN[:place]] == [RunStatus.COMPLETED] * place
    for step in PLAN[place + 1 :]:
        assert manifest.steps[step].output is None
        assert manifest.steps[step].status is RunStatus.PENDING
    counts = {step: record.calls or CallCount() for step, record in manifest.steps.items()}
    for step, count in counts.items():
        assert (count.made, count.spared) == (known.made[step], known.spared[step])
    if manifest.completed_at is None:
        assert manifest.position.recorded_calls == known.recorded
    assert manifest.position.trial == (known.trial if manifest.current_step in LOOPED else 1)
    _check_trials(manifest, known)
    outputs = {step: r.output for step, r in manifest.steps.items() if r.output is not None}
    kept = {} if known.kept is None else {manifest.current_step: known.kept}
    assert outputs == {step: it.text for step, it in (known.handed_off | kept).items()}


def _check_trials(manifest: Manifest, known: Known) -> None:
    """Each trial that is over has one output of each step; one of them counts in the end."""
    for step in LOOPED:
        record = manifest.steps[step]
        outputs = {one.trial: one.output for one in record.trials or ()}
        if record.trial is not None:
            assert record.trial not in outputs
            outputs[record.trial] = record.output
        assert outputs == {i + 1: trial[step].text for i, trial in enumerate(known.trials)}


def is_let_in(manifest: Manifest, now: datetime, worker: Worker) -> bool:
    try:
        held_lease(manifest, now, worker.fence)
    except LeaseLostError:
        return False
    return True
