"""Queues are created with the numbers of the settings, and never changed after that."""

from __future__ import annotations

from datetime import timedelta

import pytest
from google.api_core.exceptions import ClientError

from leasehold.bootstrap import load_catalog
from leasehold.deploy.resources.queue import QueueResource, queues
from leasehold.deploy.resources.resource import MISSING, PRESENT, Difference, State
from leasehold.deploy.steps import Action, Patience, apply
from leasehold.devserver.cloud_tasks.request import ApiError, not_found
from leasehold.errors import SettingError
from leasehold.google_clients.call_errors import explain
from leasehold.google_clients.clients import ONE_TRY, GoogleClients
from leasehold.registry.function_table import FUNCTIONS
from tests.deploy.cloud import REGION, Cloud

AT_ONCE = Patience(tries=3, sleep=lambda _: None)
ANSWERED = FUNCTIONS.of_tasks.requests_at_once


def resources(cloud: Cloud, **settings: str) -> list[QueueResource]:
    clients = GoogleClients(cloud.project, cloud.environ | settings)
    return list(queues(clients, cloud.installation, load_catalog("tests.deploy.catalog")))


def first(cloud: Cloud, **settings: str) -> QueueResource:
    return resources(cloud, **settings)[0]


def full_name(cloud: Cloud, queue: str = "pick-up") -> str:
    return f"projects/{cloud.project}/locations/{REGION}/queues/{queue}"


def test_each_step_type_has_a_queue_and_a_remote_step_has_none(cloud: Cloud) -> None:
    assert [queue.name for queue in resources(cloud)] == ["pick-up", "pack"]


def test_a_queue_is_created_with_the_waits_of_the_engine_and_gives_nothing_up(cloud: Cloud) -> None:
    queue = first(cloud)
    assert queue.look() == MISSING

    queue.create()

    made = cloud.clients.tasks.get_queue({"name": full_name(cloud)}, **ONE_TRY)
    retry = made.retry_config
    assert queue.look() == PRESENT
    assert (retry.max_attempts, retry.max_retry_duration) == (-1, timedelta())
    assert (retry.min_backoff, retry.max_backoff) == (timedelta(seconds=10), timedelta(seconds=300))
    assert retry.max_doublings == 5
    assert made.rate_limits.max_concurrent_dispatches == 6  # half of 12 instances


def test_a_second_apply_with_other_settings_changes_no_queue(cloud: Cloud) -> None:
    list(apply(resources(cloud), cloud.project, patience=AT_ONCE))
    cloud.forget()
    other = {"PIPELINE_MIN_BACKOFF_S": "1", "PIPELINE_MAX_BACKOFF_S": "20"}

    steps = list(apply(resources(cloud, **other), cloud.project, update=True, patience=AT_ONCE))

    assert cloud.writes() == []
    assert [step.action for step in steps] == [Action.NONE, Action.NONE]
    assert steps[0].look.state is State.DIFFERENT
    assert steps[0].look.differences == (
        Difference("min-backoff", "10s", "1s"),
        Difference("max-backoff", "300s", "20s"),
    )
    assert steps[0].repair == (
        f"gcloud tasks queues update pick-up --location={REGION} --project={cloud.project} "
        "--min-backoff=1s --max-backoff=20s"
    )
    assert first(cloud).look() == PRESENT


def test_a_queue_that_a_person_paused_is_reported_and_stays_paused(cloud: Cloud) -> None:
    queue = first(cloud)
    queue.create()
    cloud.clients.tasks.pause_queue({"name": full_name(cloud)}, **ONE_TRY)

    (step, _) = apply(resources(cloud), cloud.project, patience=AT_ONCE)

    assert step.look.differences == (Difference("state", "PAUSED", "RUNNING"),)
    assert step.repair == (
        f"gcloud tasks queues resume pick-up --location={REGION} --project={cloud.project}"
    )
    assert queue.look().state is State.DIFFERENT


