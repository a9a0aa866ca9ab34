"""The environment of each deployed function: what the engine takes, and no other's secrets."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from leasehold import Registry, SlackChannel, WebhookChannel
from leasehold.cli.deploy import settings as settings_command
from leasehold.deploy.environment import catalog_of, environment_of
from leasehold.deploy.installation import Installation
from leasehold.deploy.tables import Tables
from leasehold.errors import PlatformLimitError, SettingError
from leasehold.registry.function_table import FUNCTIONS
from leasehold.registry.functions import FunctionEntry, FunctionTable, Secret
from leasehold.registry.pipelines import Catalog
from leasehold.registry.settings import read_settings
from tests.deploy.cloud import deploy
from tests.worlds.catalogs.sample import PIPELINES, STEPS

PLACE = Installation("shop-prod", "123456789012", "europe-west1", retention_days=30)
ROOT = Path(__file__).parents[2]
OPTIONS = ("--project=shop-prod", "--project-number=123456789012", "--region=europe-west1")

HOOK = ("HOOK_URL", "HOOK_SECRET")


def with_variables(variables: dict[str, Any]) -> Installation:
    return replace(PLACE, tables=Tables(variables=variables))


functions = pytest.mark.parametrize("function", FUNCTIONS, ids=FUNCTIONS.keys())


@pytest.fixture
def catalog() -> Catalog:
    channels = [
        SlackChannel(name="slack", url_variable="SLACK_URL"),
        WebhookChannel(name="hook", url_variable="HOOK_URL", secret_variable="HOOK_SECRET"),  # noqa: S106 - its name
        SlackChannel(name="slack2", url_variable="SLACK_URL"),
    ]
    return Catalog(STEPS, PIPELINES, channels=Registry("channels", channels))


@functions
def test_a_function_starts_with_its_environment(function: FunctionEntry, catalog: Catalog) -> None:
    environment = environment_of(function, PLACE, catalog)

    settings_command.check(function, environment)

    settings = read_settings(environment)
    assert settings["LEASEHOLD_STORE"] == "firestore://shop-prod/(default)"
    assert settings["LEASEHOLD_RETENTION_DAYS"] == timedelta(days=30)
    assert environment["THREADS"] == str(function.concurrency)
    assert environment["LOG_EXECUTION_ID"] == "false"


def test_settings_that_its_function_would_not_start_with_are_refused(catalog: Catalog) -> None:
    function = FUNCTIONS["execute_step"]
    environment = environment_of(function, PLACE, catalog)

    with pytest.raises(SettingError, match="LEASEHOLD_TASKS is 'in-process'"):
        settings_command.check(function, environment | {"LEASEHOLD_TASKS": "in-process"})


def test_each_function_believes_who_calls_it_alone(catalog: Catalog) -> None:
    callers = {
        function.name: environment_of(function, PLACE, catalog)["LEASEHOLD_CALLERS"]
        for function in FUNCTIONS
    }

    assert (
        callers.items()
        >= {
            "execute_step": "leasehold-tasks@shop-prod.iam.gserviceaccount.com",
            "serve_api": "iam",
            "manage_lease": "iam",
            "sweep_dead_letters": "leasehold-schedule@shop-prod.iam.gserviceaccount.com",
            "deliver_notification": "leasehold-events@shop-prod.iam.gserviceaccount.com",
        }.items()
    )


def test_tokens_are_for_the_function_and_tasks_for_execute_step(catalog: Catalog) -> None:
    environment = environment_of(FUNCTIONS["serve_api"], PLACE, catalog)

    address = "https://serve-api-123456789012.europe-west1.run.app"
    assert environment["LEASEHOLD_AUDIENCE"] == environment["LEASEHOLD_PUBLIC_URL"] == address
    assert environment["LEASEHOLD_FUNCTION_URL"] == address.replace("serve-api", "execute-step")


def test_the_secrets_of_channels_are_for_the_notifier_alone(catalog: Catalog) -> None:
    given = {
        function.name: [secret.variable for secret in function.secrets_with(catalog)]
        for function in (replace(row, secrets=()) for row in FUNCTIONS)
    }

    assert given.pop("deliver_notification") == ["SLACK_URL", "HOOK_URL", "HOOK_SECRET"]
    assert [*given.values()] == [[]] * (len(FUNCTIONS) - 1)


def test_the_secrets_of_a_row_are_for_its_function_in_the_version_that_it_names(
    catalog: Catalog,
) -> None:
    secrets = (Secret("OPENAI_API_KEY"), Secret("SLACK_URL", version="3"))
    step, notifier = FUNCTIONS["execute_step"], FUNCTIONS["deliver_notification"]

    of_step = replace(step, secrets=secrets[:1]).secrets_with(catalog)
    of_notifier = replace(notifier, secrets=secrets[1:]).secrets_with(catalog)

    assert of_step == (Secret("OPENAI_API_KEY"),)
    assert of_notifier == (secrets[1], *map(Secret, HOOK))


def test_the_secret_of_links_is_for_who_signs_and_who_checks_alone(catalog: Catalog) -> None:
    secret = Secret("LEASEHOLD_LINK_SECRET")
    of_links = ("serve_api", "deliver_notification")
    rows = (replace(row, secrets=(secret,) if row.name in of_links else ()) for row in FUNCTIONS)
    table = FunctionTable(rows)
    place = replace(PLACE, tables=Tables(table))

    environments = [environment_of(function, place, catalog) for function in table]

    assert [it.name for it in table.secrets_with(catalog)[secret]] == [*of_links]
    assert all(secret.variable not in environment for environment in environments)
    for function, environment in zip(table, environments, strict=True):
        settings_command.check(function, environment)


def test_a_secret_may_not_have_the_name_of_what_the_deployment_sets(catalog: Catalog) -> None:
    row = replace(FUNCTIONS["execute_step"], secrets=(Secret("LEASEHOLD_STORE"),))

    with pytest.raises(SettingError, match=r"a secret of execute_step in deployment\.py"):
        environment_of(row, PLACE, catalog)


def test_further_variables_are_for_every_function(catalog: Catalog) -> None:
    further = {"PIPELINE_MAX_RETRIES": "3"}

    environment = environment_of(FUNCTIONS["serve_api"], with_variables(further), catalog)

    assert environment["PIPELINE_MAX_RETRIES"] == "3"


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("THREADS", "80", "follows from the options"),
        ("LEASEHOLD_STORE", "sqlite:///x", "follows from the options"),
        ("LEASEHOLD_RETENTION_DAYS", "3", "follows from the options"),
        ("K_SERVICE", "mine", "Cloud Run sets it"),
        ("PORT", "1", "Cloud Run sets it"),
        ("FUNCTION_TARGET", "serve_api", "Cloud Run sets it"),  # all functions would be that one
        ("X_GOOGLE_ONE", "1", "Cloud Run sets it"),  # gcloud refuses it
        ("HOOK_SECRET", "whsec_abc", "gcloud secrets versions add HOOK_SECRET"),
        ("SHOP_API_KEY", "whsec_abc", r'`secrets=\(Secret\("SHOP_API_KEY"\),\)` in a row of'),
        ("SHOP_TOKEN", "whsec_abc", "deployment.py gives to a function"),
        ("ClientSecret", "whsec_abc", "docs/deploy.md#a-models-key"),
        ("DB_PASSWORD", "whsec_abc", "docs/deploy.md#a-models-key"),
        ("DB", "postgres://me:whsec_abc@db/shop", "docs/deploy.md#a-models-key"),
        ("A B", "1", "A-Z a-z 0-9 _"),
        ("RETRIES", 3, "a text, in quotes"),
        ("RETRIES", "a\0b", "without NUL"),
    ],
)
def test_a_further_variable_that_would_break_something_is_refused(
    catalog: Catalog, name: str, value: str, told: str
) -> None:
    with pytest.raises(SettingError, match=told) as refused:
        environment_of(FUNCTIONS["serve_api"], with_variables({name: value}), catalog)

    assert "whsec" not in str(refused.value)
    assert "deployment.py" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAX_TOKENS", "4000"),
        ("TOKEN_URL", "https://login.example/token"),
        ("OPENAI_BASE_URL", "https://models.example/v1"),
        ("KEYBOARD", "azerty"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("AUTHOR", "Ada"),
    ],
)
def test_a_further_variable_that_only_sounds_like_a_secret_is_taken(
    catalog: Catalog, name: str, value: str
) -> None:
    place = with_variables({name: value})

    assert environment_of(FUNCTIONS["execute_step"], place, catalog)[name] == value


def test_further_variables_are_looked_at_before_the_catalog_may_read_them() -> None:
    with pytest.raises(SettingError, match="a text, in quotes"):
        catalog_of(with_variables({"RETRIES": 3}))


@pytest.mark.parametrize(
    "value",
    ["yes", "1e3", "null", "a\nb: c", "#x", "{a}", '"', "\\U1", "\x7f\x85\u2028", "\U0001f600é"],
)
def test_yaml_reads_a_value_as_it_is(value: str) -> None:
    assert yaml.safe_load(settings_command.as_yaml({"X": value})) == {"X": value}


# -- the command ---------------------------------------------------------------------------------


def test_the_files_are_yaml_that_gcloud_takes(
    tmp_path: Path, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "settings"

    code = deploy(["settings", *OPTIONS, "--retention-days=30", f"--folder={folder}"])

    assert code == 0, capsys.readouterr().err
    for function in FUNCTIONS:
        text = (folder / f"{function.service}.yaml").read_text()
        assert yaml.safe_load(text) == environment_of(function, PLACE, catalog)
    assert len(list(folder.iterdir())) == len(FUNCTIONS) + 1
    assert deploy(["settings", *OPTIONS, f"--folder={folder}"]) == 0  # again


def test_secrets_are_named_and_their_newest_version_is_read() -> None:
    text = settings_command.secret_flags((Secret("SLACK_URL"), Secret("HOOK_SECRET", version="2")))

    assert yaml.safe_load(text) == {
        "--set-secrets": "SLACK_URL=SLACK_URL:latest,HOOK_SECRET=HOOK_SECRET:2"
    }
    assert yaml.safe_load(settings_command.secret_flags(())) == {"--clear-secrets": None}


def test_a_function_is_shown_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT)
    table = shutil.copy(ROOT / "deployment.py", tmp_path)

    code = deploy(["settings", *OPTIONS, "--show=serve_api"])

    assert code == 0
    assert 'LEASEHOLD_CALLERS: "iam"\n' in capsys.readouterr().out
    assert [str(path) for path in tmp_path.iterdir()] == [str(table)]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--catalog=nowhere.catalog",), "nowhere"),
        (("--retention-days=40000",), "--retention-days"),
        (("--project=NO",), "--project is 'NO'"),
        (("--topic=x y",), "--topic is 'x y'"),
    ],
)
def test_what_no_function_could_start_with_is_one_line(
    words: tuple[str, ...], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = deploy(["settings", *OPTIONS, f"--folder={tmp_path / 'made'}", *words])

    said = capsys.readouterr().err
    assert code == 2
    assert told in said
    assert said.count("\n") == 1
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("smoke", "told"),
    [
        (
            ("nowhere", {}),
            "SMOKE of deployment.py is 'nowhere'; allowed: a pipeline of the catalog: ",
        ),
        (("sums", {"n": "x"}), "an input that fits Number of step 'add': n: Input should be"),
        (("sums", []), "an input that fits Number of step 'add': the value itself: Input should"),
    ],
)
def test_a_test_run_that_could_not_start_is_refused_before_a_deploy(
    smoke: tuple[str, Any], told: str, catalog: Catalog
) -> None:
    """A build deployed all functions, and said so at its end."""
    place = replace(PLACE, tables=Tables(smoke=smoke))

    with pytest.raises(SettingError) as refused:
        settings_command.check_tables(place, catalog)

    assert told in refused.value.message


def test_a_handler_that_is_imported_forever_keeps_no_deploy_from_going_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bundle is refused for it, with the module's name."""
    (tmp_path / "imported_forever.py").write_text("import time\n\ntime.sleep(90)\n")
    monkeypatch.syspath_prepend(tmp_path)
    steps = [replace(step, handler="imported_forever:add") for step in STEPS]
    tables = Tables(variables={"PIPELINE_IMPORT_TIMEOUT_S": "0.5"}, smoke=("sums", {"n": 1}))
    begun = time.monotonic()

    settings_command.check_tables(
        replace(PLACE, tables=tables), Catalog(Registry("dispatch", steps), PIPELINES)
    )

    assert time.monotonic() - begun < 60


