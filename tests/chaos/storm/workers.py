"""Processes that run the delivery guard, three for each message at once, and are killed at it."""

from __future__ import annotations

import os
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, cast

from leasehold.bootstrap import Around, boot
from leasehold.errors import LeaseholdError
from leasehold.ports.channel import Channel
from leasehold.ports.documents import Documents
from leasehold.registry.channels import ChannelEntry
from leasehold.services.deliver_notification import DeliveryHint, deliver
from leasehold.services.engine import Engine
from tests.chaos.storm.catalog import CATALOG, deaf
from tests.chaos.storm.lethal import Fate, LethalChannel, LethalDocuments
from tests.chaos.storm.processes import forked_with_pipe
from tests.chaos.storm.sender import URL
from tests.worlds.stores import DOCUMENTS

#: How often each message is delivered, all at once.
COPIES: Final = 3
PATIENCE_S: Final = 60.0
#: What claims leave for their record: nobody waits for ten seconds after each kill.
RECORD_TIME: Final = timedelta(seconds=0.3)

#: Longer than a claim is good for, in seconds.
_FROZEN_S: Final = 1.5


@dataclass(frozen=True, slots=True)
class Place:
    """Where a storm is.

    Args:
        kind: of its store.
        folder: of its store.
        seed: what happens by chance in it.
        environ: the settings of its engines, and the addresses of its provider.
    """

    kind: str
    folder: Path
    seed: int
    environ: Mapping[str, str]


class Instance:
    """One process, as one of a function: it delivers one message at a time."""

    def __init__(self, place: Place) -> None:
        self._process, self._pipe = forked_with_pipe(serve, place)

    def begin(self, hint: DeliveryHint) -> None:
        """Give it a message; one that was killed since its last answer takes none."""
        with suppress(OSError):
            self._pipe.send(hint)

    def end(self) -> str | None:
        """Return what it answers; None: it was killed."""
        try:
            assert self._pipe.poll(PATIENCE_S), "a message is not answered"
            word: str = self._pipe.recv()
        except (EOFError, ConnectionError):
            self.close()
            return None
        return word

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.kill()
        self._process.join()
        self._process.close()


def serve(pipe: Connection, place: Place) -> None:
    """Deliver what comes, until this process is killed, or the last sender is gone."""
    os.environ.update(place.environ)  # as a function has it
    fate = Fate(place.seed, place.environ[URL], frozen_s=_FROZEN_S)
    with engine_at(place, lambda store: cast(Documents, LethalDocuments(store, fate))) as mild:

        def open_channel(entry: ChannelEntry) -> Channel:
            return LethalChannel(mild.channels.open(entry), mild.channels.open(deaf(entry)), fate)

        engine = replace(mild, channels=replace(mild.channels, open=open_channel))
        while hint := _next(pipe):
            pipe.send(_deliver(engine, hint))


@contextmanager
def engine_at(
    place: Place, around: Callable[[Documents], Documents] = lambda store: store
) -> Iterator[Engine]:
    """Open an engine on the store of the storm; it gets no task."""
    with DOCUMENTS[place.kind](place.folder) as documents:
        bundle = boot(
            place.environ,
            catalog=CATALOG,
            documents=documents,
            tasks=NoTasks(),
            around=Around(documents=around),
        )
        patience = replace(bundle.engine.rules.delivery, record_time=RECORD_TIME)
        rules = replace(bundle.engine.rules, delivery=patience)
        yield replace(
            bundle.engine,
            rules=rules,
            listeners=replace(bundle.engine.listeners, report=lambda _: None),
        )
        bundle.processes.close()
        bundle.engine.leases.close()


class NoTasks:
    """A task queue without workers: the storm runs each step itself."""

    def create(self, _: object) -> None:
        """Forget the task."""

    def exists(self, _: object) -> bool:
        """Say that it will come."""
        return True


def _next(pipe: Connection) -> DeliveryHint | None:
    try:
        hint: DeliveryHint = pipe.recv()
    except (EOFError, OSError):
        return None
    return hint


def _deliver(engine: Engine, hint: DeliveryHint) -> str:
    """Return what becomes of a message: the outcome, or the class of the error it raises."""
    try:
        return str(deliver(engine, hint))
    except LeaseholdError as error:
        return type(error).__name__


class Function:
    """A function that delivers messages: so many at once, each to three instances.

    A message that an instance did not answer comes again, as Pub/Sub has it.

    Attributes:
        words: how often which answer was given; None: the instance was killed.
    """

    def __init__(self, place: Place, at_once: int) -> None:
        self.words: Counter[str | None] = Counter()
        self._place = place
        self._messages: queue.Queue[DeliveryHint | None] = queue.Queue()
        self._failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._work) for _ in range(at_once)]
        for thread in self._threads:
            thread.start()

    def take(self, hint: DeliveryHint) -> None:
        """Take a message."""
        self._messages.put(hint)

    def wait_until_idle(self) -> None:
        """Wait until each message is acknowledged."""
        self._messages.join()
        if self._failures:
            raise self._failures[0]

    def close(self) -> None:
        """End all processes."""
        for _ in self._threads:
            self._messages.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        instances = [Instance(self._place) for _ in range(COPIES)]
        while (hint := self._messages.get()) is not None:
            try:
                self._deliver(instances, hint)
            except BaseException as error:  # noqa: BLE001 - the test is to hear of it
                self._failures.append(error)
            finally:
                self._messages.task_done()
        self._messages.task_done()
        for instance in instances:
            instance.close()

    def _deliver(self, instances: list[Instance], hint: DeliveryHint) -> None:
        for instance in instances:
            instance.begin(hint)
        words = [instance.end() for instance in instances]
        self.words.update(words)
        for number, word in enumerate(words):
            if word is None:
                instances[number] = Instance(self._place)
        if any(word is None or word.endswith("Error") for word in words):
            self._messages.put(hint)
