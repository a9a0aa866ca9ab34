"""A run as it moves, for a terminal: a line a step, drawn anew at each look."""

from __future__ import annotations

from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from leasehold.cli.formatting import duration, one_line, state_of
from leasehold.cli.run_watcher import View
from leasehold.cli.step_line import StepLine, step_line
from leasehold.domain.manifest import Manifest
from leasehold.domain.printable import printable

_BAR: Final = 16
_MIN_LINES: Final = 3
_ROOM: Final = 4  # the head, an error's second line, and the cursor


class LiveDisplay:
    """Draws the steps of a run, in place.

    Args:
        view: how the run can be looked at.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._console = Console(stderr=True, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False)

    def __enter__(self) -> Self:
        """Begin to draw."""
        self._live.__enter__()
        return self

    def __exit__(self, *end: object) -> None:
        """Leave what was drawn last where it is."""
        self._live.stop()

    def update(self, run: Manifest) -> None:
        """Draw the run as it is now."""
        now = self._view.now()
        lines = [step_line(run, step, now, worker=self._view.worker) for step in run.plan]
        steps = Table.grid(padding=(0, 1))
        for line in self._fitting(lines, run.plan.index(run.current_step)):
            steps.add_row(*_cells(line))
        passed = duration((now if run.alarm_at else run.updated_at) - run.created_at)
        state = state_of(run)
        head = Text.assemble(
            (one_line(run.pipeline), "bold"),
            f" {one_line(run.run_id)} ",
            (one_line(state.shown), state.style),
            (f" {passed}", "dim"),
        )
        self._live.update(Group(head, steps), refresh=True)

    def _fitting(self, lines: list[StepLine], current: int) -> list[StepLine]:
        """Return the lines around the current step that fit the screen."""
        room = max(_MIN_LINES, self._console.height - _ROOM)
        first = max(0, min(current - room // 2, len(lines) - room))
        return lines[first : first + room]


def _cells(line: StepLine) -> tuple[Text, Text, Text, ProgressBar | Text, Text]:
    bar: ProgressBar | Text = Text("")
    if line.fraction is not None:
        bar = ProgressBar(total=1.0, completed=line.fraction, width=_BAR)
    words = Text(printable(line.words), style="" if line.error is None else line.style)
    if line.error is not None:
        words.append(f"\n{one_line(line.error)}", style="red")
    return (
        Text(line.mark, style=line.style),
        Text(one_line(line.step), style="" if line.began else "dim"),
        Text(line.elapsed, style="dim", justify="right"),
        bar,
        words,
    )