def test_a_queue_that_gives_tasks_up_is_told_in_the_words_of_gcloud(cloud: Cloud) -> None:
    queue = {
        "name": full_name(cloud),
        "rate_limits": {"max_concurrent_dispatches": 6},
        "retry_config": {"max_attempts": 5, "max_retry_duration": timedelta(hours=1)},
    }
    parent = f"projects/{cloud.project}/locations/{REGION}"
    cloud.clients.tasks.create_queue({"parent": parent, "queue": queue}, **ONE_TRY)

    look = first(cloud).look()

    assert look.differences[:2] == (
        Difference("max-attempts", "5", "unlimited"),
        Difference("max-retry-duration", "3600s", "unlimited"),
    )
    assert "--max-attempts=unlimited --max-retry-duration=0s" in look.repair


def test_queues_that_deliver_more_than_is_answered_are_warned_of_with_the_commands(
    cloud: Cloud,
) -> None:
    """The queue of a further step type gets its share, and an older one keeps what it had."""
    older = {"name": full_name(cloud), "rate_limits": {"max_concurrent_dispatches": ANSWERED}}
    parent = f"projects/{cloud.project}/locations/{REGION}"
    cloud.clients.tasks.create_queue({"parent": parent, "queue": older}, **ONE_TRY)
    cloud.forget()

    plan = cloud.provision("plan")
    apply_ = cloud.provision("apply")
    drift = cloud.provision("drift", "--json")

    warning = (
        f"warning: the queues deliver {ANSWERED + ANSWERED // 2} tasks at once, and execute-step "
        f"takes {ANSWERED}: the others are answered 429, which slows each queue down. Type: gcloud "
        f"tasks queues update pick-up --location={REGION} --project={cloud.project} "
        f"--max-concurrent-dispatches={ANSWERED // 2}\n"
    )
    assert (plan.code, plan.stderr) == (0, warning)
    assert (apply_.code, apply_.stderr) == (0, warning)
    assert (drift.code, drift.stderr) == (1, warning)
    assert drift.json["warnings"] == [warning.removeprefix("warning: ").strip()]


def test_queues_that_deliver_no_more_than_is_answered_are_not_warned_of(cloud: Cloud) -> None:
    """That their shares are other ones is a person's to choose."""
    for queue, at_once in {"pick-up": ANSWERED - 1, "pack": 1}.items():
        made = {
            "name": full_name(cloud, queue),
            "rate_limits": {"max_concurrent_dispatches": at_once},
        }
        parent = f"projects/{cloud.project}/locations/{REGION}"
        cloud.clients.tasks.create_queue({"parent": parent, "queue": made}, **ONE_TRY)

    assert cloud.provision("plan").stderr == ""


def test_a_queue_that_was_deleted_yesterday_is_one_clear_line(cloud: Cloud) -> None:
    queue = first(cloud)
    queue.create()
    cloud.clients.tasks.delete_queue({"name": full_name(cloud)}, **ONE_TRY)

    with pytest.raises(ClientError) as error:
        queue.create()

    told = explain(error.value, cloud.project)
    assert told.problem.startswith("one of that name was deleted less than 3 days ago")


def test_a_create_that_only_appeared_to_succeed_is_a_failure(cloud: Cloud) -> None:
    def never_there(method: str, path: str) -> ApiError | None:
        return not_found("queue") if method == "GET" else None

    cloud.tasks.refusal = never_there

    (step, _) = apply(resources(cloud), cloud.project, patience=AT_ONCE)

    assert step.action is Action.FAILED
    assert "apply again in a minute" in step.problem


def test_a_create_that_was_refused_by_an_outage_is_tried_again(cloud: Cloud) -> None:
    outages = iter([ApiError("UNAVAILABLE", "try again")])
    cloud.tasks.refusal = lambda method, _: next(outages, None) if method == "POST" else None

    steps = list(apply(resources(cloud), cloud.project, patience=AT_ONCE))

    assert [step.action for step in steps] == [Action.CREATED, Action.CREATED]


def test_waits_that_no_queue_can_have_are_refused_before_anything_is_done(cloud: Cloud) -> None:
    with pytest.raises(SettingError, match="PIPELINE_MIN_BACKOFF_S"):
        resources(cloud, PIPELINE_MIN_BACKOFF_S="500")

    assert cloud.tasks.calls == []
