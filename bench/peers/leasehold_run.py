"""One step on Leasehold, in this process, with SQLite: the run goes on where it was killed."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Final

from bench.peers.agent import Probe
from leasehold import PipelineEntry, Registry, StepDispatchEntry
from leasehold.in_process import InProcessEngine

_PATIENCE_S: Final = 600.0


def run_step(probe: Probe, folder: Path, handler: str) -> None:
    """Start a run of the step, or take up the one that is there, and wait for its end."""
    step = StepDispatchEntry(
        step_type="look",
        handler=handler,
        agent_timeout=timedelta(minutes=15),
        dispatch_deadline=timedelta(minutes=20),
    )
    note = folder / "run"
    settings = {
        "LEASEHOLD_STORE": f"sqlite:///{folder}/leasehold.db",
        "LEASEHOLD_ARTIFACTS": f"file://{folder}/artifacts",
        "LEASEHOLD_ISOLATION": "inline",  # as the others
    }
    with InProcessEngine(
        Registry("dispatch", [step]),
        Registry("pipelines", [PipelineEntry(name="look", steps=("look",))]),
        environ=settings,
        workers=1,
    ) as engine:
        run_id = note.read_text() if note.exists() else ""
        if run_id:
            engine.show(run_id)  # a process makes its models at the first run that it reads
        probe.begin()
        if run_id:
            engine.adopt(run_id)
        else:
            run_id = engine.start("look", {}).run_id
            note.write_text(run_id)
        ended = engine.wait(run_id, _PATIENCE_S)
    assert ended.status == "COMPLETED", ended.error
