"""What is counted from the lines that functions log; docs/alerts.md has what each is good for.

The lines are those of docs/operations.md: one line of JSON an event, which Cloud Run takes apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from leasehold.domain.trace import TraceType
from leasehold.registry.registry import Registry
from leasehold.services.reporting import STEP_BLOCKED
from leasehold.services.sweep import SWEEP_FINISHED

#: Only what functions log; a line of the same shape elsewhere in the project does not count.
_OF_FUNCTIONS: Final = 'resource.type="cloud_run_revision"'


@dataclass(frozen=True, slots=True)
class LogMetric:
    """A metric.

    Args:
        name: its id, behind `leasehold-`.
        summary: what it tells, in a few words.
        events: the lines that count, by their `event`.
        where: further conditions, in the words of Cloud Logging.
        labels: fields of the line by which it is told apart.
        value: the field whose numbers are collected; empty: the lines are counted.
        unit: of the value.
    """

    name: str
    summary: str
    events: tuple[str, ...]
    where: tuple[str, ...] = ()
    labels: tuple[str, ...] = field(default_factory=tuple)
    value: str = ""
    unit: str = "1"

    @property
    def key(self) -> str:
        """The name the row is found by."""
        return self.name

    @property
    def id(self) -> str:
        """How Cloud Logging names it."""
        return f"leasehold-{self.name}"

    @property
    def type(self) -> str:
        """How Cloud Monitoring names it."""
        return f"logging.googleapis.com/user/{self.id}"

    @property
    def filter(self) -> str:
        """The lines that count, in the words of Cloud Logging."""
        lines = [_OF_FUNCTIONS, f"jsonPayload.event={_either(self.events)}", *self.where]
        return " AND ".join(lines)

    @property
    def label_extractors(self) -> Mapping[str, str]:
        """Where the labels come from, in the words of Cloud Logging."""
        return {label: f"EXTRACT(jsonPayload.{label})" for label in self.labels}

    @property
    def value_extractor(self) -> str:
        """Where the value comes from, likewise; empty: there is none."""
        return f"EXTRACT(jsonPayload.{self.value})" if self.value else ""


def _either(values: Iterable[str]) -> str:
    """Return values of which one must hold, in the words of Cloud Logging."""
    quoted = [f'"{value}"' for value in values]
    return quoted[0] if len(quoted) == 1 else f"({' OR '.join(quoted)})"


def _line(event: TraceType) -> str:
    """Return the `event` of the line that is logged of an event of a run's trace."""
    return event.value.upper()


METRICS: Final = Registry(
    "metrics",
    [
        LogMetric(
            "dead-letters",
            "runs that were given up",
            (_line(TraceType.STEP_DEAD_LETTERED),),
            labels=("reason", "pipeline"),
        ),
        LogMetric(
            "terminated-attempts",
            "attempts that were cut short",
            (_line(TraceType.STEP_TERMINATED),),
            labels=("reason", "pipeline", "step"),
        ),
        LogMetric(
            "blocked-runs",
            "runs that wait for a person",
            (_line(TraceType.GATE_BLOCKED),),
            labels=("pipeline", "checkId"),
        ),
        LogMetric(
            "wrong-deploys",
            "runs that the code which is deployed cannot run",
            (STEP_BLOCKED,),
            labels=("code", "pipeline", "step"),
        ),
        LogMetric(
            "failed-archives",
            "ended runs whose archive is tried again",
            (_line(TraceType.ARCHIVE_FAILED),),
            labels=("reason", "pipeline"),
        ),
        LogMetric(
            "announcements",
            "how announcements ended: the share of ANNOUNCEMENT_SENT is the success rate",
            ("ANNOUNCEMENT_SENT", "ANNOUNCEMENT_GIVEN_UP", "ANNOUNCEMENT_UNKNOWN"),
            labels=("channel", "event"),
        ),
        LogMetric(
            "announcement-delays",
            "seconds from the time an announcement is due until it ended",
            ("ANNOUNCEMENT_SENT", "ANNOUNCEMENT_GIVEN_UP"),
            labels=("channel",),
            value="secondsSinceDue",
            unit="s",
        ),
        LogMetric(
            "oldest-pending",
            "seconds for which the run that waits longest in a queue waits",
            (SWEEP_FINISHED,),
            value="oldestPendingS",
            unit="s",
        ),
        LogMetric(
            "unfinished-sweeps",
            "sweeps that left something",
            (SWEEP_FINISHED,),
            where=("(jsonPayload.unattended>0 OR jsonPayload.more=true)",),
        ),
    ],
)
