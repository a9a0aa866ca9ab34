"""The stack of a handler that goes on: its process says it within a second, and lasts."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from leasehold.attempt.attempt import Attempt
from leasehold.domain.notes import ThreadStack
from leasehold.domain.result import Failed, Finished, LimitExceeded
from leasehold.worker.sandbox.sandbox import Sandbox
from tests.worlds.attempts import Attempts, Running
from tests.worlds.catalogs import lasting
from tests.worlds.processes import is_stopped
from tests.worlds.waiting import until

WENT_ON = Finished('"went on"')


def begun(attempts: Attempts, handler: str, held: Attempt, go_on: Path) -> Running:
    """Begin an attempt of this handler, which is there by now."""
    running = attempts.begin(f"{lasting.__name__}:{handler}", held, str(go_on))
    until(lambda: held.progress)
    return running


def pid_of(held: Attempt) -> int:
    assert held.progress is not None
    return int(held.progress.message)


def stack_of(held: Attempt) -> ThreadStack:
    ask = held.stack_of_process
    assert ask is not None
    return ask()


def stack_with(held: Attempt, lines: list[str]) -> ThreadStack | None:
    """Return what it does now, once it is at these lines."""
    stack = stack_of(held)
    return stack if all(line in stack.text for line in lines) else None


@pytest.mark.parametrize(
    ("handler", "lines"),
    [
        ("sleeps", ["the line it sleeps on"]),
        ("spins", ["while not _is_there(given):"]),
        ("waits_in_c", ["the line it waits on in C"]),
        ("awaits", ["the line it awaits on", "the line that its other task awaits on"]),
        ("has_threads", ["the line it joins on", "the line that its thread waits on"]),
    ],
)
def test_a_handler_says_where_it_is_and_goes_on(
    attempts: Attempts, tmp_path: Path, handler: str, lines: list[str]
) -> None:
    """Also twice, and in a call of C that holds the lock of the interpreter."""
    held, go_on = attempts.held(), tmp_path / "go-on"
    running = begun(attempts, handler, held, go_on)

    stacks = [until(partial(stack_with, held, lines)) for _ in range(2)]
    go_on.touch()

    assert running.result() == WENT_ON
    for stack in stacks:
        assert (stack.origin or "").startswith("lasting.py:")
        assert len(stack.text.encode()) <= 4096
        assert "hunter22" not in stack.text
    assert not held.stop.is_requested
    assert held.stack_of_process is None


def test_a_process_that_does_not_answer_is_not_waited_for(
    attempts: Attempts, tmp_path: Path
) -> None:
    """It was stopped, and goes on later; a further request is answered with what it does then."""
    held, go_on = attempts.held(), tmp_path / "go-on"
    running = begun(attempts, "sleeps", held, go_on)
    pid = pid_of(held)

    os.kill(pid, signal.SIGSTOP)
    until(partial(is_stopped, pid))
    began = time.monotonic()
    silent = stack_of(held)
    took = time.monotonic() - began
    os.kill(pid, signal.SIGCONT)
    until(partial(stack_with, held, ["the line it sleeps on"]))
    go_on.touch()

    assert silent == ThreadStack()
    assert took >= 0.5  # it was waited for
    assert running.result() == WENT_ON


def test_at_its_limits_its_stacks_are_those_of_then(attempts: Attempts) -> None:
    """A request before them, or between them, changes nothing of that."""
    held = attempts.held(timeout=4, cleanup=2)
    running = attempts.begin("tests.worlds.catalogs.lasting:moves_on_at_its_limit", held)
    until(lambda: held.progress)

    until(partial(stack_with, held, ["the line before its limit"]))
    until(lambda: held.progress is not None and held.progress.message == "at its limit")
    until(partial(stack_with, held, ["the line after its limit"]))
    result = running.result()

    assert isinstance(result, LimitExceeded)
    assert "the line before its limit" in result.stacks


def test_one_that_ends_meanwhile_says_nothing_and_is_not_waited_for(
    attempts: Attempts, tmp_path: Path
) -> None:
    held = attempts.held()
    running = begun(attempts, "sleeps", held, tmp_path / "go-on")
    ask, pid = held.stack_of_process, pid_of(held)
    assert ask is not None

    os.kill(pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as threads:
        stack = threads.submit(ask)
        os.kill(pid, signal.SIGKILL)
        result = running.result()

        assert stack.result(30) == ThreadStack()
    assert isinstance(result, Failed)
    assert ask() == ThreadStack()  # its worker serves it no more


def test_a_process_that_was_asked_serves_further_attempts(tmp_path: Path) -> None:
    with closing(Sandbox()) as sandbox:
        attempts, pids = Attempts(sandbox, tmp_path, reuse=10), set()
        for number in range(3):
            held, go_on = attempts.held(), tmp_path / f"go-on-{number}"
            running = begun(attempts, "sleeps", held, go_on)
            until(partial(stack_with, held, ["the line it sleeps on"]))
            go_on.touch()
            assert running.result() == WENT_ON
            pids.add(pid_of(held))

    assert len(pids) == 1
