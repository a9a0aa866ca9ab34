"""Bootstrap wires a part for each row of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from leasehold.attempt.attempt import Attempt
from leasehold.bootstrap import boot
from leasehold.domain.change import Change
from leasehold.domain.effect import Archive
from leasehold.registry.dispatch import Isolation, StepDispatchEntry
from leasehold.registry.pipelines import Catalog, PipelineEntry
from leasehold.registry.registry import Registry
from leasehold.services.engine import CARRIERS
from leasehold.testing import InProcessEngine
from tests.worlds.builders import environ_of
from tests.worlds.catalogs.sample import PIPELINES, STEPS


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
    assert set(bundle.engine.handlers.runners) == set(allowed)


@pytest.mark.parametrize(
    ("setting", "isolations"),
    [("", {"add": "process", "hold": "inline"}), ("inline", {"add": "inline", "hold": "inline"})],
)
def test_a_handler_runs_where_its_entry_says_unless_the_setting_says_inline(
    tmp_path: Path, setting: str, isolations: dict[str, str]
) -> None:
    add = StepDispatchEntry(
        step_type="add",
        handler="steps:add",
        agent_timeout=timedelta(seconds=1),
        dispatch_deadline=timedelta(seconds=15),
    )
    hold = replace(add, step_type="hold", env_overrides=("", ""), isolation="inline")
    pipelines = Registry("pipelines", [PipelineEntry(name="both", steps=("add", "hold"))])
    catalog = Catalog(steps=Registry("dispatch", [add, hold]), pipelines=pipelines)

    bundle = boot(environ_of(tmp_path, LEASEHOLD_ISOLATION=setting), catalog=catalog)
    bundle.close()

    assert {
        step.step_type: bundle.engine.handlers.isolation_of(step) for step in (add, hold)
    } == isolations


@pytest.mark.parametrize(
    ("isolation", "handler", "starts"),
    [
        ("process", "json:dumps", True),
        ("inline", "json:dumps", False),
        ("process", "remote", False),
    ],
)
def test_a_process_is_started_for_handlers_that_run_in_one_alone(
    tmp_path: Path, isolation: Isolation, handler: str, *, starts: bool
) -> None:
    """A server has all handlers imported there before its first attempt, which takes seconds."""
    step = StepDispatchEntry(
        step_type="dumps",
        handler=handler,
        agent_timeout=timedelta(seconds=1),
        dispatch_deadline=timedelta(seconds=15),
    )
    pipelines = Registry("pipelines", [PipelineEntry(name="one", steps=("dumps",))])
    catalog = Catalog(steps=Registry("dispatch", [step]), pipelines=pipelines)
    bundle = boot(environ_of(tmp_path), catalog=catalog, isolation=isolation)
    before = _children()

    bundle.processes.import_all()
    started = _children() - before
    bundle.close()

    assert bool(started) is starts


def _children() -> set[str]:
    """Return the processes that this one has started, and that it has not reaped."""
    lists = Path("/proc/self/task").glob("*/children")
    return {pid for one in lists for pid in one.read_text().split()}


def test_tests_run_every_handler_inline(tmp_path: Path) -> None:
    """They patch what it uses, and hold the clock."""
    with InProcessEngine(STEPS, PIPELINES, environ=environ_of(tmp_path), workers=0) as engine:
        assert {engine.engine.handlers.isolation_of(step) for step in STEPS} == {"inline"}


def test_each_kind_of_effect_that_a_change_can_owe_has_a_carrier() -> None:
    """One without would be owed forever."""
    hint = get_type_hints(Change.owed.fget)["return"]  # type: ignore[attr-defined] # a property
    (effect, _) = get_args(hint)

    assert {*CARRIERS, Archive} == set(get_args(effect))


def test_a_listener_is_called_once_the_attempt_is_let_go(tmp_path: Path) -> None:
    """One that closes the engine would wait for the write that called it."""
    environ = {
        "LEASEHOLD_STORE": f"sqlite:///{tmp_path}/runs.db",
        "LEASEHOLD_ARTIFACTS": f"file://{tmp_path}/artifacts",
    }
    engine = InProcessEngine(STEPS, PIPELINES, environ=environ, workers=0)
    held: list[Sequence[Attempt]] = []
    engine.on_idle(lambda _: held.append(engine.held_runs()))
    engine.run("three", {"n": 1})
    engine.close()

    assert held == [[]]
