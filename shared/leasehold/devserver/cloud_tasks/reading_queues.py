"""Requests of the REST surface, read into the names and settings of queues."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from leasehold.devserver.cloud_tasks.fields import Fields
from leasehold.devserver.cloud_tasks.limits import QueueSettings, RateLimits, RetryConfig
from leasehold.devserver.cloud_tasks.refusals import invalid

_QUEUE: Final = re.compile(r"projects/[^/]+/locations/[^/]+/queues/[A-Za-z0-9-]{1,100}", re.ASCII)


def check_queue_name(name: str) -> str:
    """Return the full name of a queue, or refuse it."""
    if not _QUEUE.fullmatch(name):
        raise invalid(
            "Queue name must be formatted: 'projects/<PROJECT_ID>/locations/<LOCATION_ID>/queues/"
            f"<QUEUE_ID>', its ID 1 to 100 of [A-Za-z0-9-]; it is '{name}'."
        )
    return name


def read_settings(fields: Fields) -> QueueSettings:
    """Read the settings of a queue; what is missing is as the service has it by default."""
    retry, rate = fields.object("retryConfig"), fields.object("rateLimits")
    settings = QueueSettings(
        retry=RetryConfig() if retry is None else read_retry(retry),
        rate=RateLimits() if rate is None else _rate(rate),
    )
    fields.end("name", "state", "purgeTime", "stackdriverLoggingConfig")
    return settings


def read_retry(fields: Fields) -> RetryConfig:
    """Read a retry config."""
    usual = RetryConfig()
    retry = RetryConfig(
        max_attempts=fields.whole("maxAttempts", 0, -1, 2**31 - 1) or usual.max_attempts,
        max_retry_duration=fields.duration("maxRetryDuration", usual.max_retry_duration),
        min_backoff=fields.duration("minBackoff", usual.min_backoff),
        max_backoff=fields.duration("maxBackoff", usual.max_backoff),
        max_doublings=fields.whole("maxDoublings", usual.max_doublings, 0, 16),
    )
    fields.end()
    if not timedelta() <= retry.min_backoff <= retry.max_backoff:
        raise invalid("RetryConfig: min_backoff must be 0 or more and at most max_backoff.")
    if retry.max_retry_duration < timedelta():
        raise invalid("RetryConfig.max_retry_duration must be 0 or more.")
    return retry


def _rate(fields: Fields) -> RateLimits:
    usual = RateLimits()
    rate = RateLimits(
        fields.number("maxDispatchesPerSecond", usual.max_dispatches_per_second, 0.001, 500),
        fields.whole("maxConcurrentDispatches", usual.max_concurrent_dispatches, 1, 5000),
    )
    fields.end("maxBurstSize")
    return rate
