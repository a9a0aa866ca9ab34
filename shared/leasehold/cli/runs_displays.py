"""How all live runs are shown where nothing can be drawn: a line for each change of one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple, Self

from leasehold.cli.stdout import print_lines
from leasehold.domain.manifest import Manifest
from leasehold.domain.summary import Summary, summary_of
from leasehold.errors import UnknownRunError
from leasehold.presentation.formatting import one_line, stamp
from leasehold.presentation.run_line import run_line


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
