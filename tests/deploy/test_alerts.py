"""Alerts: one condition each, which is what is billed, and each says what to do."""

from __future__ import annotations

import itertools
import re
import shlex
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from google.cloud.monitoring_v3 import AlertPolicy, NotificationChannel

from leasehold.deploy.resources.alert_policies import ALERTS, Alert, alert_policies
from leasehold.deploy.resources.log_metrics import METRICS, log_metrics
from leasehold.deploy.resources.resource import Difference, State
from leasehold.deploy.steps import Action, Step
from leasehold.domain.status import DeadLetterReason, Termination
from leasehold.google_clients.clients import ONE_TRY
from leasehold.registry.dead_letters import DEAD_LETTERS
from tests.deploy.google_server import Call
from tests.deploy.google_services.monitoring import Alerts, NotificationChannels
from tests.deploy.google_services.refusals import permission_denied
from tests.deploy.google_world import INSTALLATION, GoogleWorld, applied, looked_at

NOBODY = replace(INSTALLATION, alert_email="")
POLICIES = "projects/shop-prod/alertPolicies"
DOCS = Path(__file__).parents[2] / "docs" / "alerts.md"
LOG_METRIC = re.compile(r'metric\.type = "logging\.googleapis\.com/user/leasehold-([\w-]+)"')
LABEL = re.compile(r"metric\.label\.(\w+)")


@pytest.fixture
def alerting(world: GoogleWorld) -> Any:
    """Cloud Monitoring, with our metrics."""
    applied(*log_metrics(world.clients, INSTALLATION))
    return world.service(Alerts)


def policies_of(world: GoogleWorld) -> list[Step]:
    return applied(*alert_policies(world.clients, world.installation))


def test_dead_letters_are_one_alert_that_tells_reasons_apart_and_has_each_remedy() -> None:
    (alert,) = [one for one in ALERTS if METRICS["dead-letters"].type in one.filter]

    assert alert.by == ("reason", "pipeline")
    assert "metric.label" not in alert.filter  # whatever the reason
    for reason in DeadLetterReason:
        assert f"- `{reason}`: " in alert.advice
    for entry in DEAD_LETTERS:
        assert entry.remediation in alert.advice


def test_earlier_alerts_are_listed_with_the_command_that_deletes_them(
    world: GoogleWorld, alerting: Any
) -> None:
    """There was one for each reason: left alone, each dead letter would be told twice."""
    policies_of(world)
    earlier = next(
        policy
        for policy in alerting.policies.values()
        if policy.user_labels["leasehold"] == "dead-letters"
    )
    earlier.user_labels["leasehold"] = "dead-letter-never-started"
    name = earlier.name
    world.forget()

    first, again = (
        next(step for step in policies_of(world) if step.resource.name == "dead-letters")
        for _ in range(2)
    )

    assert (first.action, again.action) == (Action.CREATED, Action.NONE)
    assert first.repair == again.repair == f"gcloud alpha monitoring policies delete {name}"
    assert again.look.differences[0].field == "tells what others tell"
    assert name in alerting.policies


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_looks_at_a_metric_that_is_counted_and_at_its_labels(alert: Alert) -> None:
    """A label that a metric lacks would make an alert that is never raised."""
    found = LOG_METRIC.search(alert.filter)
    if found is None:
        assert "run.googleapis.com/request_count" in alert.filter
        return
    metric = METRICS[found[1]]
    assert {*LABEL.findall(alert.filter), *alert.by} <= set(metric.labels)
    assert alert.is_distribution == bool(metric.value)


def test_what_a_deploy_or_a_person_ends_raises_nothing() -> None:
    looked_at = ALERTS["terminated-attempts"].filter

    excluded = set(re.findall(r'reason != "(\w+)"', looked_at))
    assert excluded == {Termination.INSTANCE_SHUTDOWN, Termination.CANCELLED}


