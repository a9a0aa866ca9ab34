"""Deliveries over HTTP: those of a run, those of all runs, and one that is asked for again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leasehold.api.deliveries import DeliveryReport
from leasehold.domain.delivery import Claim, Delivery, DeliveryState
from leasehold.domain.moment import moment_text
from leasehold.domain.stored import Document, StoredDocument, Write
from leasehold.ports.documents import Query
from leasehold.testing import InProcessEngine
from tests.functions.conftest import Function, one_store
from tests.functions.test_response_models import is_as

START = {"pipeline": "three", "input": {"n": 1}}
EVIL = "\x1b]0;owned\x07\u202e"


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A store with a bus that nobody answers for: what is due stays so."""
    nobody = "http://127.0.0.1:1"
    catalog = "tests.functions.two_channels"
    return one_store(tmp_path, monkeypatch, LEASEHOLD_CATALOG=catalog, LEASEHOLD_EVENTS=nobody)


def cancelled(serve_api: Function) -> str:
    """Return a run that was cancelled, which both channels are to be told of."""
    run_id: str = serve_api.post("/runs", START)[1]["runId"]
    serve_api.post(f"/runs/{run_id}:cancel")
    return run_id


def deliveries(serve_api: Function, path: str) -> list[dict[str, Any]]:
    status, answer = serve_api.get(path)
    assert status == 200, answer
    found: list[dict[str, Any]] = answer["deliveries"]
    return found


def stored(engine: InProcessEngine, run_id: str, channel: str) -> Delivery:
    query = Query("deliveries", equal={"runId": run_id, "channel": channel})
    (found,) = engine.engine.documents.query(query)
    return Delivery.model_validate(found.document)


def put(engine: InProcessEngine, delivery: Delivery, **fields: Any) -> None:
    """Store a delivery; `fields` as somebody writes them by hand."""
    document: Document = {**StoredDocument(delivery), **fields}
    (found,) = (
        one
        for one in engine.engine.documents.query(Query("deliveries", limit=1000))
        if one.ref.id == delivery.delivery_id
    )
    engine.engine.documents.transact(found.ref, lambda _, __: Write(None, document))


def test_a_run_shows_what_each_channel_is_owed(serve_api: Function) -> None:
    run_id = cancelled(serve_api)

    found = deliveries(serve_api, f"/runs/{run_id}/deliveries")

    assert {one["channel"]: one["state"] for one in found} == {"log": "due", "audit": "due"}
    one = found[0]
    assert is_as(DeliveryReport, one)
    assert (one["event"], one["priority"], one["tries"]) == ("run_cancelled", "normal", 0)
    assert run_id in one["summary"]
    assert serve_api.get("/runs/r-none/deliveries")[1]["error"]["code"] == "unknown_run"


def test_one_that_is_sent_names_who_sends_it_and_not_the_claim(
    serve_api: Function, engine: InProcessEngine
) -> None:
    """Whoever has the id of a claim could record an end of it."""
    run_id = cancelled(serve_api)
    owed = stored(engine, run_id, "log")
    claim = Claim(claim_id="secret-claim", holder="host-1", expires_at=owed.give_up_at)
    put(engine, owed.with_(state=DeliveryState.CLAIMED, claim=claim))

    answers = [
        serve_api.client.get(path).get_data(as_text=True)
        for path in (f"/runs/{run_id}/deliveries", "/deliveries", f"/runs/{run_id}/why")
    ]

    assert all("host-1" in answer for answer in answers)
    assert not any("secret-claim" in answer for answer in answers)
    (one,) = deliveries(serve_api, "/deliveries?state=claimed")
    assert one["claimedUntil"] == moment_text(owed.give_up_at)


