"""Packages that the settings need and that are not installed; and the version of Python."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from leasehold.doctor.finding import Finding, Kind
from leasehold.doctor.setup import Setup
from leasehold.errors import MissingExtraError
from leasehold.registry.extras import require_extra

#: The beginning of a setting's value, and the module of the extra `google` that it needs.
_NEEDED: Final = (
    ("LEASEHOLD_STORE", "firestore:", "google.cloud.firestore"),
    ("LEASEHOLD_TASKS", "cloud-tasks:", "google.cloud.tasks_v2"),
    ("LEASEHOLD_EVENTS", "pubsub:", "google.pubsub_v1"),
    ("LEASEHOLD_ARTIFACTS", "gs:", "google.cloud.storage"),
)
#: Of Cloud Run: https://cloud.google.com/functions/docs/runtime-support
_NEWEST_RUNTIME: Final = (3, 14)


def missing_extras(setup: Setup) -> Iterator[Finding]:
    """Yield a finding for each setting that names what is not installed."""
    for name, scheme, module in _NEEDED:
        address = str(setup.settings[name])
        if address.startswith(scheme):
            try:
                require_extra("google", f"{name}={address}", module)
            except MissingExtraError as error:
                yield Finding(error.code, error.message)


def python_version(setup: Setup) -> Iterator[Finding]:
    """Yield a warning where this Python is newer than what functions run with."""
    version = sys.version_info[:2]
    if setup.uses_google_tasks and version > _NEWEST_RUNTIME:
        newest = ".".join(map(str, _NEWEST_RUNTIME))
        message = f"This is Python {version[0]}.{version[1]}; functions run with {newest} at most."
        yield Finding("python_version", message, kind=Kind.WARNING)
