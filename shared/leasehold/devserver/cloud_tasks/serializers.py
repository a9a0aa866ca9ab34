"""Tasks, queues and faults as JSON: those of the service as the service writes them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from leasehold.devserver.cloud_tasks.faults import Faults
from leasehold.devserver.cloud_tasks.parsers import METHODS
from leasehold.devserver.cloud_tasks.queue import Queue
from leasehold.devserver.cloud_tasks.request import VIEWS
from leasehold.devserver.cloud_tasks.task import HttpTask, TaskState

Json = dict[str, Any]  # an object that is to be sent
_STATES: Final = {1: "RUNNING", 2: "PAUSED"}


def task_json(queue: str, state: TaskState, view: str, *, integers: bool) -> Json:
    """Return a task.

    Args:
        queue: the full name of its queue.
        state: the task.
        view: FULL: with its body.
        integers: whether enums are written as integers, and not as names.
    """
    full = view == "FULL"
    task = state.task
    json: Json = {
        "name": f"{queue}/tasks/{task.name}",
        "httpRequest": _http_request(task, full=full, integers=integers),
        "scheduleTime": _timestamp(state.eta),
        "createTime": _timestamp(state.created),
        "dispatchDeadline": _duration(task.deadline),
        "dispatchCount": state.attempts,
        "responseCount": state.responses,
        "view": _enum(VIEWS, "FULL" if full else "BASIC", integers=integers),
    }
    if state.first_attempt and state.last_attempt:
        json["firstAttempt"] = {"dispatchTime": _timestamp(state.first_attempt)}
        json["lastAttempt"] = {"dispatchTime": _timestamp(state.last_attempt)}
    return json


def queue_json(queue: Queue, *, integers: bool) -> Json:
    """Return a queue; `integers`: as for a task."""
    retry, rate = queue.settings.retry, queue.settings.rate
    json: Json = {
        "name": queue.name,
        "rateLimits": {
            "maxDispatchesPerSecond": rate.max_dispatches_per_second,
            "maxBurstSize": rate.max_burst_size,
            "maxConcurrentDispatches": rate.max_concurrent_dispatches,
        },
        "retryConfig": {
            "maxAttempts": retry.max_attempts,
            "maxRetryDuration": _duration(retry.max_retry_duration),
            "minBackoff": _duration(retry.min_backoff),
            "maxBackoff": _duration(retry.max_backoff),
            "maxDoublings": retry.max_doublings,
        },
        "state": _enum(_STATES, "PAUSED" if queue.paused else "RUNNING", integers=integers),
    }
    if queue.purged_at:
        json["purgeTime"] = _timestamp(queue.purged_at)
    return json


def faults_json(faults: Faults) -> Json:
    """Return the faults that are ordered, and those that fired."""
    ordered = [
        {"kind": it.kind, "queue": it.queue, "containing": it.containing, "seconds": it.seconds}
        for it in faults.ordered
    ]
    fired = [
        {"kind": it.kind, "queue": it.queue, "task": it.task, "at": it.at.isoformat()}
        for it in faults.fired
    ]
    return {"ordered": ordered, "fired": fired}


def _http_request(task: HttpTask, *, full: bool, integers: bool) -> Json:
    json: Json = {
        "url": task.url,
        "httpMethod": _enum(METHODS, task.method, integers=integers),
        "headers": dict(task.headers or {}) | {"User-Agent": "Google-Cloud-Tasks"},
    }
    if full:
        json["body"] = base64.b64encode(task.body).decode()
    if task.token:
        json["oidcToken"] = {
            "serviceAccountEmail": task.token.email,
            "audience": task.token.audience,
        }
    return json


def _enum(names: Mapping[int, str], name: str, *, integers: bool) -> int | str:
    if integers:
        return next(number for number, known in names.items() if known == name)
    return name


def _timestamp(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")


def _duration(span: timedelta) -> str:
    return f"{span.total_seconds():.6f}".rstrip("0").rstrip(".") + "s"
