"""`leasehold check`: all that is wrong with a project, before anything of it runs."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

import click

from leasehold.cli.exit_codes import DONE, FOUND
from leasehold.cli.live_runs import check_live_runs
from leasehold.cli.options import json_option, url_option
from leasehold.cli.settings_files import note_settings_files
from leasehold.cli.stderr import warn
from leasehold.cli.stdout import print_json, print_line
from leasehold.domain.printable import counted
from leasehold.static_check import CheckResult, Homes, check_project, line_of


@click.command()
@click.option(
    "--live-runs",
    is_flag=True,
    help="Look at the runs that have not ended instead: would they go on with this catalog?",
)
@url_option
@json_option
def check(*, live_runs: bool, url: str | None, as_json: bool) -> int:
    """Check settings, catalog, handlers, gates, channels and models, and run nothing.

    Each handler and gate is imported, and has to take (ctx, given); what a step gives has to be
    what the next one can take. No store is opened. Exits 1 where something is found: run it in
    your own CI. A variable of a channel that is not set here is only warned of.

    With --live-runs, before a deploy: it reads the runs that have not ended, of the store or of
    the server at --url, and says which of them have a step that this catalog lacks, a handler that
    does not resolve, or a value that no longer fits. Exits 1 where there is any. That a limit has
    changed is said, and holds nothing up.

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
    if as_json:
        print_json(_as_json(result))
    elif result.findings:
        for finding in result.findings:
            print_line(line_of(finding))
    else:
        print_line(f"nothing found: {_counts(result)}")
    note_settings_files()
    if not as_json:
        for line in _lines_of_steps(result):
            print_line(line)
    for sentence in result.warnings:
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


def _as_json(result: CheckResult) -> dict[str, object]:
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
        "warnings": result.warnings,
        "checked": counts,
        "homes": homes,
        "reuse": result.reuse,
    }
