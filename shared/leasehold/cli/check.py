"""`leasehold check`: all that is wrong with a project, before anything of it runs."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import click

from leasehold.api import calls
from leasehold.api.runs import RunResponse, RunsQuery
from leasehold.bootstrap import Purpose
from leasehold.cli.exit_codes import DONE, FOUND
from leasehold.cli.opened import on_this_store, open_bundle, purpose_on_store
from leasehold.cli.options import json_option, url_option
from leasehold.cli.settings_files import note_settings_files
from leasehold.cli.stdout import print_json, print_line
from leasehold.cli.streams import note, warn
from leasehold.client.client import Client
from leasehold.doctor.variables import unread_lines
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
from leasehold.services.request_bounds import DEFAULT_PAGE_ITEMS
from leasehold.static_check import CheckResult, Homes, check_project, line_of


@click.command()
@click.option(
    "--live-runs",
    is_flag=True,
    help="Check live runs instead: would they go on with this catalog?",
)
@url_option
@json_option
def check(*, live_runs: bool, url: str | None, as_json: bool) -> int:
    """Check settings, catalog, handlers, gates, channels and models; run nothing.

    Each handler and gate is imported, and has to take (ctx, given); the output of a step has to fit
    the input of the next one. No store is opened. Exits with 1 if it finds something: run it in
    your CI. Two things are only warnings: a variable of a channel that is not set here, and a
    variable that looks like a setting but that nothing reads.

    With --live-runs, before a deploy, it reads the live runs of the store, or of the server at
    --url. It lists those with a step, or a pipeline to wait for, that this catalog lacks, a
    handler that cannot be imported, or a value that no longer fits. It exits 1 if there is any.
    Changed limits are listed too.

    \b
    Examples:
      LEASEHOLD_CATALOG=pipelines.catalog leasehold check
      leasehold check --live-runs --url https://runs.example.com
    """  # noqa: D301
    if live_runs:
        return check_live_runs(url, as_json=as_json)
    if url is not None:
        raise click.UsageError("--url goes with --live-runs.")
    with contextlib.redirect_stdout(sys.stderr):  # what modules print while they are imported
        result = check_project(os.environ)
        warnings = [*result.warnings, *unread_lines(os.environ)]
    if as_json:
        print_json(_as_json(result, warnings))
    elif result.findings:
        for finding in result.findings:
            print_line(line_of(finding))
    else:
        print_line(f"nothing found: {_counts(result)}")
    note_settings_files()
    if not as_json:
        for line in _lines_of_steps(result):
            print_line(line)
    for sentence in warnings:
        warn(sentence)
    return FOUND if result.findings else DONE


def _lines_of_steps(result: CheckResult) -> Iterator[str]:
    """Yield what is right, and better known before a step runs."""
    for step, homes in result.homes.items():
        if homes.refused:
            yield _home_line(step, homes)
    for step, reuse in result.reuse.items():
        yield _reuse_line(step, reuse)


def _home_line(step: str, homes: Homes) -> str:
    """Return where a step may run whose limits do not allow all."""
    allowed, refused = " and ".join(homes.allowed), ", ".join(homes.refused)
    return f"step {step} has {homes.deadline} an attempt: {allowed}; not {refused} (30 min)"


def _reuse_line(step: str, reuse: int) -> str:
    """Return what is given up for attempts that cost less."""
    return (
        f"step {step} has reuse={reuse}: so many of its attempts may run in one process, and what "
        "its modules keep in memory is there in the next one"
    )


def _counts(result: CheckResult) -> str:
    counts = {"step": result.steps, "gate": result.gates, "pipeline": result.pipelines}
    if result.channels:
        counts["channel"] = result.channels
    return ", ".join(counted(count, what) for what, count in counts.items())


def _as_json(result: CheckResult, warnings: list[str]) -> dict[str, object]:
    findings = [
        {"code": one.code, "message": one.message, "file": one.file, "line": one.line}
        for one in result.findings
    ]
    counts = {
        "steps": result.steps,
        "gates": result.gates,
        "pipelines": result.pipelines,
        "channels": result.channels,
    }
    homes = {step: homes.allowed for step, homes in result.homes.items()}
    return {
        "findings": findings,
        "warnings": warnings,
        "checked": counts,
        "homes": homes,
        "reuse": result.reuse,
    }


# `leasehold check --live-runs`: which runs would not go on with the catalog that is here.


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
        query = RunsQuery(status=status, dead_lettered=False, limit=DEFAULT_PAGE_ITEMS)
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
