"""Processes of the storm: each is forked from a server that imported what they all need."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Final

from bench.bare_children import unnamed_program

_PRELOADED: Final = [
    "tests.chaos.storm.workers",
    "tests.chaos.storm.killed_worker",
    "tests.chaos.kills.workers",  # the server is one for all tests of a process
    "tests.chaos.kills.slot_worker",
    "tests.chaos.patterns.processes",
    "google.cloud.firestore",
    "leasehold.adapters.channels.factory",
    "leasehold.adapters.channels.webhook",
]


def forked(target: Callable[..., object], *args: object) -> Any:
    """Start a process."""
    processes: Any = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(_PRELOADED)
    with unnamed_program():
        process = processes.Process(target=target, args=args, daemon=True)
        process.start()
    return process


def forked_with_pipe(target: Callable[..., object], *args: object) -> tuple[Any, Connection]:
    """Start a process that is given one end of a pipe first; return it, and the other end."""
    here, there = multiprocessing.Pipe()
    process = forked(target, there, *args)
    there.close()
    return process, here
