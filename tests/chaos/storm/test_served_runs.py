"""`leasehold serve` is killed as it announces: the next one announces what is due."""

from __future__ import annotations

from contextlib import closing, suppress
from http.client import HTTPException
from pathlib import Path

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.domain.delivery import Delivery, DeliveryState
from leasehold.ports.documents import Query
from tests.chaos.storm.chance import Kill
from tests.chaos.storm.provider import provider
from tests.chaos.storm.scenario import settings_in
from tests.chaos.storm.sender import URL
from tests.worlds.servers import servers
from tests.worlds.waiting import until

#: The run of this key is told by three channels; with this seed the sender of one of them is killed
#: between the provider's answer and the record.
KEY, SEED = "served", 39
PATIENCE_S = 90.0
DELIVERIES = Query("deliveries")


@pytest.mark.sandboxed
def test_a_server_that_is_killed_as_it_announces_loses_no_announcement(tmp_path: Path) -> None:
    environ = settings_in(tmp_path) | {
        "LEASEHOLD_CATALOG": "tests.chaos.storm.function_catalog",
        "PIPELINE_LEASE_TTL_S": "600",
    }
    with provider(SEED) as there, servers(tmp_path) as begin:
        first, api = begin(**environ | {URL: there.url})
        body = {"pipeline": "act", "input": {"ends": "done"}, "idempotencyKey": KEY}
        with suppress(OSError, HTTPException):  # it may be killed before its answer is whole
            api.call("/runs", body)
        until(lambda: first.poll() is not None, PATIENCE_S)
        begin(**environ | {URL: there.url})
        found = until(lambda: announced(tmp_path), PATIENCE_S)
        taken, ends = there.taken, there.ends

    assert ends == {Kill.AFTER_ANSWER: 1}
    unknown = sum(each.unknown for each in found)  # the others may have been under way as well
    assert 1 <= len(taken) - len(found) <= unknown <= len(found) == 3
    assert len({each.key for each in taken}) == 3


def announced(folder: Path) -> list[Delivery]:
    """Return what the run owed, once all of it is announced."""
    with closing(SqliteDocuments(folder / "leasehold.db", SystemClock())) as documents:
        found = [Delivery.model_validate(it.document) for it in documents.query(DELIVERIES)]
    return found if {each.state for each in found} == {DeliveryState.ANNOUNCED} else []
