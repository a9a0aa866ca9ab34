"""What the doctor looks at: the environment, its settings as far as they hold, and the catalog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from leasehold.doctor.finding import Finding, Kind
from leasehold.domain.deadlines import PLATFORM_DEADLINE
from leasehold.frozen import dataclass
from leasehold.registry.channels import ChannelEntry
from leasehold.registry.dispatch import StepDispatchEntry
from leasehold.registry.effective_settings import effective_settings
from leasehold.registry.function_table import FUNCTIONS
from leasehold.registry.functions import FunctionEntry, FunctionTable, Trigger
from leasehold.registry.pipelines import NO_CATALOG, Catalog
from leasehold.registry.settings import SETTINGS
from leasehold.worker.sandbox.forking.memory import is_memory_told


@dataclass(frozen=True, slots=True)
class Setup:
    """One machine as it is set up.

    Args:
        environ: the environment; its values are never shown as a whole.
        settings: the value of each setting; the default, where it is refused.
        catalog: what is run; an empty one, where it cannot be loaded.
        functions: what is deployed, as `deployment.py` has it, or else the package.
        folder: the working folder.
    """

    environ: Mapping[str, str] = field(repr=False)
    settings: Mapping[str, Any] = field(repr=False)
    catalog: Catalog = NO_CATALOG
    functions: FunctionTable = FUNCTIONS
    folder: Path = field(default_factory=Path.cwd)

    @property
    def steps(self) -> tuple[StepDispatchEntry, ...]:
        """The step types."""
        return tuple(self.catalog.steps)

    @property
    def learning_steps(self) -> tuple[StepDispatchEntry, ...]:
        """The step types whose limits are to be derived, or proposed."""
        strategy = self.settings["PIPELINE_LIMIT_STRATEGY"]
        return tuple(step for step in self.steps if (step.limit_strategy or strategy) != "fixed")

    @property
    def channels(self) -> tuple[ChannelEntry, ...]:
        """The channels."""
        return tuple(self.catalog.channels)

    @property
    def store(self) -> str:
        """The address of the store."""
        return str(self.settings["LEASEHOLD_STORE"])

    @property
    def uses_google_tasks(self) -> bool:
        """Whether tasks are Google's to deliver, and not a local server's."""
        is_queue = self.settings["LEASEHOLD_TASKS"] != "in-process"
        return is_queue and self.settings["CLOUD_TASKS_EMULATOR_URL"] is None


def lenient_settings(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the value of each setting; `check` reports those that are refused."""
    values: dict[str, Any] = {}
    for entry in SETTINGS:
        try:
            values[entry.name] = entry.read(environ.get(entry.name, entry.default))
        except ValueError:
            values[entry.name] = entry.read(entry.default)
    return values


# Limits that do not hold together: of steps, of deliveries, and of the functions that do both.


#: What a function has beyond a step's dispatch deadline, to record what became of it.
MARGIN: Final = timedelta(seconds=60)


def limits(setup: Setup) -> Iterator[Finding]:
    """Yield what the functions of the table have no time for."""
    functions = setup.functions
    step = functions.of_tasks
    for name, deadline in deadlines(setup):
        if step.timeout < deadline + MARGIN and deadline <= PLATFORM_DEADLINE:
            yield _too_short(name, deadline, step)
    call = setup.settings["PIPELINE_DELIVERY_CALL_S"]
    for delivery in functions.called_by(Trigger.EVENTS) if setup.channels else ():
        if call >= delivery.timeout:
            message = (
                f"PIPELINE_DELIVERY_CALL_S is {_s(call)}, and {delivery.name} has "
                f"{_s(delivery.timeout)}: a call is ended before it can record what it sent."
            )
            yield Finding("delivery_call_time", message, "unset PIPELINE_DELIVERY_CALL_S")
    yield from _memory(setup)


def _memory(setup: Setup) -> Iterator[Finding]:
    """Yield the steps of which this machine does not tell enough."""
    if is_memory_told():
        return
    reused = [entry.step_type for entry in setup.steps if entry.reuse > 1]
    if reused:
        message = (
            f"{', '.join(reused)}: each attempt has a fresh process here, whatever its reuse, as "
            "this machine does not tell what an attempt has left in one (/proc)."
        )
        yield Finding("reuse_not_told", message, kind=Kind.WARNING)
    limited = [entry.step_type for entry in setup.steps if entry.memory_limit is not None]
    if limited:
        message = (
            f"{', '.join(limited)}: no step is held to its memory_limit here, as this machine does "
            "not tell how much memory a process takes (/proc/PID/status, /proc/PID/smaps)."
        )
        yield Finding("memory_not_told", message, kind=Kind.WARNING)


def deadlines(setup: Setup) -> Iterator[tuple[str, timedelta]]:
    """Yield the dispatch deadline in force of each step that a function runs."""
    for entry in setup.steps:
        settings = effective_settings(entry, setup.environ, max_retries=0)
        if not settings.remote:
            yield entry.step_type, settings.dispatch_deadline


def longest_deadline(setup: Setup) -> timedelta | None:
    """Return the longest of them; None: a function runs no step."""
    return max((deadline for _, deadline in deadlines(setup)), default=None)


def _too_short(step: str, deadline: timedelta, function: FunctionEntry) -> Finding:
    timeout = _s(function.timeout)
    message = (
        f"Step {step} has {_s(deadline)} (dispatch deadline), and {function.name} {timeout}: it "
        f"needs a minute more than the step; set its timeout in deployment.py to "
        f"{_s(deadline + MARGIN)}."
    )
    return Finding("function_timeout", message)


def _s(length: timedelta) -> str:
    return f"{length.total_seconds():g} s"
