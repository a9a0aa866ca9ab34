"""How long a step rests when its worker ends: killed, killed unnoticed, or asked to stop.

Real processes: `leasehold dev` serves a step that waits until it is told to end, and its workers
get real signals. Where many samples share one killed worker, their leases were renewed at times
spread over a heartbeat, because that is what decides how long a lease outlives its worker.

The floor beside each figure is the limit it must keep, so a ratio up to 1 holds.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

from bench.measuring import Figure, figure, report
from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry
from leasehold.adapters.clock import SystemClock
from leasehold.console.sources import ServerSource, patiently
from leasehold.devserver.children import free_port
from leasehold.devserver.server import DevOptions, DevServer
from leasehold.domain.manifest import Manifest
from leasehold.domain.trace import TraceType
from leasehold.in_process import InProcessEngine
from leasehold.services.start_run import StartRequest

LOOK_S: Final = 0.005
PATIENCE_S: Final = 120.0
REST_S: Final = 1.5  # a worker that was struck is replaced by then, so that each sample has two
HEARTBEAT_S: Final = 10.0
NOTICED_S: Final = 1.0
SWEPT_S: Final = 5.0
RELEASED_S: Final = 2.0
ENDED_S: Final = 8.0

CLOCK: Final = SystemClock()
T = TypeVar("T")


def hold(ctx: StepContext, given: dict[str, Any]) -> Any:
    """Wait until the file of the run is there; a handler that is deaf does not hear a stop."""
    folder = Path(given["folder"])
    _note(folder, ctx, "entered")
    while not (folder / f"{ctx.run_id}.go").exists():
        if given["deaf"]:
            threading.Event().wait(LOOK_S)
        elif ctx.wait_or_shutdown(LOOK_S):
            _note(folder, ctx, "stopped")
            raise InterruptedError("asked to stop")
    return {}


def _note(folder: Path, ctx: StepContext, what: str) -> None:
    """Write the time down, whole or not at all: somebody waits for the file."""
    note = folder / f"{ctx.run_id}.{ctx.attempt}.{what}"
    half = note.with_suffix(".half")
    half.write_text(CLOCK.now().isoformat())
    half.rename(note)


STEPS: Final = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type="hold",
            handler="bench.recovery:hold",
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
    def source(self) -> ServerSource:
        """The runs API."""
        return ServerSource(self.server.url)

    def begin(self, *, deaf: bool = False) -> str:
        """Start a run and wait until its handler is entered."""
        given = {"folder": str(self.folder), "deaf": deaf}
        run_id = self.source.start(StartRequest("hold", given))[1].run_id
        self.noted(run_id, 1, "entered")
        return run_id

    def strike(self, number: signal.Signals, run_ids: Sequence[str]) -> datetime:
        """Send a signal to the workers of these runs; return when."""
        pids = {_pid_of(self.source.get(run_id)) for run_id in run_ids}
        at = CLOCK.now()
        for pid in pids:
            os.kill(pid, number)
        return at

    def noted(self, run_id: str, attempt: int, what: str) -> datetime:
        """Wait for what a handler writes down; return when it was."""
        note = self.folder / f"{run_id}.{attempt}.{what}"
        return _until(lambda: datetime.fromisoformat(note.read_text()) if note.exists() else None)

    def terminated(self, run_id: str, reason: str) -> datetime:
        """Wait for the end of the first attempt; return when the store says that was."""
        trace = patiently(lambda: self.source.trace(run_id))
        found = _until(lambda: [it for it in trace() if it.type is TraceType.STEP_TERMINATED])
        assert found[0].reason == reason, found[0]
        return found[0].at

    def finish(self, run_ids: Sequence[str]) -> None:
        """Let the handlers end, and wait for the ends of the runs."""
        for run_id in run_ids:
            (self.folder / f"{run_id}.go").touch()
        for run_id in run_ids:
            self._wait_for(run_id)

    def _wait_for(self, run_id: str) -> None:
        look = patiently(lambda: self.source.get(run_id))
        _until(lambda: look().completed_at)


def after_a_kill(place: Place, count: int) -> list[float]:
    """Return the seconds from SIGKILL to the handler's next entry, one worker at a time."""
    seconds = []
    for _ in range(count):
        run_id = place.begin()
        at = place.strike(signal.SIGKILL, [run_id])
        seconds.append(_since(at, place.noted(run_id, 2, "entered")))
        place.finish([run_id])
        threading.Event().wait(REST_S)
    return seconds


def after_an_unnoticed_kill(place: Place, count: int, ttl: float) -> list[float]:
    """Return the same where nobody sees the connections drop: the lease has to run out.

    The queue delivers again at once, is told that the lease is held, and comes at its end.
    """
    place.server.tasks.on_dropped(lambda _: None)
    run_ids = []
    for _ in range(count):
        run_ids.append(place.begin())
        threading.Event().wait(_beat(ttl) / count)
    at = place.strike(signal.SIGKILL, run_ids)
    return _entered_again(place, run_ids, at)


def after_the_kill_of_an_engine(place: Place, count: int, ttl: float) -> list[float]:
    """Return the same for an engine of its own, whose runs no queue knows: the sweep finds them."""
    words = [sys.executable, "-m", "bench.recovery", "--engine", str(place.folder)]
    words += ["--samples", str(count)]
    environ = place.environ | _lasting(ttl) | {"BENCH_APART_S": str(_beat(ttl) / count)}
    with subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, text=True) as engine:  # noqa: S603 - this program
        assert engine.stdout is not None
        run_ids = [engine.stdout.readline().strip() for _ in range(count)]
        place.noted(run_ids[-1], 1, "entered")
        at = CLOCK.now()
        engine.kill()
    return _entered_again(place, run_ids, at)


