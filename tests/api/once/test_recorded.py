"""Recorded results are in the store of the run, and later attempts find them there."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from leasehold.domain.artifact_name import checkpoints_folder, step_folder, values_folder
from leasehold.domain.checkpoint import CallCount, CallResult
from leasehold.domain.manifest import Manifest
from leasehold.domain.recorded_calls import calls_of
from leasehold.domain.spend import Spend
from leasehold.domain.stored import Write
from leasehold.ports.documents import Query
from leasehold.services.read_results import list_calls
from leasehold.services.read_runs import get_run
from leasehold.testing import InProcessEngine
from tests.worlds.catalogs.once import DOES, LARGE, MADE

NAMES = ["one", "two", "three"]


def counted(run: Manifest, step: str = "ask") -> CallCount | None:
    return run.steps[step].calls


def recorded(engine: InProcessEngine, run: Manifest) -> list[CallResult]:
    return list_calls(engine.engine, run.run_id).calls


def temporary(engine: InProcessEngine, run: Manifest) -> list[str]:
    return list(engine.engine.artifacts.list(checkpoints_folder(run)))


# -- later attempts ------------------------------------------------------------------------------


def test_an_attempt_that_comes_later_makes_only_what_is_missing(engine: InProcessEngine) -> None:
    run = engine.start("asks", {"names": NAMES, "fails": [1, 2]})
    engine.run_until_idle()
    left = recorded(engine, run)
    done = engine.run_until_settled(run.run_id)

    assert [(call.key, call.type, call.inline) for call in left] == [("one", "str", '"one 1 xxxx"')]
    assert done.status == "COMPLETED"
    assert MADE == ["one", "two", "three", "told"]
    assert engine.output(run.run_id, "ask") == ["one 1 xxxx", "two 2 xxxx", "three 3 xx"]
    assert (counted(done), counted(done, "tell")) == (
        CallCount(made=3, spared=3),
        CallCount(made=1, spared=0),
    )
    assert (recorded(engine, run), done.fencing_token) == ([], 4)


def test_the_trace_tells_how_many_calls_were_made_and_spared(engine: InProcessEngine) -> None:
    run = engine.start("asks", {"names": NAMES, "fails": [2]})
    engine.run_until_settled(run.run_id)

    told = [
        event.model_dump(exclude_none=True, include={"step", "callsMade", "callsSpared"})
        for event in engine.trace(run.run_id)
        if event.type == "step_completed"
    ]

    assert told == [
        {"step": "ask", "callsMade": 3, "callsSpared": 2},
        {"step": "tell", "callsMade": 1, "callsSpared": 0},
    ]


def test_calls_of_a_coroutine_are_recorded_side_by_side(engine: InProcessEngine) -> None:
    names = [f"call {number}" for number in range(12)]
    run = engine.start("asks-at-once", {"names": names, "size": 20_000})
    done = engine.run_until_settled(run.run_id)

    assert (done.status, sorted(MADE)) == ("COMPLETED", sorted(names))
    assert counted(done, "aask") == CallCount(made=12, spared=12)


def test_a_killed_worker_leaves_what_it_recorded(engine: InProcessEngine) -> None:
    """Its last word was the write itself."""
    engine.faults.kill_before_settlement("ask")
    run = engine.start("asks", {"names": NAMES})
    done = engine.run_until_settled(run.run_id)

    assert (done.status, MADE) == ("COMPLETED", [*NAMES, "told"])
    assert done.steps["ask"].attempts.expired == 1
    assert counted(done) == CallCount(made=3, spared=3)


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_killed_worker_spent_counts_though_the_next_attempt_calls_nothing(
    engine: InProcessEngine, fails: bool
) -> None:
    """Its step may end with that attempt, and its records go with the step."""
    engine.faults.kill_before_settlement("ask_at_first")
    run = engine.start("asks-at-first", {"names": NAMES, "fails": fails})
    done = engine.run_until_settled(run.run_id)

    step = done.steps["ask_at_first"]
    assert (done.status, done.dead_lettered) == (("ERROR", True) if fails else ("COMPLETED", False))
    assert (step.attempts.expired, MADE) == (1, NAMES)
    assert counted(done, "ask_at_first") == CallCount(made=3)
    assert step.spend == Spend(tokens=300, usd=1.5)


def test_a_step_without_calls_counts_none_after_a_kill(engine: InProcessEngine) -> None:
    """Its trace and its pages would speak of calls that it does not make."""
    engine.faults.kill_before_settlement("ask_at_first")
    run = engine.start("asks-at-first", {"names": [], "fails": False})
    done = engine.run_until_settled(run.run_id)

    assert (done.status, done.steps["ask_at_first"].attempts.expired) == ("COMPLETED", 1)
    assert counted(done, "ask_at_first") is None


@pytest.mark.nightly  # ten thousand commits
def test_a_step_keeps_ten_thousand_results_and_one_more_is_retried_never(
    engine: InProcessEngine,
) -> None:
    runs = [engine.start("asks-much", {"calls": calls}) for calls in (10_000, 10_001)]
    full, over = (engine.run_until_settled(run.run_id) for run in runs)

    assert (full.status, full.steps["ask_much"].output) == ("COMPLETED", str(sum(range(10_000))))
    assert (over.dead_letter_reason, over.position.attempts.failed) == ("PERMANENT_FAILURE", 1)
    assert over.error is not None
    assert "a step keeps at most 10,000" in over.error.message


def test_a_call_of_another_type_than_recorded_blocks(engine: InProcessEngine) -> None:
    """As after a deploy: no call is made again until the handler is put right."""
    run = engine.start("asks", {"names": NAMES, "fails": [2], "counts": 2})
    engine.run_until_idle()
    engine.advance(1)
    engine.run_until_idle()
    blocked = get_run(engine.engine, run.run_id)

    assert blocked.block is not None
    assert (blocked.status, blocked.block.code) == ("BLOCKED", "handler_mistake")
    assert (
        "The result of the call 'one' was recorded as str, and the call returns int now: "
        "give a call of another type another key."
    ) in blocked.block.finding
    assert MADE == ["one", "two"]


# -- large results -------------------------------------------------------------------------------


def test_large_results_lie_with_the_temporary_files_of_the_step(engine: InProcessEngine) -> None:
    run = engine.start("asks", {"names": NAMES, "fails": [2], "size": LARGE})
    engine.run_until_idle()
    left = get_run(engine.engine, run.run_id)
    calls, files = recorded(engine, run), temporary(engine, left)
    done = engine.run_until_settled(run.run_id)

    folder = step_folder(run, "ask", 1)
    assert sorted(call.ref or "" for call in calls) == sorted(files)
    assert {file.rpartition("/")[0] for file in files} == {folder}
    assert {folder} < {*left.owed}
    assert [call.inline for call in calls] == [None, None]
    assert (done.status, MADE) == ("COMPLETED", [*NAMES, "told"])
    assert counted(done) == CallCount(made=3, spared=2)


def _overwrite(path: Path, data: bytes) -> None:
    path.write_bytes(data)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: _overwrite(path, b"not gzip"),
        lambda path: _overwrite(path, path.read_bytes()[:-9]),
        lambda path: _overwrite(path, zlib.compress(b'"another"', wbits=31)),
        lambda path: _overwrite(path, b""),
    ],
    ids=["deleted", "not gzip", "cut off", "another text", "empty"],
)
def test_a_large_result_that_is_damaged_is_made_again(
    engine: InProcessEngine,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[Path], object],
) -> None:
    """Never half-used, and the step never failed for it."""
    run = engine.start("asks", {"names": NAMES, "fails": [2], "size": LARGE})
    engine.run_until_idle()
    first = recorded(engine, run)[0]
    damage(tmp_path / "artifacts" / (first.ref or ""))

    done = engine.run_until_settled(run.run_id)

    assert (done.status, MADE) == ("COMPLETED", ["one", "two", "one", "three", "told"])
    assert counted(done) == CallCount(made=4, spared=1)
    assert engine.output(run.run_id, "ask")[0].startswith("one 3 ")
    (line,) = [line for line in caplog.messages if "is lost" in line]
    assert line.startswith("the result of call 'one' is lost, it is made again: ")
    assert "xxx" not in line


@pytest.mark.parametrize(
    "ref",
    [
        "../../../etc/passwd",
        "runs/r-other/checkpoints/ask-1/1-a.json.gz",
        "runs/{run}/01234567/checkpoints/ask-1/1-a.json.gz",
        "runs/{run}/../x",
        "",
    ],
)
def test_a_reference_that_leads_elsewhere_is_none(engine: InProcessEngine, ref: str) -> None:
    """It does not matter what wrote it there."""
    run = engine.start("asks", {"names": NAMES, "fails": [2], "size": LARGE})
    engine.run_until_idle()

    documents = engine.engine.documents
    found = documents.query(Query(calls_of(run.run_id), order_by="at"))[0]
    turned = {**found.document, "ref": ref.replace("{run}", run.run_id)}
    documents.transact(found.ref, lambda _, __: Write(None, turned))
    done = engine.run_until_settled(run.run_id)

    assert (done.status, MADE) == ("COMPLETED", ["one", "two", "one", "three", "told"])


# -- kept results --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [10, LARGE])
def test_a_blocked_step_that_runs_again_pays_for_nothing_unless_a_person_says_so(
    engine: InProcessEngine, size: int
) -> None:
    run = engine.start("judged", {"names": NAMES, "keep": ["two"], "size": size})
    engine.run_until_idle()
    blocked, calls = get_run(engine.engine, run.run_id), recorded(engine, run)
    engine.retry(run.run_id, reason="once more")
    again = engine.run_until_settled(run.run_id)
    made_by_then = [*MADE]
    engine.retry(run.run_id, reason="all of it", anew=True)
    done = engine.run_until_settled(run.run_id)

    assert (blocked.status, len(calls)) == ("BLOCKED", 3)
    assert (again.status, made_by_then) == ("BLOCKED", NAMES)
    assert (done.status, MADE) == ("COMPLETED", NAMES * 2)
    *_, kept = recorded(engine, run)
    assert (kept.key, kept.keep, kept.ref is None) == ("two", True, size == 10)
    if kept.ref:
        assert kept.ref.startswith(f"{values_folder(run)}/ask-judged-call-")


# -- outages and lost leases ---------------------------------------------------------------------


@pytest.mark.parametrize(("what", "size"), [("artifacts", LARGE), ("store", 10)])
def test_a_result_outlasts_an_outage_that_its_lease_outlasts(
    engine: InProcessEngine, what: str, size: int
) -> None:
    """It is paid for: it is asked again until it is recorded."""
    away = {"artifacts": engine.faults.artifacts_away, "store": engine.faults.store_away}[what]
    DOES.append(lambda: away(20))
    run = engine.start("asks", {"names": ["one", "two"], "size": size})
    done = engine.run_until_settled(run.run_id)

    assert (done.status, MADE) == ("COMPLETED", ["one", "two", "told"])
    assert done.steps["ask"].attempts.ended == 0
    assert (engine.clock.now() - done.created_at).total_seconds() >= 20


@pytest.mark.parametrize("seconds", [600, pytest.param(9 * 3600, marks=pytest.mark.nightly)])
def test_a_night_without_a_store_in_the_middle_of_a_step_gives_nothing_up(
    engine: InProcessEngine, seconds: int
) -> None:
    """The call that was under way alone is made again, in the morning."""
    DOES.extend([lambda: engine.faults.store_away(seconds), lambda: None])  # the last one is first
    run = engine.start("asks", {"names": ["one", "two"], "size": 10})
    done = engine.run_until_settled(run.run_id)

    attempts = done.steps["ask"].attempts
    assert (done.status, MADE) == ("COMPLETED", ["one", "two", "two", "told"])
    assert (attempts.failed, attempts.deferred + attempts.expired > 0) == (0, True)
    assert (engine.clock.now() - done.created_at).total_seconds() >= seconds


def test_a_long_outage_of_the_artifacts_defers_the_attempt(engine: InProcessEngine) -> None:
    """An outage is not a failure; what could not be recorded has to be made again."""
    DOES.append(lambda: engine.faults.artifacts_away(300))
    run = engine.start("asks", {"names": ["one"], "size": LARGE})
    done = engine.run_until_settled(run.run_id)

    attempts = done.steps["ask"].attempts
    assert (done.status, MADE[0], MADE[-1]) == ("COMPLETED", "one", "told")
    assert (attempts.failed, attempts.interrupted, attempts.expired) == (0, 0, 0)
    assert attempts.deferred == len(MADE) - 2 >= 1
    assert counted(done) == CallCount(made=1, spared=0)


def test_who_lost_the_lease_records_what_was_paid_for(engine: InProcessEngine) -> None:
    """A person cancelled the run while the call was made: one that is recreated from it has it."""
    DOES.append(lambda: engine.cancel(run.run_id, reason="enough"))
    run = engine.start("asks", {"names": ["one"], "size": LARGE})
    engine.run_until_idle()

    left = get_run(engine.engine, run.run_id)
    assert (left.cancelled, [call.key for call in recorded(engine, run)]) == (True, ["one"])
