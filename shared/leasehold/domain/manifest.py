"""The manifest: one document that is the whole truth about a run (`runs/{runId}`).

Stored in lowerCamelCase. Fields that are None are not stored. Fields of a later version are kept
as they are, so that an older worker of a rolling deploy loses nothing; those of a position, as long
as the run is at its step.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Protocol, TypeVar

from pydantic import AwareDatetime, Field, ValidationError

from leasehold.domain.announcement import Announcement
from leasehold.domain.archive import OwedArchive
from leasehold.domain.checkpoint import (
    CallResult,
    CallSource,
    Checkpoint,
    KeptValue,
    UnconfirmedCall,
)
from leasehold.domain.children import CHILDREN_BLOCKED, ChildLink, Children, ItemsOf, Lane
from leasehold.domain.manifest_parts import (
    NONE_ENDED,
    Attempts,
    Block,
    Dispatch,
    ErrorRecord,
    InputFile,
    Lease,
    OperationRecord,
    Place,
    RateLimits,
    Settlement,
    SkippedStep,
    StepRecord,
    TrialRule,
    step_type_at,
)
from leasehold.domain.printable import counted
from leasehold.domain.signal import WAITING, Signal, Wait, WaitRule
from leasehold.domain.skips import skip_problem
from leasehold.domain.slots import SlotWait, line_of
from leasehold.domain.spend import Spend, SpendLimit, UsedUp, limit_of, total_of
from leasehold.domain.status import BLOCKED, COMPLETED, ERROR, PENDING, DeadLetterReason, RunStatus
from leasehold.domain.step_pause import Hold
from leasehold.domain.stored import (
    Count,
    Document,
    Ref,
    Stored,
    StoredDocument,
    Text,
    UnreadableDocument,
)
from leasehold.errors import UnreadableRunError

#: Larger texts go to the artifact store, by reference.
MAX_INLINE_BYTES: Final = 32 * 1024
#: All texts of one manifest together.
MAX_TEXTS_BYTES: Final = 192 * 1024


def fits_inline(size: int, *, beside: int = 0) -> bool:
    """Return whether a manifest has room for a text of so many bytes.

    Args:
        size: of the text.
        beside: the bytes of the texts that the manifest holds already.
    """
    return size <= min(MAX_INLINE_BYTES, MAX_TEXTS_BYTES - beside)


#: What one step leaves of one trial beside its output takes no more: times, and names.
MAX_TRIAL_BYTES: Final = 512

#: Characters of the id of a run.
MAX_RUN_ID_CHARS: Final = 128
_RUN_ID: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{MAX_RUN_ID_CHARS - 1}}}")


class AtStep(Stored):
    """The fields of a position beside its step. Each field's meaning: docs/manifest.md."""

    trial: int = 1
    step_started_at: AwareDatetime | None = None
    heartbeat_at: AwareDatetime | None = None
    dispatch: Dispatch
    lease: Lease | None = None
    last_settlement: Settlement | None = None
    attempts: Attempts = NONE_ENDED
    failures: int = 0  # since the last progress, as the counts below
    rate_limits: RateLimits | None = None  # those that used up no retry; None: none did
    interruptions: int = 0
    interrupted_at: AwareDatetime | None = None  # the last shutdown that counted as one
    silences: int = 0  # those after which nothing was heard for too long
    continuations: int = 0
    checkpoint: Checkpoint | None = None
    recorded_calls: int = 0  # of the trial whose results lie beside the run, as far as it is noted
    unconfirmed_call: UnconfirmedCall | None = None  # that a person is asked about
    recorded_spend: Spend | None = None  # what they have spent, likewise
    calls: tuple[CallResult, ...] = ()  # that a version before this one kept in the run
    step_budget: SpendLimit | None = None  # a person's, in place of that of the step
    note: str | None = None  # a person's words for the attempts of the step
    wait: Wait | None = None  # the signal that the step waits for; None: it waits for none
    slot_wait: SlotWait | None = None  # for a limit; None: the step never waited for one
    children: Children | None = None  # small runs that it waits for; None: it has none here
    items_of: ItemsOf | None = None  # a run whose finished items count here; None: none


class Position(AtStep):
    """Where a run stands: a step, its dispatch, and who works on it."""

    step: str

    @property
    def attempt(self) -> int:
        """The number of the attempt that runs or comes next, from 1, of this step and trial."""
        return self.attempts.ended + 1


