"""The command that a page of runs shows for its filter."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from leasehold.api.runs import RunsQuery
from leasehold.cli.runs import runs
from leasehold.dashboard.pages import STATES
from leasehold.presentation.filter_words import filter_words


@pytest.mark.parametrize(
    "filters",
    [
        *(wanted for *_, wanted in STATES),
        {"reason": "PERMANENT_FAILURE", "deadLettered": "true"},
        {"idPrefix": "r-01", "pipeline": "letters", "label": ["team:a", "x:'y'"]},
        {"trouble": "silent", "since": "2026-11-27", "until": "2026-11-28", "step": "draft"},
        {"deadLettered": "false", "status": "ERROR"},
    ],
)
def test_the_command_takes_the_words(filters: dict[str, str]) -> None:
    wanted = asdict(RunsQuery.read(filters).to_filter())

    context = runs.make_context("runs", filter_words(wanted))

    assert not context.args
