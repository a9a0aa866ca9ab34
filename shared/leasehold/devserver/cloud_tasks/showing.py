"""Answers of the REST surface: tasks and queues as the service writes them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from leasehold.devserver.cloud_tasks.held import HeldTask
from leasehold.devserver.cloud_tasks.queue import Queue
from leasehold.devserver.cloud_tasks.reading_tasks import METHODS, VIEWS
from leasehold.devserver.cloud_tasks.tasks import HttpTask

Shown = dict[str, Any]  # JSON that is to be sent
#: How the value of an enum is written: its name, or the integer that the client asks for.
EnumForm = Callable[[Mapping[int, str], str], int | str]
STATES: Final = {1: "RUNNING", 2: "PAUSED"}


def as_name(_names: Mapping[int, str], name: str) -> str:
    """Return the name."""
    return name


def as_integer(names: Mapping[int, str], name: str) -> int:
    """Return the integer."""
    return next(number for number, known in names.items() if known == name)


def show_task(queue: str, held: HeldTask, view: str, form: EnumForm) -> Shown:
    """Return a task; its body is shown in the full view only."""
    full = view == "FULL"
    shown = {
        "name": f"{queue}/tasks/{held.task.name}",
        "httpRequest": _http_request(held.task, full=full, form=form),
        "scheduleTime": _time(held.eta),
        "createTime": _time(held.created),
        "dispatchDeadline": _span(held.task.deadline),
        "dispatchCount": held.attempts,
        "responseCount": held.answers,
        "view": form(VIEWS, "FULL" if full else "BASIC"),
    }
    if held.first_attempt and held.last_attempt:
        shown["firstAttempt"] = {"dispatchTime": _time(held.first_attempt)}
        shown["lastAttempt"] = {"dispatchTime": _time(held.last_attempt)}
    return shown


def show_queue(queue: Queue, form: EnumForm) -> Shown:
    """Return a queue."""
    retry, rate = queue.settings.retry, queue.settings.rate
    shown = {
        "name": queue.name,
        "rateLimits": {
            "maxDispatchesPerSecond": rate.max_dispatches_per_second,
            "maxBurstSize": rate.max_burst_size,
            "maxConcurrentDispatches": rate.max_concurrent_dispatches,
        },
        "retryConfig": {
            "maxAttempts": retry.max_attempts,
            "maxRetryDuration": _span(retry.max_retry_duration),
            "minBackoff": _span(retry.min_backoff),
            "maxBackoff": _span(retry.max_backoff),
            "maxDoublings": retry.max_doublings,
        },
        "state": form(STATES, "PAUSED" if queue.paused else "RUNNING"),
    }
    if queue.purged_at:
        shown["purgeTime"] = _time(queue.purged_at)
    return shown


def _http_request(task: HttpTask, *, full: bool, form: EnumForm) -> Shown:
    shown: Shown = {
        "url": task.url,
        "httpMethod": form(METHODS, task.method),
        "headers": dict(task.headers or {}) | {"User-Agent": "Google-Cloud-Tasks"},
    }
    if full:
        shown["body"] = base64.b64encode(task.body).decode()
    if task.token:
        token = {"serviceAccountEmail": task.token.email, "audience": task.token.audience}
        shown["oidcToken"] = token
    return shown


def _time(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def _span(span: timedelta) -> str:
    return f"{span.total_seconds():.6f}".rstrip("0").rstrip(".") + "s"
