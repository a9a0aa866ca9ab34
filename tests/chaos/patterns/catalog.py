"""Pipelines with every pattern, whose handlers write down what they do as they do it.

A worker is killed at any moment, so a note is one line that is appended at once. Each attempt has a
token, and what it makes has the same: a later step can tell which attempt made what it is given.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pydantic import BaseModel

from leasehold import (
    Child,
    Each,
    Limit,
    Outcomes,
    Parallel,
    PermanentError,
    PipelineEntry,
    Registry,
    ScheduleEntry,
    Step,
    StepContext,
    StepDispatchEntry,
    StepResult,
    Wait,
)

#: The file of the notes.
NOTES: Final = "STORM_NOTES"
WORK_S: Final = 0.04

AT_ONCE: Final = 3
PER_CALL: Final = 2
PER_MINUTE: Final = 24
#: Every third item of a list of which some may fail does.
FAILS: Final = 3
#: A cron has minutes, and a test has seconds.
TICK: Final = timedelta(seconds=1)

Notes = dict[str, Any]


class Approval(BaseModel):
    """The value of a signal."""

    word: str


class Made(BaseModel):
    """What an attempt made.

    Args:
        key: of the order that it is made for.
        number: of the item; -1: of none.
        token: no other attempt has it.
    """

    key: str
    number: int = -1
    token: str = ""


class Order(BaseModel):
    """The input of a run."""

    key: str
    items: int = 0
    model: str


@contextmanager
def noted(ctx: StepContext, given: Any, what: str = "", **fields: Any) -> Iterator[str]:
    """Note that a handler begins with what it is given, and that it ends; give its token."""
    token = secrets.token_hex(6)
    beside = {"run": ctx.run_id, "step": ctx.step, "attempt": ctx.attempt, "what": what, **fields}
    note(event="begin", token=token, given=plain(given), **beside)
    try:
        yield token
    finally:  # a handler ends as well where a limit has no room
        note(event="end", token=token, **beside)


def note(**fields: Any) -> None:
    """Append a line at once: what a kill leaves is whole lines."""
    line = json.dumps({"at": time.monotonic(), "pid": os.getpid(), **fields}) + "\n"
    file = os.open(os.environ[NOTES], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
    os.close(file)


def plain(value: Any) -> Any:
    """Return models as JSON values."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return [plain(one) for one in value] if isinstance(value, list) else value


def take(ctx: StepContext, given: Order) -> Order:
    """Hand on what is ordered."""
    with noted(ctx, given):
        return given


def split(ctx: StepContext, given: Any) -> list[Made]:
    """Make the items of an order; the step before it may be a wait."""
    with noted(ctx, given) as token:
        order = Order.model_validate(ctx.output_of("take"))
        return [Made(key=order.key, number=n, token=token) for n in range(order.items)]


def make(ctx: StepContext, given: Made) -> Made:
    """Work on an item."""
    with noted(ctx, given) as token:
        time.sleep(WORK_S)
        return Made(key=given.key, number=given.number, token=token)


def attempt(ctx: StepContext, given: Made) -> Made:
    """Work on an item; some of them fail for good."""
    with noted(ctx, given) as token:
        if given.number % FAILS == 1:
            raise PermanentError("it cannot be made", code="never")
        time.sleep(WORK_S)
        return Made(key=given.key, number=given.number, token=token)


def make_batch(ctx: StepContext, given: list[Made]) -> list[Made]:
    """Work on some items at once."""
    with noted(ctx, given) as token:
        time.sleep(WORK_S)
        return [
            Made(key=one.key, number=one.number, token=f"{token}-{n}")
            for n, one in enumerate(given)
        ]


def join(ctx: StepContext, given: list[Made]) -> Made:
    """Take all items."""
    with noted(ctx, given) as token:
        return Made(key=ctx.output_of("take")["key"], token=token)


def gather(ctx: StepContext, given: Outcomes[Made]) -> Made:
    """Take the items that there are."""
    failed = [one.index for one in given.failed]
    with noted(ctx, list(given.ok), failed=failed) as token:
        return Made(key=ctx.output_of("take")["key"], token=token)


def pack(ctx: StepContext, given: Made) -> Made:
    """Do one of two things at once."""
    with noted(ctx, given) as token:
        time.sleep(WORK_S)
        return Made(key=given.key, token=token)


def bill(ctx: StepContext, given: Made) -> Made:
    """Do the other one."""
    with noted(ctx, given) as token:
        return Made(key=given.key, token=token)


class Both(BaseModel):
    """What the two make."""

    pack: Made
    bill: Made


def pair(ctx: StepContext, given: Both) -> Order:
    """Take both."""
    with noted(ctx, given):
        return Order(key=given.pack.key, model="small")


