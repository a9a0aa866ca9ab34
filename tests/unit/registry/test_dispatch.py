"""Step types: what an entry says, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta

import pytest

from leasehold.domain.manifest_parts import ENTRY_OPTIONS, Dispatch
from leasehold.errors import InvalidEntryError, PlatformLimitError
from leasehold.registry.dispatch import (
    OPTIONS,
    EnvOverrides,
    StepDispatchEntry,
    check_platform,
)

Entry = Callable[..., StepDispatchEntry]
S = timedelta(seconds=1)
MIB = 1024**2


def test_an_entry_needs_four_fields(entry: Entry) -> None:
    extraction = entry()

    assert extraction.key == "extraction"
    assert extraction.heartbeat_interval == 10 * S
    assert (extraction.isolation, extraction.cleanup_ttl) == ("process", 5 * S)
    assert extraction.memory_limit is None
    assert extraction.max_retries is None
    assert (extraction.schedule_to_start, extraction.output) == (3600 * S, "")


def test_each_option_is_declared_once() -> None:
    """A new one is a row here; what a dispatch freezes of it is a field of that name."""
    names = {field.name for field in fields(StepDispatchEntry)} - {"env_overrides"}
    frozen = {option.field or name for name, option in OPTIONS.items()} & {*ENTRY_OPTIONS}

    assert set(OPTIONS) == names
    assert frozen == {*ENTRY_OPTIONS}
    assert frozen <= {*Dispatch.model_fields}


def test_what_a_dispatch_freezes_of_an_entry_has_its_units(entry: Entry) -> None:
    limited = entry(cleanup_ttl=1.5 * S, memory_limit=512 * MIB)

    frozen = limited.frozen_options()

    assert (frozen["cleanup_ms"], frozen["memory_limit_bytes"]) == (1500, 512 * MIB)


def test_options_that_are_left_at_their_defaults_are_not_listed(entry: Entry) -> None:
    assert entry(reuse=7, memory_limit=512 * MIB).listed_options() == {}
    assert entry(schedule_to_start=90 * S, gates=["rated"]).listed_options() == {
        "schedule_to_start_s": 90.0,
        "gates": ("rated",),
    }


@pytest.mark.parametrize(
    ("step_type", "timeout_ms", "deadline_s"),
    [
        ("extraction", "PIPELINE_EXTRACTION_TIMEOUT_MS", "PIPELINE_EXTRACTION_DEADLINE_S"),
        ("deep-read_2", "PIPELINE_DEEP_READ_2_TIMEOUT_MS", "PIPELINE_DEEP_READ_2_DEADLINE_S"),
    ],
)
def test_the_variables_of_a_step_are_named_after_it(
    entry: Entry, step_type: str, timeout_ms: str, deadline_s: str
) -> None:
    assert entry(step_type).env_overrides == (timeout_ms, deadline_s)


def test_variables_can_be_named_in_the_entry(entry: Entry) -> None:
    named = EnvOverrides(timeout_ms="EXTRACT_MS", deadline_s="EXTRACT_S")

    assert entry(env_overrides=named).env_overrides == ("EXTRACT_MS", "EXTRACT_S")


@pytest.mark.parametrize(
    ("step_type", "queue", "queue_id"),
    [("deep_read", "", "deep-read"), ("read", "slow_steps", "slow-steps"), ("a-b", "", "a-b")],
)
def test_a_queue_id_has_no_underscore(
    entry: Entry, step_type: str, queue: str, queue_id: str
) -> None:
    """Queues may not be named with one."""
    assert entry(step_type, queue=queue).queue_id == queue_id


@pytest.mark.parametrize("step_type", ["", "2nd", "-a", "with space", "ä", "a" * 64, "a.b", "a\n"])
def test_a_step_type_is_a_plain_name(entry: Entry, step_type: str) -> None:
    with pytest.raises(InvalidEntryError) as refused:
        entry(step_type)

    assert refused.value.details["field"] == "step_type"
    assert refused.value.details["allowed"] == "a letter, then up to 62 of a-z A-Z 0-9 _ -"


@pytest.mark.parametrize("step_type", ["a", "A9", "a" * 63, "deep_read-2"])
def test_plain_names_are_taken(entry: Entry, step_type: str) -> None:
    assert entry(step_type).key == step_type


@pytest.mark.parametrize("handler", ["", "letters.steps", "letters:", ":extract", "a:b:c", "a:1b"])
def test_a_handler_is_a_path_or_remote(entry: Entry, handler: str) -> None:
    with pytest.raises(InvalidEntryError, match="allowed: 'module:function' or 'remote'"):
        entry(handler=handler)


def test_a_handler_may_be_elsewhere(entry: Entry) -> None:
    taken = entry(handler="remote", schedule_to_start=1 * S, output="letters.models:Draft")

    assert taken.handler == "remote"
    assert (taken.schedule_to_start, taken.output) == (1 * S, "letters.models:Draft")


@pytest.mark.parametrize(
    ("field", "value", "quoted", "allowed"),
    [
        ("isolation", "thread", "'thread'", "'process' or 'inline'"),
        ("max_retries", -1, "-1", "0 or more, or None"),
        ("heartbeat_interval", 0 * S, "'0:00:00'", "above 0, or None"),
        ("cleanup_ttl", 0 * S, "'0:00:00'", "above 0"),
        ("queue", "my queue", "'my queue'", "1 to 100 of a-z A-Z 0-9 _ -"),
        ("queue", "q" * 101, f"'{'q' * 101}'", "1 to 100 of a-z A-Z 0-9 _ -"),
        ("schedule_to_start", 0.9 * S, "'0:00:00.900000'", "1 s or more"),
        ("schedule_to_start", -1 * S, "'-1 day, 23:59:59'", "1 s or more"),
        ("output", "letters.models", "'letters.models'", "'module:Model', or nothing"),
        ("output", "remote", "'remote'", "'module:Model', or nothing"),
    ],
)
def test_a_field_that_cannot_be_used_is_named_with_the_allowed_values(
    entry: Entry, field: str, value: object, quoted: str, allowed: str
) -> None:
    with pytest.raises(InvalidEntryError) as refused:
        entry(**{field: value})

    assert refused.value.message == (
        f"{field} of 'extraction' in the dispatch registry is {quoted}; allowed: {allowed}."
    )


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("step_type", 5, "a letter, then up to 62 of a-z A-Z 0-9 _ -"),
        ("handler", None, "'module:function' or 'remote'"),
        ("handler", print, "'module:function' or 'remote'"),
        ("agent_timeout", 2, "a timedelta"),
        ("dispatch_deadline", "15 min", "a timedelta"),
        ("heartbeat_interval", 10, "a timedelta, or None"),
        ("cleanup_ttl", 5, "a timedelta"),
        ("cleanup_ttl", None, "a timedelta"),
        ("max_retries", "x", "a whole number, 0 or more, or None"),
        ("max_retries", 2.5, "a whole number, 0 or more, or None"),
        ("max_retries", True, "a whole number, 0 or more, or None"),
        ("isolation", ["process"], "'process' or 'inline'"),
        ("queue", None, "1 to 100 of a-z A-Z 0-9 _ -"),
        ("schedule_to_start", 3600, "a timedelta"),
        ("schedule_to_start", None, "a timedelta"),
        ("output", None, "'module:Model', or nothing"),
        ("output", dict, "'module:Model', or nothing"),
        ("env_overrides", None, "EnvOverrides, the names of two variables"),
        ("env_overrides", "AB", "EnvOverrides, the names of two variables"),
        ("env_overrides", ("A", 5), "EnvOverrides, the names of two variables"),
        ("env_overrides", ("A", "B", "C"), "EnvOverrides, the names of two variables"),
    ],
)
def test_a_value_of_the_wrong_class_is_named_with_the_allowed_values(
    entry: Entry, field: str, value: object, allowed: str
) -> None:
    with pytest.raises(InvalidEntryError) as refused:
        entry(**{field: value})

    key = value if field == "step_type" else "extraction"
    assert refused.value.details == {
        "registry": "dispatch",
        "key": key,
        "field": field,
        "value": value,
        "allowed": allowed,
    }


@pytest.mark.parametrize(
    ("timeout", "deadline", "field", "allowed"),
    [
        (0, 900, "agent_timeout", "above 0"),
        (600, 600, "agent_timeout", "below the dispatch deadline (0:10:00)"),
        (601, 600, "agent_timeout", "below the dispatch deadline (0:10:00)"),
        (5, 14.9, "dispatch_deadline", "15 s to 604800 s"),
        (600, 604_801, "dispatch_deadline", "15 s to 604800 s"),
    ],
)
def test_limits_that_break_the_time_ladder_are_refused(
    entry: Entry, timeout: float, deadline: float, field: str, allowed: str
) -> None:
    """A queue that stops listening before the handler is stopped would start it twice."""
    with pytest.raises(InvalidEntryError) as refused:
        entry(agent_timeout=timeout * S, dispatch_deadline=deadline * S)

    assert (refused.value.details["field"], refused.value.details["allowed"]) == (field, allowed)


@pytest.mark.parametrize(
    ("timeout", "deadline"), [(14.999, 15), (604_799.999, 604_800), (0.001, 15)]
)
def test_limits_at_the_ends_of_the_ladder_are_taken(
    entry: Entry, timeout: float, deadline: float
) -> None:
    taken = entry(agent_timeout=timeout * S, dispatch_deadline=deadline * S)

    assert taken.dispatch_deadline == deadline * S


@pytest.mark.parametrize("limit", [None, 64 * MIB, 512 * MIB, 1024**2 * MIB])
def test_a_memory_limit_is_a_number_of_bytes(entry: Entry, limit: int | None) -> None:
    assert entry(memory_limit=limit).memory_limit == limit


@pytest.mark.parametrize("limit", ["512 MiB", 1.5e9, True, 0, -1, 512, 64 * MIB - 1, 2**63])
def test_a_memory_limit_that_no_handler_can_live_in_is_refused(entry: Entry, limit: object) -> None:
    """512 stands for MiB in other tools; a handler of 512 bytes would never begin."""
    with pytest.raises(InvalidEntryError) as refused:
        entry(memory_limit=limit)

    assert refused.value.message == (
        f"memory_limit of 'extraction' in the dispatch registry is {limit!r}; "
        "allowed: bytes, from 64 MiB (64 * 1024**2) to 1 TiB (1024**4), or None."
    )


@pytest.mark.parametrize("where", [{"isolation": "inline"}, {"handler": "remote"}])
def test_a_memory_limit_that_nothing_would_hold_is_refused(
    entry: Entry, where: dict[str, str]
) -> None:
    with pytest.raises(InvalidEntryError, match="only a handler in its own process"):
        entry(memory_limit=512 * MIB, **where)


@pytest.mark.parametrize("limit", [None, 1 * S, 60 * S])
def test_a_silence_limit_is_below_the_agent_timeout(entry: Entry, limit: timedelta | None) -> None:
    taken = entry(agent_timeout=61 * S, silence_limit=limit)

    assert taken.silence_limit == limit
    frozen_ms = None if limit is None else limit // timedelta(milliseconds=1)
    assert taken.frozen_options()["silence_limit_ms"] == frozen_ms
    assert taken.listed_options() == ({} if limit is None else {"silence_limit_ms": frozen_ms})


@pytest.mark.parametrize("limit", [0 * S, 0.5 * S, 61 * S, 3600 * S])
def test_a_silence_limit_that_nothing_would_reach_is_refused(
    entry: Entry, limit: timedelta
) -> None:
    with pytest.raises(InvalidEntryError) as refused:
        entry(agent_timeout=61 * S, silence_limit=limit)

    assert refused.value.message == (
        f"silence_limit of 'extraction' in the dispatch registry is '{limit}'; "
        "allowed: 1 s or more, and below the agent timeout (0:01:01)."
    )


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ({"silence_limit": 60}, "allowed: a timedelta, or None."),
        ({"silence_limit": 60 * S, "handler": "remote"}, "allowed: None: no worker here hears"),
    ],
)
def test_a_silence_limit_that_no_worker_would_hold_is_refused(
    entry: Entry, where: dict[str, object], words: str
) -> None:
    with pytest.raises(InvalidEntryError, match=words):
        entry(**where)


@pytest.mark.parametrize("reuse", [1, 2, 100])
def test_reuse_is_a_number_of_attempts(entry: Entry, reuse: int) -> None:
    assert entry(reuse=reuse).reuse == reuse


@pytest.mark.parametrize("reuse", [0, -1, True, 1.5, "100", None])
def test_a_reuse_that_is_not_a_number_of_attempts_is_refused(entry: Entry, reuse: object) -> None:
    with pytest.raises(InvalidEntryError) as refused:
        entry(reuse=reuse)

    assert refused.value.message == (
        f"reuse of 'extraction' in the dispatch registry is {reuse!r}; "
        "allowed: a whole number, 1 or more."
    )


@pytest.mark.parametrize("where", [{"isolation": "inline"}, {"handler": "remote"}])
def test_a_reuse_without_a_process_is_refused(entry: Entry, where: dict[str, str]) -> None:
    assert entry(reuse=1, **where).reuse == 1

    with pytest.raises(InvalidEntryError, match="allowed: 1: only the process of a handler"):
        entry(reuse=100, **where)


def test_a_handler_of_the_program_itself_runs_inline_alone(entry: Entry) -> None:
    """In its own process it would not be found, and its runs would be given up."""
    assert entry(handler="__main__:f", isolation="inline").handler == "__main__:f"

    with pytest.raises(InvalidEntryError, match="isolation='inline'"):
        entry(handler="__main__:f")


@pytest.mark.parametrize(
    ("actions", "allowed"),
    [
        ("shop:tidy", "a tuple of 'module:function', each once"),
        (None, "a tuple of 'module:function', each once"),
        ({"shop:tidy"}, "a tuple of 'module:function', each once"),
        ((5,), "a tuple of 'module:function', each once"),
        (("tidy",), "a tuple of 'module:function', each once"),
        (("remote",), "a tuple of 'module:function', each once"),
        (("shop:tidy", "shop:fill", "shop:tidy"), "a tuple of 'module:function', each once"),
        (("__main__:tidy",), "a module (its own process has another __main__)"),
    ],
)
def test_entry_actions_are_paths_each_once(entry: Entry, actions: object, allowed: str) -> None:
    with pytest.raises(InvalidEntryError) as refused:
        entry(entry_actions=actions)

    assert refused.value.details["field"] == "entry_actions"
    assert refused.value.details["allowed"].startswith(allowed)


def test_a_remote_step_has_no_entry_actions(entry: Entry) -> None:
    with pytest.raises(InvalidEntryError, match="a remote worker does all of its step itself"):
        entry(handler="remote", entry_actions=["shop:tidy"])


def test_entry_actions_are_kept_in_their_order(entry: Entry) -> None:
    taken = entry(entry_actions=["shop:tidy", "shop:fill"])

    assert taken.entry_actions == ("shop:tidy", "shop:fill")
    assert entry(isolation="inline", entry_actions=["__main__:tidy"]).entry_actions


def test_stuck_is_no_step_type(entry: Entry) -> None:
    """Its variable would be PIPELINE_STUCK_TIMEOUT_MS, the engine's threshold for all steps."""
    with pytest.raises(InvalidEntryError) as refused:
        entry("stuck")

    assert refused.value.details["allowed"] == (
        "a name whose variable is not PIPELINE_STUCK_TIMEOUT_MS, which is the engine's own"
    )


