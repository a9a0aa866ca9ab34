"""The engine without threads: what is due runs when the test says so."""

from __future__ import annotations

import json

import pytest

from leasehold.domain.artifact_name import files_folder
from leasehold.errors import (
    HandlerNotFoundError,
    IdempotencyKeyReusedError,
    InvalidInputError,
    InvalidRequestError,
    TooLargeError,
    UnknownPipelineError,
    UnknownRunError,
)
from leasehold.testing import FrozenClock, InProcessEngine


def outputs(engine: InProcessEngine, run_id: str) -> dict[str, object]:
    steps = engine.show(run_id).steps
    return {name: json.loads(step.output) for name, step in steps.items() if step.output}


def story(engine: InProcessEngine, run_id: str) -> list[str]:
    return [f"{event.type} {event.step or ''}".strip() for event in engine.trace(run_id)]


def test_a_run_goes_through_its_steps_and_hands_each_output_on(engine: InProcessEngine) -> None:
    run = engine.start("three", {"n": 1})

    engine.run_until_idle()

    done = engine.show(run.run_id)
    assert done.status == "COMPLETED"
    assert outputs(engine, run.run_id) == {
        "add": {"n": 2},
        "add_later": {"n": 3},
        "add_again": {"n": 4},
    }
    assert done.position.lease is None
    assert done.alarm_at is None
    assert story(engine, run.run_id) == [
        "run_started",
        "step_started add",
        "step_completed add",
        "step_handed_off add",
        "step_started add_later",
        "step_completed add_later",
        "step_handed_off add_later",
        "step_started add_again",
        "step_completed add_again",
        "run_completed",
    ]


def test_a_failed_attempt_is_repeated_at_its_backoff(
    engine: InProcessEngine, clock: FrozenClock
) -> None:
    """10 s, then 20 s: not before, and the error is kept whole meanwhile."""
    run = engine.start("recovers", {"n": 1})

    engine.run_until_idle()

    failed = engine.show(run.run_id)
    assert failed.status == "ERROR"
    assert failed.error is not None
    assert failed.error.code == "overloaded"
    assert failed.error.message == "the model is busy"
    assert failed.error.validation_issues == ({"status": 529},)
    assert failed.error.attempt == 1

    clock.advance(7.9)
    assert engine.run_until_idle() == 0
    clock.advance(2.1)
    assert engine.run_until_idle() == 1
    clock.advance(20)
    engine.run_until_idle()

    done = engine.show(run.run_id)
    assert done.status == "COMPLETED"
    assert done.steps["fail_twice"].attempts.failed == 2
    assert [e.attempt for e in engine.trace(run.run_id) if e.type == "step_error"] == [1, 2]


def test_a_run_out_of_retries_is_dead_lettered_with_its_last_error(
    engine: InProcessEngine, clock: FrozenClock
) -> None:
    run = engine.start("fails", {"n": 7})

    for _ in range(5):
        engine.run_until_idle()
        clock.advance(300)

    dead = engine.show(run.run_id)
    assert dead.dead_lettered
    assert dead.dead_letter_reason == "RETRIES_EXHAUSTED"
    assert dead.position.attempts.failed == 3
    assert dead.alarm_at is None
    assert dead.error is not None
    assert dead.error.type == "ValueError"
    assert dead.error.message == "fail cannot do 8"
    assert dead.error.origin is not None
    assert dead.error.origin.startswith("sample.py:")


@pytest.mark.parametrize(
    ("pipeline", "code", "reason"),
    [
        ("refuses", "folder_missing", "PERMANENT_FAILURE"),
        ("exits", "handler_raised", "RETRIES_EXHAUSTED"),
        ("misfits", "invalid_output", "RETRIES_EXHAUSTED"),
    ],
)
def test_each_way_to_fail_is_told_apart(
    engine: InProcessEngine, pipeline: str, code: str, reason: str
) -> None:
    run = engine.start(pipeline, {"n": 1})

    engine.run_until_idle()

    dead = engine.show(run.run_id)
    assert dead.dead_letter_reason == reason
    assert dead.error is not None
    assert dead.error.code == code


def test_an_output_that_does_not_fit_names_its_fields(engine: InProcessEngine) -> None:
    run = engine.start("misfits", {"n": 1})

    engine.run_until_idle()

    error = engine.show(run.run_id).error
    assert error is not None
    assert error.validation_issue_count == 1
    assert error.validation_issues[0]["path"] == "n"
    assert error.validation_issues[0]["input"] == "'many'"


def test_an_input_that_a_later_step_cannot_take_is_a_permanent_failure(
    engine: InProcessEngine, clock: FrozenClock
) -> None:
    """The output of `large` has a field that `add` ignores; its text lies in the artifacts."""
    run = engine.start("large_then", {"n": 5})

    engine.run_until_idle()

    done = engine.show(run.run_id)
    assert done.status == "COMPLETED"
    assert done.steps["large"].output is None
    assert done.steps["large"].output_ref is not None
    assert done.steps["add"].output == '{"n":6}'


