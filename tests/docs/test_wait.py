"""The page on waits for signals: its examples run as they stand there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from leasehold import testing
from leasehold.testing import FrozenClock

PAGE = Path(__file__).parents[2] / "docs/patterns/wait.md"

ASKING = """
STEPS = Registry(
    "dispatch",
    [
        *STEPS,
        StepDispatchEntry(
            step_type="ask",
            handler="publishing:announce",
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
        ),
    ],
)
PIPELINES = Registry(
    "pipelines", [*PIPELINES, PipelineEntry(name="asking", steps=("ask",))]
)
"""


@pytest.fixture
def catalog() -> Iterator[ModuleType]:
    """The examples of the page, in the module that the page names."""
    blocks = [part.split("```")[0] for part in PAGE.read_text().split("```python\n")[1:]]
    module = ModuleType("publishing")
    sys.modules["publishing"] = module
    exec("\n".join([*blocks[:2], ASKING]), vars(module))  # noqa: S102 - our own page
    yield module
    del sys.modules["publishing"]


@pytest.mark.parametrize(
    ("pipeline", "output"),
    [
        ("publishing", "All about tea. Approved by ada."),
        ("asking", {"text": "All about tea.", "published": True, "by": "ada"}),
    ],
)
def test_the_examples_wait_and_go_on(
    catalog: ModuleType, tmp_path: Path, pipeline: str, output: object
) -> None:
    with testing.engine(catalog, tmp_path, clock=FrozenClock()) as engine:
        run_id = engine.start(pipeline, {"topic": "tea"}).run_id
        engine.run_until_idle()
        waiting = engine.show(run_id).status
        engine.signal(run_id, "approval", {"approved": True, "by": "ada"})
        engine.run_until_idle()

        assert waiting == "BLOCKED"
        assert engine.output(run_id) == output
