"""Settings and catalog in, a wired engine out: the only file outside adapters/ that names one."""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Final

from leasehold.adapters.channels import ChannelOpener
from leasehold.adapters.clock import SystemClock
from leasehold.adapters.factory import (
    open_artifacts,
    open_documents,
    open_events,
    open_tasks,
)
from leasehold.adapters.in_process_events import InProcessEvents, UndeliveredEvents
from leasehold.adapters.in_process_tasks import InProcessTasks, UndeliveredTasks
from leasehold.adapters.null_stores import NullArtifacts, NullDocuments
from leasehold.domain.change import Change
from leasehold.domain.event_message import EventMessage
from leasehold.errors import (
    CatalogError,
    LeaseholdError,
    MissingCatalogError,
    SettingError,
    StoreUnavailableError,
    UnsetSettingError,
)
from leasehold.logs.attempt import name_attempts_in_records
from leasehold.logs.for_cloud import EVENTS_LOG
from leasehold.logs.for_people import EVENT_FACTS
from leasehold.ports.artifacts import Artifacts
from leasehold.ports.channel import Channel
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Documents
from leasehold.ports.event_bus import EventBus
from leasehold.ports.task_queue import PulledTaskQueue, TaskQueue
from leasehold.registry.channels import NO_CHANNELS, ChannelEntry
from leasehold.registry.dispatch import Isolation
from leasehold.registry.gates import NO_GATES
from leasehold.registry.half_set import check_artifacts
from leasehold.registry.pipelines import Catalog
from leasehold.registry.registry import Registry
from leasehold.registry.rules import rules_of
from leasehold.registry.settings import SETTINGS, read_settings
from leasehold.services.engine import Engine, Retention
from leasehold.services.kept_values import load
from leasehold.services.reporting import ENDS, Facts, without_repeats
from leasehold.worker.bounded_events import BoundedEvents
from leasehold.worker.bounded_sends import BoundedSends
from leasehold.worker.channel_senders import sender_of
from leasehold.worker.errands import Errands
from leasehold.worker.gates import InlineGateRunner
from leasehold.worker.handler_checks import ImportedHandlerChecks
from leasehold.worker.holder import holder_name, host_name
from leasehold.worker.inline_runner import InlineRunner
from leasehold.worker.interrupts import Interrupts
from leasehold.worker.known_overrides import KnownOverrides
from leasehold.worker.lease_keeper import ThreadedLeaseKeeper
from leasehold.worker.pauses import pause
from leasehold.worker.process_runner import ProcessRunner
from leasehold.worker.side_by_side import side_by_side

_LOG: Final = logging.getLogger("leasehold")
_EVENTS: Final = logging.getLogger(EVENTS_LOG)

#: Buses that end with their process, and whose `publish` never waits.
_WITHIN: Final = (InProcessEvents, UndeliveredEvents)


@dataclass(frozen=True, slots=True)
class Bundle:
    """A wired engine, and how it is closed."""

    engine: Engine
    processes: ProcessRunner
    events: EventBus

    def deliver_due(self) -> int:
        """Deliver what is due of a bus within this process; return how many messages that were."""
        return self.events.deliver_due() if isinstance(self.events, InProcessEvents) else 0

    def close(self, *, is_announced: bool = True) -> None:
        """End all processes, stop renewing leases and close the store; no attempt may run.

        Args:
            is_announced: False where something is still being announced, and needs the store to
                record it: that stays open until the process ends.
        """
        self.processes.close()
        self.engine.leases.close()
        if is_announced and self.events.close():
            self.engine.documents.close()


def log_report(facts: Facts) -> None:
    """Log one line of JSON, which Cloud Logging takes as a structured entry; a terminal a sentence.

    Its severity stands in the line. Python writes no line below WARNING unless it is set up to, as
    in servers: a command that cancels a run need not say that its attempt ended with it.
    """
    level = logging.getLevelNamesMapping()[facts["severity"]]
    least = logging.INFO if facts["event"] in ENDS else logging.WARNING
    line = json.dumps(facts, ensure_ascii=False)
    _EVENTS.log(max(level, least), line, extra={EVENT_FACTS: facts})


class Purpose(Enum):
    """What an engine is opened for."""

    RUN = "run"  # runs, and whatever else the settings describe
    READ = "read"  # a command that only looks
    CHANGE = "change"  # a command that runs nothing: a queue in this process delivers nothing
    PREVIEW = "preview"  # on stores that hold nothing and keep nothing, in place of the settings'


@dataclass(frozen=True, slots=True)
class Hooks:
    """Who hears of what an engine does.

    Args:
        observe: given each change whose commit stands.
        may_continue: whether a worker that hands a step off may take the next one at once.
        warn: given each override and threshold that is refused, once.
        report: given dead letters, refused outputs and announcements to the log, as facts.
    """

    observe: Callable[[Change], None] = lambda _: None
    may_continue: Callable[[], bool] = lambda: False
    warn: Callable[[str], object] = _LOG.warning
    report: Callable[[Facts], object] = log_report


