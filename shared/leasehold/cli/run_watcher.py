"""Watching a run until it rests: the loop, and which display a stream can bear."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from leasehold.domain.manifest import Manifest
from leasehold.domain.trace import TraceEvent

#: How often a run is looked at, and the display drawn.
LOOK_EVERY_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class View:
    """How a run can be looked at while it moves.

    Args:
        show: the run, with what its handler last said.
        trace: all that happened to it.
        pause: returns after a moment, or earlier when the run rests.
        now: the store's time.
        worker: how leases name this process; None: it works on no run.
    """

    show: Callable[[], Manifest]
    trace: Callable[[], list[TraceEvent]]
    pause: Callable[[], None]
    now: Callable[[], datetime]
    worker: str | None = None


class Display(AbstractContextManager["Display"], Protocol):
    """Shows a run as it moves."""

    def update(self, run: Manifest) -> None:
        """Show the run as it is now."""
        ...


def watch(view: View, display: Display) -> Manifest:
    """Look at the run until it rests."""
    with display:
        while True:
            run = view.show()
            display.update(run)
            if run.alarm_at is None:
                return run
            view.pause()
