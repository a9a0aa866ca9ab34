"""A run as it moves, for a terminal: a line a step, drawn anew at each look."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from leasehold.domain.manifest import Manifest
from leasehold.domain.printable import printable
from leasehold.presentation.failure_lines import (
    FailureKind,
    failure_of,
    next_attempt,
    traceback_lines,
)
from leasehold.presentation.formatting import duration, one_line
from leasehold.presentation.run_state import state_of
from leasehold.presentation.step_line import StepLine, step_line

_BAR: Final = 16
_MIN_LINES: Final = 3
_MARGIN: Final = 4  # the head, an error's second line, and the cursor


class LiveDisplay:
    """Draws the steps of a run, in place.

    Args:
        now: the store's time.
        worker: how leases name this process; None: it works on no run.
    """

    def __init__(self, now: Callable[[], datetime], worker: str | None) -> None:
        self._now = now
        self._worker = worker
        self._console = Console(stderr=True, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False)
        self._failed_at: datetime | None = None
        self._kinds: set[FailureKind] = set()

    def __enter__(self) -> Self:
        """Begin to draw."""
        self._live.__enter__()
        return self

    def __exit__(self, *end: object) -> None:
        """Leave what was drawn last where it is."""
        self._live.stop()

    def update(self, run: Manifest) -> None:
        """Draw the run as it is now."""
        now = self._now()
        self._keep_failure(run)
        lines = [step_line(run, step, now, worker=self._worker) for step in run.plan]
        steps = Table.grid(padding=(0, 1))
        for line in self._fitting(lines, run.plan.index(run.current_step)):
            steps.add_row(*_cells(line))
        self._live.update(Group(_head(run, now), steps), refresh=True)

    def _keep_failure(self, run: Manifest) -> None:
        """Print a failure above what is drawn; the first of its kind with its traceback."""
        error = run.error
        if error is None or run.error_at == self._failed_at:
            return
        self._failed_at = run.error_at
        words = f"step {error.step} failed, attempt {error.attempt}: {error.type}: {error.message}"
        again = next_attempt(run)
        failure = failure_of(error)
        lines = [] if failure.kind in self._kinds else traceback_lines(failure.traceback)
        self._kinds.add(failure.kind)
        self._console.print(Text(one_line(f"✗ {words}"), style="red"))
        for line in lines:
            self._console.print(Text(line), soft_wrap=True)
        if again is not None:
            self._console.print(Text(f"again: {again}", style="dim"))

    def _fitting(self, lines: list[StepLine], current: int) -> list[StepLine]:
        """Return the lines around the current step that fit the screen."""
        height = max(_MIN_LINES, self._console.height - _MARGIN)
        first = max(0, min(current - height // 2, len(lines) - height))
        return lines[first : first + height]


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
    bar: ProgressBar | Text = Text("")
    if line.fraction is not None:
        bar = ProgressBar(total=1.0, completed=line.fraction, width=_BAR)
    words = Text(printable(line.words), style="" if line.error is None else line.style)
    if line.error is not None:
        words.append(f"\n{one_line(line.error)}", style="red")
    return (
        Text(line.icon, style=line.style),
        Text(one_line(line.step), style="" if line.began else "dim"),
        Text(line.elapsed, style="dim", justify="right"),
        bar,
        words,
    )
