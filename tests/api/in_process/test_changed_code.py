"""A program that works says once that the code on disk is another one than it read."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from leasehold import PipelineEntry, Registry, StepDispatchEntry
from leasehold.in_process import InProcessEngine
from leasehold.in_process.timer import CHANGED_HERE
from tests.worlds.builders import environ_of
from tests.worlds.waiting import until


def test_an_engine_says_once_that_files_changed_under_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    module = tmp_path / "handlers_that_change.py"
    module.write_text("def ask(ctx, given):\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    entry = StepDispatchEntry(
        step_type="ask",
        handler="handlers_that_change:ask",
        agent_timeout=timedelta(seconds=10),
        dispatch_deadline=timedelta(minutes=1),
    )
    steps = Registry("dispatch", [entry])
    pipelines = Registry("pipelines", [PipelineEntry(name="asks", steps=("ask",))])
    with InProcessEngine(steps, pipelines, environ=environ_of(tmp_path)) as engine:
        ran = engine.run("asks", {}).status
        before = caplog.text
        for moment in (1, 2):
            os.utime(module, (moment, moment))
            until(lambda: CHANGED_HERE in caplog.text)

    assert (ran, CHANGED_HERE in before) == ("COMPLETED", False)
    assert caplog.text.count(CHANGED_HERE) == 1
