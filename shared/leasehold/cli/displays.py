"""Which display stderr can bear: lines that move, lines that stay, or nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from leasehold.cli.line_display import LineDisplay, NoDisplay
from leasehold.cli.run_watcher import Display, View
from leasehold.domain.trace import TraceEvent


def display_for(view: View, *, quiet: bool, known: Iterable[TraceEvent] = ()) -> Display:
    """Return the display.

    Args:
        view: how the run can be looked at.
        quiet: show nothing.
        known: events that need no telling.
    """
    if quiet:
        return NoDisplay()
    if sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        from leasehold.cli.live_display import LiveDisplay  # noqa: PLC0415 - rich

        return LiveDisplay(view)
    return LineDisplay(view, known)
