"""SIGTERM reaches every waiter: in real processes, whatever handlers others set."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.worker import hearing

ROOT = Path(__file__).parents[3]
AT_ONCE = 5.0  # far below the five minutes that are waited; in truth it takes some milliseconds

Begin = Callable[[Callable[[], None]], subprocess.Popen[str]]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Starts a scene; what it says after `ready` is left to read."""
    started: list[subprocess.Popen[str]] = []

    def begin(scene: Callable[[], None]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.worker.hearing", scene.__name__],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def ready(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    first, *others = process.stdout.readline().split()
    assert first == "ready"
    return others


def heard(process: subprocess.Popen[str], number: signal.Signals = signal.SIGTERM) -> list[str]:
    """The output of the process after the signal."""
    ready(process)
    process.send_signal(number)
    return process.communicate(timeout=AT_ONCE)[0].splitlines()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    "scene",
    [
        hearing.main_thread,
        hearing.other_thread,
        hearing.inside_a_call_of_c,
        hearing.coroutine,
        hearing.callback,
    ],
)
def test_a_signal_wakes_a_wait_of_five_minutes_at_once(
    begin: Begin, scene: Callable[[], None], number: signal.Signals
) -> None:
    process = begin(scene)

    assert heard(process, number) == ["True"]
    assert process.returncode == 0


@pytest.mark.parametrize("scene", [hearing.later_handler, hearing.coroutine_under_a_server])
def test_a_handler_that_is_set_later_runs_as_well(begin: Begin, scene: Callable[[], None]) -> None:
    """A server sets its own after the function was imported; the order is not defined."""
    process = begin(scene)

    assert sorted(heard(process)) == ["True", "handler"]
    assert process.returncode == 0


def test_two_who_listen_both_hear(begin: Begin) -> None:
    assert heard(begin(hearing.two_coordinators)) == ["handler", "True True"]


def test_what_a_handler_raises_is_raised_where_the_program_is(begin: Begin) -> None:
    assert heard(begin(hearing.raising_handler)) == ["raised", "True"]


@pytest.mark.parametrize("scene", [hearing.nobody_handles, hearing.default_again])
def test_without_a_handler_the_signal_ends_the_process(
    begin: Begin, scene: Callable[[], None]
) -> None:
    process = begin(scene)

    assert heard(process) == []
    assert process.returncode == -signal.SIGTERM


def test_a_signal_that_is_ignored_is_not_heard(begin: Begin) -> None:
    process = begin(hearing.ignored)
    ready(process)

    process.send_signal(signal.SIGTERM)
    stdout, _ = process.communicate("go on\n", timeout=AT_ONCE)

    assert stdout == "False\n"


@pytest.mark.parametrize(
    "scene",
    [
        hearing.installed_over,
        hearing.installed_over_in_a_loop,
        hearing.installed_before_and_in_a_loop,
    ],
)
def test_to_install_twice_is_as_once_and_keeps_what_was_there(
    begin: Begin, scene: Callable[[], None]
) -> None:
    assert sorted(heard(begin(scene))) == ["True", "handler"]


def test_a_forked_process_hears_its_own_signals_alone(begin: Begin) -> None:
    process = begin(hearing.forked)
    (child,) = ready(process)

    os.kill(int(child), signal.SIGTERM)
    stdout, _ = process.communicate(timeout=AT_ONCE)

    assert stdout.splitlines() == ["handler", "child True", "parent False"]


def test_thousands_of_signals_never_lock_it_up(begin: Begin) -> None:
    """A handler may interrupt the very thread that holds a lock."""
    process = begin(hearing.storm)
    ready(process)
    end = time.monotonic() + 20

    while process.poll() is None:
        assert time.monotonic() < end, "it hangs"
        process.send_signal(signal.SIGTERM)

    assert process.communicate()[0] == "True\n"
    assert process.returncode == 0
