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

CATALOG = """
from leasehold import StepDispatchEntry


def _entry(name, handler):
    return StepDispatchEntry(
        step_type=name,
        handler=f"{__name__}:{handler}",
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
    )


def wrote(ctx, given):
    return write(given["topic"])


def published(ctx, given: Approval):
    return {"text": ctx.output_of("write"), "published": given.approved}


STEPS = Registry("dispatch", [_entry("write", "wrote"), _entry("publish", "published")])
"""

ASKING = """
STEPS = Registry("dispatch", [*STEPS, _entry("ask", "publish")])
PIPELINES = Registry(
    "pipelines", [*PIPELINES, PipelineEntry(name="asking", steps=("ask",))]
)
"""


@pytest.fixture
def catalog() -> Iterator[ModuleType]:
    """The examples of the page, in one module, with the steps that they name."""
    blocks = [part.split("```")[0] for part in PAGE.read_text().split("```python\n")[1:]]
    module = ModuleType("wait_page")
    sys.modules["wait_page"] = module
    exec("\n".join([*blocks[:2], CATALOG, ASKING]), vars(module))  # noqa: S102 - our own page
    yield module
    del sys.modules["wait_page"]


@pytest.mark.parametrize("pipeline", ["publishing", "asking"])
def test_the_examples_wait_and_go_on(catalog: ModuleType, tmp_path: Path, pipeline: str) -> None:
    with testing.engine(catalog, tmp_path, clock=FrozenClock()) as engine:
        run_id = engine.start(pipeline, {"topic": "tea"}).run_id
        engine.run_until_idle()
        waiting = engine.show(run_id).status
        engine.signal(run_id, "approval", {"approved": True, "by": "ada"})
        engine.run_until_idle()

        assert waiting == "BLOCKED"
        assert engine.output(run_id)["published"] is True
        assert engine.output(run_id)["text"] == "All about tea."
