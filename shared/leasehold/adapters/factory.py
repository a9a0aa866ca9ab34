"""Opens the adapter that an address of the settings names, and imports no other."""

# ruff: noqa: PLC0415 - a cold start pays only for the adapters it uses

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from leasehold.adapters.in_process_events import InProcessEvents
from leasehold.adapters.in_process_tasks import InProcessTasks
from leasehold.ports.artifacts import Artifacts
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Documents
from leasehold.ports.event_bus import EventBus
from leasehold.ports.sample_source import SampleSource
from leasehold.ports.task_queue import TaskQueue
from leasehold.registry.extras import require_extra
from leasehold.registry.setting_texts import FROM_LEDGER
from leasehold.registry.settings import arguments_of


def open_documents(address: str, clock: Clock) -> Documents:
    """Open the store at `sqlite:///PATH` or `firestore://PROJECT/DATABASE`."""
    if address.startswith("sqlite:"):
        from leasehold.adapters.sqlite import SqliteDocuments

        return SqliteDocuments(Path(address.removeprefix("sqlite:///")), clock)
    require_extra("google", f"LEASEHOLD_STORE={address}", "google.cloud.firestore")
    from leasehold.adapters.firestore import FirestoreDocuments

    project, database = address.removeprefix("firestore://").split("/")
    return FirestoreDocuments(project, database, clock)


def open_artifacts(address: str, clock: Clock) -> Artifacts:
    """Open the artifacts at `file://FOLDER` or `gs://BUCKET/PREFIX`."""
    if address.startswith("file:"):
        from leasehold.adapters.folder import FolderArtifacts

        return FolderArtifacts(Path(address.removeprefix("file://")), clock)
    require_extra("google", f"LEASEHOLD_ARTIFACTS={address}", "google.cloud.storage")
    from leasehold.adapters.cloud_storage import CloudStorageArtifacts

    bucket, _, prefix = address.removeprefix("gs://").partition("/")
    return CloudStorageArtifacts(bucket, prefix)


def open_tasks(settings: Mapping[str, Any], clock: Clock) -> TaskQueue:
    """Open the queue of LEASEHOLD_TASKS."""
    address = settings["LEASEHOLD_TASKS"]
    if address == "in-process":
        return InProcessTasks(clock)
    require_extra("google", f"LEASEHOLD_TASKS={address}", "google.cloud.tasks_v2")
    from leasehold.adapters.cloud_tasks import CloudTasks

    project, location = address.removeprefix("cloud-tasks://").split("/")
    return CloudTasks(project, location, **arguments_of(CloudTasks, settings))


def open_events(
    settings: Mapping[str, Any], clock: Clock, log: Callable[[str], object], *, by_hand: bool
) -> EventBus:
    """Open the event bus of LEASEHOLD_EVENTS; one within this process gets its sender.

    Args:
        settings: all of them.
        clock: decides what is due of a bus within this process.
        log: given a line where that cannot deliver.
        by_hand: that one delivers by `deliver_due` alone.
    """
    address, base_url = settings["LEASEHOLD_EVENTS"], settings["LEASEHOLD_PUBLIC_URL"]
    if address == "in-process":
        return InProcessEvents(clock, log, by_hand=by_hand)
    if address.startswith("http:"):
        from leasehold.adapters.http_events import HttpEvents

        return HttpEvents(address, base_url)
    require_extra("google", f"LEASEHOLD_EVENTS={address}", "google.pubsub_v1")
    from leasehold.adapters.pubsub import PubSubEvents

    project, topic = address.removeprefix("pubsub://").split("/")
    return PubSubEvents(project, topic, base_url)


def open_samples(
    settings: Mapping[str, Any], clock: Clock, window: timedelta
) -> SampleSource | None:
    """Open the server of PIPELINE_METRICS_SOURCE; None: durations come from the ledger."""
    address = settings["PIPELINE_METRICS_SOURCE"]
    if address == FROM_LEDGER:
        return None
    from leasehold.adapters.prometheus import GoogleToken, PrometheusSamples, is_of_google

    if is_of_google(address):
        require_extra("google", f"PIPELINE_METRICS_SOURCE={address}", "google.cloud.storage")
    return PrometheusSamples(
        address,
        window=window,
        clock=clock,
        token=GoogleToken() if is_of_google(address) else None,
        **arguments_of(PrometheusSamples, settings),
    ).samples
