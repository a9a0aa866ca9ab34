"""Handlers that work item by item, and the catalog that names them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from leasehold import (
    Child,
    Each,
    Outcomes,
    Parallel,
    PermanentError,
    PipelineEntry,
    Registry,
    StepContext,
    StepDispatchEntry,
    StepResult,
    Wait,
)

#: How often each item was worked on, by the run of a test; and which items fail there.
DONE: Counter[tuple[str, int]] = Counter()
FAILS: dict[str, set[int]] = {}
HELD: dict[str, threading.Event] = {}
#: What an item of a test costs, where that is not ten tokens.
COSTS: dict[tuple[str, int], int] = {}
_LOCK = threading.Lock()


class Asked(BaseModel):
    """How many items there are to be, and the name of the test."""

    name: str
    count: int
    size: int = 0


class Item(BaseModel):
    """One of them."""

    name: str
    n: int
    filler: str = ""


class Square(BaseModel):
    """The square of one."""

    n: int
    filler: str = ""


class Total(BaseModel):
    """The sum of all."""

    total: int
    count: int
    failed: list[int] = []


def split(_: StepContext, given: Asked) -> list[Item]:
    """Make the items."""
    return [Item(name=given.name, n=n, filler="x" * given.size) for n in range(given.count)]


def square(_: StepContext, given: Item) -> Square:
    """Square an item; those that are to fail do."""
    with _LOCK:
        DONE[given.name, given.n] += 1
    if held := HELD.get(given.name):
        held.wait(20)
    if given.n in FAILS.get(given.name, ()) or given.name.endswith(f"!{given.n}"):
        raise PermanentError(f"item {given.n} cannot be squared", code="odd_item")
    return Square(n=given.n**2, filler=given.filler)


def pay(ctx: StepContext, given: Item) -> Square:
    """Square an item, which costs tokens."""

    def charge() -> bool:
        ctx.spend(tokens=COSTS.get((given.name, given.n), 10))
        return True

    ctx.once("charge", charge)
    return square(ctx, given)


def note_square(_: StepContext, given: Item) -> Square:
    """Square an item, and note it in the file that is its name: processes are killed."""
    with Path(given.name).open("a") as file:
        file.write(f"{given.n}\n")
    time.sleep(0.005)
    return Square(n=given.n**2)


def square_all(_: StepContext, given: list[Item]) -> list[Square]:
    """Square a batch of items."""
    with _LOCK:
        DONE[given[0].name, len(given)] += 1
    if any(item.n in FAILS.get(item.name, ()) for item in given):
        raise PermanentError("a batch cannot be squared", code="odd_item")
    return [Square(n=item.n**2) for item in given]


def lose_one(_: StepContext, given: list[Item]) -> list[Square]:
    """Return an output too few."""
    return [Square(n=item.n) for item in given[1:]]


def skip_odd(_: StepContext, given: Item) -> StepResult[Square]:
    """Square an item; an odd one is to skip what is behind the list."""
    with _LOCK:
        DONE[given.name, given.n] += 1
    return StepResult(Square(n=given.n**2), skip_to="merge_outcomes" if given.n % 2 else None)


def skip_all(_: StepContext, given: Asked) -> StepResult[str]:
    """Skip what is behind the steps that run at once."""
    return StepResult(given.name, skip_to="join_any")


def merge(_: StepContext, given: list[Square]) -> Total:
    """Add the squares, in their order."""
    assert [square.n for square in given] == sorted(square.n for square in given)
    return Total(total=sum(square.n for square in given), count=len(given))


def merge_outcomes(_: StepContext, given: Outcomes[Square]) -> Total:
    """Add those squares that there are."""
    failed = [one.index for one in given.failed]
    return Total(total=sum(one.n for one in given.ok), count=len(given.ok), failed=failed)


def ask(_: StepContext, given: Asked) -> Asked:
    """Hand on what was asked for."""
    return given


def count_up(ctx: StepContext, given: Asked) -> int:
    """Say how many are asked for, which may cost tokens."""
    if cost := COSTS.get((given.name, given.count)):
        ctx.spend(tokens=cost)
    return given.count


def name_it(_: StepContext, given: Asked) -> str:
    """Say who asked."""
    if given.count in FAILS.get(given.name, ()):
        raise PermanentError("it has no name", code="nameless")
    return given.name


class Both(BaseModel):
    """The outputs of two steps that run at once."""

    count_up: int
    name_it: str


def join_both(_: StepContext, given: Both) -> str:
    """Put both into a line."""
    return f"{given.name_it} {given.count_up}"


def join_any(_: StepContext, given: dict[str, Any]) -> dict[str, Any]:
    """Hand on the outputs."""
    return given


def ask_again(_: StepContext, given: Both) -> Asked:
    """Ask for as much as two steps said at once."""
    return Asked(name=given.name_it, count=given.count_up)


def say_total(_: StepContext, given: Total) -> str:
    """Put a total into words."""
    return f"{given.count} make {given.total}"


def _step(name: str) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"{__name__}:{name}",
        agent_timeout=timedelta(seconds=30),
        dispatch_deadline=timedelta(seconds=60),
        isolation="inline",
        max_retries=0,
    )


STEPS = Registry(
    "dispatch",
    [
        _step(handler.__name__)
        for handler in (
            *(split, square, square_all, lose_one, merge, merge_outcomes, ask, count_up, name_it),
            *(join_both, say_total, note_square, ask_again, pay, skip_odd, skip_all, join_any),
        )
    ],
)

PIPELINES = Registry(
    "pipelines",
    [
        PipelineEntry(name="squares", steps=("split", Each("square", at_once=4), "merge")),
        PipelineEntry(
            name="most",
            steps=("split", Each("square", at_once=4, tolerate=0.25), "merge_outcomes"),
        ),
        PipelineEntry(
            name="batches", steps=("split", Each("square_all", at_once=2, batch=4), "merge")
        ),
        PipelineEntry(
            name="large-batches", steps=("split", Each("square_all", batch=1000), "merge")
        ),
        PipelineEntry(
            name="too-few", steps=("split", Each("lose_one", at_once=2, batch=4), "merge")
        ),
        PipelineEntry(
            name="skips",
            steps=("split", Each("skip_odd", at_once=2, tolerate=0.5), "merge_outcomes"),
        ),
        PipelineEntry(
            name="both-skip", steps=("ask", Parallel("count_up", "skip_all"), "join_any")
        ),
        PipelineEntry(name="noted", steps=("split", Each("note_square", at_once=4), "merge")),
        PipelineEntry(name="both", steps=("ask", Parallel("count_up", "name_it"), "join_both")),
        PipelineEntry(
            name="both-and-outer",
            steps=(
                "ask",
                Parallel("count_up", "name_it"),
                "ask_again",
                Child("squares"),
                "say_total",
            ),
        ),
        PipelineEntry(name="paid", steps=("split", Each("pay", at_once=4), "merge")),
        PipelineEntry(
            name="paid-most",
            steps=("split", Each("pay", at_once=4, tolerate=0.25), "merge_outcomes"),
        ),
        PipelineEntry(name="outer", steps=("ask", Child("squares"), "say_total")),
        PipelineEntry(name="approved", steps=(Wait("approval", Asked), "ask")),
        PipelineEntry(name="asks-first", steps=("ask", Child("approved"), "count_up")),
    ],
)
