"""The order of lists that are worked on at once: what began first is joined first.

Elsewhere a join waits behind all items of all lists that were begun meanwhile.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import groupby
from pathlib import Path

from leasehold import Each, PipelineEntry, Registry, StepContext, StepDispatchEntry
from leasehold.in_process import InProcessEngine
from tests.worlds.builders import environ_of

LISTS, ITEMS = 5, 12
LOG: list[tuple[int, str]] = []


def split(_: StepContext, given: int) -> list[int]:
    return [given] * ITEMS


def item(_: StepContext, given: int) -> int:
    LOG.append((given, "item"))
    return given


def merge(_: StepContext, given: list[int]) -> int:
    LOG.append((given[0], "merge"))
    return len(given)


STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type=name,
            handler=f"tests.api.each.test_order:{name}",
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
        )
        for name in ("split", "item", "merge")
    ],
)
PIPELINES = Registry(
    "pipelines", [PipelineEntry(name="list", steps=("split", Each("item", at_once=4), "merge"))]
)


def test_a_list_is_joined_before_the_items_of_lists_that_began_later(tmp_path: Path) -> None:
    LOG.clear()
    with InProcessEngine(STEPS, PIPELINES, environ=environ_of(tmp_path), workers=0) as engine:
        for number in range(LISTS):
            engine.start("list", number)
        engine.run_until_idle()

    blocks = [(number, [what for _, what in log]) for number, log in groupby(LOG, lambda it: it[0])]
    assert sorted(blocks) == [(n, ["item"] * ITEMS + ["merge"]) for n in range(LISTS)]