def test_metrics_that_are_new_are_waited_for(world: GoogleWorld) -> None:
    applied(*log_metrics(world.clients, INSTALLATION))
    world.service(Alerts).is_late = True
    first = policies_of(world)
    world.service(Alerts).is_late = False

    second = policies_of(world)

    waiting = [step for step in first if step.look.state is State.WAITING]
    assert len(waiting) == len(ALERTS) - 2  # those of Cloud Run are always known
    assert (
        waiting[0].look.why == "Cloud Monitoring to know its new metric: apply again in 10 minutes"
    )
    assert {step.look.state for step in first if step.action is Action.FAILED} == set()
    done = [step.action for step in second]
    assert done.count(Action.CREATED) == len(ALERTS) - 2


def test_policies_are_created_once_and_sent_to_the_address(
    world: GoogleWorld, alerting: Any
) -> None:
    policies_of(world)
    world.forget()
    again = policies_of(world)

    (channel,) = world.service(NotificationChannels).channels.values()
    assert channel.labels["email_address"] == "ops@example.com"
    assert {policy.user_labels["leasehold"] for policy in alerting.policies.values()} == {
        alert.name for alert in ALERTS
    }
    assert {tuple(policy.notification_channels) for policy in alerting.policies.values()} == {
        (channel.name,)
    }
    assert {step.look.state for step in again} == {State.PRESENT}
    assert world.writes() == []


def test_an_answer_that_is_lost_creates_no_policy_twice(world: GoogleWorld, alerting: Any) -> None:
    """Google names policies itself, and would take the same one again."""
    world.server.lose_answer("CreateAlertPolicy")
    world.server.lose_answer("CreateNotificationChannel")

    policies_of(world)

    assert len(alerting.policies) == len(ALERTS)
    assert len(world.service(NotificationChannels).channels) == 1


def test_no_policy_is_created_before_the_address_that_it_is_sent_to(
    world: GoogleWorld, alerting: Any
) -> None:
    """Existing policies are left alone, so one without the address would never alert a person."""
    world.server.refuse("CreateNotificationChannel", permission_denied("monitoring.x.create"))
    first = policies_of(world)
    world.forget()

    policies_of(world)

    address, *alerts = first
    assert address.action is Action.FAILED
    assert {step.look.state for step in alerts} == {State.WAITING}
    (channel,) = world.service(NotificationChannels).channels
    policies = alerting.policies.values()
    assert {tuple(policy.notification_channels) for policy in policies} == {(channel,)}


def at_the_same_moment(world: GoogleWorld, method: str, resource: Callable[[], Any]) -> list[Step]:
    """Return what two applies do that have both found nothing there before either creates it."""
    both = threading.Barrier(2)
    arrived = itertools.count(1)

    def meet(call: Call) -> None:
        if call.method.endswith(method) and next(arrived) <= 2:
            both.wait(60)

    world.server.on_call = meet
    with ThreadPoolExecutor(2) as pool:
        applies = [pool.submit(applied, resource()) for _ in range(2)]
        return [step for one in applies for step in one.result()]


def test_of_two_applies_at_once_one_says_what_to_delete_and_so_does_a_drift(
    world: GoogleWorld, alerting: Any
) -> None:
    """Google names policies, takes no name of ours, and has nothing that would refuse a second."""
    steps = at_the_same_moment(
        world, "CreateAlertPolicy", lambda: next(alert_policies(world.clients, NOBODY))
    )
    world.forget()

    later = looked_at(next(alert_policies(world.clients, NOBODY)))
    again = applied(next(alert_policies(world.clients, NOBODY)))

    assert [step.action for step in steps] == [Action.CREATED, Action.CREATED]
    assert sorted(alerting.policies) == [f"{POLICIES}/1000", f"{POLICIES}/1001"]
    deletion = f"gcloud alpha monitoring policies delete {POLICIES}/1001"
    assert deletion in {step.repair for step in steps}
    assert (later.look.state, later.repair) == (State.DIFFERENT, deletion)
    assert later.look.differences == (Difference("how many", "2", wanted="1"),)
    assert [step.action for step in again] == [Action.NONE]
    assert world.writes() == []


