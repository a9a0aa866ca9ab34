"""A pipeline for pages: what it does is told in its input, and its texts are a stranger's."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from leasehold import (
    AgentClientError,
    CustomChannel,
    Each,
    GateContext,
    GateEntry,
    GatePolicyFailure,
    Limit,
    Outcomes,
    PermanentError,
    PipelineEntry,
    Registry,
    ScheduleEntry,
    StepContext,
    StepDispatchEntry,
    TrialPolicy,
    Wait,
)

#: A text that would run, or break out of an attribute, wherever it was not shown as a text.
MARKUP = (
    """<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>'"`"""
)
#: A reason that a person gives, with a word wider than any page; only what is seen is taken there.
REASON = f"{MARKUP} javascript:alert(1) {'W' * 300}"
#: The same of a program, with what would turn or hide what stands beside it.
HOSTILE = os.environ.get(
    "DASHBOARD_TEST_TEXT",
    f"{MARKUP}\u202e\u2066\u200b\x1b[31m\x9b javascript:alert(1) {'W' * 400}",
)
_FILE = "note '<b>\"&.txt" if "<" in HOSTILE else "draft.md"


def draft(ctx: StepContext, given: Any) -> Any:
    """Do as the input says: fail, hold, be killed at the first attempt, or go on."""
    folder, mode = Path(os.environ["BUNDLE_TEST_FOLDER"]), given.get("mode")
    ctx.mark_bootstrap_complete(f"search {HOSTILE}"[:100])
    ctx.progress(0.25, f"one of four {HOSTILE}")
    for _ in ctx.checkpointed(range(3), every=1, phase="pages"):
        pass
    ctx.artifacts.put(_FILE, HOSTILE.encode())
    if mode == "spend":
        for key in ("ask <b>", "ask again"):
            ctx.once(key, lambda: ctx.spend(tokens=9400, usd=1.5))
    if mode == "dead":
        raise PermanentError(f"no source {HOSTILE}", code="no_source")
    if mode == "retry" and ctx.attempt == 1:
        raise AgentClientError(f"busy {HOSTILE}", code="busy", retry_after=300)
    if mode == "kill" and ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while mode in ("hold", "kill") and not (folder / f"go-{ctx.run_id}").exists():
        if ctx.wait_or_shutdown(0.02):
            break
    return {**given, "text": HOSTILE}


def publish(_ctx: StepContext, given: Any) -> Any:
    return given


def improve(ctx: StepContext, _given: Any) -> Any:
    return {"trial": ctx.trial}


def judge(_ctx: StepContext, given: Any) -> Any:
    """Like the third trial best, and settle for none."""
    return {"score": -abs(given["trial"] - 3), "settled": False, "findings": [HOSTILE]}


class Approval(BaseModel):
    """What a person says."""

    approved: bool
    by: str = ""


def split(ctx: StepContext, _given: Any) -> list[dict[str, Any]]:
    return [{"n": n, "run": ctx.run_id, "text": HOSTILE} for n in range(4)]


def item(ctx: StepContext, given: dict[str, Any]) -> Any:
    """Wait until the run is let go; the first item is killed once, and the last one fails."""
    ctx.once(f"item {MARKUP}", lambda: None)
    if given["n"] == 0 and ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while not (Path(os.environ["BUNDLE_TEST_FOLDER"]) / f"go-{given['run']}").exists():
        if ctx.wait_or_shutdown(0.02):
            break
    if given["n"] == 3:
        raise PermanentError(f"no item {HOSTILE}", code="no_item")
    return given


def gather(_ctx: StepContext, given: Outcomes[Any]) -> Any:
    return {"ok": len(given.ok), "failed": [one.message for one in given.failed]}


def desk(message: Mapping[str, Any], _seconds: float) -> None:
    """Take an announcement, or refuse it while the file is there."""
    if (Path(os.environ["BUNDLE_TEST_FOLDER"]) / "desk-is-away").exists():
        raise PermanentError(f"nobody is at the desk {HOSTILE}")


def approval(_ctx: GateContext, output: Any) -> None:
    """Refuse what is to be looked at."""
    if output.get("mode") == "gate":
        raise GatePolicyFailure(
            check_id="approval",
            finding=f"A person is to look. {HOSTILE}",
            remediation="Approve it.",
        )


CHANNELS = Registry(
    "channels",
    [
        CustomChannel(
            name="desk",
            sender="tests.api.dashboard.catalog:desk",
            events=("run_blocked", "run_dead_lettered"),
        )
    ],
)
GATES = Registry(
    "gates", [GateEntry(name="approval", check="tests.api.dashboard.catalog:approval")]
)
STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type=step,
            handler=f"tests.api.dashboard.catalog:{'draft' if step == 'call' else step}",
            agent_timeout=timedelta(minutes=5),
            dispatch_deadline=timedelta(minutes=6),
            gates=gates,
            limits=(Limit("team:{given.team}", at_once=1, adaptive=True),)
            if step == "call"
            else (),
        )
        for step, gates in {
            "draft": ("approval",),
            "publish": (),
            "improve": (),
            "judge": (),
            "split": (),
            "item": (),
            "gather": (),
            "call": (),
        }.items()
    ],
)
PIPELINES = Registry(
    "pipelines",
    [
        PipelineEntry(name="letters", steps=("draft", "publish")),
        PipelineEntry(
            name="tries",
            steps=("improve", "judge"),
            trials=TrialPolicy(author="improve", reviewer="judge", max_trials=10),
        ),
        PipelineEntry(name="asked", steps=("publish", Wait("approval", model=Approval))),
        PipelineEntry(
            name="items", steps=("split", Each("item", at_once=2, tolerate=0.5), "gather")
        ),
        PipelineEntry(name="calls", steps=("call",)),
    ],
)
SCHEDULES = Registry(
    "schedules",
    [ScheduleEntry("nightly", pipeline="asked", cron="0 6 1 1 *", input={"text": HOSTILE})],
)
