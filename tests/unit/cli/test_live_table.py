"""All live runs in a terminal."""

from __future__ import annotations

import pytest

from leasehold.cli.live_display import LiveTable
from leasehold.cli.run_displays import LiveRuns
from leasehold.domain.manifest_parts import Progress
from leasehold.domain.stored import replace
from leasehold.domain.summary import summary_of
from tests.unit.domain.runs import At, Runs
from tests.worlds.builders import with_step


@pytest.mark.parametrize("width", [80, 110, 160])
def test_ids_are_whole_and_progress_has_room_on_a_terminal_of_any_usual_width(
    runs: Runs,
    at: At,
    width: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A person who sees a run there copies its id, and wants to know how far it is."""
    monkeypatch.setenv("COLUMNS", str(width))
    run = replace(runs.leased(), run_id="r-96cbfc04615e5025", pipeline="reviews-of-papers")
    run = replace(
        run, steps=with_step(run, "draft", progress=Progress(fraction=0.4, message="page 40"))
    )

    with LiveTable(lambda: at(4)) as table:
        table.update(LiveRuns([summary_of(run)], has_more=False))

    (line,) = [line for line in capsys.readouterr().out.splitlines() if "draft" in line]
    assert line.startswith("r-96cbfc04615e5025 ")
    assert ("page 40" if width >= 110 else "40%, ") in line
    assert "s ago" in line