@dataclass(frozen=True, slots=True)
class Around:
    """What stands between an engine and what is outside of it, for tests; by default nothing."""

    documents: Callable[[Documents], Documents] = lambda store: store
    artifacts: Callable[[Artifacts], Artifacts] = lambda store: store
    events: Callable[[EventBus], EventBus] = lambda bus: bus
    open_channel: Callable[[ChannelEntry], Channel] | None = None  # None: what really sends


def boot(
    environ: Mapping[str, str] | None = None,
    *,
    catalog: Catalog | None = None,
    clock: Clock | None = None,
    hooks: Hooks = Hooks(),
    documents: Documents | None = None,
    tasks: TaskQueue | None = None,
    purpose: Purpose = Purpose.RUN,
    around: Around = Around(),
    isolation: Isolation | None = None,
    announces_by_hand: bool = False,
) -> Bundle:
    """Wire the engine that the environment describes; whatever else is given has a default.

    Args:
        environ: the settings; read once, but for the limits of steps, read at each dispatch.
            None: those of the process.
        catalog: what to run, in place of LEASEHOLD_CATALOG.
        clock: in place of the machine's.
        hooks: who hears of what the engine does.
        documents: in place of the store of LEASEHOLD_STORE.
        tasks: in place of the queue of LEASEHOLD_TASKS.
        purpose: what the engine is for.
        around: what stands between the engine and what is outside of it.
        isolation: where all handlers run, in place of LEASEHOLD_ISOLATION.
        announces_by_hand: a bus within this process delivers by `Bundle.deliver_due` alone.

    Raises:
        SettingError, CatalogError, and the errors of the registries: nothing was written.
        StoreVersionError: a newer Leasehold wrote the store.
    """
    name_attempts_in_records()
    environ = os.environ if environ is None else environ
    settings = read_settings(environ, hooks.warn)
    if purpose in (Purpose.RUN, Purpose.CHANGE):
        check_artifacts(settings)
    catalog = catalog or load_catalog(settings["LEASEHOLD_CATALOG"])
    clock = clock or SystemClock()
    if tasks is None:
        tasks = _open_queue(settings, clock, purpose)  # first: to open it makes nothing
    log = without_repeats(_LOG.warning, clock)
    events = _open_events(settings, clock, log, purpose, by_hand=announces_by_hand)
    bus = around.events(events)
    artifacts: Artifacts
    if purpose is Purpose.PREVIEW:
        documents, artifacts = NullDocuments(clock), NullArtifacts()
    else:
        documents, artifacts = _open_stores(settings, environ, clock, documents)
    documents, artifacts = around.documents(documents), around.artifacts(artifacts)
    overrides = KnownOverrides(documents, clock, log)
    rules = rules_of(settings, catalog, environ, overrides.find, hooks.warn)
    interrupts, load_value = Interrupts(), partial(load, artifacts)
    inline = InlineRunner(artifacts, load_value, clock, interrupts)
    handlers = [step.handler for step in catalog.steps]
    process = ProcessRunner(artifacts, load_value, clock, interrupts, handlers)
    channels = ChannelOpener(
        environ,
        clock,
        report=hooks.report,
        find_sender=sender_of,
        allow_local=settings["LEASEHOLD_ALLOW_LOCAL_CHANNELS"],
        base_url=settings["LEASEHOLD_PUBLIC_URL"],
    )
    engine = Engine(
        documents=documents,
        tasks=tasks,
        events=bus if isinstance(events, _WITHIN) else BoundedEvents(bus, clock),
        artifacts=artifacts,
        leases=ThreadedLeaseKeeper(clock, rules.lease_ttl),
        runners={"inline": inline, "process": process},
        gates=InlineGateRunner(artifacts, load_value, interrupts),
        checks=ImportedHandlerChecks(),
        clock=clock,
        catalog=catalog,
        open_channel=around.open_channel or channels,
        is_variable_set=channels.is_variable_set,
        rules=rules,
        overrides=overrides,
        holder=holder_name(host_name(), os.getpid()),
        side_by_side=side_by_side,
        errand=Errands().run,
        send=BoundedSends().run,
        pause=partial(pause, clock),
        raise_interrupt=interrupts.raise_interrupt,
        observe=hooks.observe,
        may_continue=hooks.may_continue,
        log=log,
        report=hooks.report,
        retention=Retention(settings["LEASEHOLD_RETENTION_DAYS"]),
        isolation=isolation or settings["LEASEHOLD_ISOLATION"],
    )
    if isinstance(events, InProcessEvents):
        events.deliver_by(partial(_deliver, engine))
    return Bundle(engine, process, events)


def system_clock() -> Clock:
    """Return the machine's clock."""
    return SystemClock()


def folder_artifacts(folder: Path, clock: Clock) -> Artifacts:
    """Return the artifacts that lie in a folder, as those of a `file://` address do."""
    return open_artifacts(f"file://{folder}", clock)


