"""Processes that are told to end: `python -m tests.unit.worker.hearing SCENE`.

Each says `ready` when it may be signalled, then in lines what it heard.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys
import threading
import time
from types import FrameType

from leasehold.attempt.stop import StopSignal
from leasehold.worker.stopping.system_signals import ShutdownCoordinator

LONG_S = 300.0


def say(*words: object) -> None:
    """Write a line at once: a handler may interrupt the thread that writes one."""
    os.write(sys.stdout.fileno(), f"{' '.join(map(str, words))}\n".encode())


def of_somebody_else(_number: int, _frame: FrameType | None) -> None:
    """A handler that has nothing to do with the coordinator."""
    say("handler")


def main_thread() -> None:
    coordinator = ShutdownCoordinator()
    coordinator.install()
    say("ready")
    say(coordinator.wait_or_shutdown(LONG_S))


def other_thread() -> None:
    coordinator = ShutdownCoordinator()
    coordinator.install()

    def wait() -> None:
        say("ready")
        say(coordinator.wait_or_shutdown(LONG_S))

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()


def inside_a_call_of_c() -> None:
    """No handler of Python can run in the main thread meanwhile."""
    coordinator = ShutdownCoordinator()
    coordinator.install()

    def wait() -> None:
        say("ready")
        say(coordinator.wait_or_shutdown(LONG_S))
        os._exit(0)

    threading.Thread(target=wait).start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)


def coroutine() -> None:
    async def wait() -> None:
        coordinator = ShutdownCoordinator()
        coordinator.install()
        say("ready")
        say(await coordinator.await_or_shutdown(LONG_S))

    asyncio.run(wait())


def coroutine_under_a_server() -> None:
    """The server has its own loop, and its own handler in it."""
    coordinator = ShutdownCoordinator()
    coordinator.listen()

    async def wait() -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, say, "handler")
        coordinator.watch()
        say("ready")
        say(await coordinator.await_or_shutdown(LONG_S))

    asyncio.run(wait())


def callback() -> None:
    coordinator = ShutdownCoordinator()
    coordinator.install()
    called = threading.Event()
    coordinator.on_stop(called.set)
    say("ready")
    say(called.wait(LONG_S))


def storm() -> None:
    """Take locks, wait and listen without a pause, while signals come without a pause."""
    coordinator = ShutdownCoordinator()
    coordinator.listen()
    heard = 0

    def count(_number: int, _frame: FrameType | None) -> None:
        nonlocal heard
        heard += 1

    signal.signal(signal.SIGTERM, count)
    coordinator.watch()
    say("ready")
    while heard < 2000:
        stop = StopSignal()
        stop.on_stop(list)()
        coordinator.on_stop(list)()
        coordinator.wait_or_shutdown(0.0001)
        stop.wait(0.0001)
        stop.request("storm")
        coordinator.watch()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say(coordinator.shutdown_requested)


def later_handler() -> None:
    coordinator = ShutdownCoordinator()
    coordinator.listen()
    signal.signal(signalnum=signal.SIGTERM, handler=of_somebody_else)
    coordinator.watch()
    say("ready")
    say(coordinator.wait_or_shutdown(LONG_S))


def two_coordinators() -> None:
    one, other = ShutdownCoordinator(), ShutdownCoordinator()
    for coordinator in (one, other):
        coordinator.listen()
        coordinator.listen()
        coordinator.watch()
    signal.signal(signal.SIGTERM, of_somebody_else)
    signal.signal(signal.SIGTERM, signal.signal(signal.SIGTERM, signal.SIG_DFL))
    say("ready")
    say(one.wait_or_shutdown(LONG_S), other.wait_or_shutdown(LONG_S))


def raising_handler() -> None:
    """As of a program that ends by an exception."""
    coordinator = ShutdownCoordinator()
    coordinator.listen()

    def leave(_number: int, _frame: FrameType | None) -> None:
        raise InterruptedError

    signal.signal(signal.SIGTERM, leave)
    coordinator.watch()
    try:
        say("ready")
        time.sleep(LONG_S)  # noqa: TID251, RUF100 - any call that an exception ends
    except InterruptedError:
        say("raised")
    say(coordinator.wait_or_shutdown(LONG_S))


def nobody_handles() -> None:
    coordinator = ShutdownCoordinator()
    coordinator.listen()
    coordinator.watch()
    say("ready")
    say(coordinator.wait_or_shutdown(LONG_S))


def default_again() -> None:
    coordinator = ShutdownCoordinator()
    coordinator.listen()
    signal.signal(signal.SIGTERM, of_somebody_else)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    coordinator.watch()
    say("ready")
    say(coordinator.wait_or_shutdown(LONG_S))


def ignored() -> None:
    coordinator = ShutdownCoordinator()
    coordinator.listen()
    signal.signal(signal.SIGTERM, of_somebody_else)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    coordinator.watch()
    say("ready")
    sys.stdin.readline()
    say(coordinator.shutdown_requested)


def installed_over() -> None:
    """Twice, over a handler that was there before."""
    signal.signal(signal.SIGTERM, of_somebody_else)
    coordinator = ShutdownCoordinator()
    coordinator.install()
    coordinator.install()
    say("ready")
    say(coordinator.wait_or_shutdown(LONG_S))


def installed_over_in_a_loop() -> None:
    signal.signal(signal.SIGTERM, of_somebody_else)
    coordinator = ShutdownCoordinator()

    async def wait() -> None:
        coordinator.install()
        coordinator.install()
        say("ready")
        say(await coordinator.await_or_shutdown(LONG_S))

    asyncio.run(wait())


def installed_before_and_in_a_loop() -> None:
    signal.signal(signal.SIGTERM, of_somebody_else)
    coordinator = ShutdownCoordinator()
    coordinator.install()

    async def wait() -> None:
        coordinator.install()
        say("ready")
        say(await coordinator.await_or_shutdown(LONG_S))

    asyncio.run(wait())


def forked() -> None:
    """As gunicorn: the master imports, then forks; each process sets its own handlers."""
    coordinator = ShutdownCoordinator()
    coordinator.listen()
    coordinator.watch()
    signal.signal(signal.SIGTERM, of_somebody_else)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, of_somebody_else)
        coordinator.watch()
        say("ready", os.getpid())
        say("child", coordinator.wait_or_shutdown(LONG_S))
        os._exit(0)
    os.waitpid(child, 0)
    say("parent", coordinator.shutdown_requested)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
