"""`leasehold show`: one run, whole."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

import click

from leasehold.api.children import ChildReport
from leasehold.api.deliveries import DeliveryReport
from leasehold.api.runs import RunResponse
from leasehold.cli.delivery_line import announced_to
from leasehold.cli.opened import client_at
from leasehold.cli.options import json_option, run_argument, url_option
from leasehold.cli.stdout import (
    Fact,
    Row,
    print_block,
    print_facts,
    print_json,
    print_table,
)
from leasehold.client.client import Client
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.manifest import Manifest, to_document
from leasehold.domain.manifest_parts import StepRecord
from leasehold.domain.status import RunStatus
from leasehold.domain.trials import trial_words
from leasehold.errors import ServerRefusedError
from leasehold.presentation.event_line import failure_of
from leasehold.presentation.formatting import StyledText, ago, duration, stamp
from leasehold.presentation.run_state import (
    DEAD_LETTER_ICON,
    SKIPPED,
    ended_attempts,
    grade_of,
    state_of,
    status_style,
    value_in_short,
)
from leasehold.registry.dead_letters import DEAD_LETTERS

_COLUMNS: Final = ("STEP", "STATUS", "TIME", "BOOTSTRAP", "EXECUTION", "ATTEMPTS", "OUTPUT")

_HAS_ATTEMPT: Final = (RunStatus.IN_PROGRESS, RunStatus.BLOCKED, RunStatus.COMPLETED)


@click.command()
@run_argument
@url_option
@json_option
def show(*, run_id: str, url: str | None, as_json: bool) -> None:
    """Show one run: where it stands, and why.

    \b
    Example:
      leasehold show r-0123456789abcdef
    """  # noqa: D301
    with client_at(url) as client:
        run, now = client.get(run_id), client.connection.now()
        deliveries = () if as_json else _deliveries(client, run)
        children = None if as_json or not run.is_resting else client.children(run)
    if as_json:
        print_json(to_document(RunResponse.of(run)))
        return
    facts = [*_identity(run, now), *_troubles(run, now), *_work(run, now)]
    if children is not None:
        facts.append(("waits for", children.words))
    print_facts([*facts, *_announced(deliveries, now)])
    click.echo()
    until = now if run.is_moving else run.updated_at
    records = [run.steps[step] for step in run.whole_plan]
    rows = [_row(run, step, until) for step in run.whole_plan]
    columns: tuple[str, ...] = _COLUMNS
    for column, words in _FURTHER:
        if any(map(words, records)):
            columns = (*columns, column)
            rows = [(*row, words(one)) for row, one in zip(rows, records, strict=True)]
    print_table(columns, rows)
    if children is not None:
        click.echo()
        print_table(_CHILD_COLUMNS, [_child(one) for one in children.children])
    if run.error is not None and (lines := failure_of(run.error).lines):
        print_block(f"error of attempt {run.error.attempt} of step {run.error.step}:", lines)


def _deliveries(client: Client, run: Manifest) -> Sequence[DeliveryReport]:
    """Return what was announced of the run; nothing where a server is older, and cannot say."""
    if run.announcement is None:
        return ()
    with contextlib.suppress(ServerRefusedError):
        return client.deliveries(run)
    return ()


def _announced(deliveries: Sequence[DeliveryReport], now: datetime) -> Iterator[Fact]:
    if deliveries:
        yield "announced", announced_to(deliveries, now)


def _identity(run: Manifest, now: datetime) -> Iterator[Fact]:
    yield "run", StyledText(run.run_id, "bold")
    yield "pipeline", run.pipeline
    yield "status", state_of(run)
    yield "generation", str(run.position.dispatch.generation)
    yield "created", _when(run.created_at, now)
    if run.completed_at is not None:
        took = duration(run.completed_at - run.created_at)
        yield "completed", f"{stamp(run.completed_at)}, in {took}"
    if run.labels:
        yield "labels", ", ".join(run.labels)
    if run.idempotency_key is not None:
        yield "idempotency key", run.idempotency_key
    if run.parent is not None:
        yield "waited for by", f"{run.parent.run_id}, at {run.parent.place}"
    if run.recreated_from is not None:
        yield "made of", run.recreated_from
    if run.recreated_as:
        yield "made into", ", ".join(run.recreated_as)
    yield "input", value_in_short(KeptValue(text=run.input, ref=run.input_ref))


def _troubles(run: Manifest, now: datetime) -> Iterator[Fact]:
    if run.dead_letter_reason is not None and run.dead_lettered_at is not None:
        entry = DEAD_LETTERS[run.dead_letter_reason.value]
        yield (
            "dead letter",
            StyledText(f"{DEAD_LETTER_ICON} {entry.key}: {entry.label}", "bold red"),
        )
        yield "meaning", entry.meaning
        yield "detail", run.dead_letter_detail or ""
        yield "given up", _when(run.dead_lettered_at, now)
        yield "remedy", entry.remediation
    if run.block is not None:
        yield "blocked", StyledText(f"{run.block.code}: {run.block.finding}", "yellow")
        yield "remedy", run.block.remediation
    if run.unawaited_signals:
        yield "signals kept", f"{run.unawaited_signals}: nothing has waited for them so far"
    if run.error is not None:
        error = f"{run.error.type} ({run.error.code}): {run.error.message}"
        where = f" at {run.error.origin}" if run.error.origin else ""
        yield "error", StyledText(error, "red")
        yield "raised", f"attempt {run.error.attempt} of step {run.error.step}{where}"


def _work(run: Manifest, now: datetime) -> Iterator[Fact]:
    yield from _spend(run)
    if run.position.lease is not None:
        until = ago(run.position.lease.expires_at, now)
        yield "lease", f"{run.position.lease.holder}, token {run.fencing_token}, ends {until}"
        if run.position.heartbeat_at is not None:
            yield "heartbeat", ago(run.position.heartbeat_at, now)
    elif run.is_moving and not run.is_resting:
        due = run.position.dispatch.not_before
        wanted = run.awaited_limit or "a worker"
        is_later = due > now and not run.awaited_limit
        when = f"at {stamp(due)} ({ago(due, now)})" if is_later else f"waits for {wanted}"
        yield "next", f"attempt {run.position.attempt} of step {run.position.step} {when}"
    yield from _trials(run)


_CHILD_COLUMNS: Final = ("CHILD", "RUN", "STATUS", "ITEM", "DONE", "FAILED", "LEFT", "WAITS FOR")


def _child(child: ChildReport) -> Row:
    counts = (child.done, child.failed, child.left)
    return (
        child.name,
        child.run_id,
        StyledText(child.state, status_style(child.status)),
        "" if child.item is None else str(child.item),
        *(str(count) if any(counts) else "" for count in counts),
        child.finding or "",
    )


def _spend(run: Manifest) -> Iterator[Fact]:
    """Yield what the run has spent, how much it may, and what it was spared."""
    of_budget = "" if run.budget is None else f" of its budget of {run.budget.words}"
    if of_budget or not run.spend.is_nothing:
        yield "spent", f"{run.spend.words}{of_budget}"
    if spared := run.spared_words:
        yield "spared", spared


def _trials(run: Manifest) -> Iterator[Fact]:
    """Yield the trial that the run is in, or the one that counts."""
    if words := trial_words(run):
        yield "trial", words
    looped = run.looped_steps
    review = run.steps[looped[-1]] if looped else None
    if review is not None and review.trial is not None:
        made = len(review.trials or ()) + 1
        score = "" if review.verdict is None else f", score {review.verdict.score:g}"
        yield "trials", f"{made} made; trial {review.trial} counts{score}"


def _row(run: Manifest, step: str, until: datetime) -> Row:
    record = run.steps[step]
    if by := run.skipped_by(step):
        return step, StyledText(SKIPPED, "dim"), "", "", "", "", f"by step {by}"
    began, ended = record.started_at, record.completed_at or until
    short = value_in_short(record.kept_output)
    grade = grade_of(record)
    return (
        step,
        StyledText(record.status.value, status_style(record.status)),
        "" if began is None else duration(ended - began),
        *_phases(record),
        "" if began is None else _attempts(record),
        f"{grade} {short}" if grade else short,
    )


def _phases(record: StepRecord) -> tuple[str, str]:
    """Return how long both phases took of the attempt that made the output, or that runs."""
    bootstrap, execution = (
        "" if seconds is None else duration(timedelta(seconds=seconds))
        for seconds in (record.bootstrap_seconds, record.execution_seconds)
    )
    return f"{bootstrap}, cold" if bootstrap and record.cold_start else bootstrap, execution


def _attempts(record: StepRecord) -> str:
    """Return how many attempts were begun, and how those ended that gave no output."""
    causes = ended_attempts(record.attempts)
    begun = record.attempts.ended + (record.status in _HAS_ATTEMPT)
    return f"{begun} ({causes})" if causes else str(begun)


def _calls(record: StepRecord) -> str:
    """Return how many calls were made once, and how many later ones that spared."""
    calls = record.calls
    if calls is None:
        return ""
    diverged = f", {calls.diverged} diverged" if calls.diverged else ""
    return f"{calls.made} made, {calls.spared} spared{diverged}"


def _spent(record: StepRecord) -> str:
    """Return what all attempts of a step have spent."""
    return "" if record.spend is None else record.spend.words


#: Columns that are there where a step has something to say in them.
_FURTHER: Final = (("CALLS", _calls), ("SPENT", _spent))


def _when(at: datetime, now: datetime) -> str:
    return f"{stamp(at)} ({ago(at, now)})"
