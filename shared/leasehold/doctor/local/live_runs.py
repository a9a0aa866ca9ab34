"""Live runs that would not go on with the catalog that is here, and runs that are not in order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Final, cast

from leasehold.bootstrap import Hooks, Purpose, boot
from leasehold.bootstrap.store_reader import read_store, store_file
from leasehold.doctor.finding import Finding
from leasehold.doctor.local.data_folder import exists
from leasehold.doctor.setup import Setup
from leasehold.domain.printable import counted
from leasehold.errors import LeaseholdError
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Documents
from leasehold.services.audit import audit
from leasehold.services.catalog_fit import LIMIT_CHANGED, LiveRunCheck, RunMisfit, live_runs
from leasehold.services.engine import Engine

#: Of the runs that have no alarm, so many are looked at: `leasehold audit` looks at all.
_NEWEST: Final = 500


def live_runs_in_trouble(setup: Setup, clock: Clock) -> Iterator[Finding]:
    """Yield a finding for each step at which live runs would block, and what an audit finds."""
    file = store_file(setup.store)
    if file is not None and not exists(setup.folder / file):
        return
    with suppress(LeaseholdError), _opened(setup, clock) as engine:  # other looks tell of it
        yield from _misfits(engine)
        yield from _disorder(engine)


def _misfits(engine: Engine) -> Iterator[Finding]:
    found: dict[tuple[str, str], list[RunMisfit]] = defaultdict(list)
    look = LiveRunCheck(engine)
    for run in live_runs(engine):
        for one in look.misfits(run):
            if one.code != LIMIT_CHANGED:
                found[one.step, one.code].append(one)
    for (step, code), misfits in found.items():
        runs = counted(len(misfits), "live run")
        first = misfits[0]
        message = f"{runs} would block at step {step} ({code}), such as {first.run_id}: "
        detail = f"{first.detail.removesuffix('.')}."
        yield Finding("live_run_misfit", message + detail, "leasehold check --live-runs")


def _disorder(engine: Engine) -> Iterator[Finding]:
    """Yield a finding for each way in which runs are not in order, in the words of the audit."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for one in audit(engine, newest=_NEWEST):
        for breach in one.breaches:
            found[breach.code].append((one.run_id, breach.finding))
    for code, runs in found.items():
        count = counted(len(runs), "run is", "runs are")
        run_id, finding = runs[0]
        message = f"{count} not in order ({code}), such as {run_id}: {finding}"
        yield Finding("run_not_in_order", message, "leasehold audit")


@contextmanager
def _opened(setup: Setup, clock: Clock) -> Iterator[Engine]:
    """Open the store, which is read by what leaves its file as it is."""
    store = cast(Documents, read_store(setup.store, clock))  # all that is asked of it are queries
    hooks = Hooks(warn=lambda _: None)
    bundle = boot(
        setup.environ, catalog=setup.catalog, documents=store, purpose=Purpose.READ, hooks=hooks
    )
    with closing(bundle):
        yield bundle.engine
