"""The benchmark of items runs, in short: figures of a loaded machine prove no rate."""

from __future__ import annotations

from pathlib import Path

from bench.each_items import measured


def test_a_list_is_done_beside_plain_steps_and_its_parent_is_dispatched_a_few_times(
    tmp_path: Path,
) -> None:
    items, dispatches = measured(tmp_path, 60)

    assert items.value > 0
    assert dispatches.holds
