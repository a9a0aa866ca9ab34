"""Settings and catalog in, a wired engine out."""

# ruff: noqa: PLC0415 - as said

from __future__ import annotations

import functools
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from leasehold.adapters.channels import ChannelOpener
from leasehold.adapters.clock import ClockSteps, SystemClock
from leasehold.adapters.factory import open_samples
from leasehold.adapters.in_process_events import InProcessEvents
from leasehold.attempt.keeper import LeaseKeeper
from leasehold.attempt.outage import pause
from leasehold.attempt.values import load
from leasehold.bootstrap.catalog import check_home, load_catalog
from leasehold.bootstrap.connections import Around, Purpose, connect
from leasehold.bounded_calls import BoundedCalls, side_by_side
from leasehold.budgets.proposal import BudgetSettings
from leasehold.domain.change import Change
from leasehold.domain.event_message import EventMessage
from leasehold.domain.signal_link import PublicUrl
from leasehold.domain.timestamps import ClockStep
from leasehold.errors import MissingExtraError, SettingError
from leasehold.frozen import dataclass
from leasehold.logs.attempt import (
    EVENT_FACTS,
    EVENTS_LOG,
    EventFacts,
    name_attempts_in_records,
    without_repeats,
)
from leasehold.ports.artifacts import Artifacts
from leasehold.ports.clock import Clock, Threads
from leasehold.ports.documents import Documents
from leasehold.ports.event_bus import EventBus
from leasehold.ports.handler_runner import GateRunner, HandlerChecks, HandlerRunner
from leasehold.ports.task_queue import TaskQueue
from leasehold.ports.telemetry import NO_TELEMETRY, Telemetry
from leasehold.registry.channels import ChannelEntry
from leasehold.registry.dispatch import REMOTE, Isolation
from leasehold.registry.effective_settings import goes_by_budgets, rules_of
from leasehold.registry.extras import require_extra
from leasehold.registry.pipelines import Catalog
from leasehold.registry.settings import arguments_of, check_artifacts, check_endpoint, read_settings
from leasehold.services.engine import (
    Channels,
    Engine,
    Handlers,
    Listeners,
    Process,
    Retention,
)
from leasehold.services.reporting import ENDS, Facts
from leasehold.worker.bounded_sends import BoundedSends
from leasehold.worker.known_overrides import KnownOverrides
from leasehold.worker.process_runner import ProcessRunner
from leasehold.worker.sandbox.forking.project_sources import NO_SOURCES, ProjectSources
from leasehold.worker.stopping.holder import holder_name, host_name, is_gone
from leasehold.worker.stopping.system_signals import Interrupts
from leasehold.worker.stopping.thread_stacks import stack_of

# Who hears of what an engine does; by default the log.


LOG: Final = logging.getLogger("leasehold")
#: So long the end of a process waits for its telemetry to be sent.
TELEMETRY_FLUSH_S: Final = 2.0
_EVENTS: Final = logging.getLogger(EVENTS_LOG)


def log_report(facts: Facts) -> None:
    """Log one line of JSON, which Cloud Logging takes as a structured entry; a terminal a sentence.

    Its severity stands in the line. Python writes no line below WARNING unless it is set up to, as
    in servers: a command that cancels a run need not say that its attempt ended with it.
    """
    level = logging.getLevelNamesMapping()[facts["severity"]]
    least = logging.INFO if facts["event"] in ENDS else logging.WARNING
    line = json.dumps(facts, ensure_ascii=False)
    _EVENTS.log(max(level, least), line, extra={EVENT_FACTS: EventFacts(facts)})


@dataclass(frozen=True, slots=True)
class Hooks:
    """The receivers of the events of an engine.

    Args:
        observe: given each change whose commit stands.
        may_continue: whether a worker that hands a step off may take the next one at once.
        in_request: whether it works in requests of a queue; the next step has to fit into one.
        warn: given each override and threshold that is refused, once.
        report: given dead letters, refused outputs and announcements to the log, as facts.
    """

    observe: Callable[[Change], None] = lambda _: None
    may_continue: Callable[[], bool] = lambda: False
    in_request: bool = False
    warn: Callable[[str], object] = LOG.warning
    report: Callable[[Facts], object] = log_report


# The parts of an engine that call user code, or look at it: each is imported by its first call.
#
# A function that sweeps, answers or announces has none to call, and a worker has its handlers
# called in their own processes.


if TYPE_CHECKING:
    from leasehold.attempt.attempt import Attempt
    from leasehold.domain.kept_checkpoint import Load
    from leasehold.worker.handler.channel_senders import SenderFunction


