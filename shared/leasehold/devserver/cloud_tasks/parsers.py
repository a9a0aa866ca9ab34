"""Bodies of requests read into tasks, settings of queues and faults, or refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any, Final

from leasehold.devserver.cloud_tasks.api_errors import invalid
from leasehold.devserver.cloud_tasks.faults import Fault
from leasehold.devserver.cloud_tasks.http_client import AllowedHosts, check_headers
from leasehold.devserver.cloud_tasks.queue import QueueSettings
from leasehold.devserver.cloud_tasks.rate_limiter import RateLimits
from leasehold.devserver.cloud_tasks.request import VIEWS, JsonObject
from leasehold.devserver.cloud_tasks.task import HttpTask, OidcToken, RetryConfig

METHODS: Final = dict(
    enumerate(("POST", "GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"), start=1)
)
SHORTEST_DEADLINE: Final = timedelta(seconds=15)
_LONGEST_DEADLINE: Final = timedelta(minutes=30)
_DEFAULT_DEADLINE: Final = timedelta(minutes=10)
_MAX_DELAY: Final = timedelta(days=30)
_TASK_BYTES: Final = 1_048_569  # measured
_TASK_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,500}", re.ASCII)

#: What the service fills in, and ignores in a request.
_OUTPUT_OF_TASK: Final = (
    "createTime",
    "dispatchCount",
    "responseCount",
    "firstAttempt",
    "lastAttempt",
    "view",
)
_OUTPUT_OF_QUEUE: Final = ("name", "state", "purgeTime", "stackdriverLoggingConfig")

#: What an update mask may name, and which of our settings that is.
_MASKS: Final = {"retryConfig": ("retry", RetryConfig), "rateLimits": ("rate", RateLimits)}


@dataclass(frozen=True, slots=True)
class TaskParser:
    """Reads tasks.

    Args:
        shortest: the shortest dispatch deadline that is accepted.
        hosts: where a task may lead.
        new_name: names a task that has no name.
    """

    shortest: timedelta
    hosts: AllowedHosts
    new_name: Callable[[], str]

    def parse(self, body: Any, queue: str, now: datetime) -> tuple[HttpTask, str]:
        """Read the body of a create, a task for the queue of this full name.

        Returns:
            The task, and the view of it that the caller wants.
        """
        request = JsonObject(body, "request")
        view = request.enum("responseView", VIEWS, "BASIC")
        given = request.object("task")
        if given is None:
            raise invalid("Task must be set.")
        request.refuse_unknown()
        name = _task_id(given.string("name"), queue) or self.new_name()
        http = given.object("httpRequest")
        if http is None:
            raise invalid("Task.http_request must be set: the double delivers HTTP tasks only.")
        retry = given.object("retryConfig")
        task = HttpTask(
            name=name,
            not_before=_schedule_time(given, now),
            deadline=self._deadline(given),
            retry=None if retry is None else _retry_config(retry),
            **self._http_request(http),
        )
        given.refuse_unknown(*_OUTPUT_OF_TASK)
        return task, view

    def _deadline(self, given: JsonObject) -> timedelta:
        deadline = given.duration("dispatchDeadline", _DEFAULT_DEADLINE)
        if not self.shortest <= deadline <= _LONGEST_DEADLINE:
            allowed = (
                f"[{self.shortest.total_seconds():g}s, {_LONGEST_DEADLINE.total_seconds():g}s]"
            )
            raise invalid(f"Task.dispatch_deadline must be between {allowed}.")
        return deadline

    def _http_request(self, given: JsonObject) -> dict[str, Any]:
        url = given.string("url")
        method = given.enum("httpMethod", METHODS, "POST")
        headers = given.strings("headers")
        body = given.bytes_of("body")
        token = _token(given.object("oidcToken"), url)
        given.refuse_unknown()
        self.hosts.check(url)
        check_headers(headers)
        if body and method not in {"POST", "PUT", "PATCH"}:
            raise invalid(f"HTTP method {method} cannot have a body.")
        if len(url) + len(body) + sum(map(len, [*headers, *headers.values()])) > _TASK_BYTES:
            raise invalid(f"Task size too large: at most {_TASK_BYTES} bytes.")
        return {"url": url, "method": method, "headers": headers, "body": body, "token": token}


def _task_id(name: str, queue: str) -> str:
    if not name:
        return ""
    parent, _, task_id = name.rpartition("/tasks/")
    if parent != queue or not _TASK_ID.fullmatch(task_id):
        raise invalid(f"Task name must be formatted: '{queue}/tasks/<TASK_ID>'; it is '{name}'.")
    return task_id


def _schedule_time(given: JsonObject, now: datetime) -> datetime:
    time = given.timestamp("scheduleTime") or now
    if time > now + _MAX_DELAY:
        raise invalid("Task.schedule_time must be at most 30 days in the future.")
    return time


def _token(given: JsonObject | None, url: str) -> OidcToken | None:
    if given is None:
        return None
    token = OidcToken(given.string("serviceAccountEmail"), given.string("audience") or url)
    given.refuse_unknown()
    return token


def parse_settings(body: Any) -> QueueSettings:
    """Read the settings of a queue; what is missing is as the service has it by default."""
    given = JsonObject(body, "queue")
    retry, rate = given.object("retryConfig"), given.object("rateLimits")
    settings = QueueSettings(
        retry=RetryConfig() if retry is None else _retry_config(retry),
        rate=RateLimits() if rate is None else _rate_limits(rate),
    )
    given.refuse_unknown(*_OUTPUT_OF_QUEUE)
    return settings


def _retry_config(given: JsonObject) -> RetryConfig:
    default = RetryConfig()
    retry = RetryConfig(
        max_attempts=given.integer("maxAttempts", 0, -1, 2**31 - 1) or default.max_attempts,
        max_retry_duration=given.duration("maxRetryDuration", default.max_retry_duration),
        min_backoff=given.duration("minBackoff", default.min_backoff),
        max_backoff=given.duration("maxBackoff", default.max_backoff),
        max_doublings=given.integer("maxDoublings", default.max_doublings, 0, 16),
    )
    given.refuse_unknown()
    if not timedelta() <= retry.min_backoff <= retry.max_backoff:
        raise invalid("RetryConfig: min_backoff must be 0 or more and at most max_backoff.")
    if retry.max_retry_duration < timedelta():
        raise invalid("RetryConfig.max_retry_duration must be 0 or more.")
    return retry


def _rate_limits(given: JsonObject) -> RateLimits:
    default = RateLimits()
    rate = RateLimits(
        given.number("maxDispatchesPerSecond", default.max_dispatches_per_second, 0.001, 500),
        given.integer("maxConcurrentDispatches", default.max_concurrent_dispatches, 1, 5000),
    )
    given.refuse_unknown("maxBurstSize")
    return rate


def apply_update_mask(old: QueueSettings, new: QueueSettings, mask: str) -> QueueSettings:
    """Return the old settings with what the mask names from the new ones; no mask: all.

    Raises:
        ApiError: the mask names something that is not a setting, or cannot be set.
    """
    paths = [path for path in mask.split(",") if path and path != "name"]
    if not paths:
        return new
    for path in paths:
        old = _with_one(old, new, path)
    return old


def _with_one(old: QueueSettings, new: QueueSettings, path: str) -> QueueSettings:
    part, _, leaf = path.partition(".")
    if part not in _MASKS:
        raise invalid(f"Invalid update_mask: '{path}' cannot be updated.")
    name, kind = _MASKS[part]
    value: Any = getattr(new, name)
    if leaf:
        field = re.sub("([A-Z])", r"_\1", leaf).lower()
        if field not in {known.name for known in fields(kind)}:
            raise invalid(f"Invalid update_mask: '{path}' cannot be updated.")
        value = replace(getattr(old, name), **{field: getattr(value, field)})
    changed: QueueSettings = replace(old, **{name: value})
    return changed


def parse_fault(body: Any) -> dict[str, Any]:
    """Read an order of faults into the arguments of `Faults.order`.

    The fields are kind, count, queue, containing and seconds; all but the kind are optional.
    """
    given = JsonObject(body, "fault")
    kinds = {number: str(kind) for number, kind in enumerate(Fault)}
    seconds = given.number("seconds", -1, -1, 86_400)
    order = {
        "kind": given.enum("kind", kinds, ""),
        "count": given.integer("count", 1, 1, 10_000),
        "queue": given.string("queue") or None,
        "containing": given.string("containing"),
        "seconds": None if seconds < 0 else seconds,  # None: as it is by default
    }
    given.refuse_unknown()
    return order
