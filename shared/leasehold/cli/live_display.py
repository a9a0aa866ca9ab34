"""Runs as they move, for a terminal, drawn anew at each look: one step by step, or all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from leasehold.cli.run_displays import Display, LiveRuns
from leasehold.domain.manifest import Manifest
from leasehold.domain.printable import counted, one_line, printable
from leasehold.presentation.event_line import (
    FailureKind,
    failure_of,
    next_attempt,
)
from leasehold.presentation.formatting import duration, stamp
from leasehold.presentation.run_state import RunLine, StepLine, run_line, state_of, step_line

_COLUMNS: Final = ("RUN", "PIPELINE", "STATUS", "STEP", "ATTEMPT", "PROGRESS", "", "HEARTBEAT")
_NARROW_COLUMNS: Final = ("RUN", "PIPELINE", "STATUS", "STEP", "ATTEMPT", "PROGRESS", "HEARTBEAT")
_BAR: Final = 16
_WIDE: Final = 120  # characters a line; where there are fewer, words have the room of the bar
_MAX_STATE_CHARS: Final = 40  # a handler may give its errors any code, and the others need room
_MIN_LINES: Final = 3
_MARGIN: Final = 4  # the head, an error's second line, and the cursor


class _Console(Console):
    """Prints for one thread at a time: lines of handlers go above what another thread draws.

    What is drawn stands where the frame before it stood, and the first one has none: a line that
    another thread printed meanwhile would be appended to its last row. `Live` has a lock as well,
    which each print takes: who needs both takes `printing` first.
    """

    def __init__(self, *, is_stderr: bool) -> None:
        super().__init__(stderr=is_stderr, highlight=False)
        self.printing = threading.RLock()

    def print(self, *objects: Any, **options: Any) -> None:
        """Print these, as `Console` does."""
        with self.printing:
            super().print(*objects, **options)


class _Screen:
    """A part of a terminal that is drawn anew at each look.

    Args:
        is_stderr: on stderr; False: on stdout.
    """

    def __init__(self, *, is_stderr: bool) -> None:
        self._console = _Console(is_stderr=is_stderr)
        self._live = Live(console=self._console, auto_refresh=False)

    def __enter__(self) -> Self:
        """Begin to draw."""
        with self._console.printing:
            self._live.start()
        return self

    def __exit__(self, *end: object) -> None:
        """Leave what was drawn last where it is."""
        with self._console.printing:  # it is drawn once more
            self._live.stop()

    @property
    def _height(self) -> int:
        """How many lines there is room for below a head."""
        return max(_MIN_LINES, self._console.height - _MARGIN)

    def _draw(self, head: Text, table: Table) -> None:
        with self._console.printing:  # it is written after it is printed
            self._live.update(Group(head, table), refresh=True)


class LiveDisplay(_Screen, Display):
    """Draws the steps of a run, in place.

    Args:
        now: the store's time.
        worker: how leases name this process; None: it works on no run.
        is_stderr: on stderr; False: on stdout.
    """

    def __init__(
        self, now: Callable[[], datetime], worker: str | None, *, is_stderr: bool = True
    ) -> None:
        super().__init__(is_stderr=is_stderr)
        self._now = now
        self._worker = worker
        self._failed_at: datetime | None = None
        self._kinds: set[FailureKind] = set()

    def update(self, run: Manifest) -> None:
        """Draw the run as it is now."""
        now = self._now()
        self._keep_failure(run)
        lines = [step_line(run, step, now, worker=self._worker) for step in run.whole_plan]
        steps = Table.grid(padding=(0, 1))
        for line in self._fitting(lines, run.whole_plan.index(run.position.step)):
            steps.add_row(*_cells(line))
        self._draw(_head(run, now), steps)

    def _keep_failure(self, run: Manifest) -> None:
        """Print a failure above what is drawn; the first of its kind whole."""
        error = run.error
        if error is None or run.error_at == self._failed_at:
            return
        self._failed_at = run.error_at
        words = f"step {error.step} failed, attempt {error.attempt}: {error.type}: {error.message}"
        again = next_attempt(run)
        failure = failure_of(error)
        lines = () if failure.kind in self._kinds else failure.lines
        self._kinds.add(failure.kind)
        self._console.print(Text(one_line(f"✗ {words}"), style="red"))
        for line in lines:
            self._console.print(Text(line), soft_wrap=True)
        if again is not None:
            self._console.print(Text(f"again: {again}", style="dim"))

    def _fitting(self, lines: list[StepLine], current: int) -> list[StepLine]:
        """Return the lines around the current step that fit the screen."""
        height = self._height
        first = max(0, min(current - height // 2, len(lines) - height))
        return lines[first : first + height]


class LiveTable(_Screen):
    """Draws the live runs, in place on stdout: a line each, as many as fit.

    Args:
        now: the store's time.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__(is_stderr=False)
        self._now = now

    def update(self, live: LiveRuns) -> None:
        """Draw the runs as they are now."""
        now, shown = self._now(), live.runs[: self._height]
        lines = [run_line(run, now) for run in shown]
        self._draw(_count(live, len(lines), now), _table(lines, self._console.width))


