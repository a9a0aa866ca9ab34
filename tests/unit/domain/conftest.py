"""What the tests of the lifecycle begin with: rules, a time, and runs in each state."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from leasehold.domain.dispatch import Rules
from tests.unit.domain.runs import At, Runs
from tests.worlds.builders import rules_of, step_settings

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def at() -> At:
    """The time so many seconds after the start."""
    return lambda seconds: START + timedelta(seconds=seconds)


@pytest.fixture
def rules() -> Rules:
    """Two repeats, two interruptions, leases of 30 s, a grace of 60 s; draft and send are known.

    A step that waits for a worker elsewhere is given up after 600 s.
    """
    draft = step_settings("draft", schedule_to_start=timedelta(minutes=10))
    send = step_settings(
        "send",
        agent_timeout=timedelta(seconds=10),
        dispatch_deadline=timedelta(seconds=20),
        heartbeat=None,
        queue="mail",
        schedule_to_start=timedelta(minutes=10),
        sources={"agentTimeout": "PIPELINE_SEND_TIMEOUT_MS"},
    )
    return rules_of(draft, send, max_interruptions=2)


@pytest.fixture
def runs(rules: Rules, at: At) -> Runs:
    """Runs in each state."""
    return Runs(rules, at)


@pytest.fixture
def elsewhere(runs: Runs) -> Runs:
    """The same runs where workers elsewhere claim the step draft."""
    return runs.elsewhere()
