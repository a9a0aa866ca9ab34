"""What a program does with a client; over a server and on a store it is the same."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold import Client, Manifest
from leasehold.errors import (
    IdempotencyKeyReusedError,
    InvalidInputError,
    InvalidRequestError,
    NotAllowedError,
    ResultMismatchError,
    RunNotCompletedError,
    RunUnfinishedError,
    StateChangedError,
    TooLargeError,
    UnknownFileError,
    UnknownPipelineError,
    UnknownRunError,
    UnknownStepError,
)
from tests.api.client.conftest import Asking
from tests.worlds.catalogs.client import Answer, Question


class Longer(Answer):
    """What no step gives."""

    length: int


def test_a_run_is_started_waited_for_and_read_as_its_model(client: Client, asking: Asking) -> None:
    told: list[Manifest] = []
    run = asking.start(given=Question(text="why me?"), labels={"team": "a"})

    ended = client.wait(run, 30, on_change=told.append)

    assert client.result(run, Answer) == Answer(text="WHY ME?", words=2)
    assert client.result(ended) == {"text": "WHY ME?", "words": 2}
    assert client.result(run.run_id, dict[str, Any]) == client.output(run) == client.result(run)
    assert told[-1] == ended
    assert (ended.status, ended.labels) == ("COMPLETED", ("team:a",))
    assert [event.type for event in client.trace(run)][-1] == "run_completed"


def test_an_input_is_a_model_or_what_json_has(client: Client) -> None:
    same = [
        client.start("answers", given, idempotency_key="k").run_id
        for given in (Question(text="why?"), {"theText": "why?"})
    ]

    assert same[0] == same[1]
    for given in (float("nan"), object(), {"theText": "\udce9"}, {"theText": {float("inf")}}):
        with pytest.raises(InvalidRequestError, match=r"input is .*; allowed: a pydantic model"):
            client.start("answers", given)
    assert len(list(client.runs())) == 1


def test_what_cannot_be_started_is_said(client: Client) -> None:
    client.start("answers", {"theText": "why?"}, idempotency_key="k")
    with pytest.raises(UnknownPipelineError, match="'ansers' is not known; known: answers"):
        client.start("ansers", {})
    with pytest.raises(InvalidInputError, match="does not fit Question: "):
        client.start("answers", {"text": 1})
    with pytest.raises(TooLargeError, match="allowed: at most"):
        client.start("answers", {"theText": "x" * 1_100_000})
    with pytest.raises(IdempotencyKeyReusedError, match="use a new key"):
        client.start("answers", {"theText": "what?"}, idempotency_key="k")
    with pytest.raises(InvalidRequestError, match="labels"):
        client.start("answers", {"theText": "why?"}, labels={"": "x"})
    with pytest.raises(InvalidRequestError, match="idempotencyKey"):
        client.start("answers", {"theText": "why?"}, idempotency_key="a\nb")

    assert len(list(client.runs())) == 1


def test_a_run_without_a_result_says_why(client: Client, asking: Asking) -> None:
    dead = asking.end("refuses")
    with pytest.raises(RunNotCompletedError, match=r"PERMANENT_FAILURE: .*folder is gone") as gone:
        client.result(dead, Answer)
    assert gone.value.details["reason"] == "PERMANENT_FAILURE"
    assert gone.value.details["error"]["code"] == "folder_missing"

    blocked = asking.end(given={"theText": ""})
    with pytest.raises(RunUnfinishedError, match=r"BLOCKED .*words. Ask for more. What wai"):
        client.result(blocked)
    client.cancel(blocked)
    with pytest.raises(RunNotCompletedError, match="it is cancelled and BLOCKED at step ask"):
        client.result(blocked)


def test_a_run_that_moves_has_no_result_yet(client: Client) -> None:
    run = client.recreate(client.cancel(client.start("refuses", {})))
    client.pause(run)
    with pytest.raises(RunUnfinishedError, match=r"paused and PENDING at step refuse. Resume it"):
        client.result(run)


def test_an_output_of_another_model_is_reported_by_its_field(
    client: Client, asking: Asking
) -> None:
    run = asking.end()

    with pytest.raises(ResultMismatchError, match=r"does not fit Longer: length: Field required"):
        client.result(run, Longer)
    with pytest.raises(ResultMismatchError, match=r"does not fit list: it: Input should be a val"):
        client.result(run, list[int])


def test_what_a_run_made_is_read(client: Client, asking: Asking) -> None:
    blocked = asking.end(given={"theText": ""})
    run = asking.end()

    assert client.output(blocked, "ask") == {"text": "", "words": 0}
    assert [(file.name, file.size) for file in client.files(run)] == [("notes/answer.txt", 4)]
    assert client.file(run, "notes/answer.txt") == b"WHY?"
    with pytest.raises(UnknownFileError, match="has no file 'none'"):
        client.file(run, "none")
    with pytest.raises(UnknownStepError, match="it has ask"):
        client.output(run, "none")


def test_why_says_what_a_person_can_do(client: Client) -> None:
    run = client.start("answers", {"theText": "why?"})
    client.pause(run)

    why = client.why(run)

    assert "a person to resume it" in why.words
    assert (why.run_id, why.operations) == (run.run_id, ["resume", "cancel"])


def test_a_wait_ends_in_time_or_when_a_person_has_to_act(client: Client) -> None:
    away = client.start("answers", {"theText": "why?"})
    with pytest.raises(TimeoutError, match=f"run {away.run_id} still moves, PENDING at step ask"):
        client.wait(away, timeout=0)

    client.pause(away)

    assert client.wait(away, timeout=0).paused


def test_runs_are_listed_by_filter_newest_first(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold.client.client._RUNS_PER_PAGE", 2)
    ids = [client.start("answers", {"theText": str(n)}).run_id for n in range(5)]
    client.start("refuses", {}, labels={"team": "a"})

    page = client.page(limit=2, pipeline="answers")
    rest = client.page(limit=9, pipeline="answers", page_token=page.next_page_token)

    assert [run.run_id for run in client.runs(pipeline="answers")] == ids[::-1]
    assert [run.run_id for run in page.runs + rest.runs] == ids[::-1]
    assert [run.pipeline for run in client.runs(label="team:a")] == ["refuses"]
    middle = client.get(ids[2]).created_at
    assert [run.run_id for run in client.runs(until=middle)] == ids[1::-1]
    assert len(list(client.runs(since=middle.isoformat(), step="ask", paused=False))) == 3
    assert list(client.runs(status="BLOCKED", dead_lettered=True)) == []
    for wrong in ({"status": "DONE"}, {"limit": 0}, {"page_token": "?"}, {"pipelines": "x"}):
        with pytest.raises(InvalidRequestError, match="allowed: "):
            client.page(**wrong)  # type: ignore[arg-type]


def test_runs_are_found_by_several_labels_all_of_which_they_have(client: Client) -> None:
    only_a, both = (
        client.start("answers", {"theText": "b"}, labels=labels).run_id
        for labels in ({"team": "a"}, {"team": "a", "env": "b"})
    )
    many = [f"a:{number}" for number in range(17)]

    assert [run.run_id for run in client.runs(label="team:a")] == [both, only_a]
    assert [run.run_id for run in client.runs(label=["team:a", "env:b"])] == [both]
    assert [run.run_id for run in client.runs(label=("env:b", "team:a", "env:b"))] == [both]
    assert list(client.runs(label=many[:16])) == []
    assert client.batch("cancel", {"label": ["team:a", "env:b"]}, limit=9).changed == 1
    for wrong in ([], ["a:b", 1], many):
        with pytest.raises(InvalidRequestError, match=r"label is .*; allowed: "):
            client.page(label=wrong)  # type: ignore[arg-type]


def test_operations_are_traced_and_bound_to_what_was_seen(client: Client) -> None:
    run = client.start("answers", {"theText": "why?"})

    paused = client.pause(run, reason="lunch", generation=run.generation)
    resumed = client.resume(paused)
    with pytest.raises(StateChangedError, match="generation"):
        client.cancel(run, generation=run.generation)
    with pytest.raises(NotAllowedError, match="Cannot approve run"):
        client.approve(run)
    with pytest.raises(NotAllowedError, match="Cannot retry run"):
        client.retry(run)
    with pytest.raises(InvalidRequestError, match="reason"):
        client.cancel(run, reason="a\nb")
    cancelled = client.cancel(run, generation=resumed.generation)
    new = client.recreate(run, input=Question(text="what?"), labels={"team": "b"})

    facts = {event.type: event.model_dump() for event in client.trace(run)}
    assert (paused.paused, resumed.paused, cancelled.cancelled) == (True, False, True)
    assert (facts["run_paused"]["actor"], facts["run_paused"]["reason"]) == ("ada", "lunch")
    assert (client.get(new).input, new.labels) == ('{"theText":"what?"}', ("team:b",))


def test_a_batch_counts_what_it_did(client: Client) -> None:
    for _ in range(3):
        client.start("answers", {"theText": "why?"})

    tried = client.batch("cancel", {"pipeline": "answers"}, limit=9, dry_run=True)
    done = client.batch("cancel", {"pipeline": "answers", "status": None}, limit=2)
    again = client.batch("cancel", {"pipeline": "answers"}, limit=9, reason="once more")

    assert (tried.matched, tried.changed, done.changed, again.changed) == (3, 0, 2, 1)
    assert {code for _, code in again.refused} == {"not_allowed"}
    for wrong in ({"limit": 0}, {"limit": 1, "from_step": "ask"}):
        with pytest.raises(InvalidRequestError, match="allowed: "):
            client.batch("pause", {"pipeline": "answers"}, **wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="filter"):
        client.batch("pause", {}, limit=1)
    with pytest.raises(InvalidRequestError, match="action"):
        client.batch("stop", {"pipeline": "answers"}, limit=1)


@pytest.mark.parametrize("run_id", ["r-none", "../r", "", "é", "r-1:pause", "x" * 500])
def test_a_run_that_is_not_there_is_said_to_be_unknown(client: Client, run_id: str) -> None:
    for call in (client.get, client.trace, client.pause, client.result, client.wait):
        with pytest.raises(UnknownRunError):
            call(run_id)  # type: ignore[operator]


def test_one_call_runs_a_pipeline(working_url: str) -> None:
    """Over a server alone: a run that is started in a store has no worker."""
    client = Client(working_url)

    assert client.run("answers", Question(text="why me?"), Answer, timeout=30).words == 2
    given = {"theText": "why?"}
    assert client.run("answers", given, idempotency_key="k", max_retries=0)["words"] == 1
    assert (
        client.get(client.start("answers", given, idempotency_key="k", max_retries=0)).max_retries
        == 0
    )
    with pytest.raises(RunNotCompletedError):
        client.run("refuses", {}, labels={"team": "a"})


@pytest.mark.parametrize("address", ["", "ftp://x", "http://", "http://h/?q", "sqlite:runs", "h:1"])
def test_a_bad_address_is_refused_at_once(address: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"address is .*http://HOST:PORT.*sqlite:///PATH"):
        Client(address)


@pytest.mark.parametrize("actor", ["", " ", "a\nb", "x" * 201])
def test_an_actor_that_no_trace_can_show_is_refused(actor: str) -> None:
    with pytest.raises(InvalidRequestError, match="actor is"):
        Client(actor=actor)


def test_recorded_results_are_listed(client: Client, asking: Asking) -> None:
    run = asking.end("looks_up", {"word": "a\nb"})

    small, large = client.calls(run)

    assert (small.step, small.trial, small.key) == ("look_up", 1, "small")
    assert (small.result, small.keep, small.is_large) == ({"word": "a\nb"}, False, False)
    assert (large.key, large.result, large.keep, large.is_large) == ("large", None, True, True)
    assert client.calls(asking.end()) == []
    with pytest.raises(UnknownRunError):
        client.calls("r-none")
