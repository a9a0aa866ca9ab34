"""What the log says of a shutdown: how many leases the worker held, and how each of them ended."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from leasehold.attempt.attempt import Attempt
from leasehold.attempt.checkpoints import keep_checkpoint
from leasehold.domain import lifecycle
from leasehold.domain.change import on_run
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.lifecycle.termination import deadline_error
from leasehold.domain.manifest import run_ref
from leasehold.domain.manifest_parts import ErrorRecord
from leasehold.domain.status import Termination
from leasehold.domain.stored import Write
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, arrive
from leasehold.services.shut_down import shut_down, stop_cancelled
from tests.unit.worker.leased_world import World, holding

Facts = dict[str, Any]


@pytest.fixture
def reported(world: World) -> list[Facts]:
    return []


@pytest.fixture
def engine(world: World, reported: list[Facts]) -> Engine:
    return replace(
        world.engine,
        listeners=replace(
            world.engine.listeners, report=lambda facts: reported.append(dict(facts))
        ),
    )


@contextlib.contextmanager
def held(world: World) -> Iterator[Attempt]:
    with holding(world.engine, world.acquire()) as held:
        yield held


def settle(world: World, held: Attempt, ending: Any, **facts: Any) -> None:
    held.settle(partial(ending, rules=world.engine.rules, fence=held.fence, **facts))


def finish(world: World, held: Attempt) -> None:
    settle(world, held, lifecycle.complete, output=KeptValue(text="1"))


def fail(world: World, held: Attempt) -> None:
    error = ErrorRecord(type="E", code="c", message="m")
    settle(world, held, lifecycle.fail, error=error)


def exceed(world: World, held: Attempt) -> None:
    error = deadline_error(held.manifest)
    settle(world, held, lifecycle.exceed_limit, error=error, reason="agent_timeout_exceeded")


def keep(_: World, held: Attempt) -> None:
    keep_checkpoint(held, 1, "", "[1]")


def kill(_: World, held: Attempt) -> None:
    held.is_killed = True


def lose(world: World, held: Attempt) -> None:
    run_id = held.manifest.run_id
    expire = partial(lifecycle.expire, rules=world.engine.rules, lease_id=held.fence.lease_id)
    end = on_run(run_id, partial(expire, holder_gone=True))
    world.store.transact(run_ref(run_id), end)
    held.beat()


def nothing(_: World, held: Attempt) -> None:
    """Its handler hears nothing, and is left behind."""


def cut_off(world: World, _: Attempt) -> None:
    world.store.is_down, world.store.takes = True, 30.0  # so the lease is soon over


@pytest.mark.parametrize(
    ("meanwhile", "ending", "severity"),
    [
        (finish, "finished", "INFO"),
        (fail, "failed", "INFO"),
        (exceed, "failed", "INFO"),
        (keep, "checkpointed_and_released", "INFO"),
        (kill, "killed_and_released", "INFO"),
        (nothing, "released", "INFO"),
        (lose, "lost", "INFO"),
        (cut_off, "not_released", "WARNING"),
    ],
)
def test_the_log_says_how_each_lease_ended(
    world: World,
    engine: Engine,
    reported: list[Facts],
    meanwhile: Callable[[World, Attempt], None],
    ending: str,
    severity: str,
) -> None:
    with held(world) as one:
        run_id = one.manifest.run_id

        def at_the_stop(facts: Facts) -> None:
            reported.append(dict(facts))
            if facts["event"] == "INSTANCE_SHUTDOWN":
                meanwhile(world, one)

        shut_down(
            replace(engine, listeners=replace(engine.listeners, report=at_the_stop)),
            grace=0,
            signal_name="SIGTERM",
        )
        world.store.is_down = False

    first, *_, last = reported
    assert (first["event"], first["leases"], first["holder"]) == (
        "INSTANCE_SHUTDOWN",
        1,
        engine.process.holder,
    )
    assert first["message"] == "SIGTERM: shutting down; 1 lease held"
    assert (last["event"], last["ending"], last["severity"]) == (
        "LEASE_AT_SHUTDOWN",
        ending,
        severity,
    )
    assert (last["runId"], last["step"], last["attempt"]) == (run_id, "hold", 1)
    assert last["message"].startswith(
        f"run {run_id}, attempt 1 of step hold: {ending.replace('_', ' ')}"
    )


def test_the_checkpoint_of_an_earlier_attempt_is_not_said_to_be_kept(
    world: World, engine: Engine, reported: list[Facts]
) -> None:
    with held(world) as first:
        keep(world, first)
        lose(world, first)
    run = world.run_of(first)
    second = arrive(world.engine, Hint(run.run_id, run.position.dispatch.generation))

    with holding(world.engine, second):
        shut_down(engine, grace=0)

    assert (reported[-1]["attempt"], reported[-1]["ending"]) == (2, "released")


def test_cancelled_and_purged_runs_are_stopped_beside_one_that_cannot_be_read(
    world: World,
) -> None:
    with held(world) as odd, held(world) as cancelled, held(world) as purged:
        spoilt: Write[None] = Write(None, {"runId": 1})
        world.store.transact(run_ref(odd.manifest.run_id), lambda _, __: spoilt)
        world.cancel(cancelled)
        world.store.delete(run_ref(purged.manifest.run_id))

        stop_cancelled(world.engine)

    reasons = [one.stop.reason for one in (odd, cancelled, purged)]
    assert reasons == [None, Termination.CANCELLED, Termination.CANCELLED]


def test_a_server_without_a_lease_says_that_too(engine: Engine, reported: list[Facts]) -> None:
    shut_down(engine, signal_name="SIGTERM")

    assert [facts["message"] for facts in reported] == ["SIGTERM: shutting down; no leases held"]


def test_an_engine_that_is_closed_at_rest_says_nothing(
    engine: Engine, reported: list[Facts]
) -> None:
    """Most of them are, at the end of a user's program."""
    shut_down(engine)

    assert reported == []


@pytest.mark.parametrize(
    ("signal_name", "sentence"),
    [
        ("SIGTERM", "SIGTERM: the instance was shut down; the lease was released."),
        (None, "The engine was closed; the lease was released."),
    ],
)
def test_the_trace_says_what_made_the_worker_end(
    world: World, engine: Engine, reported: list[Facts], signal_name: str | None, sentence: str
) -> None:
    """The same for a handler that ends by itself: see `Stopped` in domain/result.py."""
    with held(world):
        shut_down(engine, grace=0, signal_name=signal_name)

    (terminated,) = [facts for facts in reported if facts["event"] == "STEP_TERMINATED"]
    assert terminated["reason"] == "instance_shutdown"
    assert terminated["detail"] == sentence
    assert terminated["severity"] == "INFO"
    assert (terminated["step"], terminated["attempt"]) == ("hold", 1)
    assert terminated["holder"] == engine.process.holder
