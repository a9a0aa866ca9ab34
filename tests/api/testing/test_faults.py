"""Faults of production, ordered by a test at a point that it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasehold import testing
from leasehold.domain.artifact_name import files_folder
from leasehold.errors import InvalidRequestError, StoreUnavailableError
from leasehold.testing import InProcessEngine
from tests.api.testing import letters
from tests.api.testing.letters import DONE
from tests.worlds.catalogs import once as once_catalog

WORDS = {"words": ["one", "two", "three"]}


def story(engine: InProcessEngine, run_id: str) -> list[str]:
    return [event.type for event in engine.trace(run_id)]


def test_an_attempt_that_is_killed_is_taken_up_from_its_checkpoint(engine: InProcessEngine) -> None:
    """As at SIGKILL nothing is released: the lease has to run out."""
    engine.faults.kill_at_checkpoint("write", n=2)
    run = engine.start("letters", WORDS)

    engine.run_until_idle()
    left = engine.show(run.run_id)
    done = engine.run_until_settled(run.run_id)

    assert (left.status, left.position.lease is not None) == ("IN_PROGRESS", True)
    assert done.status == "COMPLETED"
    assert [DONE[run.run_id, word] for word in WORDS["words"]] == [1, 1, 1]
    assert done.steps["write"].attempts.expired == 1
    assert story(engine, run.run_id).count("checkpoint_resumed") == 1
    assert engine.output(run.run_id, "write") == {"lines": ["ONE", "TWO", "THREE"]}
    assert engine.faults.pending == []


def test_an_attempt_that_is_killed_at_a_call_is_followed_by_one_that_has_its_result(
    tmp_path: Path,
) -> None:
    with testing.engine(once_catalog, tmp_path) as engine:
        engine.faults.kill_at_call("ask", n=2)
        run = engine.start("asks", {"names": ["one", "two", "three"]})

        done = engine.run_until_settled(run.run_id)

    assert done.status == "COMPLETED"
    assert once_catalog.MADE == ["one", "two", "three", "told"]
    assert done.steps["ask"].attempts.expired == 1
    assert engine.faults.pending == []


def test_an_attempt_of_a_coroutine_is_killed_likewise(engine: InProcessEngine) -> None:
    engine.faults.kill_at_checkpoint("write_later", n=1)
    run = engine.start("later", WORDS)

    done = engine.run_until_settled(run.run_id)

    assert done.status == "COMPLETED"
    assert [DONE[run.run_id, word] for word in WORDS["words"]] == [1, 1, 1]
    assert done.steps["write_later"].attempts.expired == 1


def test_what_a_dead_process_catches_helps_it_nothing(engine: InProcessEngine) -> None:
    """Nor its own thread: it is of the same process."""
    engine.faults.kill_at_checkpoint()

    killed = engine.run("threads", WORDS)
    done = engine.run_until_settled(killed.run_id)

    assert killed.status == "IN_PROGRESS"
    assert engine.output(done.run_id) == {"lines": ["attempt 2"]}
    assert engine.engine.artifacts.list(files_folder(done)) == []


def test_a_run_goes_on_in_the_next_engine_on_its_store(tmp_path: Path) -> None:
    with testing.engine(letters, tmp_path) as first:
        first.faults.kill_at_checkpoint(n=2)
        run = first.run("letters", WORDS)
    with testing.engine(letters, tmp_path, clock=first.clock) as second:
        adopted = second.adopt_all()
        done = second.run_until_settled(run.run_id)

    assert (adopted, done.status) == (1, "COMPLETED")
    assert [DONE[run.run_id, word] for word in WORDS["words"]] == [1, 1, 1]


def test_work_that_was_done_and_not_recorded_is_done_again(engine: InProcessEngine) -> None:
    engine.faults.kill_before_settlement("send")
    run = engine.start("letters", WORDS)

    done = engine.run_until_settled(run.run_id)

    assert (done.status, DONE[run.run_id, "send"]) == ("COMPLETED", 2)
    assert done.steps["send"].attempts.expired == 1


def test_a_handler_that_hears_sigterm_is_dispatched_again_at_once(engine: InProcessEngine) -> None:
    engine.faults.sigterm_at_checkpoint("write")
    run = engine.start("letters", WORDS)
    began = engine.clock.now()

    engine.run_until_idle()
    done = engine.show(run.run_id)

    assert (done.status, engine.clock.now()) == ("COMPLETED", began)
    assert done.steps["write"].attempts.interrupted == 1
    assert [DONE[run.run_id, word] for word in WORDS["words"]] == [1, 1, 1]


@pytest.mark.parametrize("step", ["write", "send"])
def test_a_task_that_is_lost_is_found_by_the_sweep(engine: InProcessEngine, step: str) -> None:
    engine.faults.lose_task(step)
    run = engine.start("letters", WORDS)
    began = engine.clock.now()

    engine.run_until_idle()
    lost = engine.show(run.run_id)
    done = engine.run_until_settled(run.run_id)

    assert (lost.status, lost.current_step) == ("PENDING", step)
    assert done.status == "COMPLETED"
    assert (engine.clock.now() - began).total_seconds() >= 60
    assert "step_redispatched" in story(engine, run.run_id)


@pytest.mark.parametrize("concurrently", [False, True])
def test_a_task_that_comes_twice_runs_once(engine: InProcessEngine, concurrently: bool) -> None:
    engine.faults.deliver_twice("send", concurrently=concurrently)
    run = engine.start("letters", WORDS)

    delivered = engine.run_until_idle()

    assert engine.show(run.run_id).status == "COMPLETED"
    assert (delivered, DONE[run.run_id, "send"]) == (2 if concurrently else 3, 1)
    assert engine.faults.pending == []


def test_an_answer_that_was_lost_is_given_again(engine: InProcessEngine) -> None:
    engine.faults.lose_answer("send")
    run = engine.start("letters", WORDS)

    done = engine.run_until_settled(run.run_id)

    assert (done.status, DONE[run.run_id, "send"]) == ("COMPLETED", 1)
    assert done.steps["send"].attempts.ended == 0


@pytest.mark.parametrize("store", ["store_away", "artifacts_away"])
def test_finished_work_outlasts_a_store_that_is_away_for_20_s(
    engine: InProcessEngine, store: str
) -> None:
    """And the test does not wait: the clock does."""
    getattr(engine.faults, store)(20, "send")
    run = engine.start("letters", WORDS)
    began = engine.clock.now()

    done = engine.run_until_settled(run.run_id)

    assert (done.status, DONE[run.run_id, "send"]) == ("COMPLETED", 1)
    assert 20 <= (engine.clock.now() - began).total_seconds() < 30


def test_a_store_that_stays_away_costs_no_retry(engine: InProcessEngine) -> None:
    engine.faults.store_away(600, "send")
    run = engine.start("letters", WORDS)

    done = engine.run_until_settled(run.run_id)

    assert (done.status, DONE[run.run_id, "send"]) == ("COMPLETED", 2)
    assert done.steps["send"].attempts.failed == 0


def test_a_store_that_is_away_now_refuses_a_start(engine: InProcessEngine) -> None:
    engine.faults.store_away(20)

    with pytest.raises(StoreUnavailableError, match="away, as the test ordered"):
        engine.start("letters", WORDS)

    engine.advance(20)
    assert engine.run("letters", WORDS).status == "COMPLETED"


def test_a_handler_that_waits_for_long_keeps_its_lease(engine: InProcessEngine) -> None:
    """100 s pass at once, and its lease of 30 s is renewed meanwhile."""
    began = engine.clock.now()

    done = engine.run("slow", WORDS)

    assert (done.status, DONE[done.run_id, "send"]) == ("COMPLETED", 1)
    assert (engine.clock.now() - began).total_seconds() == 100


def test_an_engine_with_threads_meets_outages_of_real_time(tmp_path: Path) -> None:
    settings = {"PIPELINE_MIN_BACKOFF_S": "0.05"}
    with testing.engine(
        letters, tmp_path, workers=1, clock=testing.system_clock(), settings=settings
    ) as engine:
        engine.faults.artifacts_away(0.3, "send")
        run = engine.start("letters", WORDS)
        done = engine.wait(run.run_id, 30)

    assert (done.status, DONE[run.run_id, "send"]) == ("COMPLETED", 1)


def test_what_cannot_be_ordered_is_refused_in_one_line(
    engine: InProcessEngine, tmp_path: Path
) -> None:
    faults = engine.faults
    with pytest.raises(InvalidRequestError, match="step is 'wirte'; allowed: write, write_later"):
        faults.kill_at_checkpoint("wirte")
    with pytest.raises(InvalidRequestError, match="n is '0'; allowed: a whole number from 1"):
        faults.sigterm_at_checkpoint("write", n=0)
    for seconds in (0, -1, float("nan"), "20", True):
        with pytest.raises(
            InvalidRequestError, match=r"seconds is .*; allowed: a timedelta or seconds above"
        ):
            faults.store_away(seconds)  # type: ignore[arg-type]
    with (
        testing.engine(letters, tmp_path / "threads", workers=1) as threaded,
        pytest.raises(InvalidRequestError, match="workers is '1'; allowed: 0"),
    ):
        threaded.faults.kill_at_checkpoint()
    assert (faults.pending, faults.is_ordered) == ([], False)


def test_what_did_not_happen_is_told(engine: InProcessEngine) -> None:
    """Or a test that orders the 9th of 3 checkpoints would pass for nothing."""
    engine.faults.kill_at_checkpoint("write", n=9)

    engine.run("letters", WORDS)

    assert engine.faults.pending == ["kill at checkpoint 9 of step 'write'"]
