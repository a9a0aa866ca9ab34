"""A progress report after the last renewal is kept by the end of the attempt."""

from __future__ import annotations

import pytest

from leasehold.domain.manifest_parts import Progress
from leasehold.services.read_runs import get_run
from leasehold.testing import FrozenClock, InProcessEngine

LAST = Progress(fraction=0.9, message="at the end")


@pytest.mark.parametrize(
    ("end", "status", "kept"),
    [
        ("complete", "COMPLETED", LAST),
        ("fail", "ERROR", LAST),
        ("outage", "PENDING", LAST),
        ("checkpoint", "ERROR", Progress(fraction=0.5, message="before")),
    ],
)
def test_the_last_word_of_a_handler_is_kept(
    engine: InProcessEngine, clock: FrozenClock, end: str, status: str, kept: Progress
) -> None:
    """No renewal came: its clock stands still."""
    run = engine.start("says", {"end": end})
    engine.run_until_idle()

    left = get_run(engine.engine, run.run_id)
    assert (left.status, left.steps["say"].progress) == (status, kept)
