"""What people do to runs over HTTP: the words of requests, who asks, and what reaches a handler."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from leasehold.testing import InProcessEngine
from tests.worlds.catalogs.sample import ENTERED, GO_ON, PIPELINES, STEPS
from tests.worlds.functions import Function
from tests.worlds.waiting import until

START = {"pipeline": "three", "input": {"n": 1}}
EVERYBODY = {"filter": {"pipeline": "three"}, "limit": 10}


@pytest.fixture
def run_id(serve_api: Function) -> str:
    """A run that waits for a worker."""
    return str(serve_api.post("/runs", START)[1]["runId"])


@pytest.fixture
def dead(serve_api: Function, engine: InProcessEngine) -> str:
    """A run that was given up at its first step."""
    run_id = str(serve_api.post("/runs", {"pipeline": "refuses", "input": {"n": 1}})[1]["runId"])
    engine.adopt(run_id)
    engine.run_until_idle()
    return run_id


def last_event(serve_api: Function, run_id: str) -> dict[str, Any]:
    """Return the last event of the run."""
    events: list[dict[str, Any]] = serve_api.get(f"/runs/{run_id}/trace")[1]["events"]
    return events[-1]


def test_an_operation_answers_with_the_summary(serve_api: Function, run_id: str) -> None:
    status, run = serve_api.post(f"/runs/{run_id}:pause", {"reason": "lunch"})

    assert (status, run["runId"], run["status"], run["paused"]) == (200, run_id, "PENDING", True)
    assert last_event(serve_api, run_id)["reason"] == "lunch"


def test_a_body_is_not_needed(serve_api: Function, run_id: str) -> None:
    assert serve_api.post(f"/runs/{run_id}:cancel")[0] == 200
    assert "reason" not in last_event(serve_api, run_id)


def test_a_run_is_shown_with_the_generation_that_a_decision_names(
    serve_api: Function, run_id: str
) -> None:
    (listed,) = serve_api.get("/runs")[1]["runs"]
    dispatch = serve_api.get(f"/runs/{run_id}")[1]["dispatch"]

    status, run = serve_api.post(f"/runs/{run_id}:pause", {"generation": listed["generation"]})

    assert (status, run["generation"]) == (200, 1)
    assert listed["generation"] == dispatch["generation"] == 1


def test_another_generation_is_a_409_that_says_what_the_run_is_now(
    serve_api: Function, run_id: str
) -> None:
    status, error = serve_api.post(f"/runs/{run_id}:cancel", {"generation": 7})

    assert (status, error["error"]["code"]) == (409, "state_changed")
    assert error["error"]["message"] == (
        f"Cannot cancel run {run_id}: you named generation 7; the run is now PENDING at step add, "
        "generation 1. Look at it, then give generation 1."
    )
    assert error["error"]["details"] | {"remedy": "", "problem": ""} == {
        "operation": "cancel",
        "runId": run_id,
        "problem": "",
        "state": "PENDING",
        "step": "add",
        "generation": 1,
        "remedy": "",
    }


def test_the_same_body_once_more_gets_the_first_answer(serve_api: Function, run_id: str) -> None:
    """As from a client that gave up waiting, and was answered too late."""
    body = {"generation": 1, "reason": "enough"}
    first = serve_api.post(f"/runs/{run_id}:cancel", body)

    again = serve_api.post(f"/runs/{run_id}:cancel", body)

    archived_at = again[1].pop("updatedAt")
    assert first[1].pop("updatedAt") <= archived_at
    assert first == again
    assert serve_api.post(f"/runs/{run_id}:cancel", {"reason": "enough"})[0] == 409


def test_a_recreate_answers_with_the_new_run(serve_api: Function, dead: str) -> None:
    status, run = serve_api.post(f"/runs/{dead}:recreate", {"labels": {"again": "1"}})

    assert (status, run["status"], run["deadLettered"]) == (200, "PENDING", False)
    assert run["runId"] != dead
    assert run["labels"] == ["again:1"]
    assert last_event(serve_api, dead)["recreatedAs"] == run["runId"]


def test_a_refusal_says_what_the_run_is_and_when_it_would_be_allowed(
    serve_api: Function, run_id: str
) -> None:
    status, error = serve_api.post(f"/runs/{run_id}:resume")

    assert (status, error["error"]["code"]) == (409, "not_allowed")
    assert error["error"]["message"] == (
        f"Cannot resume run {run_id}: it is PENDING; allowed when it is paused, or "
        "blocked over its budget."
    )
    assert error["error"]["details"]["state"] == "PENDING"


@pytest.mark.parametrize("name", ["pause", "resume", "cancel", "retry", "approve", "recreate"])
def test_an_unknown_run_is_a_404(serve_api: Function, name: str) -> None:
    status, error = serve_api.post(f"/runs/r-none:{name}")

    assert (status, error["error"]["code"]) == (404, "unknown_run")


def test_wrong_operations_and_methods_are_told_what_is_right(
    serve_api: Function, run_id: str
) -> None:
    unknown = serve_api.post(f"/runs/{run_id}:stop")
    wrong_method = serve_api.client.get(f"/runs/{run_id}:pause")

    assert unknown[0] == 404
    assert "/runs/<run_id>:pause" in unknown[1]["error"]["message"]
    assert (wrong_method.status_code, wrong_method.headers["Allow"]) == (405, "POST")
    assert serve_api.client.get("/runs:batch").headers["Allow"] == "POST"


@pytest.mark.parametrize(
    ("name", "body", "says"),
    [
        ("pause", {"why": "x"}, "one of the fields reason"),
        ("pause", {"fromStep": "add"}, "one of the fields reason"),
        ("pause", {"generation": 0}, "generation is 0; allowed: a whole number from 1"),
        ("pause", {"generation": "1"}, "a whole number from 1"),
        ("pause", {"generation": True}, "a whole number from 1"),
        ("pause", {"generation": None}, "a whole number from 1"),
        ("pause", {"generation": 1.0}, "a whole number from 1"),
        ("pause", {"step": ""}, "1 to 128 printable"),
        ("recreate", {"step": 1}, "1 to 128 printable"),
        ("pause", {"reason": 7}, "printable characters"),
        ("pause", {"reason": "x" * 501}, "at most 500 printable"),
        ("pause", {"reason": "a\u0000b"}, "printable characters"),
        ("recreate", {"fromStep": "ad"}, "'ad'; allowed: refuse (no such step)."),
        ("recreate", {"generation": 1, "fromStep": "ad"}, "'ad'; allowed: refuse (no such step)."),
        (
            "recreate",
            {"fromStep": "add"},
            "'add'; allowed: refuse (step refuse handed no output on).",
        ),
        ("recreate", {"fromStep": None}, "fromStep"),
        ("recreate", {"fromStep": "add", "input": {"n": 2}}, "first step, refuse"),
        ("recreate", {"input": {"n": "x"}}, "n: Input should be"),
        ("recreate", {"labels": ["a"]}, "labels"),
        ("recreate", {"labels": {"a": ""}}, "key:value of 1 to 64"),
        ("recreate", {"label": {"a": "b"}}, "reason, generation, step, fromStep, input, labels"),
    ],
)
def test_bad_words_are_refused_and_change_nothing(
    serve_api: Function, dead: str, name: str, body: Any, says: str
) -> None:
    before = serve_api.get(f"/runs/{dead}")

    status, error = serve_api.post(f"/runs/{dead}:{name}", body)

    assert status == 400
    assert says in error["error"]["message"]
    assert serve_api.get(f"/runs/{dead}") == before
    assert len(serve_api.get("/runs")[1]["runs"]) == 1


# -- who asks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "actor"),
    [
        ({}, "api"),
        ({"X-Leasehold-Actor": "ann@laptop"}, "ann@laptop"),
        ({"X-Leasehold-Actor": " "}, "api"),
        ({"X-Leasehold-Actor": "jörg@laptop".encode()}, "jörg@laptop"),
        ({"X-Leasehold-Actor": "jörg@laptop".encode("latin-1")}, "jörg@laptop"),
        ({"X-Goog-Authenticated-User-Email": "accounts.google.com:ann@x.org"}, "api"),
        (
            {
                "X-Goog-Authenticated-User-Email": "accounts.google.com:ann@x.org",
                "X-Leasehold-Actor": "somebody else",
            },
            "somebody else",
        ),
    ],
)
def test_the_trace_names_who_asked(
    serve_api: Function, run_id: str, headers: Any, actor: str
) -> None:
    serve_api.client.post(f"/runs/{run_id}:pause", headers=_latin(headers))

    assert last_event(serve_api, run_id)["actor"] == actor


@pytest.mark.parametrize("actor", ["x" * 201, "a\x07b"])
def test_a_name_that_no_trace_can_show_is_refused(
    serve_api: Function, run_id: str, actor: str
) -> None:
    answer = serve_api.client.post(f"/runs/{run_id}:pause", headers={"X-Leasehold-Actor": actor})

    assert answer.status_code == 400
    assert "X-Leasehold-Actor" in answer.get_json()["error"]["message"]
    assert serve_api.get(f"/runs/{run_id}")[1]["paused"] is False


def _latin(headers: dict[str, Any]) -> dict[str, str]:
    """Return headers as WSGI gives their bytes."""
    return {
        name: value.decode("latin-1") if isinstance(value, bytes) else value
        for name, value in headers.items()
    }


# -- batches ---------------------------------------------------------------------------------------


def test_a_batch_tells_what_it_changed_and_what_it_left(serve_api: Function, run_id: str) -> None:
    held = serve_api.post("/runs", START)[1]["runId"]
    serve_api.post(f"/runs/{held}:pause")

    status, done = serve_api.post("/runs:batch", {"action": "pause", **EVERYBODY})

    refused = [{"runId": held, "code": "not_allowed"}]
    assert (status, done) == (200, {"matched": 2, "changed": 1, "refused": refused})
    assert serve_api.get(f"/runs/{run_id}")[1]["paused"] is True


def test_the_filters_of_a_batch_combine(
    serve_api: Function, engine: InProcessEngine, run_id: str, dead: str
) -> None:
    serve_api.post("/runs", {"pipeline": "refuses", "input": {"n": 1}})

    def matched(**filter_: Any) -> int:
        body = {"action": "cancel", "filter": filter_, "limit": 10, "dryRun": True}
        return int(serve_api.post("/runs:batch", body)[1]["matched"])

    assert matched(pipeline="refuses") == 2
    assert matched(pipeline="refuses", deadLettered=True) == 1
    assert matched(pipeline="refuses", deadLettered=False, status="PENDING") == 1
    assert matched(pipeline="three", deadLettered=True) == 0
    assert matched(status="PENDING") == 2
    assert matched(label="a:b") == 0


def test_a_batch_takes_one_label_as_a_text_or_several_as_a_list(
    serve_api: Function, engine: InProcessEngine
) -> None:
    for labels in ({"team": "a"}, {"team": "a", "env": "test"}):
        body = {"pipeline": "three", "input": {"n": 1}, "labels": labels}
        run_id = serve_api.post("/runs", body)[1]["runId"]

    def paused(label: Any) -> int:
        body = {"action": "pause", "filter": {"label": label}, "limit": 10, "dryRun": True}
        status, done = serve_api.post("/runs:batch", body)
        assert status == 200
        return int(done["matched"])

    assert paused("team:a") == paused(["team:a"]) == paused(["team:a"] * 20) == 2
    assert paused(["team:a", "env:test"]) == 1
    body = {"action": "pause", "filter": {"label": ["team:a", "env:test"]}, "limit": 10}
    assert serve_api.post("/runs:batch", body)[1]["changed"] == 1
    assert serve_api.get(f"/runs/{run_id}")[1]["paused"] is True


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({**EVERYBODY}, "action is None; allowed: pause, resume, cancel, retry, approve, recreate"),
        ({"action": "stop", **EVERYBODY}, "'stop'; allowed: pause, resume"),
        ({"action": ["pause"], **EVERYBODY}, "allowed: pause, resume"),
        ({"action": "pause", "limit": 10}, '{"pipeline": NAME} fits all runs of a pipeline'),
        ({"action": "pause", "limit": 10, "filter": {}}, "status, pipeline, deadLettered, label"),
        ({"action": "pause", "limit": 10, "filter": []}, "an object with the fields status"),
        (
            {"action": "pause", "limit": 10, "filter": {"colour": "red"}},
            "filter.colour is 'red'; allowed: one of the fields status, pipeline, deadLettered",
        ),
        ({"action": "pause", "limit": 10, "filter": {"status": "DONE"}}, "filter.status"),
        ({"action": "pause", "limit": 10, "filter": {"deadLettered": "yes"}}, "true or false"),
        ({"action": "pause", "limit": 10, "filter": {"pipeline": ""}}, "filter.pipeline"),
        ({"action": "pause", "limit": 10, "filter": {"label": 1}}, "filter.label"),
        (
            {"action": "pause", "limit": 10, "filter": {"label": []}},
            "filter.label is '[]'; allowed: a text that is not empty, or a list of 1 to 16",
        ),
        ({"action": "pause", "limit": 10, "filter": {"label": ["a:b", 1]}}, "filter.label is"),
        ({"action": "pause", "limit": 10, "filter": {"label": ["a:b", ""]}}, "filter.label is"),
        (
            {"action": "pause", "limit": 10, "filter": {"label": [f"a:{n}" for n in range(17)]}},
            "label is 17; allowed: at most 16 labels",
        ),
        ({"action": "pause", "filter": {"pipeline": "three"}}, "limit is None; allowed: a whole"),
        ({"action": "pause", **EVERYBODY, "limit": 0}, "from 1 to 1000"),
        ({"action": "pause", **EVERYBODY, "limit": 1001}, "from 1 to 1000"),
        ({"action": "pause", **EVERYBODY, "limit": True}, "from 1 to 1000"),
        ({"action": "pause", **EVERYBODY, "dryRun": "yes"}, "true or false"),
        ({"action": "pause", **EVERYBODY, "fromStep": "add"}, "but for the action recreate"),
        ({"action": "pause", **EVERYBODY, "step": 7}, "step is 7; allowed: a text"),
        ({"action": "pause", **EVERYBODY, "generation": 1}, "action, filter, limit, dryRun"),
        ({"action": "recreate", **EVERYBODY, "fromStep": "ad"}, "add, add_again"),
        ({"action": "pause", **EVERYBODY, "reason": "x" * 501}, "at most 500 printable"),
        ({"action": "pause", **EVERYBODY, "input": {}}, "action, filter, limit, dryRun"),
    ],
)
def test_a_bad_batch_names_the_field_and_changes_nothing(
    serve_api: Function, run_id: str, body: Any, says: str
) -> None:
    status, error = serve_api.post("/runs:batch", body)

    assert (status, error["error"]["code"]) == (400, "invalid_request")
    assert says in error["error"]["message"]
    assert serve_api.get(f"/runs/{run_id}")[1]["paused"] is False


# -- a handler that runs ---------------------------------------------------------------------------


def test_a_cancellation_reaches_the_code_that_runs(
    serve_api: Function, environ: dict[str, str]
) -> None:
    """Its next renewal finds the lease gone; it stops, and its output is discarded."""
    settings = environ | {"PIPELINE_LEASE_TTL_S": "3", "PIPELINE_HEARTBEAT_S": "0.1"}
    with InProcessEngine(STEPS, PIPELINES, environ=settings, workers=1) as worker:
        started = serve_api.post("/runs", {"pipeline": "counts", "input": {"n": 1}})[1]
        run_id = started["runId"]
        ENTERED[run_id], GO_ON[run_id] = threading.Event(), threading.Event()
        worker.adopt(run_id)
        assert ENTERED[run_id].wait(60)

        status, _ = serve_api.post(f"/runs/{run_id}:cancel", {"reason": "enough"})
        until(lambda: not worker.held_runs())
        GO_ON[run_id].set()

    run = serve_api.get(f"/runs/{run_id}")[1]
    events = serve_api.get(f"/runs/{run_id}/trace")[1]["events"]
    ended = [event for event in events if event["type"] == "step_terminated"]
    assert (status, run["cancelled"], run["steps"]["count"]["status"]) == (200, True, "PENDING")
    assert run["steps"]["count"]["output"] is None
    assert [event["reason"] for event in ended] == ["cancelled"]
    assert {"step_completed", "step_error", "lease_lost"}.isdisjoint(e["type"] for e in events)


def test_an_output_that_comes_after_the_cancellation_is_discarded(
    serve_api: Function, environ: dict[str, str]
) -> None:
    """A handler that ignores its stop ends in its own time."""
    with InProcessEngine(STEPS, PIPELINES, environ=environ, workers=1) as worker:
        run_id = serve_api.post("/runs", {"pipeline": "deaf", "input": {"n": 1}})[1]["runId"]
        ENTERED[run_id], GO_ON[run_id] = threading.Event(), threading.Event()
        worker.adopt(run_id)
        assert ENTERED[run_id].wait(60)
        serve_api.post(f"/runs/{run_id}:cancel")
        cancelled = serve_api.get(f"/runs/{run_id}")

        GO_ON[run_id].set()
        until(lambda: not worker.held_runs())

    assert cancelled[1]["cancelled"] is True
    assert serve_api.get(f"/runs/{run_id}") == cancelled
