"""The table of functions, and what is allowed in a row of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from cronsim import CronSim

from leasehold.adapters.clock import SystemClock
from leasehold.errors import InvalidEntryError
from leasehold.registry.function_table import FUNCTIONS
from leasehold.registry.functions import FunctionEntry, FunctionTable, Secret, Trigger, Use


def _row(**fields: Any) -> FunctionEntry:
    usual: dict[str, Any] = {
        "name": "send_digest",
        "summary": "tells what happened this week",
        "trigger": Trigger.TASKS,
        "uses": (Use.DOCUMENTS,),
        "timeout": timedelta(minutes=2),
        "memory_mib": 512,
        "concurrency": 1,
        "max_instances": 2,
    }
    return FunctionEntry(**{**usual, **fields})


def test_the_names_of_a_function_follow_from_its_row() -> None:
    row = _row(max_instances=3, concurrency=4)

    assert row.service == "send-digest"
    assert row.account == "leasehold-send-digest"
    assert row.requests_at_once == 12


@pytest.mark.parametrize(
    "fields",
    [
        {"cpu": 0.08, "memory_mib": 512},
        {"cpu": 0.5, "memory_mib": 1024},
        {"cpu": 2.0, "memory_mib": 8192, "concurrency": 1000},
        {"cpu": 8, "memory_mib": 4096},
        {"name": "a1"},
        {"name": "a_name_of_20_letters", "min_instances": 2},
        {"trigger": Trigger.SCHEDULE, "schedule": "*/5 0-6,12 * JAN MON-FRI"},
        {"trigger": Trigger.EVENTS, "timeout": timedelta(minutes=9)},
        {"secrets": (Secret("A_KEY"), Secret("B2", version="12"))},
        {"roles": ("roles/aiplatform.user", "projects/shop-prod/roles/askModels")},
    ],
)
def test_what_the_platform_allows_is_taken(fields: dict[str, Any]) -> None:
    _row(**fields)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "Digest"}, "name of 'Digest' in the functions registry is 'Digest'; allowed: 2 "),
        ({"name": "digest_"}, "with a letter first and no _ last"),
        ({"name": "a_name_of_21_letters_"}, "2 to 20 of a-z"),
        ({"name": "a-b"}, "2 to 20 of a-z"),
        ({"name": "events"}, "another name than tasks, schedule, events, requests"),
        ({"name": None}, "name of 'None' in the functions registry is None; allowed: a name"),
        ({"trigger": "tasks"}, "trigger of 'send_digest' in the functions registry is 'tasks'"),
        ({"uses": ("documents",)}, "a tuple of Use, each once"),
        ({"uses": (Use.TASKS, Use.TASKS)}, "a tuple of Use, each once"),
        ({"uses": [Use.TASKS]}, "a tuple of Use"),
        ({"timeout": 120}, "allowed: a timedelta"),
        ({"timeout": timedelta()}, "is '0:00:00'; allowed: whole seconds, from 1 s to 1:00:00"),
        ({"timeout": timedelta(seconds=1.5)}, "allowed: whole seconds"),
        ({"timeout": timedelta(minutes=61)}, "from 1 s to 1:00:00 for Trigger.TASKS"),
        (
            {"timeout": timedelta(minutes=10), "trigger": Trigger.EVENTS},
            "from 1 s to 0:09:00 for Trigger.EVENTS",
        ),
        (
            {
                "timeout": timedelta(minutes=31),
                "trigger": Trigger.SCHEDULE,
                "schedule": "* * * * *",
            },
            "from 1 s to 0:30:00 for Trigger.SCHEDULE",
        ),
        ({"cpu": 3}, "cpu of 'send_digest' in the functions registry is 3; allowed: a part of one"),
        ({"cpu": 0.05}, "allowed: a part of one from 0.08 up, or 1, 2, 4, 6 or 8"),
        ({"cpu": 1.5}, "allowed: a part of one"),
        ({"cpu": float("nan")}, "allowed: a part of one"),
        (
            {"memory_mib": 64, "trigger": Trigger.REQUESTS},
            "allowed: from 128 to 4096, for a cpu of 1",
        ),
        ({"memory_mib": 8192}, "allowed: from 512 to 4096, for a cpu of 1"),
        ({"memory_mib": 1024, "cpu": 4}, "allowed: from 2048 to 16384, for a cpu of 4"),
        ({"memory_mib": 1024, "cpu": 0.3}, "allowed: from 512 to 512, for a cpu of 0.3"),
        ({"memory_mib": 1025, "cpu": 0.5}, "allowed: from 512 to 1024, for a cpu of 0.5"),
        ({"memory_mib": 256}, "allowed: from 512 to 4096"),  # the second generation needs them
        ({"memory_mib": "512Mi"}, "allowed: a whole number of MiB"),
        ({"concurrency": 0}, "allowed: from 1 to 1000"),
        ({"concurrency": 1001}, "allowed: from 1 to 1000"),
        ({"concurrency": True}, "allowed: a whole number"),
        ({"concurrency": 2, "cpu": 0.5}, "allowed: 1, where an instance has less than one CPU"),
        ({"max_instances": 0}, "allowed: 1 or more"),
        ({"min_instances": 3}, "allowed: 0 to max_instances"),
        ({"min_instances": -1}, "allowed: 0 to max_instances"),
        ({"trigger": Trigger.SCHEDULE}, "is ''; allowed: cron's five fields, as '*/5 * * * *'"),
        ({"trigger": Trigger.SCHEDULE, "schedule": "every 5 minutes"}, "cron's five fields"),
        ({"secrets": Secret("OPENAI_API_KEY")}, "is '[not shown]'; allowed: a tuple of Secret"),
        ({"secrets": ("sk-abc",)}, "is '[not shown]'; allowed: a tuple of Secret"),
        ({"secrets": (Secret("A_KEY"), Secret("A_KEY", version="2"))}, "each variable once"),
        ({"roles": "roles/aiplatform.user"}, "allowed: a tuple of roles"),
        ({"roles": ("roles/viewer",)}, "allowed: a tuple of roles, each once, as"),
        ({"roles": ("roles/secretmanager.secretAccessor",)}, "none of Secret Manager"),
        ({"roles": ("aiplatform.user",)}, "as 'roles/aiplatform.user'"),
        ({"roles": ("roles/aiplatform.user",) * 2}, "each once"),
        ({"schedule": "* * * * *"}, "allowed: '': only Trigger.SCHEDULE has one"),
    ],
)
def test_what_the_platform_would_refuse_is_refused_in_one_line(
    fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidEntryError) as refused:
        _row(**fields)

    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "sk-abc" not in str(refused.value)


@pytest.mark.parametrize("name", ["sk-abc", "openai_api_key", "", None, "A" * 101])
def test_a_secret_is_the_name_of_a_variable_and_other_values_are_not_repeated(name: Any) -> None:
    with pytest.raises(InvalidEntryError, match=r"is '\[not shown\]'; allowed: the name of the"):
        Secret(name)


@pytest.mark.parametrize("version", ["", "0", "newest", 3, "1 "])
def test_a_version_is_a_number_in_a_text_or_the_latest(version: Any) -> None:
    with pytest.raises(InvalidEntryError, match="version of 'A_KEY' in the functions registry is"):
        Secret("A_KEY", version)


@pytest.mark.parametrize("number", [0, 2])
def test_all_tasks_go_to_one_function(number: int) -> None:
    rows = [_row(name=f"function_{index}") for index in range(number)]

    with pytest.raises(InvalidEntryError, match=r"exactly one row with Trigger\.TASKS"):
        FunctionTable(rows)


def test_functions_are_found_by_what_calls_them() -> None:
    assert FUNCTIONS.of_tasks.name == "execute_step"
    assert "sweep_dead_letters" in [row.name for row in FUNCTIONS.called_by(Trigger.SCHEDULE)]
    assert "deliver_notification" in [row.name for row in FUNCTIONS.called_by(Trigger.EVENTS)]


def test_every_schedule_comes_round() -> None:
    for row in FUNCTIONS.called_by(Trigger.SCHEDULE):
        assert next(CronSim(row.schedule, SystemClock().now()))


@pytest.mark.parametrize(
    ("having", "refused"),
    [
        ({}, ""),
        ({"serve_api": "latest", "deliver_notification": "latest"}, ""),
        ({"deliver_notification": "latest"}, "serve_api"),
        ({"serve_api": "latest"}, "deliver_notification"),
        ({"execute_step": "latest"}, "serve_api"),
        ({"serve_api": "1", "deliver_notification": "2"}, "serve_api"),
    ],
)
def test_the_secret_of_links_is_that_of_who_signs_and_of_who_checks(
    having: dict[str, str], refused: str
) -> None:
    """With one of them alone each link that is sent would be refused."""

    def table() -> FunctionTable:
        return FunctionTable(
            replace(row, secrets=(Secret("LEASEHOLD_LINK_SECRET", having[row.name]),))
            if row.name in having
            else row
            for row in FUNCTIONS
        )

    if not refused:
        assert table()
        return
    with pytest.raises(InvalidEntryError, match=f"secrets of '{refused}'") as found:
        table()
    assert "serve_api and deliver_notification: one signs links" in found.value.message


def test_a_table_of_tasks_alone_may_name_the_secret_of_links() -> None:
    """No row signs or checks them; a handler may read it."""
    row = replace(FUNCTIONS["execute_step"], secrets=(Secret("LEASEHOLD_LINK_SECRET"),))

    assert FunctionTable([row]).of_tasks == row
