"""`leasehold start`: check the run, record it, and run it here or leave it to a worker."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import click

from leasehold.api.runs import BudgetPart, StartBody
from leasehold.bootstrap import Purpose, log_report
from leasehold.cli.exit_codes import DONE, end_on_sigterm, explain_interrupt
from leasehold.cli.invocation import command_line, start_command
from leasehold.cli.opened import client_at, open_bundle
from leasehold.cli.options import (
    GivenInput,
    budget_option,
    files_option,
    input_option,
    json_option,
    labels_option,
    url_option,
)
from leasehold.cli.run_displays import Display
from leasehold.cli.stdout import print_json, print_line, print_to_stderr
from leasehold.cli.streams import note, warn
from leasehold.cli.watch import (
    DRAW_EVERY_S,
    View,
    display_on,
    print_result,
    print_result_json,
    read_result,
    wait_for,
    watch_run,
)
from leasehold.client.arguments import read_files
from leasehold.client.client import Client
from leasehold.client.connection import EngineConnection, start_once
from leasehold.domain.manifest import Manifest
from leasehold.domain.slots import Priority
from leasehold.domain.spend import Budget
from leasehold.domain.status import Outcome, RunStatus
from leasehold.domain.summary import Summary
from leasehold.domain.trace import TraceEvent, TraceType
from leasehold.in_process import InProcessEngine
from leasehold.logs.stderr_log import log_to_stderr
from leasehold.presentation.formatting import ago, stamp
from leasehold.presentation.run_state import state_line
from leasehold.registry.dispatch import REMOTE
from leasehold.services.input_files import checked_files
from leasehold.services.reporting import Facts
from leasehold.services.start_run import StartRequest, start_run

_WAITING: Final = (RunStatus.PENDING, RunStatus.ERROR)
_EXISTING: Final = "It was started before with the same idempotency key."


@click.command()
@click.argument("pipeline")
@input_option("The input of the first step: JSON, @FILE, or @- for stdin.  [default: {}]", "{}")
@click.option(
    "--idempotency-key",
    "key",
    metavar="KEY",
    help="The same key and input always mean the same run.",
)
@labels_option("A label, by which to find the run; may be given up to 16 times.")
@files_option("A file for the handlers of the run; may be given up to 16 times.")
@budget_option
@click.option(
    "--priority",
    type=click.Choice([each.value for each in Priority]),
    default="normal",
    help="The priority of the run while it waits for a limit.",
)
@click.option("--no-retry", is_flag=True, help="End the run at the first failure of a step.")
@click.option("--wait", is_flag=True, help="Wait until the run is over or waits for a person.")
@click.option("--in-process", is_flag=True, help="Run it in this process, and wait for it.")
@url_option
@json_option
def start(  # a parameter for each option
    *,
    pipeline: str,
    given: GivenInput,
    key: str | None,
    labels: dict[str, str],
    files: dict[str, Path],
    budget: Budget | None,
    priority: str,
    no_retry: bool,
    wait: bool,
    in_process: bool,
    url: str | None,
    as_json: bool,
) -> int:
    """Start a run of PIPELINE, or continue it.

    The same key means the same run. So repeat a command that was interrupted: with --in-process it
    continues the run. Without --in-process the run is recorded and waits for a worker.

    Exits with 1 if it waited for the run, and the run did not complete.

    \b
    Examples:
      leasehold start summary --input '{"text": "One. Two."}' --in-process
      leasehold start summary --input @request.json --idempotency-key docs-42 --in-process
      leasehold start summary --input '{"text": "One. Two."}' --in-process --no-retry
      leasehold start summary --input @request.json --budget usd=5 --budget tokens=1000000
    """  # noqa: D301
    retries = 0 if no_retry else None
    limit = None if budget is None else budget.as_limit()
    request = StartRequest(
        pipeline,
        given.value,
        key,
        labels,
        retries,
        read_files(files),
        budget=limit,
        priority=priority,
    )
    checked_files(request.files)
    if url is not None:
        if in_process:
            raise click.UsageError("--in-process runs the run here; --url has a server run it.")
        return _record(request, None, url=url, wait=wait, as_json=as_json)
    request, run_id, remote = _preview(request)
    command = start_command(request, given.words, files)
    if in_process:
        _warn_of_unread_variables()
        if remote:
            steps = f"step {remote[0]} is" if len(remote) == 1 else f"steps {', '.join(remote)} are"
            note(
                f"{steps} for remote workers: the run waits there until one claims it, at a "
                "`leasehold serve` on this store."
            )
        return _run_in_process(request, run_id, command=command, as_json=as_json)
    return _record(request, command, url=None, wait=wait, as_json=as_json)


def _warn_of_unread_variables() -> None:
    """Warn of variables that look like settings of what runs here, and are none."""
    from leasehold.doctor.variables import unread_lines  # noqa: PLC0415 - seldom asked for

    for line in unread_lines(os.environ):
        warn(line)


def _preview(request: StartRequest) -> tuple[StartRequest, str, list[str]]:
    """Refuse what cannot be started before a store is even made; warn of what does not hold.

    A start without an idempotency key gets one, so that its command can be given again.

    Returns:
        The request with its key, the id of its run, and those of its steps that are remote.
    """
    with open_bundle(purpose=Purpose.PREVIEW) as bundle, contextlib.redirect_stdout(sys.stderr):
        engine = bundle.engine
        if request.idempotency_key is None:
            request = replace(request, idempotency_key=f"cli-{engine.clock.new_id()}")
        run = start_run(engine, replace(request, files={})).manifest
    types = {step: run.step_type_of(step) for step in run.plan}
    for step in dict.fromkeys(types.values()):
        for sentence in engine.rules.known_settings(step).refused:
            warn(sentence)
    remote = [name for name, step in types.items() if engine.catalog.steps[step].handler == REMOTE]
    return request, run.run_id, remote


def _record(
    request: StartRequest, command: str | None, *, url: str | None, wait: bool, as_json: bool
) -> int:
    """Record the run for a worker; wait for it where that is wanted.

    Args:
        request: the run.
        command: what runs it here; None: a server does.
        url: the server.
        wait: wait until the run is idle.
        as_json: answer with JSON, and show nothing on the way.
    """
    ended, output = None, None
    with client_at(url) as client:
        run, is_new = start_once(client.connection, _body_of(request))
        if not as_json and not is_new:
            note(_EXISTING)
        if wait:
            if not as_json:
                _note_command(run, command)
            ended = wait_for(client, run.run_id, quiet=as_json, url=url)
            output = read_result(ended, client.output) if as_json else None
    if ended is not None and as_json:
        return print_result_json(ended, output, url=url)
    if ended is not None:
        return print_result(ended, url=url)
    if as_json:
        print_json(run)
        return DONE
    print_line(state_line(run))
    if url is not None:
        note("look at it with:", command_line("show", run.run_id, "--url", url))
    _note_command(run, command)
    return DONE


def _body_of(request: StartRequest) -> StartBody:
    """Return the start as a client makes it."""
    body = StartBody(
        pipeline=request.pipeline,
        input=request.input,
        idempotency_key=request.idempotency_key,
        labels=request.labels,
        max_retries=request.max_retries,
        budget=BudgetPart.of(request.budget),
        priority=Priority(request.priority),
    )
    return body.with_files(request.files)


def _note_command(run: Summary, command: str | None) -> None:
    """Say what runs the run here, where it waits for a worker of a store."""
    waits = run.status in _WAITING and not (run.paused or run.cancelled or run.dead_lettered)
    if waits and command is not None:
        note("It waits for a worker; this command runs it here:", command)


def _run_in_process(request: StartRequest, run_id: str, *, command: str, as_json: bool) -> int:
    """Run the run until it is over or waits for a person; return the exit code.

    What handlers print goes to stderr: stdout is the answer's.

    Args:
        request: the run.
        run_id: its id.
        command: what continues it.
        as_json: answer with JSON, and show nothing on the way.
    """
    end_on_sigterm()
    log_to_stderr()
    meaning = (
        f"run {run_id} is durable; what runs here is asked to stop (once more: leave at once). "
        "Continue the run with:"
    )
    with (
        print_to_stderr(),
        # the preview warned
        InProcessEngine(warn=lambda _: None, report=_report) as local,
        explain_interrupt(meaning, command),
    ):
        ended = _run_to_end(local, request, quiet=as_json)
        output = (
            read_result(ended, Client(EngineConnection(local.engine)).output) if as_json else None
        )
    return print_result_json(ended, output) if as_json else print_result(ended)


def _run_to_end(local: InProcessEngine, request: StartRequest, *, quiet: bool) -> Manifest:
    change = start_run(local.engine, request)
    run_id = change.manifest.run_id
    known: list[TraceEvent] = []
    if change.outcome is Outcome.EXISTING:
        known = local.trace(run_id)
        local.adopt(run_id)
        _note_other_worker(local, run_id)
    view = View(
        show=partial(local.show, run_id),
        trace=partial(local.trace, run_id),
        pause=partial(_pause, local, run_id),
        now=local.engine.clock.now,
        worker=local.engine.process.holder,
    )
    return watch_run(view, Display() if quiet else display_on(sys.stderr, view, known=known))


def _report(facts: Facts) -> None:
    """Log each announcement that was sent or failed; the display shows all else."""
    if "channel" in facts and facts["event"] != TraceType.ANNOUNCEMENT_SENT.upper():
        log_report(facts)


def _note_other_worker(local: InProcessEngine, run_id: str) -> None:
    """Say who works on the run, where that is another process."""
    lease = local.show(run_id).position.lease
    if lease is None or lease.holder == local.engine.process.holder:
        return
    until = f"{stamp(lease.expires_at)} ({ago(lease.expires_at, local.engine.clock.now())})"
    note(
        f"Run {run_id} is worked on by {lease.holder}; its lease ends at {until} unless that "
        "worker renews it. Waiting."
    )


def _pause(local: InProcessEngine, run_id: str) -> None:
    """Wait a moment, or until the run is over or waits for a person."""
    with contextlib.suppress(TimeoutError):
        local.wait(run_id, DRAW_EVERY_S)
