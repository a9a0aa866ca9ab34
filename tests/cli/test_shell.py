"""What `tests/worlds/shell.py` promises: a command that is called here leaves nothing behind."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from tests.worlds.shell import Shell
from tests.worlds.waiting import until

ORDER = ("start", "order", "--input", '{"amount": 3}', "--in-process")


def state() -> dict[str, Any]:
    """Return what a process has one of."""
    return {
        "folder": Path.cwd(),
        "environ": dict(os.environ),
        "argv": list(sys.argv),
        "path": list(sys.path),
        "streams": (sys.stdin, sys.stdout, sys.stderr),
        "files": os.listdir("/dev/fd"),  # noqa: PTH208 - numbers, not files
        "modules": [name for name in sys.modules if name.startswith("shop")],
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
        "log": (list(logging.root.handlers), logging.lastResort and logging.lastResort.formatter),
    }


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def test_nothing_is_left_of_a_command(shell: Shell) -> None:
    before, threads_before = state(), threads()

    codes = [
        shell.run(*ORDER).returncode,
        shell.run("start", "ordr").returncode,
        shell.run("runs", LEASEHOLD_CATALOG="nowhere").returncode,
    ]

    assert codes == [0, 2, 0]
    assert state() == before
    until(lambda: threads() <= threads_before)  # those for errands are told to end, and not awaited


def test_a_catalog_is_imported_as_it_is_now(shell: Shell) -> None:
    """Each call is its own process for a test that edits a file between two of them."""
    first = shell.json("registry")
    catalog = (shell.folder / "shop.py").read_text()
    (shell.folder / "shop.py").write_text(catalog.replace('name="order"', 'name="parcel"'))

    second = shell.json("registry")

    assert (first["pipelines"][0]["name"], second["pipelines"][0]["name"]) == ("order", "parcel")
