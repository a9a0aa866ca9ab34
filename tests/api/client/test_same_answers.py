"""The same answer on a store, over HTTP, and from the command line on both: one table of calls.

What a command says for people alone is in tests/cli; what HTTP alone has, in tests/api/functions.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pydantic_core
import pytest

from leasehold import Client, LeaseholdError
from leasehold.api import calls
from leasehold.api.call_row import AnyRow, Created
from leasehold.api.deliveries import DeliveryReport
from leasehold.api.errors import status_of
from leasehold.bootstrap import Bundle, boot
from leasehold.client.arguments import this_user
from leasehold.domain.delivery import Claim, Delivery, DeliveryState
from leasehold.domain.override import override_ref
from leasehold.domain.stored import Document, StoredDocument, Write, replace
from leasehold.domain.timestamps import moment_text
from leasehold.ports.documents import Query
from tests.api.functions.test_response_models import is_as
from tests.worlds.builders import environ_of
from tests.worlds.runs_api import runs_api
from tests.worlds.shell import Shell

SET: dict[str, Any] = {"timeoutS": 90, "until": "2999-01-01T00:00:00Z", "why": "slow day"}
START = {"pipeline": "three", "input": {"n": 1}}
EVIL = "\x1b]0;owned\x07\u202e"

Answer = tuple[str, Any]

#: The words of the command that makes a call; what is given with it are its options.
COMMANDS: Mapping[AnyRow, str] = {
    calls.start: "start {pipeline}",
    calls.run: "show {run}",
    calls.why: "why {run}",
    calls.cancel: "cancel {run}",
    calls.registry: "registry",
    calls.overrides: "override",
    calls.override: "override {step}",
    calls.clear_override: "override {step} --clear",
    calls.run_deliveries: "deliveries {run}",
    calls.deliveries: "deliveries",
    calls.deliver: "deliver {run}",
}


@dataclass(frozen=True)
class Way:
    """How a call is made; each gives the code of an error, or none, and what is answered."""

    client: Client
    actor: str = "ada"

    def ask(self, row: AnyRow, given: Any = None, run: str = "", step: str = "") -> Answer:
        try:
            value = self.client.call(row, row.takes and row.takes.read(given or {}), run, step=step)
        except LeaseholdError as error:
            return error.code, {"message": error.message}
        value = value.value if isinstance(value, Created) else value
        return "", json.loads(pydantic_core.to_json(value, by_alias=True))

    def answer(self, row: AnyRow, given: Any = None, run: str = "", step: str = "") -> Any:
        code, answer = self.ask(row, given, run, step)
        assert not code, answer
        return answer


@dataclass(frozen=True)
class OverHttp(Way):
    url: str = ""

    def ask(self, row: AnyRow, given: Any = None, run: str = "", step: str = "") -> Answer:
        """Call as curl does; the status is that of the code."""
        named = quote(step, safe="").replace(".", "%2e")
        path = row.path.replace("<run_id>", run).replace("<step>", named)
        query = f"?{urlencode(given)}" if row.method == "GET" and given else ""
        body = json.dumps(given or {}).encode() if row.method == "POST" else None
        headers = {"Content-Type": "application/json", "X-Leasehold-Actor": self.actor}
        request = urllib.request.Request(f"{self.url}{path}{query}", body, headers)  # noqa: S310 - as begun
        found: Any
        try:
            found = urllib.request.urlopen(request, timeout=30)  # noqa: S310 - on loopback
        except urllib.error.HTTPError as refusal:
            found = refusal
        with found:
            status, answer = found.status, json.load(found)
        code = answer["error"]["code"] if status >= HTTPStatus.BAD_REQUEST else ""
        assert status == (status_of(code) if code else 201 if row.creates else 200)
        return code, answer["error"] if code else answer


@dataclass(frozen=True)
class ByCommand(Way):
    shell: Shell = Shell  # type: ignore[assignment] # given always
    at: tuple[str, ...] = ()

    def ask(self, row: AnyRow, given: Any = None, run: str = "", step: str = "") -> Answer:
        """Type it; what a command cannot even be given is its usage."""
        options = dict(given or {})
        names = {"run": run, "step": step, "pipeline": options.pop("pipeline", "")}
        words = [word.format(**names) for word in COMMANDS[row].split()]
        for name, value in options.items():
            option = "".join(f"-{one.lower()}" if one.isupper() else one for one in name)
            text = value if isinstance(value, str) else json.dumps(value)
            words += [f"--{option}={text}"]
        done = self.shell.run(*words, "--json", *self.at)
        answer = json.loads(done.stdout)
        if done.returncode == 0:
            return "", answer
        assert done.returncode == 2
        return answer["error"]["code"], answer["error"]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A store with a bus without a server: deliveries stay due."""
    nobody = "http://127.0.0.1:1"
    catalog = "tests.api.functions.two_channels"
    return environ_of(tmp_path, LEASEHOLD_CATALOG=catalog, LEASEHOLD_EVENTS=nobody)


