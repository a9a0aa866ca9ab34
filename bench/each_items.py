"""Items of a list beside plain steps: no-ops on SQLite, in one process and one run.

`python -m bench.each_items [ITEMS]` works on 10,000 items by default.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench.measuring import Figure, figure, report
from leasehold import Each, PipelineEntry, Registry, StepContext, StepDispatchEntry
from leasehold.in_process.engine import InProcessEngine

#: The steps of a plain run.
PLAIN: Final = ("first", "second", "third")
LANES: Final = 20
WORKERS: Final = 4


def no_op(_: StepContext, given: Any) -> Any:
    """Return what is given."""
    return given


def split(_: StepContext, given: int) -> list[int]:
    """Make the items."""
    return list(range(given))


def count(_: StepContext, given: list[int]) -> int:
    """Count the outputs."""
    return len(given)


def _step(name: str, handler: str) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"bench.each_items:{handler}",
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
        isolation="inline",
    )


STEPS: Final = Registry(
    "dispatch",
    [
        *(_step(name, "no_op") for name in (*PLAIN, "item")),
        _step("split", "split"),
        _step("count", "count"),
    ],
)
PIPELINES: Final = Registry(
    "pipelines",
    [
        PipelineEntry(name="plain", steps=PLAIN),
        PipelineEntry(name="each", steps=("split", Each("item", at_once=LANES), "count")),
    ],
)


def measured(folder: Path, items: int) -> list[Figure]:
    """Return items and plain steps a second, and how often the parent was dispatched."""
    environ = {
        "LEASEHOLD_STORE": f"sqlite:///{folder}/runs.db",
        "LEASEHOLD_ARTIFACTS": f"file://{folder}/artifacts",
    }
    with InProcessEngine(STEPS, PIPELINES, environ=environ, workers=WORKERS) as engine:
        engine.wait(engine.start("plain", 0).run_id)
        begun = time.perf_counter()
        runs = [engine.start("plain", number).run_id for number in range(-(-items // len(PLAIN)))]
        for run_id in runs:
            engine.wait(run_id)
        plain = len(runs) * len(PLAIN) / (time.perf_counter() - begun)
        begun = time.perf_counter()
        run = engine.wait(engine.start("each", items).run_id)
        took = time.perf_counter() - begun
        assert run.steps["count"].output == str(items), run.state
        writes = run.position.dispatch.generation
    return [
        figure("items on SQLite", "1/s", [(items / took, plain)], at_least=0.9),
        figure("dispatches of the parent", "dispatches", [(writes, 6.0)], at_most=1.0),
    ]


if __name__ == "__main__":
    with TemporaryDirectory() as place:
        report("each_items", measured(Path(place), int(sys.argv[1]) if sys.argv[1:] else 10_000))
