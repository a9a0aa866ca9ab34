"""The signals of a command that serves."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from leasehold.cli.stop_signals import SignalCount

#: A thread sends the signal to itself, as the system may choose any thread for one.
PROGRAM = """
import signal
import threading

from leasehold.cli.stop_signals import StopSignals

signals = StopSignals()
signals.ready()
stop = lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
threading.Timer(0.1, stop).start()
signals.wait()
print(signals.name)
"""


def test_a_signal_that_another_thread_gets_is_heard() -> None:
    """It wakes no other thread by itself, and the main thread is the one that handles it."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=60
    )

    assert (ran.stdout, ran.stderr) == ("SIGTERM\n", "")


@pytest.mark.parametrize(
    ("numbers", "counted"),
    [
        ((signal.SIGTERM, signal.SIGTERM), [1, 0]),
        ((signal.SIGINT, signal.SIGTERM), [1, 0]),
        ((signal.SIGTERM, signal.SIGINT, signal.SIGTERM), [1, 0, 0]),
        ((signal.SIGINT, signal.SIGINT), [1, 2]),
    ],
)
def test_a_sigterm_that_comes_within_a_second_is_the_first_signal_once_more(
    numbers: tuple[int, ...], counted: list[int]
) -> None:
    """Two Ctrl-C are a person's, who wants it at once."""
    count = SignalCount()

    assert [count.add(number, now=10.0) for number in numbers] == counted


def test_a_second_one_later_than_that_ends_at_once() -> None:
    count = SignalCount()

    assert [count.add(signal.SIGTERM, now) for now in (10.0, 10.9, 11.0)] == [1, 0, 2]


#: Two Ctrl-C are two, however long the system lets pass between them.
TWICE = """
import signal
import sys

from leasehold.cli.stop_signals import StopSignals

signals = StopSignals(lambda: print("at once"))
signals.ready()
for _ in range(2):
    signal.raise_signal(signal.SIGINT)
print(signals.name, signals.is_at_once)
"""


def test_the_second_one_is_heard_where_it_comes() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", TWICE], capture_output=True, text=True, check=False, timeout=60
    )

    assert (ran.stdout, ran.stderr) == ("at once\nSIGINT True\n", "")
