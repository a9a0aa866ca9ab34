"""Metrics of Cloud Logging, and alerts of Cloud Monitoring, which knows a metric a while later."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from google.api.metric_pb2 import MetricDescriptor
from google.cloud import monitoring_v3
from google.cloud.logging_v2.services.metrics_service_v2.transports import (
    MetricsServiceV2GrpcTransport,
)
from google.cloud.logging_v2.types import LogMetric
from google.cloud.monitoring_v3.services.alert_policy_service.transports import (
    AlertPolicyServiceGrpcTransport,
)
from google.cloud.monitoring_v3.services.notification_channel_service.transports import (
    NotificationChannelServiceGrpcTransport,
)

from tests.deploy.google_services.refusals import already_exists, invalid, not_found
from tests.deploy.google_services.service import Service, copy_of
from tests.deploy.google_services.world import World

_FIRST = datetime(2026, 3, 1, 12, tzinfo=UTC)
_OF_LOGS = re.compile(r'metric\.type = "logging\.googleapis\.com/user/([^"]+)"')


class LogMetrics(Service):
    """Metrics by their full names."""

    name = "google.logging.v2.MetricsServiceV2"
    transports = (MetricsServiceV2GrpcTransport,)

    def get_log_metric(self, request: Any) -> LogMetric:
        if request.metric_name not in self.world.log_metrics:
            raise not_found(f"Metric {request.metric_name}")
        return copy_of(self.world.log_metrics[request.metric_name])

    def create_log_metric(self, request: Any) -> LogMetric:
        metric = copy_of(request.metric)
        name = f"{request.parent}/metrics/{metric.name}"
        if name in self.world.log_metrics:
            raise already_exists(f"Metric {metric.name}")
        declared = {label.key for label in metric.metric_descriptor.labels}
        if declared != set(metric.label_extractors):
            raise invalid("Each label must have an extractor, and each extractor a label.")
        is_distribution = metric.metric_descriptor.value_type == MetricDescriptor.DISTRIBUTION
        if is_distribution != bool(metric.value_extractor):
            raise invalid("A value extractor is needed for a distribution, and for it alone.")
        self.world.log_metrics[name] = metric
        return copy_of(metric)


class Alerts(Service):
    """Alert policies, each named by a number.

    Attributes:
        is_late: whether metrics are so new that it does not know them yet.
    """

    name = "google.monitoring.v3.AlertPolicyService"
    transports = (AlertPolicyServiceGrpcTransport,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.policies: dict[str, monitoring_v3.AlertPolicy] = {}
        self.is_late = False

    def list_alert_policies(self, request: Any) -> monitoring_v3.ListAlertPoliciesResponse:
        found = [one for name, one in self.policies.items() if name.startswith(request.name)]
        return monitoring_v3.ListAlertPoliciesResponse(alert_policies=found)

    def create_alert_policy(self, request: Any) -> monitoring_v3.AlertPolicy:
        policy = copy_of(request.alert_policy)
        (condition,) = policy.conditions
        looked_at = condition.condition_threshold.filter or condition.condition_absent.filter
        used = _OF_LOGS.search(looked_at)
        if used and (
            self.is_late or f"{request.name}/metrics/{used[1]}" not in self.world.log_metrics
        ):
            raise not_found(
                f'Cannot find metric(s) that match type = "logging.googleapis.com/user/{used[1]}". '
                "If a metric was created recently, it could take up to 10 minutes to become "
                "available. Please try again soon. It"
            )
        if not looked_at or not policy.display_name:
            raise invalid("Field alert_policy.conditions[0] had an invalid value.")
        number = 1000 + len(self.policies)
        policy.name = f"{request.name}/alertPolicies/{number}"
        policy.creation_record.mutate_time = created(len(self.policies))
        self.policies[policy.name] = policy
        return copy_of(policy)


class NotificationChannels(Service):
    """Whom alerts are sent to."""

    name = "google.monitoring.v3.NotificationChannelService"
    transports = (NotificationChannelServiceGrpcTransport,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.channels: dict[str, monitoring_v3.NotificationChannel] = {}

    def list_notification_channels(
        self, request: Any
    ) -> monitoring_v3.ListNotificationChannelsResponse:
        found = [one for name, one in self.channels.items() if name.startswith(request.name)]
        return monitoring_v3.ListNotificationChannelsResponse(notification_channels=found)

    def create_notification_channel(self, request: Any) -> monitoring_v3.NotificationChannel:
        channel = copy_of(request.notification_channel)
        if channel.type_ == "email" and "email_address" not in channel.labels:
            raise invalid("An e-mail channel needs the label email_address.")
        channel.name = f"{request.name}/notificationChannels/{len(self.channels) + 1}"
        channel.creation_record.mutate_time = created(len(self.channels))
        self.channels[channel.name] = channel
        return copy_of(channel)


def created(others: int) -> datetime:
    """Return when the one with this many predecessors was created."""
    return _FIRST + timedelta(seconds=others)
