"""Every run that breaks the rule that a live run has an owner or an alarm; and its repair."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from leasehold.domain import lifecycle
from leasehold.domain.lifecycle import Breach
from leasehold.domain.manifest import Manifest, manifest_of
from leasehold.domain.status import Outcome
from leasehold.errors import LeaseholdError, UnreadableRunError
from leasehold.ports.documents import Query, Snapshot
from leasehold.services.adopt_runs import alarmed
from leasehold.services.engine import Engine, change_run, dispatch_rules
from leasehold.services.paging import WHOLE_RUNS, scan
from leasehold.services.task_presence import task_presence
from leasehold.services.worker_notes import steps_known_elsewhere

_UNREADABLE: Final = "unreadable"


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


def audit(engine: Engine, *, repair: bool = False) -> Iterator[AuditResult]:
    """Look at every run of the store.

    Args:
        engine: the parts.
        repair: repair what is found.
    """
    for found in _suspects(engine):
        try:
            manifest = manifest_of(found.ref.id, found.document)
            broken = tuple(lifecycle.breaches(manifest, found.read_at, engine.rules))
        except (UnreadableRunError, ArithmeticError) as error:  # or a time that no calendar has
            problem = error.message if isinstance(error, UnreadableRunError) else str(error)
            yield AuditResult(found.ref.id, (Breach(_UNREADABLE, problem, "None is known."),))
            continue
        if broken:
            outcome = _repaired(engine, manifest) if repair else None
            yield AuditResult(manifest.run_id, broken, outcome)


def _repaired(engine: Engine, manifest: Manifest) -> Outcome | None:
    try:
        look = task_presence(engine, manifest)
        step = manifest.current_step
        known = step not in engine.catalog.steps and step in steps_known_elsewhere(engine)
        rules = dispatch_rules(engine)
        repair = partial(lifecycle.on_audit, rules=rules, known_elsewhere=known, **look)
        change = change_run(engine, manifest.run_id, repair)
    except (LeaseholdError, ArithmeticError) as error:
        engine.log(f"run {manifest.run_id} is not repaired: {error}")
        return None
    return change.outcome if change.changed else None


def _suspects(engine: Engine) -> Iterator[Snapshot]:
    """Yield all runs; one without a time of its creation is found by its alarm, if it has one."""
    by_creation = Query("runs", order_by="createdAt", descending=True, limit=WHOLE_RUNS)
    seen: set[str] = set()
    for found in itertools.chain(scan(engine.documents, by_creation), alarmed(engine.documents)):
        if found.ref.id not in seen:
            seen.add(found.ref.id)
            yield found
