"""`leasehold check`: all that is wrong with a project, before anything of it runs."""

from __future__ import annotations

import contextlib
import os
import sys

import click

from leasehold.cli.exit_codes import DONE, FOUND
from leasehold.cli.options import json_option
from leasehold.cli.stderr import warn
from leasehold.cli.stdout import print_json, print_line
from leasehold.static_check import CheckResult, Finding, check_project


@click.command()
@json_option
def check(*, as_json: bool) -> int:
    """Check settings, catalog, handlers, gates, channels and models, and run nothing.

    Each handler and gate is imported, and has to take (ctx, given); what a step gives has to be
    what the next one can take. No store is opened. Exits 1 where something is found: run it in
    your own CI. A variable of a channel that is not set here is only warned of.

    \b
    Example:
      LEASEHOLD_CATALOG=pipelines.catalog leasehold check
    """  # noqa: D301
    with contextlib.redirect_stdout(sys.stderr):  # what modules print while they are imported
        result = check_project(os.environ)
    if as_json:
        print_json(_as_json(result))
    elif result.findings:
        for finding in result.findings:
            print_line(_line(finding))
    else:
        print_line(f"nothing found: {_counts(result)}")
    for sentence in result.warnings:
        warn(sentence)
    return FOUND if result.findings else DONE


def _counts(result: CheckResult) -> str:
    counts = {"step": result.steps, "gate": result.gates, "pipeline": result.pipelines}
    if result.channels:
        counts["channel"] = result.channels
    return ", ".join(f"{count} {what}{'' if count == 1 else 's'}" for what, count in counts.items())


def _line(finding: Finding) -> str:
    """Return a finding as tools for errors read it: file, line, what."""
    places = [str(part) for part in (finding.file, finding.line) if part is not None]
    return ": ".join([":".join(places), finding.message] if places else [finding.message])


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
    return {"findings": findings, "warnings": result.warnings, "checked": counts}
