"""The manifest: one document that is the whole truth about a run (`runs/{runId}`).

Stored in lowerCamelCase. Fields that are None are not stored. Fields of a later version are kept
as they are, so that an older worker of a rolling deploy loses nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Self, TypedDict, Unpack

from pydantic import AwareDatetime, ValidationError

from leasehold.domain.document import Document, Ref, UnreadableDocument
from leasehold.domain.status import AttemptEnd, DeadLetterReason, Outcome, RunStatus
from leasehold.domain.stored import Stored, StoredDocument
from leasehold.errors import UnreadableRunError

if TYPE_CHECKING:
    from leasehold.domain.updates import (
        DispatchUpdate,
        ErrorRecordUpdate,
        LeaseUpdate,
        SettlementUpdate,
    )

_MAX_SHOWN: Final = 128
_RUN_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")


class KeptValue(Stored):
    """A user's value: its JSON text, or the name of the artifact that holds the text."""

    text: str | None = None
    ref: str | None = None


class Lease(Stored):
    """Who may work on the run, and until when. It is over at `expires_at` itself."""

    lease_id: str
    holder: str
    acquired_at: AwareDatetime
    expires_at: AwareDatetime
    max_expires_at: AwareDatetime

    if TYPE_CHECKING:

        def with_(self, **update: Unpack[LeaseUpdate]) -> Self: ...  # noqa: D102


class Dispatch(Stored):
    """The outbox: the attempt that is to run next, or runs. Its settings are frozen here.

    `sources` has the source of each setting. `enqueued` is False until the task is known to be
    created.
    """

    generation: int
    step: str
    trial: int
    not_before: AwareDatetime
    timeout_ms: int
    deadline_s: int
    max_retries: int
    heartbeat_s: float | None = None
    queue: str
    sources: Mapping[str, str]
    nonce: str
    remote: bool = False  # a remote worker claims it: there is no task
    schedule_to_start_s: int | None = None  # how long a remote step may wait to be claimed
    redispatched: int = 0  # how many tasks were lost before this one, without a lease in between
    deferred: int = 0  # how many attempts in a row before this one met an outage
    seen_at: AwareDatetime | None = (
        None  # when the task was last in its queue, or a worker wanted it
    )
    enqueued: bool = False

    if TYPE_CHECKING:

        def with_(self, **update: Unpack[DispatchUpdate]) -> Self: ...  # noqa: D102


class Attempts(Stored):
    """How many attempts ended without an output that counts, by cause."""

    failed: int = 0
    interrupted: int = 0
    expired: int = 0
    continued: int = 0
    repeated: int = 0
    deferred: int = 0

    @property
    def ended(self) -> int:
        """All of them."""
        without_fault = self.continued + self.repeated + self.deferred
        return self.failed + self.interrupted + self.expired + without_fault

    def plus(self, end: AttemptEnd) -> Attempts:
        """Return the counts with one more of `end`."""
        return self.with_(**{end.value: getattr(self, end.value) + 1})


class Settlement(Stored):
    """The last lease that ended by its holder's word, and the answer that was given."""

    lease_id: str
    fencing_token: int | None = None
    outcome: Outcome

    if TYPE_CHECKING:

        def with_(self, **update: Unpack[SettlementUpdate]) -> Self: ...  # noqa: D102


class PhaseReached(Stored):
    """The most iterations of a phase that were ever kept."""

    phase: str
    iteration_count: int


class Checkpoint(Stored):
    """What an attempt can go on from: partial results as JSON text, or the artifact's name.

    `furthest` says how far the step ever was: what goes back and comes again is no progress.
    """

    step: str
    trial: int
    phase: str = ""
    iteration_count: int
    inline: str | None = None
    ref: str | None = None
    saved_at: AwareDatetime
    fencing_token: int
    furthest: tuple[PhaseReached, ...] = ()

    @property
    def partial_results(self) -> KeptValue:
        """The partial results."""
        return KeptValue(text=self.inline, ref=self.ref)


class Progress(Stored):
    """How far a handler says it is: a share of 1, and a word on it."""

    fraction: float
    message: str = ""


class StepRecordUpdate(TypedDict, total=False):
    """What may be replaced of a `StepRecord`."""

    status: RunStatus
    started_at: AwareDatetime | None
    completed_at: AwareDatetime | None
    handed_off_at: AwareDatetime | None
    execution_seconds: float | None
    output: str | None
    output_ref: str | None
    output_status: str | None
    progress: Progress | None
    attempts: Attempts


