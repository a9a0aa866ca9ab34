"""Steps that come to every end a client can meet."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from leasehold import (
    GateContext,
    GateEntry,
    GatePolicyFailure,
    PermanentError,
    PipelineEntry,
    Registry,
    StepContext,
    StepDispatchEntry,
)


class Question(BaseModel):
    """As a program gives it: its field has another name in JSON."""

    model_config = ConfigDict(validate_by_name=True)

    text: str = Field(alias="theText")


class Answer(BaseModel):
    """What comes of it."""

    text: str
    words: int


def ask(ctx: StepContext, given: Question) -> Answer:
    """Answer, and keep the answer in a file, too."""
    ctx.artifacts.put("notes/answer.txt", given.text.upper().encode())
    return Answer(text=given.text.upper(), words=len(given.text.split()))


def refuse(ctx: StepContext, given: Any) -> Any:
    """Fail for good."""
    raise PermanentError("the folder is gone", code="folder_missing")


def look_up(ctx: StepContext, given: Any) -> Any:
    """Have recorded results, and fail for good: their results stay."""
    ctx.once("small", _looked_up, given["word"])
    ctx.once("large", _looked_up, "x" * 100_000, keep=True)
    raise PermanentError("the folder is gone", code="folder_missing")


def _looked_up(word: str) -> dict[str, str]:
    return {"word": word}


def check(ctx: GateContext, output: Answer) -> None:
    """Refuse what has no words."""
    if not output.words:
        raise GatePolicyFailure("words", "It has no words.", "Ask for more.")


def _entry(name: str, gates: tuple[str, ...] = ()) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"tests.worlds.catalogs.client:{name}",
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
        gates=gates,
    )


STEPS = Registry("dispatch", [_entry("ask", ("words",)), _entry("refuse"), _entry("look_up")])
PIPELINES = Registry(
    "pipelines",
    [
        PipelineEntry(name="answers", steps=("ask",)),
        PipelineEntry(name="refuses", steps=("refuse",)),
        PipelineEntry(name="looks_up", steps=("look_up",)),
    ],
)
GATES = Registry("gates", [GateEntry(name="words", check="tests.worlds.catalogs.client:check")])
