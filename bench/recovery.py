"""How long a step rests when its worker ends: killed, killed unnoticed, or asked to stop.

Real processes: `leasehold dev` serves a step that waits until it is told to end, and its workers
get real signals. Where many samples share one killed worker, their leases were renewed at times
spread over a heartbeat, because that is what decides how long a lease outlives its worker.

The floor beside each figure is the limit it must keep, so a ratio up to 1 holds. A lease is
released when the store says so (`step_terminated.at`); all clocks are this machine's.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from bench.crash_bundle import CLOCK, HEARTBEAT_S, PATIENCE_S, PIPELINES, STEPS, Place, bundle
from bench.measuring import Figure, figure, report
from leasehold.in_process import InProcessEngine

REST_S: Final = 1.5  # a worker that was struck is replaced by then, so that each sample has two
NOTICED_S: Final = 1.0
SWEPT_S: Final = 5.0
RELEASED_S: Final = 2.0
ENDED_S: Final = 8.0


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
    """Return the same where no one sees the connections drop: the lease has to run out.

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
    """Return the same for its own engine, whose runs no queue knows: the sweep finds them."""
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
    """Start runs on an engine of this process, and hold them until someone kills it."""
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


def _lasting(ttl: float) -> dict[str, str]:
    return {"PIPELINE_LEASE_TTL_S": str(ttl)}


def _beat(ttl: float) -> float:
    """Return how often such a lease is renewed."""
    return min(HEARTBEAT_S, ttl / 3)


def _since(begin: datetime, end: datetime) -> float:
    return (end - begin).total_seconds()


def _rows(name: str, seconds: Sequence[float], limit: float) -> list[Figure]:
    """Return p50 and p95 beside the limit."""
    p95 = quantiles(seconds, n=20, method="inclusive")[-1] if len(seconds) > 1 else seconds[0]
    parts = (("p50", median(seconds)), ("p95", p95))
    return [
        figure(
            f"{name}, {part} of {len(seconds)}",
            "ms",
            [(value * 1000, limit * 1000)],
            at_most=1.0,
        )
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
    with bundle() as place:
        kills = after_a_kill(place, samples)
        figures += _rows("SIGKILL to entered again", kills, NOTICED_S)
        from_end, from_signal = after_a_stop(place, samples)
        figures += _rows("SIGTERM: handler's end to release", from_end, RELEASED_S)
        figures += _rows("SIGTERM to release", from_signal, ENDED_S)
        if deaf:
            unheard = after_a_stop_unheard(place, deaf)
            figures += _rows("SIGTERM to release, unheard", unheard, ENDED_S)
    for ttl, rounds in ttls.items():
        with bundle(**_lasting(ttl)) as place:
            unnoticed, swept = [], []
            for number in range(rounds):
                unnoticed += after_an_unnoticed_kill(place, together, ttl)
                # what was just swept ended with a tick; the next kill is to fall between two
                threading.Event().wait(SWEPT_S * number / rounds)
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
