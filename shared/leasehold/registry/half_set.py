"""Settings that do not go together: each is allowed, and with the others a run would be lost.

Each is refused with what repairs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from leasehold.errors import SettingError, UnsetSettingError

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
        SettingError: its runs would be gone with the instance, or nobody would run them.
    """
    if ON_CLOUD_RUN in environ and not _is_shared(settings):
        reason = "the disk of a function is gone with its instance, and the runs with it"
        raise _refused(settings, "LEASEHOLD_STORE", f"firestore://PROJECT/DATABASE, as {reason}")
    if _is_shared(settings) and settings["LEASEHOLD_TASKS"] == "in-process":
        reason = "nobody takes tasks from a queue within a function"
        repair = "on one machine, `leasehold serve` runs them"
        allowed = f"cloud-tasks://PROJECT/LOCATION, because {reason}; {repair}"
        raise _refused(settings, "LEASEHOLD_TASKS", allowed)
    check_artifacts(settings)


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
