"""Watching a run until nothing moves it by itself, with the display that stderr can bear."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final, Protocol, Self

from leasehold.cli.exit_codes import explain_interrupt
from leasehold.cli.invocation import command_line, url_words
from leasehold.cli.stderr import note, note_block
from leasehold.client.client import Client
from leasehold.client.patience import retry_unreachable
from leasehold.domain.manifest import Manifest
from leasehold.domain.trace import TraceEvent
from leasehold.presentation.event_line import event_sentence
from leasehold.presentation.failure_lines import (
    FailureKind,
    next_attempt,
    traceback_lines,
    traced_failure,
)
from leasehold.presentation.formatting import stamp

#: How often a run is looked at, and the display drawn.
LOOK_EVERY_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class View:
    """How a run can be looked at while it moves.

    Args:
        show: the run, with what its handler last reported.
        trace: all that happened to it.
        pause: returns after a moment, or earlier when the run is over or waits for a person.
        now: the store's time.
        worker: how leases name this process; None: it works on no run.
    """

    show: Callable[[], Manifest]
    trace: Callable[[], list[TraceEvent]]
    pause: Callable[[], None]
    now: Callable[[], datetime]
    worker: str | None = None


def wait_for(client: Client, run_id: str, *, quiet: bool, url: str | None = None) -> Manifest:
    """Wait until the run is over or waits for a person, whoever works on it."""
    view = View(
        show=retry_unreachable(partial(client.get, run_id)),
        trace=retry_unreachable(partial(client.trace, run_id)),
        pause=partial(time.sleep, LOOK_EVERY_S),
        now=client.source.now,
    )
    meaning = f"run {run_id} is durable and goes on; look at it with:"
    with explain_interrupt(meaning, command_line("show", run_id, *url_words(url))):
        return watch(view, quiet=quiet)


def watch(view: View, *, quiet: bool, known: Iterable[TraceEvent] = ()) -> Manifest:
    """Show the run until nothing moves it: it is over, or waits for a person.

    Args:
        view: how the run can be looked at.
        quiet: show nothing.
        known: events that need no line.
    """
    with NoDisplay() if quiet else _display_of_stderr(view, known) as display:
        while True:
            run = view.show()
            display.update(run)
            if not run.is_moving:
                return run
            view.pause()


class Display(AbstractContextManager["Display"], Protocol):
    """Shows a run as it moves."""

    def update(self, run: Manifest) -> None:
        """Show the run as it is now."""
        ...


class NoDisplay:
    """Shows nothing."""

    def __enter__(self) -> Self:
        """Do nothing."""
        return self

    def __exit__(self, *end: object) -> None:
        """Do nothing."""

    def update(self, run: Manifest) -> None:
        """Show nothing."""


class LineDisplay(NoDisplay):
    """For logs and pipes: prints one line a change, and each stays as it was written.

    Args:
        view: how the run can be looked at.
        known: events that need no line.
    """

    def __init__(self, view: View, known: Iterable[TraceEvent]) -> None:
        self._view = view
        self._printed = {_identity(event) for event in known}
        self._kinds: set[FailureKind] = set()
        self._last: Manifest | None = None

    def update(self, run: Manifest) -> None:
        """Print what happened since the last look."""
        if self._last is None or run.updated_at != self._last.updated_at:
            for event in self._view.trace():
                if _identity(event) not in self._printed:
                    self._printed.add(_identity(event))
                    self._print_event(event)
            self._print_retry(run)
        self._last = run

    def _print_retry(self, run: Manifest) -> None:
        known = None if self._last is None else self._last.dispatch.generation
        again = next_attempt(run)
        if again is not None and known != run.dispatch.generation:
            due = stamp(run.dispatch.not_before)
            note(f"{due} step {run.current_step} is due again, {again}")

    def _print_event(self, event: TraceEvent) -> None:
        """Print what happened; the first failure of its kind with its traceback."""
        sentence = event_sentence(event)
        if sentence is not None:
            note(f"{stamp(event.at)} {sentence}")
        failure = traced_failure(event)
        if failure is not None and failure.traceback and failure.kind not in self._kinds:
            self._kinds.add(failure.kind)
            note_block(traceback_lines(failure.traceback))


def _display_of_stderr(view: View, known: Iterable[TraceEvent]) -> Display:
    if sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        from leasehold.cli.live_display import LiveDisplay  # noqa: PLC0415 - rich

        return LiveDisplay(view.now, view.worker)
    return LineDisplay(view, known)


def _identity(event: TraceEvent) -> tuple[Any, ...]:
    return event.type, event.step, event.trial, event.attempt, event.at
