"""Settings that do not go together: each is allowed, and with the others a run would be lost.

Each is refused with what repairs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from leasehold.errors import SettingError, UnsetSettingError
from leasehold.registry.setting_texts import IAM

#: Set by Cloud Run in each of its instances.
ON_CLOUD_RUN: Final = "K_SERVICE"

Settings = Mapping[str, Any]


def check_artifacts(settings: Settings) -> None:
    """Refuse a folder of this machine beside a store that other machines use.

    Raises:
        SettingError: what is stored here, a worker elsewhere would look for in vain.
    """
    name = "LEASEHOLD_ARTIFACTS"
    is_local = settings[name].startswith("file:") and not settings["LEASEHOLD_ARTIFACTS_SHARED"]
    if _is_shared(settings) and is_local:
        reason = "workers on other machines would not find what is stored in a folder of this one"
        repair = "if it is shared by all of them, set LEASEHOLD_ARTIFACTS_SHARED=yes"
        raise _refused(settings, name, f"gs://BUCKET/PREFIX, because {reason}; {repair}")


def check_functions(settings: Settings, environ: Mapping[str, str]) -> None:
    """Refuse what a function cannot work with, which runs nothing unless a task tells it to.

    Raises:
        SettingError: its runs would be gone with the instance, or no one would run them.
    """
    if ON_CLOUD_RUN in environ and not _is_shared(settings):
        reason = "the disk of a function is gone with its instance, and the runs with it"
        raise _refused(settings, "LEASEHOLD_STORE", f"firestore://PROJECT/DATABASE, as {reason}")
    if _is_shared(settings) and settings["LEASEHOLD_TASKS"] == "in-process":
        reason = "no one takes tasks from a queue within a function"
        repair = "on one machine, `leasehold serve` runs them"
        allowed = f"cloud-tasks://PROJECT/LOCATION, because {reason}; {repair}"
        raise _refused(settings, "LEASEHOLD_TASKS", allowed)
    check_artifacts(settings)
    check_callers(settings, environ)


def check_callers(settings: Settings, environ: Mapping[str, str]) -> None:
    """Refuse a function that no one may call, or anyone.

    Raises:
        SettingError: it is not said who may call it, or whom their tokens are for.
    """
    callers = settings["LEASEHOLD_CALLERS"]
    if ON_CLOUD_RUN in environ:
        if not callers:
            problem = f"this is a function on Cloud Run ({ON_CLOUD_RUN}={environ[ON_CLOUD_RUN]})"
            allowed = "the emails of the accounts that may call it, or to iam: all that IAM lets in"
            raise UnsetSettingError(name="LEASEHOLD_CALLERS", problem=problem, allowed=allowed)
    elif callers and callers != (IAM,) and not settings["LEASEHOLD_AUDIENCE"]:
        problem = "LEASEHOLD_CALLERS needs it"
        allowed = "the addresses of this function, which the tokens of its callers are for"
        raise UnsetSettingError(name="LEASEHOLD_AUDIENCE", problem=problem, allowed=allowed)


def check_queue(settings: Settings) -> None:
    """Refuse a queue that does not know where to deliver, or would be turned away there.

    Raises:
        SettingError: no task would arrive.
    """
    if settings["LEASEHOLD_TASKS"] == "in-process":
        return
    if settings["LEASEHOLD_FUNCTION_URL"] is None:
        allowed = "the http://… or https://… address of execute_step, where tasks are sent"
        raise _unset(settings, "LEASEHOLD_FUNCTION_URL", allowed)
    if settings["CLOUD_TASKS_EMULATOR_URL"] is None and not settings["LEASEHOLD_TASK_ACCOUNT"]:
        allowed = (
            "the email of a service account that may call execute_step, which tasks sign in as"
        )
        raise _unset(settings, "LEASEHOLD_TASK_ACCOUNT", allowed)


def _is_shared(settings: Settings) -> bool:
    """Return whether other machines may use the store."""
    return bool(settings["LEASEHOLD_STORE"].startswith("firestore:"))


def _unset(settings: Settings, name: str, allowed: str) -> UnsetSettingError:
    problem = f"LEASEHOLD_TASKS={settings['LEASEHOLD_TASKS']} needs it"
    return UnsetSettingError(name=name, problem=problem, allowed=allowed)


def _refused(settings: Settings, name: str, allowed: str) -> SettingError:
    return SettingError(name=name, value=settings[name], allowed=allowed)
