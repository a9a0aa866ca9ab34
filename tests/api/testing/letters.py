"""A small pipeline as a user has one: it counts words, keeps checkpoints, and has a gate."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial

from pydantic import BaseModel

from leasehold import (
    AgentClientError,
    GateContext,
    GateEntry,
    GatePolicyFailure,
    PipelineEntry,
    Registry,
    StepContext,
    StepDispatchEntry,
)

#: How often each step did the word, by run: what a crash makes it do again.
DONE: Counter[tuple[str, str]] = Counter()


class Text(BaseModel):
    words: list[str]


class Draft(BaseModel):
    lines: list[str]


class Sent(BaseModel):
    size: int


def write(ctx: StepContext, given: Text) -> Draft:
    """Do one word after the other; what is kept is not done again."""
    lines: list[str] = list(ctx.resume.partial_results) if ctx.resume else []
    for word in given.words[len(lines) :]:
        if ctx.shutdown_requested:
            raise InterruptedError("asked to stop")
        DONE[ctx.run_id, word] += 1
        lines.append(word.upper())
        ctx.checkpoint(len(lines), lines, "writing")
    return Draft(lines=lines)


async def write_later(ctx: StepContext, given: Text) -> Draft:
    lines: list[str] = list(ctx.resume.partial_results) if ctx.resume else []
    for word in given.words[len(lines) :]:
        DONE[ctx.run_id, word] += 1
        lines.append(word.upper())
        await ctx.acheckpoint(len(lines), lines)
    await ctx.await_or_shutdown(60)
    return Draft(lines=lines)


def send(ctx: StepContext, given: Draft) -> Sent:
    DONE[ctx.run_id, "send"] += 1
    ctx.artifacts.put("letter.txt", "\n".join(given.lines).encode())
    return Sent(size=sum(map(len, given.lines)))


def send_slowly(ctx: StepContext, given: Draft) -> Sent:
    """Take longer than a lease; the keeper that renews it allows that."""
    DONE[ctx.run_id, "send"] += 1
    ctx.wait_or_shutdown(100)
    return Sent(size=len(given.lines))


def write_in_a_thread(ctx: StepContext, given: Text) -> Draft:
    """Keep checkpoints from its own thread, and catch whatever that meets."""
    if ctx.resume is None:
        keep = partial(ctx.checkpoint, 1, given.words)
        thread = threading.Thread(target=_caught, args=(keep,))
        thread.start()
        thread.join()
        _caught(keep)
        _caught(partial(ctx.artifacts.put, "late.txt", b"late"))
    return Draft(lines=[f"attempt {ctx.attempt}"])


def _caught(call: Callable[[], object]) -> None:
    with contextlib.suppress(BaseException):
        call()


def busy(ctx: StepContext, given: Text) -> Draft:
    if ctx.attempt < 3:
        raise AgentClientError("busy")
    return Draft(lines=given.words)


def has_lines(ctx: GateContext, output: Draft) -> None:
    if not output.lines:
        raise GatePolicyFailure("has_lines", f"no lines of {ctx.given}", "Write some.")


def _entry(name: str, **fields: object) -> StepDispatchEntry:
    limits = {"agent_timeout": timedelta(minutes=10), "dispatch_deadline": timedelta(minutes=15)}
    handler = f"tests.api.testing.letters:{name}"
    return StepDispatchEntry(step_type=name, **({"handler": handler} | limits | fields))  # type: ignore[arg-type]


GATES = Registry("gates", [GateEntry(name="lines", check="tests.api.testing.letters:has_lines")])
STEPS = Registry(
    "dispatch",
    [
        _entry("write", gates=("lines",)),
        _entry("write_later"),
        _entry("send"),
        _entry("send_slowly"),
        _entry("busy"),
        _entry("write_in_a_thread"),
    ],
)
PIPELINES = Registry(
    "pipelines",
    [
        PipelineEntry(name="letters", steps=("write", "send")),
        PipelineEntry(name="later", steps=("write_later", "send")),
        PipelineEntry(name="slow", steps=("write", "send_slowly")),
        PipelineEntry(name="threads", steps=("write_in_a_thread",)),
        PipelineEntry(name="busy", steps=("busy", "send")),
    ],
)
