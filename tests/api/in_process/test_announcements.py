"""Announcements of an engine that serves its own: made by its threads, or when a test has them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from leasehold.bootstrap import Purpose, boot
from leasehold.domain.delivery import Delivery, DeliveryState
from leasehold.domain.lifecycle import Operation
from leasehold.ports.documents import Query
from leasehold.registry.channels import LogChannel
from leasehold.registry.pipelines import Catalog
from leasehold.registry.registry import Registry
from leasehold.services.operate import OperationRequest, operate
from leasehold.testing import FrozenClock, InProcessEngine
from leasehold.testing.in_process import RecordedChannels
from tests.worlds.builders import environ_of
from tests.worlds.catalogs.sample import PIPELINES, STEPS
from tests.worlds.loopback_http import LoopbackHttp
from tests.worlds.waiting import until

CHANNELS = Registry("channels", [LogChannel(name="log"), LogChannel(name="audit")])
NOTHING: Mapping[str, str] = {}
CATALOG = Catalog(STEPS, PIPELINES, channels=CHANNELS)


def opened(
    folder: Path, workers: int = 2, environ: Mapping[str, str] = NOTHING, **options: object
) -> InProcessEngine:
    return InProcessEngine(
        STEPS,
        PIPELINES,
        channels=CHANNELS,
        environ={**environ_of(folder), **environ},
        workers=workers,
        **options,  # type: ignore[arg-type]
    )


def states(engine: InProcessEngine) -> list[str]:
    """Return the state of what each channel is owed."""
    found = engine.engine.documents.query(Query("deliveries"))
    return [Delivery.model_validate(one.document).state for one in found]


CANCEL = OperationRequest(Operation.CANCEL, actor="ada")
ALL_TOLD = [DeliveryState.ANNOUNCED] * 2


def test_the_threads_of_an_engine_announce_what_its_workers_did(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        engine.wait(engine.start("three", {"n": 1}).run_id, 30)

        until(lambda: states(engine) == ALL_TOLD)


def test_an_engine_that_is_closed_announces_first(tmp_path: Path) -> None:
    """As `start --in-process`, which ends when its run does."""
    with opened(tmp_path) as engine:
        engine.wait(engine.start("three", {"n": 1}).run_id, 30)

    with opened(tmp_path, workers=0) as engine:
        assert states(engine) == ALL_TOLD


def test_by_hand_nothing_is_announced_until_it_is_run(tmp_path: Path) -> None:
    with opened(tmp_path, workers=0, clock=FrozenClock()) as engine:
        run = engine.start("three", {"n": 1})
        operate(engine.engine, run.run_id, CANCEL)
        before = states(engine)

        engine.run_until_idle()

        assert (before, states(engine)) == ([DeliveryState.DUE] * 2, ALL_TOLD)


def test_a_run_of_this_thread_is_announced_when_it_returns(tmp_path: Path) -> None:
    with opened(tmp_path, workers=0) as engine:
        engine.run("three", {"n": 1})

        assert states(engine) == ALL_TOLD


def cancelled_by_a_command(folder: Path) -> str:
    """Start a run and cancel it as commands on the store do, which deliver nothing."""
    bundle = boot(environ_of(folder), catalog=CATALOG, purpose=Purpose.CHANGE)
    with opened(folder, workers=0) as engine:
        run_id = engine.start("three", {"n": 1}).run_id
    operate(bundle.engine, run_id, CANCEL)
    bundle.close()
    return run_id


def test_what_a_command_owes_is_announced_by_who_serves_the_store(tmp_path: Path) -> None:
    """Soon, and not when the alarm rings after a minute."""
    with opened(tmp_path) as engine:
        engine.look_after_every_run(0.02)
        engine.adopt_all()

        cancelled_by_a_command(tmp_path)

        until(lambda: states(engine) == ALL_TOLD)


@dataclass(frozen=True)
class Metrics:
    """A server of metrics that hangs."""

    url: str
    is_asked: threading.Event
    end: threading.Event


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    is_asked, end = threading.Event(), threading.Event()

    def hang(_: BaseHTTPRequestHandler) -> None:
        is_asked.set()
        end.wait(60)

    server = LoopbackHttp(hang)
    yield Metrics(server.url, is_asked, end)
    end.set()
    server.close()


def test_a_server_of_metrics_that_hangs_delays_no_run(tmp_path: Path, metrics: Metrics) -> None:
    """Each step may ask it for 20 s, hourly; after a minute the server would count as dead."""
    learns = {"PIPELINE_LIMIT_STRATEGY": "propose", "PIPELINE_METRICS_SOURCE": metrics.url}
    with opened(tmp_path, environ=learns) as engine:
        engine.look_after_every_run(0.02)
        engine.adopt_all()
        assert metrics.is_asked.wait(10)

        cancelled_by_a_command(tmp_path)

        until(lambda: states(engine) == ALL_TOLD, 15)
        metrics.end.set()


def test_what_a_process_owed_that_is_gone_is_announced_at_the_next_start(tmp_path: Path) -> None:
    cancelled_by_a_command(tmp_path)

    with opened(tmp_path) as engine:
        engine.look_after_every_run(60)
        before = states(engine)
        engine.adopt_all()

        until(lambda: states(engine) == ALL_TOLD)
    assert before == [DeliveryState.DUE] * 2


def test_a_start_that_is_repeated_announces_what_the_first_one_could_not(tmp_path: Path) -> None:
    run_id = cancelled_by_a_command(tmp_path)

    with opened(tmp_path, workers=0) as engine:
        engine.adopt(run_id)
        engine.run_until_idle()

        assert states(engine) == ALL_TOLD


@pytest.mark.parametrize("purpose", [Purpose.CHANGE, Purpose.READ, Purpose.PREVIEW])
def test_a_command_delivers_nothing(tmp_path: Path, purpose: Purpose) -> None:
    bundle = boot(environ_of(tmp_path), catalog=CATALOG, purpose=purpose)

    assert type(bundle.events).__name__ == "UndeliveredEvents"
    bundle.close()


def test_an_announcement_that_hangs_holds_up_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is left behind with the store, to record what comes of it."""
    begun, go_on = threading.Event(), threading.Event()

    def hang(self: object, delivery: Delivery, *, timeout: float) -> None:
        begun.set()
        go_on.wait(60)

    monkeypatch.setattr(RecordedChannels, "send", hang)
    engine = opened(tmp_path)
    engine.start("three", {"n": 1})
    assert begun.wait(30)

    engine.close(grace=0)
    left = states(engine)
    go_on.set()

    until(lambda: states(engine) == ALL_TOLD)
    engine.close()
    assert DeliveryState.ANNOUNCED not in left
