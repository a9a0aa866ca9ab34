"""Live runs that would not go on with the catalog that is here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from typing import cast

from leasehold.bootstrap import Hooks, Purpose, boot
from leasehold.bootstrap.store_reader import read_store, store_file
from leasehold.doctor.finding import Finding
from leasehold.doctor.local.data_folder import exists
from leasehold.doctor.setup import Setup
from leasehold.errors import LeaseholdError
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Documents
from leasehold.services.catalog_fit import LIMIT_CHANGED, LiveRunCheck, RunMisfit, live_runs


def live_misfits(setup: Setup, clock: Clock) -> Iterator[Finding]:
    """Yield a finding for each step at which live runs would block, and why."""
    file = store_file(setup.store)
    if file is not None and not exists(setup.folder / file):
        return
    found: dict[tuple[str, str], list[RunMisfit]] = defaultdict(list)
    try:
        for one in _misfits(setup, clock):
            found[one.step, one.code].append(one)
    except LeaseholdError:
        return  # the looks at settings and store say what is wrong with them
    for (step, code), misfits in found.items():
        runs = "1 live run" if len(misfits) == 1 else f"{len(misfits)} live runs"
        first = misfits[0]
        message = f"{runs} would block at step {step} ({code}), such as {first.run_id}: "
        detail = f"{first.detail.removesuffix('.')}."
        yield Finding("live_run_misfit", message + detail, "leasehold check --live-runs")


def _misfits(setup: Setup, clock: Clock) -> Iterator[RunMisfit]:
    """Yield what does not fit; the store is read by what leaves its file as it is."""
    store = cast(Documents, read_store(setup.store, clock))  # all that is asked of it are queries
    hooks = Hooks(warn=lambda _: None)
    with closing(
        boot(
            setup.environ,
            catalog=setup.catalog,
            documents=store,
            purpose=Purpose.READ,
            hooks=hooks,
        )
    ) as bundle:
        look = LiveRunCheck(bundle.engine)
        for run in live_runs(bundle.engine):
            yield from (one for one in look.misfits(run) if one.code != LIMIT_CHANGED)