class _Late:
    """Stands in the place of a part, which is made when a method of it is first used."""

    def __init__(self, make: Callable[[], object]) -> None:
        self._made = functools.cache(make)

    def __getattr__(self, name: str) -> Any:
        method = self.__dict__[name] = getattr(self._made(), name)
        return method


def inline_runner(interrupts: Interrupts) -> HandlerRunner[Attempt]:
    """Return what calls a handler in the worker's own thread."""

    def make() -> object:
        from leasehold.worker.handler.call import InlineRunner

        return InlineRunner(interrupts)

    return cast(HandlerRunner[Any], _Late(make))


def gate_runner(artifacts: Artifacts, load: Load, interrupts: Interrupts) -> GateRunner:
    """Return what calls a gate."""

    def make() -> object:
        from leasehold.worker.handler.gates import InlineGateRunner

        return InlineGateRunner(artifacts, load, interrupts)

    return cast(GateRunner, _Late(make))


def handler_checks() -> HandlerChecks:
    """Return what knows the handlers' models."""

    def make() -> object:
        from leasehold.worker.handler.checks import ImportedHandlerChecks

        return ImportedHandlerChecks()

    return cast(HandlerChecks, _Late(make))


def sender_of(entry: ChannelEntry) -> SenderFunction:
    """Return the function of a channel, as `worker/handler/channel_senders.py` finds it."""
    from leasehold.worker.handler import channel_senders

    return channel_senders.sender_of(entry)


@dataclass(frozen=True, slots=True)
class Bundle:
    """A wired engine, what it runs, and how it is closed."""

    engine: Engine
    sources: ProjectSources
    processes: ProcessRunner
    events: EventBus
    threads: tuple[BoundedCalls | BoundedSends, ...]

    def deliver_due(self) -> int:
        """Deliver what is due of a bus within this process; return how many messages that were."""
        return self.events.deliver_due() if isinstance(self.events, InProcessEvents) else 0

    def close(self, *, is_announced: bool = True, telemetry_s: float = TELEMETRY_FLUSH_S) -> None:
        """End all processes, stop renewing leases and close the store; no attempt may run.

        Args:
            is_announced: False where something is still being announced, and needs the store to
                record it: that stays open until the process ends.
            telemetry_s: so long the telemetry may take that is not sent yet.
        """
        self.processes.close()
        self.engine.leases.close()
        if is_announced and self.engine.events.close():
            self.engine.documents.close()
        for threads in self.threads:
            threads.close()
        self.engine.telemetry.close(telemetry_s)  # last: it may wait


