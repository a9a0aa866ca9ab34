"""`leasehold start`: check the run, record it, and run it here or leave it to a worker."""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import replace
from functools import partial

from leasehold.cli.bundle import opened
from leasehold.cli.displays import display_for
from leasehold.cli.exit_codes import DONE
from leasehold.cli.formatting import Styled, state_of
from leasehold.cli.interrupts import telling_interrupts
from leasehold.cli.invocation import at, shown
from leasehold.cli.run_in_process import run_here
from leasehold.cli.run_readers import ServerSource, Source, StoreSource, retry_unreachable
from leasehold.cli.run_result import tell_ending
from leasehold.cli.run_watcher import LOOK_EVERY_S, View, watch
from leasehold.cli.start_options import Start
from leasehold.cli.stderr import say, warn
from leasehold.cli.stdout import answer_json, answer_line
from leasehold.domain.change import Change
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome
from leasehold.domain.summary import summary_of
from leasehold.services.start_run import start_run


def start(asked: Start) -> int:
    """Start the run; return the exit code."""
    if asked.url is not None:
        return start_there(asked, ServerSource(asked.url))
    asked, run_id = rehearsed(asked)
    return run_here(asked, run_id) if asked.in_process else record(asked)


def rehearsed(asked: Start) -> tuple[Start, str]:
    """Refuse what cannot be started before a store is even made; say what does not hold.

    A start without an idempotency key gets one, so that its command can be given again.

    Returns:
        The start with its key, and the id of its run.
    """
    with opened(absent=True) as bundle, contextlib.redirect_stdout(sys.stderr):
        engine = bundle.engine
        key = asked.request.idempotency_key
        key = f"cli-{engine.clock.new_id()}" if key is None else key
        asked = replace(asked, request=replace(asked.request, idempotency_key=key))
        run = start_run(engine, asked.request).manifest
    for step in run.plan:
        for sentence in engine.rules.known_settings(step).refused:
            warn(sentence)
    return asked, run.run_id


def record(asked: Start) -> int:
    """Write the run down for a worker elsewhere; wait for it where that was asked for."""
    with opened() as bundle:
        change = start_run(bundle.engine, asked.request)
        if not asked.as_json:
            tell_recorded(asked, change)
        if asked.wait:
            source = StoreSource(bundle.engine)
            ended = wait_for(source, change.manifest.run_id, quiet=asked.as_json)
            return tell_ending(ended, as_json=asked.as_json)
    if asked.as_json:
        answer_json(summary_of(change.manifest))
    return DONE


def tell_recorded(asked: Start, change: Change) -> None:
    """Say where the run stands, and that recording it does not run it."""
    run = change.manifest
    if not asked.wait:
        state, style, _ = state_of(run)
        answer_line(Styled(f"run {run.run_id} {state}", style))
    if change.outcome is Outcome.EXISTING:
        say("It was started before with the same idempotency key.")
    if run.alarm_at is not None and run.lease is None:
        say("It waits for a worker; this command runs it here:", asked.command)


def start_there(asked: Start, server: ServerSource) -> int:
    """Have a server start the run; wait for it where that was asked for."""
    is_new, run = server.start(asked.request)
    if asked.wait:
        ended = wait_for(server, run.run_id, quiet=asked.as_json, url=asked.url)
        return tell_ending(ended, as_json=asked.as_json, url=asked.url)
    if asked.as_json:
        answer_json(run)
        return DONE
    state, style, _ = state_of(run)
    answer_line(Styled(f"run {run.run_id} {state}", style))
    if not is_new:
        say("It was started before with the same idempotency key.")
    say("look at it with:", shown("show", run.run_id, "--url", server.url))
    return DONE


def wait_for(source: Source, run_id: str, *, quiet: bool, url: str | None = None) -> Manifest:
    """Wait until the run rests, whoever works on it."""
    view = View(
        show=retry_unreachable(partial(source.get, run_id)),
        trace=retry_unreachable(partial(source.trace, run_id)),
        pause=partial(time.sleep, LOOK_EVERY_S),
        now=source.now,
    )
    meaning = f"run {run_id} is durable and goes on; look at it with:"
    with telling_interrupts(meaning, shown("show", run_id, *at(url))):
        return watch(view, display_for(view, quiet=quiet))
