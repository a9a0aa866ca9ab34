"""What it costs to measure both phases of an attempt: CPU of a no-op step, with no exporter.

One engine runs steps with and without the measurement, turn by turn in one process. Without it no
moment is taken, and nothing of the phases is computed, stored or read.
"""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from unittest.mock import patch

from bench.durable_steps import PIPELINES, STEPS, STEPS_A_RUN
from bench.measuring import Figure, report
from leasehold.attempt.phases import PhaseClock
from leasehold.domain.change import Draft
from leasehold.in_process import InProcessEngine

TARGET_US: Final = 20.0
_UNKNOWN: Final = dict.fromkeys(
    ("bootstrap_seconds", "execution_seconds", "cold_start", "first_tool", "tail_probe")
)


def measure(rounds: int, runs: int) -> list[Figure]:
    """Return the cost of a step: the smallest time with the measurement, less that without.

    The smallest of the rounds, because whatever else the machine does only adds to one.
    """
    measured, unmeasured = [], []
    with TemporaryDirectory() as folder, _engine(Path(folder)) as engine:
        _cpu_us(engine, runs)  # warm
        for _ in range(rounds):
            measured.append(_cpu_us(engine, runs))
            with ExitStack() as patches:
                for name in ("note_entered", "note_returned", "so_far"):
                    patches.enter_context(patch.object(PhaseClock, name, _nothing))
                patches.enter_context(patch.object(Draft, "_times", lambda _: dict(_UNKNOWN)))
                unmeasured.append(_cpu_us(engine, runs))
    cost, floor = min(measured) - min(unmeasured), min(unmeasured)
    return [
        Figure(
            name="both phases of an attempt",
            value=round(cost, 1),
            unit="us of CPU a step",
            floor=round(floor, 1),
            ratio=round((floor + cost) / floor, 3),
            target=f"value <= {TARGET_US:g}",
            holds=cost <= TARGET_US,
        )
    ]


def _engine(folder: Path) -> InProcessEngine:
    environ = {
        "LEASEHOLD_STORE": f"sqlite:///{folder / 'engine.db'}",
        "LEASEHOLD_ARTIFACTS": f"file://{folder / 'artifacts'}",
    }
    return InProcessEngine(STEPS, PIPELINES, environ=environ, workers=0)


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    """Stand in for a moment that is not taken."""


def _cpu_us(engine: InProcessEngine, runs: int) -> float:
    began = time.thread_time()
    for number in range(runs):
        engine.run("no-op", {"number": number})
    return (time.thread_time() - began) / (runs * STEPS_A_RUN) * 1e6


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--runs", type=int, default=40, help="of three steps, a turn")
    args = parser.parse_args()
    report("phase_cost", measure(args.rounds, args.runs))
