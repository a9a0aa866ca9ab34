"""What a command that serves hears of signals."""

from __future__ import annotations

import subprocess
import sys

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
