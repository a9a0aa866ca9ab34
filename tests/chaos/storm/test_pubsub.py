"""The storm on Pub/Sub's emulator: each message published three times, the real function killed."""

from __future__ import annotations

import os
import secrets
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from leasehold.bootstrap import boot
from leasehold.domain.delivery import DeliveryState
from leasehold.domain.event_message import EventMessage
from leasehold.ports.event_bus import EventBus
from leasehold.services.sweep import sweep
from tests.api.functions.test_pubsub import subscribe
from tests.chaos.storm.catalog import CATALOG
from tests.chaos.storm.provider import provider
from tests.chaos.storm.scenario import Aftermath, Storm, announce, deliveries_in, settings_in
from tests.chaos.storm.sender import URL
from tests.chaos.storm.test_storm import check
from tests.chaos.storm.workers import COPIES, NoTasks
from tests.worlds.emulators import need_pubsub, pubsub_host
from tests.worlds.function_process import function_process
from tests.worlds.waiting import until

STORM = Storm("sqlite", announcements=5, seed=1)
PATIENCE_S = 120.0


class ThreeTimes:
    """A bus to which each message is published three times."""

    def __init__(self, inner: EventBus) -> None:
        self._inner = inner

    def publish(self, messages: Sequence[EventMessage]) -> None:
        self._inner.publish([*messages] * COPIES)

    def close(self, grace: float = 0.0) -> bool:
        return self._inner.close(grace)


def test_in_a_storm_on_pubsub_every_announcement_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_pubsub()
    project = f"p-{secrets.token_hex(8)}"
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", pubsub_host())
    own = settings_in(tmp_path) | {
        "LEASEHOLD_STORE": f"sqlite:///{tmp_path / 'runs.db'}",
        "LEASEHOLD_EVENTS": f"pubsub://{project}/runs",
        "LEASEHOLD_CATALOG": "tests.chaos.storm.function_catalog",
    }
    with provider(STORM.seed) as there:
        environ = dict(os.environ) | own | {URL: there.url}
        with function_process(environ) as url, grpc.insecure_channel(pubsub_host()) as channel:
            subscribe(channel, project, url)
            bundle = boot(own, catalog=CATALOG, tasks=NoTasks())
            events = ThreeTimes(bundle.engine.events)
            engine = replace(
                bundle.engine,
                events=events,
                listeners=replace(bundle.engine.listeners, report=lambda _: None),
            )
            expected = announce(engine, STORM)

            def is_over() -> bool:
                sweep(engine)
                threading.Event().wait(0.5)  # the sweep of production comes each minute
                return all(each.alarm_at is None for each in deliveries_in(engine))

            until(is_over, PATIENCE_S)
            deliveries = deliveries_in(engine)
            bundle.close()
        ends = there.ends
        after = Aftermath(expected, deliveries, there.taken, Counter(), there.weathers, 0)

    check(after)
    assert ends.total() > 0
    assert after.in_state(DeliveryState.ANNOUNCED) == STORM.announcements * 3
