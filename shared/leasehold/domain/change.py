"""A change: what one transition answers, and what a store is to write of it.

Transitions make one with a `Draft`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from leasehold.domain.alarm import alarm_for
from leasehold.domain.delivery import Delivery, delivery_ref
from leasehold.domain.document import DecideDocument, Document, Ref, Write
from leasehold.domain.effect import Effect, Task, owed_effects
from leasehold.domain.event_message import EventMessage
from leasehold.domain.kept_work import KeptCounts
from leasehold.domain.ledger import LedgerEntry, ledger_ref
from leasehold.domain.manifest import Manifest, manifest_of, run_ref
from leasehold.domain.manifest_parts import OperationRecord
from leasehold.domain.status import Outcome
from leasehold.domain.stored import StoredDocument
from leasehold.domain.trace import TraceEvent, trace_ref
from leasehold.errors import UnknownRunError


class Change(NamedTuple):
    """What becomes of a run.

    Args:
        outcome: the answer for the caller.
        manifest: the run afterwards.
        events: trace events, stored in the same commit.
        created: a further run, stored in the same commit.
        wake: a task of this change alone: to look again at the end of somebody's lease.
        changed: False where nothing is to be written.
        deliveries: what each channel is owed by it, stored in the same commit.
        ledger: the run's entry in the ledger, stored in the same commit.
        repeats: the first time of an operation that was requested again; nothing is written.
        kept: of retry and recreate: what the attempts to come find of the work that was done.
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

    @property
    def owed(self) -> tuple[Effect, ...]:
        """What is to be carried out once the commit stands."""
        if self.wake is not None:
            return (self.wake,)
        if self.outcome is Outcome.STEP_UNKNOWN:
            return ()  # its task is for others, and would come back here at once
        owed = owed_effects(self.manifest) + (owed_effects(self.created) if self.created else ())
        if not self.deliveries:
            return owed
        others = (effect for effect in owed if not isinstance(effect, EventMessage))
        return (*map(EventMessage, self.deliveries), *others)

    def following(self, first: Change, outcome: Outcome | None = None) -> Change:
        """Return this change and one before it as one commit, answered as this one or as told."""
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
        )


#: A transition with its facts bound: a run and the store's time in, what becomes of it out.
Transition = Callable[[Manifest, datetime], Change]


def unchanged(manifest: Manifest, outcome: Outcome, wake: Task | None = None) -> Change:
    """Answer without writing; what the manifest owes is owed still."""
    return Change(outcome, manifest, wake=wake, changed=False)


def with_index_fields(manifest: Manifest, grace: timedelta) -> Manifest:
    """Return the manifest with what stores and people find it by, which follows from the rest."""
    return manifest.with_(
        current_step=manifest.position.step,
        alarm_at=alarm_for(manifest, grace),
        claimable=manifest.claimable_step,
    )


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
