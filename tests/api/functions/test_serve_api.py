"""Each answer of the runs API."""

from __future__ import annotations

import pytest

from leasehold.testing import InProcessEngine
from tests.worlds.functions import Function, spoil

START = {"pipeline": "three", "input": {"n": 1}}
SUMMARY = {
    "runId",
    "pipeline",
    "status",
    "currentStep",
    "createdAt",
    "updatedAt",
    "completedAt",
    "paused",
    "held",
    "waitsIn",
    "cancelled",
    "deadLettered",
    "deadLetteredAt",
    "deadLetterReason",
    "attempts",
    "progress",
    "labels",
    "generation",
    "errorCode",
    "blockCode",
    "heartbeatAt",
    "spend",
}


def test_a_start_answers_201_with_the_summary(serve_api: Function) -> None:
    status, run = serve_api.post("/runs", START | {"labels": {"team": "a"}})

    assert status == 201
    assert set(run) == SUMMARY
    assert (run["status"], run["currentStep"], run["labels"]) == ("PENDING", "add", ["team:a"])


def test_the_same_key_answers_200_with_the_earlier_run(serve_api: Function) -> None:
    first = serve_api.post("/runs", START | {"idempotencyKey": "k"})

    again = serve_api.post("/runs", START | {"idempotencyKey": "k"})
    other = serve_api.post("/runs", START | {"idempotencyKey": "k", "input": {"n": 2}})

    assert again == (200, first[1])
    assert (other[0], other[1]["error"]["code"]) == (409, "idempotency_key_reused")


def test_all_issues_of_a_refused_input_are_in_the_details(serve_api: Function) -> None:
    many = {"pipeline": "three", "input": {"n": "x", "password": "hunter2"}}

    status, refused = serve_api.post("/runs", many)

    assert status == 400
    assert refused["error"]["details"]["issues"] == [
        {
            "loc": ["n"],
            "type": "int_parsing",
            "message": "Input should be a valid integer, unable to parse string as an integer",
        }
    ]
    assert refused["error"]["details"]["issueCount"] == 1


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"null", "null"),
        (b"[1]", "a list"),
        (b"7", "a number"),
        (b'{"pipeline": "three", "pipeline": "one"}', "an object with two values for 'pipeline'"),
        (b'{"input": {"n": 1, "n": 2}}', "an object with two values for 'n'"),
    ],
)
def test_a_body_that_is_not_one_object_is_refused_in_words_of_json(
    serve_api: Function, body: bytes, value: str
) -> None:
    """Of two values of one name, a proxy may check the first and the server take the last."""
    status, answer = serve_api.post("/runs", data=body, content_type="application/json")

    assert (status, answer["error"]["code"]) == (400, "invalid_request")
    assert answer["error"]["details"]["value"] == value


@pytest.mark.parametrize("path", ["/registry?x=1", "/budgets?x=1", "/runs/r-1/why?x=1"])
def test_a_parameter_of_a_call_that_takes_none_is_refused(serve_api: Function, path: str) -> None:
    status, answer = serve_api.get(path)

    assert status == 400
    assert answer["error"]["message"] == "x is '1'; allowed: no parameters."


def test_a_run_may_be_started_without_retries(serve_api: Function) -> None:
    status, run = serve_api.post("/runs", START | {"maxRetries": 0})
    refused = serve_api.post("/runs", START | {"maxRetries": -1})

    assert status == 201
    assert serve_api.get(f"/runs/{run['runId']}")[1]["maxRetries"] == 0
    assert refused[0] == 400
    assert refused[1]["error"]["message"] == (
        "maxRetries is -1; allowed: a whole number from 0 to 1000."
    )


@pytest.mark.parametrize(
    ("body", "status", "code", "says"),
    [
        ({"pipeline": "nope"}, 404, "unknown_pipeline", "known: three"),
        ({"pipeline": "x" * 100_000}, 404, "unknown_pipeline", "known: three"),
        ({}, 400, "invalid_request", "pipeline"),
        ({"pipeline": "three", "input": {"n": "x"}}, 400, "invalid_input", "n: Input should be"),
        (START | {"inptu": 1}, 400, "invalid_request", "inptu"),
        (START | {"idempotencyKey": 7}, 400, "invalid_request", "idempotencyKey"),
        (START | {"labels": ["a"]}, 400, "invalid_request", "labels"),
        (START | {"labels": {"a": 1}}, 400, "invalid_request", "labels"),
        ({"pipeline": "elsewhere", "input": {"n": 1}}, 400, "handler_not_found", "elsewhere"),
        ({"pipeline": "three", "input": {"n": 1, "x": "y" * 1_060_000}}, 413, "too_large", "input"),
        ({"pipeline": "three", "input": {"x": "y" * 24_000_000}}, 413, "too_large", "the body"),
    ],
)
def test_a_bad_start_names_the_field_and_starts_nothing(
    serve_api: Function, body: object, status: int, code: str, says: str
) -> None:
    answered, error = serve_api.post("/runs", body)

    assert (answered, error["error"]["code"]) == (status, code)
    assert says in error["error"]["message"]
    assert serve_api.get("/runs")[1] == {"runs": [], "nextPageToken": None}


