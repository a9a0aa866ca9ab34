"""A change: what one transition answers, and what a store is to write of it.

Transitions make one with a `Draft`. Each change sets the run's alarm: by when something must have
happened to the run, or the sweep looks at it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from leasehold.domain.announcing import announcement_of, deliveries_of
from leasehold.domain.archive import OwedArchive, longest_wait
from leasehold.domain.artifact_name import step_folder
from leasehold.domain.budget import TAIL_PROBE
from leasehold.domain.checkpoint import KeptCounts
from leasehold.domain.children import ItemRecord, item_ref
from leasehold.domain.delivery import Delivery, delivery_ref
from leasehold.domain.dispatch import Rules
from leasehold.domain.effect import (
    Effect,
    Task,
    child_ends,
    is_awaited,
    leaves_artifacts,
    owed_effects,
    owed_tellings,
)
from leasehold.domain.event_message import EventMessage
from leasehold.domain.lease import Fence
from leasehold.domain.ledger import LedgerEntry, ledger_of, ledger_ref
from leasehold.domain.manifest import Manifest, Position, manifest_of, run_ref
from leasehold.domain.manifest_parts import (
    MAX_EARLIER_ATTEMPTS,
    Dispatch,
    EarlierAttempt,
    OperationRecord,
    Settlement,
    StepRecord,
)
from leasehold.domain.notes import MadeOutput, Notes, Phases, TakenStack
from leasehold.domain.recorded_calls import calls_folder
from leasehold.domain.signal import place_of, with_taken
from leasehold.domain.spend import NOTHING, Spend
from leasehold.domain.status import BLOCKED, AttemptEnd, Outcome
from leasehold.domain.step_pause import HOLD_LOOK
from leasehold.domain.stored import (
    DecideDocument,
    Document,
    Ref,
    StoredDocument,
    Write,
    make,
    replace,
)
from leasehold.domain.trace import ENDS_OF_ATTEMPTS, TraceEvent, TraceType, event_of, trace_ref
from leasehold.errors import UnknownRunError


class Change(NamedTuple):
    """The result of a transition of a run.

    Args:
        outcome: the answer for the caller.
        manifest: the run afterwards.
        events: trace events, stored in the same commit.
        created: a further run, stored in the same commit.
        wake: a task of this change alone: to look again at the end of another worker's lease.
        changed: False where nothing is to be written.
        deliveries: what each channel is owed by it, stored in the same commit.
        ledger: the run's entry in the ledger, stored in the same commit.
        repeats: the first time of an operation that was requested again; nothing is written.
        kept: of retry and recreate: what the attempts to come find of the work that was done.
        before: the run as it was stored; None: it begins, or was not changed.
        children: runs that this one waits for from here on, stored in the same commit.
        item: what became of an item of a lane, likewise.
    """

    outcome: Outcome
    manifest: Manifest
    events: tuple[TraceEvent, ...] = ()
    created: Manifest | None = None
    wake: Task | None = None
    changed: bool = True
    deliveries: tuple[Delivery, ...] = ()
    ledger: LedgerEntry | None = None
    repeats: OperationRecord | None = None
    kept: KeptCounts | None = None
    before: Manifest | None = None
    children: tuple[Manifest, ...] = ()
    item: ItemRecord | None = None

    @property
    def owed(self) -> tuple[Effect, ...]:
        """The effects to carry out after the commit."""
        if self.wake is not None:
            return (self.wake, *owed_tellings(self.manifest))
        if self.outcome is Outcome.STEP_UNKNOWN:
            return ()  # its task is for others, and would come back here at once
        owed = owed_effects(self.manifest) + (owed_effects(self.created) if self.created else ())
        if self.children:
            owed += tuple(effect for child in self.children for effect in owed_effects(child))
        if self.manifest.parent is not None:
            owed += child_ends(self.manifest, is_repeated=not self.changed)
        if not self.deliveries:
            return owed
        others = (effect for effect in owed if not isinstance(effect, EventMessage))
        return (*map(EventMessage, self.deliveries), *others)

    def following(self, first: Change, outcome: Outcome | None = None) -> Change:
        """Return this change and one before it as one commit, answered as this one or as given."""
        return Change(
            outcome or self.outcome,
            self.manifest,
            first.events + self.events,
            self.created or first.created,
            self.wake,
            self.changed,
            first.deliveries + self.deliveries,
            self.ledger,
            self.repeats,
            self.kept,
            first.before,
            self.children or first.children,
            self.item or first.item,
        )


#: A transition with its facts bound: a run and the store's time in, what becomes of it out.
Transition = Callable[[Manifest, datetime], Change]


def unchanged(manifest: Manifest, outcome: Outcome, wake: Task | None = None) -> Change:
    """Answer without writing; what the manifest owes is owed still."""
    return Change(outcome, manifest, wake=wake, changed=False)


def with_index_fields(manifest: Manifest, grace: timedelta) -> Manifest:
    """Return the manifest with what stores and people find it by, which follows from the rest."""
    run = replace(
        manifest,
        current_step=manifest.position.step,
        alarm_at=alarm_for(manifest, grace),
        claimable=manifest.claimable_step,
    )
    return run if run.parent is None else replace(run, **_of_child(run))


def _of_child(run: Manifest) -> dict[str, Any]:
    """Return what children are found by."""
    parent_id = None if run.parent is None else run.parent.run_id
    return {"parent_id": parent_id, "open_of": None if run.is_terminal else parent_id}


def as_write(change: Change) -> Write[Change]:
    """Return what the store is to write."""
    if not change.changed:
        return Write(change)
    creates: dict[Ref, Document] = {}
    puts: dict[Ref, Document] = {}
    for number, event in enumerate(change.events, change.manifest.traced - len(change.events)):
        creates[trace_ref(change.manifest, number)] = StoredDocument(event)
    if change.created is not None:
        creates[run_ref(change.created.run_id)] = StoredDocument(change.created)
    for child in change.children:
        creates[run_ref(child.run_id)] = StoredDocument(child)
    if change.item is not None and (parent := change.manifest.parent) is not None:
        ref = item_ref(parent.run_id, parent.life, parent.place, change.item.first)
        puts[ref] = StoredDocument(change.item)
    for one in change.deliveries:
        puts[delivery_ref(one.run_id, one.occurrence, one.channel)] = StoredDocument(one)
    if change.ledger is not None:
        puts[ledger_ref(change.ledger.run_id)] = StoredDocument(change.ledger)
    return Write(change, StoredDocument(change.manifest), creates, puts)


def on_manifest(
    run_id: str, transition: Callable[[Manifest | None, datetime], Change]
) -> DecideDocument[Change]:
    """Return the transition as a store calls it: on documents."""

    def decide(document: Document | None, now: datetime) -> Write[Change]:
        current = None if document is None else manifest_of(run_id, document)
        return as_write(transition(current, now))

    return decide


def on_run(run_id: str, transition: Transition) -> DecideDocument[Change]:
    """Return the transition as a store calls it; UnknownRunError where there is no such run."""

    def decide(current: Manifest | None, now: datetime) -> Change:
        if current is None or current.purged_at is not None:
            raise UnknownRunError(run_id=run_id)
        return transition(current, now)

    return on_manifest(run_id, decide)


#: A look at an alarm that comes later than this shows that no process was there before: time off,
#: or an outage.
#: What cuts a step short within as long after another is the same outage.
OUTAGE: Final = timedelta(minutes=10)

#: A wait for a remote worker is looked at so often, so that time off is noticed.
_LOOKS_PER_WAIT: Final = 12


def is_unattended(due_at: datetime, now: datetime) -> bool:
    """Return whether no process was there when something was due.

    Such time proves nothing against a run: it is not counted, and the look begins it anew.

    Args:
        due_at: when a process was to look.
        now: when one did.
    """
    return now > due_at + OUTAGE


def alarm_for(
    manifest: Manifest, grace: timedelta, written_at: datetime | None = None
) -> datetime | None:
    """Return when the run must be looked at; None: it is idle, and owes nothing.

    A paused run whose attempt still runs is not idle yet: its alarm is the end of the lease.

    Args:
        manifest: the run.
        grace: how late a task may come, or what an idle run owes be carried out.
        written_at: when the run is written; None: it is as it was written last.
    """
    written_at = written_at or manifest.updated_at
    lease = manifest.position.lease
    if lease is not None and not manifest.is_terminal:
        return lease.expires_at
    if manifest.is_idle:
        return _alarm_of_idle(manifest, grace, written_at)
    if manifest.status is BLOCKED and manifest.asks_at is None:
        return manifest.look_at or manifest.wait_until
    if put_off := _look_of_put_off(manifest, written_at + grace):
        return put_off
    dispatch = manifest.position.dispatch
    if dispatch.schedule_to_start_s is not None and dispatch.held is None:
        return _next_look(dispatch, written_at)
    return dispatch.waits_since + (grace if dispatch.held is None else HOLD_LOOK)


def _look_of_put_off(manifest: Manifest, soon: datetime) -> datetime | None:
    """Return when a run is looked at that waits for a slot or for children; None: it does not."""
    wait, children = manifest.position.slot_wait, manifest.position.children
    if wait is not None and manifest.awaits_slot:
        return wait.look_at
    if children is None or children.over:
        return None
    return min(children.look_at, soon) if owed_tellings(manifest) else children.look_at


def _next_look(dispatch: Dispatch, written_at: datetime) -> datetime:
    """Return when the sweep next looks whether a remote step is still to be claimed."""
    since, until = dispatch.waits_since, dispatch.claim_by
    assert until is not None  # noqa: S101 - who asks has seen that it is remote
    each = max(OUTAGE, (until - since) / _LOOKS_PER_WAIT)
    looks = max(timedelta(), written_at - since) // each
    return min(until, since + (looks + 1) * each)


def _alarm_of_idle(manifest: Manifest, grace: timedelta, written_at: datetime) -> datetime | None:
    """Return when what an idle run owes is to be carried out; a live one owes no deletion."""
    told = manifest.announcement
    is_owed = any(map(is_awaited, owed_effects(manifest)))
    if is_owed or (told is not None and told.pending):
        return written_at + grace
    return _alarm_of_archive(manifest, grace, written_at) if manifest.owes_archive else None


def _alarm_of_archive(manifest: Manifest, grace: timedelta, written_at: datetime) -> datetime:
    """Return when the sweep is to archive the run, if it is not archived by then."""
    archive = manifest.archive
    if archive is None or archive.not_before is None:
        return written_at + grace
    return min(archive.not_before, written_at + longest_wait(grace))


class Draft:
    """One change in the making. A transition opens it, passes it on, and commits it once.

    Assign what `replace` makes of the run, its position, or the record of its step:
    `draft.position = replace(draft.position, lease=None)`.

    Args:
        before: the run as it is stored.
        now: the store's time.
        rules: the rules in force.
        fence: of the worker that settles its attempt; the run keeps the answer for it.

    Attributes:
        position: where the run stands, as decided so far.
        steps: its records.
        events: what is traced so far.
    """

    __slots__ = (
        "_phases",
        "_reason",
        "_run",
        "before",
        "events",
        "fence",
        "now",
        "position",
        "rules",
        "steps",
    )

    def __init__(
        self, before: Manifest, now: datetime, rules: Rules, fence: Fence | None = None
    ) -> None:
        self.before = self._run = before
        self.position: Position = before.position
        self.steps: Mapping[str, StepRecord] = before.steps
        self.now = now
        self.rules = rules
        self.fence = fence
        self.events: tuple[TraceEvent, ...] = ()
        self._phases: Phases | None = None
        self._reason: str | None = None

    @property
    def run(self) -> Manifest:
        """The run as decided so far; it is copied once a caller wants it."""
        run = self._run
        if self.position is not run.position or self.steps is not run.steps:
            run = self._run = replace(run, position=self.position, steps=self.steps)
        return run

    @run.setter
    def run(self, run: Manifest) -> None:
        self._run = run
        self.position, self.steps = run.position, run.steps

    @property
    def rest(self) -> Manifest:
        """The run as decided so far, but for `position` and `steps`, which may be older here.

        To replace both and other fields, copy this one: `run` would be copied for it before.
        """
        return self._run

    @property
    def step(self) -> StepRecord:
        """The record of the current step, as decided so far."""
        return self.steps[self.position.step]

    @step.setter
    def step(self, record: StepRecord) -> None:
        self.steps = {**self.steps, self.position.step: record}

    def note(self, notes: Notes) -> None:
        """Keep what the attempt has to say beside its result."""
        if notes.progress is not None:
            self.step = replace(self.step, progress=notes.progress)
        if notes.calls or notes.unconfirmed_call or notes.spared:
            self._note_calls(notes)
        if notes.spent is not None or notes.recorded_spend is not None:
            self._count_spend(notes.spent or NOTHING, notes.recorded_spend or NOTHING)
        if notes.leaves_file:
            self.owe_folder()
        if notes.stores_files:
            self.run = replace(self.run, has_files=True)
        if notes.phases is not None:
            self._phases = notes.phases
        if notes.waited:
            self._take_signals(notes.waited)
        if notes.stack is not None:
            self._answer_stack_request(notes.stack)
        if notes.output is not None and self.keep_output(notes.output):
            self.count_anew()

    def _note_calls(self, notes: Notes) -> None:
        """Keep how many calls of the step are recorded, were spared, or were made once more."""
        if notes.calls is not None:
            self.step = replace(self.step, calls=notes.calls)
        if notes.recorded_calls > self.position.recorded_calls:
            self.position = replace(self.position, recorded_calls=notes.recorded_calls)
            self.owe_calls()
            self.count_anew()  # paid work that no attempt repeats is progress
        if notes.unconfirmed_call is not None:
            self.position = replace(self.position, unconfirmed_call=notes.unconfirmed_call)
        if notes.spared is not None:
            self.step = replace(self.step, spared=notes.spared)

    def _take_signals(self, names: Iterable[str]) -> None:
        """Note the signals that the step was given: each attempt to come is given the same."""
        signals, taker = self.run.signals, place_of(self.position.step, self.position.trial)
        for name in names if signals else ():
            signals = with_taken(signals or (), name, taker)
        if signals != self.run.signals:
            self.run = replace(self.run, signals=signals)

    def _count_spend(self, spent: Spend, recorded: Spend) -> None:
        """Count what was not counted before: the lease and the position say how much was."""
        at, lease = self.position, self.position.lease
        of_attempt = spent.beyond(None if lease is None else lease.spent)
        of_calls = recorded.beyond(at.recorded_spend)
        if of_attempt.is_nothing and of_calls.is_nothing:
            return
        counted = of_attempt.plus(of_calls)
        self.step = replace(self.step, spend=counted.plus(self.step.spend))
        if lease is not None and not of_attempt.is_nothing:
            lease = replace(lease, spent=of_attempt.plus(lease.spent))
        if not of_calls.is_nothing:
            at = replace(at, recorded_spend=of_calls.plus(at.recorded_spend))
        self.position = replace(at, lease=lease)

    def _answer_stack_request(self, taken: TakenStack) -> None:
        """Trace the stack that was asked for, unless that was done, or another is asked for."""
        lease = self.position.lease
        if lease is None or lease.stack_request != taken.request:
            return
        self.trace(
            TraceType.STACK_TAKEN,
            actor=taken.request.actor,
            requested_at=taken.request.at,
            detail=taken.detail,
            stacks=taken.stacks,
        )
        self.position = replace(self.position, lease=replace(lease, stack_request=None))

    def keep_output(self, made: MadeOutput) -> bool:
        """Keep the output of the current step; return whether it was not kept before."""
        if self.position.unconfirmed_call is not None:  # its handler got on without an answer
            self.position = replace(self.position, unconfirmed_call=None)
        step = self.step
        kept = step.kept_output
        if kept is not None and kept == made.value:
            self.step = replace(step, summary=made.summary or step.summary)
            return False
        times = self._times()
        times["execution_seconds"] = times["execution_seconds"] or 0.0
        self.step = replace(
            step,
            **times,
            completed_at=self.now,
            output=made.value.text,
            output_ref=made.value.ref,
            output_status=made.status,
            summary=made.summary,
            verdict=made.verdict,
            skip_to=made.skip_to,
        )
        return True

    def _keep_bootstrap(self) -> None:
        """Keep the bootstrap of an attempt that goes on; a worker may be killed later."""
        times = self._times()
        if self.step.bootstrap_seconds != times["bootstrap_seconds"]:
            self.step = replace(self.step, **times | {"execution_seconds": None})

    def _times(self) -> dict[str, Any]:
        """Return how long both phases took, as its worker says, else by the store's time.

        If another process ends the attempt, its worker worked until it was last heard of. The
        execution is None where that is not known, or the clock was set back since its lease.
        """
        phases, before = self._phases, self.before.position
        is_probe = before.dispatch.sources.get("dispatchDeadline") == TAIL_PROBE
        if phases is not None:
            return {
                "bootstrap_seconds": phases.bootstrap_s,
                "execution_seconds": phases.execution_s,
                "cold_start": phases.is_cold,
                "first_tool": phases.first_tool or None,
                "tail_probe": is_probe or None,
            }
        step = self.step
        took, bootstrap_s = None, step.bootstrap_seconds
        if lease := before.lease:
            heard_at = self.position.heartbeat_at or lease.acquired_at
            until = heard_at if self.fence is None else self.now
            took = (until - lease.acquired_at).total_seconds() - (bootstrap_s or 0.0)
            if self.fence is None and until == lease.acquired_at:
                took = None  # its worker was never heard of
        return {
            "bootstrap_seconds": bootstrap_s,
            "execution_seconds": None if took is None or took < 0 else round(took, 3),
            "cold_start": step.cold_start,
            "first_tool": step.first_tool,
            "tail_probe": is_probe or None,
        }

    def end_attempt(self, end: str) -> None:
        """Keep how long the attempt took that ends, unless its output is kept with its times.

        Args:
            end: see `EarlierAttempt`.
        """
        step, is_repeated = self.step, end == AttemptEnd.REPEATED.value
        if step.kept_output is not None and not is_repeated:
            return
        times = self._times()
        if is_repeated:
            times |= {"execution_seconds": step.execution_seconds, "tail_probe": step.tail_probe}
        ended = EarlierAttempt(
            attempt=self.before.position.attempt, end=end, reason=self._reason, at=self.now, **times
        )
        self.step = replace(
            step,
            bootstrap_seconds=None,
            execution_seconds=None,
            cold_start=None,
            first_tool=None,
            tail_probe=None,
            earlier_attempts=((step.earlier_attempts or ()) + (ended,))[-MAX_EARLIER_ATTEMPTS:],
        )

    def terminated(self, reason: str) -> None:
        """Note what cut the attempt short that ends."""
        self._reason = reason

    def owe_folder(self) -> None:
        """Note that the current trial of the step may have temporary files, to be deleted later."""
        run = self.run
        self._owe(step_folder(run, run.position.step, run.position.trial))

    def owe_calls(self) -> None:
        """Note that the current trial of the step has recorded calls, to be deleted later."""
        run = self.run
        self._owe(calls_folder(run, run.position.step, run.position.trial))

    def _owe(self, folder: str) -> None:
        if folder not in self.run.owed:
            self.run = replace(self.run, owed=(*self.run.owed, folder))

    def count_anew(self) -> None:
        """Count from zero what bounds attempts without progress: the step made some.

        A block that was looked at is over by that, too: a later one is another.
        """
        self.position = replace(
            self.position,
            failures=0,
            rate_limits=None,
            interruptions=0,
            interrupted_at=None,
            silences=0,
            continuations=0,
        )
        if self.position.dispatch.after_block is not None:
            dispatch = replace(self.position.dispatch, after_block=None)
            self.position = replace(self.position, dispatch=dispatch)

    def count(self, end: AttemptEnd) -> None:
        """Count one more end of an attempt, for the step and in total."""
        self.end_attempt(end.value)
        at, step = self.position, self.step
        self.step = replace(step, attempts=step.attempts.plus(end))
        counts = end is AttemptEnd.EXPIRED and not self._lapsed_unattended
        interrupted_at = at.interrupted_at
        if end is AttemptEnd.INTERRUPTED and not self._is_one_outage:
            counts, interrupted_at = True, self.now
        self.position = replace(
            at,
            attempts=at.attempts.plus(end),
            failures=at.failures + (end is AttemptEnd.FAILED),
            interruptions=at.interruptions + counts,
            interrupted_at=interrupted_at,
        )

    @property
    def _lapsed_unattended(self) -> bool:
        """Whether no process was there when the lease ran out: time off, or an outage."""
        lease = self.before.position.lease
        return lease is not None and is_unattended(lease.expires_at, self.now)

    @property
    def _is_one_outage(self) -> bool:
        """Whether a shutdown belongs to the same outage as the last one that counted."""
        last = self.run.position.interrupted_at
        return last is not None and abs(self.now - last) < OUTAGE

    def trace(self, type_: TraceType, **facts: Any) -> None:
        """Trace an event of the attempt that the run was in before; with its times if it ends."""
        if type_ in ENDS_OF_ATTEMPTS and self.before.position.lease is not None:
            facts |= self._times()
        self.events += (event_of(self.before, type_, self.now, **facts),)

    def trace_next(self, type_: TraceType, **facts: Any) -> None:
        """Trace an event of the attempt that the run is in by now."""
        self.events += (event_of(self.run, type_, self.now, **facts),)

    def commit(
        self,
        outcome: Outcome,
        created: Manifest | None = None,
        *,
        dispatch: Dispatch | None = None,
    ) -> Change:
        """Return the change, with all that follows from it in order.

        Args:
            outcome: the answer for the caller.
            created: a further run.
            dispatch: the next one of the step; None: that of the position stays.
        """
        if self._phases is not None and self.position.lease is not None:
            self._keep_bootstrap()
        at = self.position
        if self.fence is not None:
            settlement = _answered(self.fence, outcome)
            self.position = replace(
                at, last_settlement=settlement, dispatch=dispatch or at.dispatch
            )
        elif dispatch is not None:
            self.position = replace(at, dispatch=dispatch)
        run, rules = self.run, self.rules
        is_over, told = run.is_terminal, None
        if (is_over or run.status is BLOCKED) and run.is_listed:  # others go on
            told = announcement_of(self.before, run, self.events, self.now, rules)
        if told is not None:
            run = replace(run, announcement=told)
        ends = is_over and not self.before.is_terminal
        if ends and leaves_artifacts(run):
            run = replace(run, archive=OwedArchive(ended_at=self.now))
        run = self._indexed(run)
        after = rules.delivery.give_up_after
        owed = () if told is None else deliveries_of(run, rules.grace, after)
        ledger = ledger_of(run) if ends and run.is_listed else None
        return Change(
            outcome,
            run,
            self.events,
            created,
            deliveries=owed,
            ledger=ledger,
            before=self.before,
        )

    def added_to(self, change: Change) -> Change:
        """Return a change that was decided before with the drafted one since, as one."""
        return change._replace(manifest=self._indexed(self.run), events=change.events + self.events)

    def _indexed(self, run: Manifest) -> Manifest:
        """Return the run with what it is found by, and what counts its events."""
        place = None if run.position.slot_wait is None else run.place_in_line
        found = replace(
            run,
            current_step=run.position.step,
            updated_at=self.now,
            traced=run.traced + len(self.events),
            alarm_at=alarm_for(run, self.rules.grace, self.now),
            claimable=run.claimable_step,
            waits_in=None if place is None else place[0],
            line=None if place is None else place[1],
        )
        return found if run.parent is None else replace(found, **_of_child(run))


def _answered(fence: Fence, outcome: Outcome) -> Settlement:
    """Return the note of the answer, so that the same settlement gets it again."""
    return make(
        Settlement, lease_id=fence.lease_id, fencing_token=fence.fencing_token, outcome=outcome
    )
