"""What a run asks of store, artifacts and threads, counted: a step costs no more unnoticed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry
from leasehold.in_process import InProcessEngine
from tests.worlds.builders import environ_of


def plain(ctx: StepContext, given: Any) -> Any:
    return given


def stores_a_file(ctx: StepContext, given: Any) -> Any:
    ctx.artifacts.put("notes.txt", b"x" * 20_000)
    return given


def step(name: str) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"{__name__}:{name}",
        agent_timeout=timedelta(seconds=20),
        dispatch_deadline=timedelta(seconds=40),
        isolation="inline",
    )


STEPS = Registry("dispatch", [step("plain"), step("stores_a_file")])
PIPELINES = Registry(
    "pipelines",
    [
        PipelineEntry(name="plain", steps=("plain",)),
        PipelineEntry(name="files", steps=("stores_a_file",)),
    ],
)


class Counting:
    """A part of the engine; each call of it is counted."""

    def __init__(self, part: Any, counts: Counter[str]) -> None:
        self._part = part
        self._counts = counts

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._part, name)

        def counted(*given: Any, **named: Any) -> Any:
            self._counts[name] += 1
            return method(*given, **named)

        return counted if callable(method) else method


@pytest.fixture
def counts() -> Counter[str]:
    return Counter()


@pytest.fixture
def engine(tmp_path: Path, counts: Counter[str]) -> Iterator[InProcessEngine]:
    with InProcessEngine(STEPS, PIPELINES, environ=environ_of(tmp_path), workers=0) as engine:
        parts = engine.engine

        def errand(*given: Any) -> bool:
            counts["errand"] += 1
            return parts.threads.errand(*given)

        engine.engine = replace(
            parts,
            documents=Counting(parts.documents, counts),
            artifacts=Counting(parts.artifacts, counts),
            threads=replace(parts.threads, bounded=errand),
        )
        yield engine


def test_a_run_costs_a_commit_for_its_start_and_one_a_step(
    engine: InProcessEngine, counts: Counter[str]
) -> None:
    run = engine.run("plain", {"to": "ada"})

    assert (run.status, run.alarm_at) == ("COMPLETED", None)
    assert counts == {"transact": 2}


def test_only_a_run_that_stored_files_pays_for_their_archive(
    engine: InProcessEngine, counts: Counter[str]
) -> None:
    run = engine.run("files", {"to": "ada"})

    assert (run.status, engine.show(run.run_id).archive) == ("COMPLETED", None)
    counted = {"transact": 3, "put": 1, "compress": 1, "errand": 1, "get": 0}
    assert {**counts, "get": 0} == counted
