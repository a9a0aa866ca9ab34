"""The benchmark of items runs, in short: figures of a loaded machine prove no rate."""

from __future__ import annotations

from pathlib import Path

from bench.each_items import LANES, PIPELINES, STEPS, measured
from bench.run_costs import counted
from docs.costs import Kind
from leasehold.registry.pipelines import Catalog
from tests.worlds.emulators import need_firestore


def test_a_list_is_done_beside_plain_steps_and_its_parent_is_dispatched_a_few_times(
    tmp_path: Path,
) -> None:
    items, dispatches = measured(tmp_path, 60)

    assert items.value > 0
    assert dispatches.holds


def test_an_item_costs_two_writes_and_a_read_on_firestore() -> None:
    """All other costs of a list do not grow with it, nor do the writes of its run."""
    need_firestore()
    few, many = LANES, 2 * LANES
    with counted(Catalog(STEPS, PIPELINES)) as costs:
        costs.of_a_run("each", 1)  # the first one of a process looks for more
        small, large = costs.of_a_run("each", few), costs.of_a_run("each", many)

    assert large - small == {Kind.WRITE: 2 * (many - few), Kind.READ: many - few}
