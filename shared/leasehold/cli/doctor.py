"""`leasehold doctor`: what is silently wrong here, or deployed, and what to type about it."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

import click

from leasehold.cli.exit_codes import DONE, FOUND
from leasehold.cli.options import json_option
from leasehold.cli.stderr import warn
from leasehold.cli.stdout import print_json, print_line
from leasehold.doctor.finding import Finding
from leasehold.doctor.machine import examine_machine


@click.command()
@json_option
def doctor(*, as_json: bool) -> int:
    """Say what is silently wrong here, or with --live what is deployed; it changes nothing.

    It finds what `check` finds, and what that does not look at: variables that nothing reads,
    limits that do not fit, the data folder and the store, emulators that were left over. Each
    finding is one line with the command that repairs it. Exits 1 where something is found.

    \b
    Example:
      leasehold doctor
    """  # noqa: D301
    with contextlib.redirect_stdout(sys.stderr):  # what modules print while they are imported
        found = examine_machine(os.environ)
    findings = [one for one in found.findings if not one.is_warning]
    warnings = [one for one in found.findings if one.is_warning]
    if as_json:
        print_json(_as_json(findings, warnings))
    else:
        for finding in findings:
            print_line(_line(finding))
        if not findings:
            print_line("nothing found")
        for warning in warnings:
            warn(_line(warning))
    return FOUND if findings else DONE


def _line(finding: Finding) -> str:
    """Return a finding as tools for errors read it: file, line, what."""
    places = [str(part) for part in (finding.file, finding.line) if part is not None]
    return ": ".join([":".join(places), finding.sentence] if places else [finding.sentence])


def _as_json(findings: list[Finding], warnings: list[Finding]) -> dict[str, Any]:
    return {
        "findings": [_fields(one) for one in findings],
        "warnings": [_fields(one) for one in warnings],
    }


def _fields(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "message": finding.message,
        "repair": finding.repair or None,
        "file": finding.file,
        "line": finding.line,
    }
