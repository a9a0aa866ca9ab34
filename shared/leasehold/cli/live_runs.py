"""`leasehold check --live-runs`: which runs would not go on with the catalog that is here."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from leasehold.api import calls
from leasehold.api.runs import RunResponse, RunsQuery
from leasehold.bootstrap import Purpose
from leasehold.cli.bundle import on_this_store, open_bundle, purpose_on_store
from leasehold.cli.exit_codes import DONE, FOUND
from leasehold.cli.stderr import note
from leasehold.cli.stdout import print_json, print_line
from leasehold.client.client import Client
from leasehold.domain.manifest import Manifest, read_as
from leasehold.domain.printable import counted
from leasehold.errors import UnreadableRunError
from leasehold.services.catalog_fit import (
    LIMIT_CHANGED,
    LIVE,
    GivenValue,
    LiveRunCheck,
    RunMisfit,
    live_runs,
)
from leasehold.services.limits import DEFAULT_PAGE


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
    line = f"{counted(count, 'live run')} looked at, {len(stuck)} would not go on with this catalog"
    note(line if url or count else on_this_store(line))
    return FOUND if stuck else DONE


def _misfits(url: str | None) -> tuple[int, list[RunMisfit]]:
    """Return how many runs were looked at, and what was found of them."""
    server = None if url is None else Client(url)
    purpose = Purpose.PREVIEW if server else purpose_on_store(Purpose.READ)
    found: list[RunMisfit] = []
    count = 0
    with open_bundle(purpose=purpose, warns=False) as bundle:
        runs = live_runs(bundle.engine) if server is None else _live_runs(server)
        look = LiveRunCheck(bundle.engine, None if server is None else partial(_load, server))
        for run in runs:
            count += 1
            found += look.misfits(run)
    return count, found


def _live_runs(server: Client) -> Iterator[Manifest]:
    """Yield the runs of a server that have not ended, each once, read page by page."""
    seen: set[str] = set()
    for status in LIVE:
        query = RunsQuery(status=status, dead_lettered=False, limit=DEFAULT_PAGE)
        while True:
            page = server.call(calls.manifests, query)
            for run in filter(None, map(_run, page.runs)):
                if not run.is_terminal and run.run_id not in seen:
                    seen.add(run.run_id)
                    yield run
            if page.next_page_token is None:
                break
            query = query.model_copy(update={"page_token": page.next_page_token})


def _run(shown: Mapping[str, Any]) -> Manifest | None:
    """Return a run of a server; None for one that this version cannot read, which is said."""
    run_id = str(shown.get("runId"))
    try:
        return read_as(RunResponse, run_id, shown).to_manifest()
    except UnreadableRunError as error:
        note(str(error))
        return None


def _load(server: Client, value: GivenValue) -> str:
    """Return the text of a value of a run; a large one only the server can reach."""
    if value.kept.ref is None:
        return value.kept.text or "null"
    if value.source is None:
        return json.dumps(server.call(calls.run_input, None, value.run))
    return json.dumps(server.output(value.run, value.source))


def _fields(one: RunMisfit) -> dict[str, str]:
    return {"runId": one.run_id, "step": one.step, "code": one.code, "detail": one.detail}
