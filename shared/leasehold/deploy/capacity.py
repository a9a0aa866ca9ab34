"""Whether the queues deliver more tasks at once than their function answers.

A queue keeps what it was created with. A further step type makes the equal share of all smaller,
and the older queues stay as they are until a person changes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from leasehold.deploy.resources.queue import AT_ONCE, QueueResource
from leasehold.deploy.resources.resource import State
from leasehold.deploy.steps import Step
from leasehold.registry.functions import FunctionEntry


def capacity_warnings(function: FunctionEntry, steps: Sequence[Step]) -> Iterator[str]:
    """Yield a line with what to type, where queues deliver more at once than is answered."""
    found = [
        (step.resource, step.resource.at_once(step.look))
        for step in steps
        if isinstance(step.resource, QueueResource) and step.look.state is not State.UNKNOWN
    ]
    total = sum(number for _, number in found)
    if total <= function.requests_at_once:
        return
    commands = [
        queue.command_with(f"--{AT_ONCE}={queue.queue.concurrency}")
        for queue, number in found
        if number > queue.queue.concurrency
    ]
    yield (
        f"the queues deliver {total} tasks at once, and {function.service} takes "
        f"{function.requests_at_once}: the others are answered 429, which slows each queue down. "
        f"Type: {' && '.join(commands)}"
    )
