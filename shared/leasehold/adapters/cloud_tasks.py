"""The task queue port on Cloud Tasks, with the official client."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from leasehold.adapters.clock import SystemClock
from leasehold.domain.deadlines import MIN_DEADLINE, PLATFORM_DEADLINE
from leasehold.domain.effect import Task
from leasehold.errors import StoreUnavailableError
from leasehold.ports.clock import Clock

if TYPE_CHECKING:  # the client takes half a second to import: only who uses it waits for it
    from google.api_core.retry import Retry
    from google.cloud.tasks_v2 import CloudTasksClient

_T = TypeVar("_T")


class CloudTasks:
    """Tasks as HTTP requests that Cloud Tasks makes to `execute_step`.

    Args:
        project: where the queues are.
        location: where the queues are.
        function_url: what is called for each task.
        task_account: the service account whose OIDC token the calls carry; None: they carry none.
        emulator_url: a local server in place of the service; nothing is authenticated there.
        clock: decides which tasks are for later.
        patience: how long one call is repeated.
    """

    def __init__(
        self,
        project: str,
        location: str,
        function_url: str,
        task_account: str | None = None,
        emulator_url: str | None = None,
        *,
        clock: Clock | None = None,
        patience: timedelta = timedelta(seconds=10),
    ) -> None:
        self._location = f"projects/{project}/locations/{location}"
        self._function_url = function_url
        self._account = task_account
        self._emulator_url = emulator_url
        self._clock = clock or SystemClock()
        self._patience = patience.total_seconds()
        self._lock = threading.Lock()
        self._client: CloudTasksClient | None = None
        self._made_in = 0

    def create(self, task: Task) -> None:
        """Create the task; if the queue knows its name already, do nothing.

        Raises:
            StoreUnavailableError: the queue did not take it. Retryable.
        """
        from google.api_core.exceptions import Conflict, NotFound  # noqa: PLC0415 - lazy, see above

        request = {"parent": self._queue(task), "task": self._message(task)}
        try:
            self._call(lambda client: client.create_task, request)
        except Conflict:
            return
        except NotFound as error:  # there is no such queue
            raise self._unavailable(error) from error

    def exists(self, task: Task) -> bool:
        """Return whether the task waits in its queue, or is being delivered.

        Raises:
            StoreUnavailableError: the queue did not answer. Retryable.
        """
        from google.api_core.exceptions import NotFound  # noqa: PLC0415 - lazy, see above

        try:
            self._call(lambda client: client.get_task, {"name": self._name(task)})
        except NotFound:
            return False
        return True

    def _queue(self, task: Task) -> str:
        return f"{self._location}/queues/{task.queue}"

    def _name(self, task: Task) -> str:
        return f"{self._queue(task)}/tasks/{task.name}"

    def _message(self, task: Task) -> dict[str, Any]:
        message: dict[str, Any] = {
            "name": self._name(task),
            "http_request": self._http_request(task),
            "dispatch_deadline": min(max(task.deadline, MIN_DEADLINE), PLATFORM_DEADLINE),
        }
        if task.not_before > self._clock.now():
            message["schedule_time"] = task.not_before
        return message

    def _http_request(self, task: Task) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        if task.traceparent:
            headers["traceparent"] = task.traceparent
        request: dict[str, Any] = {
            "http_method": "POST",
            "url": self._function_url,
            "headers": headers,
            "body": json.dumps({"runId": task.run_id, "generation": task.generation}).encode(),
        }
        if self._account:
            audience = urlsplit(self._function_url)._replace(path="", query="", fragment="")
            token = {"service_account_email": self._account, "audience": audience.geturl()}
            request["oidc_token"] = token
        return request

    def _call(
        self, method: Callable[[CloudTasksClient], Callable[..., _T]], request: dict[str, Any]
    ) -> _T:
        """Call the service, and retry what may pass; NotFound and Conflict are passed on.

        The client itself retries no create. A create that was done but lost its answer is refused
        as known the second time, which is as good.
        """
        from google.api_core import exceptions as google  # noqa: PLC0415 - lazy, see above
        from google.api_core.timeout import ConstantTimeout  # noqa: PLC0415
        from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415

        try:
            call = method(self._ready_client())
            once: Any = ConstantTimeout(self._patience / 2)  # type: ignore[no-untyped-call]
            return call(request, retry=self._retry(), timeout=once)
        except (google.NotFound, google.Conflict):
            raise
        except (google.GoogleAPIError, GoogleAuthError, OSError) as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> StoreUnavailableError:
        store = self._emulator_url or f"cloud-tasks://{self._location}"
        last = getattr(error, "cause", None) or error  # a RetryError has what the last try met
        return StoreUnavailableError(store=store, problem=f"{type(last).__name__}: {last}")

    def _retry(self) -> Retry:
        from google.api_core.retry import Retry  # noqa: PLC0415 - lazy, see above

        return Retry(
            predicate=_may_pass, initial=0.1, maximum=2.0, multiplier=2.0, timeout=self._patience
        )  # its waits are jittered

    def _ready_client(self) -> CloudTasksClient:
        """Return the client of this process; a fork does not share connections."""
        with self._lock:
            if self._client is None or self._made_in != os.getpid():
                self._client = make_client(self._emulator_url)
                self._made_in = os.getpid()
            return self._client


def make_client(emulator_url: str | None) -> CloudTasksClient:
    """Return a client of the service, or of a local server in place of it."""
    from google.cloud.tasks_v2 import CloudTasksClient  # noqa: PLC0415 - lazy, see above

    if emulator_url is None:
        return CloudTasksClient()
    from google.auth.credentials import AnonymousCredentials  # noqa: PLC0415
    from google.cloud.tasks_v2.services.cloud_tasks.transports import (  # noqa: PLC0415
        CloudTasksRestTransport,
    )

    parts = urlsplit(emulator_url)
    credentials: Any = AnonymousCredentials()  # type: ignore[no-untyped-call] # has no types
    transport = CloudTasksRestTransport(
        host=parts.netloc, url_scheme=parts.scheme, credentials=credentials
    )
    return CloudTasksClient(transport=transport)


def _may_pass(error: BaseException) -> bool:
    """Return whether the same call may succeed later."""
    from google.api_core import exceptions as google  # noqa: PLC0415 - lazy, see above
    from google.auth.exceptions import TransportError  # noqa: PLC0415

    # OSError: so requests says that there is no connection, or no answer in time
    passing = (google.ServerError, google.TooManyRequests, google.Aborted, TransportError, OSError)
    return isinstance(error, passing)
