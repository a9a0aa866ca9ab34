"""How a run is shown as it moves where nothing can be drawn: in lines, as JSON, or not at all."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, Self, TextIO

from leasehold.cli.stdout import print_json_line, print_lines
from leasehold.cli.streams import note_block
from leasehold.domain.manifest import Manifest
from leasehold.domain.printable import one_line
from leasehold.domain.summary import Summary, summary_of
from leasehold.domain.trace import TraceEvent
from leasehold.errors import UnknownRunError
from leasehold.presentation.event_line import (
    FailureKind,
    event_sentence,
    next_attempt,
    traced_failure,
)
from leasehold.presentation.formatting import stamp
from leasehold.presentation.run_state import reported, run_line

#: Between two lines on the progress of a run, so that a log stays readable.
_PROGRESS_EVERY: Final = timedelta(seconds=10)

Trace = Callable[[], list[TraceEvent]]


class Display:
    """Shows a run as it moves; this one shows nothing."""

    def __enter__(self) -> Self:
        """Do nothing."""
        return self

    def __exit__(self, *end: object) -> None:
        """Do nothing."""

    def update(self, run: Manifest) -> None:
        """Show the run as it is now."""


class LineDisplay(Display):
    """For logs and pipes: prints one line a change, and each stays as it was written.

    Args:
        trace: all that happened to the run.
        stream: stdout or stderr.
        known: events that need no line.
    """

    def __init__(self, trace: Trace, stream: TextIO, known: Iterable[TraceEvent] = ()) -> None:
        self._news = _News(trace, known)
        self._print = note_block if stream is sys.stderr else print_lines
        self._kinds: set[FailureKind] = set()
        self._last: Manifest | None = None
        self._reported: tuple[str, str] | None = None
        self._reported_at: datetime | None = None

    def update(self, run: Manifest) -> None:
        """Print what happened since the last look."""
        for event in self._news.of(run):
            self._print_event(event)
        if self._last is None or run.updated_at != self._last.updated_at:
            self._print_retry(run)
        self._print_progress(run)
        self._last = run

    def _print_progress(self, run: Manifest) -> None:
        """Print what the handler says, where that is new, once in a while."""
        words = run.position.step, reported(run)
        if run.position.lease is None or not words[1] or words == self._reported:
            return
        if self._reported_at and run.updated_at - self._reported_at < _PROGRESS_EVERY:
            return
        self._reported, self._reported_at = words, run.updated_at
        self._say(run.updated_at, f"step {words[0]}: {words[1]}")

    def _print_retry(self, run: Manifest) -> None:
        known = None if self._last is None else self._last.position.dispatch.generation
        again = next_attempt(run)
        if again is not None and known != run.position.dispatch.generation:
            self._say(
                run.position.dispatch.not_before, f"step {run.position.step} is due again, {again}"
            )

    def _print_event(self, event: TraceEvent) -> None:
        """Print what happened; the first failure of its kind whole."""
        sentence = event_sentence(event)
        if sentence is not None:
            self._say(event.at, sentence)
        failure = traced_failure(event)
        if failure is not None and failure.lines and failure.kind not in self._kinds:
            self._kinds.add(failure.kind)
            self._print(failure.lines)

    def _say(self, at: datetime, words: str) -> None:
        self._print([one_line(f"{stamp(at)} {words}")])


class JsonDisplay(Display):
    """For programs: a line of JSON on stdout for each change, the run's summary with its news.

    Args:
        trace: all that happened to the run.
    """

    def __init__(self, trace: Trace) -> None:
        self._news = _News(trace)
        self._last: dict[str, Any] | None = None

    def update(self, run: Manifest) -> None:
        """Print the run, if it changed."""
        summary = summary_of(run).model_dump(mode="json")
        if summary != self._last:
            self._last = summary
            print_json_line({**summary, "events": self._news.of(run)})


class _News:
    """What happened to a run since the last look; its trace is read where there can be news.

    Args:
        trace: all that happened to the run.
        known: lines that are not events.
    """

    def __init__(self, trace: Trace, known: Iterable[TraceEvent] = ()) -> None:
        self._trace = trace
        self._known = {_identity(event) for event in known}
        self._mark: tuple[Any, ...] | None = None

    def of(self, run: Manifest) -> list[TraceEvent]:
        """Return the events that are new, oldest first."""
        mark = (run.traced, run.status, run.position.dispatch.generation, run.fencing_token)
        if mark == self._mark:
            return []
        self._mark = mark
        news = [event for event in self._trace() if _identity(event) not in self._known]
        self._known |= {_identity(event) for event in news}
        return news


def _identity(event: TraceEvent) -> tuple[Any, ...]:
    return event.type, event.step, event.trial, event.attempt, event.at


# How all live runs are shown where nothing can be drawn: a line for each change of one.


class LiveRuns(NamedTuple):
    """The runs that are shown, and whether there are more."""

    runs: list[Summary]
    has_more: bool


class LinesOfRuns:
    """For logs, pipes and programs: prints each change of a run, how it ended included.

    Args:
        read: returns a run that is no more among those that are shown.
        print_run: prints a run.
    """

    def __init__(
        self, read: Callable[[str], Manifest], print_run: Callable[[Summary], object]
    ) -> None:
        self._read = read
        self._print_run = print_run
        self._known: dict[str, Summary] = {}

    def __enter__(self) -> Self:
        """Do nothing."""
        return self

    def __exit__(self, *end: object) -> None:
        """Do nothing."""

    def update(self, live: LiveRuns) -> None:
        """Print the runs that changed, and those that ended."""
        before, self._known = self._known, {run.run_id: run for run in live.runs}
        for run_id in before:
            if run_id not in self._known:
                self._print_gone(run_id)
        for run_id, run in self._known.items():
            if run != before.get(run_id):
                self._print_run(run)

    def _print_gone(self, run_id: str) -> None:
        """Print how a run ended; nothing where it is only behind those that are shown."""
        with suppress(UnknownRunError):  # it was purged
            run = self._read(run_id)
            if run.is_terminal:
                self._print_run(summary_of(run))


def print_run_line(now: Callable[[], datetime], run: Summary) -> None:
    """Print a run as it is since its last change."""
    print_lines([one_line(f"{stamp(run.updated_at)} {run_line(run, now()).words}")])
