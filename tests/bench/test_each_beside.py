"""The benchmark of lists beside other engines: our own side of it, in short."""

from __future__ import annotations

from bench.each_beside import OURS, measured


def test_lists_are_begun_at_once_and_each_is_joined() -> None:
    facts = measured(OURS, runs=3, items=5)

    assert facts.pace > 0
    assert 0 <= facts.join_s <= facts.last_join_s
