"""A run whose worker is killed as it ends is announced: by the retry of its task, or the sweep."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from leasehold.bootstrap import Around, boot
from leasehold.domain.announcement import AnnouncedEvent
from leasehold.domain.delivery import Delivery, DeliveryState
from leasehold.domain.event_message import EventMessage
from leasehold.ports.artifacts import Artifacts
from leasehold.registry.channels import ChannelEntry
from leasehold.services.deliver_notification import DeliveryHint, deliver
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.read_runs import get_run
from leasehold.services.start_run import StartRequest, start_run
from leasehold.services.sweep import sweep
from tests.chaos.storm.catalog import CATALOG, NAMES
from tests.chaos.storm.killed_worker import Point, killed_at
from tests.chaos.storm.scenario import deliveries_in, settings_in
from tests.chaos.storm.workers import NoTasks
from tests.worlds.emulators import need_firestore
from tests.worlds.stores import DOCUMENTS
from tests.worlds.waiting import until
from tests.worlds.wrapped import Wrapped

EVENTS = {
    "done": AnnouncedEvent.RUN_COMPLETED,
    "blocked": AnnouncedEvent.RUN_BLOCKED,
    "dead": AnnouncedEvent.RUN_DEAD_LETTERED,
}
PATIENCE_S = 60.0
NOTHING = Around()
POINTS = [
    ("done", Point.AFTER_COMMIT),
    ("done", Point.AFTER_PUBLISH),
    ("done", Point.IN_ARCHIVE),
    ("blocked", Point.AFTER_COMMIT),
    ("dead", Point.AFTER_COMMIT),
]


def on_each_store(points: Sequence[tuple[str, Point]]) -> pytest.MarkDecorator:
    """Have a test kill at each point; the gate kills at the first one alone where Firestore is.

    A worker is killed beside its store: what a store keeps of a commit, conformance tests.
    """
    first, *others = [("firestore", *point) for point in points]
    cases = [("sqlite", *point) for point in points]
    nightly = [pytest.param(*case, marks=pytest.mark.nightly) for case in others]
    return pytest.mark.parametrize(("kind", "ends", "point"), [*cases, first, *nightly])


class Told:
    """A bus that delivers at once, and a channel that takes all it gets."""

    def __init__(self) -> None:
        self.announcements: list[Delivery] = []
        self.engine: Engine | None = None

    def publish(self, messages: Sequence[EventMessage]) -> None:
        assert self.engine is not None
        for it in [message.delivery for message in messages]:
            deliver(self.engine, DeliveryHint(it.run_id, it.occurrence, it.channel))

    def close(self, grace: float = 0.0) -> bool:  # noqa: ARG002 - nothing is under way
        return True

    def send(self, delivery: Delivery, *, timeout: float) -> str:  # noqa: ARG002 - it takes no time
        self.announcements.append(delivery)
        return "taken"


@contextmanager
def opened(kind: str, folder: Path, around: Around = NOTHING) -> Iterator[tuple[Engine, Told]]:
    told = Told()

    def open_channel(_: ChannelEntry) -> Told:
        return told

    with DOCUMENTS[kind](folder) as documents:
        bundle = boot(
            settings_in(folder),
            catalog=CATALOG,
            documents=documents,
            tasks=NoTasks(),
            around=around,
        )
        told.engine = replace(
            bundle.engine, events=told, channels=replace(bundle.engine.channels, open=open_channel)
        )
        try:
            yield told.engine, told
        finally:
            bundle.processes.close()
            bundle.engine.leases.close()


def started(kind: str, folder: Path, ends: str) -> str:
    with opened(kind, folder) as (engine, _):
        return start_run(engine, StartRequest("act", {"ends": ends})).manifest.run_id


def check_told(told: Told, ends: str) -> None:
    """Check that each channel got it once."""
    assert sorted(each.channel for each in told.announcements) == sorted(NAMES)
    assert {each.event for each in told.announcements} == {EVENTS[ends]}


@on_each_store(POINTS)
def test_the_retry_of_the_task_announces_it(
    tmp_path: Path, kind: str, ends: str, point: Point
) -> None:
    need(kind)
    run_id = started(kind, tmp_path, ends)
    assert killed_at(point, kind, tmp_path, run_id) == -signal.SIGKILL

    with opened(kind, tmp_path) as (engine, told):
        execute_step(engine, Hint(run_id, 1))

        check_told(told, ends)


@on_each_store([*POINTS, ("done", Point.NOWHERE)])
def test_so_does_the_sweep(tmp_path: Path, kind: str, ends: str, point: Point) -> None:
    need(kind)
    run_id = started(kind, tmp_path, ends)
    code = 0 if point is Point.NOWHERE else -signal.SIGKILL
    assert killed_at(point, kind, tmp_path, run_id) == code

    with opened(kind, tmp_path) as (engine, told):
        swept(engine)

        check_told(told, ends)
        assert {each.state for each in deliveries_in(engine)} == {DeliveryState.ANNOUNCED}
        if ends == "done":
            until(lambda: sweep(engine) and get_run(engine, run_id).archive is None)
            check_told(told, ends)


@pytest.mark.parametrize("archive", ["raises", "hangs"])
def test_an_archive_that_fails_costs_no_announcement(tmp_path: Path, archive: str) -> None:
    over = threading.Event()

    class Archives(Wrapped[Artifacts]):
        """Artifacts that can be read and written, and not archived."""

        def __getattr__(self, name: str) -> Any:
            if name in ("compress", "delete"):
                return self._fail
            return getattr(self.inner, name)

        def _fail(self, _: str) -> None:
            if archive == "hangs":
                over.wait(PATIENCE_S)
            raise OSError("the disk is full")

    around = Around(artifacts=lambda store: cast(Artifacts, Archives(store)))
    with opened("sqlite", tmp_path, around) as (engine, told):
        run_id = start_run(engine, StartRequest("act", {"ends": "done"})).manifest.run_id
        execute_step(engine, Hint(run_id, 1))
        run = get_run(engine, run_id)
        over.set()

    check_told(told, "done")
    assert run.status == "COMPLETED"
    assert run.archive is not None
    assert run.alarm_at is not None


def swept(engine: Engine) -> None:
    """Sweep until what is due is announced."""

    def look() -> bool:
        sweep(engine)
        return all(each.alarm_at is None for each in deliveries_in(engine))

    until(look)


def need(kind: str) -> None:
    if kind == "firestore":
        need_firestore()