def test_of_two_addresses_the_older_one_is_used_and_the_other_one_is_told(
    world: GoogleWorld, alerting: Any
) -> None:
    def address() -> Any:
        return next(alert_policies(world.clients, INSTALLATION))

    steps = at_the_same_moment(world, "CreateNotificationChannel", address)

    told, *alerts = policies_of(world)
    deletion = "gcloud alpha monitoring channels delete projects/shop-prod/notificationChannels/2"
    assert [step.action for step in steps] == [Action.CREATED, Action.CREATED]
    assert deletion in {step.repair for step in steps}
    assert (told.look.state, told.repair) == (State.DIFFERENT, deletion)
    assert {step.action for step in alerts} == {Action.CREATED}
    assert {tuple(policy.notification_channels) for policy in alerting.policies.values()} == {
        ("projects/shop-prod/notificationChannels/1",)
    }


def test_a_copy_that_differs_is_reported_with_both_commands(
    world: GoogleWorld, alerting: Any
) -> None:
    policies_of(world)
    policy = next(iter(alerting.policies.values()))
    copy = AlertPolicy(policy, name=f"{POLICIES}/0999")
    copy.creation_record.mutate_time = policy.creation_record.mutate_time + timedelta(seconds=9)
    alerting.policies[copy.name] = copy
    policy.enabled = False

    (told,) = [step for step in policies_of(world) if step.look.state is not State.PRESENT]

    assert [difference.field for difference in told.look.differences] == ["enabled", "how many"]
    assert told.repair == (
        f"gcloud alpha monitoring policies update {policy.name} --enabled; "
        f"gcloud alpha monitoring policies delete {copy.name}"
    )


def test_that_it_cannot_be_looked_at_again_makes_no_failure_of_a_create(
    world: GoogleWorld, alerting: Any
) -> None:
    def refuse_from_now_on(call: Call) -> None:
        if call.method.endswith("CreateAlertPolicy"):
            world.server.refuse("ListAlertPolicies", permission_denied("monitoring.x.list"))

    world.server.on_call = refuse_from_now_on

    (step,) = applied(next(alert_policies(world.clients, NOBODY)))

    assert (step.action, step.problem, step.repair) == (Action.CREATED, "", "")


def test_the_conditions_are_what_cloud_monitoring_takes(world: GoogleWorld, alerting: Any) -> None:
    policies_of(world)

    made = {policy.user_labels["leasehold"]: policy for policy in alerting.policies.values()}
    pending = made["oldest-pending"].conditions[0].condition_threshold
    assert pending.threshold_value == 900
    assert pending.aggregations[0].per_series_aligner.name == "ALIGN_PERCENTILE_99"
    given_up = made["dead-letters"]
    counted = given_up.conditions[0].condition_threshold.aggregations[0]
    assert given_up.severity == AlertPolicy.Severity.CRITICAL
    assert counted.per_series_aligner.name == "ALIGN_DELTA"
    assert list(counted.group_by_fields) == ["metric.label.reason", "metric.label.pipeline"]
    assert [len(policy.conditions) for policy in made.values()] == [1] * len(ALERTS)
    sweep = made["no-sweep"].conditions[0].condition_absent
    assert sweep.duration == timedelta(minutes=10)
    assert 'service_name = "sweep-dead-letters"' in sweep.filter
    derivation = made["no-derivation"].conditions[0].condition_absent
    assert derivation.duration == timedelta(hours=3)
    assert 'service_name = "derive-budgets"' in derivation.filter


def test_a_wait_is_known_within_15_percent(world: GoogleWorld) -> None:
    """By the buckets that Google takes by default 700 s may be counted as 1300."""
    applied(*log_metrics(world.clients, INSTALLATION))

    kept = world.server.world.log_metrics["projects/shop-prod/metrics/leasehold-oldest-pending"]
    assert kept.bucket_options.exponential_buckets.growth_factor == 1.15