class StepRecord(Stored):
    """What became of one step. `attempts` counts over all its attempts."""

    status: RunStatus
    started_at: AwareDatetime | None = None
    completed_at: AwareDatetime | None = None
    handed_off_at: AwareDatetime | None = None
    execution_seconds: float | None = None
    output: str | None = None
    output_ref: str | None = None
    output_status: str | None = None
    progress: Progress | None = None
    attempts: Attempts = Attempts()

    if TYPE_CHECKING:

        def with_(self, **update: Unpack[StepRecordUpdate]) -> Self: ...  # noqa: D102

    @property
    def kept_output(self) -> KeptValue | None:
        """The output, if the step has one."""
        if self.output is None and self.output_ref is None:
            return None
        return KeptValue(text=self.output, ref=self.output_ref)


class ErrorRecord(Stored):
    """What failed: at most 16 KiB, so that it never fills the manifest."""

    type: str
    code: str
    message: str
    details: str | None = None  # JSON text
    validation_issues: tuple[Mapping[str, Any], ...] = ()
    validation_issue_count: int = 0
    origin: str | None = None  # file:line (function) of the handler's code
    permanent: bool = False  # no retry can repair it
    step: str = ""
    attempt: int = 0

    if TYPE_CHECKING:

        def with_(self, **update: Unpack[ErrorRecordUpdate]) -> Self: ...  # noqa: D102


class Block(Stored):
    """Why a run is BLOCKED, and what a person can do about it; `check_id` names the gate."""

    code: str
    check_id: str | None = None
    finding: str
    remediation: str


class OperationRecord(Stored):
    """What a person did to the run: in which words, and what it was at then.

    `id` names the call, so that a commit whose answer was lost is known by it, and `digest` all
    words of the request; actor and reason are shortened, for people. Operation and outcome are
    texts: a version that knows more of them must not make a run unreadable here.
    """

    id: str
    digest: str
    operation: str
    actor: str
    reason: str = ""
    generation: int
    step: str
    outcome: str
    at: AwareDatetime
    recreated_as: str | None = None


class ManifestUpdate(TypedDict, total=False):
    """What may be replaced of a `Manifest`."""

    run_id: str
    pipeline: str
    plan: tuple[str, ...]
    labels: tuple[str, ...]
    idempotency_key: str | None
    input_digest: str
    input: str | None
    input_ref: str | None
    status: RunStatus
    paused: bool
    cancelled: bool
    dead_lettered: bool
    dead_lettered_at: AwareDatetime | None
    dead_letter_reason: DeadLetterReason | None
    dead_letter_detail: str | None
    block: Block | None
    current_step: str
    trial: int
    step_started_at: AwareDatetime | None
    heartbeat_at: AwareDatetime | None
    error_at: AwareDatetime | None
    created_at: AwareDatetime
    updated_at: AwareDatetime
    completed_at: AwareDatetime | None
    alarm_at: AwareDatetime | None
    shard: int
    fencing_token: int
    lease: Lease | None
    dispatch: Dispatch
    attempts: Attempts
    interruptions: int
    silences: int
    claimable: str | None
    last_settlement: Settlement | None
    checkpoint: Checkpoint | None
    steps: Mapping[str, StepRecord]
    error: ErrorRecord | None
    recreated_from: str | None
    recreated_as: tuple[str, ...]
    operations: tuple[OperationRecord, ...]
    traced: int


