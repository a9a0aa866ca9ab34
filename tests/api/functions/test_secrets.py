"""Lease ids and nonces are secret: with a lease's id, any caller could complete its step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pydantic_core
import pytest

from leasehold import Client
from leasehold.client.connection import EngineConnection
from leasehold.domain.manifest import to_document
from leasehold.domain.stored import Write
from leasehold.domain.trace import TraceType, event_of, loss_ref
from leasehold.testing import InProcessEngine
from tests.worlds.functions import Function, one_store


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    return one_store(tmp_path, monkeypatch, LEASEHOLD_CATALOG="tests.api.functions.remote_steps")


@pytest.fixture
def lease(engine: InProcessEngine, manage_lease: Function) -> dict[str, Any]:
    """The lease of a worker, as that worker shows it."""
    engine.start("counts", {"text": "a"})
    given = manage_lease.post("/leases:claim", {"stepType": "count", "holder": "vm-1"})[1]
    return {name: given[name] for name in ("runId", "leaseId", "fencingToken")}


def secrets_of(engine: InProcessEngine, run_id: str) -> list[str]:
    run = engine.show(run_id)
    found = [run.position.dispatch.nonce]
    found += [run.position.lease.lease_id] if run.position.lease else []
    return found + ([run.position.last_settlement.lease_id] if run.position.last_settlement else [])


def all_answers(serve_api: Function, engine: InProcessEngine, run_id: str) -> str:
    """What all reads of a run: over HTTP, and on the command line."""
    paths = ("/runs", f"/runs/{run_id}", f"/runs/{run_id}/trace")
    answers = [serve_api.client.get(path).get_data(as_text=True) for path in paths]
    client = Client(EngineConnection(engine.engine))
    visible = [client.get(run_id), client.trace(run_id)]
    return "".join([*answers, *(pydantic_core.to_json(it).decode() for it in visible)])


def test_who_reads_a_run_learns_neither_lease_id_nor_nonce(
    serve_api: Function, manage_lease: Function, engine: InProcessEngine, lease: dict[str, Any]
) -> None:
    run_id = lease["runId"]
    for word, further in (("renew", {}), ("complete", {"output": {"n": 1, "x": "y" * 40_000}})):
        secrets = secrets_of(engine, run_id)
        visible = all_answers(serve_api, engine, run_id)

        assert [it for it in secrets if it in visible] == []
        assert manage_lease.post(f"/leases:{word}", lease | further)[0] == 200
    secrets = [lease["leaseId"], *secrets_of(engine, run_id)]
    visible = all_answers(serve_api, engine, run_id)

    assert "outputRef" in visible
    assert [it for it in secrets if it in visible] == []


def test_what_is_shown_still_tells_two_leases_apart(
    serve_api: Function, lease: dict[str, Any]
) -> None:
    """The token is a counter that people watch; by itself it opens nothing."""
    run = serve_api.get(f"/runs/{lease['runId']}")[1]

    assert run["lease"]["leaseId"] == f"{lease['leaseId'][:4]}…"
    assert run["fencingToken"] == lease["fencingToken"]


def test_the_event_of_a_lease_that_was_lost_does_not_tell_it(
    serve_api: Function, engine: InProcessEngine, lease: dict[str, Any]
) -> None:
    run_id, lease_id = lease["runId"], lease["leaseId"]
    run = engine.show(run_id)
    event = event_of(run, TraceType.LEASE_LOST, run.updated_at, lease_id=lease_id, holder="vm-1")
    engine.engine.documents.transact(
        loss_ref(run, lease_id), lambda _, __: Write(None, to_document(event))
    )

    visible = all_answers(serve_api, engine, run_id)

    assert "lease_lost" in visible
    assert "vm-1" in visible
    assert lease_id not in visible


@pytest.mark.parametrize(
    ("word", "further"),
    [
        ("renew", {}),
        ("checkpoint", {"iterationCount": 1, "partialResults": 1}),
        ("complete", {"output": {"n": 1}}),
        ("fail", {"error": {"message": "no"}}),
        ("release", {}),
        ("putFile", {"name": "a", "content": ""}),
        ("getFile", {"name": "a"}),
        ("listFiles", {}),
    ],
)
def test_no_refusal_tells_a_lease_to_who_does_not_hold_it(
    manage_lease: Function,
    engine: InProcessEngine,
    lease: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
    word: str,
    further: dict[str, Any],
) -> None:
    """Nor does the log; who guessed the id but not the token is not told that the id was right."""
    right, path = lease["leaseId"], f"/leases:{word}"
    guesses = [{"leaseId": "x" * 32}, {"fencingToken": 7}, {"leaseId": right[:-1] + "x"}]

    answers = [manage_lease.post(path, lease | guess | further) for guess in guesses]
    answers.append(manage_lease.post("/leases:acquire", {"runId": lease["runId"], "holder": "me"}))

    assert [status for status, _ in answers] == [409] * 4
    said = pydantic_core.to_json(answers).decode() + caplog.text
    assert right not in said
    assert answers[1][1]["error"]["details"]["known"] == answers[0][1]["error"]["details"]["known"]
    assert engine.show(lease["runId"]).position.lease is not None
