"""A process that is used again: for attempts of one step, as long as nothing of them is left."""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from leasehold import IncrementalState, PipelineEntry, Registry, StepDispatchEntry
from leasehold.domain.result import Failed, Finished, LimitExceeded
from leasehold.domain.status import Termination
from leasehold.in_process import InProcessEngine
from leasehold.logs.attempt import attempt_of
from leasehold.worker.sandbox import sandbox as sandbox_module
from leasehold.worker.sandbox import sandboxed_attempt
from leasehold.worker.sandbox.sandbox import Sandbox
from tests.chaos.sandbox import reused
from tests.chaos.sandbox.conftest import Worker, descriptors, has_ended, is_gone
from tests.worlds.attempts import Attempts
from tests.worlds.processes import parent_of
from tests.worlds.waiting import until

MIB = 2**20
Start = Callable[..., Worker]


@pytest.fixture
def attempts(tmp_path: Path) -> Iterator[Attempts]:
    """Attempts whose processes may each serve ten."""
    with closing(Sandbox()) as sandbox:
        yield Attempts(sandbox, tmp_path, reuse=10)


def run(attempts: Attempts, handler: str, given: Any = None, **more: Any) -> Any:
    """Run an attempt that succeeds; return its output."""
    result = attempts.run(f"{reused.__name__}:{handler}", given, **more)
    assert isinstance(result, Finished), result
    return json.loads(result.output)


def test_a_process_serves_so_many_attempts_and_no_more(tmp_path: Path) -> None:
    with closing(Sandbox()) as sandbox:
        attempts = Attempts(sandbox, tmp_path, reuse=3)

        seen = [run(attempts, "counts") for _ in range(7)]

    assert [count for count, _ in seen] == [1, 2, 3, 1, 2, 3, 1]
    assert len({pid for _, pid in seen}) == 3


def test_without_reuse_each_attempt_has_a_fresh_process(tmp_path: Path) -> None:
    with closing(Sandbox()) as sandbox:
        attempts = Attempts(sandbox, tmp_path)

        assert [run(attempts, "counts")[0] for _ in range(3)] == [1, 1, 1]


def test_what_was_cleared_away_keeps_no_process_from_being_used_again(attempts: Attempts) -> None:
    assert len({run(attempts, "uses_much") for _ in range(4)}) == 1


@pytest.fixture
def shared(sandbox: Sandbox, tmp_path: Path) -> Attempts:
    """Attempts as above, whose fork server serves other tests as well."""
    return Attempts(sandbox, tmp_path, reuse=10)