class RunFields(Stored):
    """The fields of a run beside its position. Each field's meaning: docs/manifest.md."""

    run_id: str
    life: str  # the mark that tells it from others of this id
    pipeline: Text
    plan: tuple[str, ...]
    places: Mapping[str, Place] | None = None  # of the plan; None: each is a plain step
    skipped: tuple[SkippedStep, ...] | None = None  # they are not in the plan any more
    labels: tuple[str, ...] = ()
    idempotency_key: str | None = None
    input_digest: str
    input: str | None = None
    input_ref: str | None = None
    input_files: tuple[InputFile, ...] = ()  # that it was started with
    max_retries: int | None = None  # of each step; None: as the steps say
    budget: SpendLimit | None = None  # None: it may spend any amount
    spent_before: Spend | None = None  # by the run that it was recreated of; its steps have it

    status: RunStatus
    paused: bool = False
    cancelled: bool = False
    dead_lettered: bool = False
    dead_lettered_at: AwareDatetime | None = None
    dead_letter_reason: DeadLetterReason | None = None
    dead_letter_detail: str | None = None
    block: Block | None = None

    current_step: str = ""  # the step of the position, for lists and consoles
    error_at: AwareDatetime | None = None
    #: `createdAt`, which lists are ordered by: a lane has it under `beganAt`, and is in no list.
    listed_at: Annotated[AwareDatetime | None, Field(alias="createdAt")] = None
    began_at: AwareDatetime | None = None
    updated_at: AwareDatetime
    completed_at: AwareDatetime | None = None
    alarm_at: AwareDatetime | None = None
    shard: Count

    parent: ChildLink | None = None  # the run that waits for this one; None: none does
    parent_id: str | None = None  # its id, by which children are found
    open_of: str | None = None  # the same, until this run has ended
    lane: Lane | None = None  # the items that it does one after the other; None: it has none

    fencing_token: int = 0
    claimable: str | None = None  # the type of the step, while a remote worker may claim it
    priority: str | None = None  # in the lines of limits, `high` or `low`; None: normal
    waits_in: str | None = None  # the line that it stands in; None: in none
    line: str | None = None  # its place there
    trials: TrialRule | None = None  # None: its pipeline has none
    shares: tuple[str, ...] | None = None  # runs with whose artifacts it was recreated
    call_sources: tuple[CallSource, ...] | None = None  # runs whose recorded calls it goes on from
    steps: Mapping[str, StepRecord]
    error: ErrorRecord | None = None
    recreated_from: str | None = None
    recreated_as: tuple[str, ...] = ()
    operations: tuple[OperationRecord, ...] = ()  # what people did last, newest last
    owed: tuple[str, ...] = ()  # folders of temporary files, to be deleted after their step
    has_files: bool = False  # whether files may be among its artifacts, as far as it was noted
    announcement: Announcement | None = None  # the last one
    signals: tuple[Signal, ...] | None = None  # that were sent to it; None: none
    archive: OwedArchive | None = None  # what is still to be archived of an ended run
    traced: int = 0  # how many trace events are stored: the number of the next one
    purged_at: AwareDatetime | None = None  # it is hidden, and being deleted


