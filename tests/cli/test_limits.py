"""What people see of an attempt that was ended at a limit: the line it hung on, wherever they look.

The attempt hangs in the engine of a test, where time is moved; they look at its store.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from leasehold import testing
from tests.worlds.shell import Shell

CATALOG = """
from datetime import timedelta
from leasehold import PipelineEntry, Registry, StepDispatchEntry

def crawl(ctx, given):
    ctx.progress(0.4, "page 4")
    ctx.wait_or_shutdown(65)  # a page that never answers

STEPS = Registry("dispatch", [StepDispatchEntry(
    step_type="crawl", handler="crawler:crawl", agent_timeout=timedelta(seconds=30),
    dispatch_deadline=timedelta(seconds=60), isolation="inline",
)])
PIPELINES = Registry("pipelines", [PipelineEntry(name="crawl", steps=("crawl",))])
"""
LINE = "ctx.wait_or_shutdown(65)  # a page that never answers"
WHERE = 'File "crawler.py", line 7, in crawl'


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    (tmp_path / "crawler.py").write_text(CATALOG)
    return Shell(
        tmp_path,
        {
            "LEASEHOLD_CATALOG": "crawler",
            "LEASEHOLD_STORE": f"sqlite:///{tmp_path}/leasehold.db",
            "LEASEHOLD_ARTIFACTS": f"file://{tmp_path}/artifacts",
        },
    )


@pytest.fixture
def run_id(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run that hung at its first attempt, and waits for the next one."""
    monkeypatch.chdir(shell.folder)
    monkeypatch.syspath_prepend(str(shell.folder))
    with testing.engine("crawler", shell.folder) as engine:
        run = engine.start("crawl", {})
        engine.run_until_idle()
    return run.run_id


def test_the_line_that_an_attempt_hung_on_is_shown_wherever_people_look(
    shell: Shell, run_id: str
) -> None:
    trace, show, why = (shell.run(name, run_id).stdout for name in ("trace", "show", "why"))

    for shown in (trace, show, why):
        assert WHERE in shown
        assert LINE in shown
    assert "dispatch_deadline_exceeded: Attempt 1 of step crawl was still running" in trace
    assert "attempt 1 of step crawl:" in trace
    assert "DispatchDeadlineError (dispatch_deadline_exceeded): Attempt 1 of step" in show
    assert "at crawler.py:7 (crawl)" in show
    assert "page 4" not in trace


def test_a_program_reads_the_same(shell: Shell, run_id: str) -> None:
    run, events = shell.json("show", run_id), shell.json("trace", run_id)["events"]

    (event,) = [event for event in events if event["type"] == "step_terminated"]
    assert (event["reason"], event["attempt"]) == ("dispatch_deadline_exceeded", 1)
    assert LINE in event["stacks"]
    assert run["error"]["traceback"] == event["stacks"]
    assert run["error"]["origin"] == "crawler.py:7 (crawl)"
    assert run["steps"]["crawl"]["progress"] == {"fraction": 0.4, "message": "page 4"}
    assert "step_error" not in {event["type"] for event in events}
