"""In a storm no announcement is missed, and none comes twice without being counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from leasehold.adapters.in_process_events import UndeliveredEvents
from leasehold.domain.delivery import Delivery, DeliveryState
from leasehold.ports.channel import Channel
from leasehold.registry.channels import ChannelEntry
from leasehold.services.deliver_notification import DeliveryHint, DeliveryOutcome, deliver
from leasehold.services.engine import Engine
from tests.chaos.storm.catalog import NAMES, deaf
from tests.chaos.storm.provider import ProviderProcess, provider
from tests.chaos.storm.scenario import (
    Aftermath,
    Storm,
    announce,
    deliveries_in,
    settings_in,
    survive,
)
from tests.chaos.storm.sender import DEAF_URL, URL
from tests.chaos.storm.workers import Place, engine_at
from tests.worlds.emulators import need_firestore
from tests.worlds.stores import DOCUMENTS

ANNOUNCEMENTS = 10
TRIES_BEFORE_REST = 5
RESTS = {
    "PIPELINE_CHANNEL_FAILURES": str(TRIES_BEFORE_REST),
    "PIPELINE_CHANNEL_REST_S": "3600",
    "PIPELINE_DELIVERY_TIMEOUT_S": "20",
}


@contextmanager
def dead_first(folder: Path, there: ProviderProcess) -> Iterator[Engine]:
    """Open an engine whose first channel has no server."""
    addresses = {URL: there.url, DEAF_URL: there.deaf_url}
    place = Place("sqlite", folder, 1, settings_in(folder) | addresses | RESTS)
    with engine_at(place) as opened, pytest.MonkeyPatch.context() as patch:
        patch.setenv(URL, there.url)

        def open_channel(entry: ChannelEntry) -> Channel:
            return opened.channels.open(deaf(entry) if entry.name == "first" else entry)

        yield replace(
            opened, events=UndeliveredEvents(), channels=replace(opened.channels, open=open_channel)
        )


def hint_of(delivery: Delivery) -> DeliveryHint:
    return DeliveryHint(delivery.run_id, delivery.occurrence, delivery.channel)


def check(after: Aftermath) -> None:
    assert after.missing == []
    assert after.unexplained == []
    assert after.in_state(DeliveryState.ANNOUNCED) == after.expected
    assert len(after.deliveries) == after.expected
    assert after.keys == after.expected  # a provider that goes by the keys tells nobody twice


#: What a store keeps of a commit, conformance tests: the gate has the storm on one of them.
KINDS = [
    "sqlite",
    *(pytest.param(it, marks=pytest.mark.nightly) for it in DOCUMENTS if it != "sqlite"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_in_a_storm_every_announcement_arrives_and_repeated_ones_are_counted(
    tmp_path: Path, kind: str
) -> None:
    if kind == "firestore":
        need_firestore()

    after = survive(Storm(kind, ANNOUNCEMENTS), tmp_path)

    check(after)
    assert after.expected == ANNOUNCEMENTS * len(NAMES)
    assert after.words[None] > 0  # processes were killed
    assert after.unknown >= after.extra > 0


def test_a_channel_that_is_dead_delays_no_other_and_repeats_nothing(tmp_path: Path) -> None:
    """No sweep comes by: what the others are owed is announced by its own message."""
    with provider(seed=None) as there, dead_first(tmp_path, there) as engine:
        expected = announce(engine, Storm("sqlite", ANNOUNCEMENTS))
        hints = [hint_of(each) for each in deliveries_in(engine)]
        outcomes = {hint: deliver(engine, hint, within=timedelta()) for hint in hints}
        after = Aftermath(
            expected, deliveries_in(engine), there.taken, Counter(), there.weathers, 0
        )

    dead = [each for each in after.deliveries if each.channel == "first"]
    assert {outcomes[hint_of(each)] for each in dead} == {DeliveryOutcome.DUE_LATER}
    assert {each.unknown for each in dead} == {0}
    assert sum(each.tries for each in dead) == TRIES_BEFORE_REST
    others = [each for each in after.deliveries if each.channel != "first"]
    assert {(each.state, each.tries, each.unknown) for each in others} == {("announced", 1, 0)}
    assert len(after.taken) == after.keys == len(others)
