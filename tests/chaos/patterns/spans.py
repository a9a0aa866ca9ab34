"""Spans of time in which attempts were at work, and how many were at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Span(NamedTuple):
    """One attempt: when it began, and ended or was killed."""

    begun: float
    ended: float


def at_work(spans: Iterable[Span]) -> Iterator[tuple[float, int]]:
    """Yield each moment at which an attempt begins or ends, and how many are at work then."""
    moves = sorted(move for one in spans for move in ((one.begun, 1), (one.ended, -1)))
    count = 0
    for at, move in moves:
        count += move
        yield at, count


def most_at_once(spans: Iterable[Span]) -> int:
    """Return how many were at work at once at most."""
    return max((count for _, count in at_work(spans)), default=0)


def longest_idle(spans: Iterable[Span], least: int) -> float:
    """Return for how long fewer than so many were at work, while runs waited to begin."""
    spans = tuple(spans)
    last_begun = max(one.begun for one in spans)
    longest, since = 0.0, None
    for at, count in at_work(spans):
        if at > last_begun:
            break
        if since is not None:
            longest = max(longest, at - since)
        since = (since if since is not None else at) if count < least else None
    return longest
