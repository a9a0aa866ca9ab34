"""A person asks what a silent run does: the server that works on it answers at once."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from leasehold import Client
from leasehold.errors import NotAllowedError
from tests.worlds.bundles import ROOT, Api
from tests.worlds.servers import Begun, servers
from tests.worlds.waiting import until

pytestmark = pytest.mark.sandboxed

LINE = "time.sleep(0.05)  # the line it sleeps on"


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Begun]]:
    """Starts servers on one store, whose steps go on until `go-on` is there."""
    with servers(tmp_path, "--workers", "1") as begin:
        yield partial(begin, LEASEHOLD_CATALOG="tests.api.server.stacked")
        (tmp_path / "go-on").touch()


def at_work(api: Api, folder: Path, pipeline: str) -> str:
    """Start a run; return its id once its handler is there."""
    body = {"pipeline": pipeline, "input": str(folder / "go-on")}
    run_id = str(api.call("/runs", body)["runId"])
    until(lambda: api.call(f"/runs/{run_id}")["lease"])
    return run_id


def is_said(client: Client, run_id: str, line: str = LINE) -> bool:
    event = client.stack(run_id)
    return event is not None and line in (event.stacks or "")


def test_the_process_that_works_on_it_answers_without_waiting_for_a_heartbeat(
    begin: Callable[..., Begun], tmp_path: Path
) -> None:
    _, api = begin()
    run_id = at_work(api, tmp_path, "rarely")

    with Client(api.url, actor="ada") as client:
        until(lambda: is_said(client, run_id))
        event = client.stack(run_id)
        run = client.get(run_id)
        (tmp_path / "go-on").touch()
        done = client.wait(run_id, 60)
        with pytest.raises(NotAllowedError):
            client.stack(run_id)

    assert event is not None
    assert (event.model_extra or {})["actor"] == "ada"
    assert "hunter22" not in f"{event.stacks}"
    assert run.position.lease is not None
    assert run.position.lease.stack_request is None
    assert done.status == "COMPLETED"
    assert done.position.attempts.ended == 0


def test_another_server_has_the_answer_after_a_heartbeat(
    begin: Callable[..., Begun], tmp_path: Path
) -> None:
    _, api = begin()
    run_id = at_work(api, tmp_path, "often")
    _, other = begin()

    with Client(other.url) as client:
        until(lambda: is_said(client, run_id))
    with Client(f"sqlite:///{tmp_path / 'leasehold.db'}", environ={}) as client:
        assert is_said(client, run_id)


def test_where_the_worker_is_killed_meanwhile_who_waits_is_told(
    begin: Callable[..., Begun], tmp_path: Path
) -> None:
    """Nothing of the request is left for the attempt that comes after it."""
    process, api = begin()
    run_id = at_work(api, tmp_path, "rarely")
    _, other = begin()
    process.send_signal(signal.SIGSTOP)  # or it may answer first, by a heartbeat

    with Client(other.url) as client, ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(client.stack, run_id)
        until(lambda: other.call(f"/runs/{run_id}")["lease"]["stackRequest"])
        process.kill()
        event = waiting.result(60)
        until(lambda: is_said(client, run_id))  # of the second attempt
        events = [one for one in client.trace(run_id) if one.type == "stack_taken"]

    assert event is None
    assert {one.attempt for one in events} == {2}


def test_the_command_prints_the_calls(begin: Callable[..., Begun], tmp_path: Path) -> None:
    _, api = begin()
    run_id = at_work(api, tmp_path, "rarely")
    with Client(api.url) as client:
        until(lambda: is_said(client, run_id))
    words = [sys.executable, "-m", "leasehold", "stack", run_id, "--url", api.url]

    answer = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=True)

    first, second, *rest = answer.stdout.splitlines()
    assert first.startswith("step rarely, attempt 1: It is at lasting.py:")
    assert second == "  The thread of the handler (most recent call last):"
    assert any(LINE in line for line in rest)
