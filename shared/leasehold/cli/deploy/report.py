"""What the commands of provisioning print: for people, and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from leasehold.cli.stderr import warn
from leasehold.cli.stdout import print_line, print_table
from leasehold.deploy.installation import Installation
from leasehold.deploy.resources.queue import AT_ONCE, QueueResource
from leasehold.deploy.resources.resource import Resource, State
from leasehold.deploy.steps import Action, Step
from leasehold.domain.timestamps import stamp
from leasehold.presentation.formatting import StyledText
from leasehold.registry.functions import FunctionEntry

#: What a plan says of a state, in the order of its counts.
PLANNED: Final = {
    State.MISSING: "would be created",
    State.PRESENT: "left alone",
    State.DIFFERENT: "differs",
    State.WAITING: "waits",
    State.UNKNOWN: "unknown",
}
#: What is said of what was done about a resource.
DONE: Final = {
    Action.CREATED: "created",
    Action.UPDATED: "updated",
    Action.FAILED: "failed",
}
_STYLES: Final = {
    "would be created": "green",
    "created": "green",
    "updated": "green",
    "left alone": "dim",
    "differs": "yellow",
    "waits": "cyan",
    "unknown": "red",
    "failed": "red",
}
_ORDER: Final = tuple(_STYLES)


def word_of(step: Step) -> str:
    """Return what became of a resource, or what would."""
    return DONE.get(step.action) or PLANNED[step.look.state]


def print_steps(steps: Sequence[Step]) -> None:
    """Print a table of them, what to type about each, and the counts."""
    rows = [
        (step.resource.kind, step.resource.name, _word(step), "; ".join(details_of(step)))
        for step in steps
    ]
    print_table(("resource", "name", "state", "detail"), rows)
    print_repairs(steps)
    print_line(counts_of(steps))


def print_repairs(steps: Sequence[Step]) -> None:
    """Print each command that repairs something, once."""
    for command in dict.fromkeys(step.repair for step in steps if step.repair):
        print_line(f"to repair it: {command}")


def print_warnings(installation: Installation, steps: Sequence[Step]) -> None:
    """Print, beside the answer, what the resources come to together."""
    for line in capacity_warnings(installation.functions.of_tasks, steps):
        warn(line)


def print_done(step: Step) -> None:
    """Print one line about what was done, or was to be done."""
    words = f"{step.resource.kind} {step.resource.name}"
    detail = "; ".join(details_of(step))
    print_line(StyledText(f"{word_of(step)}: {words}{f': {detail}' if detail else ''}"))


def counts_of(steps: Sequence[Step]) -> str:
    """Return how many of each there are, in a line."""
    counts = Counter(word_of(step) for step in steps)
    return ", ".join(f"{counts[word]} {word}" for word in _ORDER if counts[word]) or "nothing"


def details_of(step: Step) -> Iterator[str]:
    """Yield what differs, what is waited for, and what went wrong."""
    if step.problem:
        yield step.problem
        return
    for it in step.look.differences:
        yield f"{it.field}: {it.found} → {it.wanted}"
    if step.look.state is State.WAITING:
        since = f", since {stamp(step.look.since)}" if step.look.since else ""
        waits = "" if step.action is Action.NONE else "waits "  # else its state says so
        yield f"{waits}for {step.look.why}{since}"
    elif step.look.why:
        yield step.look.why


def steps_json(
    installation: Installation, steps: Sequence[Step], left: Sequence[Resource] = ()
) -> dict[str, Any]:
    """Return what became of all resources; `left`: those that were not looked at any more."""
    counts = Counter(word_of(step).replace(" ", "_") for step in steps)
    return {
        "project": installation.project,
        "region": installation.region,
        "resources": [_row(step) for step in steps],
        "notLookedAt": [{"kind": it.kind, "name": it.name} for it in left],
        "counts": dict(counts),
        "warnings": [*capacity_warnings(installation.functions.of_tasks, steps)],
    }


def _row(step: Step) -> dict[str, Any]:
    differences = [
        {"field": it.field, "found": it.found, "wanted": it.wanted} for it in step.look.differences
    ]
    return {
        "kind": step.resource.kind,
        "name": step.resource.name,
        "state": step.look.state,
        "action": step.action,
        "differences": differences,
        "why": step.problem or step.look.why,
        "since": None if step.look.since is None else stamp(step.look.since),
        "repair": step.repair,
    }


def _word(step: Step) -> StyledText:
    word = word_of(step)
    return StyledText(word, _STYLES[word])


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
