"""`leasehold deploy plan`, `apply` and `drift`: create what an installation has in Google Cloud.

`plan` says what would be created, `apply` creates it, `drift` says what is not as it should be.
Nothing is ever deleted, and what exists is left alone: see docs/provisioning.md.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import click

from leasehold.cli.deploy.options import installation_options
from leasehold.cli.deploy.report import (
    counts_of,
    print_done,
    print_repairs,
    print_steps,
    print_warnings,
    steps_json,
)
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
from leasehold.cli.stderr import note, print_error
from leasehold.cli.stdout import print_json, print_line
from leasehold.cli.streams import forget_stdout
from leasehold.deploy.environment import catalog_of
from leasehold.deploy.installation import Installation
from leasehold.deploy.permissions import Kind
from leasehold.deploy.resources.resource import Resource, State
from leasehold.deploy.steps import Action, Patience, Step, survey
from leasehold.deploy.steps import apply as create_missing
from leasehold.live.call_errors import explain
from leasehold.live.clients import ONE_TRY, GoogleClients

_DRIFTED = {State.MISSING, State.DIFFERENT, State.UNKNOWN}


@click.command()
@installation_options
@json_option
def plan(*, installation: Installation, as_json: bool) -> int:
    """Say what would be created, what is left alone, what differs, and what waits."""
    steps = _survey(installation, as_json=as_json)
    return NOT_COMPLETED if _unknown(steps) else DONE


@click.command()
@installation_options
@json_option
def drift(*, installation: Installation, as_json: bool) -> int:
    """Exit 1 where something is missing, or is not as the tables and settings say."""
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
@json_option
def apply(*, installation: Installation, update: bool, before_deploy: bool, as_json: bool) -> int:
    """Create what is missing, in order; a second apply goes on where this one ended."""
    with _sigterm_ends_it():
        return _apply(installation, update=update, before_deploy=before_deploy, as_json=as_json)


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


def _unread(print_it: Callable[[], None]) -> OSError | None:
    """Print what was done; return why no one reads it, for which no work is left half done."""
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


def _survey(installation: Installation, *, as_json: bool) -> list[Step]:
    steps = list(survey(_resources(installation), installation.project))
    if as_json:
        print_json(steps_json(installation, steps))
    else:
        print_steps(steps)
    print_warnings(installation, steps)
    return steps


def _resources(installation: Installation) -> list[Resource]:
    clients = GoogleClients(installation.project)
    from leasehold.deploy.resources.all import all_resources  # noqa: PLC0415 - `--help` answers without

    _check_region(installation, clients)
    catalog = catalog_of(installation)
    return all_resources(installation, catalog, clients)


def _check_region(installation: Installation, clients: GoogleClients) -> None:
    """Refuse a region that there is not; where it cannot be told, the resources will say it."""
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
