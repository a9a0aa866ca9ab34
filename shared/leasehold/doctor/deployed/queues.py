"""The queues of the catalog's steps: are they there, do they deliver, and how often again?"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from leasehold.doctor.deployed.deployment import Deployment
from leasehold.doctor.finding import Finding
from leasehold.live.clients import ONE_TRY

if TYPE_CHECKING:
    from google.cloud.tasks_v2 import Queue

#: What Cloud Tasks waits by default. A task that waits longer is out of sight that long.
_LONGEST_WAIT: Final = timedelta(minutes=10)


def queues(deployment: Deployment) -> Iterator[Finding]:
    """Yield what is wrong with the queues."""
    found: dict[str, Queue] = {}
    for queue_id, steps in deployment.setup.catalog.queues.items():
        queue = _queue(deployment, queue_id)
        if queue is None:
            message = (
                f"Queue {queue_id} does not exist: no task of {', '.join(steps)} can be created."
            )
            yield Finding("queue_missing", message, deployment.apply)
            continue
        found[queue_id] = queue
        yield from _state(deployment, queue_id, queue)
        yield from _retries(deployment, queue_id, queue)
    yield from _concurrency(deployment, found)


def _queue(deployment: Deployment, queue_id: str) -> Queue | None:
    from google.api_core.exceptions import NotFound  # noqa: PLC0415 - with the client

    try:
        name = f"{deployment.location}/queues/{queue_id}"
        return deployment.clients.tasks.get_queue({"name": name}, **ONE_TRY)
    except NotFound:
        return None


def _state(deployment: Deployment, queue_id: str, queue: Queue) -> Iterator[Finding]:
    if queue.state.name in {"PAUSED", "DISABLED"}:
        message = (
            f"Queue {queue_id} is {queue.state.name}: its tasks wait, and their runs with them."
        )
        yield Finding("queue_paused", message, deployment.at(f"tasks queues resume {queue_id}"))


def _retries(deployment: Deployment, queue_id: str, queue: Queue) -> Iterator[Finding]:
    update = f"tasks queues update {queue_id}"
    retry = queue.retry_config
    if retry.max_attempts > 0:
        message = (
            f"Queue {queue_id} drops a task after {retry.max_attempts} attempts: in an outage runs "
            "lose their tasks, and count as never started."
        )
        flags = ("--max-attempts=unlimited", "--max-retry-duration=0s")
        yield Finding("queue_attempts", message, deployment.at(update, *flags))
    if retry.max_backoff and retry.max_backoff > _LONGEST_WAIT:
        message = (
            f"Queue {queue_id} waits up to {retry.max_backoff.total_seconds():g} s after an "
            "outage: runs go on that much later than they could."
        )
        yield Finding("queue_backoff", message, deployment.at(update, "--max-backoff=300s"))
    if retry.min_backoff and retry.max_backoff and retry.min_backoff > retry.max_backoff:
        message = f"The first wait of queue {queue_id} is longer than its longest."
        flags = ("--min-backoff=10s", "--max-backoff=300s")
        yield Finding("queue_backoff", message, deployment.at(update, *flags))


def _concurrency(deployment: Deployment, found: dict[str, Queue]) -> Iterator[Finding]:
    """Yield a finding where queues deliver more at once than there are instances for."""
    entry = deployment.setup.functions.of_tasks
    service = deployment.services_if_known.get(entry.service)
    instances, at_once = entry.max_instances, entry.concurrency
    if service is not None:
        template = service.template
        instances = template.scaling.max_instance_count or instances
        at_once = template.max_instance_request_concurrency or at_once
    given = {queue_id: one.rate_limits.max_concurrent_dispatches for queue_id, one in found.items()}
    if sum(given.values()) > instances * at_once:
        share = max(1, instances * at_once // len(given))
        flag = f"--max-concurrent-dispatches={share}"
        too_many = (queue_id for queue_id, number in given.items() if number > share)
        commands = [deployment.at(f"tasks queues update {one}", flag) for one in too_many]
        message = (
            f"The queues deliver {sum(given.values())} tasks at once, and {entry.service} takes "
            f"{instances * at_once}: the others are answered 429, which slows each queue down."
        )
        yield Finding("queue_concurrency", message, " && ".join(commands))
