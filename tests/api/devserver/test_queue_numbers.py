"""The queue's own retry: it repeats what met an outage, and is soon there when that is over."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

from leasehold.deploy.resources.queue import backoff_of
from leasehold.devserver.server import QUEUES

DOCS = Path(__file__).parents[3] / "docs" / "provisioning.md"
SOON = timedelta(seconds=10)


def test_no_wait_hides_a_run_for_longer_than_ten_seconds() -> None:
    """Whenever an outage ends, the next delivery is this far away at most."""
    waits = [QUEUES.retry.wait(attempts) for attempts in range(1, 1000)]

    assert max(waits) == SOON
    assert waits[:3] == [timedelta(seconds=0.1), timedelta(seconds=0.2), timedelta(seconds=0.4)]
    assert waits == sorted(waits)


def test_no_outage_is_long_enough_for_a_task_to_be_dropped() -> None:
    assert not QUEUES.retry.gives_up(10_000, timedelta(days=7))


def test_a_deployed_queue_is_created_with_the_waits_of_the_engine() -> None:
    """A call that cannot work is billed there, and many of them keep what recovers down."""
    deployed = backoff_of({})

    assert deployed.minimum == timedelta(seconds=10)
    assert deployed.maximum == timedelta(seconds=300)
    assert deployed.doublings == 5


def test_who_wants_shorter_waits_is_told_those_of_the_dev_server() -> None:
    (command,) = re.findall(r"gcloud tasks queues update QUEUE[^`]*", DOCS.read_text())

    assert "--min-backoff=0.1s" in command
    assert "--max-backoff=10s" in command
    assert "--max-doublings=7" in command
    assert "--max-attempts=unlimited" in command
