"""A bundle that is served by `leasehold dev`, in the process of the test, and its API."""

from __future__ import annotations

import contextlib
import json
import os
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from leasehold.devserver.cloud_tasks.server import CloudTasksDouble
from leasehold.devserver.server import DevOptions, DevServer
from tests.worlds.ports import own_port
from tests.worlds.waiting import until

ROOT = Path(__file__).parents[2]

#: For tests that no process of a handler matters to: each worker would start a fork server.
INLINE = {"LEASEHOLD_ISOLATION": "inline"}


def settings(folder: Path) -> dict[str, str]:
    """The environment of a bundle whose waits are short, and whose leases outlast a busy moment."""
    return {
        **{name: value for name, value in os.environ.items() if "LEASEHOLD" not in name},
        "LEASEHOLD_CATALOG": "tests.worlds.catalogs.bundle",
        "BUNDLE_TEST_FOLDER": str(folder),
        "PIPELINE_MIN_BACKOFF_S": "0.2",
        "PIPELINE_DISPATCH_GRACE_S": "1",
        "PIPELINE_LEASE_TTL_S": "3",
        "PIPELINE_OWN_TASKS": "all",  # faults are ordered for the tasks of each step
        "PYTHONPATH": str(ROOT),
    }


class Api:
    """The runs API, as a program calls it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def call(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}{path}", data, headers)  # noqa: S310 - our own server
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            return json.load(answer)

    def start(self, given: Any = None, **options: Any) -> str:
        body = {"pipeline": "notes", "input": given or {}, **options}
        return str(self.call("/runs", body)["runId"])

    def ended(self, run_id: str, seconds: float = 30) -> Any:
        """Wait until the run completed; return its manifest."""
        return until(lambda: self._completed(run_id), seconds)

    def story(self, run_id: str) -> list[str]:
        events = self.call(f"/runs/{run_id}/trace")["events"]
        return [f"{event['type']} {event.get('step') or ''}".strip() for event in events]

    def _completed(self, run_id: str) -> Any:
        run = self.call(f"/runs/{run_id}")
        return run if run["status"] == "COMPLETED" else None


def calls(folder: Path, run_id: str) -> list[list[str]]:
    """What handlers wrote down: step, attempt and process of each call."""
    lines = (folder / "calls").read_text().splitlines() if (folder / "calls").exists() else []
    return [line.split()[1:] for line in lines if line.startswith(run_id)]


@contextlib.contextmanager
def dev_server(
    folder: Path,
    environ: Mapping[str, str] = MappingProxyType({}),
    *,
    say: Callable[[str], object] = print,
    tasks: CloudTasksDouble | None = None,
    **options: Any,
) -> Iterator[DevServer]:
    """Serve a bundle from this test's process, so that faults can be ordered.

    Args:
        folder: where it keeps what it stores; its handlers find files of the test there.
        environ: settings beside those of all bundles.
        say: gets the lines that a person would read.
        tasks: in place of its own queue.
        options: those of `DevOptions`.
    """
    given = {"port": own_port(), "data": folder / "data"} | options
    server = DevServer(DevOptions(environ=settings(folder) | environ, **given), say, tasks=tasks)
    try:
        server.start()
        yield server
    finally:
        server.stop()
