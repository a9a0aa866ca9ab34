"""Requests of the REST surface, read into tasks."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from leasehold.devserver.cloud_tasks.fields import Fields
from leasehold.devserver.cloud_tasks.headers import check_headers
from leasehold.devserver.cloud_tasks.reading_queues import read_retry
from leasehold.devserver.cloud_tasks.refusals import invalid
from leasehold.devserver.cloud_tasks.targets import Targets
from leasehold.devserver.cloud_tasks.tasks import HttpTask, OidcToken

METHODS: Final = dict(
    enumerate(("POST", "GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"), start=1)
)
VIEWS: Final = {0: "VIEW_UNSPECIFIED", 1: "BASIC", 2: "FULL"}
LONGEST_DEADLINE: Final = timedelta(minutes=30)
USUAL_DEADLINE: Final = timedelta(minutes=10)
HORIZON: Final = timedelta(days=30)
TASK_BYTES: Final = 1_048_569  # measured
_TASK_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,500}", re.ASCII)
_OF_TASK_BY_THE_SERVICE: Final = (
    "createTime",
    "dispatchCount",
    "responseCount",
    "firstAttempt",
    "lastAttempt",
    "view",
)


def read_task(
    request: Any,
    queue: str,
    *,
    now: datetime,
    new_name: Callable[[], str],
    shortest: timedelta,
    targets: Targets,
) -> tuple[HttpTask, str]:
    """Read the body of a create.

    Args:
        request: the JSON.
        queue: the full name of the queue.
        now: for the schedule.
        new_name: gives a task without a name its name.
        shortest: the shortest dispatch deadline that is taken.
        targets: where it may lead.

    Returns:
        The task, and the view that was asked for.
    """
    body = Fields(request, "request")
    view = body.enum("responseView", VIEWS, "BASIC")
    fields = body.object("task")
    if fields is None:
        raise invalid("Task must be set.")
    body.end()
    name = _task_id(fields.text("name"), queue) or new_name()
    http = fields.object("httpRequest")
    if http is None:
        raise invalid("Task.http_request must be set: the double delivers HTTP tasks only.")
    retry = fields.object("retryConfig")
    task = HttpTask(
        name=name,
        not_before=_schedule(fields, now),
        deadline=_deadline(fields, shortest),
        retry=None if retry is None else read_retry(retry),
        **_http_request(http, targets),
    )
    fields.end(*_OF_TASK_BY_THE_SERVICE)
    return task, view


def _task_id(name: str, queue: str) -> str:
    if not name:
        return ""
    parent, _, task_id = name.rpartition("/tasks/")
    if parent != queue or not _TASK_ID.fullmatch(task_id):
        raise invalid(f"Task name must be formatted: '{queue}/tasks/<TASK_ID>'; it is '{name}'.")
    return task_id


def _schedule(fields: Fields, now: datetime) -> datetime:
    scheduled = fields.time("scheduleTime") or now
    if scheduled > now + HORIZON:
        raise invalid("Task.schedule_time must be at most 30 days in the future.")
    return scheduled


def _deadline(fields: Fields, shortest: timedelta) -> timedelta:
    deadline = fields.duration("dispatchDeadline", USUAL_DEADLINE)
    if not shortest <= deadline <= LONGEST_DEADLINE:
        seconds = f"[{shortest.total_seconds():g}s, {LONGEST_DEADLINE.total_seconds():g}s]"
        raise invalid(f"Task.dispatch_deadline must be between {seconds}.")
    return deadline


def _http_request(fields: Fields, targets: Targets) -> dict[str, Any]:
    url = fields.text("url")
    method = fields.enum("httpMethod", METHODS, "POST")
    headers = fields.texts("headers")
    body = fields.octets("body")
    token = _token(fields.object("oidcToken"), url)
    fields.end()
    targets.check(url)
    check_headers(headers)
    if body and method not in {"POST", "PUT", "PATCH"}:
        raise invalid(f"HTTP method {method} cannot have a body.")
    if len(url) + len(body) + sum(map(len, [*headers, *headers.values()])) > TASK_BYTES:
        raise invalid(f"Task size too large: at most {TASK_BYTES} bytes.")
    return {"url": url, "method": method, "headers": headers, "body": body, "token": token}


def _token(fields: Fields | None, url: str) -> OidcToken | None:
    if fields is None:
        return None
    token = OidcToken(fields.text("serviceAccountEmail"), fields.text("audience") or url)
    fields.end()
    return token
