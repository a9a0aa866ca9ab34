"""A handler in a child is continued as one in the worker is."""

from __future__ import annotations

import pytest

from leasehold import IncrementalState
from leasehold.domain.result import Continued, Failed, Finished, LimitExceeded, Stopped
from leasehold.domain.status import Termination
from tests.worlds.attempts import Attempts
from tests.worlds.waiting import until


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
    """But not one that brings the step no further: each attempt would do the same."""
    held = attempts.held(timeout=10, cleanup=5, resume=IncrementalState("", 7, 7))

    result = attempts.run("keeps_when_time_is_short", held=held)

    assert result == Continued(at_checkpoint=True)
    assert [kept.iteration_count for kept in attempts.checkpoints] == [7, 8]


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


def test_a_loop_in_a_child_rejects_a_foreign_checkpoint(
    attempts: Attempts, caplog: pytest.LogCaptureFixture
) -> None:
    result = attempts.run("loops", held=attempts.held(resume=IncrementalState("", 7, "by hand")))

    assert result == Finished("[null,[0,1,2]]")
    assert [kept.iteration_count for kept in attempts.checkpoints] == [2, 3]
    assert "its checkpoint is rejected: It is none of ctx.checkpointed" in caplog.text


LOOPS = ["raises_at_an_item", "raises_at_an_item_later"]
KEPT_OF_SEVEN = {
    "checkpointed": [{"phase": "", "done": 7, "isOver": False, "results": [*range(7)]}]
}


@pytest.mark.parametrize("handler", LOOPS)
@pytest.mark.parametrize("raises", ["an error", "a wish to go on later", "an end"])
def test_a_loop_whose_item_raises_keeps_the_items_that_are_done(
    attempts: Attempts, handler: str, raises: str
) -> None:
    """And not what was made of the one that is not: it is done again, as a whole."""
    result = attempts.run(handler, raises)

    assert isinstance(result, Continued) is (raises == "a wish to go on later")
    assert [kept.iteration_count for kept in attempts.checkpoints] == [5, 7]
    assert attempts.checkpoints[-1].partial_results == KEPT_OF_SEVEN
    assert attempts.run(handler, held=attempts.held(resume=attempts.checkpoints[-1])) == Finished(
        "[0,1,2,3,4,5,6,7,8,9]"
    )


@pytest.mark.parametrize("handler", LOOPS)
def test_a_loop_within_the_worker_keeps_them_too(attempts: Attempts, handler: str) -> None:
    result = attempts.run_inline(handler, "an error")

    assert isinstance(result, Failed)
    assert attempts.checkpoints[-1].partial_results == KEPT_OF_SEVEN


@pytest.mark.parametrize("handler", LOOPS)
def test_a_loop_keeps_at_its_soft_limit_what_is_done(attempts: Attempts, handler: str) -> None:
    result = attempts.run(handler, "the soft limit", attempts.held(timeout=3, cleanup=2))

    assert isinstance(result, LimitExceeded)
    assert attempts.checkpoints[-1].partial_results == KEPT_OF_SEVEN


def test_what_a_loop_cannot_keep_does_not_hide_why_its_item_raised(
    attempts: Attempts, caplog: pytest.LogCaptureFixture
) -> None:
    result = attempts.run_inline("raises_with_what_cannot_be_kept")

    assert isinstance(result, Failed)
    assert result.error.message == "item 2 cannot be read"
    assert attempts.checkpoints == []
    assert "what was done since the last checkpoint is not kept" in caplog.text
