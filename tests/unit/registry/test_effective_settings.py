"""The settings in force: the environment over the entry, each value with its source."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from leasehold.domain.dispatch import StepSettings
from leasehold.registry.dispatch import StepDispatchEntry
from leasehold.registry.effective_settings import effective_settings

Entry = Callable[..., StepDispatchEntry]
MINUTE = timedelta(minutes=1)
TIMEOUT, DEADLINE = "PIPELINE_EXTRACTION_TIMEOUT_MS", "PIPELINE_EXTRACTION_DEADLINE_S"


def test_without_an_override_the_entry_applies(entry: Entry) -> None:
    settings = effective_settings(entry(), {}, max_retries=5)

    assert settings == StepSettings(
        step_type="extraction",
        agent_timeout=10 * MINUTE,
        dispatch_deadline=15 * MINUTE,
        max_retries=5,
        heartbeat=timedelta(seconds=10),
        queue="extraction",
        remote=False,
        schedule_to_start=timedelta(hours=1),
        sources={
            "agentTimeout": "entry",
            "dispatchDeadline": "entry",
            "maxRetries": "threshold",
            "heartbeat": "entry",
        },
        refused=(),
        options={
            "cleanup_ms": 5000,
            "memory_limit_bytes": None,
            "silence_limit_ms": None,
            "budget": None,
        },
    )


def test_a_variable_goes_over_the_entry_and_is_named_as_the_source(entry: Entry) -> None:
    settings = effective_settings(entry(), {TIMEOUT: "1500", DEADLINE: "60"}, max_retries=5)

    assert settings.agent_timeout == timedelta(milliseconds=1500)
    assert settings.dispatch_deadline == MINUTE
    assert settings.sources["agentTimeout"] == TIMEOUT
    assert settings.sources["dispatchDeadline"] == DEADLINE
    assert settings.refused == ()


def test_the_entry_s_own_repeats_go_over_the_threshold(entry: Entry) -> None:
    settings = effective_settings(entry(max_retries=0), {}, max_retries=5)

    assert (settings.max_retries, settings.sources["maxRetries"]) == (0, "entry")


def test_the_heartbeat_of_the_bundle_goes_over_the_entry_s(entry: Entry) -> None:
    settings = effective_settings(entry(), {}, max_retries=5, heartbeat=timedelta(seconds=1))

    assert settings.heartbeat == timedelta(seconds=1)
    assert settings.sources["heartbeat"] == "PIPELINE_HEARTBEAT_S"


def test_an_entry_without_heartbeat_stays_without(entry: Entry) -> None:
    """Its lease runs to the cap; a beat would make it short."""
    without = entry(heartbeat_interval=None)

    settings = effective_settings(without, {}, max_retries=5, heartbeat=timedelta(seconds=1))

    assert (settings.heartbeat, settings.sources["heartbeat"]) == (None, "entry")


def test_a_step_elsewhere_is_marked(entry: Entry) -> None:
    remote = entry(handler="remote", schedule_to_start=90 * MINUTE)

    settings = effective_settings(remote, {}, max_retries=5)

    assert (settings.remote, settings.schedule_to_start) == (True, 90 * MINUTE)


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "1.5", "1e3", " 60000", "60_000", "10min", "²", "٣", "1" * 10]
)
def test_a_value_that_is_not_a_whole_number_is_refused_and_the_entry_applies(
    entry: Entry, text: str
) -> None:
    """A run goes on with settings that work; the sentence is logged and shown."""
    settings = effective_settings(entry(), {TIMEOUT: text}, max_retries=5)

    assert settings.agent_timeout == 10 * MINUTE
    assert settings.sources["agentTimeout"] == "entry"
    assert settings.refused == (
        f"{TIMEOUT} refused: it is {text!r}; allowed: whole milliseconds above 0.",
    )


@pytest.mark.parametrize(
    ("timeout", "deadline", "in_force", "refused"),
    [
        (
            "900000",
            None,
            (600, 900),
            (
                f"{TIMEOUT} refused: agent_timeout would be 0:15:00; "
                "allowed: below the dispatch deadline (0:15:00)."
            ),
        ),
        (
            None,
            "600",
            (600, 900),
            (
                f"{DEADLINE} refused: agent_timeout would be 0:10:00; "
                "allowed: below the dispatch deadline (0:10:00)."
            ),
        ),
        (
            None,
            "604801",
            (600, 900),
            DEADLINE + " refused: dispatch_deadline would be 7 days, 0:00:01; allowed: 15 s to "
            "604800 s.",
        ),
        (
            "60000",
            "14",
            (60, 900),
            f"{DEADLINE} refused: dispatch_deadline would be 0:00:14; allowed: 15 s to 604800 s.",
        ),
        (
            "1300000",
            "1200",
            (600, 1200),
            (
                f"{TIMEOUT} refused: agent_timeout would be 0:21:40; "
                "allowed: below the dispatch deadline (0:20:00)."
            ),
        ),
        (
            "1000000",
            "14",
            (600, 900),
            (
                f"{TIMEOUT} and {DEADLINE} refused: dispatch_deadline would be 0:00:14; "
                "allowed: 15 s to 604800 s."
            ),
        ),
    ],
    ids=[
        "the timeout alone",
        "the deadline alone",
        "a deadline that is too long",
        "a good timeout is kept",
        "a good deadline is kept",
        "both",
    ],
)
def test_values_that_break_the_time_ladder_are_refused_and_the_good_one_kept(
    entry: Entry,
    timeout: str | None,
    deadline: str | None,
    in_force: tuple[int, int],
    refused: str,
) -> None:
    set_ = {TIMEOUT: timeout, DEADLINE: deadline}
    environ = {name: text for name, text in set_.items() if text is not None}

    settings = effective_settings(entry(), environ, max_retries=5)

    assert settings.agent_timeout.total_seconds() == in_force[0]
    assert settings.dispatch_deadline.total_seconds() == in_force[1]
    assert settings.refused == (refused,)


def test_two_values_that_only_hold_together_are_both_taken(entry: Entry) -> None:
    """Either alone would break the ladder of the entry."""
    settings = effective_settings(entry(), {TIMEOUT: "1000000", DEADLINE: "1200"}, max_retries=5)

    assert settings.agent_timeout.total_seconds() == 1000
    assert settings.dispatch_deadline.total_seconds() == 1200
    assert settings.refused == ()


def test_a_value_that_is_not_a_number_does_not_spoil_the_other(entry: Entry) -> None:
    settings = effective_settings(entry(), {TIMEOUT: "soon", DEADLINE: "1200"}, max_retries=5)

    assert settings.dispatch_deadline.total_seconds() == 1200
    assert settings.refused == (
        f"{TIMEOUT} refused: it is 'soon'; allowed: whole milliseconds above 0.",
    )


@pytest.mark.parametrize(
    ("on_platform", "handler", "seconds", "refused"),
    [
        (False, "letters.steps:extract", 7200, ()),
        (True, "remote", 7200, ()),
        (
            True,
            "letters.steps:extract",
            900,
            (f"{DEADLINE} refused: dispatch_deadline would be 2:00:00; allowed: 15 s to 1800 s.",),
        ),
    ],
)
def test_half_an_hour_binds_where_cloud_tasks_calls_the_step(
    entry: Entry, on_platform: bool, handler: str, seconds: int, refused: tuple[str, ...]
) -> None:
    settings = effective_settings(
        entry(handler=handler), {DEADLINE: "7200"}, max_retries=5, on_platform=on_platform
    )

    assert settings.dispatch_deadline == timedelta(seconds=seconds)
    assert settings.refused == refused
