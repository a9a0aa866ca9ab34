"""`leasehold watch`: one run until it is over, or all live runs until it is interrupted."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from leasehold.attempt.attempt import Attempt
from leasehold.cli.run_displays import JsonDisplay, LineDisplay
from leasehold.cli.watch import MAX_RUNS_SHOWN, runs_display, view_of, watch_run, watch_runs
from leasehold.client.client import Client
from leasehold.domain.manifest_parts import Progress
from leasehold.services.execute_step import Hint, arrive
from leasehold.services.start_run import StartRequest, start_run
from leasehold.testing import InProcessEngine
from tests.worlds.builders import environ_of
from tests.worlds.catalogs.sample import PIPELINES, STEPS
from tests.worlds.runs_api import runs_api
from tests.worlds.shell import TERMINAL, Screen, Shell, only_line, without_controls

ORDER = ("start", "order", "--input", '{"amount": 3}')
EVIL = "\x1b]0;owned\x07\x1b[2J\u202e\n" + "x" * 180


# -- one run --------------------------------------------------------------------------------------


def renewed(attempt: Attempt, progress: Progress) -> None:
    attempt.progress = progress
    attempt.renew()


def test_a_run_that_is_over_is_shown_once_with_its_result(shell: Shell) -> None:
    shell.run(*ORDER, "--in-process")
    run_id = shell.json("runs")["runs"][0]["runId"]

    done = shell.run("watch", run_id)

    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert lines[0].endswith("Z run started: order")
    assert lines[-2].endswith("Z run completed")
    assert lines[-1].startswith(f"run {run_id} COMPLETED in ")
    assert 'output: {"amount":3}' in done.stderr


def test_a_run_that_did_not_complete_or_waits_for_a_person_is_exit_1(shell: Shell) -> None:
    shell.run("start", "doomed", "--input", '{"amount": 13}', "--in-process")
    doomed = shell.json("runs")["runs"][0]["runId"]
    shell.run(*ORDER)
    paused = shell.json("runs")["runs"][0]["runId"]
    shell.run("pause", paused)

    given_up, held = shell.run("watch", doomed), shell.run("watch", paused, "--json")

    assert (given_up.returncode, held.returncode) == (1, 1)
    assert "step refuse failed, attempt 1: PermanentError: 13 is refused" in given_up.stdout
    assert "PERMANENT_FAILURE" in given_up.stdout.splitlines()[-1]
    line = json.loads(only_line(held.stdout))
    assert (line["status"], line["paused"]) == ("PENDING", True)
    assert [event["type"] for event in line["events"]] == ["run_started", "run_paused"]


def test_a_terminal_is_drawn_on_and_then_has_the_result(shell: Shell) -> None:
    (shell.folder / "busy").touch()
    shell.run(*ORDER, "--in-process")
    run_id = shell.json("runs")["runs"][0]["runId"]

    screen = without_controls(shell.on_terminal("watch", run_id))

    assert "✓ charge" in screen
    assert "1 failed" in screen
    assert f"run {run_id} COMPLETED in " in screen


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("r-unknown",), "r-unknown"),
        (("../..",), "../.."),
        (("r-1", "--url", "http://127.0.0.1:1"), "http://127.0.0.1:1 does not answer"),
        (("--url", "http://127.0.0.1:1"), "http://127.0.0.1:1 does not answer"),
        (("--url", "127.0.0.1:1"), "allowed: http://HOST:PORT"),
        (("r-1", "r-2"), "unexpected extra argument (r-2). See `leasehold watch --help`."),
    ],
)
def test_what_cannot_be_watched_is_refused_in_one_line(
    shell: Shell, words: tuple[str, ...], problem: str
) -> None:
    done = shell.run("watch", *words)

    assert (done.returncode, done.stdout) == (2, "")
    assert problem in only_line(done.stderr)
    assert shell.files() == ["shop.py"]


# -- a world whose runs the test moves ------------------------------------------------------------


@dataclass
class World:
    """A store with runs of the sample catalog, and a server of it."""

    engine: InProcessEngine
    client: Client
    losing: list[str]

    def start(self, pipeline: str = "three") -> str:
        return start_run(self.engine.engine, StartRequest(pipeline, {"n": 1})).manifest.run_id

    def lease(self, run_id: str) -> Attempt:
        generation = self.engine.show(run_id).position.dispatch.generation
        engine = self.engine.engine
        return engine.leases.attempt_of(engine, arrive(engine, Hint(run_id, generation)))

    def watch(self, *moves: Callable[[], object], as_json: bool = False) -> None:
        """Watch all runs; make one move at each pause, and interrupt at the last one."""
        left = iter(moves)

        def pause(_: float) -> None:
            move = next(left, None)
            if move is None:
                raise KeyboardInterrupt
            move()

        watch_runs(self.client, runs_display(self.client, as_json=as_json), pause)


@pytest.fixture(params=["store", "server"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    environ, losing = environ_of(tmp_path), []
    with (
        InProcessEngine(STEPS, PIPELINES, environ=environ, workers=0) as engine,
        runs_api(engine.engine, losing) as url,
        Client(url if request.param == "server" else None, environ=environ) as client,
    ):
        yield World(engine, client, losing)


on_a_store = pytest.mark.parametrize("world", ["store"], indirect=True)
on_a_server = pytest.mark.parametrize("world", ["server"], indirect=True)


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines of stdout, without their times."""
    return [line.partition("Z ")[2] for line in capsys.readouterr().out.splitlines()]