@pytest.mark.parametrize("variable", ["PIPELINE_MAX_RETRIES", "LEASEHOLD_STORE"])
def test_an_entry_cannot_name_a_variable_of_the_engine(entry: Entry, variable: str) -> None:
    with pytest.raises(InvalidEntryError, match="which is the engine's own"):
        entry(env_overrides=EnvOverrides(timeout_ms=variable, deadline_s="EXTRACT_S"))


def test_one_variable_cannot_be_both_limits(entry: Entry) -> None:
    """One is in milliseconds, the other in seconds."""
    with pytest.raises(InvalidEntryError, match="one variable for each limit"):
        entry(env_overrides=EnvOverrides(timeout_ms="EXTRACT", deadline_s="EXTRACT"))


def test_a_long_step_needs_a_heartbeat(entry: Entry) -> None:
    """Else its lease would run for a week before the death of its worker is noticed."""
    with pytest.raises(InvalidEntryError, match="without a heartbeat a dead worker is not noticed"):
        entry(dispatch_deadline=1801 * S, heartbeat_interval=None)

    assert entry(dispatch_deadline=1800 * S, heartbeat_interval=None).heartbeat_interval is None


def test_cloud_tasks_waits_for_no_step_of_two_hours(entry: Entry) -> None:
    long, short = entry("crawl", dispatch_deadline=7200 * S), entry("read")
    away = entry("review", handler="remote", dispatch_deadline=86_400 * S)

    check_platform([short, away])
    with pytest.raises(PlatformLimitError) as refused:
        check_platform([short, away, long])

    assert refused.value.message == (
        "Cloud Tasks waits for an attempt at most 1800 s, and these steps have a longer "
        "dispatch deadline: crawl (2:00:00). Give them a shorter one and checkpoints, or run them "
        "where 7 days are allowed: on `leasehold serve`, in process, or on remote workers "
        "(handler='remote')."
    )
