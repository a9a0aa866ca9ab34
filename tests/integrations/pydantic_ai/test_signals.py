"""An agent that waits for a person in the middle of its run: as a signal, while nothing runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leasehold import testing
from leasehold.testing import FrozenClock
from tests.integrations.pydantic_ai import asking


@pytest.mark.parametrize(
    ("agent", "says", "output", "after"),
    [
        ("patient", True, "paid 5", ["paid 5", "model"]),
        ("patient", {"kind": "tool-denied", "message": "no"}, "no", ["model"]),
        ("careless", True, "paid 5", ["paid 5", "model"]),
    ],
    ids=["approved", "denied", "asked for by the tool"],
)
def test_an_agent_waits_for_the_signal_and_goes_on_from_its_recorded_calls(
    tmp_path: Path, agent: str, says: Any, output: str, after: list[str]
) -> None:
    asking.MADE.clear()
    asking.TOKENS.clear()
    with testing.engine(asking, tmp_path, clock=FrozenClock()) as engine:
        run_id = engine.start("payment", agent).run_id
        engine.run_until_idle()
        waiting = engine.show(run_id)
        (token,) = asking.TOKENS
        of_run, _, name = token.partition("/signals/")
        engine.signal(of_run, name, {"approvals": {"id-p": says}})
        engine.run_until_idle()

        assert (waiting.status, waiting.block and waiting.block.code) == ("BLOCKED", "waiting")
        assert engine.show(run_id).status == "COMPLETED"
        assert engine.output(run_id) == output
    assert ["model", "asked 1", *after] == asking.MADE


def test_an_agent_that_gets_no_answer_in_time_says_so_to_its_model(tmp_path: Path) -> None:
    asking.MADE.clear()
    clock = FrozenClock()
    with testing.engine(asking, tmp_path, clock=clock) as engine:
        run_id = engine.start("payment", "hasty").run_id
        engine.run_until_idle()
        clock.advance(61)
        engine.sweep()
        engine.run_until_idle()

        assert "No decision on this tool call arrived" in engine.output(run_id)
    assert asking.MADE == ["model", "asked 1", "model"]
