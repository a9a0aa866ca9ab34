"""Runs in a storm of wrong deploys: how many are given up, blocked for good, or paid for twice.

Servers on one store are replaced one after the other, by a release that lacks a package, has
another model or has renamed a step, and by the good one again; some drain, others are killed, and
further ones are killed in between. The floor of what is paid again is nothing: a call that a killed
server had under way is counted beside it.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.long_steps import exactly
from bench.measuring import Figure, figure, report
from tests.chaos.storm.deploys import MISTAKES, Storm, survive_deploys


def measure(storm: Storm) -> list[Figure]:
    """Return what came of a storm."""
    began = time.perf_counter()
    with TemporaryDirectory() as folder:
        after = survive_deploys(storm, Path(folder), print)
    seconds = time.perf_counter() - began
    name = f"of {storm.runs} runs on {storm.kind}, {storm.rounds} wrong deploys"
    completed = sum(run.status == "COMPLETED" for run in after.runs)
    blocked = sum(after.blocked.values())
    return [
        exactly(f"completed {name}", "runs", completed, storm.runs),
        exactly(f"given up {name}", "runs", len(after.given_up), 0),
        exactly(f"attempts that counted as failed {name}", "attempts", after.failures, 0),
        exactly(f"calls paid again without a kill {name}", "calls", len(after.unexplained), 0),
        figure(
            f"calls paid again, their server killed {name}; floor: kills",
            "calls",
            [(after.paid_again, max(1, after.kills))],
        ),
        figure(f"blocked {name}; floor: servers replaced", "runs", [(blocked, after.deploys)]),
        figure(f"seconds {name}; floor: runs", "s", [(seconds, storm.runs)]),
    ]


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=2 * len(MISTAKES))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--on", choices=("sqlite", "firestore"), action="append")
    given = parser.parse_args()
    rows = []
    for kind in given.on or ("sqlite", "firestore"):
        storm = Storm(kind, given.runs, given.rounds, seed=given.seed, patience_s=900.0)
        rows += measure(storm)
    report("rolling_deploys", rows)


if __name__ == "__main__":
    main()
