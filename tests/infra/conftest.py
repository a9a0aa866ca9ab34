"""What the tests of provisioning share: servers in place of Google's, and a project in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.emulators import need_pubsub
from tests.infra.cloud import Cloud, cloud_servers


@pytest.fixture(scope="module")
def make_cloud() -> Iterator[Callable[[], Cloud]]:
    need_pubsub()
    with cloud_servers() as make:
        yield make


@pytest.fixture
def cloud(make_cloud: Callable[[], Cloud]) -> Cloud:
    """Return a project of its own, in which nothing exists."""
    return make_cloud()