class Manifest(RunFields):
    """A run: where it stands, and all that is known of it."""

    position: Position

    @property
    def is_terminal(self) -> bool:
        """Whether nothing can move the run any more."""
        return self.status is COMPLETED or self.cancelled or self.dead_lettered

    @property
    def created_at(self) -> datetime:
        """When the run began."""
        began = self.listed_at or self.began_at
        return self.updated_at if began is None else began

    @property
    def labels_by_name(self) -> dict[str, str]:
        """The values of its labels; of one that a person has edited, empty where it has none."""
        parts = (label.partition(":") for label in self.labels)
        return {name: value for name, _, value in parts}

    @property
    def is_listed(self) -> bool:
        """Whether lists show the run; its parent shows a lane."""
        return self.began_at is None

    @property
    def place_with_children(self) -> Place | None:
        """What runs at the current place, where that is done by children; else None."""
        place = None if self.places is None else self.places.get(self.position.step)
        return place if place is not None and place.has_children else None

    @property
    def is_resting(self) -> bool:
        """Whether it waits for its children, without a worker."""
        children = self.position.children
        return children is not None and not (children.over or self.position.lease)

    @property
    def ended_at(self) -> datetime | None:
        """When the run became terminal, or was last written since; None: it is live."""
        if not self.is_terminal:
            return None
        return self.completed_at or self.dead_lettered_at or self.updated_at

    @property
    def owes_archive(self) -> bool:
        """Whether it ended, and something is still to be done that follows from its end."""
        return self.is_terminal and self.archive is not None

    @property
    def is_idle(self) -> bool:
        """Whether no time moves the run: terminal, or waiting for a person without a lease."""
        blocked = self.status is BLOCKED and not (self.look_at or self.wait_until or self.asks_at)
        return self.is_terminal or ((self.paused or blocked) and self.position.lease is None)

    @property
    def is_moving(self) -> bool:
        """Whether an attempt runs or will: it has an alarm, and not only for what it left behind.

        A blocked run moves only once its cause is corrected, so nothing waits for that.
        """
        is_over = self.is_terminal or self.status is BLOCKED
        return self.alarm_at is not None and not is_over

    @property
    def look_at(self) -> datetime | None:
        """When a blocked run is looked at again; None: it is not, a person decides."""
        block = self.block
        if self.status is not BLOCKED or self.paused or self.is_terminal:
            return None
        if block is None or not block.heals:
            return None
        return block.look_at or self.updated_at

    @property
    def asks_at(self) -> datetime | None:
        """When a run that is blocked by its children asks for them; None: none blocks it.

        A person may have one of them go on by itself, and the hint of its end may be lost.
        """
        children, block = self.position.children, self.block
        is_kept = self.status is BLOCKED and not (self.paused or self.is_terminal)
        if children is None or block is None or not is_kept or block.code != CHILDREN_BLOCKED:
            return None
        return children.look_at

    @property
    def waits_for(self) -> Wait | None:
        """The wait for a signal that the run is blocked by; None: by none."""
        block = self.block
        is_waiting = self.status is BLOCKED and not self.is_terminal
        return self.position.wait if is_waiting and block and block.code == WAITING else None

    @property
    def wait_until(self) -> datetime | None:
        """When the time of its wait for a signal is over; None: no time moves it."""
        if self.status is not BLOCKED or self.paused:
            return None
        wait = self.waits_for
        return None if wait is None or wait.is_over else wait.until

    @property
    def has_unjudged_output(self) -> bool:
        """Whether the output of the step is there, and its gates have not judged it.

        It was paid for, so only they are asked again, whatever else becomes of the run. One that a
        gate has refused waits for a person; who has the step done again drops it.
        """
        record = self.steps[self.position.step]
        if record.output is None and record.output_ref is None:
            return False
        is_refused = self.block is not None and not self.block.heals
        return not (is_refused or record.handed_off_at or self.status is COMPLETED)

    @property
    def waits_for_worker(self) -> bool:
        """Whether an attempt is to begin, now or later."""
        waits = self.status is PENDING or self.status is ERROR
        children = self.position.children
        is_resting = children is not None and not children.over
        return waits and not (self.paused or self.is_terminal or is_resting)

    @property
    def traceparent(self) -> str | None:
        """The W3C trace context that the run was begun with; None: none."""
        return self.position.dispatch.traceparent

    @property
    def claimable_step(self) -> str | None:
        """The type of the step that waits for a remote worker, due or not; None: none does.

        A run that is held is listed by the pause that holds it, as no step is named.
        """
        at = self.position
        if at.lease is not None or not self.waits_for_worker:
            return None
        if at.dispatch.held is not None:
            return at.dispatch.held.pause
        return self.step_type if at.dispatch.remote else None

    @property
    def held(self) -> Hold | None:
        """The hold of a run at a step that is paused; None: no pause holds it."""
        held = self.position.dispatch.held
        waits = held is not None and self.waits_for_worker and self.position.lease is None
        return held if waits else None

    @property
    def step_type(self) -> str:
        """The type of the current step; empty: it is no step that is known here."""
        name = self.position.step
        return name if self.places is None else step_type_at(self.places, name)

    def step_type_of(self, name: str) -> str:
        """Return the type of the step at a place of the plan, as `step_type`."""
        return step_type_at(self.places, name)

    def wait_rule_at(self, name: str) -> WaitRule | None:
        """Return how a place of the plan waits for a signal; None: a step runs there."""
        place = None if self.places is None else self.places.get(name)
        return None if place is None else place.wait

    @property
    def has_wait_to_begin(self) -> bool:
        """Whether it stands at a place that waits, without a wait: an older version handed off."""
        at = self.position
        return self.places is not None and at.wait is None and bool(self.wait_rule_at(at.step))

    @property
    def unawaited_signals(self) -> str:
        """The names of the signals that nothing has waited for, five of them at most."""
        names = [one.name for one in self.signals or () if one.taken_by is None]
        return ", ".join(map(repr, dict.fromkeys(names[-5:])))

    @property
    def signals_ahead(self) -> frozenset[str]:
        """The names of the places that wait, or may wait yet, for a signal."""
        at, looped = self.position.step, self.looped_steps
        first = looped[0] if at in looped else at
        ahead = self.plan[self.plan.index(first) :]
        return frozenset(name for name in ahead if self.wait_rule_at(name))

    @property
    def awaits_slot(self) -> bool:
        """Whether it stands in the line of a limit: nothing is dispatched until it is called."""
        wait = self.position.slot_wait
        if wait is None or wait.called:
            return False
        return self.waits_for_worker and self.position.lease is None

    @property
    def place_in_line(self) -> tuple[str, str] | None:
        """The line that it stands in, and its place there; None: it stands in none."""
        wait = self.position.slot_wait
        if wait is None or not self.awaits_slot:
            return None
        return wait.name, line_of(self.priority, wait.group, wait.since)

    @property
    def awaited_limit(self) -> str:
        """What it stands in the line of a limit for, for people; empty: it stands in none."""
        wait = self.position.slot_wait
        return wait.words if wait is not None and self.awaits_slot else ""

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
    def next_step(self) -> str | None:
        """The step after the current one, or to which its output skips; None for the last."""
        return self.step_after(self.steps[self.position.step])

    def step_after(self, record: StepRecord) -> str | None:
        """Return what `next_step` is once the current step has this record."""
        target, place = record.skip_to, self.plan.index(self.position.step) + 1
        if target is not None and self.skip_problem(target) is None:
            return target
        return self.plan[place] if place < len(self.plan) else None

    def skip_problem(self, target: object) -> str | None:
        """Return why the current step cannot skip to a place, or None."""
        return skip_problem(self.plan, self.looped_steps, self.position.step, target)

    @property
    def whole_plan(self) -> tuple[str, ...]:
        """The plan with the steps that were skipped, for people."""
        if self.skipped is None:
            return self.plan
        skipped = self.skipped
        behind = ((name, *(one.step for one in skipped if one.by == name)) for name in self.plan)
        return tuple(itertools.chain.from_iterable(behind))

    def skipped_by(self, step: str) -> str | None:
        """Return the step whose output skipped this one; None: it was not skipped."""
        return next((one.by for one in self.skipped or () if one.step == step), None)

    @property
    def spend(self) -> Spend:
        """The spend of all its steps, those before a recreate included."""
        return total_of([record.spend for record in self.steps.values()])

    @property
    def spared(self) -> Spend:
        """What recorded results have spared it: what was not paid for again after kills."""
        return total_of([record.spared for record in self.steps.values()])

    @property
    def spared_words(self) -> str:
        """What was not paid for again, for people; empty: nothing.

        Such as `3 calls (0.80 USD) were not paid for again after kills`.
        """
        calls = sum(one.calls.spared for one in self.steps.values() if one.calls is not None)
        money = "" if self.spared.is_nothing else self.spared.words
        if not calls:
            return f"{money} was not paid again after kills" if money else ""
        of_money = f" ({money})" if money else ""
        verb = "was" if calls == 1 else "were"
        return f"{counted(calls, 'call')}{of_money} {verb} not paid for again after kills"

    @property
    def cost_words(self) -> str:
        """What it has cost, and was spared, for people; empty: nothing that is known."""
        spend, spared = self.spend, self.spared_words
        words = [] if spend.is_nothing else [f"cost {spend.words}"]
        words += [spared] if spared else []
        return "; ".join(words)

    @property
    def has_budget(self) -> bool:
        """Whether it, or the step that is dispatched, may spend so much only."""
        return self.budget is not None or self.position.dispatch.budget is not None

    def used_up(self, of_step: SpendLimit | None, more: Spend | None = None) -> UsedUp | None:
        """Return the budget that is used up, that of the run or of its step; None: neither is.

        Args:
            of_step: the budget of the step, as its dispatch has it.
            more: what was spent beside what the run counts.
        """
        at = self.position
        if self.budget is None and of_step is None:
            return None
        if (limit := self.budget) and limit.is_used_up_by(spend := self.spend.plus(more)):
            return UsedUp("The run", spend, limit)
        limit = of_step and limit_of(of_step, at.step_budget)
        spend = total_of((self.steps[at.step].spend, more))
        if limit and limit.is_used_up_by(spend):
            return UsedUp(f"Step {at.step}", spend, limit)
        return None

    @property
    def looped_steps(self) -> tuple[str, ...]:
        """The steps that each trial runs, from the author to the reviewer; none: no trials."""
        rule, plan = self.trials, self.plan
        if rule is None or rule.author not in plan or rule.reviewer not in plan:
            return ()
        return plan[plan.index(rule.author) : plan.index(rule.reviewer) + 1]

    @property
    def given(self) -> KeptValue:
        """What the current step is given: the output before it, or the run's input."""
        place = self.plan.index(self.position.step)
        if place and (output := self.steps[self.plan[place - 1]].kept_output):
            return output
        return KeptValue(text=self.input, ref=self.input_ref)

    @property
    def text_bytes(self) -> int:
        """How many bytes the texts of input, note, outputs, checkpoint, calls and signals take.

        Later trials' values beside their outputs count from the beginning.
        """
        most = 0 if self.trials is None else self.trials.max_trials * len(self.looped_steps)
        texts = [self.input, self.position.note]
        texts.append(None if self.position.checkpoint is None else self.position.checkpoint.inline)
        for record in self.steps.values():
            texts.append(record.output)
            if record.trials:
                texts.extend(one.output for one in record.trials)
        results = sum(call.size for call in self.position.calls) if self.position.calls else 0
        results += sum(signal.size for signal in self.signals) if self.signals else 0
        return len("".join(filter(None, texts)).encode()) + results + MAX_TRIAL_BYTES * most


