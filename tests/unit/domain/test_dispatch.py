"""The limits of an attempt, as its dispatch freezes them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from leasehold.domain.dispatch import Rules, as_dispatched
from leasehold.domain.manifest import to_document
from leasehold.domain.stored import replace
from tests.unit.domain.runs import Runs
from tests.worlds.builders import rules_of, step_settings

S = timedelta(seconds=1)
GIB = 1024**3


@pytest.fixture
def tight() -> Rules:
    """A deploy that gives the step 2 s to clean up, and 1 GiB."""
    return rules_of(step_settings("draft", options={"cleanup_ms": 2000, "memory_limit_bytes": GIB}))


@pytest.mark.parametrize(
    ("timeout", "cleanup", "soft"), [(600, 5, 595), (8, 5, 4), (10, 5, 5), (1, 60, 0.5)]
)
def test_the_soft_limit_leaves_time_to_clean_up_but_at_most_half(
    runs: Runs, timeout: float, cleanup: float, soft: float
) -> None:
    limits = {"agent_timeout": timeout * S, "options": {"cleanup_ms": cleanup * 1000}}
    rules = rules_of(step_settings("draft", **limits))

    dispatch = replace(runs, rules=rules).pending().position.dispatch

    assert (dispatch.soft_limit, dispatch.hard_limit) == (soft * S, timeout * S)


def test_a_clean_up_time_that_was_written_by_hand_breaks_nothing(runs: Runs) -> None:
    """A number that a store takes may be more than a duration can be."""
    dispatch = replace(runs.pending().position.dispatch, cleanup_ms=2**63 - 1)

    assert dispatch.soft_limit == dispatch.hard_limit / 2


def test_the_limits_of_an_attempt_are_stored_with_its_dispatch(runs: Runs, tight: Rules) -> None:
    stored = to_document(replace(runs, rules=tight).pending())["position"]["dispatch"]

    assert (stored["cleanupMs"], stored["memoryLimitBytes"]) == (2000, GIB)


def test_a_step_without_a_memory_limit_stores_none(runs: Runs) -> None:
    assert "memoryLimitBytes" not in to_document(runs.pending())["position"]["dispatch"]


def test_a_deploy_changes_no_limit_of_an_attempt_that_is_dispatched(
    runs: Runs, tight: Rules
) -> None:
    run = replace(runs, rules=tight).leased(runs.pending())

    assert (run.position.dispatch.cleanup_ms, run.position.dispatch.memory_limit_bytes) == (
        5000,
        None,
    )


def test_a_reader_without_a_catalog_sees_the_limits_of_the_dispatch(
    runs: Runs, tight: Rules
) -> None:
    dispatch = replace(runs, rules=tight).pending().position.dispatch

    settings = as_dispatched(tight, dispatch).known_settings("draft")

    assert settings.options == {
        "cleanup_ms": 2000,
        "memory_limit_bytes": GIB,
        "silence_limit_ms": None,
        "budget": None,
    }
