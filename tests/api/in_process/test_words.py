"""A person's words reach the handler: notes, edited outputs, and a gate after the trials."""

from __future__ import annotations

import pytest

from leasehold.domain.checkpoint import KeptCounts
from leasehold.errors import (
    InvalidOutputError,
    InvalidRequestError,
    NotAllowedError,
    StateChangedError,
)
from leasehold.testing import InProcessEngine
from tests.worlds.catalogs import reviewed
from tests.worlds.catalogs.reviewed import SEEN

pytestmark = pytest.mark.catalog(reviewed)


@pytest.fixture(autouse=True)
def forget() -> None:
    SEEN.clear()


def blocked(engine: InProcessEngine, scores: list[float]) -> str:
    """A run that a person looks at once its trials are over."""
    run_id = engine.start("paper", {"scores": scores}).run_id
    assert engine.run_until_settled(run_id).status == "BLOCKED"
    return run_id


def approval(engine: InProcessEngine, run_id: str) -> dict[str, object]:
    (event,) = [event for event in engine.trace(run_id) if event.type == "run_approved"]
    return event.model_dump(exclude_none=True, include={"actor", "edited", "reason", "trial"})


def test_a_person_after_the_trials_sees_the_last_one_alone(engine: InProcessEngine) -> None:
    run_id = blocked(engine, [0.1, 0.5, 0.3])
    by_then = [*SEEN]
    engine.approve(run_id, reason="good enough")
    done = engine.run_until_settled(run_id)

    assert by_then == ["write 1", "write 2", "write 3"]
    assert (done.status, engine.output(run_id)) == ("COMPLETED", "text 2")


def test_an_edited_review_opens_another_trial_with_the_persons_findings(
    engine: InProcessEngine,
) -> None:
    run_id = blocked(engine, [1.0])
    edited = {"settled": False, "score": 0.2, "findings": ["name the sources"]}
    engine.approve(run_id, output=edited, reason="no sources")
    again = engine.run_until_settled(run_id)

    assert SEEN == ["write 1", "write 2: name the sources"]
    assert (again.status, again.position.trial) == ("BLOCKED", 2)
    assert approval(engine, run_id) == {
        "actor": "test",
        "edited": True,
        "reason": "no sources",
        "trial": 1,
    }


def test_an_edited_output_is_handed_off_in_place_of_the_one_that_was_kept(
    engine: InProcessEngine,
) -> None:
    run_id = blocked(engine, [1.0])
    edited = reviewed.Review(settled=True, score=0.9, findings=["x" * 40_000])
    engine.approve(run_id, output=edited)
    done = engine.run_until_settled(run_id)

    review = done.steps["review"]
    assert (done.status, review.output_status) == ("COMPLETED", "SUCCESS")
    assert review.verdict is not None
    assert review.verdict.score == 0.9
    assert review.output_ref is not None
    assert engine.output(run_id, "review")["findings"] == edited.findings


@pytest.mark.parametrize(
    "edited", [{"settled": "perhaps", "score": 1, "findings": []}, None, [1, 2], "text"]
)
def test_an_edited_output_that_does_not_fit_changes_nothing(
    engine: InProcessEngine, edited: object
) -> None:
    run_id = blocked(engine, [1.0])
    before = engine.show(run_id)

    with pytest.raises(InvalidOutputError, match="Nothing was changed; correct it and send it"):
        engine.approve(run_id, output=edited)

    assert engine.show(run_id) == before


def test_an_output_is_edited_only_where_one_waits_for_a_decision(engine: InProcessEngine) -> None:
    run_id = engine.start("paper", {"scores": [1.0]}).run_id

    with pytest.raises(NotAllowedError):
        engine.approve(run_id, output={})


def test_an_approval_with_another_output_is_no_repeat_of_the_first(
    engine: InProcessEngine,
) -> None:
    run_id = blocked(engine, [1.0])
    generation = engine.show(run_id).position.dispatch.generation
    edited = {"settled": False, "score": 0.2, "findings": []}
    engine.approve(run_id, output=edited, generation=generation)
    again = engine.approve(run_id, output=edited, generation=generation)

    with pytest.raises(StateChangedError, match="generation"):
        engine.approve(run_id, output={**edited, "score": 0.3}, generation=generation)

    assert again.position.trial == 2


def test_a_note_lasts_until_its_step_is_handed_off(engine: InProcessEngine) -> None:
    run_id = engine.start("notes", {"fails": 3}).run_id
    engine.run_until_idle()
    assert engine.show(run_id).status == "ERROR"
    retried = engine.retry(run_id, note="make it shorter\nand kinder")
    done = engine.run_until_settled(run_id)

    assert retried.position.note == "make it shorter\nand kinder"
    assert ["None", *["make it shorter\nand kinder"] * 3, "after: None"] == SEEN
    assert (done.status, done.position.note) == ("COMPLETED", None)
    (event,) = [event for event in engine.trace(run_id) if event.type == "run_retried"]
    assert event.model_extra is not None
    assert event.model_extra["note"] == "make it shorter\nand kinder"


@pytest.mark.sandboxed
def test_a_note_reaches_a_handler_in_its_own_process(engine: InProcessEngine) -> None:
    run_id = engine.start("echoes", {}).run_id
    assert engine.run_until_settled(run_id).status == "BLOCKED"
    engine.retry(run_id, note="once more")
    engine.run_until_settled(run_id)

    assert engine.output(run_id, "echo") == "once more"


@pytest.mark.parametrize("note", ["x" * 20_000, "", " \n ", "a\x1b[2J", "\x00", "ä" * 2049])
def test_an_unreadable_note_changes_nothing(engine: InProcessEngine, note: str) -> None:
    run_id = blocked(engine, [1.0])
    before = engine.show(run_id)

    with pytest.raises(InvalidRequestError, match=r"note is .*; allowed: a text of 1 to 4096"):
        engine.retry(run_id, note=note)

    assert engine.show(run_id) == before


def test_a_retried_review_keeps_its_trial_and_anew_begins_them_again(
    engine: InProcessEngine,
) -> None:
    run_id = blocked(engine, [0.1, 0.5, 0.3])
    kept = engine.retry(run_id, reason="look again")
    assert engine.run_until_settled(run_id).status == "BLOCKED"
    anew = engine.retry(run_id, reason="from the first", anew=True)

    assert (kept.position.trial, anew.position.trial) == (3, 1)
    assert kept.operations[-1].kept == KeptCounts(steps=1, trials=2)
    assert anew.operations[-1].kept == KeptCounts(steps=1)