def in_process_queue(clock: Clock) -> PulledTaskQueue:
    """Return a queue within this process, for whoever drives an engine by it."""
    return InProcessTasks(clock)


def delivers_tasks(engine: Engine) -> bool:
    """Return whether tasks that a command creates reach a worker once the command is over."""
    return not isinstance(engine.tasks, InProcessTasks)


def delivers_events(engine: Engine) -> bool:
    """Return whether messages that a command publishes reach who sends, once it is over."""
    return not isinstance(engine.events, _WITHIN)


def store_address(environ: Mapping[str, str] | None = None) -> str:
    """Return where the runs are.

    Args:
        environ: the settings; None: those of the process.
    """
    return str(read_settings(os.environ if environ is None else environ)["LEASEHOLD_STORE"])


def store_exists(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether there is a store to read, or something in its place that is in the way.

    Args:
        environ: the settings; None: those of the process.
    """
    address = store_address(environ)
    if not address.startswith("sqlite:"):
        return True
    path = Path(address.removeprefix("sqlite:///"))
    try:
        return path.exists() or any(parent.is_file() for parent in path.parents)
    except OSError:
        return True  # opening it says what is wrong


def load_catalog(name: str) -> Catalog:
    """Import the catalog; modules of the working folder can be named.

    Raises:
        MissingCatalogError: there is no such module.
        CatalogError: it cannot be imported, or it has no STEPS and PIPELINES.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(name)
    except LeaseholdError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            raise _missing_catalog(name, here) from error
        from leasehold.worker.failures import words_of_import  # noqa: PLC0415 - when it is needed

        problem = f"importing it raised {words_of_import(error)}"
        raise CatalogError(catalog=name, problem=problem) from error
    tables = {table: getattr(module, table, None) for table in ("STEPS", "PIPELINES")}
    for table, found in tables.items():
        if not isinstance(found, Registry):
            raise CatalogError(catalog=name, problem=f"it has no {table}, a Registry")
    further = {"GATES": NO_GATES, "CHANNELS": NO_CHANNELS}
    for table, without in further.items():
        tables[table] = getattr(module, table, without)
        if not isinstance(tables[table], Registry):
            raise CatalogError(catalog=name, problem=f"its {table} is not a Registry")
    return Catalog(*tables.values())  # type: ignore[arg-type] # checked above


def _missing_catalog(name: str, folder: str) -> MissingCatalogError:
    is_default = name == SETTINGS["LEASEHOLD_CATALOG"].default
    source = "the default of LEASEHOLD_CATALOG" if is_default else "LEASEHOLD_CATALOG"
    return MissingCatalogError(catalog=name, source=source, folder=folder)


def _open_queue(settings: Mapping[str, Any], clock: Clock, purpose: Purpose) -> TaskQueue:
    if purpose is Purpose.PREVIEW:
        return InProcessTasks(clock)
    if purpose is Purpose.CHANGE and settings["LEASEHOLD_TASKS"] == "in-process":
        return UndeliveredTasks(clock)  # what waits in such a queue is not to be known here
    return open_tasks(settings, clock)


def _open_events(
    settings: Mapping[str, Any],
    clock: Clock,
    log: Callable[[str], object],
    purpose: Purpose,
    *,
    by_hand: bool,
) -> EventBus:
    """Open the bus; a command that runs nothing delivers nothing either, unless it says so."""
    is_undelivered = settings["LEASEHOLD_EVENTS"] == "in-process" and not by_hand
    if purpose in (Purpose.READ, Purpose.PREVIEW) or (purpose is Purpose.CHANGE and is_undelivered):
        return UndeliveredEvents()
    return open_events(settings, clock, log, by_hand=by_hand)


def _deliver(engine: Engine, message: EventMessage) -> datetime | None:
    """Deliver a message of this process; a cold start does not import what few calls need."""
    from leasehold.services.deliver_message import deliver_message  # noqa: PLC0415 - as said

    return deliver_message(engine, message)


def _open_stores(
    settings: Mapping[str, Any],
    environ: Mapping[str, str],
    clock: Clock,
    documents: Documents | None,
) -> tuple[Documents, Artifacts]:
    """Open both stores, or raise which setting leads nowhere; then nothing was made."""
    name = "LEASEHOLD_ARTIFACTS"  # first: to open them makes nothing
    try:
        artifacts = open_artifacts(settings[name], clock)
        name = "LEASEHOLD_STORE"
        documents = documents or open_documents(settings[name], clock)
    except StoreUnavailableError as error:
        allowed, problem = f"{SETTINGS[name].allowed} that can be written", error.details["problem"]
        if name not in environ:
            problem = f"its default {settings[name]} cannot be used ({problem})"
            raise UnsetSettingError(name=name, problem=problem, allowed=allowed) from error
        allowed = f"{allowed} ({problem})"
        raise SettingError(name=name, value=settings[name], allowed=allowed) from error
    return documents, artifacts
