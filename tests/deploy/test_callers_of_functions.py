"""The addresses of an installation are those that its functions know themselves by."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from leasehold.adapters.cloud_tasks import CloudTasks
from leasehold.deploy.installation import Installation
from leasehold.domain.effect import Task
from leasehold.errors import CallerNotAllowedError
from leasehold.registry.function_table import FUNCTIONS
from leasehold.registry.functions import FunctionEntry, Trigger
from leasehold.web.callers import CallerCheck
from tests.worlds.tokens import claims, removed

PLACE = Installation("project", "123456789012", "europe-west1")
CALLER = "caller@project.iam.gserviceaccount.com"


TASK = Task("t", "write", "r-1", 1, datetime(2026, 1, 1, tzinfo=UTC), timedelta(minutes=1))


def call(function: FunctionEntry, audience: str) -> str:
    """Call a function on Cloud Run, which has no audience."""
    token = removed(claims(email=CALLER, aud=audience))
    check = CallerCheck((CALLER,), service=function.service)
    return check.caller_of({"HTTP_AUTHORIZATION": f"Bearer {token}"})


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda it: it.name)
def test_a_function_knows_its_own_address_and_no_other(function: FunctionEntry) -> None:
    assert call(function, PLACE.url_of(function)) == CALLER

    for other in FUNCTIONS:
        if other is not function:
            with pytest.raises(CallerNotAllowedError):
                call(function, PLACE.url_of(other))


def test_the_page_says_of_each_function_who_may_call_it() -> None:
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|$", page, re.MULTILINE))
    accounts = {
        Trigger.TASKS: PLACE.task_account,
        Trigger.SCHEDULE: PLACE.schedule_account,
        Trigger.EVENTS: PLACE.event_account,
        Trigger.REQUESTS: "`iam`",
        Trigger.WORKERS: "`iam`",
    }

    assert rows.keys() == {function.name for function in FUNCTIONS}
    assert all(accounts[function.trigger] in rows[function.name] for function in FUNCTIONS)


def test_a_task_carries_a_token_for_the_function_that_it_calls() -> None:
    function = FUNCTIONS["execute_step"]
    tasks = CloudTasks("project", "europe-west1", PLACE.url_of(function), CALLER)

    request: Any = tasks._http_request(TASK)  # noqa: SLF001 - what the service is given

    assert request["oidc_token"]["service_account_email"] == CALLER
    assert call(function, request["oidc_token"]["audience"]) == CALLER