class Manifest(Stored):
    """A run. Each field's meaning: docs/manifest.md."""

    run_id: str
    pipeline: str
    plan: tuple[str, ...]
    labels: tuple[str, ...] = ()
    idempotency_key: str | None = None
    input_digest: str
    input: str | None = None
    input_ref: str | None = None

    status: RunStatus
    paused: bool = False
    cancelled: bool = False
    dead_lettered: bool = False
    dead_lettered_at: AwareDatetime | None = None
    dead_letter_reason: DeadLetterReason | None = None
    dead_letter_detail: str | None = None
    block: Block | None = None

    current_step: str
    trial: int = 1
    step_started_at: AwareDatetime | None = None
    heartbeat_at: AwareDatetime | None = None
    error_at: AwareDatetime | None = None
    created_at: AwareDatetime
    updated_at: AwareDatetime
    completed_at: AwareDatetime | None = None
    alarm_at: AwareDatetime | None = None
    shard: int

    fencing_token: int = 0
    lease: Lease | None = None
    dispatch: Dispatch
    attempts: Attempts = Attempts()
    interruptions: int = 0  # of the current step, since its last progress
    silences: int = 0  # those after which nothing was heard for too long
    claimable: str | None = None  # the step, while a remote worker may claim it
    last_settlement: Settlement | None = None
    checkpoint: Checkpoint | None = None
    steps: Mapping[str, StepRecord]
    error: ErrorRecord | None = None
    recreated_from: str | None = None
    recreated_as: tuple[str, ...] = ()
    operations: tuple[OperationRecord, ...] = ()  # what people did last, newest last
    traced: int = 0  # how many trace events are stored: the number of the next one

    if TYPE_CHECKING:

        def with_(self, **update: Unpack[ManifestUpdate]) -> Self: ...  # noqa: D102

    @property
    def is_terminal(self) -> bool:
        """Whether nothing can move the run any more."""
        return self.status is RunStatus.COMPLETED or self.cancelled or self.dead_lettered

    @property
    def is_idle(self) -> bool:
        """Whether no time moves the run: it is terminal, or a person decides and nobody works."""
        waits_for_person = self.paused or self.status is RunStatus.BLOCKED
        return self.is_terminal or (waits_for_person and self.lease is None)

    @property
    def waits_for_worker(self) -> bool:
        """Whether an attempt is to begin, now or later."""
        waits = self.status is RunStatus.PENDING or self.status is RunStatus.ERROR
        return waits and not (self.paused or self.is_terminal)

    @property
    def state(self) -> str:
        """The state as people say it: the overlays, then the status."""
        overlays = {
            "dead-lettered": self.dead_lettered,
            "cancelled": self.cancelled,
            "paused": self.paused,
        }
        words = [word for word, holds in overlays.items() if holds]
        return " and ".join([*words, self.status.value])

    @property
    def attempt(self) -> int:
        """The number of the attempt that runs or comes next, from 1, of this step and trial."""
        return self.attempts.ended + 1

    @property
    def next_step(self) -> str | None:
        """The step after the current one; None for the last."""
        place = self.plan.index(self.current_step) + 1
        return self.plan[place] if place < len(self.plan) else None

    @property
    def given(self) -> KeptValue:
        """What the current step is given: the output before it, or the run's input."""
        place = self.plan.index(self.current_step)
        if place and (output := self.steps[self.plan[place - 1]].kept_output):
            return output
        return KeptValue(text=self.input, ref=self.input_ref)

    @property
    def text_bytes(self) -> int:
        """How many bytes the texts of input, outputs and checkpoint take."""
        texts = [self.input, *(record.output for record in self.steps.values())]
        texts.append(None if self.checkpoint is None else self.checkpoint.inline)
        return sum(len(text.encode()) for text in texts if text is not None)

    def with_step(self, step: str, **update: Unpack[StepRecordUpdate]) -> Mapping[str, StepRecord]:
        """Return `steps` with these fields of one step replaced."""
        return {**self.steps, step: self.steps[step].with_(**update)}


def is_run_id(text: str) -> bool:
    """Return whether a run could have this id: every store and every address takes it."""
    return _RUN_ID.fullmatch(text) is not None


def manifest_of(run_id: str, document: Document) -> Manifest:
    """Return the run that a document is, or raise UnreadableRunError.

    Args:
        run_id: the name of the document.
        document: what is stored; its `runId` says the same, or it is a copy of another run's.
    """
    if isinstance(document, UnreadableDocument):
        raise UnreadableRunError(run_id=run_id, problem=document.problem)
    if isinstance(document, StoredDocument) and isinstance(document.value, Manifest):
        return document.value  # this process wrote it a moment ago
    try:
        manifest = Manifest.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise UnreadableRunError(run_id=run_id, problem=problem) from None
    if manifest.run_id != run_id:
        problem = f"its runId is {manifest.run_id[:_MAX_SHOWN]!r}, which is not its name"
        raise UnreadableRunError(run_id=run_id, problem=problem)
    if manifest.current_step not in manifest.plan or not manifest.steps.keys() >= {*manifest.plan}:
        problem = f"currentStep {manifest.current_step!r} or steps do not go with its plan"
        raise UnreadableRunError(run_id=run_id, problem=problem)
    return manifest


def run_ref(run_id: str) -> Ref:
    """Return the name of a run's document."""
    return Ref("runs", run_id)


def to_document(stored: Stored) -> Document:
    """Return the value as it is stored."""
    return stored.model_dump(exclude_none=True)