@pytest.mark.parametrize("what", [it for it in reused.LEAVES if it != "memory"])
def test_an_attempt_that_leaves_something_ends_its_process(
    shared: Attempts, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing of it reaches the next one, and the log says once why a step is not faster."""
    check_it_ends_its_process(shared, what, caplog, 320)


@pytest.mark.cold  # a process begins with 20 MiB, and with 120 where it is forked in a test
def test_an_attempt_that_leaves_half_of_its_memory_ends_its_process(
    attempts: Attempts, caplog: pytest.LogCaptureFixture
) -> None:
    check_it_ends_its_process(attempts, "memory", caplog, 160)


def check_it_ends_its_process(
    attempts: Attempts, what: str, caplog: pytest.LogCaptureFixture, limit_mib: int
) -> None:
    step, limit = f"leaves {what}", limit_mib * MIB

    first, second, third = (
        run(attempts, "leaves", given, held=attempts.held(memory=limit), step_type=step)
        for given in ("", what, "")
    )

    assert first == second != third
    until(lambda: is_gone(first))
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    (warning,) = [text for text in warnings if "not used again" in text]
    assert warning == (
        f"the process of step {step} is not used again, whatever its reuse: its handler has left "
        f"or changed {what.partition(' (')[0]}"
    )


def test_what_is_printed_last_is_logged_with_its_attempt(
    attempts: Attempts, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the worker hears that nothing is left while it is still reading."""
    monkeypatch.setattr(sandboxed_attempt, "_EXIT_TIMEOUT_S", 60.0)
    caplog.set_level(logging.INFO)

    for _ in range(5):
        run(attempts, "says_much_at_its_end")

    assert [it.getMessage() for it in caplog.records] == ["the very last"] * 5


@pytest.mark.parametrize("end", ["raise", "exit", "soft", "hard"])
def test_an_attempt_that_does_not_end_well_ends_its_process(attempts: Attempts, end: str) -> None:
    """Its limits are those of a first attempt: they begin with it."""
    path = f"{reused.__name__}:ends_as_told"
    first = run(attempts, "ends_as_told", "")

    second = attempts.run(path, end, attempts.held(timeout=1, cleanup=0.5))
    third = run(attempts, "ends_as_told", "")

    kinds = {"raise": Failed, "exit": Failed, "soft": Finished, "hard": LimitExceeded}
    assert type(second) is kinds[end]
    if isinstance(second, LimitExceeded):
        assert "ends_as_told" in second.stacks
    assert third != first
    until(lambda: is_gone(first))


def test_an_attempt_that_was_asked_to_stop_ends_its_process(attempts: Attempts) -> None:
    """The next one would hear of it."""
    first = run(attempts, "ends_as_told", "")
    held = attempts.held()
    running = attempts.begin(f"{reused.__name__}:ends_as_told", held, "stop")
    until(lambda: held.progress)

    held.ask_to_stop(Termination.INSTANCE_SHUTDOWN)

    assert running.result() == Finished(str(first))
    assert run(attempts, "ends_as_told", "") != first


def test_two_steps_never_share_a_process(attempts: Attempts) -> None:
    """Not even where their handler is the same function."""
    seen = [run(attempts, "counts", step_type=step) for step in ("a", "b", "a", "b")]

    assert [count for count, _ in seen] == [1, 1, 2, 2]


def test_a_process_that_died_while_it_waited_costs_no_attempt(attempts: Attempts) -> None:
    first = run(attempts, "counts")[1]
    os.kill(first, signal.SIGKILL)

    assert run(attempts, "counts")[0] == 1


def test_a_process_that_froze_while_it_waited_costs_no_attempt(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox_module, "_USED_START_S", 0.3)
    first = run(attempts, "counts")[1]
    os.kill(first, signal.SIGSTOP)

    held = attempts.held()
    assert run(attempts, "counts", held=held)[0] == 1
    assert not held.is_killed
    until(lambda: is_gone(first))


def test_a_process_whose_fork_server_died_costs_no_attempt(attempts: Attempts) -> None:
    first = run(attempts, "counts")[1]
    os.kill(parent_of(first), signal.SIGKILL)
    until(lambda: has_ended(first))

    assert run(attempts, "counts")[0] == 1


def test_a_worker_that_is_not_as_it_was_has_a_fresh_process(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = run(attempts, "counts")[1]
    monkeypatch.setenv("ADDED", "1")
    second = run(attempts, "counts")[1]
    monkeypatch.chdir(tmp_path)
    third = run(attempts, "counts")[1]

    assert len({first, second, third}) == 3


def test_as_many_wait_as_were_at_work_at_once(attempts: Attempts, tmp_path: Path) -> None:
    def two(folder: Path) -> set[int]:
        folder.mkdir()
        with ThreadPoolExecutor(2) as threads:
            both = [
                threads.submit(run, attempts, "meets_others", [str(folder), 2]) for _ in range(2)
            ]
            return {one.result() for one in both}

    first, second = two(tmp_path / "first"), two(tmp_path / "second")

    assert len(first) == 2
    assert first == second


def test_a_process_that_waits_in_vain_ends_by_itself(tmp_path: Path) -> None:
    before = descriptors()
    with closing(Sandbox(entry="tests.chaos.sandbox.run_briefly")) as sandbox:
        attempts = Attempts(sandbox, tmp_path, reuse=10)
        first = run(attempts, "counts")[1]

        until(lambda: is_gone(first))

        assert run(attempts, "counts")[0] == 1
    assert descriptors() == before


def test_a_sandbox_that_is_closed_ends_what_waits(attempts: Attempts) -> None:
    first = run(attempts, "counts")[1]

    attempts.sandbox.close()

    assert is_gone(first)


@pytest.mark.nightly  # test_leftovers.py kills one whose processes are at work
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_worker_takes_what_waits_along(start_worker: Start, number: int) -> None:
    worker = start_worker("worker_with_one_that_waits")
    pids = [int(pid) for pid in worker.call.recv(1000).split()]
    assert len(pids) == 1

    worker.process.send_signal(number)

    worker.process.wait()
    until(lambda: has_ended(pids[0]))


def test_the_context_of_a_later_attempt_is_its_own(attempts: Attempts) -> None:
    outputs = {"before": {"n": 1}}
    first = run(attempts, "keeps", "one", held=attempts.held(outputs=outputs))
    resumed = attempts.held(outputs={"before": 2}, resume=IncrementalState("", 1, "kept"))

    second = run(attempts, "keeps", "second", held=resumed)
    third = run(attempts, "keeps", "three", held=attempts.held(outputs=outputs))

    assert first[:3] == [None, "ONE", {"n": 1}]
    assert second[:3] == ["kept", "SECOND", 2]
    assert third[:3] == [None, "THREE", {"n": 1}]
    assert first[3] == second[3] == third[3]
    kept = [(one.iteration_count, one.partial_results) for one in attempts.checkpoints]
    assert kept == [(3, "one"), (6, "second"), (5, "three")]


def test_what_an_attempt_was_given_cannot_be_found_by_the_next_one(attempts: Attempts) -> None:
    mark = "of-the-first-attempt-alone"
    given = {"mark": mark[::-1], "value": f"it has {mark}"}

    (first,) = run(attempts, "finds", given | {"first": True})
    second, found = run(attempts, "finds", {"mark": mark[::-1], "first": False})

    assert (first == second, found) == (True, [])


def _step(name: str, **more: Any) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"{reused.__name__}:says",
        agent_timeout=timedelta(seconds=30),
        dispatch_deadline=timedelta(minutes=1),
        reuse=10,
        **more,
    )


def test_each_line_is_of_its_own_attempt_and_has_no_secrets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine's workers run two runs in one process; each says its own words."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # with it, libraries of C keep nothing
    caplog.set_level(logging.INFO)
    environ = {
        "LEASEHOLD_STORE": f"sqlite:///{tmp_path}/runs.db",
        "LEASEHOLD_ARTIFACTS": f"file://{tmp_path}/artifacts",
    }
    steps = Registry("dispatch", [_step("says")])
    pipelines = Registry("pipelines", [PipelineEntry(name="says", steps=("says",))])
    with InProcessEngine(steps, pipelines, environ=environ, report=lambda _: None) as engine:
        runs = [engine.run("says", f"word-{number}, api_key=hunter2{number}") for number in (1, 2)]
        pids = {run.steps["says"].output for run in runs}

    said = [
        (name.run_id, record.getMessage())
        for record in caplog.records
        if (name := attempt_of(record)) and "word" in record.getMessage()
    ]
    assert len(pids) == 1
    assert sorted(said) == sorted(
        (run.run_id, f"{how} word-{number}, api_key=[redacted]")
        for number, run in enumerate(runs, start=1)
        for how in ("printed", "of C", "without an end", "logged", "logged elsewhere")
    )
    until(lambda: all(has_ended(int(pid)) for pid in pids if pid))
