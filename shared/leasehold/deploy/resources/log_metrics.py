"""The metrics that Cloud Logging counts, as `deploy/resources/log_metrics.py` has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any, Final

from google.api_core.exceptions import NotFound

from leasehold.deploy.installation import Installation
from leasehold.deploy.resources.resource import MISSING, PRESENT, Difference, Look, Resource, State
from leasehold.domain.trace import TraceType
from leasehold.frozen import dataclass
from leasehold.google_clients.clients import ONE_TRY, GoogleClients
from leasehold.registry.registry import Registry
from leasehold.services.derive_budgets import LIMIT_CLIPS
from leasehold.services.reporting import STEP_BLOCKED
from leasehold.services.sweep import SWEEP_FINISHED

# What is counted from the lines that functions log; docs/alerts.md has what each is good for.
#
# The lines are those of docs/monitoring.md: one line of JSON an event, which Cloud Run takes
# apart.


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
        labels: fields of the line that distinguish its kinds.
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
            (
                _line(TraceType.GATE_BLOCKED),
                _line(TraceType.BUDGET_EXCEEDED),
                _line(TraceType.CALL_UNCONFIRMED),
            ),
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
        LogMetric(
            "clipping-limits",
            "steps whose limit ended each of their last attempts: once for each derivation",
            (LIMIT_CLIPS,),
            labels=("step",),
        ),
    ],
)


#: From a second to two weeks, each 15% above the one before: a percentile is as exact as that.
#: Those that Google takes by default are each twice the one before.
_BUCKETS: Final = {
    "exponential_buckets": {"num_finite_buckets": 100, "growth_factor": 1.15, "scale": 1.0}
}


def log_metrics(clients: GoogleClients, installation: Installation) -> Iterator[Resource]:
    """Yield each metric."""
    for metric in METRICS:
        yield CountedLines(clients, installation, metric)


@dataclass(frozen=True, slots=True)
class CountedLines:
    """One metric of lines in the log."""

    clients: GoogleClients
    installation: Installation
    metric: LogMetric
    kind = "log-based metric"

    @property
    def name(self) -> str:
        """Its id."""
        return self.metric.id

    def look(self) -> Look:
        """Return whether it is there, and counts the same lines."""
        name = f"projects/{self.installation.project}/metrics/{self.metric.id}"
        try:
            found = self.clients.metrics.get_log_metric(metric_name=name, **ONE_TRY)
        except NotFound:
            return MISSING
        differences = [
            Difference(field, was, wanted)
            for field, was, wanted in (
                ("filter", found.filter, self.metric.filter),
                ("value", found.value_extractor, self.metric.value_extractor),
            )
            if was != wanted
        ]
        if not differences:
            return PRESENT
        of = f"--project={self.installation.project} --log-filter='{self.metric.filter}'"
        repair = f"gcloud logging metrics update {self.metric.id} {of}"
        return Look(State.DIFFERENT, tuple(differences), repair=repair)

    def create(self) -> None:
        """Create it: it counts from now on."""
        self.clients.metrics.create_log_metric(
            request={
                "parent": f"projects/{self.installation.project}",
                "metric": {
                    "name": self.metric.id,
                    "description": f"Leasehold: {self.metric.summary}",
                    "filter": self.metric.filter,
                    "label_extractors": dict(self.metric.label_extractors),
                    "metric_descriptor": self._descriptor(),
                    "value_extractor": self.metric.value_extractor,
                    "bucket_options": _BUCKETS if self.metric.value else None,
                },
            },
            **ONE_TRY,
        )

    def _descriptor(self) -> Mapping[str, Any]:
        is_distribution = bool(self.metric.value)
        return {
            "metric_kind": "DELTA",
            "value_type": "DISTRIBUTION" if is_distribution else "INT64",
            "unit": self.metric.unit,
            "labels": [{"key": label, "value_type": "STRING"} for label in self.metric.labels],
        }
