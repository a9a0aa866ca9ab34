"""The metrics that Cloud Logging counts, as `deploy/metrics.py` has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.api_core.exceptions import NotFound

from leasehold.deploy.installation import Installation
from leasehold.deploy.metrics import METRICS, LogMetric
from leasehold.deploy.resources.resource import MISSING, PRESENT, Difference, Look, Resource, State
from leasehold.live.clients import ONE_TRY, GoogleClients

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