def boot(
    environ: Mapping[str, str] | None = None,
    *,
    catalog: Catalog | None = None,
    sources: ProjectSources | None = None,
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
        sources: those of the catalog, where they have been read.
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
    name = settings["LEASEHOLD_CATALOG"]
    catalog = catalog or load_catalog(name)
    if tasks is None and purpose in (Purpose.RUN, Purpose.CHANGE):
        check_home(settings, catalog)
    sources = sources or _sources(catalog, name, purpose)
    clock = clock or SystemClock()
    log = without_repeats(LOG.warning, clock.monotonic)
    connections = connect(
        settings,
        environ,
        clock,
        log,
        purpose=purpose,
        around=around,
        documents=documents,
        tasks=tasks,
        by_hand=announces_by_hand,
    )
    artifacts, bus = connections.artifacts, connections.bus
    budgets = BudgetSettings(**arguments_of(BudgetSettings, settings))
    overrides = KnownOverrides(
        connections.documents, clock, log, reads_budgets=goes_by_budgets(catalog, budgets)
    )
    rules = rules_of(
        settings, catalog, environ, overrides.find, hooks.warn, find_budget=overrides.budget
    )
    rules = replace(rules, code_hash=sources.code_hash, pauses=overrides.pauses)
    interrupts, load_value = Interrupts(), partial(load, artifacts)
    inline = inline_runner(interrupts)
    everywhere = isolation or settings["LEASEHOLD_ISOLATION"]
    process = ProcessRunner(
        interrupts,
        _in_processes(catalog, everywhere),
        sources=sources.files,
        **arguments_of(ProcessRunner, settings),
    )
    errands, sends, host = BoundedCalls("errand"), BoundedSends(), host_name()
    channels = _channels(settings, environ, clock, hooks)
    holder = holder_name(host, os.getpid())
    engine = Engine(
        documents=connections.documents,
        tasks=connections.tasks,
        events=connections.events,
        artifacts=artifacts,
        clock=clock,
        leases=LeaseKeeper(clock, rules.lease_ttl, stack_of),
        catalog=catalog,
        rules=rules,
        overrides=overrides,
        handlers=Handlers(
            runners={"inline": inline, "process": process},
            gates=gate_runner(artifacts, load_value, interrupts),
            checks=handler_checks(),
            raise_interrupt=interrupts.raise_interrupt,
            isolation=everywhere,
        ),
        channels=Channels(around.open_channel or channels, channels.is_variable_set, sends.run),
        process=Process(
            holder,
            sources.code_hash,
            may_continue=hooks.may_continue,
            in_request=hooks.in_request,
            is_gone=partial(is_gone, host=host),
            has_servers=settings["LEASEHOLD_TASKS"] == "in-process",
            clock_step=_clock_step(settings["LEASEHOLD_STORE"], clock),
        ),
        threads=Threads(side_by_side, errands.run, partial(pause, clock)),
        listeners=Listeners(hooks.observe, hooks.report, log),
        retention=Retention(**arguments_of(Retention, settings)),
        telemetry=_telemetry(
            settings,
            environ,
            catalog=catalog,
            holder=holder,
            clock=clock,
            log=log,
            purpose=purpose,
        ),
        budgets=budgets,
        samples=open_samples(settings, clock, budgets.window),
        link_secrets=settings["LEASEHOLD_LINK_SECRET"],
    )
    if isinstance(bus, InProcessEvents):
        bus.deliver_by(partial(_deliver, engine))
    return Bundle(engine, sources, process, bus, (errands, sends))


def _in_processes(catalog: Catalog, everywhere: Isolation | None) -> list[str]:
    """Return the handlers that run in processes of their own: no other is imported there."""
    return [
        step.handler
        for step in catalog.steps
        if (everywhere or step.isolation) == "process" and step.handler != REMOTE
    ]


def _clock_step(store: str, clock: Clock) -> Callable[[], ClockStep | None]:
    """Return what tells of steps of the clock, where the store goes by it."""
    return ClockSteps(clock).newest if store.startswith("sqlite:") else lambda: None


def _sources(catalog: Catalog, name: str, purpose: Purpose) -> ProjectSources:
    """Return the sources to run; who only looks needs none."""
    if purpose in (Purpose.READ, Purpose.PREVIEW):
        return NO_SOURCES
    return ProjectSources.of(catalog, name if name in sys.modules else "")


def _channels(
    settings: Mapping[str, Any], environ: Mapping[str, str], clock: Clock, hooks: Hooks
) -> ChannelOpener:
    return ChannelOpener(
        environ,
        clock,
        report=hooks.report,
        find_sender=sender_of,
        base_url=PublicUrl(settings["LEASEHOLD_PUBLIC_URL"], settings["LEASEHOLD_LINK_SECRET"]),
        **arguments_of(ChannelOpener, settings),
    )


def _telemetry(
    settings: Mapping[str, Any],
    environ: Mapping[str, str],
    *,
    catalog: Catalog,
    holder: str,
    clock: Clock,
    log: Callable[[str], object],
    purpose: Purpose,
) -> Telemetry:
    """Return what hears of the work; the SDK is imported only where it is switched on."""
    endpoint = settings["OTEL_EXPORTER_OTLP_ENDPOINT"]
    if not endpoint or purpose in (Purpose.READ, Purpose.PREVIEW):
        return NO_TELEMETRY
    try:
        check_endpoint(endpoint)
        require_extra("otel", "OTEL_EXPORTER_OTLP_ENDPOINT")
    except (SettingError, MissingExtraError) as error:  # a platform sets it for all its programs
        log(f"there is no telemetry: {error}")
        return NO_TELEMETRY
    from leasehold.telemetry.observed import open_telemetry

    try:
        return open_telemetry(
            endpoint,
            environ,
            steps=catalog.steps,
            holder=holder,
            clock=clock,
            log=log,
            **arguments_of(open_telemetry, settings),
        )
    except Exception as error:  # noqa: BLE001 - as the SDK refuses variables of its own
        log(f"there is no telemetry: its SDK raised {type(error).__name__}: {error}")
        return NO_TELEMETRY


def _deliver(engine: Engine, message: EventMessage) -> datetime | None:
    """Deliver a message of this process; a cold start does not import what few calls need."""
    from leasehold.services.deliver_notification import deliver_message

    return deliver_message(engine, message)
