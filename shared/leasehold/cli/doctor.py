"""`leasehold doctor`: what is silently wrong here, or deployed, and what to type about it."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from typing import Any, Final

import click

from leasehold.cli.exit_codes import DONE, FOUND
from leasehold.cli.options import json_option
from leasehold.cli.settings_files import note_settings_files
from leasehold.cli.stdout import print_json, print_line
from leasehold.cli.streams import note, warn
from leasehold.doctor.finding import Finding, Kind
from leasehold.doctor.installation import examine_installation
from leasehold.doctor.machine import examine_machine
from leasehold.doctor.setup import lenient_settings

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.:-]{0,62}")
_ALLOWED: Final = "allowed: up to 63 of a-z 0-9 . : -"


def _name(_context: click.Context, param: click.Parameter, given: str | None) -> str | None:
    """Refuse what no project and no region is named: it would be part of an address."""
    if given is not None and not _NAME.fullmatch(given):
        raise click.BadParameter(f"{given[:60]!r}; {_ALLOWED}.", param=param)
    return given


@click.command()
@click.option("--live", is_flag=True, help="Look at what is deployed, too.")
@click.option(
    "--project", metavar="ID", callback=_name, help="With --live.  [default: of LEASEHOLD_TASKS]"
)
@click.option(
    "--region", metavar="REGION", callback=_name, help="With --live.  [default: as above]"
)
@json_option
def doctor(*, live: bool, project: str | None, region: str | None, as_json: bool) -> int:
    """Find hidden problems on this machine, with --live also in Google Cloud; change nothing.

    It finds what `check` finds, and more: variables that nothing reads, limits that do not fit,
    problems of the data folder and the store, emulators that were left running. Each finding is one
    line, with the command that repairs it. Exits with 1 if it finds something.

    With --live it also looks at functions, queues, jobs, subscriptions, indexes, secrets and who
    may call what, with your credentials, and makes no call that writes.

    \b
    Examples:
      leasehold doctor
      leasehold doctor --live --project shop-prod --region europe-west1
    """  # noqa: D301
    if (project or region) and not live:
        raise click.UsageError("--project and --region go with --live.")
    where = _place(project, region) if live else None
    with contextlib.redirect_stdout(sys.stderr):  # what modules print while they are imported
        setup, found = examine_machine(os.environ)
        if where is not None:
            found += examine_installation(setup, *where)
    findings = _of(Kind.FINDING, found)
    if as_json:
        print_json(_as_json(found))
        return FOUND if findings else DONE
    for finding in findings:
        print_line(_line(finding))
    if not findings:
        print_line("nothing found")
    note_settings_files()
    for warning in _of(Kind.WARNING, found):
        warn(_line(warning))
    for proposal in _of(Kind.PROPOSAL, found):
        note(f"proposal: {_line(proposal)}")
    return FOUND if findings else DONE


def _place(project: str | None, region: str | None) -> tuple[str, str]:
    """Return project and region: as given, else as the settings name them."""
    settings = lenient_settings(os.environ)
    tasks, store = str(settings["LEASEHOLD_TASKS"]), str(settings["LEASEHOLD_STORE"])
    if tasks.startswith("cloud-tasks://"):
        of_project, of_region = tasks.removeprefix("cloud-tasks://").split("/")
        project, region = project or of_project, region or of_region
    if project is None and store.startswith("firestore://"):
        project = store.split("/")[2]
    if project is None or region is None:
        missing = " and ".join(
            name for name, value in (("--project", project), ("--region", region)) if value is None
        )
        raise click.UsageError(
            f"--live needs {missing}; or set LEASEHOLD_TASKS=cloud-tasks://PROJECT/LOCATION."
        )
    for name, value in (("the project", project), ("the region", region)):
        if not _NAME.fullmatch(value):
            raise click.UsageError(f"{name} of the settings is {value[:60]!r}; {_ALLOWED}.")
    return project, region


def _line(finding: Finding) -> str:
    """Return a finding as tools for errors read it: file, line, what."""
    places = [str(part) for part in (finding.file, finding.line) if part is not None]
    return ": ".join([":".join(places), finding.sentence] if places else [finding.sentence])


def _of(kind: Kind, found: list[Finding]) -> list[Finding]:
    return [one for one in found if one.kind is kind]


def _as_json(found: list[Finding]) -> dict[str, Any]:
    return {f"{kind}s": [_fields(one) for one in _of(kind, found)] for kind in Kind}


def _fields(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "message": finding.message,
        "repair": finding.repair or None,
        "file": finding.file,
        "line": finding.line,
    }
