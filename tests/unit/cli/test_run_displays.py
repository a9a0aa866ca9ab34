"""A run as it moves, in lines and as JSON: each change once."""

from __future__ import annotations

import json
import sys

import pytest

from leasehold.cli.run_displays import JsonDisplay, LineDisplay
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Progress
from leasehold.domain.stored import replace
from leasehold.domain.timeline import timeline
from leasehold.domain.trace import TraceEvent
from tests.unit.domain.runs import At, Runs
from tests.worlds.builders import at_position, with_step


class Watched:
    """A run as a display reads it, and how often its trace was read."""

    def __init__(self, run: Manifest) -> None:
        self.run = run
        self.traces = 0

    def trace(self) -> list[TraceEvent]:
        self.traces += 1
        return timeline(self.run, [])


def said(run: Manifest, at: At, seconds: float, fraction: float, message: str) -> Manifest:
    """The run after a renewal that took the progress of its handler along."""
    progress = Progress(fraction=fraction, message=message)
    steps = with_step(run, "draft", progress=progress)
    return at_position(replace(run, steps=steps, updated_at=at(seconds)), heartbeat_at=at(seconds))


def test_progress_is_a_line_when_it_is_new_and_then_every_10_s(
    runs: Runs, at: At, capsys: pytest.CaptureFixture[str]
) -> None:
    leased = runs.leased()
    watched = Watched(leased)
    display = LineDisplay(watched.trace, sys.stdout)

    for second in range(0, 26, 2):
        watched.run = said(leased, at, second, second / 100, f"page {second}")
        display.update(watched.run)
        display.update(watched.run)

    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("Z ")[2] for line in lines] == [
        "run started: letters",
        "step draft started",
        "step draft: 0%, page 0",
        "step draft: 10%, page 10",
        "step draft: 20%, page 20",
    ]
    assert watched.traces == 1


def test_a_line_says_which_checkpoint_there_is(
    runs: Runs, at: At, capsys: pytest.CaptureFixture[str]
) -> None:
    watched = Watched(runs.checkpointed(runs.leased(), at=3, iterations=14, phase="crawl"))

    LineDisplay(watched.trace, sys.stderr).update(watched.run)

    assert capsys.readouterr().err.splitlines()[-1].endswith("step draft: checkpoint 14 of crawl")


def test_json_has_a_line_for_each_change_and_what_happened_once(
    runs: Runs, at: At, capsys: pytest.CaptureFixture[str]
) -> None:
    watched = Watched(runs.pending())
    display = JsonDisplay(watched.trace)

    for run in (runs.pending(), runs.leased(), said(runs.leased(), at, 2, 0.5, "half\n\x1b[2J")):
        watched.run = run
        display.update(run)
        display.update(run)

    out = capsys.readouterr().out
    waiting, begun, half = map(json.loads, out.splitlines())
    assert [event["type"] for event in waiting["events"]] == ["run_started"]
    assert [event["type"] for event in begun["events"]] == ["step_started"]
    assert (waiting["heartbeatAt"], half["heartbeatAt"]) == (None, "2026-01-01T12:00:02Z")
    assert half["progress"]["message"] == "half\n\x1b[2J"
    assert half["events"] == []
    assert "\x1b" not in out
    assert watched.traces == 2
