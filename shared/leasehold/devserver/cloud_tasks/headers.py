"""The headers of a delivery, as the service sends them."""

from __future__ import annotations

import base64
import json
from typing import Final

from leasehold.devserver.cloud_tasks.tasks import Attempt, OidcToken

#: What a task may not say itself, in lower case; a prefix ends with a dash.
RESERVED: Final = (
    "host",
    "content-length",
    "user-agent",
    "connection",
    "transfer-encoding",
    "x-cloudtasks-",
    "x-google-",
    "x-appengine-",
)


def delivery_headers(attempt: Attempt) -> dict[str, str]:
    """Return all headers of a delivery, the task's own and the service's."""
    task = attempt.task
    headers = {name: text for name, text in (task.headers or {}).items() if not _reserved(name)}
    if task.body and "content-type" not in {name.lower() for name in headers}:
        headers["Content-Type"] = "application/octet-stream"
    if task.token:
        headers["Authorization"] = f"Bearer {_unsigned(task.token)}"
    return headers | {
        "User-Agent": "Google-Cloud-Tasks",
        "X-CloudTasks-QueueName": attempt.queue.rpartition("/")[2],
        "X-CloudTasks-TaskName": task.name,
        "X-CloudTasks-TaskRetryCount": str(attempt.retries),
        "X-CloudTasks-TaskExecutionCount": str(attempt.executions),
        "X-CloudTasks-TaskETA": f"{attempt.eta.timestamp():.6f}",
        **_on_retries(attempt),
    }


def _on_retries(attempt: Attempt) -> dict[str, str]:
    if not attempt.retries:
        return {}
    headers = {"X-CloudTasks-TaskRetryReason": ""}  # sent, but empty
    if attempt.previous is not None:
        headers["X-CloudTasks-TaskPreviousResponse"] = str(attempt.previous)
    return headers


def _reserved(name: str) -> bool:
    lower = name.lower()
    return any(lower.startswith(it) if it.endswith("-") else lower == it for it in RESERVED)


def _unsigned(token: OidcToken) -> str:
    """Return a token that says who and for whom, with no signature: only Google can sign."""
    claims = {"iss": "https://accounts.google.com", "aud": token.audience, "email": token.email}
    parts = [{"alg": "none", "typ": "JWT"}, claims]
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()) for part in parts]
    return ".".join(text.decode().rstrip("=") for text in texts) + "."
