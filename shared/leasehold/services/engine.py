"""The parts that every service needs, and the one way to change a run: commit, then publish."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from leasehold.attempt.attempt import Attempt
from leasehold.attempt.keeper import LeaseKeeper
from leasehold.budgets.proposal import BudgetSettings, Strategy
from leasehold.domain.breaker import Breaker
from leasehold.domain.budget import BudgetLimit
from leasehold.domain.change import Change, Transition, as_write, on_manifest, on_run
from leasehold.domain.children import GivenItems
from leasehold.domain.dispatch import Rules
from leasehold.domain.effect import Archive, ChildEnd, Deletion, Effect, Task, Telling, owed_effects
from leasehold.domain.event_message import EventMessage
from leasehold.domain.manifest import MAX_RUN_ID_CHARS, Manifest, is_run_id, manifest_of, run_ref
from leasehold.domain.override import StoredOverride
from leasehold.domain.stored import DecideDocument, Ref
from leasehold.domain.timestamps import ClockStep, after_step
from leasehold.errors import (
    ArtifactNameError,
    LeaseholdError,
    StoreUnavailableError,
    UnknownRunError,
    VersionConflictError,
)
from leasehold.frozen import dataclass
from leasehold.ports.artifacts import Artifacts
from leasehold.ports.channel import Channel, Sending
from leasehold.ports.clock import Clock, Threads
from leasehold.ports.documents import Committed, Documents, KnownRun, Snapshot
from leasehold.ports.event_bus import EventBus
from leasehold.ports.handler_runner import GateRunner, HandlerChecks, HandlerRunner
from leasehold.ports.sample_source import SampleSource
from leasehold.ports.task_queue import TaskQueue
from leasehold.ports.telemetry import NO_TELEMETRY, Telemetry
from leasehold.registry.channels import ChannelEntry
from leasehold.registry.dispatch import Isolation, StepDispatchEntry
from leasehold.registry.pipelines import Catalog
from leasehold.services.archive_run import archive_run, delete_calls
from leasehold.services.reporting import Facts, reports
from leasehold.services.told_children import Parts, follow_end, is_worth_asking, tell_children

# The overrides port: what people set for step types, as this process knows it.


class Overrides(Protocol):
    """The overrides of a store, at most 10 s old where they are refreshed.

    Transitions stay pure: they get what was read before them.
    """

    def refresh(self) -> None:
        """Read them, unless that was done less than 10 s ago; call it before what may dispatch.

        A store that does not answer is no failure: those that are known stay in force.
        """
        ...

    def find(self, step_type: str) -> StoredOverride | None:
        """Return that of a step type as it is known, by the store's time now; None: there is none.

        It does not read.
        """
        ...

    def budget(self, step_type: str) -> BudgetLimit | None:
        """Return the derived limit of a step type as it is known; None: there is none."""
        ...

    def read(self) -> Sequence[StoredOverride]:
        """Read them at once, and return all, by their ids.

        Raises:
            StoreUnavailableError: the store did not answer; those that are known stay in force.
        """
        ...


#: So long the store is asked to note an archive: the sweep does it as well.
_NOTED_WITHIN_S: Final = 5.0


@dataclass(slots=True)
class Retention:
    """How long ended runs are kept, and how far the last look at the old ones got.

    Args:
        after: they are purged so long after their end; None: never.
        not_before: when to look the next time, by this process's monotonic time.
        place: where that look begins; None: at the newest of the old runs.
        tidied_at: when the artifacts were tidied up the last time, by the same time.
    """

    after: timedelta | None = None
    not_before: float = -math.inf
    place: tuple[Any, str] | None = None
    tidied_at: float = -math.inf


@dataclass(slots=True)
class ScheduleClock:
    """The times at which this process looks at schedules again: an idle sweep reads none."""

    look_at: dict[str, datetime] = field(default_factory=dict)


@dataclass(slots=True)
class LineClock:
    """When this process looks at the lines of all limits again, and where that look begins.

    And likewise at what they keep, of which the idle part is deleted.

    Args:
        look_at: by the monotonic time.
        behind: the first line of the next look, by its name; the time of the last one was over.
        forget_at: when what is idle is deleted, by the same time; None: the process has just begun.
        forget_from: where that begins; None: at the first document.
    """

    look_at: float = -math.inf
    behind: str = ""
    forget_at: float | None = None
    forget_from: tuple[None, str] | None = None


class KnownBreaker(NamedTuple):
    """The breaker of a channel as it was read or written, and when, by the monotonic time."""

    breaker: Breaker
    monotonic: float


@dataclass(frozen=True, slots=True)
class Handlers:
    """The runner of the handlers of steps.

    Args:
        runners: what runs one, by the isolation of its step.
        gates: what asks a gate about an output.
        checks: what compares handlers and values with the models of each other.
        raise_interrupt: raises the Ctrl-C that cut an attempt of this thread short, if one did.
        isolation: that of every step, in place of what its entry says; None: as that says.
    """

    runners: Mapping[str, HandlerRunner[Attempt]]
    gates: GateRunner
    checks: HandlerChecks
    raise_interrupt: Callable[[], None]
    isolation: Isolation | None = None

    def isolation_of(self, step: StepDispatchEntry) -> Isolation:
        """Return where the handler of a step runs."""
        return self.isolation or step.isolation


@dataclass(frozen=True, slots=True)
class Channels:
    """What sends announcements.

    Args:
        open: opens what sends to a channel.
        is_variable_set: whether a variable of a channel is set, or the file that it may be in.
        send: sends an announcement within a time, whatever its channel does.
        breakers: what is known here of the channels that failed.
    """

    open: Callable[[ChannelEntry], Channel]
    is_variable_set: Callable[[str], bool]
    send: Sending
    breakers: dict[str, KnownBreaker] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Process:
    """This process, beside those that share its store.

    Args:
        holder: how leases name it.
        code_hash: a hash of the project's own sources as it read them at its start, the same in
            every process of one deploy; empty: they are not known here.
        may_continue: asked before a hand-off: may it take the next step's lease with it?
        in_request: whether it works in requests of a queue: the next step has to fit into what is
            left of one.
        is_gone: whether a process is known to live no more, whatever it noted.
        has_servers: whether servers look after the runs of the store, as with a queue within each
            process; functions come when they are called.
        clock_step: returns a step of the machine's clock within the last minute, where that is the
            store's time; None: there was none, or the store has time of its own.
        asked_for: when it was last noted here that a remote step was asked for, by its type.
    """

    holder: str
    code_hash: str = ""
    may_continue: Callable[[], bool] = lambda: True
    in_request: bool = False
    is_gone: Callable[[str], bool] = lambda _: False
    has_servers: bool = False
    clock_step: Callable[[], ClockStep | None] = lambda: None
    asked_for: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Listeners:
    """The receivers of the events of an engine.

    Args:
        observe: given each change whose commit stands; for displays and logs.
        report: given each event that people analyse, as facts for a structured log.
        log: given a line that a person should look at.
    """

    observe: Callable[[Change], None]
    report: Callable[[Facts], object]
    log: Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Engine:
    """The ports and tables of one bundle, wired by bootstrap.

    Args:
        documents, tasks, events, artifacts, clock: what it works on.
        leases: renews those of the attempts that run here.
        catalog: what can be run.
        rules: what transitions need to know; those that may dispatch get `dispatch_rules()`.
        overrides: what people set for steps, which the rules look up as it is known here.
        retention: how long ended runs are kept.
        schedules: when their next times are, as far as it is known here.
        lines: when the sweep looks at those that wait for a limit.
        telemetry: hears of the work, where that is switched on.
        budgets: how the limits of steps are derived, where a step does not say.
        shares: the turns of rates that this process has taken, by the name of their line.
        samples: knows what attempts took; None: the ledger of the store does.
        given_items: the documents of items that lanes here were given last.
        link_secrets: that sign links for people, see `domain/signal_link.py`; none: there are none.
    """

    documents: Documents
    tasks: TaskQueue
    events: EventBus
    artifacts: Artifacts
    clock: Clock
    leases: LeaseKeeper
    catalog: Catalog
    rules: Rules
    overrides: Overrides
    handlers: Handlers
    channels: Channels
    process: Process
    threads: Threads
    listeners: Listeners
    retention: Retention = field(default_factory=Retention)
    schedules: ScheduleClock = field(default_factory=ScheduleClock)
    lines: LineClock = field(default_factory=LineClock)
    telemetry: Telemetry = NO_TELEMETRY
    budgets: BudgetSettings = field(default_factory=BudgetSettings)
    samples: SampleSource | None = None
    shares: dict[str, Any] = field(default_factory=dict)
    given_items: dict[Ref, GivenItems] = field(default_factory=dict)  # as lanes have read them
    link_secrets: tuple[str, ...] = field(default=(), repr=False)

    def dispatch_rules(self) -> Rules:
        """Return the rules for a transition that may dispatch: the overrides are at most 10 s old.

        It may read the store. Its answer is for the commit that follows, and not to be kept.
        """
        self.overrides.refresh()
        return self.rules

    def strategy_of(self, step: StepDispatchEntry) -> Strategy:
        """Return how the limits of a step are chosen: as it says, or as the settings do."""
        return Strategy(step.limit_strategy or self.budgets.strategy)

    @property
    def derives_budgets(self) -> bool:
        """Whether the limits of any step are derived, or proposed."""
        return any(self.strategy_of(step) is not Strategy.FIXED for step in self.catalog.steps)

    def commit(
        self,
        run_id: str,
        transition: Transition,
        *,
        known: KnownRun | None = None,
        in_transaction: bool = False,
        within: float | None = None,
    ) -> Committed[Change]:
        """Apply the transition in one commit; `publish_owed` is the caller's to call.

        Args:
            run_id: the run.
            transition: what is to become of it.
            known: decide on this, without reading, and write only if it has not changed since.
            in_transaction: for a lease; see `Documents.transact`.
            within: seconds after which to give up.

        Raises:
            VersionConflictError: another process changed what was `known`; nothing was written.
            Everything that `change_run` raises.
        """
        if known is None:
            ref, snapshot = run_ref(run_id), None
            decide = on_run(run_id, partial(_after_step, self, transition))
        else:
            ref, snapshot = known.snapshot.ref, known.snapshot
            decide = _on_known(self, known.manifest, transition)
        return self.documents.transact(
            ref, decide, if_version=snapshot, in_transaction=in_transaction, within=within
        )

    def publish_or_leave(self, change: Change) -> Change:
        """Do as `publish_owed`; what cannot be carried out now is left to the sweep.

        For requests of people: to fail would be wrong, as the request given again would be refused,
        or done twice.
        """
        try:
            return publish_owed(self, change)
        except StoreUnavailableError as error:
            run_id = (change.created or change.manifest).run_id
            problem = (
                f"run {run_id} is recorded; its task is owed and the sweep creates it: {error}"
            )
            self.listeners.log(problem)
            return change


def change_run(
    engine: Engine, run_id: str, transition: Transition, *, in_transaction: bool = False
) -> Change:
    """Apply the transition to the run in one commit, and publish what it owes.

    Raises:
        UnknownRunError, and what the transition raises: nothing was written.
        StoreUnavailableError: it is not known to be committed, or what it owes is not published:
            the manifest owes it still.
    """
    committed = engine.commit(run_id, transition, in_transaction=in_transaction)
    return publish_owed(engine, committed.answer, committed.snapshot)


def create_run(
    engine: Engine,
    run_id: str,
    start: Callable[[Manifest | None, datetime], Change],
    *,
    is_new: bool,
) -> Committed[Change]:
    """Commit the start of a run, as `commit` does a transition; None: no run has that id yet.

    Args:
        engine: the parts.
        run_id: the run.
        start: what is to become of it.
        is_new: no run is expected to have that id; see `Documents.transact`.
    """
    return engine.documents.transact(run_ref(run_id), on_manifest(run_id, start), is_new=is_new)


def find_run(engine: Engine, run_id: str) -> KnownRun:
    """Read the run, or raise UnknownRunError; not every store can be asked for any id."""
    found = engine.documents.get(run_ref(run_id)) if is_run_id(run_id) else None
    run = None if found is None else manifest_of(run_id, found.document)
    if found is None or run is None or run.purged_at is not None:
        raise UnknownRunError(run_id=run_id[:MAX_RUN_ID_CHARS])
    return KnownRun(_still_leased(engine, run, found.read_at), found)


def publish_owed(engine: Engine, change: Change, snapshot: Snapshot | None = None) -> Change:
    """Announce a committed change, and carry out what it owes.

    Args:
        engine: the parts.
        change: the change.
        snapshot: the document of its run, if it is known: it need not be read again then.

    Raises:
        StoreUnavailableError: something could not be carried out; it is owed still.
    """
    announce(engine, change)
    if owed := change.owed:
        known = None if snapshot is None else KnownRun(change.manifest, snapshot)
        publish(engine, owed, known)
    return change


def announce(engine: Engine, change: Change) -> None:
    """Give a committed change to those who watch, to telemetry and to the log."""
    engine.listeners.observe(change)
    if engine.telemetry is not NO_TELEMETRY:
        engine.telemetry.changed(change)
    if change.events:
        for facts in reports(change):
            engine.listeners.report(facts)


def publish(engine: Engine, effects: Iterable[Effect], known: KnownRun | None = None) -> None:
    """Carry out effects that are owed, kind by kind; what was carried out has no effect again.

    Args:
        engine: the parts.
        effects: what is owed.
        known: the run that owes them, if it is known as it is stored.
    """
    by_kind: dict[type[Effect], list[Any]] = {}
    for effect in effects:
        by_kind.setdefault(type(effect), []).append(effect)
    for kind, carry_out in CARRIERS.items():
        if owed := by_kind.get(kind):
            carry_out(engine, owed)
    for ended in by_kind.get(Archive, ()):
        archive(engine, ended, known)


def archive(engine: Engine, owed: Archive, known: KnownRun | None = None) -> bool:
    """Archive an ended run, and return whether that is done; if not, the sweep does it."""
    return archive_run(
        owed,
        engine.artifacts,
        engine.documents,
        rules=engine.rules,
        threads=engine.threads,
        log=engine.listeners.log,
        note=partial(_note_archive, engine, owed.run_id, known),
    )


def _create_tasks(engine: Engine, tasks: Sequence[Task]) -> None:
    for task in tasks:
        engine.tasks.create(task)


def _publish_messages(engine: Engine, messages: Sequence[EventMessage]) -> None:
    """Publish messages, all at once.

    Nothing that goes wrong with it is passed on: the commit stands, each delivery has its own
    alarm, and a caller that got an error would only repeat finished work.
    """
    try:
        engine.events.publish(messages)
    except Exception as error:  # noqa: BLE001 - also a mistake in an adapter costs no hand-off
        due = ", ".join(message.delivery.delivery_id for message in messages)
        engine.listeners.log(f"due, and published by the sweep: {due}: {error}")


def _delete_folders(engine: Engine, deletions: Sequence[Deletion]) -> None:
    """Delete temporary files; those that cannot be deleted now are still owed."""
    for deletion in deletions:
        if not engine.threads.errand(partial(_delete_now, engine, deletion)):
            problem = "the artifacts store has not answered yet"
            engine.listeners.log(
                f"temporary files of run {deletion.run_id} are deleted later: {problem}"
            )


def _delete_now(engine: Engine, deletion: Deletion) -> None:
    run_id = deletion.run_id
    try:
        for folder in deletion.folders:
            with suppress(ArtifactNameError):  # behind a link nothing is the run's, now or later
                engine.artifacts.delete(folder)
        for prefix in deletion.calls:
            delete_calls(engine.documents, run_id, prefix)
    except LeaseholdError as error:
        engine.listeners.log(f"temporary files of run {run_id} are deleted later: {error}")


def _tell_children(engine: Engine, tellings: Sequence[Telling]) -> None:
    for telling in tellings:
        tell_children(_parts(engine), telling, partial(publish_owed, engine))


def _parts(engine: Engine) -> Parts:
    return Parts(engine.documents, engine.clock.new_id, engine.dispatch_rules, engine.commit)


def _follow_ends(engine: Engine, ends: Sequence[ChildEnd]) -> None:
    """Have lanes that are through take items of others, or ask the parents of ended children.

    What fails is left to the alarm of the parent: a caller that got an error would only repeat
    finished work.
    """
    for end in ends:
        try:
            taken = follow_end(_parts(engine), end)
            if taken is not None and taken.created is not None:
                announce(engine, taken)
                publish(engine, owed_effects(taken.created))
            elif is_worth_asking(_parts(engine), end.child):
                engine.tasks.create(end.question)
        except LeaseholdError as error:
            line = f"the parent of run {end.child.run_id} is asked by its alarm: {error}"
            engine.listeners.log(line)


def _note_archive(
    engine: Engine, run_id: str, known: KnownRun | None, transition: Transition
) -> Change:
    note = partial(engine.commit, run_id, transition, within=_NOTED_WITHIN_S)
    try:
        change = note(known=known).answer
    except VersionConflictError:  # a person recreated it meanwhile, or another worker was faster
        change = note().answer
    announce(engine, change)
    return change


#: Who carries out each kind of effect that a change can owe, all of a kind at once; in this order:
#: tasks first, as a run waits for them. `archive` does what comes last.
CARRIERS: Final[Mapping[type, Callable[[Engine, Any], None]]] = {
    Task: _create_tasks,
    EventMessage: _publish_messages,
    Deletion: _delete_folders,
    Telling: _tell_children,
    ChildEnd: _follow_ends,
}


def _on_known(engine: Engine, manifest: Manifest, transition: Transition) -> DecideDocument[Change]:
    """Return the transition as a store calls it; what is stored is the manifest that is known."""
    return lambda _, now: as_write(transition(_still_leased(engine, manifest, now), now))


def _after_step(
    engine: Engine, transition: Transition, manifest: Manifest, now: datetime
) -> Change:
    """Decide on a run whose lease has no other times because the machine's clock was set."""
    return transition(_still_leased(engine, manifest, now), now)


def _still_leased(engine: Engine, manifest: Manifest, now: datetime) -> Manifest:
    """Return the run, with its lease by the clock as it is now if that was set just now.

    A renewal after a clock was set back would hide that: it was heard of now, and its lease would
    run on for as long as the clock went back.
    """
    lease = manifest.position.lease
    if (
        lease is None
        or (manifest.position.heartbeat_at or lease.acquired_at) <= now < lease.expires_at
    ):
        return manifest
    step = engine.process.clock_step()
    return manifest if step is None else after_step(manifest, now, step)
