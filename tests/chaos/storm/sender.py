"""The sender of a user's own channel: it posts to the provider of the storm, by its key."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from http.client import HTTPConnection
from typing import Any, Final
from urllib.parse import urlsplit

from leasehold import AgentClientError

#: The variables of both addresses: the provider's, and one where nobody listens.
URL: Final = "STORM_URL"
DEAF_URL: Final = "STORM_DEAF_URL"
SECRET: Final = "STORM_SECRET"  # noqa: S105 - the name of a variable
_TAKEN: Final = 200


def send(message: Mapping[str, Any], timeout: float) -> None:
    """Send to the provider."""
    post_to(os.environ[URL], message, timeout)


def send_or_die(message: Mapping[str, Any], timeout: float) -> None:
    """Send to the provider, which may kill this process meanwhile, or have it kill itself."""
    post_to(os.environ[URL], message, timeout, {"x-process": str(os.getpid())})


def send_to_nobody(message: Mapping[str, Any], timeout: float) -> None:
    """Send to without a listener."""
    post_to(os.environ[DEAF_URL], message, timeout)


def post_to(
    url: str, message: Mapping[str, Any], timeout: float, headers: Mapping[str, str] | None = None
) -> None:
    """Post a message; whatever else it raises: it is unknown whether it was taken."""
    try:
        status, wait = post(url, b"{}", {"webhook-id": message["id"], **(headers or {})}, timeout)
    except ConnectionRefusedError as error:
        raise AgentClientError("nobody listens") from error
    if status != _TAKEN:
        raise AgentClientError(f"answered {status}", retry_after=wait)


def post(
    url: str, body: bytes, headers: Mapping[str, str], timeout: float
) -> tuple[int, float | None]:
    """Return the status of an answer, and the seconds of its Retry-After."""
    place = urlsplit(url)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=timeout)
    try:
        connection.request("POST", place.path or "/", body, dict(headers))
        answer = connection.getresponse()
        answer.read()
    finally:
        connection.close()
    if answer.headers["x-end"]:
        os.kill(os.getpid(), signal.SIGKILL)
    wait = answer.headers["retry-after"]
    return answer.status, None if wait is None else float(wait)
