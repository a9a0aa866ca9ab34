"""An output that says of itself that it is an ERROR fails the attempt."""

from __future__ import annotations

from tests.chaos.outages.catalog import CALLS
from tests.chaos.outages.conftest import Make


def test_an_output_of_status_error_fails_the_attempt_and_in_the_end_the_run(make: Make) -> None:
    """It is repeated as any failure, and never handed off."""
    with make() as engine:
        run = engine.start("errs", {})
        done = engine.wait(run.run_id, 30)
        errors = [event for event in engine.trace(run.run_id) if event.type == "step_error"]

    assert CALLS[run.run_id, "err"] == 2
    assert done.dead_letter_reason == "RETRIES_EXHAUSTED"
    assert done.steps["err"].attempts.failed == 2
    assert done.steps["err"].kept_output is None
    assert [(event.model_extra or {})["errorCode"] for event in errors] == ["output_error"] * 2


def test_the_error_shows_the_beginning_of_the_output_without_its_secrets(make: Make) -> None:
    with make() as engine:
        done = engine.wait(engine.start("errs", {}).run_id, 30)

    assert done.error is not None
    assert (done.error.type, done.error.code) == ("StepResult", "output_error")
    assert "step err has status ERROR" in done.error.message
    details = done.error.details or ""
    assert details.startswith('{"output":{"problem":"the model refused","api_key":"[redacted]"')
    assert len(details) <= 4000
