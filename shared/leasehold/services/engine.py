"""The parts that every story needs, and the two things every change is followed by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from leasehold.domain.change import Change
from leasehold.domain.dispatch import Rules
from leasehold.ports.artifacts import Artifacts
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Documents
from leasehold.ports.step_runner import StepRunner
from leasehold.ports.task_queue import TaskQueue
from leasehold.registry.pipelines import Catalog
from leasehold.services.reporting import Facts, reports


@dataclass(frozen=True, slots=True)
class Engine:
    """The ports and tables of one bundle, wired by bootstrap.

    Args:
        observe: told of each change whose commit stands; for displays and logs.
        holder: how leases name this worker.
        log: told in a line what a person should look at.
        report: told of each event that people analyse, as facts for a structured log.
        may_continue: asked before a hand-off: may this worker take the next step's lease with it?
    """

    documents: Documents
    tasks: TaskQueue
    artifacts: Artifacts
    runner: StepRunner[Any]
    clock: Clock
    catalog: Catalog
    rules: Rules
    holder: str
    observe: Callable[[Change], None]
    may_continue: Callable[[], bool]
    log: Callable[[str], object]
    report: Callable[[Facts], object]


def publish_owed(engine: Engine, change: Change) -> Change:
    """Tell of a committed change, and do what it owes.

    Raises:
        StoreUnavailableError: a task could not be created. It is owed still: the manifest says so.
    """
    tell(engine, change)
    create_owed(engine, change)
    return change


def tell(engine: Engine, change: Change) -> None:
    """Tell of a committed change those who watch, and the log."""
    engine.observe(change)
    for facts in reports(change):
        engine.report(facts)


def create_owed(engine: Engine, change: Change) -> None:
    """Create the tasks that a committed change owes; raises as `publish_owed`."""
    for task in change.owed:
        engine.tasks.create(task)
