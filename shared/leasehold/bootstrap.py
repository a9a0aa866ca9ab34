"""Settings and catalog in, a wired engine out: the only file that names an adapter."""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.factory import open_artifacts, open_documents, open_tasks
from leasehold.adapters.in_process_tasks import InProcessTasks
from leasehold.adapters.null_stores import AbsentArtifacts, AbsentDocuments
from leasehold.domain.change import Change
from leasehold.domain.dispatch import Rules, StepSettings
from leasehold.domain.retry import Backoff
from leasehold.errors import CatalogError, LeaseholdError, SettingError, StoreUnavailableError
from leasehold.ports.artifacts import Artifacts
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Documents
from leasehold.ports.task_queue import TaskQueue
from leasehold.registry.effective_settings import effective_settings
from leasehold.registry.gates import NO_GATES
from leasehold.registry.pipelines import Catalog
from leasehold.registry.registry import Registry
from leasehold.registry.settings import SETTINGS, read_settings
from leasehold.services.engine import Engine
from leasehold.services.reporting import Facts, without_repeats
from leasehold.worker.holder import holder_name, host_name
from leasehold.worker.inline import InlineRunner

_LOG: Final = logging.getLogger("leasehold")
_EVENTS: Final = logging.getLogger("leasehold.events")


@dataclass(frozen=True, slots=True)
class Bundle:
    """A wired engine, and its parts that somebody has to drive or close."""

    engine: Engine
    runner: InlineRunner

    def close(self) -> None:
        """Stop renewing leases and close the store; no attempt may run."""
        self.runner.heartbeat.close()
        self.engine.documents.close()


def log_report(facts: Facts) -> None:
    """Log one line of JSON, which Cloud Logging takes as a structured entry.

    Its severity stands in the line. Python writes no line below WARNING unless it is set up to.
    """
    level = logging.getLevelNamesMapping()[facts["severity"]]
    _EVENTS.log(max(level, logging.WARNING), json.dumps(facts, ensure_ascii=False))


def boot(
    environ: Mapping[str, str] | None = None,
    *,
    catalog: Catalog | None = None,
    clock: Clock | None = None,
    observe: Callable[[Change], None] = lambda _: None,
    may_continue: Callable[[], bool] = lambda: False,
    documents: Documents | None = None,
    tasks: TaskQueue | None = None,
    warn: Callable[[str], object] = _LOG.warning,
    report: Callable[[Facts], object] = log_report,
    absent: bool = False,
) -> Bundle:
    """Wire the engine that the environment describes.

    Args:
        environ: the settings; read once, but for the limits of steps, read at each dispatch.
            None: those of the process.
        catalog: what to run, in place of LEASEHOLD_CATALOG.
        clock: in place of the machine's.
        observe: told of each change.
        may_continue: whether a worker that hands a step off may take the next one at once.
        documents: in place of the store of LEASEHOLD_STORE.
        tasks: in place of the queue of LEASEHOLD_TASKS.
        warn: told once of each override and threshold that is refused.
        report: told of dead letters and refused outputs, as facts.
        absent: on stores that hold nothing and keep nothing, in place of those of the settings:
            to read what is not there yet without making it, and to preview a start.

    Raises:
        SettingError, CatalogError, and the errors of the registries: nothing was written.
        StoreVersionError: a newer Leasehold wrote the store.
    """
    environ = os.environ if environ is None else environ
    settings = read_settings(environ, warn)
    catalog = catalog or load_catalog(settings["LEASEHOLD_CATALOG"])
    clock = clock or SystemClock()
    rules = rules_of(settings, catalog, environ, warn)
    artifacts: Artifacts
    if absent:
        documents, artifacts = AbsentDocuments(clock), AbsentArtifacts()
    else:
        documents, artifacts = _open_stores(settings, clock, documents)
    if tasks is None:
        tasks = InProcessTasks(clock) if absent else open_tasks(settings, clock)
    runner = InlineRunner(documents=documents, artifacts=artifacts, rules=rules, clock=clock)
    engine = Engine(
        documents=documents,
        tasks=tasks,
        artifacts=artifacts,
        runner=runner,
        clock=clock,
        catalog=catalog,
        rules=rules,
        holder=holder_name(host_name(), os.getpid()),
        observe=observe,
        may_continue=may_continue,
        log=without_repeats(_LOG.warning, clock),
        report=report,
    )
    return Bundle(engine, runner)


