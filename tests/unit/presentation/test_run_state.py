"""Where a run stands and how it ended, in a few words."""

from __future__ import annotations

import pytest

from leasehold.domain.status import RunStatus
from leasehold.domain.stored import replace
from leasehold.domain.summary import summary_of
from leasehold.presentation.formatting import StyledText
from leasehold.presentation.run_state import (
    result_of,
    state_and_reason,
    state_of,
    status_icon,
    status_style,
)
from tests.unit.domain.runs import Runs


def test_each_status_has_an_icon_and_a_colour() -> None:
    for status in RunStatus:
        assert len(status_icon(status)) == 1
        assert status_style(status)


@pytest.mark.parametrize(
    ("state", "text"),
    [("pending", "PENDING"), ("leased", "IN_PROGRESS"), ("completed", "COMPLETED")],
)
def test_a_run_without_overlay_stands_where_its_status_says(
    runs: Runs, state: str, text: str
) -> None:
    run = getattr(runs, state)()

    assert state_of(run).text == state_of(summary_of(run)).text == text


def test_an_overlay_follows_the_status_and_gives_its_colour(runs: Runs) -> None:
    pending = runs.pending()

    paused = state_of(replace(pending, paused=True))
    cancelled = state_of(replace(pending, cancelled=True))

    assert paused == StyledText("PENDING paused", "bold yellow")
    assert cancelled == StyledText("PENDING cancelled", "dim")


def test_a_run_that_was_given_up_shows_the_reason_in_place_of_its_status(runs: Runs) -> None:
    state = state_and_reason(summary_of(runs.dead_lettered()))

    assert state.text == "ERROR dead-lettered PERMANENT_FAILURE"
    assert state.on_screen == "💀 PERMANENT_FAILURE"


def test_a_run_that_failed_or_is_blocked_shows_the_code_of_it(runs: Runs) -> None:
    failed, blocked = summary_of(runs.failed()), summary_of(runs.blocked())

    assert state_and_reason(failed).text == "ERROR overloaded"
    assert state_and_reason(blocked).text == f"BLOCKED {blocked.block_code}"


def test_a_result_says_how_long_it_took_and_why_it_ended(runs: Runs) -> None:
    dead = runs.dead_lettered()

    assert result_of(runs.completed()).text == "run r-1 COMPLETED in 9.0 s"
    assert result_of(dead).text.startswith("run r-1 💀 dead-lettered, PERMANENT_FAILURE after ")
    assert " at step draft: " in result_of(dead).text
