"""The HTTP request of a delivery: where it may lead, what headers it has, and how it is made."""

from __future__ import annotations

import base64
import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Final

import urllib3
from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url

from leasehold.devserver.cloud_tasks.request import invalid
from leasehold.devserver.cloud_tasks.task import Attempt, DeliveryResult, HttpTask, OidcToken
from leasehold.registry.setting_texts import is_loopback

_log = logging.getLogger(__name__)

#: The worker is not there, or ended before it answered: other than one that is only slow.
_DROPPED: Final = (urllib3.exceptions.ProtocolError, urllib3.exceptions.NewConnectionError)

#: A Retry-After with more digits, in seconds, is ignored.
_MAX_DIGITS: Final = 9

#: A kept connection belongs to one process: one that is frozen would swallow the delivery until its
#: deadline, while others wait for work.
_NOT_KEPT: Final = {"Connection": "close"}

#: Headers that a task may not set, in lower case; a prefix ends with a dash. The service replaces
#: or drops them: those that it sets itself, and those about one connection.
_RESERVED: Final = (
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
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*", re.ASCII)

#: What a URL may consist of: no spaces, no control characters, and none that parsers differ on.
_URL: Final = re.compile(r"[!-\[\]-~]+", re.ASCII)


class AllowedHosts:
    """The hosts that tasks may be delivered to: this machine, and those that were allowed.

    The service delivers to any address; on a developer's machine that would let any caller of
    the double send requests of their choice into the networks that the machine is in.

    Args:
        beyond: hosts beyond this machine, without a port.
    """

    def __init__(self, beyond: Iterable[str] = ()) -> None:
        self._beyond = frozenset(host.lower() for host in beyond)

    def check(self, url: str) -> None:
        """Refuse a URL that is not an HTTP URL, or leads to a host that is not allowed.

        The URL is parsed as the delivery parses it: what two parsers read differently would pass
        the one and be delivered by the other.
        """
        host = _host_of(url)
        if host is None:
            raise invalid(
                f"HttpRequest.url must start with 'http://' or 'https://'; it is '{url}'."
            )
        if not is_loopback(host) and host not in self._beyond:
            raise invalid(
                f"HttpRequest.url leads to '{host}'; the double delivers to this machine only. "
                f"To allow it: leasehold dev --allow-target {host}."
            )


def _host_of(url: str) -> str | None:
    """Return the host of an HTTP URL, in lower case; None: it is not one."""
    try:
        parts = parse_url(url)
    except LocationParseError:
        return None
    fits = _URL.fullmatch(url) and parts.scheme in {"http", "https"} and parts.auth is None
    return (parts.host or "").lower().strip("[]") or None if fits and parts.port != 0 else None


def check_headers(headers: Mapping[str, str]) -> None:
    """Refuse a header that no request can carry, or that would begin another one."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise invalid(f"HttpRequest.headers: {name!r} is not the name of a header.")
        if not _HEADER_VALUE.fullmatch(value):
            raise invalid(f"HttpRequest.headers: {name} is {value!r}, which no header can carry.")


class HttpClient:
    """Makes deliveries, from many threads at once.

    Args:
        headers: returns those of a delivery; None: those of the service.

    Attributes:
        on_dropped: called with the task of each delivery whose connection was refused, or dropped
            before its response was complete. It neither waits nor raises.
    """

    def __init__(self, headers: Callable[[Attempt], dict[str, str]] | None = None) -> None:
        self._headers = headers or _headers
        self.on_dropped: Callable[[HttpTask], object] = lambda _: None

    def deliver(self, attempt: Attempt) -> DeliveryResult:
        """Make a delivery, and return its result.

        After the task's deadline it stops waiting; the worker may run on.
        """
        try:
            return self._request(attempt)
        except _DROPPED:
            self.on_dropped(attempt.task)
        except (urllib3.exceptions.HTTPError, OSError):
            pass  # such as a timeout
        except Exception:  # noqa: BLE001 - such as a header that cannot be sent; the thread goes on
            _log.exception("Task %s cannot be delivered", attempt.task.name)
        return DeliveryResult(None)

    def _request(self, attempt: Attempt) -> DeliveryResult:
        task = attempt.task
        seconds = task.deadline.total_seconds()
        deadline = time.monotonic() + seconds
        # of this delivery alone: a worker that does not say that it closes a connection, and has
        # not quite closed it yet, would be given the next delivery on it
        with urllib3.connection_from_url(task.url, maxsize=1) as connection:
            response = connection.request(
                task.method,
                parse_url(task.url).request_uri,
                body=task.body or None,
                headers=self._headers(attempt) | _NOT_KEPT,
                timeout=urllib3.Timeout(total=seconds),
                redirect=False,
                retries=False,
                preload_content=False,
            )
            complete = _read_to_end(response, deadline)
        wait = response.headers.get("Retry-After", "")
        retry_after = int(wait) if wait.isdecimal() and len(wait) <= _MAX_DIGITS else 0
        return DeliveryResult(response.status if complete else None, timedelta(seconds=retry_after))


def _read_to_end(response: urllib3.BaseHTTPResponse, deadline: float) -> bool:
    """Read the body, which is not needed: a response counts once it is complete.

    Returns:
        Whether it was complete before the deadline, in monotonic seconds.
    """
    while response.read1(65536):
        if time.monotonic() > deadline:
            response.close()
            return False
    response.release_conn()
    return True


def _headers(attempt: Attempt) -> dict[str, str]:
    """Return all headers of a delivery, the task's own and the service's."""
    task = attempt.task
    headers = {name: value for name, value in (task.headers or {}).items() if not _reserved(name)}
    if task.body and "content-type" not in {name.lower() for name in headers}:
        headers["Content-Type"] = "application/octet-stream"
    if task.token:
        headers["Authorization"] = f"Bearer {_unsigned(task.token)}"
    headers |= {
        "User-Agent": "Google-Cloud-Tasks",
        "X-CloudTasks-QueueName": attempt.queue.rpartition("/")[2],
        "X-CloudTasks-TaskName": task.name,
        "X-CloudTasks-TaskRetryCount": str(attempt.retries),
        "X-CloudTasks-TaskExecutionCount": str(attempt.executions),
        "X-CloudTasks-TaskETA": f"{attempt.eta.timestamp():.6f}",
    }
    if attempt.retries:
        headers["X-CloudTasks-TaskRetryReason"] = ""  # sent, but empty
    if attempt.previous_status is not None:
        headers["X-CloudTasks-TaskPreviousResponse"] = str(attempt.previous_status)
    return headers


def _reserved(name: str) -> bool:
    lower = name.lower()
    return any(lower.startswith(it) if it.endswith("-") else lower == it for it in _RESERVED)


def _unsigned(token: OidcToken) -> str:
    """Return a token that says who calls and whom, with no signature: only Google can sign."""
    claims = {"iss": "https://accounts.google.com", "aud": token.audience, "email": token.email}
    parts = [{"alg": "none", "typ": "JWT"}, claims]
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()) for part in parts]
    return ".".join(text.decode().rstrip("=") for text in texts) + "."
