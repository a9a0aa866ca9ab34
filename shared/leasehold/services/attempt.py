"""One attempt of a step, from its lease to its settlement: the only writer of a leased run.

A worker of this bundle holds one as long as its handler runs (`execute_step.py`), a remote worker
opens one with each call (`manage_lease.py`), and a shutdown settles those that are held.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar

from leasehold.domain import lifecycle
from leasehold.domain.change import Change, Transition
from leasehold.domain.dispatch import Rules
from leasehold.domain.document import Document, Write
from leasehold.domain.json_text import OUTPUT_BYTES, check_size, digest
from leasehold.domain.kept_value import KeptValue
from leasehold.domain.kept_work import CallResult, Checkpoint
from leasehold.domain.lease import Fence, deadline_of, ended_at_deadline, held_lease
from leasehold.domain.life import values_folder
from leasehold.domain.lifecycle.termination import deadline_error
from leasehold.domain.manifest import manifest_of, to_document
from leasehold.domain.manifest_parts import ErrorRecord
from leasehold.domain.notes import NO_NOTES, MadeOutput, Notes
from leasehold.domain.result import (
    Continued,
    Deferred,
    Failed,
    Finished,
    LimitExceeded,
    Refused,
    Result,
    Stopped,
    Unable,
)
from leasehold.domain.status import Termination
from leasehold.domain.trace import TraceType, event_of, loss_ref
from leasehold.domain.trial_verdict import verdict_in
from leasehold.errors import (
    DocumentExistsError,
    InvalidVerdictError,
    LeaseholdError,
    LeaseLostError,
    StoreUnavailableError,
    TooLargeError,
    VersionConflictError,
)
from leasehold.ports.documents import Committed
from leasehold.ports.lease_keeper import RunningAttempt
from leasehold.services.call_write import CallWrite
from leasehold.services.checkpoint_write import CheckpointWrite
from leasehold.services.engine import (
    Engine,
    KnownRun,
    commit,
    dispatch_rules,
    publish_or_leave,
)
from leasehold.services.kept_values import inline, put

T = TypeVar("T")

#: The store's time may be so far ahead of what is known of it here.
_AHEAD: Final = timedelta(seconds=1)


class Attempt:
    """A leased attempt; each write is fenced by its lease, and renews or ends it.

    It knows the run from its last write, so it writes without reading. Where somebody else changed
    the run meanwhile, it reads and decides again. Each call may raise StoreUnavailableError.

    Args:
        engine: the parts.
        known: the run as it was read or written with the lease.
        fence: what each write shows.
        is_shared: whether the lease may be renewed elsewhere: it is lost only once the store says
            so, and not because it is over as far as it is known here.

    Attributes:
        notes: the output that its gates judge; who holds it says what else there is.
        stop_detail: empty: nobody here asks a remote worker to stop.
        is_killed: False: nor can anybody here kill it.
        manifest: the run as it was last written or read here.
        fence: what each write shows.
        ends_at: when the lease is over, unless it is renewed; in monotonic seconds.
    """

    notes: Notes
    stop_detail = ""
    is_killed = False

    def __init__(
        self, engine: Engine, known: KnownRun, fence: Fence, *, is_shared: bool = False
    ) -> None:
        self.notes = NO_NOTES
        self.manifest = known.manifest
        self.fence = fence
        self.ends_at = _end_of_lease(known)
        self._engine = engine
        self._known = known
        self._outdated: tuple[type[LeaseholdError], ...] = (VersionConflictError,)
        if is_shared:
            self._outdated += (LeaseLostError,)

    def insist(self, call: Callable[[], T]) -> T:
        """Return what `call` returns; a remote worker learns of an outage at once."""
        return call()

    def call(self, user_code: Callable[[], T], kind: str, path: str) -> T:  # noqa: ARG002 - a port
        """Return what a gate comes to; the worker's next renewal ends an attempt that is late."""
        return user_code()

    def note_output(self, output: MadeOutput) -> None:
        """Note what the gates are about to judge, and write it: whoever ends this has it not.

        Raises:
            LeaseLostError, StoreUnavailableError: as `renew`.
        """
        self.notes = Notes(output=output)
        self.renew(self.notes)

    def renew(self, notes: Notes = NO_NOTES, *, within: float | None = None) -> Change:
        """Let the lease run on, and keep the notes; give up after `within` seconds.

        Raises:
            LeaseLostError: the lease is not held any more, and nothing was written; or the
                attempt was ended now, because its dispatch deadline is over.
        """
        rules = self._renewal_rules()
        renew = partial(lifecycle.renew, rules=rules, fence=self.fence, notes=notes)
        return self._still_held(self._write(renew, within).answer)

    def look(self) -> None:
        """Learn whether the lease is lost, without renewing it; LeaseLostError says so."""
        ref = self._known.snapshot.ref
        if found := self._engine.documents.get(ref):
            held_lease(manifest_of(ref.id, found.document), found.read_at, self.fence)

    def check_held(self) -> None:
        """Raise LeaseLostError where the run, as it is known here, does not have this lease."""
        held_lease(self.manifest, self._known.snapshot.read_at, self.fence)

    def new_checkpoint(self, iteration_count: int, phase: str, results: str) -> CheckpointWrite:
        """Begin a checkpoint; to record it renews the lease, and raises as `renew`.

        Where that ends the attempt, the checkpoint is kept.

        Raises:
            InvalidRequestError: the results are not JSON.
        """
        named = _without_secrets(phase)
        save = partial(self._checkpoint, iteration_count, named)
        return CheckpointWrite(self._engine, self.manifest, results, save)

    def _checkpoint(
        self, iteration_count: int, phase: str, results: KeptValue, notes: Notes
    ) -> Checkpoint | None:
        """Record partial results, and return the checkpoint that they take the place of."""
        save = partial(
            lifecycle.checkpoint,
            rules=self._renewal_rules(),
            fence=self.fence,
            iteration_count=iteration_count,
            phase=phase,
            partial_results=results,
            notes=notes,
        )
        before = self.manifest.checkpoint
        self._still_held(self._write(save).answer, kept="The checkpoint is kept.")
        return before

    def reject_checkpoint(self, rejected: Checkpoint, why: str, notes: Notes = NO_NOTES) -> Change:
        """Drop a checkpoint that cannot be used, and renew the lease; raises as `renew`."""
        reject = partial(
            lifecycle.reject_checkpoint,
            rules=self._renewal_rules(),
            fence=self.fence,
            rejected=rejected,
            why=why,
            notes=notes,
        )
        return self._still_held(self._write(reject).answer)

    def new_call(self, call: CallResult, in_place_of: str | None = None) -> CallWrite:
        """Begin to record the result of a call; that renews the lease, and raises as `renew`.

        Where that ends the attempt, the result is kept.

        Args:
            call: the result, JSON text.
            in_place_of: the reference of the key's result, where that was found to be unreadable.
        """
        return CallWrite(self._engine, self.manifest, call, partial(self._record_call, in_place_of))

    def _record_call(self, in_place_of: str | None, call: CallResult, notes: Notes) -> None:
        record = partial(
            lifecycle.record_call,
            rules=self._renewal_rules(),
            fence=self.fence,
            call=call,
            in_place_of=in_place_of,
            notes=notes,
        )
        self._still_held(self._write(record).answer, kept="The result of the call is kept.")

    def settle(self, ending: Transition) -> Committed[Change]:
        """End the attempt; once more, it is answered as the first time, and nothing is written.

        That holds after the end of the lease as well, so the store is asked then: as far as it is
        known here, a settlement whose answer was lost has not been made.

        Args:
            ending: as `ending_of` returns it. What it owes is the caller's to publish.

        Raises:
            LeaseLostError: the lease is not held any more; nothing was written.
        """
        try:
            return self._write(ending)
        except LeaseLostError:
            if LeaseLostError in self._outdated:  # the store was asked
                raise
            return self._asked_again(ending)

    def end_at_deadline(
        self, stacks: str, origin: str | None, notes: Notes, *, within: float
    ) -> Committed[Change]:
        """End the attempt, whose dispatch deadline is over, as failed; raises as `settle`.

        Args:
            stacks: what it does, frame by frame.
            origin: where in the user's code that is, as `ErrorRecord` has it.
            notes: what is kept with it.
            within: give up after so many seconds.
        """
        ending = partial(
            lifecycle.exceed_limit,
            rules=dispatch_rules(self._engine),
            fence=self.fence,
            reason=Termination.DISPATCH_DEADLINE_EXCEEDED,
            error=deadline_error(self.manifest).with_(origin=origin),
            stacks=stacks,
            notes=notes,
        )
        return self._write(ending, within)

    def publish(self, change: Change) -> None:
        """Publish what a change of the attempt owes; what cannot be published now the sweep does.

        For those that the attempt's own worker does not publish: it may be at work for ever.
        """
        publish_or_leave(self._engine, change)

    def _renewal_rules(self) -> Rules:
        """Return the rules for a write that dispatches the next attempt at the deadline alone."""
        run, snapshot = self._known
        passed = timedelta(seconds=self._engine.clock.monotonic() - snapshot.monotonic)
        at_latest = snapshot.read_at + passed + _AHEAD
        is_late = run.lease is not None and deadline_of(run, run.lease) <= at_latest
        return dispatch_rules(self._engine) if is_late else self._engine.rules

    def _still_held(self, change: Change, kept: str = "") -> Change:
        """Return a change that keeps the lease; publish one that ends the attempt, and say so."""
        if change.manifest.lease is not None:
            return change
        self.publish(change)
        raise ended_at_deadline(change.manifest, self.fence, kept=kept)

    def trace_loss(self, error: LeaseLostError, *, within: float) -> None:
        """Record beside the run, which is not ours any more, that its lease was lost."""
        try:
            self._engine.documents.transact(
                loss_ref(self.manifest, self.fence.lease_id),
                partial(self._loss, error.details),
                within=within,
            )
        except (StoreUnavailableError, DocumentExistsError):
            return  # that nothing was written is what counts

    def _loss(
        self, known: Mapping[str, Any], stored: Document | None, now: datetime
    ) -> Write[None]:
        if stored is not None:
            return Write(None)
        lease = self.manifest.lease
        event = event_of(
            self.manifest,
            TraceType.LEASE_LOST,
            now,
            detail=known["known"],
            holder=None if lease is None else lease.holder,
            lease_id=self.fence.lease_id,
            fencing_token=self.fence.fencing_token,
        )
        return Write(None, to_document(event))

    def _write(self, transition: Transition, within: float | None = None) -> Committed[Change]:
        known, sent_at = self._known, self._engine.clock.monotonic()
        run_id = known.manifest.run_id
        try:
            committed = commit(self._engine, run_id, transition, known=known, within=within)
        except self._outdated:
            return self._asked_again(transition, within)
        return self._noted(committed, sent_at)

    def _asked_again(
        self, transition: Transition, within: float | None = None
    ) -> Committed[Change]:
        """Write what follows from the run as it is stored, and not as it is known here."""
        sent_at = self._engine.clock.monotonic()
        committed = commit(self._engine, self.manifest.run_id, transition, within=within)
        return self._noted(committed, sent_at)

    def _noted(self, committed: Committed[Change], sent_at: float) -> Committed[Change]:
        snapshot = committed.snapshot or self._known.snapshot
        self.manifest = committed.answer.manifest
        self._known = KnownRun(self.manifest, snapshot)
        took = self._engine.clock.monotonic() - sent_at
        self.ends_at = _end_of_lease(self._known) - took  # as if it was answered when it was sent
        return committed


