"""`leasehold workers`, `audit` and `sweep`: who works on the store, and whether all is in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

import click

from leasehold.api.upkeep import AuditedRun, AuditResponse, WorkerReport
from leasehold.cli.exit_codes import DONE, FOUND
from leasehold.cli.invocation import command_line, hint_for_runs
from leasehold.cli.opened import client_at, on_this_store
from leasehold.cli.options import json_option, url_option
from leasehold.cli.stdout import Row, print_facts, print_json, print_table
from leasehold.cli.streams import note
from leasehold.domain.printable import counted
from leasehold.presentation.formatting import StyledText, ago, stamp

_COLUMNS: Final = ("PROCESS", "KIND", "STARTED", "SEEN", "CODE", "STEPS")
_CODE: Final = 8  # characters of a hash, enough to tell two from each other


@click.command()
@url_option
@json_option
def workers(*, url: str | None, as_json: bool) -> None:
    """List the processes that work on the store and were seen within three minutes.

    Deployed functions are among them only while they work.

    \b
    Example:
      leasehold workers
    """  # noqa: D301
    with client_at(url) as client:
        answer = client.workers()
    if as_json:
        print_json(answer)
    elif answer.workers:
        _print(answer.workers)
    else:
        note("no workers" if url is not None else on_this_store("no workers"))


def _print(found: Sequence[WorkerReport]) -> None:
    now = max(one.seen_at for one in found)
    print_table(_COLUMNS, (_row(one, now) for one in found))


def _row(one: WorkerReport, now: datetime) -> Row:
    return (
        one.process,
        one.kind,
        StyledText(stamp(one.started_at), short_form=ago(one.started_at, now)),
        StyledText(stamp(one.seen_at), short_form=ago(one.seen_at, now)),
        one.code_hash[:_CODE],
        ", ".join(one.steps),
    )


# `leasehold sweep`: attend to what is due, once.


@click.command()
@url_option
@json_option
def sweep(*, url: str | None, as_json: bool) -> None:
    """Handle the runs whose alarm is due, once.

    In a deployed installation, Cloud Scheduler does this each minute.

    \b
    Example:
      leasehold sweep --json
    """  # noqa: D301
    with client_at(url) as client:
        done = client.sweep()
        is_left = not client.connection.delivers()
    if as_json:
        print_json(done)
        return
    reasons = ", ".join(f"{count} {reason}" for reason, count in done.by_reason.items())
    given_up = f"{done.dead_lettered} ({reasons})" if reasons else str(done.dead_lettered)
    print_facts(
        [
            ("recovered", str(done.recovered)),
            ("redispatched", str(done.redispatched)),
            ("still queued", str(done.still_queued)),
            ("dead-lettered", given_up),
            ("reannounced", str(done.reannounced)),
            ("archived", str(done.archived)),
            ("unattended", str(done.unattended)),
            ("purged", str(done.purged)),
            ("scheduled", str(done.scheduled)),
            ("documents read", str(done.documents_read)),
        ]
    )
    if done.more:
        note("more runs are due: sweep again")
    if is_left and done.recovered + done.redispatched + done.still_queued:
        hint_for_runs()


# `leasehold audit`: runs without an owner or an alarm, and their repair.


_AUDIT_COLUMNS: Final = ("RUN", "BREACH", "REPAIR")


@click.command()
@click.option("--repair", is_flag=True, help="Repair what is found.")
@url_option
@json_option
def audit(*, repair: bool, url: str | None, as_json: bool) -> int:
    """Find live runs that nothing will move, as they have no owner and no alarm.

    Exits with 0 when there are none, or all are repaired; 1 when something is left.

    \b
    Example:
      leasehold audit --repair
    """  # noqa: D301
    with client_at(url) as client:
        answer = client.audit(repair=repair)
        missing = client.connection.missing_server()
    if as_json:
        print_json(answer)
    else:
        _print_audit(answer, repair=repair)
    if missing is not None:
        note(f"but {missing}")
    if answer.waiting_for_code:
        runs = counted(answer.waiting_for_code, "run waits", "runs wait")
        note(
            f"but {runs} for the code to be put right:", command_line("runs", "--status", "BLOCKED")
        )
    if answer.artifacts_problem is not None:
        note(f"but runs may wait for files: {answer.artifacts_problem}")
    return FOUND if answer.left else DONE


def _print_audit(answer: AuditResponse, *, repair: bool) -> None:
    count = len(answer.found)
    if not count:
        note("every run is in order")
        return
    print_table(_AUDIT_COLUMNS, [row for one in answer.found for row in _rows(one, repair=repair)])
    repaired = f"{count - answer.left} repaired, " if repair else ""
    hint = "" if repair else f"; --repair repairs {'it' if count == 1 else 'them'}"
    note(f"{counted(count, 'run is', 'runs are')} not in order: {repaired}{answer.left} left{hint}")


def _rows(one: AuditedRun, *, repair: bool) -> Iterator[Row]:
    """Yield a row for each breach: what its repair came to, or would do."""
    for breach in one.breaches:
        result = StyledText(breach.repair)
        if repair and one.outcome is None:
            result = StyledText("not repaired", "red")
        elif repair and one.outcome is not None:
            result = StyledText(f"{one.outcome}: {breach.repair}", "green")
        yield one.run_id, StyledText(f"{breach.code}: {breach.finding}", "yellow"), result
