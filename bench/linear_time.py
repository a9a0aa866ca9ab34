"""How much longer twice the input takes, for all that reads texts of strangers.

Twice, where the time is linear; four times, where it is quadratic, and then some kilobytes of text
hold a worker for minutes, and with it the renewal of its leases.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from bench.hostile_input import CASES, Case
from bench.measuring import Figure, figure, report

AT_MOST: Final = 2.5
_ENOUGH_S: Final = 0.004  # of work in one round, so that the clock and the machine do not show
_LONG_S: Final = 0.02  # of one reading, so that neither shows in it
_TOO_LONG_S: Final = 2.0  # one round says all


def measure(cases: Sequence[Case], rounds: int) -> list[Figure]:
    """Return a figure for each case: time for twice the input, the floor is that for the input."""
    figures = []
    for case in cases:
        *_, (once, twice) = times(case, rounds)
        milliseconds = (twice * 1000, once * 1000)
        figures.append(figure(case.name, "ms", [milliseconds], at_most=AT_MOST))
    return figures


def times(case: Case, rounds: int) -> Iterator[tuple[float, float]]:
    """Yield after each round the best seconds so far, for the input and for twice the input.

    Twice the input is read half as often. So both take as long where the time is linear, and one of
    them is no likelier to fall into a moment in which the neighbour of this core is at rest. Before
    these rounds comes a look at each of them alone, where such a moment is short beside it.
    """
    _seconds(case.read, case.make(case.size // 8), 1)  # imports and compiles, which counts for none
    size, once = _size(case)
    given, doubled = case.make(size), case.make(2 * size)
    half = max(1, round(_ENOUGH_S / 2 / max(1e-6, once)))
    twice = float("inf")
    if once >= _LONG_S:
        twice = _seconds(case.read, doubled, 1)
        yield once, twice
    else:
        once = float("inf")
    for _ in range(rounds):
        if _TOO_LONG_S < twice * half < float("inf"):
            return
        once = min(once, _seconds(case.read, given, 2 * half) / (2 * half))
        twice = min(twice, _seconds(case.read, doubled, half) / half)
        yield once, twice


def _size(case: Case) -> tuple[int, float]:
    """Return a size at which what every input costs is little of the time, and seconds for it."""
    size, taken = case.size, _seconds(case.read, case.make(case.size), 1)
    while 4 * size <= case.most and taken < _ENOUGH_S:
        size *= 2
        taken = _seconds(case.read, case.make(size), 1)
    return size, taken


def _seconds(read: Callable[[Any], object], given: Any, repeats: int) -> float:
    """Return the time of a thread of its own, in which this is the first call.

    Python gives back the last piece of a stack at once: where calls go to and fro across its edge,
    each of them asks the system for memory, and it depends on the callers where that edge is.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_thread_seconds, read, given, repeats).result()


def _thread_seconds(read: Callable[[Any], object], given: Any, repeats: int) -> float:
    """Return this thread's time, without the collector's, which grows with all there is."""
    gc.collect()
    gc.disable()
    try:
        began = time.thread_time()
        for _ in range(repeats):
            read(given)
        return time.thread_time() - began
    finally:
        gc.enable()


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    report("linear_time", measure(CASES, parser.parse_args().rounds))


if __name__ == "__main__":
    main()