def _count(live: LiveRuns, shown: int, now: datetime) -> Text:
    """Return how many runs there are, and at what time that was so."""
    total = counted(len(live.runs), "live run")
    words = f"more than {total}" if live.has_more else total
    part = "" if shown == len(live.runs) and not live.has_more else f", {shown} shown"
    return Text.assemble((words, "bold"), part, (f"  {stamp(now)}", "dim"))


def _table(lines: list[RunLine], width: int) -> Table:
    """Return a line for each run; ids, which people copy, are whole, and messages have room."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    longest_id = max((len(line.run_id) for line in lines), default=0)
    columns = _COLUMNS if width >= _WIDE else _NARROW_COLUMNS
    for column in columns:  # the last but one takes what is left
        is_id, is_flexible = column == "RUN", column == columns[-2]
        table.add_column(
            column,
            no_wrap=not is_flexible,
            overflow="ellipsis",
            min_width=min(longest_id, width // 3) if is_id else None,
            max_width=None if is_id or is_flexible else width // 6,
        )
    for line in lines:
        table.add_row(*_run_cells(line, has_bar=width >= _WIDE))
    return table


def _run_cells(line: RunLine, *, has_bar: bool) -> tuple[Text | ProgressBar, ...]:
    message = line.message if has_bar else line.reported
    return (
        Text(line.run_id, style="bold"),
        Text(line.pipeline),
        Text(one_line(line.state.on_screen, _MAX_STATE_CHARS), style=line.state.style),
        Text(line.step),
        Text(line.attempt),
        *((_bar(line.fraction),) if has_bar else ()),
        Text(message, no_wrap=True, overflow="ellipsis"),
        Text(line.heartbeat, style="dim"),
    )


def _bar(fraction: float | None) -> ProgressBar | Text:
    if fraction is None:
        return Text("")
    return ProgressBar(total=1.0, completed=fraction, width=_BAR)


def _head(run: Manifest, now: datetime) -> Text:
    passed = duration((now if run.is_moving else run.updated_at) - run.created_at)
    state = state_of(run)
    return Text.assemble(
        (one_line(run.pipeline), "bold"),
        f" {one_line(run.run_id)} ",
        (one_line(state.on_screen), state.style),
        (f" {passed}", "dim"),
    )


def _cells(line: StepLine) -> tuple[Text, Text, Text, ProgressBar | Text, Text]:
    words = Text(printable(line.words), style="" if line.error is None else line.style)
    if line.error is not None:
        words.append(f"\n{one_line(line.error)}", style="red")
    return (
        Text(line.icon, style=line.style),
        Text(one_line(line.step), style="" if line.began else "dim"),
        Text(line.elapsed, style="dim", justify="right"),
        _bar(line.fraction),
        words,
    )
