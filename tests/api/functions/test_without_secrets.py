"""Only `deliver_notification` is given the secrets of channels; the other functions need none."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from leasehold.testing import InProcessEngine
from tests.api.functions import announced_steps
from tests.api.functions.test_channel_secrets import SECRETS
from tests.worlds.functions import Function, one_store


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """No variable of a channel is set, and published messages are not taken."""
    for name in SECRETS:
        monkeypatch.delenv(name, raising=False)
    catalog, nobody = announced_steps.__name__, "http://127.0.0.1:9"
    return one_store(tmp_path, monkeypatch, LEASEHOLD_CATALOG=catalog, LEASEHOLD_EVENTS=nobody)


def test_the_other_functions_need_no_secret_of_a_channel(
    engine: InProcessEngine,
    execute_step: Function,
    serve_api: Function,
    sweep_dead_letters: Function,
    manage_lease: Function,
    caplog: pytest.LogCaptureFixture,
) -> None:
    status, started = serve_api.post("/runs", {"pipeline": "letters", "input": {"text": "a"}})
    run_id = started["runId"]

    ended = execute_step.post(json={"runId": run_id, "generation": 1})
    swept = sweep_dead_letters.post()
    claimed = manage_lease.post("/leases:claim", {"stepType": "write", "holder": "w"})
    _, owed = serve_api.get(f"/runs/{run_id}/deliveries")
    _, cancelled = serve_api.post("/runs", {"pipeline": "letters", "input": {"text": "b"}})

    assert (status, ended) == (201, (200, {"outcome": "completed"}))
    assert swept[0] == 200
    assert claimed[0] in (400, 404)
    assert sorted(it["channel"] for it in owed["deliveries"]) == ["hook", "mail", "team"]
    assert serve_api.post(f"/runs/{cancelled['runId']}:cancel")[0] == 200
    assert serve_api.get(f"/runs/{run_id}/why")[0] == 200
    assert serve_api.get("/registry")[0] == 200
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
