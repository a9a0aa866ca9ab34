"""Each answer of execute_step, as its docstring says it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from leasehold.bootstrap import boot
from leasehold.domain.manifest import run_ref
from leasehold.domain.stored import Write
from leasehold.domain.worker_note import worker_note_of
from leasehold.ports.documents import Query, Snapshot
from leasehold.testing import InProcessEngine
from leasehold.worker.stopping.system_signals import ShutdownCoordinator
from tests.worlds.catalogs.sample import STEPS
from tests.worlds.functions import Function
from tests.worlds.swept import Clock
from tests.worlds.waiting import until

PENDING = {"status": "PENDING"}
ENTRIES = Path(__file__).parents[3] / "shared/leasehold/functions"
QUEUE = {"X-CloudTasks-QueueName": "add"}


def test_an_attempt_is_run_and_handed_off(engine: InProcessEngine, execute_step: Function) -> None:
    run = engine.start("three", {"n": 1})

    answer = execute_step.post(json={"runId": run.run_id, "generation": 1}, headers=QUEUE)

    moved = engine.show(run.run_id)
    assert answer == (200, {"outcome": "handed_off"})
    assert moved.current_step == "add_later"
    assert moved.position.dispatch.generation == 2
    assert moved.status == "PENDING"


def test_the_last_step_completes_the_run(engine: InProcessEngine, execute_step: Function) -> None:
    run = engine.start("three", {"n": 1})

    outcomes = [
        execute_step.post(json={"runId": run.run_id, "generation": generation})[1]["outcome"]
        for generation in (1, 2, 3, 3)
    ]

    assert outcomes == ["handed_off", "handed_off", "completed", "duplicate"]
    assert engine.show(run.run_id).steps["add_again"].output == '{"n":4}'


def test_an_older_generation_is_a_duplicate(
    engine: InProcessEngine, execute_step: Function
) -> None:
    run = engine.start("three", {"n": 1})
    execute_step.post(json={"runId": run.run_id, "generation": 1})

    answer = execute_step.post(json={"runId": run.run_id, "generation": 1}, headers=QUEUE)

    assert answer == (200, {"outcome": "duplicate"})


@pytest.mark.parametrize(
    ("pipeline", "outcome"),
    [
        ("recovers", "handed_off"),
        ("refuses", "dead_lettered"),
        ("half", "completed"),
        ("continues", "continued"),
    ],
)
def test_outcomes_are_told(
    engine: InProcessEngine, execute_step: Function, pipeline: str, outcome: str
) -> None:
    run = engine.start(pipeline, {"n": 1})

    answer = execute_step.post(json={"runId": run.run_id, "generation": 1})

    assert answer == (200, {"outcome": outcome})


def test_a_failed_attempt_says_that_a_retry_is_scheduled(
    engine: InProcessEngine, execute_step: Function
) -> None:
    run = engine.start("recovers", {"n": 1})
    execute_step.post(json={"runId": run.run_id, "generation": 1})

    answer = execute_step.post(json={"runId": run.run_id, "generation": 2})

    assert answer == (200, {"outcome": "retry_scheduled"})


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "runId"),
        ({"runId": 7, "generation": 1}, "runId"),
        ({"runId": "a/b", "generation": 1}, "runId"),
        ({"runId": "r-1"}, "generation"),
        ({"runId": "r-1", "generation": True}, "generation"),
        ({"runId": "r-1", "generation": 0}, "generation"),
        ({"runId": "r-1", "generation": "1"}, "generation"),
        ([1], "body"),
        ("text", "body"),
        ({"runId": "r-unknown", "generation": 1}, "a run that is there"),
    ],
)
def test_what_is_malformed_is_rejected_to_cloud_tasks_and_refused_to_others(
    execute_step: Function, body: object, says: str
) -> None:
    """To Cloud Tasks any answer but 2xx means "again", which cannot help."""
    from_queue = execute_step.post(json=body, headers=QUEUE)
    from_others = execute_step.post(json=body)

    assert from_queue[0] == 200
    assert from_queue[1]["outcome"] == "rejected"
    assert says in from_queue[1]["reason"]
    assert from_others[0] == 400
    assert says in from_others[1]["error"]["message"]


def test_a_generation_from_the_future_is_rejected_and_changes_nothing(
    engine: InProcessEngine, execute_step: Function
) -> None:
    run = engine.start("three", {"n": 1})

    answer = execute_step.post(json={"runId": run.run_id, "generation": 2}, headers=QUEUE)

    assert answer[1]["outcome"] == "rejected"
    assert engine.show(run.run_id) == run


def test_a_body_that_is_not_json_or_too_large_is_refused(execute_step: Function) -> None:
    no_json = execute_step.client.post("/", data=b"\xff{", content_type="application/json")
    large = execute_step.client.post("/", data=b"x" * 1_200_000)

    assert (no_json.status_code, no_json.get_json()["error"]["code"]) == (400, "invalid_request")
    assert (large.status_code, large.get_json()["error"]["code"]) == (413, "too_large")


def test_other_methods_are_refused(execute_step: Function) -> None:
    assert execute_step.get("/")[0] == 405


def test_a_store_that_cannot_be_written_is_a_500_so_that_the_task_comes_again(
    environ: dict[str, str], execute_step: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEASEHOLD_STORE", "sqlite:////proc/nowhere/runs.db")

    status, body = execute_step.post(json={"runId": "r-1", "generation": 1}, headers=QUEUE)

    assert status == 500
    assert body["error"]["code"] == "bad_setting"


def test_an_outage_is_a_line_of_the_log_and_no_traceback(
    engine: InProcessEngine,
    environ: dict[str, str],
    execute_step: Function,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each delivery meets it anew, of every run."""
    run = engine.start("three", {"n": 1})
    execute_step.post(json={"runId": run.run_id, "generation": 9})  # its store is open
    file = environ["LEASEHOLD_STORE"].removeprefix("sqlite:///")
    caplog.clear()
    with sqlite3.connect(file) as connection:
        connection.execute("DROP TABLE runs")

    status, body = execute_step.post(json={"runId": run.run_id, "generation": 1}, headers=QUEUE)

    assert (status, body["error"]["code"]) == (500, "store_unavailable")
    # It may be committed, and the queue be away: the caller must not read that nothing was done.
    assert (
        body["error"]["message"] == "Not all could be committed and enqueued; the task comes again."
    )
    (line,) = [one for one in caplog.records if run.run_id in one.getMessage()]
    assert line.exc_info is None
    assert "does not answer" in line.getMessage()


