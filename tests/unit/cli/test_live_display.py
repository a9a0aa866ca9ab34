"""A part of a terminal that is drawn anew, while other threads print above it."""

from __future__ import annotations

import io
import sys
import threading

import pytest

from leasehold.cli import live_display
from leasehold.cli.live_display import LiveTable
from leasehold.cli.run_displays import LiveRuns
from tests.unit.domain.runs import At
from tests.worlds.waiting import until


def test_a_line_that_is_printed_at_its_end_does_not_keep_it_from_ending(
    at: At, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The announcement of a run that is over is printed at that moment."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")  # it counts as a terminal then
    monkeypatch.setattr(sys, "stdout", screen := io.StringIO())
    table = LiveTable(lambda: at(4))
    ending = threading.Thread(target=table.__exit__, daemon=True)

    def has_to_wait() -> bool:
        frame = sys._current_frames().get(ending.ident or 0)  # noqa: SLF001 - there is no other way
        return frame is not None and frame.f_code.co_filename == live_display.__file__

    class Line:
        def __rich__(self) -> str:
            """Return what is printed, once the end of the display waits for that."""
            ending.start()
            until(has_to_wait)
            return "an announcement"

    printing = threading.Thread(target=table._console.print, args=[Line()], daemon=True)  # noqa: SLF001
    table.__enter__()
    table.update(LiveRuns([], has_more=False))
    printing.start()
    printing.join(30)
    ending.join(30)

    assert not printing.is_alive()
    assert not ending.is_alive()
    assert "an announcement" in screen.getvalue()