def life_of(nonce: str) -> str:
    """Return the mark of the life that has this nonce; the nonce itself is for tasks alone."""
    return hashlib.sha256(nonce.encode()).hexdigest()[:8]


def is_run_id(text: str) -> bool:
    """Return whether a run could have this id: every store and every address takes it."""
    return _RUN_ID.fullmatch(text) is not None


def manifest_of(run_id: str, document: Document) -> Manifest:
    """Return the run that a document is, or raise UnreadableRunError.

    Args:
        run_id: the name of the document.
        document: what is stored; its `runId` says the same, or it is a copy of another run's.
    """
    if isinstance(document, StoredDocument) and isinstance(document.value, Manifest):
        return document.value  # this process wrote it a moment ago
    return checked_run(run_id, read_as(Manifest, run_id, document))


class RunShape(Protocol):
    """A run, or what was read of one, as far as it is checked."""

    @property
    def run_id(self) -> str: ...  # noqa: D102 - as a manifest has them
    @property
    def life(self) -> str: ...  # noqa: D102
    @property
    def plan(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def position(self) -> Any: ...  # noqa: D102
    @property
    def steps(self) -> Mapping[str, Any]: ...  # noqa: D102


Read = TypeVar("Read", bound=Stored)
Shape = TypeVar("Shape", bound=RunShape)


def read_as(model: type[Read], run_id: str, document: Document) -> Read:
    """Return the document of a run as a value of this model, or raise UnreadableRunError."""
    if isinstance(document, UnreadableDocument):
        raise UnreadableRunError(run_id=run_id, problem=document.problem)
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise UnreadableRunError(run_id=run_id, problem=problem) from None


def checked_run(run_id: str, run: Shape) -> Shape:
    """Return the run, or raise UnreadableRunError where it contradicts itself or its name."""
    if run.run_id != run_id:
        problem = f"its runId is {run.run_id[:MAX_RUN_ID_CHARS]!r}, which is not its name"
        raise UnreadableRunError(run_id=run_id, problem=problem)
    if run.life != life_of(run.position.dispatch.nonce):
        problem = f"its life is {run.life[:MAX_RUN_ID_CHARS]!r}, which is that of another run"
        raise UnreadableRunError(run_id=run_id, problem=problem)
    return consistent(run)


def consistent(run: Shape) -> Shape:
    """Return the run, or raise UnreadableRunError where it stands at no step of its own.

    If its nonce is masked, its life cannot be told.
    """
    step = run.position.step
    if step not in run.plan or not run.steps.keys() >= {*run.plan}:
        problem = f"position.step {step!r} or steps do not go with its plan"
        raise UnreadableRunError(run_id=run.run_id, problem=problem)
    return run


def run_ref(run_id: str) -> Ref:
    """Return the name of a run's document."""
    return Ref("runs", run_id)


def to_document(stored: Stored) -> Document:
    """Return the value as it is stored."""
    return stored.model_dump(exclude_none=True)
