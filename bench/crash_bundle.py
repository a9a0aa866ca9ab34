"""A served bundle whose workers are killed, and a step that records what happens to it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from leasehold import Client, PipelineEntry, Registry, StepContext, StepDispatchEntry
from leasehold.adapters.clock import SystemClock
from leasehold.client.run_wait import retry_unreachable
from leasehold.devserver.server import DevOptions, DevServer
from leasehold.domain.manifest import Manifest
from leasehold.domain.trace import TraceType
from tests.worlds.ports import own_port
from tests.worlds.waiting import until

LOOK_S: Final = 0.005
PATIENCE_S: Final = 120.0
HEARTBEAT_S: Final = 10.0

CLOCK: Final = SystemClock()


def hold(ctx: StepContext, given: dict[str, Any]) -> Any:
    """Wait until the file of the run is there; a handler that is deaf does not hear a stop."""
    folder = Path(given["folder"])
    ctx.on_stop(lambda: _note(folder, ctx, "called"))
    _note(folder, ctx, "entered")
    while not (folder / f"{ctx.run_id}.go").exists():
        if given["deaf"]:
            threading.Event().wait(LOOK_S)
        elif ctx.wait_or_shutdown(LOOK_S):
            _note(folder, ctx, "stopped")
            raise InterruptedError("asked to stop")
    return {}


def _note(folder: Path, ctx: StepContext, what: str) -> None:
    """Write the time down, whole or not at all: someone waits for the file."""
    note = folder / f"{ctx.run_id}.{ctx.attempt}.{what}"
    half = note.with_name(f"{note.name}.half")  # two threads may write notes at once
    half.write_text(CLOCK.now().isoformat())
    half.rename(note)


STEPS: Final = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type="hold",
            handler="bench.crash_bundle:hold",
            agent_timeout=timedelta(minutes=5),
            dispatch_deadline=timedelta(minutes=10),
            heartbeat_interval=timedelta(seconds=HEARTBEAT_S),
        )
    ],
)
PIPELINES: Final = Registry("pipelines", [PipelineEntry(name="hold", steps=("hold",))])


@dataclass(frozen=True, slots=True)
class Place:
    """A served bundle, and the folder in which handlers note what happens to them."""

    server: DevServer
    folder: Path
    environ: dict[str, str]

    @property
    def client(self) -> Client:
        """The runs API."""
        return Client(self.server.url)

    def begin(self, *, deaf: bool = False) -> str:
        """Start a run and wait until its handler is entered."""
        given = {"folder": str(self.folder), "deaf": deaf}
        run_id = self.client.start("hold", given).run_id
        self.noted(run_id, 1, "entered")
        return run_id

    def strike(self, number: signal.Signals, run_ids: Sequence[str]) -> datetime:
        """Send a signal to the workers of these runs; return when."""
        pids = {_pid_of(self.client.get(run_id)) for run_id in run_ids}
        at = CLOCK.now()
        for pid in pids:
            os.kill(pid, number)
        return at

    def noted(self, run_id: str, attempt: int, what: str) -> datetime:
        """Wait for what a handler writes down; return when it was."""
        note = self.folder / f"{run_id}.{attempt}.{what}"
        until(note.exists, PATIENCE_S)
        return datetime.fromisoformat(note.read_text())

    def terminated(self, run_id: str, reason: str) -> datetime:
        """Wait for the end of the first attempt; return when the store says that was."""
        trace = retry_unreachable(lambda: self.client.trace(run_id))
        found = until(
            lambda: [it for it in trace() if it.type is TraceType.STEP_TERMINATED], PATIENCE_S
        )
        assert found[0].reason == reason, found[0]
        return found[0].at

    def finish(self, run_ids: Sequence[str]) -> None:
        """Let the handlers end, and wait for the ends of the runs."""
        for run_id in run_ids:
            (self.folder / f"{run_id}.go").touch()
        for run_id in run_ids:
            self._wait_for(run_id)

    def _wait_for(self, run_id: str) -> None:
        look = retry_unreachable(lambda: self.client.get(run_id))
        until(lambda: look().completed_at, PATIENCE_S)


@contextmanager
def bundle(**settings: str) -> Iterator[Place]:
    """Serve the step, with these settings."""
    with TemporaryDirectory() as name:
        data = Path(name) / "data"
        environ = os.environ | settings | {"LEASEHOLD_CATALOG": "bench.crash_bundle"}
        environ["LEASEHOLD_STORE"] = f"sqlite:///{data / 'leasehold.db'}"
        environ["LEASEHOLD_ARTIFACTS"] = f"file://{data / 'artifacts'}"
        options = DevOptions(port=own_port(), data=data, environ=environ)
        server = DevServer(options, lambda _: None)
        try:
            server.start()
            yield Place(server, Path(name), environ)
        finally:
            server.stop()


def _pid_of(run: Manifest) -> int:
    assert run.position.lease is not None
    return int(run.position.lease.holder.rpartition("/")[2].partition("@")[0])
