"""`leasehold deploy plan`, `apply` and `drift`: create what an installation has in Google Cloud.

`plan` says what would be created, `apply` creates it, `drift` says what is not as it should be.
Nothing is ever deleted, and what exists is left alone: see docs/provisioning.md.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Final

import click

from leasehold.cli.deploy.options import installation_options
from leasehold.cli.deploy.proposals import apply_proposals, proposals_of
from leasehold.cli.exit_codes import (
    DONE,
    FOUND,
    INTERRUPTED,
    NOT_COMPLETED,
    TERMINATED,
    TerminatedError,
    end_on_sigterm,
)
from leasehold.cli.options import json_option
from leasehold.cli.stdout import print_json, print_line, print_table
from leasehold.cli.streams import forget_stdout, note, print_error, warn
from leasehold.deploy.environment import catalog_of
from leasehold.deploy.installation import Installation
from leasehold.deploy.permissions import Kind
from leasehold.deploy.resources.queue import AT_ONCE, QueueResource
from leasehold.deploy.resources.resource import Resource, State
from leasehold.deploy.steps import Action, Patience, Step, survey
from leasehold.deploy.steps import apply as create_missing
from leasehold.domain.timestamps import stamp
from leasehold.google_clients.call_errors import explain
from leasehold.google_clients.clients import ONE_TRY, GoogleClients
from leasehold.presentation.formatting import StyledText
from leasehold.registry.functions import FunctionEntry

_DRIFTED = {State.MISSING, State.DIFFERENT, State.UNKNOWN}


@click.command()
@installation_options
@json_option
def plan(*, installation: Installation, as_json: bool) -> int:
    """Say what would be created, left alone, differs and waits, and what the runs ask for.

    \b
    Example:
      leasehold deploy plan --project shop-prod --region europe-west1
    """  # noqa: D301
    steps = _survey(installation, as_json=as_json, proposes=True)
    return NOT_COMPLETED if _unknown(steps) else DONE


@click.command()
@installation_options
@json_option
def drift(*, installation: Installation, as_json: bool) -> int:
    """Exit 1 where something is missing, or is not as the tables and settings say.

    \b
    Example:
      leasehold deploy drift --project shop-prod --region europe-west1
    """  # noqa: D301
    steps = _survey(installation, as_json=as_json)
    return FOUND if any(step.look.state in _DRIFTED for step in steps) else DONE


@click.command()
@installation_options
@click.option("--update", is_flag=True, help="Change Scheduler jobs that differ, too.")
@click.option(
    "--before-deploy",
    is_flag=True,
    help="Fail where a secret has no value: no function can be deployed with it.",
)
@click.option(
    "--with-proposals",
    is_flag=True,
    help="Change queues and functions as `plan` proposes, once all is there.",
)
@json_option
def apply(
    *,
    installation: Installation,
    update: bool,
    before_deploy: bool,
    with_proposals: bool,
    as_json: bool,
) -> int:
    """Create what is missing, in order; a second apply goes on where this one ended.

    \b
    Example:
      leasehold deploy apply --project shop-prod --region europe-west1
    """  # noqa: D301
    with _sigterm_ends_it():
        code = _apply(installation, update=update, before_deploy=before_deploy, as_json=as_json)
        if with_proposals and code == DONE:
            code = _apply_proposals(installation)
        return code


def _apply(installation: Installation, *, update: bool, before_deploy: bool, as_json: bool) -> int:
    resources = _resources(installation)
    steps: list[Step] = []
    unread: OSError | None = None
    code = DONE
    try:
        patience = Patience(tell=note)
        for step in create_missing(
            resources, installation.project, update=update, patience=patience
        ):
            steps.append(step)
            if not as_json and unread is None and _is_worth_a_line(step):
                unread = _unread(partial(print_done, step))
                if unread is not None:
                    note("what is done is not read any more; it goes on.")
    except KeyboardInterrupt as interrupt:
        code = TERMINATED if isinstance(interrupt, TerminatedError) else INTERRUPTED
    left = resources[len(steps) :]
    answer = partial(_print_answer, installation, steps, left, as_json=as_json)
    unread = _unread(answer) or unread
    _conclude(installation, steps, left)
    is_ready = not before_deploy or _have_values(steps)
    code = code or (DONE if is_ready and not _failed(steps) else NOT_COMPLETED)
    if code == DONE and unread is not None:
        raise unread
    return code


def _apply_proposals(installation: Installation) -> int:
    """Apply what is proposed, with a line for each on stderr: the answer is that of `apply`."""
    steps = list(survey(_resources(installation), installation.project))
    proposals = proposals_of(installation, steps)
    code = DONE
    for one, problem in apply_proposals(installation, proposals, steps):
        if problem:
            code = NOT_COMPLETED
            print_error(f"not applied: {one.sentence} {problem}.")
        else:
            note(f"applied: {one.sentence}")
    if proposals:
        note("write these values into deployment.py: the next deploy goes by it.")
    return code


def _unread(print_it: Callable[[], None]) -> OSError | None:
    """Print what was done; return why it could not be written. That stops no work."""
    try:
        print_it()
        sys.stdout.flush()
    except OSError as error:
        forget_stdout()
        return error
    return None


def _print_answer(
    installation: Installation, steps: Sequence[Step], left: Sequence[Resource], *, as_json: bool
) -> None:
    if as_json:
        print_json(steps_json(installation, steps, left))
    else:
        print_repairs(steps)
        print_line(counts_of(steps))


def _conclude(installation: Installation, steps: Sequence[Step], left: Sequence[Resource]) -> None:
    """Say, beside the answer, what was not done."""
    print_warnings(installation, steps)
    if left:
        first = f"{left[0].kind} {left[0].name}"
        print_error(f"interrupted at {first}: {len(left)} resources were not done.")
    if left or _failed(steps):
        note("apply again: it goes on from there, and creates nothing twice.")


def _have_values(steps: Sequence[Step]) -> bool:
    """Return whether each secret has what functions are given of it; say of each that has not."""
    lacking = [
        step
        for step in steps
        if step.resource.kind == Kind.SECRET and step.look.state is State.WAITING
    ]
    for step in lacking:
        name, why = f"{step.resource.kind} {step.resource.name}", step.look.why
        print_error(f"nothing is deployed: {name} waits for {why}. Type: {step.repair}")
    return not lacking


def _survey(installation: Installation, *, as_json: bool, proposes: bool = False) -> list[Step]:
    steps = list(survey(_resources(installation), installation.project))
    proposals = proposals_of(installation, steps) if proposes else []
    if as_json:
        further = {"proposals": [asdict(one) for one in proposals]} if proposes else {}
        print_json(steps_json(installation, steps) | further)
    else:
        print_steps(steps)
        for one in proposals:
            print_line(f"proposal: {one.sentence}")
    print_warnings(installation, steps)
    return steps


def _resources(installation: Installation) -> list[Resource]:
    clients = GoogleClients(installation.project)
    from leasehold.deploy.resources.all import all_resources  # noqa: PLC0415 - `--help` answers without

    _check_region(installation, clients)
    catalog = catalog_of(installation)
    return all_resources(installation, catalog, clients)


def _check_region(installation: Installation, clients: GoogleClients) -> None:
    """Refuse a region that there is not; where it is unknown, the resources will say it."""
    from google.api_core.exceptions import GoogleAPIError, InvalidArgument, NotFound  # noqa: PLC0415
    from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415 - `--help` answers without

    try:
        clients.scheduler.get_location({"name": installation.location}, **ONE_TRY)
    except (InvalidArgument, NotFound) as error:
        known = _regions(installation, clients)
        raise click.UsageError(
            f"--region is {installation.region!r}, which Cloud Scheduler and Cloud Tasks do not "
            f"have; allowed: {known}."
        ) from error
    except GoogleAuthError as error:
        if clients.has_emulator:  # what is not on this machine will say it
            return
        raise click.ClickException(str(explain(error, installation.project))) from error
    except GoogleAPIError:
        return


def _regions(installation: Installation, clients: GoogleClients) -> str:
    with contextlib.suppress(Exception):  # this is the message of another error
        parent = f"projects/{installation.project}"
        found = clients.scheduler.list_locations({"name": parent}, **ONE_TRY)
        return ", ".join(sorted(location.location_id for location in found.locations))
    return "one of `gcloud tasks locations list`"


def _is_worth_a_line(step: Step) -> bool:
    return step.action is not Action.NONE or step.look.state is not State.PRESENT


def _unknown(steps: Sequence[Step]) -> bool:
    return any(step.look.state is State.UNKNOWN for step in steps)


def _failed(steps: Sequence[Step]) -> bool:
    return _unknown(steps) or any(step.action is Action.FAILED for step in steps)


@contextlib.contextmanager
def _sigterm_ends_it() -> Iterator[None]:
    kept = signal.getsignal(signal.SIGTERM)
    end_on_sigterm()
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, kept)


# What the commands of provisioning print: for people, and as JSON.


#: What a plan says of a state, in the order of its counts.
PLANNED: Final = {
    State.MISSING: "would be created",
    State.PRESENT: "left alone",
    State.DIFFERENT: "differs",
    State.WAITING: "waits",
    State.UNKNOWN: "unknown",
}
#: Words for the result of each resource.
OUTCOMES: Final = {
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
    return OUTCOMES.get(step.action) or PLANNED[step.look.state]


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