@pytest.mark.parametrize("run_id", ["__x__", ".", "..", "a b", "", "é", "x" * 129])
def test_an_id_that_no_run_has_is_rejected_whatever_the_store(
    execute_step: Function, run_id: str
) -> None:
    """Firestore refuses such names in its own way: the task would come again forever."""
    status, body = execute_step.post(json={"runId": run_id, "generation": 1}, headers=QUEUE)

    assert (status, body["outcome"]) == (200, "rejected")


def test_an_instance_that_ends_takes_nothing_more(
    engine: InProcessEngine, execute_step: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task comes again, to another one."""
    ending = ShutdownCoordinator()
    ending.request()
    monkeypatch.setattr("leasehold.web.execute_step.SHUTDOWN", ending)  # that of the tests goes on
    run = engine.start("three", {"n": 1})

    status, body = execute_step.post(json={"runId": run.run_id, "generation": 1}, headers=QUEUE)

    assert (status, body["error"]["code"]) == (500, "instance_shutdown")
    assert engine.show(run.run_id) == run


def test_a_step_that_is_not_known_here_comes_again(
    engine: InProcessEngine, execute_step: Function
) -> None:
    """Another revision may know it: 500 alone has Cloud Tasks deliver the task again."""
    run = engine.start("three", {"n": 1})
    position = run.position.model_dump() | {"step": "nowhere"}
    elsewhere = {"plan": ["nowhere"], "position": position, "steps": {"nowhere": PENDING}}
    engine.engine.documents.transact(
        run_ref(run.run_id), lambda found, _: Write(None, {**(found or {}), **elsewhere})
    )

    status, answer = execute_step.post(json={"runId": run.run_id, "generation": 1}, headers=QUEUE)

    assert (status, answer["error"]["code"]) == (500, "step_unknown")
    assert engine.show(run.run_id).status == "PENDING"


def test_a_function_notes_that_it_lives_while_it_works_and_once_a_minute_at_most(
    engine: InProcessEngine, execute_step: Function, environ: dict[str, str]
) -> None:
    """An instance that idles costs nothing, and a queue of small steps hardly more."""
    clock, provider, documents = Clock(), execute_step.provider, engine.engine.documents
    provider._bundle = boot(environ, catalog=provider.catalog, clock=clock)  # noqa: SLF001

    def notes() -> list[Snapshot]:
        notes = [(one, worker_note_of(one.document)) for one in documents.query(Query("workers"))]
        return [one for one, note in notes if note is not None and note.kind == "function"]

    def works() -> None:
        run = engine.start("three", {"n": 1})
        for generation in (1, 2, 3):
            execute_step.post(json={"runId": run.run_id, "generation": generation}, headers=QUEUE)
        assert engine.show(run.run_id).status == "COMPLETED"

    execute_step.get("/")
    idle = notes()
    works()
    (first,) = until(notes)
    clock.seconds += 59
    works()
    (still,) = notes()
    clock.seconds += 1
    works()
    until(lambda: notes()[0].version != first.version)
    (second,) = notes()

    assert idle == []
    assert first.document["steps"] == [step.step_type for step in STEPS]
    assert (still.version, second.version) == (first.version, first.version + 1)
    assert first.document["startedAt"] == second.document["startedAt"]
    assert first.document["seenAt"] < second.document["seenAt"]


def test_a_function_without_a_package_says_which_and_which_line_wants_it(tmp_path: Path) -> None:
    """All there is of a revision that does not start is its log, of which people read one line."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "catalog.py").write_text("from own.agents import STEPS\n")
    (tmp_path / "own" / "agents.py").write_text("import os\nimport package_of_nobody.chat\n")

    started = subprocess.run(
        [sys.executable, "-c", "import execute_step"],
        cwd=tmp_path,
        env=os.environ | {"LEASEHOLD_CATALOG": "own.catalog", "PYTHONPATH": str(ENTRIES)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert started.returncode == 1
    assert started.stderr.splitlines()[-1].endswith(
        "LEASEHOLD_CATALOG 'own.catalog' cannot be used: importing it raised ModuleNotFoundError: "
        "No module named 'package_of_nobody', at agents.py:2 (<module>); install its package "
        "(a function has those that its requirements.txt names)."
    )


def test_the_next_steps_run_in_the_request_of_a_task(
    engine: InProcessEngine, execute_step: Function
) -> None:
    run = engine.start("three", {"n": 1})
    task = {**QUEUE, "X-CloudTasks-TaskName": "t-1"}

    answer = execute_step.post(json={"runId": run.run_id, "generation": 1}, headers=task)

    done = engine.show(run.run_id)
    assert answer == (200, {"outcome": "completed"})
    assert (done.steps["add_again"].output, done.fencing_token) == ('{"n":4}', 3)