def test_lists_are_filtered_and_paged_newest_first(
    serve_api: Function, engine: InProcessEngine
) -> None:
    ids = [serve_api.post("/runs", START)[1]["runId"] for _ in range(3)]
    dead = serve_api.post("/runs", {"pipeline": "refuses", "input": {"n": 1}})[1]["runId"]
    engine.adopt(dead)
    engine.run_until_idle()

    first = serve_api.get("/runs?pipeline=three&limit=2")[1]
    second = serve_api.get(f"/runs?pipeline=three&limit=2&pageToken={first['nextPageToken']}")[1]

    assert [run["runId"] for run in first["runs"] + second["runs"]] == ids[::-1]
    assert second["nextPageToken"] is None
    assert [r["runId"] for r in serve_api.get("/runs?deadLettered=true")[1]["runs"]] == [dead]
    assert len(serve_api.get("/runs?status=PENDING")[1]["runs"]) == 3


def test_the_filters_of_a_list_combine(serve_api: Function, engine: InProcessEngine) -> None:
    labelled = {"labels": {"team": "a"}}
    dead = serve_api.post("/runs", {"pipeline": "refuses", "input": {"n": 1}} | labelled)[1]
    engine.adopt(dead["runId"])
    engine.run_until_idle()
    serve_api.post("/runs", START | labelled)
    serve_api.post("/runs", {"pipeline": "refuses", "input": {"n": 1}})

    def found(query: str) -> list[str]:
        return [run["runId"] for run in serve_api.get(f"/runs?{query}")[1]["runs"]]

    assert len(found("label=team:a")) == 2
    assert serve_api.get("/runs?label=team%3Da")[1]["error"]["message"] == (
        "label is 'team=a'; allowed: key:value."
    )
    assert found("label=team:a&deadLettered=true") == [dead["runId"]]
    assert found("label=team:a&deadLettered=true&status=ERROR&pipeline=refuses") == [dead["runId"]]
    assert found("label=team:a&deadLettered=true&pipeline=three") == []


def test_a_page_token_of_another_query_is_refused(serve_api: Function) -> None:
    for _ in range(2):
        serve_api.post("/runs", START)
    token = serve_api.get("/runs?limit=1&pipeline=three")[1]["nextPageToken"]

    assert serve_api.get(f"/runs?limit=5&pipeline=three&pageToken={token}")[0] == 200
    status, error = serve_api.get(f"/runs?limit=1&status=PENDING&pageToken={token}")

    assert (status, error["error"]["code"]) == (400, "invalid_request")
    assert "the same filter" in error["error"]["message"]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("status=DONE", "PENDING, IN_PROGRESS, ERROR, BLOCKED, COMPLETED"),
        ("deadLettered=yes", "true, false"),
        ("limit=0", "1 to 1000"),
        ("limit=x", "1 to 1000"),
        ("pageToken=x", "nextPageToken"),
        ("colour=red", "colour"),
    ],
)
def test_a_bad_filter_is_refused_with_the_known_ones(
    serve_api: Function, query: str, says: str
) -> None:
    status, error = serve_api.get(f"/runs?{query}")

    assert (status, error["error"]["code"]) == (400, "invalid_request")
    assert says in error["error"]["message"]


def test_a_run_and_its_timeline_can_be_read(serve_api: Function, engine: InProcessEngine) -> None:
    run_id = serve_api.post("/runs", START)[1]["runId"]
    engine.adopt(run_id)
    engine.run_until_idle()

    manifest = serve_api.get(f"/runs/{run_id}")[1]
    events = serve_api.get(f"/runs/{run_id}/trace")[1]["events"]

    assert manifest["status"] == "COMPLETED"
    assert manifest["steps"]["add_again"]["output"] == '{"n":4}'
    assert [event["type"] for event in events][:2] == ["run_started", "step_started"]
    assert events[-1]["type"] == "run_completed"
    assert events[1]["at"].endswith("Z")


@pytest.mark.parametrize("path", ["/runs/r-none", "/runs/r-none/trace"])
def test_an_unknown_run_is_a_404(serve_api: Function, path: str) -> None:
    status, error = serve_api.get(path)

    assert (status, error["error"]["code"]) == (404, "unknown_run")


