"""The events of a run, one line each."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from leasehold.domain.trace import TraceEvent
from leasehold.presentation.event_line import event_name, event_reason, event_sentence, has_trials

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def event(type_: str, **facts: Any) -> TraceEvent:
    return TraceEvent.model_validate({"type": type_, "at": NOON, "step": "draft"} | facts)


def test_who_watches_a_run_reads_what_happened_and_why() -> None:
    failed = event("step_error", attempt=2, reason="AgentClientError", detail="busy")

    assert event_sentence(failed) == "step draft failed, attempt 2: AgentClientError: busy"
    assert event_sentence(event("run_completed")) == "run completed"


def test_who_watches_a_run_reads_that_an_attempt_is_continued() -> None:
    continued = event("step_continued", attempt=2, detail="The handler asked for it.")

    words = "step draft to be continued, attempt 2: The handler asked for it."
    assert event_sentence(continued) == words


def test_an_event_that_is_part_of_another_is_not_announced() -> None:
    assert event_sentence(event("step_handed_off")) is None


def test_the_end_of_a_run_that_was_given_up_stands_out() -> None:
    given_up = event_name(event("step_dead_lettered"))

    assert (given_up.text, given_up.on_screen, given_up.style) == (
        "step_dead_lettered",
        "💀 step_dead_lettered",
        "bold red",
    )
    assert event_name(event("run_paused")) == ("run_paused", "", None)


def test_what_a_person_did_is_shown_with_the_person_and_the_new_run() -> None:
    made = event("run_recreated", actor="ada@vm", reason="fixed", recreatedAs="r-2")

    assert event_reason(made) == "by ada@vm: fixed: as r-2"
    assert event_reason(event("step_started")) == ""
    begun = event("children_begun", detail="pricing", runs=["r-7"])
    assert event_reason(begun) == "pricing: r-7"
    lanes = event("children_begun", detail="7 for 9 items", runs=[f"l-{n}" for n in range(7)])
    assert event_reason(lanes) == "7 for 9 items: l-0, l-1, l-2, l-3, l-4 and 2 more"
    assert event_reason(event("children_begun", detail="of later", runs="r-7")) == "of later"


def test_the_words_that_a_person_gave_a_step_are_shown() -> None:
    approved = event("run_approved", actor="ada@vm", reason="one number was wrong", edited=True)
    retried = event("run_retried", actor="ada@vm", anew=True, note="make it\nshorter" + "!" * 300)

    assert event_reason(approved) == "by ada@vm: one number was wrong: edited"
    assert event_reason(retried).startswith("by ada@vm: anew, note: make it shorter!!!")
    assert len(event_reason(retried)) < 250


def test_an_approval_of_a_call_names_it() -> None:
    confirmed = event("run_approved", actor="ada@vm", call="order\x1b[2J")

    assert event_reason(confirmed) == r"by ada@vm: call order\x1b[2J has happened"


def test_events_of_a_later_trial_say_so_and_what_became_of_it() -> None:
    opened = event("author_slot_opened", trial=2, detail="step review did not settle")
    chosen = event("trial_chosen", trial=1, reason="trials_used_up", detail="score 0.9")

    assert event_sentence(event("step_started", trial=1)) == "step draft started"
    assert event_sentence(event("step_started", trial=2)) == "step draft started, trial 2"
    assert event_sentence(opened) == "trial 2 begins at step draft: step review did not settle"
    assert event_sentence(chosen) == "trial 1 counts: trials_used_up: score 0.9"
    assert [has_trials([event("step_started", trial=trial)]) for trial in (1, 2)] == [False, True]


def test_an_output_that_is_not_whole_is_told() -> None:
    partial = event("step_completed", outputStatus="PARTIAL")

    assert event_sentence(partial) == "step draft completed: PARTIAL"
    assert event_reason(partial) == "PARTIAL"
    assert event_sentence(event("step_completed", outputStatus="SUCCESS")) == "step draft completed"


def test_an_announcement_is_shown_with_its_channel_result_and_tries() -> None:
    facts = {"runEvent": "run_completed", "channel": "pager"}
    sent = TraceEvent.model_validate({"type": "announcement_sent", "at": NOON, **facts, "tries": 1})
    late = sent.model_copy(update={"tries": 3, "unknown": 1})
    given_up = TraceEvent.model_validate(
        {
            "type": "announcement_given_up",
            "at": NOON,
            **facts,
            "reason": "channel_refused",
            "detail": "404",
        }
    )

    assert event_reason(sent) == "run_completed to pager"
    assert event_reason(late) == "run_completed to pager, 3 tries, 1 unknown"
    assert event_reason(given_up) == "run_completed to pager: channel_refused: 404"
    assert (
        event_sentence(given_up) == "announcement to channel pager given up: channel_refused: 404"
    )
    assert event_sentence(sent) is None
