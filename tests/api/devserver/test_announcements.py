"""`leasehold dev` announces as the cloud does: a message, its push, and the function."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leasehold.devserver.server import DevServer
from leasehold.domain.delivery import Delivery
from leasehold.ports.documents import Query
from tests.worlds.bundles import ROOT, Api, dev_server
from tests.worlds.waiting import until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    environ = {"LEASEHOLD_CATALOG": "tests.api.devserver.catalog_with_channel"}
    with dev_server(tmp_path_factory.mktemp("announcing"), environ, tick_s=0.5) as server:
        yield server


def delivery(server: DevServer, run_id: str) -> Delivery | None:
    """Return the announcement of a run that a channel got, once it has."""
    assert server._bundle is not None  # noqa: SLF001 - it is started
    query = Query("deliveries", equal={"runId": run_id}, order_by="createdAt", descending=True)
    documents = server._bundle.engine.documents  # noqa: SLF001 - as above
    for found in documents.query(query):
        known = Delivery.model_validate(found.document)
        return known if known.state == "announced" else None
    return None


def test_a_run_is_announced_once_though_its_message_comes_twice(server: DevServer) -> None:
    assert server.events is not None
    server.events.order_fault("twice")

    run_id = Api(server.url).start(None, pipeline="echo")

    told = until(lambda: delivery(server, run_id))
    until(lambda: [fired.kind for fired in server.events.fired()] == ["twice"])
    again = delivery(server, run_id)
    assert told.event == "run_completed"
    assert again is not None
    assert (again.token, again.unknown) == (told.token, 0)


def test_a_message_that_is_lost_is_published_again(server: DevServer) -> None:
    assert server.events is not None
    server.events.order_fault("lost")

    run_id = Api(server.url).start(None, pipeline="echo")

    assert until(lambda: delivery(server, run_id))


def test_what_a_command_on_the_store_ends_is_announced(server: DevServer, tmp_path: Path) -> None:
    """The command has no bus: the dev server looks for what became due."""
    environ = dict(server._environ) | {"LEASEHOLD_TASKS": "in-process", "LEASEHOLD_EVENTS": ""}  # noqa: SLF001 - its store
    del environ["LEASEHOLD_EVENTS"]
    run_id = Api(server.url).start(None, pipeline="echo", idempotencyKey="k-1")
    until(lambda: delivery(server, run_id))

    words = ["recreate", run_id, "--reason", "again", "--json"]
    made = subprocess.run(
        [sys.executable, "-m", "leasehold", *words],
        env=environ,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    new = json.loads(made.stdout)
    assert until(lambda: delivery(server, new.get("recreatedAs") or new["runId"]))


def publish(server: DevServer, body: Any, **headers: str) -> int:
    assert server.events is not None
    url = server._environ["LEASEHOLD_EVENTS"]  # noqa: SLF001 - where its functions publish
    data = json.dumps(body).encode()
    request = urllib.request.Request(  # noqa: S310 - our own server
        f"{url}/messages", data, {"Content-Type": "application/json", **headers}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - as above
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


GOOD = {"messages": [{"data": "e30=", "attributes": {}}]}


def test_a_message_of_an_unknown_sender_is_acknowledged_and_dropped(server: DevServer) -> None:
    """The function acknowledges it, and the double forgets it."""
    assert publish(server, GOOD) == 200


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": []},
        {"messages": "x"},
        {"messages": [1]},
        {"messages": [{"data": "%%"}]},
        {"messages": [{"data": "e30=", "attributes": {"a": 1}}]},
        {"messages": [{"data": "e30=", "more": 1}]},
    ],
)
def test_a_message_of_another_shape_is_refused(server: DevServer, body: Any) -> None:
    assert publish(server, body) == 400


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_a_web_page_publishes_nothing(
    server: DevServer, headers: dict[str, str], status: int
) -> None:
    assert publish(server, GOOD, **headers) == status
