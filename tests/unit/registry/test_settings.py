"""The settings of a bundle, as they are read once when a process starts."""

from __future__ import annotations

import inspect
from datetime import timedelta
from pathlib import Path

import pytest

import leasehold
from leasehold.adapters.channels import ChannelOpener
from leasehold.adapters.cloud_tasks import CloudTasks
from leasehold.adapters.prometheus import PrometheusSamples
from leasehold.budgets.proposal import BudgetSettings
from leasehold.domain.delivery_rules import DeliveryRules
from leasehold.domain.dispatch import Rules
from leasehold.domain.retry import Backoff
from leasehold.errors import SettingError
from leasehold.registry.settings import SETTINGS, arguments_of, read_settings
from leasehold.services.engine import Retention
from leasehold.telemetry.observed import open_telemetry
from leasehold.web.callers import CallerCheck
from leasehold.worker.process_runner import ProcessRunner

#: What takes arguments from rows of settings: classes and a function, by their names.
PARTS = {
    part.__name__: part
    for part in (
        *(Backoff, BudgetSettings, CallerCheck, ChannelOpener, CloudTasks, DeliveryRules),
        *(ProcessRunner, PrometheusSamples, Retention, Rules, open_telemetry),
    )
}


def test_without_an_environment_the_defaults_hold() -> None:
    assert read_settings({}) == {
        "LEASEHOLD_STORE": "sqlite:///.leasehold/leasehold.db",
        "LEASEHOLD_TASKS": "in-process",
        "LEASEHOLD_EVENTS": "in-process",
        "LEASEHOLD_PUBLIC_URL": "",
        "LEASEHOLD_ARTIFACTS": "file://.leasehold/artifacts",
        "LEASEHOLD_ARTIFACTS_SHARED": False,
        "CLOUD_TASKS_EMULATOR_URL": None,
        "LEASEHOLD_FUNCTION_URL": None,
        "LEASEHOLD_TASK_ACCOUNT": "",
        "LEASEHOLD_RIGHTS": None,
        "LEASEHOLD_TOKEN": (),
        "LEASEHOLD_VIEWER_TOKEN": (),
        "LEASEHOLD_LINK_SECRET": (),
        "LEASEHOLD_IDENTITY_HEADER": "",
        "LEASEHOLD_CALLERS": (),
        "LEASEHOLD_AUDIENCE": (),
        "LEASEHOLD_CATALOG": "pipelines.catalog",
        "LEASEHOLD_ALLOW_LOCAL_CHANNELS": False,
        "LEASEHOLD_ISOLATION": None,
        "LEASEHOLD_LOG_LEVEL": {"": "INFO"},
        "LEASEHOLD_LOG_FORMAT": "",
        "LEASEHOLD_RETENTION_DAYS": None,
        "PIPELINE_MAX_RETRIES": 5,
        "PIPELINE_MAX_FAILURES": 100,
        "PIPELINE_MAX_INTERRUPTIONS": 10,
        "PIPELINE_STUCK_TIMEOUT_MS": timedelta(milliseconds=900_000),
        "PIPELINE_RECOVERY_WINDOW_MS": timedelta(milliseconds=3_600_000),
        "PIPELINE_DISPATCH_GRACE_S": timedelta(seconds=60),
        "PIPELINE_IMPORT_TIMEOUT_S": timedelta(seconds=60),
        "PIPELINE_LEASE_TTL_S": timedelta(seconds=30),
        "PIPELINE_HEARTBEAT_S": None,
        "PIPELINE_MIN_BACKOFF_S": timedelta(seconds=10),
        "PIPELINE_MAX_BACKOFF_S": timedelta(seconds=300),
        "PIPELINE_MAX_DOUBLINGS": 5,
        "PIPELINE_DELIVERY_TRIES": 3,
        "PIPELINE_DELIVERY_WAIT_S": timedelta(seconds=5),
        "PIPELINE_DELIVERY_MAX_WAIT_S": timedelta(seconds=600),
        "PIPELINE_DELIVERY_TIMEOUT_S": timedelta(seconds=10),
        "PIPELINE_DELIVERY_CALL_S": timedelta(seconds=60),
        "PIPELINE_DELIVERY_GIVE_UP_S": timedelta(seconds=86_400),
        "PIPELINE_CHANNEL_FAILURES": 5,
        "PIPELINE_CHANNEL_REST_S": timedelta(seconds=60),
        "OTEL_EXPORTER_OTLP_ENDPOINT": "",
        "DEPLOYMENT_ENV": "unknown",
        "PIPELINE_DELIVERY_STORE": "runs",
        "PIPELINE_OWN_TASKS": frozenset(),
        "PIPELINE_LIMIT_STRATEGY": "fixed",
        "PIPELINE_METRICS_SOURCE": "ledger",
        "PIPELINE_BUDGET_INIT_SOURCE": "agent.bootstrap_seconds",
        "PIPELINE_BUDGET_EXEC_SOURCE": "agent.execution_seconds",
        "PIPELINE_BUDGET_PERCENTILE": 0.95,
        "PIPELINE_BUDGET_BUFFER_S": timedelta(seconds=180),
        "PIPELINE_BUDGET_ROUNDING_S": timedelta(seconds=60),
        "PIPELINE_BUDGET_WINDOW_DAYS": timedelta(days=7),
        "LEASEHOLD_CONFIG": "",
        "PIPELINE_DELIVERY_MULTIPLIER": 2.0,
    }