@pytest.fixture
def bundle(environ: dict[str, str]) -> Iterator[Bundle]:
    """A server of the store, and a person who writes into it by hand."""
    bundle = boot(environ)
    yield bundle
    bundle.close()


@pytest.fixture(
    params=[
        *("store", "HTTP", "command on the store"),
        pytest.param("command over HTTP", marks=pytest.mark.nightly),
    ]
)
def way(
    request: pytest.FixtureRequest, environ: dict[str, str], bundle: Bundle, tmp_path: Path
) -> Iterator[Way]:
    shell = Shell(tmp_path, environ)
    shell.settings["LEASEHOLD_CATALOG"] = environ["LEASEHOLD_CATALOG"]
    with Client(environ=environ, actor="ada") as client, runs_api(bundle.engine) as url:
        match request.param:
            case "store":
                yield Way(client)
            case "HTTP":
                yield OverHttp(client, url=url)
            case "command on the store":
                yield ByCommand(client, this_user(), shell)
            case _:
                yield ByCommand(client, this_user(), shell, ("--url", url))


def is_refused(way: Way, answer: Answer, code: str) -> bool:
    """Return whether it is, with this code; a command may see it before it makes the call."""
    return answer[0] == code or (isinstance(way, ByCommand) and answer[0] == "usage")


# -- overrides -------------------------------------------------------------------------------------


def step_of(way: Way, name: str = "add") -> dict[str, Any]:
    """The row of a step in the registry."""
    steps: dict[str, dict[str, Any]] = {
        step["stepType"]: step for step in way.answer(calls.registry)["steps"]
    }
    return steps[name]


def test_an_override_is_in_force_at_the_next_start_and_shown_with_who_and_why(way: Way) -> None:
    change = way.answer(calls.override, SET, step="add")
    run = way.answer(calls.run, run=way.answer(calls.start, START)["runId"])

    assert change["replaced"] is None
    answer = change["override"]
    set_at = datetime.fromisoformat(answer.pop("setAt"))
    assert abs((datetime.now(UTC) - set_at).total_seconds()) < 600  # noqa: TID251 - the API's own
    assert answer == {
        "stepType": "add",
        "state": "in_force",
        "timeoutS": 90,
        "deadlineS": None,
        "until": "2999-01-01T00:00:00Z",
        "why": "slow day",
        "setBy": way.actor,
        "problem": None,
    }
    assert (run["dispatch"]["timeoutMs"], run["dispatch"]["deadlineS"]) == (90_000, 120)
    assert run["dispatch"]["sources"]["agentTimeout"] == "override"
    step = step_of(way)
    assert step["agentTimeoutMs"] == {"value": 90_000, "source": "override"}
    assert step["dispatchDeadlineS"] == {"value": 120.0, "source": "entry"}
    assert (step["override"]["setBy"], step["override"]["why"]) == (way.actor, "slow day")
    assert step_of(way, "fail")["override"] is None