def acquired_attempt(engine: Engine, acquired: Committed[Change]) -> Attempt:
    """Return the attempt whose lease was just committed."""
    run, snapshot = acquired.answer.manifest, acquired.snapshot
    assert run.lease is not None  # noqa: S101 - a lease was just written
    assert snapshot is not None  # noqa: S101 - as above
    return Attempt(engine, KnownRun(run, snapshot), Fence(run.lease.lease_id, run.fencing_token))


def ending_of(engine: Engine, attempt: RunningAttempt, result: Result) -> Transition:
    """Return the transition that ends an attempt with this result.

    Raises:
        StoreUnavailableError: the output could not be kept.
    """
    facts: dict[str, Any] = {
        "rules": dispatch_rules(engine),
        "fence": attempt.fence,
        "notes": attempt.notes,
    }
    match result:
        case Finished() | Refused() | Unable():
            return _judged(engine, attempt, result, facts)
        case Failed(failure, permanent):
            return partial(lifecycle.fail, **facts, error=failure, permanent=permanent)
        case LimitExceeded(reason, failure, stacks):
            facts |= {"error": failure, "stacks": stacks}
            return partial(lifecycle.exceed_limit, **facts, reason=reason)
        case Stopped(Termination.DISPATCH_DEADLINE_EXCEEDED as reason):
            failure = deadline_error(attempt.manifest)
            return partial(lifecycle.exceed_limit, **facts, reason=reason, error=failure)
        case Stopped(reason, detail):
            facts |= {"detail": detail or attempt.stop_detail, "killed": attempt.is_killed}
            return partial(lifecycle.release, **facts, reason=reason)
        case Deferred() | Continued():
            return _put_off(result, facts)