def test_what_a_row_sets_is_an_argument_that_no_other_row_sets() -> None:
    sets = [entry.sets for entry in SETTINGS if entry.sets]
    arguments = {
        f"{name}.{argument}"
        for name, part in PARTS.items()
        for argument in inspect.signature(part).parameters
    }

    assert set(sets) <= arguments
    assert len(sets) == len(set(sets))
    assert {one.partition(".")[0] for one in sets} == set(PARTS)


def test_what_wires_an_engine_names_no_setting_that_its_row_gives_to_a_part() -> None:
    """A new setting changes two files: its row, and what goes by it."""
    package = Path(leasehold.__file__).parent
    wiring = [*package.glob("bootstrap/*.py"), package / "adapters/factory.py"]
    source = "".join(file.read_text() for file in wiring)

    assert "LEASEHOLD_PUBLIC_URL" in source
    assert [entry.name for entry in SETTINGS if entry.sets and f'"{entry.name}"' in source] == []


@pytest.mark.parametrize("part", [Rules, Backoff, DeliveryRules, BudgetSettings])
def test_a_rule_without_settings_is_the_one_of_their_defaults(part: type) -> None:
    declared = inspect.signature(part).parameters

    for argument, value in arguments_of(part, read_settings({})).items():
        assert declared[argument].default == value


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("LEASEHOLD_STORE", "sqlite:////data/runs.db", "sqlite:////data/runs.db"),
        ("LEASEHOLD_ARTIFACTS", "file:///data", "file:///data"),
        ("LEASEHOLD_EVENTS", "pubsub://project/topic", "pubsub://project/topic"),
        ("LEASEHOLD_EVENTS", "http://127.0.0.1:65535", "http://127.0.0.1:65535"),
        ("LEASEHOLD_PUBLIC_URL", "https://runs.example/api/", "https://runs.example/api"),
        ("LEASEHOLD_PUBLIC_URL", "http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("LEASEHOLD_CALLERS", "iam", ("iam",)),
        ("LEASEHOLD_CALLERS", "a@x.org , b@y.org", ("a@x.org", "b@y.org")),
        ("LEASEHOLD_AUDIENCE", "https://x,y", ("https://x", "y")),
        ("LEASEHOLD_ISOLATION", "inline", "inline"),
        ("LEASEHOLD_ISOLATION", "", None),
        ("PIPELINE_MAX_RETRIES", "0", 0),
        ("PIPELINE_MAX_RETRIES", "1000", 1000),
        ("PIPELINE_STUCK_TIMEOUT_MS", "1", timedelta(milliseconds=1)),
        ("PIPELINE_RECOVERY_WINDOW_MS", "604800000", timedelta(milliseconds=604_800_000)),
        ("PIPELINE_LEASE_TTL_S", "0.5", timedelta(seconds=0.5)),
        ("PIPELINE_LEASE_TTL_S", "86400", timedelta(seconds=86400)),
        ("PIPELINE_HEARTBEAT_S", "15", timedelta(seconds=15)),
        ("PIPELINE_HEARTBEAT_S", "", None),
        ("PIPELINE_MAX_DOUBLINGS", "16", 16),
    ],
)
def test_a_variable_goes_over_its_default(name: str, text: str, value: object) -> None:
    assert read_settings({name: text})[name] == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("LEASEHOLD_STORE", ""),
        ("LEASEHOLD_STORE", "sqlite:///"),
        ("LEASEHOLD_STORE", "sqlite:///:memory:"),
        ("LEASEHOLD_CALLERS", "allUsers"),
        ("LEASEHOLD_CALLERS", "iam,a@x.org"),
        ("LEASEHOLD_CALLERS", "a@x.org,"),
        ("LEASEHOLD_CALLERS", " "),
        ("LEASEHOLD_CALLERS", "serviceAccount:a@x.org"),
        ("LEASEHOLD_CALLERS", "a@x.org;b@y.org"),
        ("LEASEHOLD_CALLERS", "a b@x.org"),
        ("LEASEHOLD_AUDIENCE", "https://x,,y"),
        ("LEASEHOLD_STORE", "postgres://host/db"),
        ("LEASEHOLD_TASKS", "cloud"),
        ("LEASEHOLD_ARTIFACTS", "file://"),
        ("LEASEHOLD_EVENTS", ""),
        ("LEASEHOLD_EVENTS", "pubsub://project"),
        ("LEASEHOLD_EVENTS", "pubsub://project/topics/topic"),
        *(
            (name, value)
            for name in (
                "LEASEHOLD_FUNCTION_URL",
                "CLOUD_TASKS_EMULATOR_URL",
                "LEASEHOLD_PUBLIC_URL",
                "PIPELINE_METRICS_SOURCE",
            )
            for value in ("http://[::1", "http://x:y", "http://x:99999", "http://:80", "http://a b")
        ),
        ("LEASEHOLD_EVENTS", "http://127.0.0.1:0"),
        ("LEASEHOLD_EVENTS", "http://127.0.0.1:65536"),
        ("LEASEHOLD_EVENTS", "http://127.0.0.1:80/messages"),
        ("LEASEHOLD_EVENTS", "http://127.0.0.1"),
        ("LEASEHOLD_EVENTS", "http://10.0.0.1:80"),
        ("LEASEHOLD_EVENTS", "http://127.0.0.1.evil.example:80"),
        ("LEASEHOLD_EVENTS", "https://127.0.0.1:80"),
        ("LEASEHOLD_PUBLIC_URL", "runs.example"),
        ("LEASEHOLD_PUBLIC_URL", "https://"),
        ("LEASEHOLD_PUBLIC_URL", "https://runs.example/?a=b"),
        ("LEASEHOLD_PUBLIC_URL", "https://runs.example/#a"),
        ("LEASEHOLD_PUBLIC_URL", "https://runs.example/a b"),
        ("LEASEHOLD_PUBLIC_URL", "javascript:alert(1)"),
        ("LEASEHOLD_ISOLATION", "process"),
        ("LEASEHOLD_ISOLATION", "Inline"),
        ("LEASEHOLD_ISOLATION", " "),
        ("PIPELINE_LEASE_TTL_S", "0"),
        ("PIPELINE_LEASE_TTL_S", "-30"),
        ("PIPELINE_LEASE_TTL_S", "nan"),
        ("PIPELINE_LEASE_TTL_S", "inf"),
        ("PIPELINE_LEASE_TTL_S", "86401"),
        ("PIPELINE_LEASE_TTL_S", "1e-300"),
        ("PIPELINE_IMPORT_TIMEOUT_S", "4e-7"),
        ("PIPELINE_HEARTBEAT_S", "often"),
        ("PIPELINE_MAX_DOUBLINGS", "17"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_with_the_allowed_ones(name: str, text: str) -> None:
    """A process that starts with a wrong setting would do wrong things all day."""
    with pytest.raises(SettingError) as refused:
        read_settings({name: text})

    allowed = SETTINGS[name].allowed
    assert refused.value.message == f"{name} is {text!r}; allowed: {allowed}."


@pytest.mark.parametrize(
    ("name", "text", "default"),
    [
        ("PIPELINE_MAX_RETRIES", "", 5),
        ("PIPELINE_MAX_RETRIES", "-1", 5),
        ("PIPELINE_MAX_RETRIES", "1001", 5),
        ("PIPELINE_MAX_RETRIES", "five", 5),
        ("PIPELINE_MAX_INTERRUPTIONS", "1.5", 10),
        ("PIPELINE_STUCK_TIMEOUT_MS", "0", timedelta(milliseconds=900_000)),
        ("PIPELINE_STUCK_TIMEOUT_MS", "604800001", timedelta(milliseconds=900_000)),
        ("PIPELINE_RECOVERY_WINDOW_MS", "-1", timedelta(milliseconds=3_600_000)),
        ("PIPELINE_RECOVERY_WINDOW_MS", "1h\nx", timedelta(milliseconds=3_600_000)),
    ],
)
def test_a_threshold_that_is_not_allowed_is_reported_in_a_line_and_the_default_holds(
    name: str, text: str, default: object
) -> None:
    """A slip in a threshold must not keep runs from moving."""
    warnings: list[str] = []

    value = read_settings({name: text}, warnings.append)[name]

    assert value == default
    assert warnings == [
        (
            f"{name} refused: it is {text!r}; allowed: {SETTINGS[name].allowed}. "
            f"The default {SETTINGS[name].default} is in force."
        )
    ]
    assert "\n" not in warnings[0]


def test_a_threshold_of_any_length_is_refused_in_a_short_line() -> None:
    warnings: list[str] = []

    read_settings({"PIPELINE_MAX_RETRIES": "9" * 100_000}, warnings.append)

    assert warnings[0].startswith("PIPELINE_MAX_RETRIES refused: it is '9999")
    assert len(warnings[0]) < 300


def test_a_threshold_that_is_allowed_is_not_reported() -> None:
    warnings: list[str] = []

    read_settings({"PIPELINE_MAX_RETRIES": "0", "PIPELINE_STUCK_TIMEOUT_MS": "1"}, warnings.append)

    assert warnings == []


@pytest.mark.parametrize(
    "environ",
    [
        {"PIPELINE_HEARTBEAT_S": "15.1"},
        {"PIPELINE_HEARTBEAT_S": "6", "PIPELINE_LEASE_TTL_S": "10"},
    ],
)
def test_a_heartbeat_that_could_miss_its_lease_is_refused(environ: dict[str, str]) -> None:
    """One late beat must not lose the lease."""
    with pytest.raises(SettingError, match="at most half of PIPELINE_LEASE_TTL_S"):
        read_settings(environ)


def test_variables_of_others_are_left_alone() -> None:
    assert "HOME" not in read_settings({"HOME": "/root", "PIPELINE_DRAFT_TIMEOUT_MS": "1"})


def test_people_get_no_link_with_a_password_in_it() -> None:
    with pytest.raises(SettingError) as refused:
        read_settings({"LEASEHOLD_PUBLIC_URL": "https://ada:hunter2@runs.example"})

    assert "hunter2" not in refused.value.message