def _entered_again(place: Place, run_ids: Sequence[str], at: datetime) -> list[float]:
    seconds = [_since(at, place.noted(run_id, 2, "entered")) for run_id in run_ids]
    place.finish(run_ids)
    return seconds


def serve_an_engine(folder: Path, count: int) -> None:
    """Start runs on an engine of this process, and hold them until somebody kills it."""
    with InProcessEngine(STEPS, PIPELINES, workers=count) as engine:
        for _ in range(count):
            run = engine.start("hold", {"folder": str(folder), "deaf": False})
            print(run.run_id, flush=True)
            threading.Event().wait(float(os.environ["BENCH_APART_S"]))
        threading.Event().wait(PATIENCE_S)


def after_a_stop(place: Place, count: int) -> tuple[list[float], list[float]]:
    """Return the seconds to the release, from the handler's end and from SIGTERM."""
    from_end, from_signal = [], []
    for _ in range(count):
        run_id = place.begin()
        at = place.strike(signal.SIGTERM, [run_id])
        released = place.terminated(run_id, "instance_shutdown")
        from_end.append(_since(place.noted(run_id, 1, "stopped"), released))
        from_signal.append(_since(at, released))
        place.finish([run_id])
        threading.Event().wait(REST_S)
    return from_end, from_signal


def after_a_stop_unheard(place: Place, count: int) -> list[float]:
    """Return the seconds from SIGTERM to the release of leases whose handlers do not listen."""
    run_ids = [place.begin(deaf=True) for _ in range(count)]
    at = place.strike(signal.SIGTERM, run_ids)
    seconds = [_since(at, place.terminated(run_id, "instance_shutdown")) for run_id in run_ids]
    place.finish(run_ids)
    return seconds


@contextmanager
def _bundle(**settings: str) -> Iterator[Place]:
    with TemporaryDirectory() as name:
        data = Path(name) / "data"
        environ = os.environ | settings | {"LEASEHOLD_CATALOG": "bench.recovery"}
        environ["LEASEHOLD_STORE"] = f"sqlite:///{data / 'leasehold.db'}"
        environ["LEASEHOLD_ARTIFACTS"] = f"file://{data / 'artifacts'}"
        options = DevOptions(port=free_port(), data=data, environ=environ)
        server = DevServer(options, lambda _: None)
        try:
            server.start()
            yield Place(server, Path(name), environ)
        finally:
            server.stop()


def _lasting(ttl: float) -> dict[str, str]:
    return {"PIPELINE_LEASE_TTL_S": str(ttl)}


def _beat(ttl: float) -> float:
    """Return how often such a lease is renewed."""
    return min(HEARTBEAT_S, ttl / 3)


def _pid_of(run: Manifest) -> int:
    assert run.lease is not None
    return int(run.lease.holder.rpartition("/")[2].partition("@")[0])


def _since(begin: datetime, end: datetime) -> float:
    return (end - begin).total_seconds()


def _until(look: Callable[[], T | None]) -> T:
    """Look again and again until there is something."""
    give_up = time.monotonic() + PATIENCE_S
    while not (found := look()):
        assert time.monotonic() < give_up, "it did not come"
        time.sleep(LOOK_S)
    return found


def _rows(name: str, seconds: Sequence[float], limit: float) -> list[Figure]:
    """Return p50 and p95 beside the limit."""
    p95 = quantiles(seconds, n=20, method="inclusive")[-1] if len(seconds) > 1 else seconds[0]
    parts = (("p50", median(seconds)), ("p95", p95))
    return [
        figure(f"{name}, {part} of {len(seconds)}", "s", [(value, limit)], at_most=1.0)
        for part, value in parts
    ]


def measure(samples: int, together: int, ttls: Mapping[float, int], deaf: int) -> list[Figure]:
    """Return the figures.

    Args:
        samples: workers that are struck one by one.
        together: runs of a worker that is killed unnoticed.
        ttls: seconds that leases last then, and how many such workers are killed.
        deaf: runs whose handlers do not listen; 0: that is left out.
    """
    figures = []
    with _bundle() as place:
        kills = after_a_kill(place, samples)
        figures += _rows("SIGKILL to entered again", kills, NOTICED_S)
        from_end, from_signal = after_a_stop(place, samples)
        figures += _rows("SIGTERM: handler's end to release", from_end, RELEASED_S)
        figures += _rows("SIGTERM to release", from_signal, ENDED_S)
        if deaf:
            unheard = after_a_stop_unheard(place, deaf)
            figures += _rows("SIGTERM to release, unheard", unheard, ENDED_S)
    for ttl, rounds in ttls.items():
        with _bundle(**_lasting(ttl)) as place:
            unnoticed, swept = [], []
            for _ in range(rounds):
                unnoticed += after_an_unnoticed_kill(place, together, ttl)
                swept += after_the_kill_of_an_engine(place, together, ttl)
        limit = ttl + SWEPT_S
        figures += _rows(f"SIGKILL unnoticed, lease of {ttl:g} s", unnoticed, limit)
        figures += _rows(f"SIGKILL of an engine, lease of {ttl:g} s", swept, limit)
    return figures


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--engine", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.engine is not None:
        serve_an_engine(given.engine, given.samples)
        return
    report("recovery", measure(given.samples, together=8, ttls={2.0: 3, 30.0: 1}, deaf=8))


if __name__ == "__main__":
    main()
