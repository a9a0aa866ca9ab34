"""Who works here, by real processes on one file: what they note, and what people are told."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leasehold.server.server import ServeOptions, Server
from leasehold.testing import InProcessEngine
from tests.api.server.conftest import Api
from tests.worlds.catalogs.sample import GO_ON, PIPELINES, STEPS
from tests.worlds.ports import own_port
from tests.worlds.servers import servers
from tests.worlds.shell import Shell
from tests.worlds.waiting import until


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Commands on the store of the servers, with the catalog of the sample."""
    return Shell(tmp_path, {"LEASEHOLD_STORE": f"sqlite:///{tmp_path / 'leasehold.db'}"})


def started(shell: Shell) -> str:
    done = shell.run("start", "order", "--input", '{"amount": 3}', "--json")
    return str(json.loads(done.stdout)["runId"])


def test_a_server_lives_until_it_is_stopped_and_then_every_command_says_since_when(
    shell: Shell, tmp_path: Path
) -> None:
    with servers(tmp_path) as begin:
        process, api = begin()
        (noted,) = shell.json("workers", "--url", api.url)["workers"]
        listed = shell.json("workers")["workers"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0

    run_id = started(shell)

    assert (noted["kind"], len(noted["codeHash"])) == ("serve", 16)
    assert noted["steps"]
    assert listed == [noted]
    assert shell.json("workers") == {"workers": []}
    said = shell.run("why", run_id).stdout
    assert "and no server works on this store, and none was heard of since 2" in said
    assert "; type `leasehold serve`." in said
    assert "counts as lost" not in said
    found = json.loads(shell.run("doctor", "--json").stdout)["findings"]
    (message,) = [one["message"] for one in found if one["code"] == "no_server"]
    assert (
        "Live runs wait, and no server works on this store, and none was heard of since 2"
        in message
    )
    assert (
        "but no server works on this store, and none was heard of since 2"
        in shell.run("audit").stderr
    )


def test_of_a_server_that_was_killed_people_on_its_machine_are_told_at_once(
    shell: Shell, tmp_path: Path
) -> None:
    with servers(tmp_path) as begin:
        process, _ = begin()
        process.kill()
        process.wait(60)
        _, other = begin()
        listed = [shell.json("workers")["workers"], other.call("/workers")["workers"]]

    run_id = started(shell)

    assert [len(workers) for workers in listed] == [1, 1]
    assert (
        "and no server works on this store, and none was heard of since 2"
        in shell.run("why", run_id).stdout
    )


@pytest.mark.parametrize("words", [("start", "order", "--input", '{"amount": 3}', "--wait")])
def test_a_waiting_command_says_once_that_no_server_works_and_goes_on_waiting(
    shell: Shell, words: tuple[str, ...]
) -> None:
    process = shell.begin(*words)
    assert process.stderr is not None
    lines = iter(process.stderr.readline, "")

    line = next(line for line in lines if "no server" in line)

    assert line == "no server works on this store; type `leasehold serve`. Waiting for one.\n"
    assert process.poll() is None
    process.kill()
    process.communicate()


def test_watch_says_that_no_server_works(shell: Shell) -> None:
    process = shell.begin("watch", started(shell))
    assert process.stderr is not None

    assert "no server works on this store" in process.stderr.readline()
    process.kill()
    process.communicate()


def test_a_remote_step_says_when_a_worker_last_asked_for_it(api: Api) -> None:
    run_id = api.post("/runs", {"pipeline": "away", "input": {"n": 1}})["runId"]
    until(lambda: api.get(f"/runs/{run_id}")["currentStep"] == "away")

    before = api.get(f"/runs/{run_id}/why")["words"]
    api.ask("POST", f"/runs/{run_id}:pause", {})
    assert api.ask("POST", "/leases:claim", {"stepType": "away", "holder": "gpu"}).status == 404
    asked = until(lambda: [it for it in api.get("/workers")["workers"] if it["kind"] == "remote"])
    api.ask("POST", f"/runs/{run_id}:resume", {})

    assert "(none has ever asked for step away)" in before
    assert (asked[0]["process"], asked[0]["steps"]) == ("gpu", ["away"])
    assert "(one last asked for step away at 2" in api.get(f"/runs/{run_id}/why")["words"]


def test_an_engine_in_a_program_lives_while_it_runs_for_longer_than_a_moment(
    environ: dict[str, str], held: Any, serve: Callable[..., Server]
) -> None:
    other = Api(serve().url)
    with InProcessEngine(STEPS, PIPELINES, environ=environ) as local:
        local.start("holds", {"n": 1}, idempotency_key=held["idempotencyKey"])
        until(lambda: "in-process" in kinds(other))
        for event in GO_ON.values():
            event.set()

    assert kinds(other) == ["serve"]


def kinds(api: Api) -> list[str]:
    return sorted(one["kind"] for one in api.get("/workers")["workers"])


def test_two_projects_on_one_store_are_told_apart_at_the_start(
    environ: dict[str, str], serve: Callable[..., Server], tmp_path: Path
) -> None:
    (tmp_path / "another_project.py").write_text(OTHER)
    serve()
    said: list[str] = []

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        settings = environ | {"LEASEHOLD_CATALOG": "another_project"}
        server = Server(ServeOptions(port=own_port()), said.append, settings)
        server.start()
        server.stop()

    (line,) = [line for line in said if "two projects need a LEASEHOLD_STORE each" in line]
    assert "has no step or pipeline in common with this catalog" in line


OTHER = """
from datetime import timedelta
from leasehold import PipelineEntry, Registry, StepDispatchEntry

STEPS = Registry("dispatch", [StepDispatchEntry(
    step_type="weigh", handler="remote",
    agent_timeout=timedelta(seconds=20), dispatch_deadline=timedelta(seconds=30))])
PIPELINES = Registry("pipelines", [PipelineEntry(name="weighing", steps=("weigh",))])
"""
