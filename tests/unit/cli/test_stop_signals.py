"""What a command that serves hears of signals."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

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


#: What a service manager, or a wrapper that passes on what it gets, sends within moments.
TWICE = """
import signal
import sys

from leasehold.cli.stop_signals import StopSignals

signals = StopSignals(lambda: print("at once"))
signals.ready()
for number in map(int, sys.argv[1:]):
    signal.raise_signal(number)
print(signals.name, signals.is_at_once)
"""


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((signal.SIGTERM, signal.SIGTERM), "SIGTERM False\n"),
        ((signal.SIGINT, signal.SIGTERM), "SIGINT False\n"),
        ((signal.SIGTERM, signal.SIGINT, signal.SIGTERM), "SIGTERM False\n"),
        ((signal.SIGINT, signal.SIGINT), "at once\nSIGINT True\n"),
    ],
)
def test_a_sigterm_that_comes_within_a_second_is_the_first_signal_once_more(
    numbers: tuple[int, ...], said: str
) -> None:
    """Two Ctrl-C are a person's, who wants it at once."""
    words = [sys.executable, "-c", TWICE, *(str(int(number)) for number in numbers)]

    ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)

    assert (ran.stdout, ran.stderr) == (said, "")


def test_a_second_one_later_than_that_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((10.0, 10.9, 11.0))
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    count = SignalCount()

    assert [count.add(signal.SIGTERM) for _ in range(3)] == [1, 0, 2]