def _put_off(result: Deferred | Continued, facts: dict[str, Any]) -> Transition:
    """Return the ending of an attempt whose work is left to the next one."""
    if isinstance(result, Continued):
        return partial(lifecycle.continue_later, **facts, at_checkpoint=result.at_checkpoint)
    return partial(lifecycle.defer, **facts, reason=result.reason, detail=result.detail)


def _judged(
    engine: Engine,
    attempt: RunningAttempt,
    result: Finished | Refused | Unable,
    facts: dict[str, Any],
) -> Transition:
    """Return the ending of an attempt that has an output, or one that the code cannot begin.

    An output that nobody can judge was paid for: it is kept, and judged once that can be done.
    """
    try:
        if isinstance(result, Unable):
            return _unable(engine, attempt, result, facts)
        made = made_output(engine, attempt, result)
    except InvalidVerdictError as error:
        return partial(lifecycle.fail, **facts, error=ErrorRecord.of(error))
    except TooLargeError as error:
        return partial(lifecycle.fail, **facts, error=ErrorRecord.of(error), permanent=True)
    facts |= {"output": made.value, "output_status": made.status, "verdict": made.verdict}
    if isinstance(result, Refused):
        return partial(lifecycle.block, **facts, found=result.found)
    return partial(lifecycle.complete, **facts)


