"""A deploy changes the prompt between two attempts: an answer to another prompt is none."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Final

import pytest

from leasehold import testing
from tests.integrations.conftest import HERE
from tests.integrations.kills import Deeds
from tests.integrations.played import output_of

answering: Final[Any] = importlib.import_module(f"tests.integrations.{HERE}.answering")


@pytest.mark.parametrize("pipeline", answering.SPENDING)
def test_a_model_is_asked_again_with_another_prompt(tmp_path: Path, pipeline: str) -> None:
    deeds = Deeds(tmp_path)
    with testing.engine(answering, tmp_path) as engine:
        engine.faults.kill_before_settlement()
        run = engine.start(pipeline, {"folder": str(tmp_path)})
        engine.run_until_idle()
        (tmp_path / "prompt").write_text("Be thorough")
        done = engine.run_until_settled(run.run_id)

    assert output_of(done) == answering.ANSWER.format(prompt="Be thorough", d="d of x")
    assert deeds.made.count("model 1") == 2
