"""What bootstrap wires leaves no row of a table without its part."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import get_args, get_type_hints

from leasehold.bootstrap import boot
from leasehold.domain.change import Change
from leasehold.ports.lease_keeper import HeldAttempt
from leasehold.registry.dispatch import StepDispatchEntry
from leasehold.registry.pipelines import Catalog
from leasehold.services.engine import CARRIERS
from leasehold.testing import InProcessEngine
from tests.in_process.sample import PIPELINES, STEPS


def test_each_isolation_that_a_step_may_ask_for_has_a_runner(tmp_path: Path) -> None:
    bundle = boot(
        {
            "LEASEHOLD_STORE": f"sqlite:///{tmp_path}/runs.db",
            "LEASEHOLD_ARTIFACTS": f"file://{tmp_path}/artifacts",
        },
        catalog=Catalog(steps=STEPS, pipelines=PIPELINES),
    )
    bundle.close()

    allowed = get_args(get_type_hints(StepDispatchEntry)["isolation"])
    assert set(bundle.engine.runners) == set(allowed)


def test_each_kind_of_effect_that_a_change_can_owe_has_a_carrier() -> None:
    """One without would be owed for ever."""
    hint = get_type_hints(Change.owed.fget)["return"]  # type: ignore[attr-defined] # a property
    (effect, _) = get_args(hint)

    assert set(CARRIERS) == set(get_args(effect) or (effect,))


def test_a_listener_is_called_once_the_attempt_is_let_go(tmp_path: Path) -> None:
    """One that closes the engine would wait for the write that called it."""
    environ = {
        "LEASEHOLD_STORE": f"sqlite:///{tmp_path}/runs.db",
        "LEASEHOLD_ARTIFACTS": f"file://{tmp_path}/artifacts",
    }
    engine = InProcessEngine(STEPS, PIPELINES, environ=environ, workers=0)
    held: list[Sequence[HeldAttempt]] = []
    engine.on_idle(lambda _: held.append(engine.held_runs()))
    engine.run("three", {"n": 1})
    engine.close()

    assert held == [[]]