def store_exists(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether there is a store to read, or something in its place that is in the way.

    Args:
        environ: the settings; None: those of the process.
    """
    address = read_settings(os.environ if environ is None else environ)["LEASEHOLD_STORE"]
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
        CatalogError: there is no such module, or it has no STEPS and PIPELINES.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(name)
    except LeaseholdError:
        raise
    except (Exception, SystemExit) as error:
        problem = f"importing it raised {type(error).__name__}: {error}".rstrip(" :.")
        raise CatalogError(catalog=name, problem=problem) from error
    tables = {table: getattr(module, table, None) for table in ("STEPS", "PIPELINES")}
    for table, found in tables.items():
        if not isinstance(found, Registry):
            raise CatalogError(catalog=name, problem=f"it has no {table}, a Registry")
    gates = getattr(module, "GATES", NO_GATES)
    if not isinstance(gates, Registry):
        raise CatalogError(catalog=name, problem="its GATES is no Registry")
    return Catalog(steps=tables["STEPS"], pipelines=tables["PIPELINES"], gates=gates)  # type: ignore[arg-type] # checked above


def rules_of(
    settings: Mapping[str, Any],
    catalog: Catalog,
    environ: Mapping[str, str],
    warn: Callable[[str], object],
) -> Rules:
    """Return what transitions need to know, with the limits of steps read at each dispatch."""
    ttl = timedelta(seconds=settings["PIPELINE_LEASE_TTL_S"])
    heartbeat = settings["PIPELINE_HEARTBEAT_S"]
    beat = None if heartbeat is None else timedelta(seconds=heartbeat)

    told: set[str] = set()

    def settings_for(step_type: str) -> StepSettings | None:
        entry = catalog.steps.get(step_type)
        if entry is None:
            return None
        settings_now = effective_settings(
            entry,
            environ,
            max_retries=settings["PIPELINE_MAX_RETRIES"],
            heartbeat=beat,
            longest_heartbeat=ttl / 3,
        )
        for sentence in settings_now.refused:
            if sentence not in told:
                told.add(sentence)
                warn(sentence)
        return settings_now

    return Rules(
        settings_for=settings_for,
        lease_ttl=ttl,
        grace=timedelta(seconds=settings["PIPELINE_DISPATCH_GRACE_S"]),
        max_interruptions=settings["PIPELINE_MAX_INTERRUPTIONS"],
        stuck_timeout=timedelta(milliseconds=settings["PIPELINE_STUCK_TIMEOUT_MS"]),
        recovery_window=timedelta(milliseconds=settings["PIPELINE_RECOVERY_WINDOW_MS"]),
        backoff=Backoff(
            minimum=timedelta(seconds=settings["PIPELINE_MIN_BACKOFF_S"]),
            maximum=timedelta(seconds=settings["PIPELINE_MAX_BACKOFF_S"]),
            doublings=settings["PIPELINE_MAX_DOUBLINGS"],
        ),
    )


def _open_stores(
    settings: Mapping[str, Any], clock: Clock, documents: Documents | None
) -> tuple[Documents, Artifacts]:
    """Open both stores, or say which setting leads nowhere; then nothing was made."""
    name = "LEASEHOLD_ARTIFACTS"  # first: to open them makes nothing
    try:
        artifacts = open_artifacts(settings[name], clock)
        name = "LEASEHOLD_STORE"
        documents = documents or open_documents(settings[name], clock)
    except StoreUnavailableError as error:
        allowed = f"{SETTINGS[name].allowed} that can be written ({error.details['problem']})"
        raise SettingError(name=name, value=settings[name], allowed=allowed) from error
    return documents, artifacts
