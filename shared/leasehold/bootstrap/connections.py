"""What an engine works on: stores, queue and bus, as the settings name them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.factory import open_artifacts, open_documents, open_events, open_tasks
from leasehold.adapters.folder_identity import FolderIdentity
from leasehold.adapters.in_process_events import InProcessEvents, UndeliveredEvents
from leasehold.adapters.in_process_tasks import InProcessTasks, UndeliveredTasks
from leasehold.adapters.null_stores import NullArtifacts, NullDocuments
from leasehold.errors import SettingError, StoreUnavailableError, UnsetSettingError
from leasehold.frozen import dataclass
from leasehold.ports.artifacts import Artifacts
from leasehold.ports.channel import Channel
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Documents
from leasehold.ports.event_bus import EventBus
from leasehold.ports.task_queue import PulledTaskQueue, TaskQueue
from leasehold.registry.channels import ChannelEntry
from leasehold.registry.settings import SETTINGS
from leasehold.services.engine import Engine
from leasehold.worker.bounded_sends import BoundedEvents

if TYPE_CHECKING:
    from leasehold.adapters.sqlite.reader import SqliteReader

#: Buses that end with their process, and whose `publish` never waits.
_BUSES_OF_A_PROCESS: Final = (InProcessEvents, UndeliveredEvents)


class Purpose(Enum):
    """The purpose for which an engine is opened."""

    RUN = "run"  # runs, and whatever else the settings describe
    READ = "read"  # a command that only looks
    CHANGE = "change"  # a command that runs nothing: a queue in this process delivers nothing
    PREVIEW = "preview"  # on stores that hold nothing and keep nothing, in place of the settings'


@dataclass(frozen=True, slots=True)
class Around:
    """What stands between an engine and what is outside of it, for tests; by default nothing."""

    documents: Callable[[Documents], Documents] = lambda store: store
    artifacts: Callable[[Artifacts], Artifacts] = lambda store: store
    events: Callable[[EventBus], EventBus] = lambda bus: bus
    open_channel: Callable[[ChannelEntry], Channel] | None = None  # None: what really sends


@dataclass(frozen=True, slots=True)
class Connections:
    """The stores, the queue and the bus of one engine.

    Args:
        documents, artifacts, tasks: as the engine uses them.
        bus: where messages go, as it was opened.
        events: the same as the engine uses it: publishing does not block.
    """

    documents: Documents
    artifacts: Artifacts
    tasks: TaskQueue
    bus: EventBus
    events: EventBus


def connect(
    settings: Mapping[str, Any],
    environ: Mapping[str, str],
    clock: Clock,
    log: Callable[[str], object],
    *,
    purpose: Purpose,
    around: Around,
    documents: Documents | None,
    tasks: TaskQueue | None,
    by_hand: bool,
) -> Connections:
    """Open what the settings name; see `boot`."""
    if tasks is None:
        tasks = _open_queue(settings, clock, purpose)  # first: to open it makes nothing
    bus = _open_events(settings, clock, log, purpose, by_hand=by_hand)
    around_bus = around.events(bus)
    artifacts: Artifacts
    if purpose is Purpose.PREVIEW:
        documents, artifacts = NullDocuments(clock), NullArtifacts()
    else:
        documents, artifacts = _open_stores(settings, environ, clock, documents)
        if settings["LEASEHOLD_ARTIFACTS"].startswith("file:"):
            _identify(artifacts, documents, log, purpose)
    return Connections(
        documents=around.documents(documents),
        artifacts=around.artifacts(artifacts),
        tasks=tasks,
        bus=bus,
        events=around_bus
        if isinstance(bus, _BUSES_OF_A_PROCESS)
        else BoundedEvents(around_bus, clock),
    )


def delivers_tasks(engine: Engine) -> bool:
    """Return whether tasks that a command creates reach a worker once the command is over."""
    return not isinstance(engine.tasks, InProcessTasks)


def delivers_events(engine: Engine) -> bool:
    """Return whether messages that a command publishes reach who sends, once it is over."""
    return not isinstance(engine.events, _BUSES_OF_A_PROCESS)


def _open_queue(settings: Mapping[str, Any], clock: Clock, purpose: Purpose) -> TaskQueue:
    if purpose is Purpose.PREVIEW:
        return InProcessTasks(clock)
    if purpose is Purpose.CHANGE and settings["LEASEHOLD_TASKS"] == "in-process":
        return UndeliveredTasks(clock)  # what waits in such a queue is not to be known here
    return open_tasks(settings, clock)


def _open_events(
    settings: Mapping[str, Any],
    clock: Clock,
    log: Callable[[str], object],
    purpose: Purpose,
    *,
    by_hand: bool,
) -> EventBus:
    """Open the bus; a command that runs nothing delivers nothing either, unless it says so."""
    is_undelivered = settings["LEASEHOLD_EVENTS"] == "in-process" and not by_hand
    if purpose in (Purpose.READ, Purpose.PREVIEW) or (purpose is Purpose.CHANGE and is_undelivered):
        return UndeliveredEvents()
    return open_events(settings, clock, log, by_hand=by_hand)


def _open_stores(
    settings: Mapping[str, Any],
    environ: Mapping[str, str],
    clock: Clock,
    documents: Documents | None,
) -> tuple[Documents, Artifacts]:
    """Open both stores, or raise which setting leads nowhere; then nothing was made."""
    name = "LEASEHOLD_ARTIFACTS"  # first: to open them makes nothing
    try:
        artifacts = open_artifacts(settings[name], clock)
        name = "LEASEHOLD_STORE"
        documents = documents or open_documents(settings[name], clock)
    except StoreUnavailableError as error:
        allowed, problem = f"{SETTINGS[name].allowed} that can be written", error.details["problem"]
        if name not in environ:
            problem = f"its default {settings[name]} cannot be used ({problem})"
            raise UnsetSettingError(name=name, problem=problem, allowed=allowed) from error
        allowed = f"{allowed} ({problem})"
        raise SettingError(name=name, value=settings[name], allowed=allowed) from error
    return documents, artifacts


def _identify(
    artifacts: Artifacts, documents: Documents, log: Callable[[str], object], purpose: Purpose
) -> None:
    """Have a folder be the one that the documents know, or become it.

    Who runs steps does so now, so that no step pays for it, and else once the documents answer;
    who changes something, when it stores the first file; who only looks writes nothing.
    """
    from leasehold.adapters.folder import FolderArtifacts  # noqa: PLC0415 - as in the factory

    if not isinstance(artifacts, FolderArtifacts):
        return
    note = None if purpose is Purpose.READ else documents
    says = log if purpose is Purpose.RUN else lambda _: None  # a command prints what it meets
    artifacts.know_by_mark(FolderIdentity(artifacts.root, documents, says, note=note).find)
    if purpose is Purpose.RUN:
        with contextlib.suppress(StoreUnavailableError):  # the first use of a file meets it
            artifacts.check_mark(may_write=True)


# A store to look at: it is neither made nor changed by that.


#: What can be asked of it: `query`, and `close`.
StoreReader: TypeAlias = "Documents | SqliteReader"


def store_file(address: str) -> Path | None:
    """Return the file of a store; None: it is in no file."""
    if not address.startswith("sqlite:"):
        return None
    return Path(address.removeprefix("sqlite:///"))


def read_store(address: str, clock: Clock) -> StoreReader:
    """Open a store to look at it.

    Raises:
        StoreUnavailableError, StoreVersionError: it cannot be read.
        MissingExtraError: its client is not installed.
    """
    file = store_file(address)
    if file is None:
        return open_documents(address, clock)
    from leasehold.adapters.sqlite.reader import SqliteReader  # noqa: PLC0415 - no function needs it

    return SqliteReader(file, clock)


def folder_problem(folder: Path, store: StoreReader) -> str | None:
    """Return in words why a folder is not the one of the artifacts that a store knows.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    try:
        FolderIdentity(folder, store).find()
    except StoreUnavailableError as error:
        if error.details["store"] != str(folder):
            raise
        return str(error.details["problem"])
    return None


def file_damages(file: Path, clock: Clock, within_s: float) -> tuple[list[str], bool]:
    """Return what is damaged in a store's file, and whether all of it was looked at.

    Raises:
        StoreUnavailableError, StoreVersionError: it cannot be read at all.
    """
    from leasehold.adapters.sqlite.reader import SqliteReader  # noqa: PLC0415 - as above

    return SqliteReader(file, clock).damages(within_s)


# Parts of a bundle, for callers that need only one of them.


def system_clock() -> Clock:
    """Return the machine's clock."""
    return SystemClock()


def no_documents(clock: Clock) -> Documents:
    """Return a store that is empty, and forgets what is written to it."""
    return NullDocuments(clock)


def folder_artifacts(folder: Path, clock: Clock) -> Artifacts:
    """Return the artifacts that lie in a folder, as those of a `file://` address do."""
    return open_artifacts(f"file://{folder}", clock)


def in_process_queue(clock: Clock) -> PulledTaskQueue:
    """Return a queue within this process, for a caller that drives an engine by it."""
    return InProcessTasks(clock)
