"""The limits of a handler in a child: the soft one is told to it, at the hard one it is killed."""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest

from leasehold.attempt.attempt import Attempt
from leasehold.domain.result import Failed, Finished, LimitExceeded, Result
from leasehold.domain.status import Termination
from leasehold.worker.sandbox.sandbox import Sandbox
from leasehold.worker.sandbox.sandboxed_attempt import Limits
from tests.worlds.attempts import Attempts

_MIB = 1024 * 1024


#: Beside each other: each of them waits for its limit. The soft one is at half of this, which is
#: long enough for a handler to begin on a machine that has no time for it.
_TIMEOUT_S = 8
_HANDLERS = (
    "sleeps",
    "awaits",
    "blocks_its_loop",
    "blocks_in_a_task",
    "raises_at_the_limit",
    "is_sent_no_signal",
    "swallows",
    "never_ends_awaiting",
)


class AtLimit(NamedTuple):
    held: Attempt
    result: Result


@pytest.fixture(scope="module")
def at_limit(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> dict[str, AtLimit]:
    attempts = Attempts(sandbox, tmp_path_factory.mktemp("limits"))
    held = {name: attempts.held(timeout=_TIMEOUT_S) for name in _HANDLERS}
    held["ignores_the_stop"] = attempts.held(timeout=3 * _TIMEOUT_S, deadline=_TIMEOUT_S)
    running = {name: attempts.begin(name, one) for name, one in held.items()}
    return {name: AtLimit(one, running[name].result()) for name, one in held.items()}


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
    at_limit: dict[str, AtLimit], handler: str, output: str
) -> None:
    """In a call that blocks, in a coroutine that waits, and in what blocks its loop."""
    assert at_limit[handler].result == Finished(f'"{output}"')


def test_progress_said_while_it_cleans_up_is_known(at_limit: dict[str, AtLimit]) -> None:
    progress = at_limit["sleeps"].held.progress

    assert progress is not None
    assert progress.message == "cleaned up"


def test_what_is_raised_after_the_soft_limit_is_kept_with_the_limit(
    at_limit: dict[str, AtLimit],
) -> None:
    result = exceeded(at_limit["raises_at_the_limit"].result)

    assert result.reason is Termination.AGENT_TIMEOUT_EXCEEDED
    assert result.error.code == "agent_timeout_exceeded"
    assert "LookupError: while it cleaned up" in (result.error.traceback or "")
    assert "tests/chaos/sandbox/handlers.py" in result.stacks
    assert "time.sleep(0.01)" in result.stacks


def test_the_stacks_of_a_handler_that_hears_are_written_under_the_lock_of_its_interpreter(
    at_limit: dict[str, AtLimit],
) -> None:
    """A signal reads what other threads are just changing, which may crash the process."""
    result = exceeded(at_limit["is_sent_no_signal"].result)

    assert "LookupError: sent: []" in (result.error.traceback or "")
    assert "in is_sent_no_signal" in result.stacks


def test_a_handler_that_swallows_the_limit_is_killed_at_the_hard_one(
    at_limit: dict[str, AtLimit],
) -> None:
    held, result = at_limit["swallows"]

    assert exceeded(result).reason is Termination.AGENT_TIMEOUT_EXCEEDED
    assert held.is_killed
    assert (exceeded(result).error.origin or "").endswith("(swallows)")
    assert exceeded(result).stacks.splitlines()[2].strip() == "time.sleep(600)"


def test_the_stacks_of_an_async_handler_say_what_it_waits_for(
    at_limit: dict[str, AtLimit],
) -> None:
    result = exceeded(at_limit["never_ends_awaiting"].result)

    assert "await asyncio.sleep(600)  # the one" in result.stacks


@pytest.mark.cold  # what was imported before is memory as well
def test_a_handler_that_takes_too_much_memory_is_killed(attempts: Attempts) -> None:
    result = exceeded(attempts.run("eats", held=attempts.held(memory=128 * _MIB)))

    assert result.reason is Termination.MEMORY_LIMIT_EXCEEDED
    assert result.error.message.startswith("Attempt 1 of step step took ")
    assert "its limit is 128 MiB" in result.error.message
    assert "in eats" in result.stacks


@pytest.mark.cold  # what was imported before is memory as well
def test_missing_memory_is_reported_as_a_memory_limit(attempts: Attempts) -> None:
    result = exceeded(attempts.run("lacks_memory", held=attempts.held(memory=512 * _MIB)))

    assert result.reason is Termination.MEMORY_LIMIT_EXCEEDED
    assert "bytearray(1 << 46)" in (result.error.traceback or "")


def test_a_kill_by_the_system_is_taken_for_a_lack_of_memory(attempts: Attempts) -> None:
    result = exceeded(attempts.run("is_killed", held=attempts.held(memory=512 * _MIB)))

    assert result.reason is Termination.MEMORY_LIMIT_EXCEEDED


@pytest.mark.parametrize(
    ("handler", "code"), [("lacks_memory", "handler_raised"), ("is_killed", "handler_died")]
)
def test_a_step_without_a_memory_limit_reaches_none(
    attempts: Attempts, handler: str, code: str
) -> None:
    result = attempts.run(handler)

    assert isinstance(result, Failed)
    assert result.error.code == code


def test_a_process_may_have_seven_days(attempts: Attempts) -> None:
    """No timer that holds its limits overflows."""
    held = attempts.held(timeout=7 * 86_400 - 1)

    assert isinstance(attempts.run("who_runs", held=held), Finished)


# -- on the clock of the worker ------------------------------------------------------------------


def test_the_time_of_a_handler_begins_when_it_is_imported(attempts: Attempts) -> None:
    held = attempts.held(timeout=60, cleanup=5, deadline=3600)
    began = held.answer_by - 3600

    importing = Limits.of(held, began, import_s=10)
    imported = importing.from_import(began + 7)
    warned = imported.from_soft(began + 20)

    assert (importing.soft_at, importing.hard_at) == (math.inf, began + 10)
    assert (imported.soft_at, imported.hard_at) == (began + 62, began + 67)
    assert (warned.soft_at, warned.hard_at) == (began + 20, began + 25)
    assert imported.deadline_at == began + 3599  # in time to see what it does


@pytest.mark.parametrize(
    ("reason", "seconds"),
    [
        (Termination.CANCELLED, 5),
        (Termination.INSTANCE_SHUTDOWN, 10),
        (Termination.DISPATCH_DEADLINE_EXCEEDED, 0),
        (Termination.LEASE_EXPIRED, 2),
    ],
)
def test_a_handler_that_is_to_stop_has_so_much_time(
    attempts: Attempts, reason: Termination, seconds: float
) -> None:
    """Its lease is over in 2 s, and another worker may have the run then."""
    held = attempts.held(timeout=60, cleanup=5, lease=100)
    now = held.ends_at - 2
    limits = Limits.of(held, now, import_s=10)

    assert limits.kill_at(reason, held, now) - now == pytest.approx(seconds)


def test_a_handler_that_began_late_is_killed_before_its_dispatch_deadline(
    at_limit: dict[str, AtLimit],
) -> None:
    """At that itself its attempt is ended without what it was doing."""
    result = exceeded(at_limit["ignores_the_stop"].result)

    assert result.reason is Termination.DISPATCH_DEADLINE_EXCEEDED
    assert "in ignores_the_stop" in result.stacks
