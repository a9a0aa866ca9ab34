"""The extras of the distribution: what of each is imported, and which one to install."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Final

from leasehold.errors import MissingExtraError

#: The modules that each extra brings and this package imports itself.
EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "functions": (
        "functions_framework",
        "flask",
        "werkzeug",
        "gunicorn",
        "google.cloud.tasks_v2",
        "urllib3",
        "cronsim",
    ),
    "serve": ("flask", "werkzeug", "waitress"),
    "channels": ("slack_sdk",),
    "deploy": (
        "google.cloud.iam_admin_v1",
        "google.cloud.logging_v2",
        "google.cloud.monitoring_v3",
        "google.cloud.resourcemanager_v3",
        "google.cloud.run_v2",
        "google.cloud.scheduler_v1",
        "google.cloud.secretmanager_v1",
    ),
    "google": (
        "google.cloud.firestore",
        "google.cloud.storage",
        "google.cloud.tasks_v2",
        "google.pubsub_v1",
    ),
}


def require_extra(extra: str, what: str, *modules: str) -> None:
    """Refuse to go on where a module of an extra is not installed; it imports none of them.

    Args:
        extra: a key of EXTRAS.
        what: what needs it, for the message.
        modules: those of the extra that are needed; none: all of them.

    Raises:
        MissingExtraError: the message says what to type.
    """
    for module in modules or EXTRAS[extra]:
        if not _is_installed(module):
            raise MissingExtraError(what=what, module=module, extra=extra)


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # nor the package that it is in
        return False
