"""Every run that breaks the rule that a live run has an owner or an alarm; and its repair."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import Final

from leasehold.domain import lifecycle
from leasehold.domain.lifecycle import Breach
from leasehold.domain.manifest import Manifest, manifest_of
from leasehold.domain.status import Outcome, RunStatus
from leasehold.domain.timestamps import stamp
from leasehold.errors import LeaseholdError, UnreadableRunError
from leasehold.frozen import dataclass
from leasehold.ports.documents import Query, Snapshot
from leasehold.services.adopt_runs import alarmed, expire_if_gone
from leasehold.services.engine import Engine, change_run
from leasehold.services.paging import WHOLE_RUNS, scan
from leasehold.services.read_runs import RunFilter, matching_runs
from leasehold.services.sweep import task_presence
from leasehold.services.worker_notes import steps_known_elsewhere

_UNREADABLE: Final = "unreadable"
_HOLDER_GONE: Final = "holder_gone"


@dataclass(frozen=True, slots=True)
class AuditResult:
    """A run that is not in order.

    Args:
        run_id: the run.
        breaches: what is wrong with it.
        outcome: what its repair came to; None: it was not tried, or came to nothing.
    """

    run_id: str
    breaches: tuple[Breach, ...]
    outcome: Outcome | None = None


def audit(
    engine: Engine, *, repair: bool = False, newest: int | None = None
) -> Iterator[AuditResult]:
    """Look at every run of the store.

    Args:
        engine: the parts.
        repair: repair what is found.
        newest: look at no more than so many of the newest runs, and at those with an alarm.
    """
    for found in _suspects(engine, newest):
        try:
            manifest = manifest_of(found.ref.id, found.document)
            broken = (
                *lifecycle.breaches(manifest, found.read_at, engine.rules),
                *_holder_gone(engine, manifest, found.read_at),
            )
        except (UnreadableRunError, ArithmeticError) as error:  # or a time that no calendar has
            problem = error.message if isinstance(error, UnreadableRunError) else str(error)
            yield AuditResult(found.ref.id, (Breach(_UNREADABLE, problem, "None is known."),))
            continue
        if broken:
            outcome = _repaired(engine, manifest) if repair else None
            yield AuditResult(manifest.run_id, broken, outcome)


def waiting_for_code(engine: Engine) -> int:
    """Return how many runs are blocked until the code is put right; in order, but they stand.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    blocked = matching_runs(engine, RunFilter(status=RunStatus.BLOCKED.value))
    return sum(run.look_at is not None and not run.is_terminal for run in blocked)


def _holder_gone(engine: Engine, manifest: Manifest, now: datetime) -> Iterator[Breach]:
    """Yield that the process of a lease is gone; once that is over, it is the sweep's anyway."""
    lease = manifest.position.lease
    if lease is not None and now < lease.expires_at and engine.process.is_gone(lease.holder):
        finding = f"Its lease runs until {stamp(lease.expires_at)}, and {lease.holder} is gone."
        yield Breach(_HOLDER_GONE, finding, "The lease is ended, and the step dispatched again.")


def _repaired(engine: Engine, manifest: Manifest) -> Outcome | None:
    try:
        is_expired = expire_if_gone(engine, manifest.run_id, is_gone=engine.process.is_gone)
        look = task_presence(engine, manifest)
        step = manifest.step_type
        known = step not in engine.catalog.steps and step in steps_known_elsewhere(engine)
        rules = engine.dispatch_rules()
        repair = partial(lifecycle.on_audit, rules=rules, known_elsewhere=known, **look)
        change = change_run(engine, manifest.run_id, repair)
    except (LeaseholdError, ArithmeticError) as error:
        engine.listeners.log(f"run {manifest.run_id} is not repaired: {error}")
        return None
    if change.changed:
        return change.outcome
    return Outcome.EXPIRED if is_expired else None


def _suspects(engine: Engine, newest: int | None) -> Iterator[Snapshot]:
    """Yield all runs; one without a time of its creation is found by its alarm, if it has one."""
    by_creation = Query("runs", order_by="createdAt", descending=True, limit=WHOLE_RUNS)
    seen: set[str] = set()
    created = itertools.islice(scan(engine.documents, by_creation), newest)
    for found in itertools.chain(created, alarmed(engine.documents)):
        if found.ref.id not in seen:
            seen.add(found.ref.id)
            yield found
