"""Entry actions: called before the handler of a step, wherever that runs, under its limits."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold.domain.result import Deferred, Failed, Finished, LimitExceeded, Result, Unable
from leasehold.domain.status import Termination
from tests.worlds.attempts import Attempts

HERE = "tests.chaos.sandbox.entering"


@pytest.fixture(params=["process", "inline"])
def run(request: pytest.FixtureRequest, attempts: Attempts) -> Any:
    """Runs a handler of these tests after its entry actions."""

    def run_it(handler: str, *actions: str, given: Any = 1) -> Result:
        call = attempts.run if request.param == "process" else attempts.run_inline
        paths = [f"{HERE}:{action}" for action in actions]
        return call(f"{HERE}:{handler}", given, entry_actions=paths)

    return run_it


@pytest.mark.parametrize("handler", ["says", "says_later"])
def test_they_are_called_in_their_order_whatever_they_and_the_handler_are(
    run: Any, handler: str
) -> None:
    finished = run(handler, "note", "note_later", "runs_a_loop")

    assert finished == Finished('"note 1\\nnote 1 later\\nnote 1 later\\n"')


def test_one_that_raises_fails_the_attempt_by_its_name_and_nothing_after_it_is_called(
    run: Any, attempts: Attempts
) -> None:
    failed = run("says", "note", "busy", "note_later")

    assert isinstance(failed, Failed)
    assert failed.error.message == "Entry action 'tests.chaos.sandbox.entering:busy': no model"
    assert (failed.error.type, failed.error.code) == ("AgentClientError", "busy")
    assert (failed.error.retry_after_s, failed.error.validation_issue_count) == (7, 2)
    assert (failed.error.origin or "").endswith("(busy)")
    assert not failed.permanent
    assert attempts.run_inline(f"{HERE}:says") == Finished('"note 1\\n"')


def test_an_error_as_large_as_there_are_is_kept_by_its_name(run: Any) -> None:
    failed = run("says", "wide")

    assert isinstance(failed, Failed)
    assert failed.error.message.startswith("Entry action 'tests.chaos.sandbox.entering:wide': xxx")
    assert failed.error.validation_issue_count == 60


def test_it_may_say_that_no_retry_helps(run: Any) -> None:
    failed = run("says", "never")

    assert isinstance(failed, Failed)
    assert (failed.error.code, failed.permanent) == ("gone", True)


def test_it_keeps_no_checkpoint_in_place_of_that_of_the_handler(
    run: Any, attempts: Attempts
) -> None:
    failed, finished = run("resumes", "keeps"), run("resumes", "note")

    assert isinstance(failed, Unable)
    assert (failed.code, failed.error.code) == ("handler_mistake", "checkpoint_misused")
    assert isinstance(finished, Finished)
    assert [kept.iteration_count for kept in attempts.checkpoints] == [8]


def test_an_outage_in_one_is_no_failure(run: Any) -> None:
    assert isinstance(run("says", "is_away"), Deferred)


def test_what_it_is_given_fits_before_it_is_called(run: Any) -> None:
    unable = run("doubles", "never", given="no number")

    assert isinstance(unable, Unable)
    assert unable.error.code == "invalid_input"


@pytest.mark.parametrize(
    ("action", "problem"),
    [
        ("nowhere", "'tests.chaos.sandbox.entering' has no 'nowhere'"),
        ("number", "it is of class int; an entry action is a function (ctx, given)"),
        ("given_alone", "it must take two arguments, (ctx, given)"),
        ("pieces", "it is a generator function; an entry action is a function (ctx, given)"),
    ],
)
def test_one_that_does_not_resolve_is_no_failure_of_the_run(
    run: Any, action: str, problem: str
) -> None:
    unable = run("says", "note", action)

    assert isinstance(unable, Unable)
    assert (unable.code, unable.error.code) == ("handler_unavailable", "entry_action_not_found")
    assert unable.error.message.endswith(
        f"Entry action 'tests.chaos.sandbox.entering:{action}' of step 'step' does not resolve: "
        f"{problem}."
    )


@pytest.mark.parametrize("action", ["hangs", "hangs_later", "spins"])
def test_one_that_hangs_is_ended_at_the_limits_of_its_handler(
    attempts: Attempts, action: str
) -> None:
    held = attempts.held(timeout=1, cleanup=0.5)

    ended = attempts.run(
        f"{HERE}:says", held=held, entry_actions=[f"{HERE}:note", f"{HERE}:{action}"]
    )

    assert isinstance(ended, LimitExceeded)
    assert ended.reason is Termination.AGENT_TIMEOUT_EXCEEDED
    assert action in ended.stacks
    assert held.is_killed is (action == "spins")


@pytest.mark.parametrize("action", ["note", "note_later"])
def test_the_handler_gets_the_soft_limit_after_an_action_of_any_kind(
    attempts: Attempts, action: str
) -> None:
    held = attempts.held(timeout=1, cleanup=0.5)

    ended = attempts.run(
        "tests.chaos.sandbox.handlers:sleeps", held=held, entry_actions=[f"{HERE}:{action}"]
    )

    assert isinstance(ended, Finished)