def test_all_live_runs_are_shown_as_they_change_and_end(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = world.start(), world.start("holds")
    attempt = world.lease(one)

    world.watch(
        lambda: renewed(attempt, Progress(fraction=0.5, message="half")),
        lambda: None,
        lambda: world.client.cancel(other),
        lambda: world.client.pause(one),
    )

    assert said(capsys) == [
        f"run {one} three IN_PROGRESS step add attempt 1",
        f"run {other} holds PENDING step hold attempt 1",
        f"run {one} three IN_PROGRESS step add attempt 1: 50%, half",
        f"run {other} holds PENDING cancelled step hold attempt 1",
        f"run {one} three IN_PROGRESS paused step add attempt 1: 50%, half",
    ]


def test_all_live_runs_as_json_are_summaries(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    run_id = world.start()

    world.watch(lambda: world.client.cancel(run_id), as_json=True)

    live, gone = map(json.loads, capsys.readouterr().out.splitlines())
    assert (live["runId"], live["cancelled"]) == (run_id, False)
    assert (gone["runId"], gone["cancelled"]) == (run_id, True)


@on_a_server
def test_an_outage_is_waited_for_with_a_line(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    run_id = world.start()

    world.watch(lambda: world.losing.append("/runs"))
    world.client.cancel(run_id)
    world.losing.append(f"/runs/{run_id}")
    view = view_of(world.client, run_id, patience=60)
    ended = watch_run(view, LineDisplay(view.trace, sys.stdout))

    before, after, *again = capsys.readouterr().err.splitlines()
    assert before.startswith("The server http://127.0.0.1:")
    assert before.endswith("Waiting for it.")
    assert after == "It answers again."
    assert len(again) == 2
    assert ended.cancelled


@on_a_store
def test_a_terminal_has_a_table_that_hostile_words_cannot_spoil(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = world.start()
    attempt = world.lease(run_id)
    renewed(attempt, Progress(fraction=0.5, message=EVIL))
    waiting = [world.start() for _ in range(30)]
    screen = Screen()
    for name, value in (TERMINAL | {"LINES": "20", "COLUMNS": "110"}).items():
        monkeypatch.setenv(name, value)

    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", screen)
        world.watch()

    sent = screen.getvalue()
    lines = [line.rstrip() for line in without_controls(sent).splitlines()]
    assert "\x1b]" not in sent
    assert "\u202e" not in sent
    assert lines[0].startswith("31 live runs, 16 shown  20")
    assert lines[1].split() == [
        *("RUN", "PIPELINE", "STATUS", "STEP", "ATTEMPT", "PROGRESS", "HEARTBEAT")
    ]
    row = lines[2]
    assert row.startswith(f"{run_id} three")
    assert "\\x1b]0;owned" in row
    assert row.endswith(" s ago")
    assert max(map(len, lines)) <= 110
    assert lines[3].startswith(waiting[-1])


@on_a_store
def test_more_runs_than_are_shown_are_counted_as_more(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(MAX_RUNS_SHOWN + 1):
        world.start()
    at_work = world.start()
    world.lease(at_work)

    world.watch()

    lines = said(capsys)
    assert len(lines) == MAX_RUNS_SHOWN
    assert lines[0].startswith(f"run {at_work} three IN_PROGRESS")


def test_a_run_of_a_server_is_watched_as_json(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    run_id = world.start()
    world.client.cancel(run_id)
    view = view_of(world.client, run_id)

    watch_run(view, JsonDisplay(view.trace))

    line: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [event["type"] for event in line["events"]] == ["run_started", "run_cancelled"]


def test_a_store_that_is_not_there_yet_has_no_runs_and_is_not_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environ = {"LEASEHOLD_STORE": f"sqlite:///{tmp_path}/runs.db"}

    def pause(_: float) -> None:
        raise KeyboardInterrupt

    with Client(environ["LEASEHOLD_STORE"], environ=environ) as client:
        watch_runs(client, runs_display(client, as_json=False), pause)

    assert capsys.readouterr().out == ""
    assert list(tmp_path.iterdir()) == []
