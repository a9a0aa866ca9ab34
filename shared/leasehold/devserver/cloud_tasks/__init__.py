"""The double of the Cloud Tasks service: what the official client sees of it over REST."""

from leasehold.devserver.cloud_tasks.faults import Fault, Faults, FiredFault
from leasehold.devserver.cloud_tasks.limits import QueueSettings, RateLimits, RetryConfig
from leasehold.devserver.cloud_tasks.server import CloudTasksDouble
from leasehold.devserver.cloud_tasks.tasks import HttpTask

__all__ = [
    "CloudTasksDouble",
    "Fault",
    "Faults",
    "FiredFault",
    "HttpTask",
    "QueueSettings",
    "RateLimits",
    "RetryConfig",
]