def test_an_override_takes_the_place_of_the_whole_of_the_one_before(
    way: Way, environ: dict[str, str]
) -> None:
    with Client(environ=environ, actor="ben") as ben:
        first = Way(ben).answer(calls.override, SET, step="add")["override"]
    body = {name: value for name, value in SET.items() if name != "timeoutS"}

    change = way.answer(calls.override, body | {"deadlineS": 100}, step="add")
    (only,) = way.answer(calls.overrides)["overrides"]

    assert (only["timeoutS"], only["deadlineS"]) == (None, 100)
    assert (change["override"], change["replaced"]) == (only, first)
    assert (change["replaced"]["setBy"], change["replaced"]["timeoutS"]) == ("ben", 90)


def test_a_clear_ends_an_override_and_may_be_repeated(way: Way) -> None:
    was = way.answer(calls.override, SET, step="add")["override"]

    first = way.answer(calls.clear_override, step="add")
    again = way.answer(calls.clear_override, step="add")

    assert first == {"stepType": "add", "override": None, "replaced": was}
    assert again == {"stepType": "add", "override": None, "replaced": None}
    assert way.answer(calls.overrides) == {"overrides": []}
    assert step_of(way)["agentTimeoutMs"]["source"] == "entry"


def check_refused(way: Way, step: str, body: dict[str, Any], code: str, says: str) -> None:
    way.answer(calls.override, SET, step="add")
    before = way.answer(calls.overrides)

    refused, answer = way.ask(calls.override, body, step=step)

    assert refused == code
    assert answer["message"].startswith(says)
    assert way.answer(calls.overrides) == before


@pytest.mark.cover(1)
@pytest.mark.parametrize(
    ("step", "change", "code", "says"),
    [
        ("nope", {}, "unknown_key", "'nope' is not in the dispatch registry; known: add, "),
        ("x" * 5000, {}, "unknown_key", f"'{'x' * 128}' is not in the dispatch registry"),
        ("..", {}, "unknown_key", "'..' is not in the dispatch registry"),
        ("add", {"timeoutS": 120}, "", "timeoutS is 120; allowed: below the dispatch deadline"),
        ("add", {"timeoutS": 0}, "", "timeoutS is 0; allowed: above 0."),
        (
            "add",
            {"timeoutS": 30, "deadlineS": 30},
            "",
            "timeoutS is 30; allowed: below the dispatch deadline (0:00:30).",
        ),
        ("add", {"deadlineS": 5}, "", "deadlineS is 5; allowed: a whole number from 15 to 604800."),
        ("add", {"until": "2020-01-01"}, "", "until is '2020-01-01T00:00:00Z'; allowed: a time"),
        ("add", {"why": ""}, "", "why is ''; allowed: a text of 1 to 500 printable characters."),
        ("add", {"why": "a\x1b[31m"}, "", "why is"),
        ("add", {"why": "x" * 10_000}, "", "why is"),
    ],
)
def test_an_override_that_cannot_be_set_changes_nothing_and_says_why(
    way: Way, step: str, change: dict[str, Any], code: str, says: str
) -> None:
    check_refused(way, step, SET | change, code or "invalid_request", says)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"timeoutS": None}, "timeoutS is None; allowed: seconds from 0 to 604800."),
        ({"until": "2h"}, "until is '2h'; allowed: a time with its zone"),
        ({"timeoutMs": 90}, "timeoutMs is 90; allowed: one of the fields timeoutS"),
    ],
)
@pytest.mark.parametrize("way", ["store", "HTTP"], indirect=True)
def test_a_body_that_no_command_sends_changes_nothing_and_says_why(
    way: Way, change: dict[str, Any], says: str
) -> None:
    check_refused(way, "add", SET | change, "invalid_request", says)


def test_a_deadline_alone_is_refused_by_the_timeout_of_the_entry(way: Way) -> None:
    body = {"until": SET["until"], "why": "quick"}

    code, refused = way.ask(calls.override, body | {"deadlineS": 60}, step="add")
    nothing = way.ask(calls.override, body, step="add")

    assert code == "invalid_request"
    assert refused["message"] == (
        "deadlineS is 60; allowed: above the agent timeout (0:01:00), or a timeoutS below it as "
        "well."
    )
    assert is_refused(way, nothing, "invalid_request")
    if not isinstance(way, ByCommand):
        assert nothing[1]["message"] == "timeoutS is None; allowed: this, deadlineS, or both."