def test_all_runs_are_listed_newest_first_by_channel_and_state(
    serve_api: Function, engine: InProcessEngine
) -> None:
    first, second = cancelled(serve_api), cancelled(serve_api)
    told = stored(engine, first, "log").with_(state=DeliveryState.ANNOUNCED, message_id="m-1")
    put(engine, told)

    def named(query: str) -> list[tuple[str, str]]:
        found = deliveries(serve_api, f"/deliveries{query}")
        return [(one["runId"], one["channel"]) for one in found]

    assert [run for run, _ in named("")] == [second, second, first, first]
    assert named("?channel=log") == [(second, "log"), (first, "log")]
    assert named("?state=announced") == [(first, "log")]
    assert named("?state=due&channel=log") == [(second, "log")]
    assert named("?channel=none") == []
    assert serve_api.get("/deliveries?state=lost")[0] == 400
    assert serve_api.get("/deliveries?limit=0")[0] == 400


def test_pages_follow_each_other_without_a_gap(serve_api: Function) -> None:
    for _ in range(3):
        cancelled(serve_api)

    seen, token = [], ""
    while token is not None:
        page = serve_api.get(
            f"/deliveries?limit=4&pageToken={token}" if token else "/deliveries?limit=4"
        )
        seen += [(one["runId"], one["channel"]) for one in page[1]["deliveries"]]
        token = page[1]["nextPageToken"]

    assert len(seen) == len(set(seen)) == 6
    assert serve_api.get("/deliveries?pageToken=x")[1]["error"]["code"] == "invalid_request"


@pytest.mark.parametrize(
    "edited",
    [
        {"state": "lost"},
        {"tries": "many"},
        {"runId": None},
        {"channel": "other"},
        {"claim": [1]},
        {"createdAt": "soon"},
    ],
)
def test_one_that_was_edited_hides_none_of_the_others(
    serve_api: Function, engine: InProcessEngine, edited: dict[str, Any]
) -> None:
    run_id = cancelled(serve_api)
    put(engine, stored(engine, run_id, "log"), **edited)

    assert [one["channel"] for one in deliveries(serve_api, "/deliveries")] == ["audit"]
    of_run = deliveries(serve_api, f"/runs/{run_id}/deliveries")
    assert [one["channel"] for one in of_run] == ["audit"]
    assert serve_api.get(f"/runs/{run_id}/why")[0] == 200


def test_what_an_earlier_run_of_the_same_id_left_is_not_of_this_one(
    serve_api: Function, engine: InProcessEngine
) -> None:
    run_id = cancelled(serve_api)
    put(engine, stored(engine, run_id, "log").with_(), mark="another")

    assert len(deliveries(serve_api, f"/runs/{run_id}/deliveries")) == 1


def test_why_says_what_people_are_still_to_be_told(
    serve_api: Function, engine: InProcessEngine
) -> None:
    run_id = cancelled(serve_api)
    owed = stored(engine, run_id, "log")
    put(
        engine,
        owed.with_(
            state=DeliveryState.GIVEN_UP, given_up_why="404 gone", given_up_at=owed.created_at
        ),
    )

    why = serve_api.get(f"/runs/{run_id}/why")[1]

    assert why["waitsFor"] is None
    assert len(why["owed"]) == 2
    assert (
        "Channel log was not told of run_cancelled, and will not be: 404 gone. "
        ":deliver tells it once more."
    ) in why["owed"]
    assert {one["channel"] for one in why["deliveries"]} == {"log", "audit"}


def test_a_channel_that_nobody_knows_is_refused_with_the_known_ones(serve_api: Function) -> None:
    run_id = cancelled(serve_api)

    status, answer = serve_api.post(f"/runs/{run_id}:deliver", {"channel": "slak"})

    assert status == 404
    assert answer["error"]["message"] == (
        "'slak' is not in the channels registry; known: log, audit."
    )


def test_a_run_with_nothing_to_announce_is_refused(serve_api: Function) -> None:
    run_id = serve_api.post("/runs", START)[1]["runId"]

    status, answer = serve_api.post(f"/runs/{run_id}:deliver", {"channel": "log"})

    assert (status, answer["error"]["code"]) == (404, "unknown_delivery")
    assert serve_api.post("/runs/r-none:deliver", {"channel": "log"})[0] == 404
    assert serve_api.post(f"/runs/{run_id}:deliver", {})[0] == 400
    assert serve_api.post(f"/runs/{run_id}:deliver", {"channel": EVIL})[0] == 400
