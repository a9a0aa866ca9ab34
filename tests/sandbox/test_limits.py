"""The limits of a handler in a child: the soft one is told to it, at the hard one it is killed."""

from __future__ import annotations

import pytest

from leasehold.domain.result import Finished, LimitExceeded, Result
from leasehold.domain.status import Termination
from tests.sandbox.attempts import Attempts

_MIB = 1024 * 1024


def exceeded(result: Result) -> LimitExceeded:
    assert isinstance(result, LimitExceeded), result
    return result


@pytest.mark.parametrize(
    ("handler", "output"),
    [
        ("sleeps", "cleaned up, True"),
        ("awaits", "cleaned up, True"),
        ("blocks_its_loop", "cleaned up"),
        ("blocks_in_a_task", "cleaned up"),
    ],
)
def test_the_soft_limit_is_raised_where_the_handler_is(
    attempts: Attempts, handler: str, output: str
) -> None:
    """In a call that blocks, in a coroutine that waits, and in what blocks its loop."""
    held = attempts.held(timeout=3)  # the soft limit is at half of it

    result = attempts.run(handler, held=held)

    assert result == Finished(f'"{output}"'), f"{result!r:.3000}"


def test_progress_said_while_it_cleans_up_is_known(attempts: Attempts) -> None:
    held = attempts.held(timeout=1)

    attempts.run("sleeps", held=held)

    assert held.progress is not None
    assert held.progress.message == "cleaned up"


def test_what_is_raised_after_the_soft_limit_is_kept_with_the_limit(attempts: Attempts) -> None:
    result = exceeded(attempts.run("raises_at_the_limit", held=attempts.held(timeout=1)))

    assert result.reason is Termination.AGENT_TIMEOUT_EXCEEDED
    assert result.error.code == "agent_timeout_exceeded"
    assert "LookupError: while it cleaned up" in (result.error.traceback or "")
    assert "tests/sandbox/handlers.py" in result.stacks
    assert "  while True:" in result.stacks or "  pass" in result.stacks


def test_a_handler_that_swallows_the_limit_is_killed_at_the_hard_one(attempts: Attempts) -> None:
    result = exceeded(attempts.run("swallows", held=attempts.held(timeout=1)))

    assert result.reason is Termination.AGENT_TIMEOUT_EXCEEDED
    assert result.error.origin is not None
    assert result.error.origin.endswith("(swallows)")
    assert result.stacks.splitlines()[1].strip() == "time.sleep(600)"


def test_the_stacks_of_an_async_handler_say_what_it_waits_for(attempts: Attempts) -> None:
    result = exceeded(attempts.run("never_ends_awaiting", held=attempts.held(timeout=1)))

    assert "await asyncio.sleep(600)  # the one" in result.stacks


def test_a_handler_that_takes_too_much_memory_is_killed(attempts: Attempts) -> None:
    result = exceeded(attempts.run("eats", held=attempts.held(memory=128 * _MIB)))

    assert result.reason is Termination.MEMORY_LIMIT_EXCEEDED
    assert result.error.message.startswith("Attempt 1 of step step took ")
    assert "its limit is 128 MiB" in result.error.message
    assert "in eats" in result.stacks


def test_memory_that_cannot_be_had_is_told_as_the_limit_it_is(attempts: Attempts) -> None:
    result = exceeded(attempts.run("lacks_memory", held=attempts.held(memory=512 * _MIB)))

    assert result.reason is Termination.MEMORY_LIMIT_EXCEEDED
    assert "bytearray(1 << 46)" in (result.error.traceback or "")
