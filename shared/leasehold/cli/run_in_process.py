"""`leasehold start --in-process`: run a run in this process, from wherever it was left."""

from __future__ import annotations

import contextlib
from functools import partial

from leasehold.cli.displays import display_for
from leasehold.cli.formatting import ago, stamp
from leasehold.cli.interrupts import end_as_interrupted_on_sigterm, telling_interrupts
from leasehold.cli.run_result import tell_ending
from leasehold.cli.run_watcher import LOOK_EVERY_S, View, watch
from leasehold.cli.start_options import Start
from leasehold.cli.stderr import say
from leasehold.cli.stdout import stdout_kept_for_the_answer
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome
from leasehold.domain.trace import TraceEvent
from leasehold.in_process import InProcessEngine
from leasehold.services.start_run import start_run


def run_here(asked: Start, run_id: str) -> int:
    """Run the run until it rests; return the exit code.

    What handlers print goes to stderr: stdout is the answer's.
    """
    end_as_interrupted_on_sigterm()
    meaning = (
        f"run {run_id} is durable; what runs here is asked to stop (once more: leave at once). "
        "Continue the run with:"
    )
    with (
        stdout_kept_for_the_answer(),
        # the rehearsal warned, and the display tells of dead letters
        InProcessEngine(warn=lambda _: None, report=lambda _: None) as here,
        telling_interrupts(meaning, asked.command),
    ):
        ended = _run(here, asked)
    return tell_ending(ended, as_json=asked.as_json)


def _run(here: InProcessEngine, asked: Start) -> Manifest:
    change = start_run(here.engine, asked.request)
    run_id = change.manifest.run_id
    known: list[TraceEvent] = []
    if change.outcome is Outcome.EXISTING:
        known = here.trace(run_id)
        here.adopt(run_id)
        _tell_holder(here, run_id)
    view = View(
        show=partial(here.show, run_id),
        trace=partial(here.trace, run_id),
        pause=partial(_pause, here, run_id),
        now=here.engine.clock.now,
        worker=here.engine.holder,
    )
    return watch(view, display_for(view, quiet=asked.as_json, known=known))


def _tell_holder(here: InProcessEngine, run_id: str) -> None:
    """Say who works on the run, where that is somebody else."""
    lease = here.show(run_id).lease
    if lease is None or lease.holder == here.engine.holder:
        return
    until = f"{stamp(lease.expires_at)} ({ago(lease.expires_at, here.engine.clock.now())})"
    say(
        f"Run {run_id} is worked on by {lease.holder}; its lease ends at {until} unless that "
        "worker renews it. Waiting."
    )


def _pause(here: InProcessEngine, run_id: str) -> None:
    """Wait a moment, or until the run rests."""
    with contextlib.suppress(TimeoutError):
        here.wait(run_id, LOOK_EVERY_S)
