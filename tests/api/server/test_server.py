"""`leasehold serve` in this process: one engine answers, works, and looks after every run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leasehold.domain.manifest import run_ref
from leasehold.errors import SettingError, StoreUnavailableError
from leasehold.server.server import ServeOptions, Server
from leasehold.testing import InProcessEngine
from tests.api.server.conftest import Api
from tests.worlds.catalogs.sample import ENTERED, GO_ON, PIPELINES, STEPS
from tests.worlds.ports import own_port
from tests.worlds.waiting import until
from tests.worlds.wrapped import Wrapped


def ended(api: Api, run_id: str) -> Any:
    return until(lambda: (run := api.get(f"/runs/{run_id}"))["alarmAt"] is None and run)


def test_a_run_that_is_started_over_http_has_a_worker_when_the_call_returns(
    api: Api, held: Any
) -> None:
    until(lambda: api.get("/health"))

    run = api.post("/runs", held)

    assert run["status"] == "IN_PROGRESS"
    GO_ON[run["runId"]].set()
    assert ended(api, run["runId"])["steps"]["add"]["output"] == '{"n":3}'


def test_a_cancelled_run_stops_its_handler_at_once(api: Api, server: Server, held: Any) -> None:
    """The next renewal, which would tell it, is minutes away."""
    run_id = api.post("/runs", held)["runId"]
    assert ENTERED[run_id].wait(60)

    assert api.post(f"/runs/{run_id}:cancel")["cancelled"]

    until(lambda: not server.local.held_runs())


def test_a_run_that_another_server_cancels_stops_its_handler_soon(
    api: Api, server: Server, serve: Callable[..., Server], held: Any
) -> None:
    """Behind a proxy, a call comes to any of them; the next renewal is minutes away."""
    run_id = api.post("/runs", held)["runId"]
    assert ENTERED[run_id].wait(60)

    Api(serve().url).post(f"/runs/{run_id}:cancel")

    until(lambda: not server.local.held_runs())


def test_a_run_that_is_purged_stops_its_handler_soon(api: Api, server: Server, held: Any) -> None:
    """It was cancelled, and is gone before this server has looked."""
    run_id = api.post("/runs", held)["runId"]
    assert ENTERED[run_id].wait(10)

    server.local.engine.documents.delete(run_ref(run_id))

    until(lambda: not server.local.held_runs(), 8)


def test_what_is_resumed_over_http_goes_on_here(api: Api, held: Any) -> None:
    run_id = api.post("/runs", held)["runId"]
    api.post(f"/runs/{run_id}:pause")
    GO_ON[run_id].set()
    until(lambda: api.get(f"/runs/{run_id}")["currentStep"] == "add")

    api.post(f"/runs/{run_id}:resume")

    assert ended(api, run_id)["status"] == "COMPLETED"


def test_remote_workers_claim_their_steps_at_the_same_address(api: Api) -> None:
    run_id = api.post("/runs", {"pipeline": "away", "input": {"n": 1}})["runId"]
    until(lambda: api.get(f"/runs/{run_id}")["currentStep"] == "away")

    claimed = api.post("/leases:claim", {"stepType": "away", "holder": "a laptop"})
    lease = {name: claimed[name] for name in ("runId", "leaseId", "fencingToken")}
    api.post("/leases:complete", lease | {"output": claimed["given"]})

    assert ended(api, run_id)["status"] == "COMPLETED"


@pytest.mark.parametrize("path", ["/nothing", "/leases:nothing"])
def test_a_path_that_is_not_served_is_answered_with_all_that_are(api: Api, path: str) -> None:
    answer = api.ask("POST", path, {})

    assert (answer.status, answer.body["error"]["code"]) == (404, "not_found")
    assert {"/runs", "/leases:claim"} <= set(answer.body["error"]["message"].split(", "))
    assert api.ask("GET", "/runs/r-none").body["error"]["code"] == "unknown_run"


def test_a_run_that_another_process_left_is_taken_up(
    environ: dict[str, str], serve: Callable[..., Server]
) -> None:
    with InProcessEngine(STEPS, PIPELINES, environ=environ, workers=0) as other:
        run_id = other.start("three", {"n": 1}).run_id

    api = Api(serve().url)

    assert ended(api, run_id)["status"] == "COMPLETED"


def test_a_run_that_another_process_dispatches_is_taken_up(
    environ: dict[str, str], api: Api
) -> None:
    """A command on the store has no worker; any of the servers takes the run up."""
    with InProcessEngine(STEPS, PIPELINES, environ=environ, workers=0) as other:
        run_id = other.start("three", {"n": 1}).run_id

        assert ended(api, run_id)["status"] == "COMPLETED"


def test_a_server_on_one_store_leaves_the_lease_of_another_one_alone(
    api: Api, serve: Callable[..., Server], held: Any
) -> None:
    run_id = api.post("/runs", held)["runId"]
    assert ENTERED[run_id].wait(60)
    token = api.get(f"/runs/{run_id}")["fencingToken"]

    other = serve()
    other.local._timer._looked_at = 0  # noqa: SLF001 - look now
    other.local._timer.look()  # noqa: SLF001

    assert api.get(f"/runs/{run_id}")["fencingToken"] == token
    GO_ON[run_id].set()
    assert ended(Api(other.url), run_id)["attempts"]["expired"] == 0


def test_stopped_it_releases_its_leases_and_answers_no_more(
    serve: Callable[..., Server], environ: dict[str, str], held: Any
) -> None:
    server = serve()
    run_id = Api(server.url).post("/runs", held)["runId"]
    assert ENTERED[run_id].wait(60)

    server.stop()

    with pytest.raises(ConnectionRefusedError):
        Api(server.url).get("/health")
    with InProcessEngine(STEPS, PIPELINES, environ=environ, workers=0) as other:
        run = other.show(run_id)
    assert (run.position.lease, run.position.attempts.interrupted) == (None, 1)


class Absent(Wrapped[Any]):
    """A store that is away until it is back."""

    def __init__(self, within: Any) -> None:
        super().__init__(within)
        self.is_away = threading.Event()

    def __getattr__(self, name: str) -> Any:
        if name in {"get", "query", "transact"} and self.is_away.is_set():
            raise StoreUnavailableError(store="the test", problem="it is away")
        return getattr(self.inner, name)


def test_while_the_store_is_away_it_says_so_and_then_goes_on(api: Api, server: Server) -> None:
    local = server.local
    store: Any = Absent(local.engine.documents)
    local.engine = replace(local.engine, documents=store)
    store.is_away.set()

    refused = api.ask("POST", "/runs", {"pipeline": "three", "input": {"n": 1}})

    assert (refused.status, refused.body["error"]["code"]) == (503, "store_unavailable")
    store.is_away.clear()
    run_id = api.post("/runs", {"pipeline": "three", "input": {"n": 1}})["runId"]
    assert ended(api, run_id)["status"] == "COMPLETED"


def test_a_store_that_is_away_at_the_start_is_waited_for(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("leasehold.server.server._STORE_RETRY_S", 0.05)
    server = Server(ServeOptions(port=own_port()), said.append, environ)
    local = server.local
    store: Any = Absent(local.engine.documents)
    local.engine = replace(local.engine, documents=store)
    store.is_away.set()
    starting = threading.Thread(target=server.start)

    try:
        starting.start()
        until(lambda: said)
        with suppress(ConnectionError):
            assert Api(server.url).ask("GET", "/runs").status == 503
        store.is_away.clear()
        starting.join(60)
        assert not starting.is_alive()
    finally:
        store.is_away.clear()
        starting.join()
        server.stop()

    assert len(said) == 1


def test_what_cannot_be_served_is_refused_in_one_line(
    environ: dict[str, str], server: Server, tmp_path: Path
) -> None:
    port = int(server.url.rpartition(":")[2])
    refused = {
        "--port": (ServeOptions(port=port), {}),
        "--host": (ServeOptions(host="no.such.host.invalid"), {}),
        "LEASEHOLD_TASKS": (
            ServeOptions(port=own_port()),
            {
                "LEASEHOLD_TASKS": "cloud-tasks://p/l",
                "LEASEHOLD_FUNCTION_URL": "https://execute.invalid",
            },
        ),
        "LEASEHOLD_STORE": (
            ServeOptions(port=own_port()),
            {"LEASEHOLD_STORE": "sqlite:////proc/none/leasehold.db"},
        ),
    }

    for name, (options, settings) in refused.items():
        with pytest.raises(SettingError, match=name):
            Server(options, lambda _: None, environ | settings)
