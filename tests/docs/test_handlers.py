"""The code on the page about handlers runs unchanged, from top to bottom."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from leasehold import StepContext, StepDispatchEntry
from leasehold.testing import step_context
from tests.worlds.shell import Shell

PAGE = (Path(__file__).parents[2] / "docs/handlers.md").read_text()


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    """The folder with the file that the page is."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "steps.py").write_text("\n\n".join(blocks))
    return tmp_path


def test_the_pipeline_of_the_page_runs(steps: Path) -> None:
    (line,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    setting, program, *words = shlex.split(line)
    name, _, value = setting.partition("=")

    done = subprocess.run(
        [sys.executable, "-m", program, *words, "--json"],
        cwd=steps,
        env=os.environ | {name: value},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    run = json.loads(done.stdout)
    (file,) = steps.rglob("digest.txt")

    assert run["status"] == "COMPLETED"
    assert run["output"] == {"file": "report/digest.txt", "lines": 2}
    assert "WHAT IS KNOWN ABOUT LEASES." in file.read_text()
    for line in (
        "step=collect attempt=1 leasehold.step: 2 topics",
        "step=report attempt=1 digest: ",
    ):
        assert f"INFO run={run['runId']} {line}" in done.stderr


def test_the_entry_action_of_the_page_writes_what_its_handler_reads(steps: Path) -> None:
    shell = Shell(steps, {"LEASEHOLD_CATALOG": "steps"})

    run = shell.json("start", "count", "--input", '{"topics": ["a", "b"]}', "--in-process")

    assert run["output"] == {"topics": 2, "attempt": 1}
    assert [each["name"] for each in shell.json("files", run["runId"])["files"]] == ["limits.toml"]


def test_a_handler_of_the_page_that_runs_out_of_time_goes_on_from_its_checkpoint(
    steps: Path,
) -> None:
    """And the program that the next one starts ends with it."""
    topics = [f"topic {number}" for number in range(8)]
    leasehold = [sys.executable, "-m", "leasehold"]
    environ = os.environ | {"LEASEHOLD_CATALOG": "steps", "PIPELINE_CRAWL_TIMEOUT_MS": "1000"}

    def said(*words: str) -> Any:
        done = subprocess.run(
            [*leasehold, *words, "--json"],
            cwd=steps,
            env=environ,
            capture_output=True,
            text=True,
            timeout=90,
            check=True,
        )
        return json.loads(done.stdout)

    run = said("start", "look-up", "--input", json.dumps({"topics": topics}), "--in-process")
    events = said("trace", run["runId"])["events"]

    assert run["output"]["lines"][-1] == "KNOWS ABOUT TOPIC 7."
    assert len(run["output"]["lines"]) == 8
    ended = [event for event in events if event["type"] == "step_terminated"]
    assert {event["reason"] for event in ended} == {"agent_timeout_exceeded"}
    assert "look_up" in "".join(event.get("stacks", "") for event in ended)
    assert "checkpoint_resumed" in {event["type"] for event in events}
    (chosen,) = [event for event in events if "callsMade" in event]
    assert (chosen["step"], chosen["callsMade"], chosen["callsSpared"]) == ("choose", 8, 0)


def test_the_page_names_all_that_a_context_has_and_all_fields_of_a_step() -> None:
    public = [name for name in vars(StepContext) if not name.startswith("_")]
    fields = list(StepDispatchEntry.__dataclass_fields__)

    assert [name for name in public if name not in PAGE] == []
    assert [name for name in fields if f"`{name}`" not in PAGE] == []


@pytest.mark.parametrize(("waits_for_all", "recorded"), [(False, {}), (True, {"slow": 1})])
def test_a_gather_loses_the_calls_under_way_unless_it_waits_for_all(
    waits_for_all: bool, recorded: dict[str, int]
) -> None:
    """As the page says of several calls at once."""

    async def busy() -> int:
        raise ConnectionError("busy")

    async def slow() -> int:
        await asyncio.sleep(0.05 if waits_for_all else 30)
        return 1

    async def handler(ctx: StepContext) -> None:
        calls = ctx.aonce("busy", busy), ctx.aonce("slow", slow)
        done = await asyncio.gather(*calls, return_exceptions=waits_for_all)
        raise next(one for one in done if isinstance(one, ConnectionError))

    with step_context() as ctx, pytest.raises(ConnectionError):
        asyncio.run(handler(ctx))

    assert ctx.recorded.calls == recorded


def test_the_module_of_a_handler_is_imported_by_the_command_and_by_what_attempts_come_from(
    tmp_path: Path,
) -> None:
    """As the page says: more than once, so an import does nothing else than define."""
    note = 'import os\nwith open("imports", "a") as file:\n    print(os.getpid(), file=file)\n'
    (tmp_path / "mine.py").write_text(f"{note}def one(ctx, given): ...\n")
    (tmp_path / "steps.py").write_text(
        """
from datetime import timedelta
from leasehold import PipelineEntry, Registry, StepDispatchEntry
LIMITS = {"agent_timeout": timedelta(minutes=1), "dispatch_deadline": timedelta(minutes=2)}
STEPS = Registry("dispatch", [StepDispatchEntry(step_type="one", handler="mine:one", **LIMITS)])
PIPELINES = Registry("pipelines", [PipelineEntry(name="one", steps=("one",))])
"""
    )
    start = [sys.executable, "-m", "leasehold", "start", "one", "--in-process"]

    process = subprocess.Popen(start, cwd=tmp_path, env=os.environ | {"LEASEHOLD_CATALOG": "steps"})
    assert process.wait(60) == 0

    pids = set(map(int, (tmp_path / "imports").read_text().split()))
    assert process.pid in pids
    assert len(pids) > 1
