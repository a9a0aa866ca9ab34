"""Code that reads texts of strangers takes twice the time for twice the text, not four times."""

from __future__ import annotations

import gc

import pytest

from bench import linear_time
from bench.hostile_input import CASES, Case

#: Until the best of both times is what the code takes, and not the machine: beside other tests, a
#: dozen rounds of some milliseconds each may all fall into the time of a busy neighbour.
ROUNDS = 150


@pytest.fixture(scope="module", autouse=True)
def leave_out_what_there_is() -> None:
    """Keep what other tests of this process made out of the collections that are made here.

    There is one before each time that is taken, and they would take far longer than all the rest.
    """
    gc.collect()
    gc.freeze()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
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
    slow = Case("slow", lambda size: [size for _ in range(size) for _ in range(size)], int, 200)

    (row,) = linear_time.measure([slow], rounds=7)

    assert (row.unit, row.target, row.holds) == ("ms", "<= 2.5", False)
    assert 3 < row.ratio < 5
