"""Proposals of `leasehold deploy plan`, and what `apply --with-proposals` does with them.

They are found in the ledger and the budgets of an installation that is there already.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from leasehold.bootstrap import Hooks, Purpose, boot
from leasehold.cli.streams import note
from leasehold.deploy.environment import catalog_of, environment_of
from leasehold.deploy.installation import Installation
from leasehold.deploy.resources.queue import AT_ONCE, QueueResource
from leasehold.deploy.resources.resource import State
from leasehold.deploy.steps import Patience, Step
from leasehold.doctor.proposals import Proposal, all_proposals
from leasehold.errors import LeaseholdError
from leasehold.google_clients.call_errors import explain
from leasehold.google_clients.clients import ONE_TRY, GoogleClients

if TYPE_CHECKING:
    from google.cloud.run_v2 import ServicesClient

_CHANGE_TIMEOUT_S: Final = 180.0
_DATABASE: Final = "database"
_THERE: Final = (State.PRESENT, State.DIFFERENT)


def proposals_of(installation: Installation, steps: Sequence[Step]) -> list[Proposal]:
    """Return what the runs of an installation ask for; a line says why they are not known.

    Args:
        installation: where they run.
        steps: what was found of its resources.
    """
    is_there = any(step.resource.kind == _DATABASE and step.look.state in _THERE for step in steps)
    clients = GoogleClients(installation.project)
    is_played = clients.has_emulator and not os.environ.get("FIRESTORE_EMULATOR_HOST")
    if not is_there or is_played:
        return []
    catalog, function = catalog_of(installation), installation.functions.of_tasks
    queues = [one.queue for one in _untouched_queues(steps)]
    settings = environment_of(function, installation, catalog)
    hooks = Hooks(warn=lambda _: None)
    try:
        bundle = boot(settings, catalog=catalog, purpose=Purpose.READ, hooks=hooks)
        with closing(bundle):
            return all_proposals(bundle.engine, function, queues)
    except LeaseholdError as error:
        note(f"nothing is proposed: {error.message}")
        return []


def apply_proposals(
    installation: Installation, proposals: Sequence[Proposal], steps: Sequence[Step]
) -> Iterator[tuple[Proposal, str]]:
    """Apply each proposal, and yield it with what went wrong; empty: nothing did."""
    services, patience = GoogleClients(installation.project).services, Patience(tries=3)
    queues = {queue.name: queue for queue in _untouched_queues(steps)}
    for one in proposals:
        try:
            if one.is_of_queue:
                patience.call(partial(queues[one.name].deliver_at_once, one.wanted))
            else:
                patience.call(partial(_change_function, services, installation, one))
        except Exception as error:  # noqa: BLE001 - whatever it is, the others are applied
            yield one, explain(error, installation.project).problem
        else:
            yield one, ""


def _untouched_queues(steps: Sequence[Step]) -> list[QueueResource]:
    """Return the queues, or none if one of them has another number than the tables.

    Who operates them has changed it, and has the last word; the others share what is left.
    """
    found = [
        (step.resource, step.look) for step in steps if isinstance(step.resource, QueueResource)
    ]
    are_as_made = all(
        look.state in _THERE and AT_ONCE not in {it.field for it in look.differences}
        for _, look in found
    )
    return [queue for queue, _ in found] if are_as_made else []


def _change_function(
    services: ServicesClient, installation: Installation, proposal: Proposal
) -> None:
    function = installation.functions[proposal.name]
    service = services.get_service(
        {"name": f"{installation.location}/services/{function.service}"}, **ONE_TRY
    )
    if proposal.field == "timeout":
        service.template.timeout = timedelta(seconds=proposal.wanted)
    else:
        service.template.scaling.min_instance_count = proposal.wanted
    service.template.revision = ""  # Cloud Run names the next one
    changing = services.update_service({"service": service}, **ONE_TRY)
    changing.result(timeout=_CHANGE_TIMEOUT_S)  # type: ignore[no-untyped-call]