def _unable(
    engine: Engine, attempt: RunningAttempt, result: Unable, facts: dict[str, Any]
) -> Transition:
    if result.finished is not None:
        made = made_output(engine, attempt, result.finished)
        facts["notes"] = attempt.notes._replace(output=made)
    return partial(lifecycle.block_attempt, **facts, code=result.code, error=result.error)


def made_output(engine: Engine, attempt: RunningAttempt, made: Finished | Refused) -> MadeOutput:
    """Return the output of an attempt as its run keeps it; a large one is stored first.

    Raises:
        InvalidVerdictError: it is a reviewer's, and has no verdict.
        TooLargeError: no output may be as large; nothing was stored.
        StoreUnavailableError: it could not be stored.
    """
    if attempt.notes.output is not None:
        return attempt.notes.output
    verdict = verdict_in(attempt.manifest, made.output)
    return MadeOutput(_stored_output(engine, attempt, made.output), made.status, verdict)


def _stored_output(engine: Engine, attempt: RunningAttempt, output: str) -> KeptValue:
    """Store the output of the current step under a name that no other attempt's output has.

    One that is judged again is there; what a remote worker sends is always another one.
    """
    run = attempt.manifest
    before = run.steps[run.current_step].kept_output if run.has_unjudged_output else None
    if before is not None and not run.dispatch.remote:
        return before
    if kept := inline(output, beside=run.text_bytes):
        return kept
    step = run.current_step
    check_size(f"the output of step {step}", output, OUTPUT_BYTES)
    # names are shown to those who read the run, and the id of a lease is its holder's
    mark = f"{digest(attempt.fence.lease_id)[:16]}-{digest(output)[:16]}"
    name = f"{values_folder(run)}/{step}-{mark}.json"
    return attempt.insist(partial(put, engine.artifacts, output, name))


def _end_of_lease(known: KnownRun) -> float:
    """Return when the lease is over at the latest that is known, in monotonic seconds."""
    run, snapshot = known
    if run.lease is None:
        return snapshot.monotonic
    return snapshot.monotonic + (run.lease.expires_at - snapshot.read_at).total_seconds()


def _without_secrets(phase: str) -> str:
    if not phase:
        return ""
    from leasehold.domain.redaction import without_secrets  # noqa: PLC0415 - when there is a text

    return without_secrets(phase)