def test_an_output_may_say_that_it_is_partial(engine: InProcessEngine) -> None:
    run = engine.start("half", {"n": 1})

    engine.run_until_idle()

    assert engine.show(run.run_id).steps["half"].output_status == "PARTIAL"


def test_a_step_can_read_outputs_further_back(engine: InProcessEngine) -> None:
    run = engine.start("sums", {"n": 1})

    engine.run_until_idle()

    assert outputs(engine, run.run_id)["sum_of_two"] == {"n": 5}


def test_files_of_a_run_stay_within_it(engine: InProcessEngine) -> None:
    run = engine.start("files", {"n": 1})

    engine.run_until_idle()

    written = outputs(engine, run.run_id)["write_file"]
    assert isinstance(written, dict)
    assert written["files"] == ["notes/one.txt"]
    assert f"{files_folder(run)}/notes/one.txt" in written["address"]


def test_the_same_key_and_input_name_the_same_run(engine: InProcessEngine) -> None:
    first = engine.start("three", {"n": 1}, idempotency_key="k")
    engine.run_until_idle()

    again = engine.start("three", {"n": 1}, idempotency_key="k")

    assert again.run_id == first.run_id
    assert again.status == "COMPLETED"
    assert engine.run_until_idle() == 0


def test_a_key_that_started_something_else_is_refused(engine: InProcessEngine) -> None:
    engine.start("three", {"n": 1}, idempotency_key="k")

    with pytest.raises(IdempotencyKeyReusedError, match="another input"):
        engine.start("three", {"n": 2}, idempotency_key="k")
    with pytest.raises(IdempotencyKeyReusedError, match="another pipeline"):
        engine.start("sums", {"n": 1}, idempotency_key="k")
    with pytest.raises(IdempotencyKeyReusedError, match="another set of labels"):
        engine.start("three", {"n": 1}, idempotency_key="k", labels={"team": "a"})


@pytest.mark.parametrize(
    ("pipeline", "given", "options", "error", "says"),
    [
        ("nope", {"n": 1}, {}, UnknownPipelineError, "known: three, recovers"),
        ("three", {"n": "x"}, {}, InvalidInputError, "does not fit Number: n: Input should be"),
        ("three", {"n": float("nan")}, {}, InvalidInputError, "JSON"),
        ("three", {"n": 1, "pad": "x" * 1_100_000}, {}, TooLargeError, "at most 1048576"),
        ("three", {"n": 1}, {"idempotency_key": ""}, InvalidRequestError, "idempotencyKey"),
        ("three", {"n": 1}, {"labels": {"a:b": "c"}}, InvalidRequestError, "labels"),
        ("elsewhere", {"n": 1}, {}, HandlerNotFoundError, "has no 'no_such_handler'"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    engine: InProcessEngine, pipeline: str, given: object, options: dict, error: type, says: str
) -> None:
    with pytest.raises(error, match=says):
        engine.start(pipeline, given, **options)

    assert engine.adopt_all() == 0
    assert list(engine.engine.artifacts.list("")) == []


def test_an_unknown_run_is_said_to_be_unknown(engine: InProcessEngine) -> None:
    with pytest.raises(UnknownRunError, match="r-none"):
        engine.show("r-none")


def test_a_run_whose_next_step_runs_elsewhere_waits_there(engine: InProcessEngine) -> None:
    """A remote step has no worker here: it is dispatched and not taken by this worker."""
    run = engine.start("away", {"n": 1})

    ran = engine.run_until_idle()

    waiting = engine.show(run.run_id)
    assert ran == 1
    assert waiting.current_step == "away"
    assert waiting.status == "PENDING"
    assert waiting.alarm_at is not None


def test_a_run_can_be_run_in_the_callers_own_thread(engine: InProcessEngine) -> None:
    """The lease of the first step comes with the start, in one commit."""
    done = engine.run("three", {"n": 1})

    assert done.status == "COMPLETED"
    assert done.position.dispatch.generation == 3
    assert done.fencing_token == 3
    assert engine.run_until_idle() == 0


def test_a_run_in_the_callers_thread_that_fails_waits_for_its_retry(
    engine: InProcessEngine, clock: FrozenClock
) -> None:
    failed = engine.run("recovers", {"n": 1})
    clock.advance(10)
    engine.run_until_idle()
    clock.advance(20)
    engine.run_until_idle()

    assert failed.status == "ERROR"
    assert engine.show(failed.run_id).status == "COMPLETED"


def test_a_manifest_stays_small_whatever_its_steps_return(engine: InProcessEngine) -> None:
    """Ten outputs of 30 KB are more than a document may have; the later ones lie beside it."""
    done = engine.run("much", {})

    assert done.status == "COMPLETED"
    assert len(done.model_dump_json()) < 256 * 1024
    assert [record.output_ref is not None for record in done.steps.values()] == [False] * 6 + [
        True
    ] * 4