def test_documents_of_any_shape_are_listed_and_shown_as_refused(way: Way, bundle: Bundle) -> None:
    def write(step: str, **fields: Any) -> None:
        documents = bundle.engine.documents
        documents.transact(override_ref(step), lambda _, __: Write(None, fields))

    write("add", timeoutS="soon", until="2999-01-01")
    write("fail", timeoutS=1700, until="2999-01-01")
    write("gone", timeoutS=17, until="2999-01-01")
    write("old\n\x1b[31m", timeoutS=17, until="2020-01-01")

    listed = {one["stepType"]: one for one in way.answer(calls.overrides)["overrides"]}

    assert [(name, one["state"]) for name, one in listed.items()] == [
        ("add", "refused"),
        ("fail", "refused"),
        ("gone", "refused"),
        ("old\n\x1b[31m", "over"),
    ]
    assert listed["add"]["problem"].startswith("overrides/add refused: timeoutS is 'soon'")
    assert listed["fail"]["problem"].startswith("overrides/fail timeoutS refused: agent_timeout")
    assert listed["gone"]["problem"] == "overrides/gone refused: this deploy has no such step."
    step = step_of(way)
    assert (step["override"]["state"], step["agentTimeoutMs"]["source"]) == ("refused", "entry")
    assert step["refused"] == [listed["add"]["problem"]]


# -- deliveries ------------------------------------------------------------------------------------


def cancelled(way: Way) -> str:
    """Return a run that was cancelled, whose announcement is due to both channels."""
    run_id: str = way.answer(calls.start, START)["runId"]
    way.answer(calls.cancel, run=run_id)
    return run_id


