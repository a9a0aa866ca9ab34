"""While an attempt runs: its lease is renewed, and what it has so far is kept."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from leasehold.domain.change import Change, Draft
from leasehold.domain.checkpoint import (
    PACKED,
    CallCount,
    Checkpoint,
    KeptValue,
    PhaseReached,
)
from leasehold.domain.dispatch import Rules
from leasehold.domain.kept_checkpoint import (
    MAX_PHASES_COUNTED,
    counts_as_progress,
    furthest_of,
    is_further,
)
from leasehold.domain.lease import Fence, deadline_of, held_lease
from leasehold.domain.lifecycle.settle import end_attempt, lapse
from leasehold.domain.manifest import Manifest
from leasehold.domain.notes import NO_NOTES, Notes
from leasehold.domain.spend import Spend
from leasehold.domain.status import Outcome, RunEvent, after
from leasehold.domain.stored import replace
from leasehold.domain.trace import TraceType
from leasehold.errors import InvalidRequestError


def renew(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    fence: Fence,
    notes: Notes = NO_NOTES,
) -> Change:
    """Let the lease run on, at most to its cap, and keep the notes of the attempt.

    An attempt that is still at work at its dispatch deadline is ended in place of that: it failed.
    The lease is gone from the manifest then.

    Raises:
        LeaseLostError: the lease is not the one that is held.
    """
    draft = Draft(manifest, now, rules)
    draft.note(notes)
    return renewed(draft, fence, Outcome.RENEWED)


def record_call(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    fence: Fence,
    spend: Spend,
    notes: Notes = NO_NOTES,
) -> Change:
    """Do as `renew`, and count one more recorded call beside those that others have counted.

    A remote worker may record several at once, each in its own attempt here.
    """
    at = manifest.position
    calls = manifest.steps[at.step].calls or CallCount()
    counted = notes._replace(
        calls=replace(calls, made=calls.made + 1),
        recorded_calls=at.recorded_calls + 1,
        recorded_spend=spend.plus(at.recorded_spend),
    )
    return renew(manifest, now, rules=rules, fence=fence, notes=counted)


def checkpoint(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    fence: Fence,
    iteration_count: int,
    phase: str,
    partial_results: KeptValue,
    notes: Notes = NO_NOTES,
) -> Change:
    """Keep the results of the attempt so far, in place of earlier ones; the lease is renewed.

    At the dispatch deadline the attempt is ended as by `renew`; the checkpoint is kept.

    More iterations of a phase than ever before are progress: failures, interruptions, silences
    and continuations are counted anew from here. Not once too many checkpoints of the step were
    rejected: it would begin at the beginning forever.

    Raises:
        LeaseLostError: the lease is not the one that is held.
        InvalidRequestError: this attempt was further in the phase before.
    """
    held_lease(manifest, now, fence)
    reached = _reached(manifest)
    _check_goes_on(reached, phase, iteration_count)
    draft = Draft(manifest, now, rules)
    draft.note(notes)
    if partial_results.ref is not None:
        draft.owe_folder()
    furthest = furthest_of(manifest)
    if is_further(furthest, phase, iteration_count):
        furthest[phase] = iteration_count
    if counts_as_progress(manifest, phase, iteration_count):
        draft.count_anew()
    kept = Checkpoint(
        step=manifest.position.step,
        trial=manifest.position.trial,
        phase=phase,
        iteration_count=iteration_count,
        inline=partial_results.text,
        ref=partial_results.ref and partial_results.ref.removesuffix(PACKED),
        digest=partial_results.digest,
        saved_at=now,
        fencing_token=manifest.fencing_token,
        furthest=_phases(furthest),
        reached=_phases({name: reached[name] for name in reached if name != phase}) or None,
    )
    draft.position = replace(draft.position, checkpoint=kept)
    return renewed(draft, fence, Outcome.CHECKPOINTED)


def reject_checkpoint(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    fence: Fence,
    rejected: Checkpoint,
    why: str,
    notes: Notes = NO_NOTES,
) -> Change:
    """Drop a checkpoint that cannot be used: the step begins at the beginning; renews the lease.

    How often is counted: see `MAX_REJECTED_CHECKPOINTS`.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        fence: the credentials of the worker.
        rejected: the checkpoint; any other one stays.
        why: in a sentence.
        notes: what is kept with it.

    Raises:
        LeaseLostError: the lease is not the one that is held.
    """
    held_lease(manifest, now, fence)
    draft = Draft(manifest, now, rules)
    draft.note(notes)
    if manifest.position.checkpoint == rejected:
        place = {"phase": rejected.phase, "iteration_count": rejected.iteration_count}
        draft.trace(TraceType.CHECKPOINT_REJECTED, detail=why, **place)
        draft.step = replace(
            draft.step, rejected=(manifest.steps[manifest.position.step].rejected or 0) + 1
        )
        draft.position = replace(draft.position, checkpoint=None)
    return renewed(draft, fence, Outcome.RENEWED)


def _reached(manifest: Manifest) -> dict[str, int]:
    """Return how far the attempt that runs was in each phase; of `MAX_PHASES_COUNTED` at most."""
    kept = manifest.position.checkpoint
    if kept is None or kept.fencing_token != manifest.fencing_token:
        return {}
    before = {
        each.phase: each.iteration_count for each in (kept.reached or ())[: MAX_PHASES_COUNTED - 1]
    }
    return {**before, kept.phase: kept.iteration_count}


def _check_goes_on(reached: Mapping[str, int], phase: str, iteration_count: int) -> None:
    last = reached.get(phase)
    if last is not None and iteration_count < last:
        of_phase = f" of phase {phase!r}" if phase else ""
        allowed = f"{last} or more: this attempt has kept {last}{of_phase} before"
        raise InvalidRequestError(field="iteration_count", value=iteration_count, allowed=allowed)


def _phases(counts: Mapping[str, int]) -> tuple[PhaseReached, ...]:
    return tuple(PhaseReached(phase=name, iteration_count=count) for name, count in counts.items())


def renewed(draft: Draft, fence: Fence, outcome: Outcome) -> Change:
    """Let the lease run on from now; one without a heartbeat runs to its cap already.

    Raises:
        LeaseLostError: the lease is not the one that is held.
    """
    lease = held_lease(draft.before, draft.now, fence)
    if deadline_of(draft.before, lease) <= draft.now:
        draft.position = replace(draft.position, heartbeat_at=draft.now)
        return end_attempt(draft, lapse(draft, lease), Outcome.RETRY_SCHEDULED)
    expires_at = min(draft.now + draft.rules.lease_ttl, lease.max_expires_at)
    draft.run = replace(draft.run, status=after(draft.before.status, RunEvent.LEASE_RENEWED))
    draft.position = replace(
        draft.position,
        lease=replace(draft.position.lease or lease, expires_at=max(lease.expires_at, expires_at)),
        heartbeat_at=draft.now,
    )
    return draft.commit(outcome)
