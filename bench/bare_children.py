"""The floor of a sandbox: a child of `multiprocessing`, forked from a warm fork server."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from multiprocessing.connection import Connection
from typing import Any

#: What the fork server imports: a child of Leasehold has that, too.
PRELOADED = [__name__, "leasehold.worker.context.step_context", "leasehold.worker.handler.call"]


class BareChildren:
    """Has children return what they are given, one at a time."""

    def __init__(self) -> None:
        self._children: Any = multiprocessing.get_context("forkserver")
        self._children.set_forkserver_preload(PRELOADED)

    def run(self, value: object) -> object:
        """Start a child, send it the value, get it back, and wait for the end of the child."""
        here, there = self._children.Pipe()
        with here, unnamed_program():
            child = self._children.Process(target=answer, args=(there,))
            child.start()
            there.close()
            here.send(value)
            given: object = here.recv()
            child.join()
            child.close()
        return given


def answer(pipe: Connection) -> None:
    """Return what comes."""
    pipe.send(pipe.recv())


@contextmanager
def unnamed_program() -> Iterator[None]:
    """Keep each child from running the program's file again, which is no part of a floor."""
    program = sys.modules["__main__"]
    spec, program.__spec__ = program.__spec__, ModuleSpec("__main__", None)
    try:
        yield
    finally:
        program.__spec__ = spec