def of_run(way: Way, run_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = way.answer(calls.run_deliveries, run=run_id)["deliveries"]
    return found


def listed(way: Way, **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = way.answer(calls.deliveries, query)["deliveries"]
    return found


def stored(bundle: Bundle, run_id: str, channel: str) -> Delivery:
    query = Query("deliveries", equal={"runId": run_id, "channel": channel})
    (found,) = bundle.engine.documents.query(query)
    return Delivery.model_validate(found.document)


def put(bundle: Bundle, delivery: Delivery, **fields: Any) -> None:
    """Store a delivery; `fields` as a person writes them by hand."""
    document: Document = {**StoredDocument(delivery), **fields}
    (found,) = (
        one
        for one in bundle.engine.documents.query(Query("deliveries", limit=1000))
        if one.ref.id == delivery.delivery_id
    )
    bundle.engine.documents.transact(found.ref, lambda _, __: Write(None, document))


def test_a_run_shows_what_each_channel_is_owed(way: Way) -> None:
    run_id = cancelled(way)

    found = of_run(way, run_id)

    assert {one["channel"]: one["state"] for one in found} == {"log": "due", "audit": "due"}
    one = found[0]
    assert is_as(DeliveryReport, one)
    assert (one["event"], one["priority"], one["tries"]) == ("run_cancelled", "normal", 0)
    assert run_id in one["summary"]
    assert way.ask(calls.run_deliveries, run="r-none")[0] == "unknown_run"


def test_one_that_is_sent_names_who_sends_it_and_not_the_claim(way: Way, bundle: Bundle) -> None:
    """A reader with the id of a claim could record its end."""
    run_id = cancelled(way)
    owed = stored(bundle, run_id, "log")
    claim = Claim(claim_id="secret-claim", holder="host-1", expires_at=owed.give_up_at)
    put(bundle, replace(owed, state=DeliveryState.CLAIMED, claim=claim))

    answers = [
        json.dumps(way.answer(row, run=run))
        for row, run in (
            (calls.run_deliveries, run_id),
            (calls.deliveries, ""),
            (calls.why, run_id),
        )
    ]

    assert all("host-1" in answer for answer in answers)
    assert not any("secret-claim" in answer for answer in answers)
    (one,) = listed(way, state="claimed")
    assert one["claimedUntil"] == moment_text(owed.give_up_at)


def test_all_runs_are_listed_newest_first_by_channel_and_state(way: Way, bundle: Bundle) -> None:
    first, second = cancelled(way), cancelled(way)
    told = replace(stored(bundle, first, "log"), state=DeliveryState.ANNOUNCED, message_id="m-1")
    put(bundle, told)

    def named(**query: Any) -> list[tuple[str, str]]:
        return [(one["runId"], one["channel"]) for one in listed(way, **query)]

    assert [run for run, _ in named()] == [second, second, first, first]
    assert named(channel="log") == [(second, "log"), (first, "log")]
    assert named(state="announced") == [(first, "log")]
    assert named(state="due", channel="log") == [(second, "log")]
    assert named(channel="none") == []
    assert is_refused(way, way.ask(calls.deliveries, {"state": "lost"}), "invalid_request")
    assert is_refused(way, way.ask(calls.deliveries, {"limit": "0"}), "invalid_request")


def test_pages_of_deliveries_follow_each_other_without_a_gap(way: Way) -> None:
    for _ in range(3):
        cancelled(way)

    seen: list[tuple[str, str]] = []
    token: dict[str, str] | None = {}
    while token is not None:
        page = way.answer(calls.deliveries, {"limit": "4", **token})
        seen += [(one["runId"], one["channel"]) for one in page["deliveries"]]
        token = {"pageToken": page["nextPageToken"]} if page["nextPageToken"] else None

    assert len(seen) == len(set(seen)) == 6
    assert way.ask(calls.deliveries, {"pageToken": "x"})[0] == "invalid_request"


@pytest.mark.cover(1)
@pytest.mark.parametrize(
    "edited",
    [
        {"state": "lost"},
        {"tries": "many"},
        {"runId": None},
        {"channel": "other"},
        {"claim": [1]},
        {"createdAt": "soon"},
    ],
)
def test_one_that_was_edited_hides_none_of_the_others(
    way: Way, bundle: Bundle, edited: dict[str, Any]
) -> None:
    run_id = cancelled(way)
    put(bundle, stored(bundle, run_id, "log"), **edited)

    assert [one["channel"] for one in listed(way)] == ["audit"]
    assert [one["channel"] for one in of_run(way, run_id)] == ["audit"]
    assert way.ask(calls.why, run=run_id)[0] == ""


def test_what_an_earlier_run_of_the_same_id_left_is_not_of_this_one(
    way: Way, bundle: Bundle
) -> None:
    run_id = cancelled(way)
    put(bundle, replace(stored(bundle, run_id, "log")), mark="another")

    assert len(of_run(way, run_id)) == 1


def test_why_says_what_people_are_still_to_be_told(way: Way, bundle: Bundle) -> None:
    run_id = cancelled(way)
    owed = stored(bundle, run_id, "log")
    put(
        bundle,
        replace(
            owed, state=DeliveryState.GIVEN_UP, given_up_why="404 gone", given_up_at=owed.created_at
        ),
    )

    why = way.answer(calls.why, run=run_id)

    assert why["waitsFor"] is None
    assert len(why["owed"]) == 2
    assert (
        "Channel log did not receive run_cancelled: 404 gone. :deliver sends it once more."
    ) in why["owed"]
    assert {one["channel"] for one in why["deliveries"]} == {"log", "audit"}


def test_an_unknown_channel_is_refused_with_the_known_ones(way: Way) -> None:
    run_id = cancelled(way)

    code, answer = way.ask(calls.deliver, {"channel": "slak"}, run_id)

    assert (code, answer["message"]) == (
        "unknown_key",
        "'slak' is not in the channels registry; known: log, audit.",
    )


def test_a_run_with_nothing_to_announce_is_refused(way: Way) -> None:
    run_id = way.answer(calls.start, START)["runId"]
    log = {"channel": "log"}

    def code(given: dict[str, Any], run: str = run_id) -> Answer:
        return way.ask(calls.deliver, given, run)

    assert code(log)[0] == "unknown_delivery"
    assert code(log, "r-none")[0] == "unknown_run"
    assert is_refused(way, code({}), "invalid_request")
    assert code({"channel": EVIL})[0] == "invalid_request"
    assert code({"channel": ""})[0] == "invalid_request"
    assert code(log | {"reason": "a\nb"})[0] == "invalid_request"
