"""A person in the loop: a run waits for an answer, for however long, and the agent goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasehold import testing
from tests.integrations.pydantic_ai import approvals


@pytest.mark.parametrize(
    ("says", "output", "made"),
    [
        (True, "paid 5", ["model", "paid 5", "model"]),
        (False, "The tool call was denied.", ["model", "model"]),
    ],
    ids=["approved", "denied"],
)
def test_a_run_waits_for_a_person_and_the_agent_goes_on(
    tmp_path: Path, says: bool, output: str, made: list[str]
) -> None:
    approvals.MADE.clear()
    with testing.engine(approvals, tmp_path) as engine:
        run = engine.run("payments", "Pay five dollars.")
        asked = engine.output(run.run_id, "plan", model=approvals.Asked)
        assert (run.status, asked.calls) == ("BLOCKED", {"id-p": '{"usd":5}'})

        answered = asked.model_copy(update={"approvals": {"id-p": says}})
        engine.approve(run.run_id, output=answered.model_dump(mode="json"))
        done = engine.run_until_settled(run.run_id)

        assert done.status == "COMPLETED"
        assert engine.output(run.run_id) == output
    assert made == approvals.MADE
