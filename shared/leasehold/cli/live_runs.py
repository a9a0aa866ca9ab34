"""`leasehold check --live-runs`: which runs would not go on with the catalog that is here."""

from __future__ import annotations

import contextlib
import sys

from leasehold.bootstrap import Purpose
from leasehold.cli.bundle import on_this_store, open_bundle, purpose_on_store
from leasehold.cli.exit_codes import DONE, FOUND
from leasehold.cli.stderr import note
from leasehold.cli.stdout import print_json, print_line
from leasehold.client.server_upkeep import ServerUpkeep
from leasehold.services.catalog_fit import LIMIT_CHANGED, LiveRunCheck, RunMisfit, live_runs


def check_live_runs(url: str | None, *, as_json: bool) -> int:
    """Print what of the live runs does not fit, of a server or of the store; return the exit code.

    Args:
        url: the server; None: the store.
        as_json: print it as JSON.
    """
    with contextlib.redirect_stdout(sys.stderr):
        count, found = _misfits(url)
    if as_json:
        print_json({"runs": [_fields(one) for one in found]})
    else:
        for one in found:
            print_line(f"{one.run_id} {one.step} {one.code}: {one.detail}")
    stuck = {one.run_id for one in found if one.code != LIMIT_CHANGED}
    runs = "1 live run" if count == 1 else f"{count} live runs"
    line = f"{runs} looked at, {len(stuck)} would not go on with this catalog"
    note(line if url or count else on_this_store(line))
    return FOUND if stuck else DONE


def _misfits(url: str | None) -> tuple[int, list[RunMisfit]]:
    """Return how many runs were looked at, and what was found of them."""
    server = None if url is None else ServerUpkeep(url)
    purpose = Purpose.PREVIEW if server else purpose_on_store(Purpose.READ)
    found: list[RunMisfit] = []
    count = 0
    with open_bundle(purpose=purpose, warns=False) as bundle:
        runs = live_runs(bundle.engine) if server is None else server.live_runs()
        look = LiveRunCheck(bundle.engine, None if server is None else server.load)
        for run in runs:
            count += 1
            found += look.misfits(run)
    return count, found


def _fields(one: RunMisfit) -> dict[str, str]:
    return {"runId": one.run_id, "step": one.step, "code": one.code, "detail": one.detail}
