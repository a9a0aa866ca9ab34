"""A task: as it was created, its state in a queue, and its deliveries with their results."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from leasehold.devserver.cloud_tasks.faults import Fault, OrderedFault
from leasehold.domain.retry import Backoff
from leasehold.frozen import dataclass

UNLIMITED: Final = -1


@dataclass(frozen=True, slots=True)
class RetryConfig:
    """When a task that failed is delivered again, and when no more.

    Args:
        max_attempts: attempts in all, the first included; -1: no limit.
        max_retry_duration: since the first attempt; zero: no limit.
        min_backoff: the first wait.
        max_backoff: no wait is longer.
        max_doublings: how often the wait doubles before it grows by a steady amount.
    """

    max_attempts: int = 100
    max_retry_duration: timedelta = timedelta()
    min_backoff: timedelta = timedelta(seconds=0.1)
    max_backoff: timedelta = timedelta(hours=1)
    max_doublings: int = 16

    def wait(self, attempts: int) -> timedelta:
        """Return how long to wait after so many attempts (1 or more)."""
        backoff = Backoff(self.min_backoff, self.max_backoff, self.max_doublings)
        try:
            return backoff.wait(attempts)
        except OverflowError:
            return self.max_backoff

    def gives_up(self, attempts: int, tried_for: timedelta) -> bool:
        """Return whether both limits are reached; a limit that is not set does not hold it up.

        A task without any limit is repeated forever (the service: until its retention ends).
        """
        endless = self.max_attempts == UNLIMITED
        if endless and not self.max_retry_duration:
            return False
        return (endless or attempts >= self.max_attempts) and tried_for >= self.max_retry_duration


@dataclass(frozen=True, slots=True)
class OidcToken:
    """The account and the audience of a delivery."""

    email: str
    audience: str


@dataclass(frozen=True, slots=True)
class HttpTask:
    """A task as it was created.

    Args:
        name: its short name; the queue's name stands before it on the wire.
        not_before: when it may be delivered.
        deadline: how long the queue waits for the response to one delivery.
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
        executions: responses before this one, without those of 500 and above.
        previous_status: of the response before; None: none came, or this is the first.
    """

    queue: str
    task: HttpTask
    number: int
    eta: datetime
    retries: int
    executions: int
    previous_status: int | None


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """The result of a delivery.

    Args:
        status: of the response; None: none came in time.
        retry_after: how long the worker asks to be left alone.
    """

    status: int | None
    retry_after: timedelta = timedelta()

    @property
    def is_success(self) -> bool:
        """Whether the task is done. A redirect is not followed, and is not a success."""
        return self.status is not None and 200 <= self.status < 300  # noqa: PLR2004 - HTTP's 2xx

    @property
    def is_execution(self) -> bool:
        """Whether it counts in X-CloudTasks-TaskExecutionCount: 5xx do not."""
        return self.status is not None and self.status < 500  # noqa: PLR2004 - HTTP's 5xx

    @property
    def throttles(self) -> bool:
        """Whether it slows the whole queue down."""
        return self.status in {429, 503}


@dataclass(slots=True, eq=False)
class TaskState:
    """A task in its queue: it waits, or the response to its delivery is waited for.

    Args:
        number: later tasks of the queue have higher ones.
        eta: when it is or was due by its schedule.
        fault: what is still to be done to it.
        ticket: of its entry in the queue's schedule; None: it is being delivered, or gone.
        attempts: deliveries that began; `responses` came to them, `executions` of these count.
    """

    task: HttpTask
    number: int
    created: datetime
    eta: datetime
    fault: OrderedFault | None
    ticket: int | None = None
    attempts: int = 0
    responses: int = 0
    executions: int = 0
    first_attempt: datetime | None = None
    last_attempt: datetime | None = None
    previous_status: int | None = None

    def use_up(self, kind: Fault) -> bool:
        """Return whether this fault is to be done now; it is done once."""
        if self.fault is None or self.fault.kind is not kind:
            return False
        self.fault = None
        return True

    def begin(self, queue: str, number: int, now: datetime) -> Attempt:
        """Count an attempt that begins now, and return it."""
        self.ticket = None
        self.attempts += 1
        self.first_attempt = self.first_attempt or now
        self.last_attempt = now
        return Attempt(
            queue=queue,
            task=self.task,
            number=number,
            eta=self.eta,
            retries=self.attempts - 1,
            executions=self.executions,
            previous_status=self.previous_status,
        )

    def record(self, result: DeliveryResult) -> None:
        """Count the result of an attempt."""
        self.previous_status = result.status
        self.responses += result.status is not None
        self.executions += result.is_execution
