"""Handlers that go on until a file is there, each in another way; each says its process."""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
import time
from pathlib import Path

from leasehold import SoftTimeoutError, StepContext

_C_WITH_THE_LOCK = ctypes.PyDLL(None)


def sleeps(ctx: StepContext, given: str) -> str:
    password = "hunter22"  # noqa: F841, S105 - the value of a variable
    ctx.progress(0.1, str(os.getpid()))
    while not Path(given).exists():
        time.sleep(0.05)  # the line it sleeps on
    return "went on"


def spins(ctx: StepContext, given: str) -> str:
    ctx.progress(0.1, str(os.getpid()))
    while not _is_there(given):
        pass
    return "went on"


def _is_there(given: str) -> bool:
    for _ in range(100_000):  # the line it spins on
        pass
    return Path(given).exists()


def waits_in_c(ctx: StepContext, given: str) -> str:
    """Hold the lock of the interpreter for seconds at a time: no other thread runs meanwhile.

    It waits for a mutex that is locked: no signal ends the call, and it takes no processor.
    """
    mutex, until = ctypes.create_string_buffer(64), (ctypes.c_long * 2)()
    _C_WITH_THE_LOCK.pthread_mutex_lock(mutex)
    ctx.progress(0.1, str(os.getpid()))
    while not Path(given).exists():
        until[0] = int(time.time()) + 3  # noqa: TID251 - C goes by this clock
        _C_WITH_THE_LOCK.pthread_mutex_timedlock(mutex, until)  # the line it waits on in C
    return "went on"


async def awaits(ctx: StepContext, given: str) -> str:
    ctx.progress(0.1, str(os.getpid()))
    waiting = asyncio.create_task(_other(given))
    while not os.path.exists(given):  # noqa: ASYNC110, ASYNC240, PTH110 - where it waits is shown
        await asyncio.sleep(0.05)  # the line it awaits on
    await waiting
    return "went on"


async def _other(given: str) -> None:
    while not os.path.exists(given):  # noqa: ASYNC110, ASYNC240, PTH110 - as above
        await asyncio.sleep(0.06)  # the line that its other task awaits on


def has_threads(ctx: StepContext, given: str) -> str:
    thread = threading.Thread(target=_wait, args=(given,))
    thread.start()
    ctx.progress(0.1, str(os.getpid()))
    thread.join()  # the line it joins on
    return "went on"


def _wait(given: str) -> None:
    while not Path(given).exists():
        time.sleep(0.05)  # the line that its thread waits on


def moves_on_at_its_limit(ctx: StepContext, given: object) -> None:
    try:
        ctx.progress(0.1, str(os.getpid()))
        time.sleep(600)  # the line before its limit
    except SoftTimeoutError:
        ctx.progress(0.2, "at its limit")
        time.sleep(600)  # the line after its limit
