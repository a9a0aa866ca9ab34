"""A module that ends the process while it is imported, as a script does: it ends no check."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import NoReturn


@contextlib.contextmanager
def exits_are_errors() -> Iterator[None]:
    """Have `os._exit` raise SystemExit inside, in this thread, as `sys.exit` does.

    A check that ended so would have said nothing, and with 0 it would count as passed. For commands
    that only import: a process of its own for that would import everything twice.
    """
    leave, process, thread = os._exit, os.getpid(), threading.get_ident()

    def end(status: int) -> NoReturn:
        if (os.getpid(), threading.get_ident()) != (process, thread):
            leave(status)  # a child that was forked there means itself
        raise SystemExit(f"os._exit({status})")

    os._exit = end
    try:
        yield
    finally:
        os._exit = leave
