"""A limit of silence: who hangs is ended long before its time is over, and who works goes on."""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing
from multiprocessing import Pipe
from pathlib import Path
from typing import NamedTuple

import pytest

from leasehold.attempt.attempt import Attempt
from leasehold.domain.result import Finished, LimitExceeded, Result
from leasehold.domain.status import Termination
from leasehold.worker.sandbox.sandbox import Sandbox
from tests.chaos.sandbox import silent
from tests.worlds.attempts import Attempts
from tests.worlds.processes import spawned
from tests.worlds.waiting import until

_TALK = ("prints", "has_a_child_that_prints", "logs", "progresses", "calls")
_HANG = ("sleeps", "is_deaf", "holds_the_interpreter", "cleans_up")


class AtLimit(NamedTuple):
    held: Attempt
    result: Result
    took: float


@pytest.fixture(scope="module")
def at_limit(tmp_path_factory: pytest.TempPathFactory) -> dict[str, AtLimit]:
    """Run all of them beside each other: each of them waits. Python buffers prints by default."""
    with pytest.MonkeyPatch.context() as patch, closing(Sandbox()) as sandbox:
        patch.delenv("PYTHONUNBUFFERED", raising=False)
        attempts, begun = Attempts(sandbox, tmp_path_factory.mktemp("silent")), time.monotonic()
        held = {name: attempts.held(silence=silent.LIMIT_S) for name in (*_HANG, *_TALK)}
        running = {name: attempts.begin(f"{silent.__name__}:{name}", held[name]) for name in held}
        return {
            name: AtLimit(held[name], one.result(), time.monotonic() - begun)
            for name, one in running.items()
        }


@pytest.mark.parametrize("handler", _TALK)
def test_a_handler_that_says_something_goes_on(at_limit: dict[str, AtLimit], handler: str) -> None:
    assert at_limit[handler].result == Finished('"done"')


def test_a_handler_that_hangs_is_ended_with_its_stack(at_limit: dict[str, AtLimit]) -> None:
    """It may take two minutes."""
    result, took = at_limit["sleeps"].result, at_limit["sleeps"].took

    assert isinstance(result, LimitExceeded)
    assert result.reason is Termination.SILENCE_LIMIT_EXCEEDED
    assert result.error.code == "silence_limit_exceeded"
    assert "for its silence limit of 4 s" in result.error.message
    assert "time.sleep(600)  # the line it hangs on" in result.stacks
    assert (result.error.origin or "").endswith("(sleeps)")
    assert took < 60


def test_a_handler_that_hears_nothing_is_killed(at_limit: dict[str, AtLimit]) -> None:
    held, result, _ = at_limit["is_deaf"]

    assert isinstance(result, LimitExceeded)
    assert result.reason is Termination.SILENCE_LIMIT_EXCEEDED
    assert "in is_deaf" in result.stacks
    assert held.is_killed


def test_the_stack_of_a_silent_handler_is_written_although_it_holds_the_interpreter(
    at_limit: dict[str, AtLimit],
) -> None:
    """Its worker has to send a signal for it: its own clock is set for its time alone."""
    result = at_limit["holds_the_interpreter"].result

    assert isinstance(result, LimitExceeded)
    assert "c.pthread_mutex_lock(mutex)  # it is in C here" in result.stacks


def test_a_handler_may_clean_up(at_limit: dict[str, AtLimit]) -> None:
    """Its output counts, as at the soft limit of its time."""
    assert at_limit["cleans_up"].result == Finished('"asked to stop: True, True"')


def test_who_waits_for_its_worker_is_not_silent(attempts: Attempts) -> None:
    held = attempts.held(silence=silent.LIMIT_S)
    with held._writing:  # noqa: SLF001 - so a write waits for a store that answers late
        running = attempts.begin(f"{silent.__name__}:waits_for_its_worker", held)
        time.sleep(silent.LIMIT_S * 2)

    assert running.result() == Finished('"done"')


def test_a_worker_that_was_frozen_did_not_hear(tmp_path: Path) -> None:
    """Its handler may have said something meanwhile, or not: the handler was not silent for it."""
    here, there = Pipe()
    worker = spawned(silent.run_attempt, there, tmp_path)
    assert worker.pid is not None
    try:
        until((tmp_path / "there").exists, 60)
        os.kill(worker.pid, signal.SIGSTOP)
        time.sleep(silent.LIMIT_S * 1.2)
        os.kill(worker.pid, signal.SIGCONT)
        assert here.poll(60)
        result = here.recv()
        worker.join(60)
    finally:
        worker.kill()

    assert result == Finished('"done"')
