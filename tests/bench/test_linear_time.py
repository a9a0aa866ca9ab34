"""Code that reads texts of strangers takes twice the time for twice the text, not four times."""

from __future__ import annotations

import gc

import pytest

from bench import linear_time
from bench.hostile_input import CASES, Case

#: Until the best of both times is what the code takes, and not the machine: beside other tests, a
#: dozen rounds of some milliseconds each may all fall into the time of a busy neighbour.
ROUNDS = 150

#: One or two of each kind of parser, those that take least; nightly all of them are read.
OF_THE_GATE = {
    *(f"document of {name}" for name in (
        "stops that end nothing", "[a](<b", "[](", "code spans over lines", "emphasis that ends",
        "<", "comments in a block", "entities", "quotations", "lists in lists", "definitions",
        "tables", "headings", "spaces in a heading", "front matter that never ends", "words",
    )),
    *(f"error of {name}" for name in (
        "names and quotes", "authorization of many parts", "private keys", "other long keys",
        "addresses", "queries", "options of tools", "elements", "blocks of YAML", "auth",
        "values before names", "escapes", "rows", "cells of a table", "words of a header",
        "characters that JSON escapes",
    )),
    *("claims that contradict each other", "sentences of stops", "claim of digits"),
    *("claim of backticks", "numbers", "terms", "prose of underscores", "controls"),
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def leave_out_what_there_is() -> None:
    """Keep what other tests of this process made out of the collections that are made here.

    There is one before each time that is taken, and they would take far longer than all the rest.
    """
    gc.collect()
    gc.freeze()


def test_the_gate_has_only_cases_that_there_are() -> None:
    assert {case.name for case in CASES} >= OF_THE_GATE


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case, marks=[] if case.name in OF_THE_GATE else pytest.mark.nightly, id=case.name
        )
        for case in CASES
    ],
)
def test_twice_the_input_takes_twice_the_time(case: Case) -> None:
    """A pattern that takes longer holds the interpreter, and no lease is renewed meanwhile."""
    ratios = [twice / once for once, twice in _until_linear(case)]

    assert ratios[-1] <= linear_time.AT_MOST


def _until_linear(case: Case) -> list[tuple[float, float]]:
    measured = []
    for times in linear_time.times(case, ROUNDS):
        measured.append(times)
        if times[1] <= linear_time.AT_MOST * times[0]:
            break
    return measured


def test_a_case_that_is_quadratic_does_not_hold() -> None:
    slow = Case("slow", _read_each_pair, int, 200)

    # The best of both times comes to four, sooner or later; the machine may be busy in many rounds.
    ratios = (twice / once for once, twice in linear_time.times(slow, ROUNDS))
    assert any(3 < ratio < 5 for ratio in ratios)

    rows = (linear_time.measure([slow], rounds=7)[0] for _ in range(10))
    row = next(row for row in rows if row.ratio > 3)
    assert (row.unit, row.target, row.holds) == ("ms", "<= 2.5", False)


def _read_each_pair(size: int) -> None:
    """Take time alone: a list of the pairs would ask the system for memory, and wait for it."""
    for _ in range(size * size):
        pass
