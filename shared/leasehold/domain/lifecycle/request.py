"""An operation as a person requests it: bound to what that person looked at, and done once.

A person looks at a run and decides. By the time the decision arrives, the run may have moved on:
the answer to an earlier try was lost, another person was faster, or a batch was given twice. The
run remembers what people did last (`operations`), and its generation names what it is at.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Final

from leasehold.domain.change import Change, Transition, unchanged
from leasehold.domain.lifecycle.operate import Operation, check_allowed, is_allowed
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import OperationRecord
from leasehold.domain.status import Outcome
from leasehold.domain.stored import replace
from leasehold.errors import StateChangedError
from leasehold.frozen import dataclass

#: How many operations a run remembers.
MAX_OPERATIONS_KEPT: Final = 16
#: So many characters of actor and reason are kept with each; the trace has the whole.
_MAX_WORDS_KEPT_CHARS: Final = 100


@dataclass(frozen=True, slots=True)
class BoundOperation:
    """The operation that a person requests, and the state that it is meant for.

    Args:
        id: of this call; another try of it has another id.
        operation: what is to be done.
        actor: who requests it.
        reason: why.
        generation: the generation that was looked at; None: the caller does not say.
        step: the step that it is meant for; None: the caller does not say.
        read: the generation that was read for the caller at the call; None: not bound.
        options: what else is said, as text: of recreate, what is to be different in the new run.
        anew: of retry: what the step has kept is dropped.
    """

    id: str
    operation: Operation
    actor: str
    reason: str = ""
    generation: int | None = None
    step: str | None = None
    read: int | None = None
    options: str = ""
    anew: bool = False

    @property
    def digest(self) -> str:
        """A name for all words of the request, which any other words do not have."""
        words = (self.operation.value, self.actor, self.reason, self.options)
        return hashlib.sha256("\n".join(words).encode()).hexdigest()[:40]


def on_request(request: BoundOperation, operate: Transition) -> Transition:
    """Return the operation as it was requested: checked, done and remembered in one commit."""

    def requested(manifest: Manifest, now: datetime) -> Change:
        if first := first_time(manifest, request):
            return repeat_of(manifest, first)
        change = operate(manifest, now)
        done = _record(manifest, now, request, change)
        operations = (*manifest.operations, done)[-MAX_OPERATIONS_KEPT:]
        return change._replace(manifest=replace(change.manifest, operations=operations))

    return requested


def first_time(manifest: Manifest, request: BoundOperation) -> OperationRecord | None:
    """Return when the same was done, where this is a repeat of it; None: it is to be done.

    Raises:
        StateChangedError: the run is not at what the request is meant for; or it could be a
            repeat whose first answer was lost, and would decide about another block.
        NotAllowedError: the run's state forbids it.
    """
    before = _before(manifest, request)
    if before is not None and before.id == request.id:
        return before  # this very call, whose commit stands
    difference = _difference(manifest, request)
    if difference is None and is_allowed(manifest, request.operation):
        return _repeated(manifest, request, before)
    if before is not None and (request.generation, request.step) != (None, None):
        return before
    if difference is not None:
        raise _state_changed(manifest, request, difference)
    check_allowed(manifest, request.operation)
    return None


def repeat_of(manifest: Manifest, first: OperationRecord) -> Change:
    """Return the answer of the first time once more; nothing is changed."""
    done = unchanged(manifest, Outcome(first.outcome))
    return done._replace(repeats=first, kept=first.kept)


def _repeated(
    manifest: Manifest, request: BoundOperation, before: OperationRecord | None
) -> OperationRecord | None:
    """Return the first time of what could be done again, or None: it is to be done."""
    decides = _decides(manifest, request)
    if before is None or not (decides or request.generation is not None):
        return None
    if request.operation is Operation.RECREATE:
        return before
    if not decides and manifest.operations[-1].actor == request.actor[:_MAX_WORDS_KEPT_CHARS]:
        return None  # the person who undid it requests it: it is meant once more
    problem = (
        f"{before.actor} did that before, with the same reason, "
        f"at step {before.step}, generation {before.generation}"
    )
    remedy = "Where it is meant once more, give another reason."
    raise _state_changed(manifest, request, problem, remedy if request.generation else None)


def _decides(manifest: Manifest, request: BoundOperation) -> bool:
    """Return whether it hands off or drops an output that a person has to see first.

    A retry drops none that no gate has judged: it has the gates asked now, as a look does.
    """
    if not is_allowed(manifest, Operation.APPROVE):  # there is no output
        return False
    if request.operation is Operation.RETRY:
        return request.anew or not manifest.has_unjudged_output
    return request.operation is Operation.APPROVE


def _before(manifest: Manifest, request: BoundOperation) -> OperationRecord | None:
    """Return the last time that this request, or one with the same words, was done."""
    for record in reversed(manifest.operations):
        if record.id == request.id or _is_same(record, request):
            return record
    return None


def _is_same(record: OperationRecord, request: BoundOperation) -> bool:
    return (
        record.digest == request.digest
        and request.generation in (None, record.generation)
        and request.step in (None, record.step)
    )


def _difference(manifest: Manifest, request: BoundOperation) -> str | None:
    """Return what the request is meant for that the run is not at, or None."""
    generation = manifest.position.dispatch.generation
    if request.generation not in (None, generation):
        return f"you named generation {request.generation}"
    if request.step not in (None, manifest.position.step):
        return f"you named step {request.step}"
    if request.read not in (None, generation):
        return f"it moved on from generation {request.read} meanwhile"
    return None


def _state_changed(
    manifest: Manifest, request: BoundOperation, problem: str, remedy: str | None = None
) -> StateChangedError:
    generation = manifest.position.dispatch.generation
    return StateChangedError(
        operation=request.operation.value,
        run_id=manifest.run_id,
        problem=problem,
        state=manifest.state,
        step=manifest.position.step,
        generation=generation,
        remedy=remedy or f"Look at it, then give generation {generation}.",
    )


def _record(
    before: Manifest, now: datetime, request: BoundOperation, change: Change
) -> OperationRecord:
    return OperationRecord(
        id=request.id,
        digest=request.digest,
        operation=request.operation.value,
        actor=request.actor[:_MAX_WORDS_KEPT_CHARS],
        reason=request.reason[:_MAX_WORDS_KEPT_CHARS],
        generation=before.position.dispatch.generation,
        step=before.position.step,
        outcome=change.outcome.value,
        at=now,
        recreated_as=None if change.created is None else change.created.run_id,
        kept=change.kept,
    )
