"""The costs of limits on Firestore, as the docs have them, counted again at the emulator."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from bench.run_costs import Costs, counted
from docs.costs import Kind
from leasehold import Limit, PipelineEntry, Registry, StepContext, StepDispatchEntry
from leasehold.registry.pipelines import Catalog
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.start_run import StartRequest, start_run
from leasehold.services.sweep import sweep
from tests.worlds.emulators import need_firestore

DOCS: Final = Path(__file__).parents[2] / "docs"
SLOTS: Final = 3

#: What the next handler does while it holds its slot.
MEANWHILE: list[Callable[[], object]] = []


def work(ctx: StepContext, given: Any) -> Any:
    if MEANWHILE:
        MEANWHILE.pop()()
    return given


#: What the limits of a step are, by the words that the page of costs has for them.
LIMITS: Final[dict[str, tuple[Limit, ...]]] = {
    "no limit": (),
    "`Limit(…, at_once=…)`, with a free slot": (Limit("slots", at_once=SLOTS),),
    "the same with `adaptive=True`, not lowered": (Limit("adapts", at_once=SLOTS, adaptive=True),),
    "`Limit(…, per_minute=…)`, with a turn": (Limit("rate", per_minute=60),),
}
STEPS: Final = {
    **{f"step-{number}": limits for number, limits in enumerate(LIMITS.values())},
    "several": (Limit("several", at_once=SLOTS),),
    "one": (Limit("one", at_once=1),),
    "groups": (Limit("first", at_once=1), Limit("tenant:{labels.tenant}", at_once=9)),
}


@pytest.fixture
def costs() -> Iterator[Costs]:
    need_firestore()
    steps = [
        StepDispatchEntry(
            step_type=name,
            handler=f"{__name__}:work",
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
            isolation="inline",
            limits=limits,
        )
        for name, limits in STEPS.items()
    ]
    pipelines = [PipelineEntry(name=name, steps=(name,)) for name in STEPS]
    with counted(Catalog(Registry("dispatch", steps), Registry("pipelines", pipelines))) as costs:
        yield costs


def attempt_of(costs: Costs, pipeline: str) -> Callable[[], object]:
    """Start a run; return what executes its step."""
    request = StartRequest(pipeline, {}, labels={"tenant": "acme"})
    run_id = start_run(costs.engine, request).manifest.run_id
    return lambda: execute_step(costs.engine, Hint(run_id, 1))


def spent(costs: Costs, call: Callable[[], object]) -> Counter[str]:
    """Return the documents that a call reads and writes."""
    before = costs.counts.copy()
    call()
    return Counter(
        reads=costs.counts[Kind.READ] - before[Kind.READ],
        writes=costs.counts[Kind.WRITE] - before[Kind.WRITE],
    )


def rows_of(page: str) -> list[tuple[str, ...]]:
    text = (DOCS / page).read_text()
    return re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", text, re.MULTILINE)


def test_a_run_under_each_limit_takes_what_the_page_of_costs_says(costs: Costs) -> None:
    said = {words: (reads, writes) for words, reads, writes in rows_of("costs.md")}
    costs.of_a_run("step-0", {})  # the first one of a process looks for more

    for number, words in enumerate(LIMITS):
        costs.of_a_run(f"step-{number}", {})  # the first one of a limit makes its documents
        taken = costs.of_a_run(f"step-{number}", {})
        assert (str(taken[Kind.READ]), str(taken[Kind.WRITE])) == said[words], words


def test_those_that_wait_and_the_sweep_take_what_the_page_of_limits_says(costs: Costs) -> None:
    said = {words: (reads, writes) for words, reads, writes in rows_of("patterns/limit.md")}
    attempt_of(costs, "one")()
    holders = [attempt_of(costs, "several") for _ in range(SLOTS)]
    first, behind = attempt_of(costs, "several"), attempt_of(costs, "several")
    taken: list[Counter[str]] = []

    def wait_in_line() -> None:
        taken.extend((spent(costs, first), spent(costs, behind)))
        for look_at in (-math.inf, math.inf):
            costs.engine.lines.look_at = look_at
            taken.append(spent(costs, lambda: sweep(costs.engine, among=())))

    MEANWHILE.extend((wait_in_line, *holders[1:]))
    holders[0]()

    of_first, of_behind, looks, looks_not = taken
    assert (of_first, of_behind) == (
        Counter(reads=5 + 4 * SLOTS, writes=2),
        Counter(reads=3, writes=2),
    )
    assert looks - looks_not == Counter(reads=1 + 1 + 2 * SLOTS)
    assert said["an attempt that ends as the first of a line"] == (
        "5 + four times the slots",
        "2 of its run",
    )
    assert said["an attempt that ends behind others in a line"] == ("3", "2 of its run")
    assert said["a sweep that looks at the lines"][0] == (
        "1, and for each line in which runs wait 1 + twice the slots"
    )


@pytest.mark.parametrize(("pipeline", "more_reads"), [("one", 0), ("groups", 1)])
def test_who_calls_the_next_one_takes_what_the_page_of_limits_says(
    costs: Costs, pipeline: str, more_reads: int
) -> None:
    """An attempt that calls none looks for one, too: that read is in both."""
    said = {words: (reads, writes) for words, reads, writes in rows_of("patterns/limit.md")}
    attempt_of(costs, pipeline)()
    alone = spent(costs, attempt_of(costs, pipeline))
    waits, holds = attempt_of(costs, pipeline), attempt_of(costs, pipeline)
    waiting: list[Counter[str]] = []
    MEANWHILE.append(lambda: waiting.append(spent(costs, waits)))

    both = spent(costs, holds)

    assert both - waiting[0] - alone == Counter(reads=more_reads, writes=1)
    assert said["a call at the end of an attempt"] == (
        "1, or 2 where there are groups",
        "1, of the run that is called",
    )