def test_an_alert_that_a_person_changed_is_left_alone(world: GoogleWorld, alerting: Any) -> None:
    policies_of(world)
    policy = next(
        one for one in alerting.policies.values() if "oldest" in one.user_labels["leasehold"]
    )
    policy.enabled = False
    policy.conditions[0].condition_threshold.threshold_value = 3600
    world.forget()

    (told,) = [step for step in policies_of(world) if step.look.state is not State.PRESENT]

    assert told.look.differences == (
        Difference("enabled", found="no", wanted="yes"),
        Difference("raised above", found="3600", wanted="900"),
    )
    assert told.repair == f"gcloud alpha monitoring policies update {policy.name} --enabled"
    assert world.writes() == []


def test_an_address_that_is_added_later_gets_alerts(world: GoogleWorld, alerting: Any) -> None:
    policies_of(world.with_(alert_email=""))
    later = policies_of(world)

    told = [step for step in later if step.look.state is State.DIFFERENT]
    assert len(told) == len(ALERTS)
    assert told[0].look.differences == (Difference("told", "no one", "ops@example.com"),)
    assert "--add-notification-channels=projects/shop-prod/notificationChannels/1" in told[0].repair


def test_the_address_of_a_person_s_own_channel_is_used(world: GoogleWorld, alerting: Any) -> None:
    theirs = NotificationChannel(type_="email", labels={"email_address": "ops@example.com"})
    asked = {"name": "projects/shop-prod", "notification_channel": theirs}
    world.clients.notification_channels.create_notification_channel(asked, **ONE_TRY)
    world.service(NotificationChannels).channels[
        f"{asked['name']}/notificationChannels/1"
    ].enabled = True

    policies_of(world)

    assert len(world.service(NotificationChannels).channels) == 1


def test_a_person_s_second_channel_to_the_same_address_is_no_difference(
    world: GoogleWorld, alerting: Any
) -> None:
    """Another policy would send each alert twice."""
    policies_of(world)
    channels = world.service(NotificationChannels).channels
    (name, first), *_ = channels.items()
    second = NotificationChannel(first, name=f"{name}0")
    second.user_labels.clear()
    channels.clear()
    channels.update({second.name: second, name: first})

    assert {step.look.state for step in policies_of(world)} == {State.PRESENT}


def test_a_metric_that_counts_other_lines_is_left_alone(world: GoogleWorld) -> None:
    resources = list(log_metrics(world.clients, INSTALLATION))
    applied(*resources)
    kept = world.server.world.log_metrics["projects/shop-prod/metrics/leasehold-dead-letters"]
    kept.filter = "severity>=ERROR"
    world.forget()

    step = looked_at(resources[0])

    assert step.look.state is State.DIFFERENT
    assert step.look.differences[0].found == "severity>=ERROR"
    assert step.repair.startswith("gcloud logging metrics update leasehold-dead-letters ")
    assert world.writes() == []


def test_the_docs_have_each_alert() -> None:
    text = DOCS.read_text()

    assert [alert.name for alert in ALERTS if f"`{alert.name}`" not in text] == []
    assert [metric.id for metric in METRICS if f"`{metric.id}`" not in text] == []


def test_a_name_of_strangers_is_safe_in_a_shell(world: GoogleWorld, alerting: Any) -> None:
    policies_of(world)
    copy = AlertPolicy(next(iter(alerting.policies.values())), name=f"{POLICIES}/1'; reboot; $(x)")
    copy.creation_record.mutate_time += timedelta(seconds=9)
    alerting.policies[copy.name] = copy

    (told,) = [step for step in policies_of(world) if step.look.state is not State.PRESENT]

    assert shlex.split(told.repair)[-1] == copy.name
