"""Attempts of this worker whose runs were cancelled by another process."""

from __future__ import annotations

from leasehold.domain.status import Termination
from leasehold.errors import UnknownRunError, UnreadableRunError
from leasehold.services.engine import Engine
from leasehold.services.read_runs import get_run


def stop_cancelled(engine: Engine) -> None:
    """Stop the handlers whose runs were cancelled; their next renewals would tell them later.

    A run that cannot be read keeps no other from being looked at.

    Raises:
        StoreUnavailableError: the store could not be asked.
    """
    for held in engine.leases.held_attempts():
        run_id = held.manifest.run_id
        if not held.is_settled and _is_cancelled(engine, run_id):
            engine.leases.stop_run(run_id, Termination.CANCELLED)


def _is_cancelled(engine: Engine, run_id: str) -> bool:
    try:
        return get_run(engine, run_id).cancelled
    except UnknownRunError:  # only an ended run is purged
        return True
    except UnreadableRunError:  # the renewal says so
        return False
