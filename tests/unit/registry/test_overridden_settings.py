"""The limits in force where three sources speak: the environment, an override, the entry."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from leasehold.domain.dispatch import StepSettings
from leasehold.domain.override import StoredOverride, stored_override
from leasehold.registry.dispatch import StepDispatchEntry, ladder_problem
from leasehold.registry.effective_settings import effective_settings

Entry = Callable[..., StepDispatchEntry]
TIMEOUT, DEADLINE = "PIPELINE_EXTRACTION_TIMEOUT_MS", "PIPELINE_EXTRACTION_DEADLINE_S"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
UNTIL = "2026-01-01T14:00:00Z"

#: 10 and 15 minutes.
ENTRY = StepDispatchEntry(
    step_type="extraction",
    handler="letters.steps:extract",
    agent_timeout=timedelta(seconds=600),
    dispatch_deadline=timedelta(seconds=900),
)


def override(until: str = UNTIL, **limits: Any) -> StoredOverride:
    return stored_override("extraction", {**limits, "until": until}, NOW)


def resolved(environ: dict[str, str], stored: StoredOverride | None) -> StepSettings:
    return effective_settings(ENTRY, environ, stored, max_retries=5)


def limits_of(settings: StepSettings) -> tuple[float, float]:
    deadline = settings.dispatch_deadline.total_seconds()
    return settings.agent_timeout.total_seconds(), deadline


def sources_of(settings: StepSettings) -> tuple[str, str]:
    return settings.sources["agentTimeout"], settings.sources["dispatchDeadline"]


def test_an_override_goes_over_the_entry_and_is_named_as_the_source() -> None:
    settings = resolved({}, override(timeoutS=1200, deadlineS=1500))

    assert limits_of(settings) == (1200, 1500)
    assert sources_of(settings) == ("override", "override")
    assert settings.refused == ()


@pytest.mark.parametrize(
    ("limits", "in_force", "sources"),
    [
        ({"timeoutS": 700}, (700, 900), ("override", "entry")),
        ({"timeoutS": 0.25}, (0.25, 900), ("override", "entry")),
        ({"deadlineS": 1200}, (600, 1200), ("entry", "override")),
    ],
)
def test_a_limit_that_an_override_leaves_out_stays_as_it_was(
    limits: dict[str, Any], in_force: tuple[float, float], sources: tuple[str, str]
) -> None:
    settings = resolved({}, override(**limits))

    assert (limits_of(settings), sources_of(settings)) == (in_force, sources)


def test_a_variable_goes_over_an_override_which_gives_the_other_limit() -> None:
    settings = resolved({TIMEOUT: "60000"}, override(timeoutS=1200, deadlineS=1500))

    assert limits_of(settings) == (60, 1500)
    assert sources_of(settings) == (TIMEOUT, "override")
    assert settings.refused == ()  # the override's timeout is hidden, not refused


def test_an_override_that_is_over_says_nothing_any_more() -> None:
    settings = resolved({}, override(timeoutS=1200, deadlineS=1500, until="2026-01-01T12:00:00Z"))

    assert (limits_of(settings), sources_of(settings)) == ((600, 900), ("entry", "entry"))
    assert settings.refused == ()


def test_an_override_that_cannot_be_read_is_refused_and_the_next_source_applies() -> None:
    settings = resolved({DEADLINE: "1000"}, override(timeoutS="20 minutes"))

    assert (limits_of(settings), sources_of(settings)) == ((600, 1000), ("entry", DEADLINE))
    assert settings.refused == (
        (
            "overrides/extraction refused: timeoutS is '20 minutes'; "
            "allowed: seconds above 0, at most 604800."
        ),
    )


@pytest.mark.parametrize(
    ("environ", "limits", "in_force", "sources", "refused"),
    [
        (
            {},
            {"timeoutS": 1000},
            (600, 900),
            ("entry", "entry"),
            (
                "overrides/extraction timeoutS refused: agent_timeout would be 0:16:40; "
                "allowed: below the dispatch deadline (0:15:00)."
            ),
        ),
        (
            {DEADLINE: "700"},
            {"timeoutS": 800},
            (600, 700),
            ("entry", DEADLINE),
            (
                "overrides/extraction timeoutS refused: agent_timeout would be 0:13:20; "
                "allowed: below the dispatch deadline (0:11:40)."
            ),
        ),
        (
            {DEADLINE: "300"},
            {"timeoutS": 200, "deadlineS": 1000},
            (200, 300),
            ("override", DEADLINE),
            None,
        ),
        (
            {TIMEOUT: "1000000"},
            {"deadlineS": 1200},
            (1000, 1200),
            (TIMEOUT, "override"),
            None,
        ),
        (
            {TIMEOUT: "800000"},
            {"timeoutS": 500, "deadlineS": 700},
            (800, 900),
            (TIMEOUT, "entry"),
            (
                "overrides/extraction deadlineS refused: agent_timeout would be 0:13:20; "
                "allowed: below the dispatch deadline (0:11:40)."
            ),
        ),
        (
            {TIMEOUT: "1000000"},
            {"timeoutS": 500, "deadlineS": 700},
            (500, 700),
            ("override", "override"),
            (
                f"{TIMEOUT} refused: agent_timeout would be 0:16:40; "
                "allowed: below the dispatch deadline (0:11:40)."
            ),
        ),
        (
            {TIMEOUT: "1000000", DEADLINE: "20"},
            {"timeoutS": 1700},
            (600, 900),
            ("entry", "entry"),
            (
                f"{TIMEOUT} and {DEADLINE} and overrides/extraction timeoutS refused: "
                "agent_timeout would be 0:16:40; allowed: below the dispatch deadline (0:00:20)."
            ),
        ),
    ],
    ids=[
        "with the entry",
        "with a variable alone",
        "a variable makes it hold",
        "it makes a variable hold",
        "rather the override than the variable",
        "a variable that cannot hold",
        "none of them",
    ],
)
def test_what_breaks_the_ladder_together_is_refused_and_as_much_as_can_is_kept(
    environ: dict[str, str],
    limits: dict[str, Any],
    in_force: tuple[float, float],
    sources: tuple[str, str],
    refused: str | None,
) -> None:
    settings = resolved(environ, override(**limits))

    assert (limits_of(settings), sources_of(settings)) == (in_force, sources)
    assert settings.refused == (() if refused is None else (refused,))


#: What is below, at and above each limit that counts.
SECONDS = (None, 1, 14, 15, 599, 600, 601, 900, 901, 1800)
Limits = tuple[int | None, int | None]
LIMITS: list[Limits] = list(itertools.product(SECONDS, SECONDS))


def test_whatever_is_set_the_ladder_holds_and_each_value_is_that_of_its_source() -> None:
    for of_environ, of_override in itertools.product(LIMITS, LIMITS):
        check(of_environ, of_override)


def check(of_environ: Limits, of_override: Limits) -> None:
    environ = _environ(of_environ)
    stored = _stored(of_override)

    settings = resolved(environ, stored)

    timeout, deadline = settings.agent_timeout, settings.dispatch_deadline
    assert ladder_problem(timeout, deadline) is None
    for place, value in enumerate((timeout, deadline)):
        by_source = {
            (TIMEOUT, DEADLINE)[place]: of_environ[place],
            "override": of_override[place],
            "entry": (600, 900)[place],
        }
        assert value.total_seconds() == by_source[sources_of(settings)[place]]
    first = [e or o or n for e, o, n in zip(of_environ, of_override, (600, 900), strict=True)]
    holds = ladder_problem(*(timedelta(seconds=limit) for limit in first)) is None
    assert holds == (settings.refused == ())
    assert holds <= (list(limits_of(settings)) == first)
    assert not any(sentence.startswith(" refused") for sentence in settings.refused)


def test_no_override_costs_a_variable() -> None:
    """A rule that holds without an override holds with one."""
    for of_environ in LIMITS:
        without = _kept(sources_of(resolved(_environ(of_environ), None)))
        for of_override in LIMITS:
            with_it = _kept(sources_of(resolved(_environ(of_environ), _stored(of_override))))
            assert with_it <= without, (of_environ, of_override)


def _kept(sources: tuple[str, str]) -> int:
    """Return how much of the environment is kept: 0 is all, 3 nothing."""
    return [(1, 1), (1, 0), (0, 1), (0, 0)].index((sources[0] == TIMEOUT, sources[1] == DEADLINE))


def _environ(limits: Limits) -> dict[str, str]:
    timeout, deadline = limits
    environ = {} if timeout is None else {TIMEOUT: str(timeout * 1000)}
    return environ if deadline is None else {**environ, DEADLINE: str(deadline)}


def _stored(limits: Limits) -> StoredOverride | None:
    timeout, deadline = limits
    return None if limits == (None, None) else override(timeoutS=timeout, deadlineS=deadline)
