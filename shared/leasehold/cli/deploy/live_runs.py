"""`leasehold deploy live-runs`: whether the runs of an installation would go on with this catalog.

It is `leasehold check --live-runs` with the settings that functions are deployed with. A build
runs it before it changes anything.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Final

import click

from leasehold.bootstrap import Hooks, Purpose, boot
from leasehold.cli.deploy.options import installation_options
from leasehold.cli.exit_codes import DONE, FOUND
from leasehold.cli.stdout import print_line
from leasehold.cli.streams import print_error, warn
from leasehold.deploy.environment import catalog_of, environment_of
from leasehold.deploy.installation import Installation
from leasehold.deploy.resources.resource import State
from leasehold.deploy.steps import survey
from leasehold.domain.printable import counted
from leasehold.google_clients.clients import GoogleClients
from leasehold.registry.pipelines import Catalog
from leasehold.services.catalog_fit import LIMIT_CHANGED, LiveRunCheck, RunMisfit
from leasehold.services.catalog_fit import live_runs as runs_of

#: The indexes that live runs are found by, without which Firestore refuses the query.
INDEXES: Final = (
    "runs (deadLettered ASCENDING, createdAt DESCENDING)",
    "runs (cancelled ASCENDING, status ASCENDING, createdAt DESCENDING)",
)
_WHAT_TO_DO: Final = (
    "put the catalog right or cancel them, or deploy all the same with _ALLOW_MISFITS=yes "
    "(--allow-misfits): such a run blocks with its reason, and goes on once that is put right"
)


@click.command()
@installation_options
@click.option(
    "--allow-misfits",
    envvar="LEASEHOLD_ALLOW_MISFITS",
    is_flag=True,
    help="Deploy although live runs would not go on with the catalog: `yes`.",
)
def live_runs(*, installation: Installation, allow_misfits: bool) -> int:
    """Look at the runs that have not ended: a line for each that would block; 1 if one would.

    Where there is no database yet, or Firestore still builds the indexes, there is none to look at.

    \b
    Example:
      leasehold deploy live-runs --project shop-prod --region europe-west1
    """  # noqa: D301
    if absent := _absent(installation):
        print_line(f"no live run to look at: {absent} (a first deploy)")
        return DONE
    count, found = _misfits(installation, catalog_of(installation))
    for one in found:
        print_line(f"{one.run_id} {one.step} {one.code}: {one.detail}")
    print_line(
        f"{counted(count, 'live run')} looked at, {len(found)} would block with this catalog"
    )
    if not found:
        return DONE
    if allow_misfits:
        warn(
            f"{counted(len(found), 'live run')} will block, and they are deployed for all the same."
        )
        return DONE
    print_error(
        f"{counted(len(found), 'live run')} would block, so nothing is deployed: {_WHAT_TO_DO}."
    )
    return FOUND


def _absent(installation: Installation) -> str:
    """Return what of the store is not there yet; empty: it can be asked for its runs.

    Raises:
        ClickException: Firestore does not say.
    """
    clients = GoogleClients(installation.project)
    from leasehold.deploy.resources.database import Database  # noqa: PLC0415 - `--help` answers without
    from leasehold.deploy.resources.indexes import indexes  # noqa: PLC0415 - likewise

    needed = [one for one in indexes(clients, installation) if one.name in INDEXES]
    for step in survey([Database(clients, installation), *needed], installation.project):
        name, state = f"{step.resource.kind} {step.resource.name}", step.look.state
        if state is State.UNKNOWN:
            repair = f". Type: {step.repair}" if step.repair else "."
            raise click.ClickException(f"{name} cannot be looked at: {step.look.why}{repair}")
        if state is State.MISSING:
            return f"there is no {name} yet"
        if state is State.WAITING:
            return f"{name} waits for {step.look.why}"
    return ""


def _misfits(installation: Installation, catalog: Catalog) -> tuple[int, Sequence[RunMisfit]]:
    """Return how many live runs there are, and of each that would block the first reason."""
    settings = environment_of(installation.functions.of_tasks, installation, catalog)
    hooks = Hooks(warn=lambda _: None)
    count, found = 0, []
    with (
        contextlib.redirect_stdout(sys.stderr),  # what handlers print while they are imported
        closing(boot(settings, catalog=catalog, purpose=Purpose.READ, hooks=hooks)) as bundle,
    ):
        look = LiveRunCheck(bundle.engine)
        for one in runs_of(bundle.engine):
            count += 1
            found += _first_that_blocks(look.misfits(one))
    return count, found


def _first_that_blocks(misfits: Iterable[RunMisfit]) -> list[RunMisfit]:
    """Return the first misfit that keeps a run from going on, or nothing."""
    return [one for one in misfits if one.code != LIMIT_CHANGED][:1]
