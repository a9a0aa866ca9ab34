"""A handler in a child is asked to stop as one in the worker is, and ended if it does not."""

from __future__ import annotations

import pytest

from leasehold.attempt.attempt import Attempt
from leasehold.domain.result import Finished, LimitExceeded, Stopped
from leasehold.domain.status import Termination
from tests.worlds.attempts import Attempts
from tests.worlds.waiting import until


def has_begun(held: Attempt) -> bool:
    return held.progress is not None


def test_a_stop_reaches_the_callbacks_of_the_handler(attempts: Attempts) -> None:
    held = attempts.held()
    running = attempts.begin("stops", held)
    until(lambda: has_begun(held))

    held.ask_to_stop(Termination.INSTANCE_SHUTDOWN)

    assert running.result() == Finished('"stopped, True"')
    assert not held.is_killed


def test_a_callback_may_end_after_its_handler(
    attempts: Attempts, caplog: pytest.LogCaptureFixture
) -> None:
    held = attempts.held()
    running = attempts.begin("logs_in_a_callback", held)
    until(lambda: has_begun(held))

    held.ask_to_stop(Termination.INSTANCE_SHUTDOWN)

    assert running.result() == Finished('"stopped"')
    assert caplog.messages == ["cleaned up"]


@pytest.mark.parametrize("handler", ["ignores_the_stop", "stops_by_an_error"])
def test_a_handler_that_does_not_return_is_stopped_in_the_end(
    attempts: Attempts, handler: str
) -> None:
    held = attempts.held()
    running = attempts.begin(handler, held)
    until(lambda: has_begun(held))

    held.ask_to_stop(Termination.INSTANCE_SHUTDOWN)
    if handler == "ignores_the_stop":
        held.stop.force()

    assert running.result() == Stopped(Termination.INSTANCE_SHUTDOWN)
    assert held.is_killed is (handler == "ignores_the_stop")


@pytest.mark.parametrize(
    ("handler", "limit"),
    [
        ("cleans_up_for_ever", Termination.AGENT_TIMEOUT_EXCEEDED),
        ("eats_when_stopped", Termination.MEMORY_LIMIT_EXCEEDED),
    ],
)
def test_a_limit_that_it_reaches_meanwhile_is_a_failure_all_the_same(
    attempts: Attempts, handler: str, limit: Termination
) -> None:
    timeout = 4 if handler == "cleans_up_for_ever" else 120
    held = attempts.held(timeout=timeout, memory=128 * 1024 * 1024)
    running = attempts.begin(handler, held)
    until(lambda: has_begun(held))

    held.ask_to_stop(Termination.INSTANCE_SHUTDOWN)

    result = running.result()
    assert isinstance(result, LimitExceeded), result
    assert result.reason is limit


def test_a_handler_whose_run_was_cancelled_has_its_time_to_clean_up(attempts: Attempts) -> None:
    held = attempts.held(cleanup=0.5)
    running = attempts.begin("ignores_the_stop", held)
    until(lambda: has_begun(held))

    held.ask_to_stop(Termination.CANCELLED)

    assert running.result() == Stopped(Termination.CANCELLED)
    assert held.is_killed


def test_a_handler_is_dead_before_its_lease_is_over(attempts: Attempts) -> None:
    held = attempts.held(cleanup=50, lease=3)
    running = attempts.begin("ignores_the_stop", held)
    until(lambda: has_begun(held))

    held.ask_to_stop(Termination.LEASE_EXPIRED)

    assert running.result() == Stopped(Termination.LEASE_EXPIRED)


def test_attempts_run_beside_each_other(attempts: Attempts) -> None:
    """One that hangs keeps no other from running."""
    held = attempts.held()
    hanging = attempts.begin("ignores_the_stop", held)
    until(lambda: has_begun(held))

    others = [attempts.begin("who_runs", attempts.held()) for _ in range(3)]
    assert all(isinstance(other.result(), Finished) for other in others)

    held.ask_to_stop(Termination.CANCELLED)
    held.stop.force()
    hanging.result()


def test_a_handler_is_not_entered_once_its_lease_may_be_over(attempts: Attempts) -> None:
    """This attempt is not watched, as when a machine was frozen while it began."""
    held = attempts.held(lease=1.0)

    result = attempts.begin("is_entered", held, held.ends_at).result()

    assert result == Stopped(Termination.LEASE_EXPIRED)
    assert held.progress is None


def test_no_call_is_made_once_the_lease_may_be_over(attempts: Attempts) -> None:
    """Its result could not be recorded, so it would be paid for twice."""
    held = attempts.held(lease=3.0)

    result = attempts.begin("pays_twice", held, held.ends_at).result()

    assert result == Stopped(Termination.LEASE_EXPIRED)
    paid = [path.name for path in attempts.folder.rglob("*") if path.is_file()]
    assert "second" not in paid
