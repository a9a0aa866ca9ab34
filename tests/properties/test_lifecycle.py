"""The lifecycle against its model, in parts that can run side by side."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.properties.machine import Lifecycle
from tests.properties.model import PLAN, TRIALS


class LocalFirst(Lifecycle):
    remote = ((),)


class RemoteFirst(Lifecycle):
    remote = (PLAN,)


class MixedFirst(Lifecycle):
    remote = (("draft",), ("check",), ("send",))


class WithTrials(Lifecycle):
    remote = ((), (), PLAN)
    trials = TRIALS


@pytest.mark.parametrize("world", [LocalFirst, RemoteFirst, MixedFirst, WithTrials])
def test_no_order_of_events_breaks_the_lifecycle(world: type[Lifecycle]) -> None:
    """Tasks, workers and people come in every order; this is what all guarantees rest on.

    Each part has a quarter of the examples; the steps run here, elsewhere or both when it begins.
    """
    quarter = settings(max_examples=settings().max_examples // 4)
    run_state_machine_as_test(world, settings=quarter)
