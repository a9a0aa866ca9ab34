"""What could be better, by what was measured: how many instances to keep warm."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import timedelta
from typing import Any, Final

from leasehold.bootstrap.store_reader import read_store, store_file
from leasehold.doctor.finding import Finding, Kind
from leasehold.doctor.local.data_folder import exists
from leasehold.doctor.local.stored import time_of
from leasehold.doctor.setup import Setup
from leasehold.domain.prewarming import ColdStart, prewarming
from leasehold.errors import LeaseholdError
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Query

#: So many entries are read: a proposal is no report.
_ENTRIES: Final = Query("ledger", limit=500, within=5.0)
_LONGEST_S: Final = 3600


def proposals(setup: Setup, clock: Clock) -> Iterator[Finding]:
    """Yield how many instances of the function that runs steps are worth keeping warm."""
    file = store_file(setup.store)
    if file is not None and not exists(setup.folder / file):
        return
    try:
        with closing(read_store(setup.store, clock)) as store:
            entries = [one.document for one in store.query(_ENTRIES)]
    except LeaseholdError:
        return  # the store's own look says what is wrong with it
    starts = [start for entry in entries for start in cold_starts(entry)]
    step = setup.functions.of_tasks
    found = prewarming(starts, step.max_instances)
    if found is not None and found.instances > step.min_instances:
        message = (
            f"min_instances={found.instances} in the row {step.name} of deployment.py (now "
            f"{step.min_instances}): 95% of {found.starts} cold starts took up to "
            f"{found.p95.total_seconds():.1f} s, and there are {found.per_hour:.1f} of them an "
            "hour. It costs that many idle instances."
        )
        yield Finding("min_instances_proposed", message, kind=Kind.PROPOSAL)


def cold_starts(entry: Mapping[str, Any]) -> Iterator[ColdStart]:
    """Yield the cold starts that an entry of the ledger has measured, whoever wrote it."""
    steps = entry.get("steps")
    for step in steps.values() if isinstance(steps, Mapping) else ():
        if not isinstance(step, Mapping) or step.get("coldStart") is not True:
            continue
        at, seconds = time_of(step.get("startedAt")), step.get("bootstrapSeconds")
        if not isinstance(seconds, int | float) or not math.isfinite(seconds):
            continue
        if at is not None and 0 <= seconds <= _LONGEST_S:
            yield ColdStart(at, timedelta(seconds=seconds))