def test_a_step_that_has_more_time_than_its_function_is_not_deployed(catalog: Catalog) -> None:
    """Cloud Run would cut each long attempt short, until the run is given up."""
    rows = [
        replace(row, timeout=timedelta(minutes=1)) if row.name == "execute_step" else row
        for row in FUNCTIONS
    ]
    place = replace(PLACE, tables=Tables(FunctionTable(rows)))

    settings_command.check_tables(PLACE, catalog)
    with pytest.raises(click.ClickException, match="execute_step 60 s: it needs a minute more"):
        settings_command.check_tables(place, catalog)


def test_a_variable_that_is_nearly_a_setting_is_warned_of(
    catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    place = with_variables({"PIPELINE_MAX_RETRYS": "3", "SHOP_URL": "x", "PIPELINE_OF_SHOP": "y"})

    settings_command.check_tables(place, catalog)

    (warned,) = capsys.readouterr().err.splitlines()
    assert warned == (
        "warning: VARIABLES of deployment.py: PIPELINE_MAX_RETRYS is set, and nothing reads it: "
        "is PIPELINE_MAX_RETRIES meant?"
    )


def test_a_catalog_whose_steps_no_function_may_run_is_not_deployed() -> None:
    place = replace(PLACE, catalog="tests.worlds.catalogs.long_steps")

    with pytest.raises(PlatformLimitError, match=r"crawl \(2:00:00\)"):
        catalog_of(place)
