"""Tasks and their attempts, as the queue and the deliverers know them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from leasehold.devserver.cloud_tasks.limits import RetryConfig


@dataclass(frozen=True, slots=True)
class OidcToken:
    """Who a delivery says it comes from, and whom it is for."""

    email: str
    audience: str


@dataclass(frozen=True, slots=True)
class HttpTask:
    """A task as it was created.

    Args:
        name: its short name; the queue's name stands before it on the wire.
        not_before: when it may be delivered.
        deadline: how long the queue listens for the answer to one delivery.
        token: for the Authorization header; None: none is sent.
        retry: in place of the queue's; None: the queue's.
    """

    name: str
    url: str
    not_before: datetime
    deadline: timedelta = timedelta(minutes=10)
    method: str = "POST"
    headers: Mapping[str, str] | None = None
    body: bytes = b""
    token: OidcToken | None = None
    retry: RetryConfig | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One delivery that is to be made now.

    Args:
        queue: the full name of the queue.
        number: unique in its queue.
        eta: when it was due by its schedule; a delivery that is late by a fault does not say so.
        retries: attempts before this one.
        executions: answers before this one, without those of 500 and above.
        previous: the status of the answer before; None: none came, or this is the first.
    """

    queue: str
    task: HttpTask
    number: int
    eta: datetime
    retries: int
    executions: int
    previous: int | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a delivery.

    Args:
        status: of the answer; None: none came in time.
        retry_after: how long the worker asks to be left alone.
    """

    status: int | None
    retry_after: timedelta = timedelta()

    @property
    def good(self) -> bool:
        """Whether the task is done. A redirect is not followed, and does not count."""
        return self.status is not None and 200 <= self.status < 300  # noqa: PLR2004 - HTTP's 2xx

    @property
    def counted(self) -> bool:
        """Whether it counts in X-CloudTasks-TaskExecutionCount: 5xx do not."""
        return self.status is not None and self.status < 500  # noqa: PLR2004 - HTTP's 5xx

    @property
    def throttles(self) -> bool:
        """Whether it slows the whole queue down."""
        return self.status in {429, 503}
