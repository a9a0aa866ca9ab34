"""What the tests of provisioning share: servers in place of Google's, and a project in them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from unittest.mock import patch

import pytest

from tests.deploy.cloud import Cloud, cloud_servers
from tests.deploy.google_world import GoogleWorld, google_world
from tests.worlds.emulators import need_pubsub


@pytest.fixture(autouse=True)
def own_environment() -> Iterator[None]:
    """Keep what a project sets for its catalog, in FURTHER, from the tests that come after."""
    with patch.dict(os.environ):
        yield


@pytest.fixture(scope="module")
def make_cloud() -> Iterator[Callable[[], Cloud]]:
    need_pubsub()
    with cloud_servers() as make:
        yield make


@pytest.fixture
def cloud(make_cloud: Callable[[], Cloud]) -> Cloud:
    """Return its own project, in which nothing exists."""
    return make_cloud()


@pytest.fixture
def world() -> Iterator[GoogleWorld]:
    """Google's services without emulators: an empty project."""
    with google_world() as world:
        yield world
