"""The headers of a delivery, as the service sends them."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Final

from leasehold.devserver.cloud_tasks.refusals import invalid
from leasehold.devserver.cloud_tasks.tasks import Attempt, OidcToken

#: What a task may not say itself, in lower case; a prefix ends with a dash. The service replaces
#: or drops it: what it says itself, and what is about one connection.
RESERVED: Final = (
    "host",
    "content-length",
    "user-agent",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "expect",
    "proxy-",
    "x-cloudtasks-",
    "x-google-",
    "x-appengine-",
)

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_TEXT: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*", re.ASCII)


def check_headers(headers: Mapping[str, str]) -> None:
    """Refuse a header that no request can carry, or that would begin another one."""
    for name, text in headers.items():
        if not _NAME.fullmatch(name):
            raise invalid(f"HttpRequest.headers: {name!r} is not the name of a header.")
        if not _TEXT.fullmatch(text):
            raise invalid(f"HttpRequest.headers: {name} is {text!r}, which no header can carry.")


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
