"""Settings that would lose or strand a run together are refused, each with what repairs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasehold.bootstrap import Purpose, boot
from leasehold.errors import SettingError
from leasehold.registry.pipelines import Catalog
from leasehold.registry.settings import check_functions, read_settings
from leasehold.web.engine_provider import EngineProvider
from tests.worlds.catalogs.sample import PIPELINES, STEPS

SHARED = {"LEASEHOLD_STORE": "firestore://p/d"}
BUCKET = {"LEASEHOLD_ARTIFACTS": "gs://bucket/prefix"}
QUEUE = {
    "LEASEHOLD_TASKS": "cloud-tasks://p/l",
    "LEASEHOLD_FUNCTION_URL": "https://execute-step",
    "LEASEHOLD_TASK_ACCOUNT": "step-caller@p.iam",
}
TOLD = {"LEASEHOLD_ARTIFACTS_SHARED": "yes"}
LOCAL_FOLDER = (
    "LEASEHOLD_ARTIFACTS is 'file://.leasehold/artifacts'; allowed: gs://BUCKET/PREFIX, because "
    "workers on other machines would not find what is stored in a folder of this one; if it is "
    "shared by all of them, set LEASEHOLD_ARTIFACTS_SHARED=yes."
)


def refusal(environ: dict[str, str]) -> str:
    with pytest.raises(SettingError) as refused:
        check_functions(read_settings(environ), environ)
    return refused.value.message


@pytest.mark.parametrize(
    "environ",
    [
        {},
        SHARED | BUCKET | QUEUE,
        SHARED | TOLD | QUEUE,
        SHARED | BUCKET | QUEUE | {"K_SERVICE": "serve-api", "LEASEHOLD_CALLERS": "iam"},
        {"LEASEHOLD_CALLERS": "a@x", "LEASEHOLD_AUDIENCE": "https://x"},
        {"LEASEHOLD_CALLERS": "iam"},
        QUEUE | {"LEASEHOLD_TASK_ACCOUNT": "", "CLOUD_TASKS_EMULATOR_URL": "http://127.0.0.1:1"},
    ],
)
def test_settings_that_go_together_are_taken(environ: dict[str, str]) -> None:
    check_functions(read_settings(environ), environ)


def test_a_folder_of_one_machine_beside_a_store_of_many_is_refused() -> None:
    assert refusal(SHARED | QUEUE) == LOCAL_FOLDER


def test_an_api_on_a_shared_store_with_no_queue_is_refused() -> None:
    """It would take runs that never run."""
    assert refusal(SHARED | BUCKET) == (
        "LEASEHOLD_TASKS is 'in-process'; allowed: cloud-tasks://PROJECT/LOCATION, because a "
        "function takes no tasks from a queue in its memory; on one machine, `leasehold serve` "
        "runs them."
    )


def test_a_file_on_the_disk_of_a_function_is_refused() -> None:
    """Where LEASEHOLD_STORE was forgotten, each instance would have runs of its own."""
    assert refusal({"K_SERVICE": "serve-api"}).startswith(
        "LEASEHOLD_STORE is 'sqlite:///.leasehold/leasehold.db'; allowed: firestore://PROJECT/"
    )


def test_a_public_function_on_cloud_run_is_refused() -> None:
    assert refusal(SHARED | BUCKET | QUEUE | {"K_SERVICE": "serve-api"}) == (
        "LEASEHOLD_CALLERS is not set, and this is a function on Cloud Run (K_SERVICE=serve-api); "
        "set it to the emails of the accounts that may call it, or to iam: all that IAM lets in."
    )


def test_callers_whose_tokens_may_be_for_any_service_are_refused() -> None:
    assert refusal({"LEASEHOLD_CALLERS": "a@x"}) == (
        "LEASEHOLD_AUDIENCE is not set, and LEASEHOLD_CALLERS needs it; set it to the addresses of "
        "this function, which the tokens of its callers are for."
    )


@pytest.mark.parametrize("missing", ["LEASEHOLD_FUNCTION_URL", "LEASEHOLD_TASK_ACCOUNT"])
def test_a_queue_whose_tasks_would_not_arrive_is_refused(missing: str) -> None:
    with pytest.raises(SettingError, match=f"^.setting_not_set. {missing} is not set, and "):
        read_settings(QUEUE | {missing: ""})


def test_whether_a_folder_is_shared_is_yes_or_no() -> None:
    with pytest.raises(SettingError, match="LEASEHOLD_ARTIFACTS_SHARED is 'true'; allowed: yes"):
        read_settings({"LEASEHOLD_ARTIFACTS_SHARED": "true"})


@pytest.mark.parametrize("purpose", [Purpose.RUN, Purpose.CHANGE])
def test_nothing_is_opened_that_would_store_values_where_others_look_in_vain(
    purpose: Purpose, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(SettingError) as refused:
        boot(SHARED, catalog=Catalog(steps=STEPS, pipelines=PIPELINES), purpose=purpose)

    assert refused.value.message == LOCAL_FOLDER
    assert list(tmp_path.iterdir()) == []


def test_who_only_looks_at_runs_need_not_say_where_values_are() -> None:
    catalog = Catalog(steps=STEPS, pipelines=PIPELINES)

    boot(SHARED, catalog=catalog, purpose=Purpose.READ).close()


def test_a_function_with_such_settings_does_not_start() -> None:
    with pytest.raises(SettingError, match="LEASEHOLD_TASKS is 'in-process'"):
        EngineProvider(SHARED | BUCKET)