def ship(ctx: StepContext, given: Order) -> Made:
    """Do what a child does."""
    with noted(ctx, given) as token:
        return Made(key=given.key, token=token)


def close(ctx: StepContext, given: Made) -> Made:
    """End a run."""
    with noted(ctx, given) as token:
        return Made(key=given.key, token=token)


def ask(ctx: StepContext, given: Order) -> Order:
    """Pay once for a question, and wait for a reply to it."""
    ctx.once("question", note, event="paid", run=ctx.run_id, step=ctx.step)
    reply = ctx.wait_for("reply", Approval, timeout=timedelta(hours=1))
    with noted(ctx, reply):
        return given


def call(ctx: StepContext, given: Order) -> Order:
    """Call a model: so many at once, and fewer in one part of the work."""
    with noted(ctx, given, "call"):
        time.sleep(WORK_S)
        with ctx.limit("line"), noted(ctx, given, "line"):
            time.sleep(WORK_S)
        return given


def rated(ctx: StepContext, given: Order) -> Order:
    """Do what may be begun so often a minute."""
    with noted(ctx, given, "rated"):
        return given


def triage(ctx: StepContext, given: Order) -> StepResult[Order]:
    """Leave out a step, for every order but those with items."""
    with noted(ctx, given):
        return StepResult(given, skip_to=None if given.items else "publish")


def shorten(ctx: StepContext, given: Order) -> Order:
    """Do what most orders skip."""
    with noted(ctx, given):
        return given


def publish(ctx: StepContext, given: Order) -> Order:
    """Do what no order skips."""
    with noted(ctx, given):
        return given


def tick(ctx: StepContext, given: Order) -> Order:
    """Do what the schedule starts."""
    with noted(ctx, given):
        return given


def remind(ctx: StepContext, given: Approval | None) -> bool:
    """Say whether the signal came in time."""
    with noted(ctx, given):
        return given is not None


class EverySomeSeconds(ScheduleEntry):
    """A schedule whose times are as close together as a test needs them."""

    __slots__ = ()

    def after(self, at: datetime) -> Iterator[datetime]:
        """Yield its times after a moment."""
        step = TICK.total_seconds()
        number = at.timestamp() // step
        while True:
            number += 1
            yield datetime.fromtimestamp(number * step, UTC)


def _step(handler: Any, **fields: Any) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=handler.__name__.replace("_", "-"),
        handler=f"{__name__}:{handler.__name__}",
        agent_timeout=timedelta(seconds=60),
        dispatch_deadline=timedelta(seconds=120),
        isolation="inline",
        heartbeat_interval=timedelta(seconds=1),
        **fields,
    )


_PLAIN: Final = (
    *(take, split, make, attempt, make_batch, join, gather, pack, bill, pair, ship, close, ask),
    *(triage, shorten, publish, tick, remind),
)
STEPS: Final = Registry(
    "dispatch",
    [
        *(_step(handler) for handler in _PLAIN),
        _step(
            call,
            limits=(
                Limit("model:{given.model}", at_once=AT_ONCE),
                Limit("line", at_once=PER_CALL, per_call=True),
            ),
        ),
        _step(rated, limits=(Limit("provider", per_minute=PER_MINUTE),)),
    ],
)
PIPELINES: Final = Registry(
    "pipelines",
    [
        PipelineEntry(
            name="orders",
            steps=(
                "take",
                Wait("approval", model=Approval, timeout=timedelta(hours=1)),
                "split",
                Each("make", at_once=3),
                "join",
                Parallel("pack", "bill", name="both"),
                "pair",
                Child("shipping"),
                "close",
            ),
        ),
        PipelineEntry(name="shipping", steps=("ship",)),
        PipelineEntry(
            name="tolerant",
            steps=("take", "split", Each("attempt", at_once=2, tolerate=0.5), "gather"),
        ),
        PipelineEntry(
            name="batches", steps=("take", "split", Each("make-batch", at_once=2, batch=3), "join")
        ),
        PipelineEntry(name="asking", steps=("ask", Step("ask", name="ask-again"), "publish")),
        PipelineEntry(name="calls", steps=("call",)),
        PipelineEntry(name="rates", steps=("rated",)),
        PipelineEntry(
            name="news", steps=(Step("triage", skips_to=("publish",)), "shorten", "publish")
        ),
        PipelineEntry(
            name="late",
            steps=(
                "take",
                Wait(
                    "approval", model=Approval, timeout=timedelta(seconds=1), otherwise="continue"
                ),
                "remind",
            ),
        ),
        PipelineEntry(name="ticks", steps=("tick",)),
    ],
)
SCHEDULES: Final = Registry(
    "schedules",
    [
        EverySomeSeconds(
            "often",
            pipeline="ticks",
            cron="* * * * *",
            input={"key": "tick", "model": "small"},
            overlap="allow",
        )
    ],
)
