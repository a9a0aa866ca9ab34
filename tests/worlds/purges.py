"""Runs to be purged, and calls that go on by one call of a store at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from leasehold.adapters.in_process_events import UndeliveredEvents
from leasehold.domain.artifact_name import files_folder, step_folder
from leasehold.domain.delivery import Delivery, DeliveryState, delivery_of
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest, run_ref
from leasehold.domain.stored import Ref, StoredDocument, Write, replace
from leasehold.domain.trace import loss_ref
from leasehold.errors import LeaseholdError, StoreUnavailableError
from leasehold.ports.documents import Documents, Query
from leasehold.services.engine import Engine, find_run
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.start_run import StartRequest, start_run
from tests.worlds.catalogs import sample
from tests.worlds.engines import engine_on_store

CHANNEL: Final = "log"
LATE: Final = timedelta(days=1)
_LARGE: Final = {"n": 1, "text": "x" * 40_000}


@contextmanager
def engine_of_purges(documents: Documents, folder: Path) -> Iterator[Engine]:
    """Wire one whose runs are announced on one channel, and never delivered."""
    with engine_on_store(documents, folder, sample) as engine:
        rules = replace(engine.rules, channels_for=lambda _pipeline, _event: (CHANNEL,))
        yield replace(engine, rules=rules, events=UndeliveredEvents())


def give_key(engine: Engine, key: str) -> Manifest:
    """Begin a run with a large input, or find the one that the key began."""
    return start_run(engine, StartRequest("three", _LARGE, key, labels={"test": key})).manifest


def furnish(engine: Engine, run: Manifest) -> None:
    """Give the run a file, a checkpoint and an event that no number names."""
    engine.artifacts.put(f"{files_folder(run)}/report.md", b"x")
    engine.artifacts.put(f"{step_folder(run, run.current_step, 1)}/1-a.json.gz", b"x")
    lost = {"type": "lease_lost", "at": run.created_at, "step": run.current_step}
    engine.documents.transact(loss_ref(run, "lease"), lambda _, __: Write(None, lost))


def begin(engine: Engine, key: str) -> Manifest:
    """Begin a run that has all that a run may have."""
    run = give_key(engine, key)
    furnish(engine, run)
    return run


def end(engine: Engine, run: Manifest) -> Manifest:
    """End the run, and have it announced."""
    operate(engine, run.run_id, OperationRequest(Operation.CANCEL, "ann"))
    for delivery in deliveries(engine, run.run_id):
        send(engine, delivery)
    return find_run(engine, run.run_id).manifest


def send(engine: Engine, delivery: Delivery) -> None:
    write(engine, replace(delivery, state=DeliveryState.ANNOUNCED, alarm_at=None))


def write(engine: Engine, delivery: Delivery) -> None:
    ref = Ref("deliveries", delivery.delivery_id)
    engine.documents.transact(ref, lambda _, __: Write(None, StoredDocument(delivery)))


def deliveries(engine: Engine, run_id: str) -> list[Delivery]:
    query = Query("deliveries", order_by="createdAt", equal={"runId": run_id}, descending=True)
    return [delivery_of(found.ref, found.document) for found in engine.documents.query(query)]


def stored(engine: Engine, run_id: str) -> set[str]:
    """Return the names of all there is of a run id, whatever its life."""
    documents = [
        *filter(None, [engine.documents.get(run_ref(run_id))]),
        *engine.documents.query(Query(f"runs/{run_id}/trace")),
    ]
    told = {f"{one.delivery_id} of {one.mark}" for one in deliveries(engine, run_id)}
    return {str(one.ref) for one in documents} | told | {*engine.artifacts.list(f"runs/{run_id}")}


class KilledError(BaseException):
    """The process of a call was killed."""


class Stepped:
    """A call in its own thread, which goes on by one call of a store at a time.

    Args:
        engine: its parts.
        work: the call, on parts whose stores wait.

    Attributes:
        is_over: whether it has returned, raised or was killed.
        answer: what it returned; None: nothing.
        refusal: what it raised, unless a store was away; None: nothing.
    """

    def __init__(self, engine: Engine, work: Callable[[Engine], object]) -> None:
        self._go, self._waits = threading.Semaphore(0), threading.Semaphore(0)
        self._is_killed = self._loses_answer = False
        self.is_over = False
        self.answer: Any = None
        self.refusal: LeaseholdError | None = None
        documents: Any = Turnstile(engine.documents, self._enter, self._leave)
        artifacts: Any = Turnstile(engine.artifacts, self._enter, self._leave)
        stepped = replace(
            engine,
            documents=documents,
            artifacts=artifacts,
            threads=replace(engine.threads, side_by_side=_alone),
        )
        self._thread = threading.Thread(target=self._run, args=(stepped, work), daemon=True)
        self._thread.start()
        self._waits.acquire()

    def _run(self, engine: Engine, work: Callable[[Engine], object]) -> None:
        try:
            self.answer = work(engine)
        except KilledError:
            pass
        except LeaseholdError as error:
            self.refusal = None if error.retryable else error
        finally:
            self.is_over = True
            self._waits.release()

    def _enter(self) -> None:
        self._waits.release()
        self._go.acquire()
        if self._is_killed:
            raise KilledError

    def _leave(self) -> None:
        if self._loses_answer:
            self._loses_answer = False
            raise StoreUnavailableError(store="test", problem="the answer was lost")

    def step(self, count: int = 1) -> None:
        """Let it make so many calls, or as many as it has."""
        for _ in range(count):
            if self.is_over:
                return
            self._go.release()
            self._waits.acquire()

    def lose_answer(self) -> None:
        """Let it make one call, whose answer does not come."""
        self._loses_answer = True
        self.step()

    def kill(self) -> None:
        self._is_killed = True
        self.step()
        self._thread.join()


class Turnstile:
    """A store each of whose calls waits until it is let through, and again before its answer."""

    def __init__(
        self, within: Any, enter: Callable[[], None], leave: Callable[[], None] = lambda: None
    ) -> None:
        self._within, self._enter, self._leave = within, enter, leave

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._within, name)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            self._enter()
            answer = found(*args, **options)
            self._leave()
            return answer

        return call


def _alone(next_call: Callable[[], Callable[[], None] | None], _width: int) -> None:
    while call := next_call():
        call()
