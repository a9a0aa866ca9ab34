from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud.tasks_v2 import CloudTasksClient
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksRestTransport

from leasehold.adapters.cloud_tasks import CloudTasks
from leasehold.devserver.cloud_tasks import CloudTasksDouble, QueueSettings, RetryConfig
from tests.api.devserver.cloud_tasks.target import Target

LOCATION = "projects/p/locations/l"
QUEUE = f"{LOCATION}/queues/steps"
SOON = RetryConfig(min_backoff=timedelta(milliseconds=20), max_backoff=timedelta(seconds=1))

Service = Callable[..., str]


@pytest.fixture
def target() -> Iterator[Target]:
    with Target() as target:
        yield target


@pytest.fixture
def double(target: Target) -> Iterator[CloudTasksDouble]:
    """A double that repeats soon and takes short deadlines."""
    double = CloudTasksDouble(
        QueueSettings(retry=SOON), shortest_deadline=timedelta(milliseconds=1)
    )
    yield double
    target.release()
    double.stop()


@pytest.fixture
def url(double: CloudTasksDouble) -> str:
    return double.start()


@pytest.fixture
def client(url: str) -> Iterator[CloudTasksClient]:
    with official_client(url) as client:
        yield client


@pytest.fixture
def tasks(url: str, target: Target) -> CloudTasks:
    """The port, as the engine has it."""
    function = f"{target.url}/execute_step"
    return CloudTasks("p", "l", function, "caller@p.example", emulator_url=url)


def official_client(url: str) -> CloudTasksClient:
    transport = CloudTasksRestTransport(
        host=url.removeprefix("http://"),
        url_scheme="http",
        credentials=AnonymousCredentials(),
    )
    return CloudTasksClient(transport=transport)
