"""Overrides over HTTP: set, shown, refused and cleared."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from leasehold.domain.override import override_ref
from leasehold.domain.stored import Write
from leasehold.testing import InProcessEngine
from tests.functions.conftest import Function

SET: dict[str, Any] = {"timeoutS": 90, "until": "2999-01-01T00:00:00Z", "why": "slow day"}
START = {"pipeline": "three", "input": {"n": 1}}


def step_of(serve_api: Function, name: str = "add") -> dict[str, Any]:
    """The row of a step in the registry."""
    steps: dict[str, dict[str, Any]] = {
        step["stepType"]: step for step in serve_api.get("/registry")[1]["steps"]
    }
    return steps[name]


def test_what_is_set_is_in_force_at_the_next_start_and_shown_with_who_and_why(
    serve_api: Function,
) -> None:
    status, answer = serve_api.post("/overrides/add:set", SET, headers={"X-Leasehold-Actor": "ada"})
    run = serve_api.get("/runs/" + serve_api.post("/runs", START)[1]["runId"])[1]

    assert answer["replaced"] is None
    answer = answer["override"]
    set_at = datetime.fromisoformat(answer.pop("setAt"))
    assert abs((datetime.now(UTC) - set_at).total_seconds()) < 600  # noqa: TID251 - the API's own
    assert status == 200
    assert answer == {
        "stepType": "add",
        "state": "in_force",
        "timeoutS": 90,
        "deadlineS": None,
        "until": "2999-01-01T00:00:00Z",
        "why": "slow day",
        "setBy": "ada",
        "problem": None,
    }
    assert (run["dispatch"]["timeoutMs"], run["dispatch"]["deadlineS"]) == (90_000, 120)
    assert run["dispatch"]["sources"]["agentTimeout"] == "override"
    step = step_of(serve_api)
    assert step["agentTimeoutMs"] == {"value": 90_000, "source": "override"}
    assert step["dispatchDeadlineS"] == {"value": 120.0, "source": "entry"}
    assert (step["override"]["setBy"], step["override"]["why"]) == ("ada", "slow day")
    assert step_of(serve_api, "fail")["override"] is None


def test_one_that_is_set_takes_the_place_of_the_whole_of_the_one_before(
    serve_api: Function,
) -> None:
    ada = {"X-Leasehold-Actor": "ada"}
    first = serve_api.post("/overrides/add:set", SET, headers=ada)[1]["override"]
    body = {name: value for name, value in SET.items() if name != "timeoutS"}

    change = serve_api.post("/overrides/add:set", body | {"deadlineS": 100})[1]
    (only,) = serve_api.get("/overrides")[1]["overrides"]

    assert (only["timeoutS"], only["deadlineS"]) == (None, 100)
    assert (change["override"], change["replaced"]) == (only, first)
    assert (change["replaced"]["setBy"], change["replaced"]["timeoutS"]) == ("ada", 90)


def test_a_clear_ends_it_and_may_be_repeated(serve_api: Function) -> None:
    was = serve_api.post("/overrides/add:set", SET)[1]["override"]

    first = serve_api.post("/overrides/add:clear")
    again = serve_api.post("/overrides/add:clear")

    assert first == (200, {"stepType": "add", "override": None, "replaced": was})
    assert again == (200, {"stepType": "add", "override": None, "replaced": None})
    assert serve_api.get("/overrides")[1] == {"overrides": []}
    assert step_of(serve_api)["agentTimeoutMs"]["source"] == "entry"


@pytest.mark.parametrize(
    ("step", "change", "status", "says"),
    [
        ("nope", {}, 404, "'nope' is not in the dispatch registry; known: add, "),
        ("x" * 5000, {}, 404, f"'{'x' * 128}' is not in the dispatch registry"),
        ("%2e%2e", {}, 404, "'..' is not in the dispatch registry"),
        ("add", {"timeoutS": 120}, 400, "timeoutS is 120; allowed: below the dispatch deadline"),
        ("add", {"timeoutS": 0}, 400, "timeoutS is 0; allowed: above 0."),
        ("add", {"timeoutS": None}, 400, "timeoutS is None; allowed: seconds from 0 to 604800."),
        (
            "add",
            {"timeoutS": 30, "deadlineS": 30},
            400,
            "timeoutS is 30; allowed: below the dispatch deadline (0:00:30).",
        ),
        (
            "add",
            {"deadlineS": 5},
            400,
            "deadlineS is 5; allowed: a whole number from 15 to 604800.",
        ),
        ("add", {"until": "2020-01-01"}, 400, "until is '2020-01-01T00:00:00Z'; allowed: a time"),
        ("add", {"until": "2h"}, 400, "until is '2h'; allowed: a time with its zone"),
        ("add", {"why": ""}, 400, "why is ''; allowed: a text of 1 to 500 printable characters."),
        ("add", {"why": "a\x1b[31m"}, 400, "why is"),
        ("add", {"why": "x" * 10_000}, 400, "why is"),
        ("add", {"timeoutMs": 90}, 400, "timeoutMs is 90; allowed: one of the fields timeoutS"),
    ],
)
def test_what_cannot_be_set_changes_nothing_and_says_why(
    serve_api: Function, step: str, change: dict[str, Any], status: int, says: str
) -> None:
    serve_api.post("/overrides/add:set", SET)
    before = serve_api.get("/overrides")

    refused = serve_api.post(f"/overrides/{step}:set", SET | change)

    assert refused[0] == status
    assert refused[1]["error"]["message"].startswith(says)
    assert serve_api.get("/overrides") == before


def test_a_deadline_alone_is_refused_by_the_timeout_of_the_entry(serve_api: Function) -> None:
    body = {"deadlineS": 60, "until": SET["until"], "why": "quick"}

    refused = serve_api.post("/overrides/add:set", body)
    nothing = serve_api.post("/overrides/add:set", {"until": SET["until"], "why": "quick"})

    assert refused[1]["error"]["message"] == (
        "deadlineS is 60; allowed: above the agent timeout (0:01:00), or a timeoutS below it as "
        "well."
    )
    assert nothing[1]["error"]["message"] == "timeoutS is None; allowed: this, deadlineS, or both."


def test_documents_of_any_shape_are_listed_and_shown_as_refused(
    serve_api: Function, engine: InProcessEngine
) -> None:
    def write(step: str, **fields: Any) -> None:
        documents = engine.engine.documents
        documents.transact(override_ref(step), lambda _, __: Write(None, fields))

    write("add", timeoutS="soon", until="2999-01-01")
    write("fail", timeoutS=1700, until="2999-01-01")
    write("gone", timeoutS=17, until="2999-01-01")
    write("old\n\x1b[31m", timeoutS=17, until="2020-01-01")

    listed = {one["stepType"]: one for one in serve_api.get("/overrides")[1]["overrides"]}

    assert [(name, one["state"]) for name, one in listed.items()] == [
        ("add", "refused"),
        ("fail", "refused"),
        ("gone", "refused"),
        ("old\n\x1b[31m", "over"),
    ]
    assert listed["add"]["problem"].startswith("overrides/add refused: timeoutS is 'soon'")
    assert listed["fail"]["problem"].startswith("overrides/fail timeoutS refused: agent_timeout")
    assert listed["gone"]["problem"] == "overrides/gone refused: this deploy has no such step."
    step = step_of(serve_api)
    assert (step["override"]["state"], step["agentTimeoutMs"]["source"]) == ("refused", "entry")
    assert step["refused"] == [listed["add"]["problem"]]
