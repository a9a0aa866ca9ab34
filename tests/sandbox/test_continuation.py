"""A handler in a child is continued as one in the worker is."""

from __future__ import annotations

import pytest

from leasehold import IncrementalState
from leasehold.domain.result import Continued, Finished, Stopped
from leasehold.domain.status import Termination
from tests.sandbox.attempts import Attempts
from tests.waiting import until


@pytest.mark.parametrize("handler", ["continues", "continues_in_a_pool", "continues_in_tasks"])
def test_a_handler_asks_for_the_next_attempt(attempts: Attempts, handler: str) -> None:
    assert attempts.run(handler) == Continued()
    assert attempts.run_inline(handler) == Continued()


def test_a_handler_asks_for_it_at_its_soft_limit(attempts: Attempts) -> None:
    """It has its time to clean up, and says what becomes of the attempt."""
    held = attempts.held(timeout=1.5, cleanup=1)

    result = attempts.run("continues_at_its_limit", held=held)

    assert result == Continued()
    assert held.progress is not None


def test_a_checkpoint_ends_an_attempt_whose_time_is_short(attempts: Attempts) -> None:
    held = attempts.held(timeout=10, cleanup=5, resume=IncrementalState("", 7, 7))

    result = attempts.run("keeps_when_time_is_short", held=held)

    assert result == Continued(at_checkpoint=True)
    assert [kept.iteration_count for kept in attempts.checkpoints] == [8]


@pytest.mark.parametrize(
    ("handler", "result"),
    [
        ("continues_when_stopped", Stopped(Termination.INSTANCE_SHUTDOWN)),
        ("continues_in_a_callback", Finished('"stopped"')),
    ],
)
def test_with_a_stop_at_the_same_time_it_is_the_stop(
    attempts: Attempts, handler: str, result: object
) -> None:
    held = attempts.held()
    running = attempts.begin(handler, held)
    until(lambda: held.progress is not None)

    held.ask_to_stop(Termination.INSTANCE_SHUTDOWN)

    assert running.result() == result


def test_a_loop_in_a_child_rejects_a_checkpoint_that_is_none_of_its_own(
    attempts: Attempts, caplog: pytest.LogCaptureFixture
) -> None:
    result = attempts.run("loops", held=attempts.held(resume=IncrementalState("", 7, "by hand")))

    assert result == Finished("[null,[0,1,2]]")
    assert [kept.iteration_count for kept in attempts.checkpoints] == [2, 3]
    assert "its checkpoint is rejected: It is none of ctx.checkpointed" in caplog.text