def test_the_registry_tells_each_value_with_its_source(
    serve_api: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIPELINE_ADD_TIMEOUT_MS", "30000")
    monkeypatch.setenv("PIPELINE_FAIL_TIMEOUT_MS", "soon")

    steps = {step["stepType"]: step for step in serve_api.get("/registry")[1]["steps"]}

    assert steps["add"]["agentTimeoutMs"] == {"value": 30000, "source": "PIPELINE_ADD_TIMEOUT_MS"}
    assert steps["fail"]["agentTimeoutMs"] == {"value": 60000, "source": "entry"}
    assert "PIPELINE_FAIL_TIMEOUT_MS" in steps["fail"]["refused"][0]


def test_health_says_that_the_function_runs(serve_api: Function) -> None:
    assert serve_api.get("/health") == (200, {"status": "ok"})


def test_wrong_methods_and_paths_are_told_what_is_right(serve_api: Function) -> None:
    wrong_method = serve_api.client.delete("/runs")
    wrong_path = serve_api.get("/run")

    assert wrong_method.status_code == 405
    assert wrong_method.headers["Allow"] == "GET, POST"
    assert wrong_path[0] == 404
    assert "/runs" in wrong_path[1]["error"]["message"]


@pytest.mark.parametrize("path", ["/runs/__x__", "/runs/%2e%2e", "/runs/a%20b"])
def test_an_id_that_no_run_has_is_a_404(serve_api: Function, path: str) -> None:
    assert serve_api.get(path)[0] == 404


def test_a_run_that_cannot_be_read_hides_no_other(
    serve_api: Function, engine: InProcessEngine
) -> None:
    """A newer version may have written it, or a person in the console."""
    odd, even = (serve_api.post("/runs", START)[1]["runId"] for _ in range(2))
    spoil(engine, odd)

    listed = serve_api.get("/runs")[1]["runs"]
    answer = serve_api.get(f"/runs/{odd}")

    assert [run["runId"] for run in listed] == [even]
    assert (answer[0], answer[1]["error"]["code"]) == (500, "unreadable_run")
    assert "status: Input should be" in answer[1]["error"]["message"]


def test_a_start_whose_queue_is_down_is_still_a_start(
    serve_api: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is written down, and its task is owed: to start it again would make two."""
    monkeypatch.setenv("LEASEHOLD_TASKS", "cloud-tasks://p/l")
    monkeypatch.setenv("LEASEHOLD_FUNCTION_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("CLOUD_TASKS_EMULATOR_URL", "http://127.0.0.1:1")

    status, run = serve_api.post("/runs", START)

    assert status == 201
    assert run["status"] == "PENDING"


def test_a_filter_that_is_given_twice_is_refused(serve_api: Function) -> None:
    """Else the first alone would hold, and the list have what was not asked for."""
    status, error = serve_api.get("/runs?label=team:a&pipeline=three&pipeline=refuses")

    assert (status, error["error"]["message"]) == (
        400,
        "pipeline is 'three, refuses'; allowed: one value.",
    )


def test_a_label_may_be_given_again_and_all_must_be_there(serve_api: Function) -> None:
    for labels in ({"team": "a"}, {"team": "a", "env": "test"}, {"env": "test"}):
        run = serve_api.post("/runs", START | {"labels": labels})[1]
        if len(labels) == 2:
            both = run["runId"]

    def found(query: str) -> tuple[int, list[str]]:
        status, answer = serve_api.get(query)
        return status, [run["runId"] for run in answer["runs"]]

    assert found("/runs?label=team:a&label=env:test") == (200, [both])
    assert found("/manifests?label=env:test&label=team:a") == (200, [both])
    assert found("/runs?label=team:a&label=env:test&label=team:a") == (200, [both])
    assert found("/runs?label=team:a&label=team:b") == (200, [])
    assert found("/runs?label=team:a&label=") == (200, [])


def test_no_run_is_asked_for_by_more_labels_than_one_can_have(serve_api: Function) -> None:
    query = "&".join(f"label=a:{number}" for number in range(17))

    status, error = serve_api.get(f"/runs?{query}")

    assert (status, error["error"]["code"]) == (400, "invalid_request")
    assert error["error"]["message"] == "label is 17; allowed: at most 16 labels."


@pytest.mark.parametrize("query", ["pipeline=", "label=", "pipeline=&label="])
def test_an_empty_filter_of_a_list_fits_no_run(serve_api: Function, query: str) -> None:
    serve_api.post("/runs", START)

    assert serve_api.get(f"/runs?{query}") == (200, {"runs": [], "nextPageToken": None})
