"""Each answer of the lease API, and that a refused call changes nothing."""

from __future__ import annotations

import sqlite3
from base64 import b64encode
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.domain import lifecycle
from leasehold.domain.artifact_name import files_folder
from leasehold.domain.change import on_run
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.effect import Task
from leasehold.domain.json_text import MAX_OUTPUT_BYTES
from leasehold.domain.lease import fence_of
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import run_ref
from leasehold.domain.result import SignalRequest
from leasehold.domain.spend import Spend
from leasehold.domain.stored import Write
from leasehold.errors import StoreUnavailableError
from leasehold.remote_workers.claim_step import acquire_run
from leasehold.remote_workers.manage_lease import LeaseCredentials, await_signal
from leasehold.services.engine import publish_owed
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.read_runs import timeline_of
from leasehold.services.request_bounds import MAX_FILE_BYTES
from leasehold.services.sweep import sweep
from leasehold.testing import FrozenClock, InProcessEngine
from tests.api.functions import remote_steps
from tests.api.functions.remote_steps import PIPELINES, STEPS
from tests.worlds.functions import Function, edit, one_store, spoil

Answer = tuple[int, Any]
#: Calls the API: a word, and the fields of the body.
Call = Callable[..., Answer]
#: What is stored: all documents as they lie in the file, and all artifacts.
Stored = Callable[[], object]

WORDS = (
    *("renew", "checkpoint", "complete", "fail", "release"),
    *("recordCall", "calls", "await", "putFile", "getFile", "listFiles"),
)
#: What each call needs beyond the lease.
FURTHER: dict[str, dict[str, Any]] = {
    "renew": {},
    "checkpoint": {"iterationCount": 1, "partialResults": ["x" * 40_000]},
    "complete": {"output": {"n": 1}},
    "fail": {"error": {"message": "no"}},
    "release": {},
    "recordCall": {"key": "ask", "result": ["x" * 40_000]},
    "calls": {},
    "await": {"name": "approval"},
    "putFile": {"name": "a", "content": "YQ=="},
    "getFile": {"name": "a"},
    "listFiles": {},
}


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    return one_store(
        tmp_path,
        monkeypatch,
        LEASEHOLD_CATALOG="tests.api.functions.remote_steps",
        PIPELINE_MAX_INTERRUPTIONS="1",
        PIPELINE_LEASE_TTL_S="50",  # a busy machine carries large files slowly
    )


@pytest.fixture
def long_ago(environ: dict[str, str]) -> Iterator[InProcessEngine]:
    """An engine whose time is past: leases that it gives are over today."""
    past = FrozenClock()
    with InProcessEngine(STEPS, PIPELINES, environ=environ, clock=past, workers=0) as engine:
        yield engine


@pytest.fixture
def call(manage_lease: Function) -> Call:
    def call(word: str, **body: Any) -> Answer:
        return manage_lease.post(f"/leases:{word}", body)

    return call


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    def stored() -> object:
        with sqlite3.connect(tmp_path / "runs.db") as file:
            rows = [file.execute(f"SELECT * FROM {name}").fetchall() for name in ("runs", "trace")]  # noqa: S608 - our own names
        file.close()
        files = sorted((tmp_path / "artifacts").rglob("*"))
        return rows, [(path, path.read_bytes()) for path in files if path.is_file()]

    return stored


def lease_of(given: Any) -> dict[str, Any]:
    """The credentials of a worker's lease."""
    return {name: given[name] for name in ("runId", "leaseId", "fencingToken")}


def claimed(call: Call, step_type: str = "count") -> dict[str, Any]:
    status, given = call("claim", stepType=step_type, holder="vm-1")
    assert status == 200, given
    return lease_of(given)


def code_of(answer: Answer) -> tuple[int, str]:
    return answer[0], answer[1]["error"]["code"]


# -- signals ---------------------------------------------------------------------------------------


def test_a_worker_is_given_the_signal_that_its_step_waited_for(
    engine: InProcessEngine, call: Call
) -> None:
    run = engine.start("counts", {})
    waits = call("await", **claimed(call), name="approval", timeoutS=60)
    engine.signal(run.run_id, "approval", {"approved": True})
    lease = claimed(call)

    given = call("await", **lease, name="approval", timeoutS=60)

    assert waits == (200, {"outcome": "blocked", "value": None})
    assert given == (200, {"outcome": "found", "value": {"approved": True}})
    assert call("complete", **lease, output={"n": 1})[0] == 200


def test_a_worker_learns_that_its_step_waited_in_vain(
    engine: InProcessEngine, long_ago: InProcessEngine, call: Call
) -> None:
    run = long_ago.start("counts", {})
    fence = fence_of(acquire_run(long_ago.engine, run.run_id, "vm-1").manifest)
    wanted = SignalRequest("approval", timeout_s=60, otherwise="continue")
    await_signal(long_ago.engine, LeaseCredentials(run.run_id, fence), wanted)
    sweep(engine.engine)

    told = call("await", **claimed(call), name="approval", timeoutS=60, otherwise="continue")

    assert told == (200, {"outcome": "missed", "value": None})


# -- files -----------------------------------------------------------------------------------------


def test_a_worker_stores_reads_and_lists_the_files_of_its_run(
    engine: InProcessEngine, call: Call
) -> None:
    """They are those that the handlers of the run store, and read."""
    run = engine.start("local", {"n": 1})
    engine.run_until_idle()
    lease = claimed(call, "free")
    files = engine.engine.artifacts
    files.put(f"{files_folder(run)}/notes.txt", b"of a handler")
    data = bytes(range(256))

    put = call("putFile", **lease, name="a/b.bin", content=b64encode(data).decode())
    again = call("putFile", **lease, name="a/b.bin", content=b64encode(data[:9]).decode())
    read = call("getFile", **lease, name="notes.txt")
    listed = call("listFiles", **lease)
    page = call("listFiles", **lease, limit=1)

    assert put == (200, {"name": "a/b.bin", "size": 256})
    assert again == (200, {"name": "a/b.bin", "size": 9})
    assert files.get(f"{files_folder(run)}/a/b.bin") == data[:9]
    content = b64encode(b"of a handler").decode()
    assert read == (200, {"name": "notes.txt", "size": 12, "content": content})
    assert [entry["name"] for entry in listed[1]["files"]] == ["a/b.bin", "notes.txt"]
    assert page[1]["nextPageToken"] == "a/b.bin"


@pytest.mark.parametrize("name", ["../values/x", "/etc/passwd", "a//b", ".", "a\0", "x" * 1001])
@pytest.mark.parametrize("word", ["putFile", "getFile"])
def test_no_file_leads_out_of_the_run(
    engine: InProcessEngine, call: Call, stored: Stored, word: str, name: str
) -> None:
    engine.start("last", {})
    lease = claimed(call, "free")
    before = stored()

    answer = call(word, **lease, **(FURTHER[word] | {"name": name}))

    assert code_of(answer) == (400, "artifact_name")
    assert stored() == before


def test_a_file_that_is_not_there_is_a_404_and_loses_no_lease(
    engine: InProcessEngine, call: Call
) -> None:
    engine.start("last", {})
    lease = claimed(call, "free")

    assert code_of(call("getFile", **lease, name="none")) == (404, "unknown_file")
    assert call("complete", **lease, output=1)[0] == 200


def test_a_file_is_as_large_as_a_call_carries_and_no_larger(
    engine: InProcessEngine, call: Call
) -> None:
    run = engine.start("last", {})
    lease = claimed(call, "free")
    largest = b64encode(bytes(MAX_FILE_BYTES)).decode()
    too_large = b64encode(bytes(MAX_FILE_BYTES + 1)).decode()

    stored = call("putFile", **lease, name="a", content=largest)
    read = call("getFile", **lease, name="a")
    refused = call("putFile", **lease, name="b", content=too_large)
    unread = call("putFile", **lease, name="b", content=largest + "A" * 100_000)
    engine.engine.artifacts.put(f"{files_folder(run)}/c", bytes(MAX_FILE_BYTES + 1))
    unsent = call("getFile", **lease, name="c")

    assert stored == (200, {"name": "a", "size": MAX_FILE_BYTES})
    assert read[1]["content"] == largest
    assert code_of(refused) == (413, "file_too_large")
    assert code_of(unread) == (413, "too_large")
    assert code_of(unsent) == (413, "file_too_large")
    assert f"GET /runs/{run.run_id}/files/NAME" in unsent[1]["error"]["message"]
    listed = call("listFiles", **lease)[1]["files"]
    assert [entry["name"] for entry in listed] == ["a", "c"]


# -- claim and acquire ---------------------------------------------------------------------------


def test_a_worker_gets_the_note_of_a_retry(engine: InProcessEngine, call: Call) -> None:
    run = engine.start("counts", {"text": "a b"})
    call("fail", **claimed(call), error={"message": "too long"})
    engine.retry(run.run_id, note="make it shorter\nand kinder")

    given = call("claim", stepType="count", holder="vm-1")[1]

    assert (given["runId"], given["attempt"]) == (run.run_id, 2)
    assert given["note"] == "make it shorter\nand kinder"


def test_a_worker_gets_what_the_reviewer_of_the_trial_before_found(
    engine: InProcessEngine, call: Call
) -> None:
    engine.start("reviewed", {})
    verdict = {"settled": False, "score": 0.5, "findings": ["too long", {"line": 7}]}
    first = call("claim", stepType="free", holder="vm-1")[1]
    call("complete", **lease_of(first), output="Dear Ada")
    call("complete", **claimed(call, "steady"), output=verdict)

    second = call("claim", stepType="free", holder="vm-2")[1]

    assert (first["trial"], first["findings"]) == (1, [])
    assert (second["trial"], second["findings"]) == (2, verdict["findings"])


def test_a_claim_gives_the_lease_and_all_that_a_worker_needs(
    engine: InProcessEngine, call: Call
) -> None:
    run = engine.start("counts", {"text": "a b"})

    status, given = call("claim", stepType="count", holder="vm-1 / gpu 0")

    assert given.pop("note") is None
    lease = engine.show(run.run_id).position.lease
    assert lease is not None
    assert lease.holder == "vm-1 / gpu 0"
    expires_at = datetime.fromisoformat(given.pop("expiresAt"))
    capped_at = datetime.fromisoformat(given.pop("maxExpiresAt"))
    assert (expires_at, capped_at) == (lease.expires_at, lease.max_expires_at)
    assert capped_at - lease.acquired_at == timedelta(minutes=7)
    assert (status, given) == (
        200,
        {
            "runId": run.run_id,
            "step": "count",
            "stepType": "count",
            "attempt": 1,
            "trial": 1,
            "leaseId": lease.lease_id,
            "fencingToken": 1,
            "heartbeatS": 10.0,
            "timeoutMs": 60_000,
            "given": {"text": "a b"},
            "resume": None,
            "findings": [],
            "traceparent": None,
        },
    )


def test_a_step_without_a_heartbeat_says_so(engine: InProcessEngine, call: Call) -> None:
    engine.start("steady", {})

    given = call("claim", stepType="steady", holder="vm-1")[1]

    assert given["heartbeatS"] is None
    assert given["expiresAt"] == given["maxExpiresAt"]


def test_claims_go_to_the_run_that_waits_longest_until_none_waits(
    engine: InProcessEngine, call: Call
) -> None:
    runs = [engine.start("counts", {}).run_id for _ in range(12)]

    given = [call("claim", stepType="count", holder="vm-1") for _ in range(13)]

    assert [answer[1]["runId"] for answer in given[:12]] == runs
    assert code_of(given[12]) == (404, "nothing_to_claim")


def test_a_step_that_waits_for_its_backoff_is_not_given(
    engine: InProcessEngine, call: Call, stored: Stored
) -> None:
    engine.start("counts", {})
    call("fail", **claimed(call), error={"message": "busy"})
    before = stored()

    answer = call("claim", stepType="count", holder="vm-1")

    assert code_of(answer) == (404, "nothing_to_claim")
    assert stored() == before


def test_a_run_that_cannot_be_read_hides_none_behind_it(
    engine: InProcessEngine, call: Call
) -> None:
    """A page of them would be what every claim finds first."""
    for _ in range(11):
        spoil(engine, engine.start("counts", {}).run_id)
    run = engine.start("counts", {})

    assert call("claim", stepType="count", holder="vm-1")[1]["runId"] == run.run_id


@pytest.mark.parametrize(
    ("step_type", "answer", "says"),
    [
        ("nope", (404, "unknown_key"), "known: count, free"),
        ("finish", (400, "invalid_request"), "execute_step runs the others"),
    ],
)
def test_a_step_type_that_is_not_remote_is_refused_with_the_known_ones(
    engine: InProcessEngine, call: Call, stored: Stored, step_type: str, answer: Answer, says: str
) -> None:
    engine.start("local", {"n": 1})
    before = stored()

    refused = call("claim", stepType=step_type, holder="vm-1")

    assert code_of(refused) == answer
    assert says in refused[1]["error"]["message"]
    assert stored() == before


def test_a_run_is_acquired_by_its_id_whatever_its_step(engine: InProcessEngine, call: Call) -> None:
    run = engine.start("local", {"n": 3})

    given = call("acquire", runId=run.run_id, holder="vm-1")
    again = call("acquire", runId=run.run_id, holder="vm-2")
    misfit = call("complete", **lease_of(given[1]), output={"n": 0})
    done = call("complete", **lease_of(given[1]), output={"n": 4})

    assert (given[0], given[1]["stepType"], given[1]["given"]) == (200, "finish", {"n": 3})
    assert code_of(again) == (409, "lease_held")
    assert again[1]["error"]["details"]["holder"] == "vm-1"
    assert code_of(misfit) == (400, "invalid_output")
    assert done == (200, {"outcome": "handed_off"})


@pytest.mark.parametrize("run_id", ["r-none", "__x__", "a/b", "..", "é" * 200])
def test_an_unknown_run_is_a_404(call: Call, run_id: str) -> None:
    fence = {"runId": run_id, "leaseId": "x", "fencingToken": 1}

    answers = [call("acquire", runId=run_id, holder="vm-1")]
    answers += [call(word, **fence, **FURTHER[word]) for word in WORDS]

    assert {code_of(answer) for answer in answers} == {(404, "unknown_run")}


def test_a_run_that_waits_for_no_worker_cannot_be_acquired(
    engine: InProcessEngine, call: Call, stored: Stored
) -> None:
    run = engine.start("last", {})
    call("complete", **claimed(call, "free"), output=1)
    before = stored()

    answer = call("acquire", runId=run.run_id, holder="vm-1")

    assert code_of(answer) == (404, "nothing_to_claim")
    assert answer[1]["error"]["details"]["state"] == "COMPLETED"
    assert stored() == before


def test_an_expired_lease_is_taken_over_with_the_next_token(
    long_ago: InProcessEngine, call: Call
) -> None:
    run = long_ago.start("counts", {})
    acquire_run(long_ago.engine, run.run_id, "vm-1")

    status, given = call("acquire", runId=run.run_id, holder="vm-2")

    assert (status, given["fencingToken"], given["attempt"]) == (200, 2, 2)


def test_to_take_over_once_too_often_gives_the_run_up_and_says_so(
    environ: dict[str, str], engine: InProcessEngine, call: Call
) -> None:
    clock = FrozenClock(SystemClock().now() - timedelta(minutes=3))
    with InProcessEngine(STEPS, PIPELINES, environ=environ, clock=clock, workers=0) as lately:
        run = lately.start("counts", {})
        for _ in range(2):
            acquire_run(lately.engine, run.run_id, "vm-1")
            clock.advance(60)

    answer = call("acquire", runId=run.run_id, holder="vm-2")

    assert code_of(answer) == (404, "nothing_to_claim")
    assert "was given up: Step count was interrupted" in answer[1]["error"]["message"]
    assert engine.show(run.run_id).dead_letter_reason == "STUCK_IN_PROGRESS"


def test_a_step_that_no_worker_claims_in_time_is_given_up(
    environ: dict[str, str], call: Call
) -> None:
    """The sweep ran every ten minutes, and it was there to be claimed."""
    clock = FrozenClock(SystemClock().now() - timedelta(hours=2))
    with InProcessEngine(STEPS, PIPELINES, environ=environ, clock=clock, workers=0) as engine:
        run = engine.start("counts", {})
        looks = [engine.show(run.run_id).dead_letter_reason]
        for _ in range(6):
            clock.advance(600)
            sweep(engine.engine)
            looks.append(engine.show(run.run_id).dead_letter_reason)

    assert looks == [None] * 6 + ["NEVER_STARTED"]
    assert code_of(call("claim", stepType="count", holder="vm-1")) == (404, "nothing_to_claim")


def test_a_step_that_no_worker_could_claim_waits_on(
    long_ago: InProcessEngine, engine: InProcessEngine, call: Call
) -> None:
    """The server was down for as long as its worker was on holiday."""
    run = long_ago.start("counts", {})

    sweep(engine.engine)

    assert engine.show(run.run_id).claimable == "count"
    assert call("claim", stepType="count", holder="vm-1")[0] == 200


def test_a_large_value_is_given_from_the_artifacts(engine: InProcessEngine, call: Call) -> None:
    engine.start("large", {})
    engine.run_until_idle()

    given = call("claim", stepType="free", holder="vm-1")[1]["given"]

    assert given == {"text": "é" * 40_000}


def test_a_run_whose_value_is_lost_is_blocked_and_the_next_is_given(
    engine: InProcessEngine, call: Call, tmp_path: Path
) -> None:
    lost = engine.start("large", {})
    engine.run_until_idle()
    for path in (tmp_path / "artifacts").rglob("large-*.json"):
        path.unlink()
    whole = engine.start("last", {})

    status, given = call("claim", stepType="free", holder="vm-1")

    assert (status, given["runId"]) == (200, whole.run_id)
    blocked = engine.show(lost.run_id)
    assert blocked.block is not None
    assert (blocked.status, blocked.block.code) == ("BLOCKED", "input_missing")


def test_a_run_whose_input_is_no_json_any_more_is_blocked(
    engine: InProcessEngine, call: Call
) -> None:
    """An editor of the store's document cut it; no worker is answered 500 and holds a lease."""
    run = engine.start("counts", {})
    edit(engine, run.run_id, input='{"text')

    assert call("claim", stepType="count", holder="vm-1")[0] == 404
    assert call("acquire", runId=run.run_id, holder="vm-1")[0] == 404

    blocked = engine.show(run.run_id)
    assert blocked.block is not None
    assert (blocked.status, blocked.block.code) == ("BLOCKED", "input_mismatch")
    assert "is not what was stored" in blocked.block.finding


# -- renew and checkpoint ------------------------------------------------------------------------


def test_a_renewal_answers_until_when_and_notes_the_progress(
    engine: InProcessEngine, call: Call
) -> None:
    run = engine.start("counts", {})
    lease = claimed(call)
    before = engine.show(run.run_id).position.lease

    status, renewed = call("renew", **lease, progress={"fraction": 0.5, "message": "half"})

    manifest = engine.show(run.run_id)
    assert before is not None
    assert manifest.position.lease is not None
    assert status == 200
    assert datetime.fromisoformat(renewed["expiresAt"]) == manifest.position.lease.expires_at
    assert datetime.fromisoformat(renewed["maxExpiresAt"]) == before.max_expires_at
    assert manifest.position.lease.expires_at > before.expires_at
    progress = manifest.steps["count"].progress
    assert progress is not None
    assert (progress.fraction, progress.message) == (0.5, "half")


@pytest.mark.parametrize("results", [{"done": [1, 2]}, ["é" * 40_000]])
def test_a_checkpoint_is_what_the_next_worker_goes_on_from(
    engine: InProcessEngine, call: Call, results: Any
) -> None:
    engine.start("counts", {})
    lease = claimed(call)

    saved = call("checkpoint", **lease, iterationCount=2, partialResults=results, phase="reading")
    call("release", **lease)
    given = call("claim", stepType="count", holder="vm-2")[1]

    assert (saved[0], list(saved[1])) == (200, ["expiresAt"])
    assert given["resume"] == {
        "phase": "reading",
        "iterationCount": 2,
        "partialResults": results,
    }
    assert (given["fencingToken"], given["attempt"]) == (2, 2)


@pytest.mark.parametrize("result", [{"n": 1}, ["é" * 40_000], None])
def test_a_recorded_call_is_found_by_the_next_worker_and_its_first_result_counts(
    engine: InProcessEngine, call: Call, result: Any
) -> None:
    run = engine.start("counts", {})
    lease = claimed(call)
    asked = {"key": "ask", "request": {"prompt": "a"}, "tookS": 2.0}
    asked |= {"spent": {"tokens": 100, "usd": 0.5}}

    first = call("recordCall", **lease, **asked, result=result, type="Answer")
    again = call("recordCall", **lease, **asked, result="another")
    call("recordCall", **lease, **(asked | {"request": {"prompt": "b"}}), result="of b")
    call("release", **lease)
    lease = claimed(call)
    found = call("calls", **lease)[1]
    page = call("calls", **lease, limit=1)[1]

    assert (first[0], first[1]["result"], again[1]["result"]) == (200, result, result)
    assert [one["result"] for one in found["calls"]] in ([result], ["of b"])
    assert (len(page["calls"]), found["nextPageToken"]) == (1, None)
    step = engine.show(run.run_id).steps["count"]
    assert step.calls is not None
    assert (step.calls.made, step.spend) == (2, Spend(tokens=200, usd=1.0))


def test_a_key_with_another_request_is_paid_again_and_traced(
    engine: InProcessEngine, call: Call
) -> None:
    """As `ctx.once` does: never an error, and never a stale answer."""
    run = engine.start("counts", {})
    lease = claimed(call)
    asked = {"key": "ask", "request": {"model": "m", "prompt": "a"}}
    changed = asked | {"request": {"model": "m", "prompt": "b"}}
    call("recordCall", **lease, **asked, result="of a")
    call("release", **lease)
    lease = claimed(call)

    same = call("calls", **lease, **asked)[1]["calls"]
    other = call("calls", **lease, **changed)[1]["calls"]
    call("recordCall", **lease, **changed, result="of b")
    then = [call("calls", **lease, **one)[1]["calls"] for one in (asked, changed)]

    assert ([one["result"] for one in same], other) == (["of a"], [])
    assert [[one["result"] for one in each] for each in then] == [["of a"], ["of b"]]
    (diverged,) = [
        each for each in timeline_of(engine.engine, run.run_id) if each.type == "call_diverged"
    ]
    assert diverged.detail == "call 'ask': another prompt"
    calls = engine.show(run.run_id).steps["count"].calls
    assert calls is not None
    assert (calls.made, calls.diverged) == (2, 1)


def test_a_request_that_varies_is_not_paid_for_without_end(
    engine: InProcessEngine, call: Call
) -> None:
    """Each recorded call is progress, so nothing else would end a step that goes on for good."""
    run = engine.start("counts", {})

    def attempted(now: int) -> Answer:
        lease = claimed(call)
        request = {"prompt": f"it is {now} o'clock"}
        answer = call("calls", **lease, key="ask", request=request)
        if answer[0] == 200:
            call("recordCall", **lease, key="ask", request=request, result=now)
            call("release", **lease, continued=True)
        return answer

    answers = [attempted(now) for now in range(5)]
    blocked = engine.show(run.run_id)
    operate(engine.engine, run.run_id, OperationRequest(Operation.RETRY, actor="ada"))
    again = [attempted(now) for now in (6, 7)]

    assert [status for status, _ in answers] == [200, 200, 200, 200, 409]
    assert code_of(answers[-1]) == (409, "call_varies")
    assert "its prompt differed each time" in answers[-1][1]["error"]["message"]
    assert blocked.block is not None
    assert (blocked.status, blocked.block.code) == ("BLOCKED", "handler_mistake")
    assert [status for status, _ in again] == [200, 409]


def test_pages_of_recorded_calls_hold_all_of_them(engine: InProcessEngine, call: Call) -> None:
    engine.start("counts", {})
    lease = claimed(call)
    for number in range(5):
        call("recordCall", **lease, key=f"ask {number}", result=number)

    found, token = [], None
    while True:
        page = call("calls", **lease, limit=2, **({} if token is None else {"pageToken": token}))
        found += [(one["key"], one["result"]) for one in page[1]["calls"]]
        token = page[1]["nextPageToken"]
        if token is None:
            break

    assert found == [(f"ask {number}", number) for number in range(5)]


@pytest.mark.parametrize("word", ["recordCall", "calls"])
@pytest.mark.parametrize("change", ["leaseId", "fencingToken", "runId"])
def test_calls_of_a_run_are_for_the_holder_of_its_lease_alone(
    engine: InProcessEngine, call: Call, stored: Stored, word: str, change: str
) -> None:
    """Neither a wrong lease nor the lease of another run reads or records anything."""
    engine.start("counts", {})
    engine.start("counts", {})
    mine, other = claimed(call), claimed(call)
    call("recordCall", **other, key="secret", result="of the other run")
    wrong = {"leaseId": "lease-x", "fencingToken": 99, "runId": other["runId"]}[change]
    asked = {"key": "ask", "result": "forged"} if word == "recordCall" else {}
    before = stored()

    answer = call(word, **(mine | {change: wrong}), **asked)

    assert code_of(answer) == (409, "lease_lost")
    assert "of the other run" not in str(answer)
    assert stored() == before


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"key": "k" * 129, "result": 1}, "invalid_request"),
        ({"key": "", "result": 1}, "invalid_request"),
        ({"key": "a\nb", "result": 1}, "invalid_request"),
        ({"key": ["a"], "result": 1}, "invalid_request"),
        ({"key": "a"}, "invalid_request"),
        ({"key": "a", "result": 1, "keep": "yes"}, "invalid_request"),
        ({"key": "a", "result": 1, "tookS": -1}, "invalid_request"),
        ({"key": "a", "result": 1, "type": "t" * 101}, "invalid_request"),
        ({"key": "a", "result": 1, "spent": {"usd": -1}}, "invalid_request"),
        ({"key": "a", "result": 1, "spent": {"tokens": 1.5}}, "invalid_request"),
        ({"key": "a", "result": 1, "spent": 7}, "invalid_request"),
        ({"key": "a", "result": "x" * MAX_OUTPUT_BYTES}, "too_large"),
    ],
    ids=lambda value: None if isinstance(value, str) else repr(value)[:40],
)
def test_a_malformed_call_is_refused_and_nothing_is_recorded(
    engine: InProcessEngine, call: Call, stored: Stored, body: dict[str, Any], code: str
) -> None:
    engine.start("counts", {})
    lease = claimed(call)
    before = stored()

    status, answer = call("recordCall", **lease, **body)

    assert status in (400, 413)
    assert answer["error"]["code"] == code
    assert len(str(answer)) < 2000
    assert call("calls", **lease)[1]["calls"] == []
    assert stored() == before


def test_a_late_checkpoint_changes_none_that_counts(
    engine: InProcessEngine, call: Call, stored: Stored
) -> None:
    """Its artifact must not take the place of one that a worker goes on from."""
    engine.start("counts", {})
    lease = claimed(call)
    call("checkpoint", **lease, iterationCount=1, partialResults=["a" * 40_000])
    call("release", **lease)
    call("claim", stepType="count", holder="vm-2")
    before = stored()

    late = call("checkpoint", **lease, iterationCount=1, partialResults=["b" * 40_000])

    assert code_of(late) == (409, "lease_lost")
    assert stored() == before


def test_a_checkpoint_that_is_lost_is_begun_without(
    engine: InProcessEngine, call: Call, tmp_path: Path
) -> None:
    run = engine.start("counts", {})
    lease = claimed(call)
    call("checkpoint", **lease, iterationCount=1, partialResults=["a" * 40_000])
    call("release", **lease)
    for path in (tmp_path / "artifacts").rglob("*.json.gz"):
        path.unlink()

    assert call("claim", stepType="count", holder="vm-2")[1]["resume"] is None
    assert engine.show(run.run_id).position.checkpoint is None


# -- settlements ---------------------------------------------------------------------------------


def test_an_output_hands_off_to_a_step_of_the_bundle(engine: InProcessEngine, call: Call) -> None:
    run = engine.start("counts", {})

    answer = call("complete", **claimed(call), output={"n": 2, "words": ["é"]}, status="PARTIAL")

    manifest = engine.show(run.run_id)
    assert answer == (200, {"outcome": "handed_off"})
    assert (manifest.current_step, manifest.status) == ("finish", "PENDING")
    assert manifest.steps["count"].output == '{"n":2,"words":["é"]}'
    assert manifest.steps["count"].output_status == "PARTIAL"
    assert manifest.alarm_at is not None


def test_the_last_output_completes_the_run_and_null_is_one(
    engine: InProcessEngine, call: Call
) -> None:
    run = engine.start("last", {})

    answer = call("complete", **claimed(call, "free"), output=None)

    assert answer == (200, {"outcome": "completed"})
    assert engine.show(run.run_id).steps["free"].output == "null"


def test_a_failure_is_kept_and_tried_again_until_it_is_given_up(
    engine: InProcessEngine, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIPELINE_MIN_BACKOFF_S", "0.001")
    run = engine.start("counts", {})
    error = {"message": "no memory\n", "code": "oom", "type": "CudaError", "details": {"gb": 80}}

    first = call("fail", **claimed(call), error=error)
    second = call("fail", **claimed(call), error={"message": "x" * 9000, "details": "y" * 9000})

    manifest = engine.show(run.run_id)
    event = next(event for event in engine.trace(run.run_id) if event.type == "step_error")
    assert first == (200, {"outcome": "retry_scheduled"})
    assert (event.reason, event.detail) == ("CudaError", "no memory\n")
    assert second == (200, {"outcome": "dead_lettered"})
    assert manifest.error is not None
    assert (manifest.error.code, manifest.error.type) == ("remote_error", "RemoteError")
    assert len(manifest.error.message) == len(manifest.error.details or "") == 4000


def test_a_failure_may_say_when_to_come_again_and_where_it_was_raised(
    engine: InProcessEngine, call: Call
) -> None:
    run = engine.start("counts", {})
    error = {"message": "busy", "traceback": "Error: busy\n    at f (a.js:1) token=hunter2"}

    answer = call("fail", **claimed(call), error=error, retryAfterS=3600)

    kept = engine.show(run.run_id)
    assert answer == (200, {"outcome": "retry_scheduled"})
    assert kept.position.dispatch.not_before - kept.updated_at == timedelta(hours=1)
    assert kept.error is not None
    assert kept.error.traceback == "Error: busy\n    at f (a.js:1) token=[redacted]"


@pytest.mark.parametrize(("code", "retries"), [("rate_limited", 0), ("busy", 1)])
def test_a_rate_limit_uses_up_no_retry(
    engine: InProcessEngine, call: Call, code: str, retries: int
) -> None:
    run = engine.start("counts", {})
    error = {"message": "busy", "code": code}

    answer = call("fail", **claimed(call), error=error, retryAfterS=15)

    position = engine.show(run.run_id).position
    assert answer == (200, {"outcome": "retry_scheduled"})
    assert (position.failures, position.attempts.deferred) == (retries, 1 - retries)


@pytest.mark.parametrize("wait", [-1, 86_401, "1", True, None])
def test_a_wait_that_cannot_be_is_refused(engine: InProcessEngine, call: Call, wait: Any) -> None:
    engine.start("counts", {})

    status, refused = call("fail", **claimed(call), error={"message": "no"}, retryAfterS=wait)

    assert status == 400
    assert "retryAfterS is" in refused["error"]["message"]
    assert "allowed: seconds from 0 to 86400." in refused["error"]["message"]


def test_a_permanent_failure_is_not_repeated(engine: InProcessEngine, call: Call) -> None:
    run = engine.start("counts", {})

    answer = call("fail", **claimed(call), error={"message": "no such file"}, permanent=True)

    assert answer == (200, {"outcome": "dead_lettered"})
    assert engine.show(run.run_id).dead_letter_reason == "PERMANENT_FAILURE"


def test_a_step_that_takes_longer_is_continued_by_the_next_claim(
    engine: InProcessEngine, call: Call
) -> None:
    run = engine.start("counts", {})
    lease = claimed(call)
    call("checkpoint", **lease, iterationCount=1, partialResults=[1])

    answer = call("release", **lease, continued=True)
    again = call("release", **lease)
    status, claim = call("claim", stepType="count", holder="vm-2")

    moved = engine.show(run.run_id)
    assert answer == again == (200, {"outcome": "continued"})
    assert (status, claim["attempt"], claim["resume"]["partialResults"]) == (200, 2, [1])
    assert (moved.position.attempts.continued, moved.position.interruptions) == (1, 0)


def test_a_release_burns_no_retry_and_the_step_can_be_claimed_at_once(
    engine: InProcessEngine, call: Call
) -> None:
    run = engine.start("counts", {})

    answer = call("release", **claimed(call))

    manifest = engine.show(run.run_id)
    event = engine.trace(run.run_id)[-1]
    assert answer == (200, {"outcome": "released"})
    assert (manifest.position.attempts.failed, manifest.position.attempts.interrupted) == (0, 1)
    assert (event.type, event.reason) == ("step_terminated", "instance_shutdown")
    assert claimed(call)["fencingToken"] == 2


@pytest.mark.parametrize(
    ("word", "outcome"),
    [("complete", "handed_off"), ("fail", "retry_scheduled"), ("release", "released")],
)
def test_a_settlement_that_is_repeated_gets_its_first_answer(
    engine: InProcessEngine, call: Call, stored: Stored, word: str, outcome: str
) -> None:
    """The second answer is the first one, though the run has moved on by then."""
    engine.start("counts", {})
    lease = claimed(call)
    first = call(word, **lease, **FURTHER[word])
    before = stored()

    again = call(word, **lease, **FURTHER[word])
    otherwise = call("complete", **lease, output={"n": "é" * 40_000})

    assert first == again == otherwise == (200, {"outcome": outcome})
    assert stored() == before


def completed_unheard(engine: InProcessEngine, run_id: str) -> dict[str, Any]:
    """Have a worker's output recorded whose process is killed behind the commit; its lease."""
    run = acquire_run(engine.engine, run_id, "vm-1").manifest
    fence, value = fence_of(run), KeptValue(text='{"n":1,"words":[]}')
    complete = partial(lifecycle.complete, rules=engine.engine.rules, fence=fence, output=value)
    engine.engine.documents.transact(run_ref(run_id), on_run(run_id, complete))
    return {"runId": run_id, "leaseId": fence.lease_id, "fencingToken": fence.fencing_token}


def test_a_completion_that_is_repeated_after_the_end_of_its_lease_gets_its_first_answer(
    long_ago: InProcessEngine,
    call: Call,
    manage_lease: Function,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the task of the next step is created at once, not by the sweep."""
    run = long_ago.start("counts", {})
    lease = completed_unheard(long_ago, run.run_id)
    created: list[Task] = []
    monkeypatch.setattr(manage_lease.provider.engine.tasks, "create", created.append)

    first = call("complete", **lease, output={"n": 1})
    queues = [task.queue for task in created]
    again = call("complete", **lease, output={"n": 2})

    assert first == again == (200, {"outcome": "handed_off"})
    assert queues == ["finish"]
    assert len({(task.run_id, task.generation) for task in created}) == 1


def test_the_trace_tells_a_worker_whose_completion_is_refused_later_that_it_counts(
    long_ago: InProcessEngine, call: Call, engine: InProcessEngine, stored: Stored
) -> None:
    """The next step is over by then, so its answer is the one that is known."""
    run = long_ago.start("two", {})
    lease = completed_unheard(long_ago, run.run_id)
    next_lease = claimed(call)
    assert call("complete", **next_lease, output={"n": 1})[0] == 200
    before = stored()

    answer = call("complete", **lease, output={"n": 1})

    assert code_of(answer) == (409, "lease_lost")
    assert answer[1]["error"]["details"]["state"] == "COMPLETED"
    assert stored() == before
    story = [(e.type, e.step, e.attempt) for e in engine.trace(run.run_id)]
    assert ("step_completed", "free", 1) in story


def test_a_settlement_of_a_cancelled_run_reports_it(
    engine: InProcessEngine, call: Call, stored: Stored
) -> None:
    run = engine.start("counts", {})
    lease = claimed(call)
    rules = engine.engine.rules
    cancel = partial(lifecycle.cancel, rules=rules, actor="ada", reason="wrong")
    cancelled = engine.engine.documents.transact(run_ref(run.run_id), on_run(run.run_id, cancel))
    publish_owed(engine.engine, cancelled.answer)
    before = stored()

    renewed = call("renew", **lease)
    completed = call("complete", **lease, output={"n": 1})

    assert code_of(renewed) == (409, "lease_lost")
    assert renewed[1]["error"]["details"]["cancelled"] is True
    assert completed == (200, {"outcome": "cancelled"})
    assert stored() == before


@pytest.mark.parametrize(
    ("pipeline", "step", "output", "issues"),
    [
        ("counts", "count", {"n": "many"}, ["n"]),
        ("counts", "count", {"n": 1, "words": [1, 2]}, ["words.0", "words.1"]),
        ("counts", "count", [], [""]),
        ("counts", "count", {"n": 0}, ["n"]),  # the next step takes only what is above 0
    ],
)
def test_a_misfit_output_is_refused_with_its_issues_and_the_lease_is_held(
    engine: InProcessEngine,
    call: Call,
    stored: Stored,
    pipeline: str,
    step: str,
    output: Any,
    issues: list[str],
) -> None:
    engine.start(pipeline, {})
    lease = claimed(call, step)
    before = stored()

    refused = call("complete", **lease, output=output)
    unchanged = stored() == before
    corrected = call("complete", **lease, output={"n": 1})

    details = refused[1]["error"]["details"]
    assert code_of(refused) == (400, "invalid_output")
    assert [issue["path"] for issue in details["issues"]] == issues
    assert all(issue["message"] for issue in details["issues"])
    assert "does not fit" in refused[1]["error"]["message"]
    assert unchanged
    assert corrected == (200, {"outcome": "handed_off"})


def test_an_output_whose_model_does_not_resolve_is_kept_until_it_does(
    engine: InProcessEngine, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker did its part, and is not asked again: what the run waits for is a deploy."""
    run_id = engine.start("unresolved", {}).run_id
    lease = claimed(call, "unresolved")

    answer = call("complete", **lease, output={"pages": 3})
    blocked = engine.show(run_id)
    monkeypatch.setattr(remote_steps, "Nothing", dict[str, int], raising=False)
    operate(engine.engine, run_id, OperationRequest(Operation.RETRY, "ada"))
    engine.run_until_idle()

    assert answer == (200, {"outcome": "blocked"})
    assert blocked.block is not None
    assert blocked.block.code == "handler_unavailable"
    assert "'tests.api.functions.remote_steps' has no 'Nothing'" in blocked.block.finding
    healed = engine.show(run_id)
    assert (healed.status, healed.fencing_token) == ("COMPLETED", 2)
    assert healed.steps["unresolved"].output == blocked.steps["unresolved"].output


def test_a_next_handler_that_does_not_resolve_refuses_no_output(
    engine: InProcessEngine, call: Call
) -> None:
    """The work was done; the next step's own attempt tells what is wrong with it."""
    run = engine.start("last", {})
    waits = {"status": "PENDING"}
    plan = {"plan": ["free", "elsewhere"], "steps": {"free": waits, "elsewhere": waits}}
    engine.engine.documents.transact(
        run_ref(run.run_id), lambda found, _: Write(None, {**(found or {}), **plan})
    )

    answer = call("complete", **claimed(call, "free"), output={})

    assert answer == (200, {"outcome": "handed_off"})
    assert engine.show(run.run_id).current_step == "elsewhere"


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("word", WORDS)
def test_who_does_not_hold_the_lease_changes_nothing(
    engine: InProcessEngine, call: Call, stored: Stored, word: str
) -> None:
    engine.start("counts", {})
    another = engine.start("last", {})
    claimed(call, "free")
    lease = claimed(call)
    before = stored()

    for other in (
        {"leaseId": "0123456789abcdef"},
        {"fencingToken": 2},
        {"runId": another.run_id},
    ):
        answer = call(word, **(lease | other), **FURTHER[word])

        assert code_of(answer) == (409, "lease_lost"), other
        details = set(answer[1]["error"]["details"])
        assert {"state", "fencingToken", "holder", "expiresAt"} <= details, other
        assert stored() == before, other


@pytest.mark.parametrize("word", WORDS)
def test_a_token_that_is_stale_changes_nothing(
    engine: InProcessEngine, call: Call, stored: Stored, word: str
) -> None:
    engine.start("counts", {})
    stale = claimed(call)
    call("release", **stale)
    current = claimed(call)
    mixed = stale | {"fencingToken": current["fencingToken"]}
    before = stored()

    answer = call(word, **mixed, **FURTHER[word])

    assert code_of(answer) == (409, "lease_lost")
    assert stored() == before


@pytest.mark.parametrize("word", WORDS)
def test_a_lease_that_is_over_changes_nothing(
    long_ago: InProcessEngine, call: Call, stored: Stored, word: str
) -> None:
    run = long_ago.start("counts", {})
    manifest = acquire_run(long_ago.engine, run.run_id, "vm-1").manifest
    assert manifest.position.lease is not None
    lease = {"runId": run.run_id, "leaseId": manifest.position.lease.lease_id, "fencingToken": 1}
    before = stored()

    answer = call(word, **lease, **FURTHER[word])

    assert code_of(answer) == (409, "lease_lost")
    assert "it ended at" in answer[1]["error"]["message"]
    assert stored() == before


HELD = WORDS
BAD: list[tuple[str, dict[str, Any], str, str]] = [
    ("putFile", {"name": ""}, "name", "a text that is not empty"),
    ("putFile", {"content": None}, "content", "bytes in base64"),
    ("putFile", {"content": "no base64!"}, "content", "bytes in base64"),
    ("putFile", {"content": "YQ"}, "content", "bytes in base64"),
    ("putFile", {"content": "é"}, "content", "bytes in base64"),
    ("getFile", {"name": 7}, "name", "a text that is not empty"),
    ("listFiles", {"limit": 0}, "limit", "a whole number from 1 to 1000"),
    ("claim", {"stepType": None}, "stepType", "1 to 128 printable"),
    ("claim", {"stepType": 7}, "stepType", "1 to 128 printable"),
    ("claim", {"holder": None}, "holder", "1 to 128 printable"),
    ("claim", {"holder": ""}, "holder", "1 to 128 printable"),
    ("claim", {"holder": "x" * 129}, "holder", "1 to 128 printable"),
    ("claim", {"holder": "a\nb"}, "holder", "1 to 128 printable"),
    ("claim", {"holder": ["vm"]}, "holder", "1 to 128 printable"),
    ("claim", {"ttl": 5}, "ttl", "stepType, holder"),
    ("acquire", {"runId": 7}, "runId", "a text"),
    ("acquire", {"holder": "x" * 129}, "holder", "1 to 128 printable"),
    ("acquire", {"stepType": "count"}, "stepType", "runId, holder"),
    *((word, {"runId": None}, "runId", "a text") for word in HELD),
    *((word, {"leaseId": 7}, "leaseId", "printable") for word in HELD),
    *((word, {"leaseId": "x" * 129}, "leaseId", "printable") for word in HELD),
    *((word, {"fencingToken": "1"}, "fencingToken", "whole number") for word in HELD),
    *((word, {"fencingToken": True}, "fencingToken", "whole number") for word in HELD),
    *((word, {"fencingToken": 0}, "fencingToken", "whole number") for word in HELD),
    *((word, {"fencingToken": 1.0}, "fencingToken", "whole number") for word in HELD),
    *((word, {"forse": 1}, "forse", "one of the fields runId") for word in HELD),
    ("renew", {"progress": 0.5}, "progress", "fraction, message"),
    ("renew", {"progress": {}}, "progress.fraction", "0 to 1"),
    ("renew", {"progress": {"fraction": 1.5}}, "progress.fraction", "0 to 1"),
    ("renew", {"progress": {"fraction": True}}, "progress.fraction", "0 to 1"),
    ("renew", {"progress": {"fraction": 1, "message": 5}}, "progress.message", "a text"),
    ("renew", {"progress": {"fraction": 1, "word": ""}}, "progress.word", "fraction, message"),
    ("await", {"name": ""}, "name", "printable"),
    ("await", {"name": "two\tnames"}, "name", "printable"),
    ("await", {"timeoutS": 0.5}, "timeoutS", "at least 1 second"),
    ("await", {"otherwise": "panic"}, "otherwise", "block, continue, fail"),
    ("checkpoint", {"iterationCount": None}, "iterationCount", "whole number"),
    ("checkpoint", {"iterationCount": -1}, "iterationCount", "whole number"),
    ("checkpoint", {"iterationCount": 2**63}, "iterationCount", "whole number"),
    ("checkpoint", {"phase": 7}, "phase", "printable"),
    ("checkpoint", {"phase": "x" * 129}, "phase", "printable"),
    ("complete", {"status": "GOOD"}, "status", "SUCCESS, PARTIAL, ERROR"),
    ("complete", {"status": None}, "status", "SUCCESS, PARTIAL, ERROR"),
    ("complete", {"status": []}, "status", "SUCCESS, PARTIAL, ERROR"),
    ("fail", {"error": None}, "error", "message, code, type, details"),
    ("fail", {"error": "no"}, "error", "message, code, type, details"),
    ("fail", {"error": {}}, "error.message", "a text"),
    ("fail", {"error": {"message": ""}}, "error.message", "a text"),
    ("fail", {"error": {"message": "no", "code": 5}}, "error.code", "printable"),
    ("fail", {"error": {"message": "no", "type": ""}}, "error.type", "printable"),
    ("fail", {"error": {"message": "no", "trace": ""}}, "error.trace", "message, code"),
    ("fail", {"permanent": "yes"}, "permanent", "true or false"),
]


@pytest.mark.parametrize("word", ["claim", "acquire", *WORDS])
def test_a_bad_field_is_named_with_the_allowed_values_and_nothing_changes(
    engine: InProcessEngine, call: Call, stored: Stored, word: str
) -> None:
    run = engine.start("counts", {})
    body: dict[str, Any] = {"claim": {"stepType": "count"}, "acquire": {"runId": run.run_id}}.get(
        word, {}
    ) | {"holder": "vm-1"}
    if word in HELD:
        body = claimed(call) | FURTHER[word]
    before = stored()

    for wrong, field, allowed in [rest for of, *rest in BAD if of == word]:
        answer = call(word, **(body | wrong))

        message = answer[1]["error"]["message"]
        assert code_of(answer) == (400, "invalid_request"), wrong
        assert message.startswith(f"{field} is "), wrong
        assert allowed in message, wrong
        assert stored() == before, wrong


NEEDED = {
    "checkpoint": ("iterationCount", "partialResults"),
    "complete": ("output",),
    "fail": ("error",),
}


@pytest.mark.parametrize("word", WORDS)
def test_a_missing_field_is_named_and_nothing_changes(
    engine: InProcessEngine, call: Call, stored: Stored, word: str
) -> None:
    engine.start("counts", {})
    body = claimed(call) | FURTHER[word]
    before = stored()

    for missing in ("runId", "leaseId", "fencingToken", *NEEDED.get(word, ())):
        answer = call(word, **{name: value for name, value in body.items() if name != missing})

        assert code_of(answer) == (400, "invalid_request"), missing
        assert answer[1]["error"]["message"].startswith(f"{missing} is "), missing
        assert stored() == before, missing


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff{",
        b"[1]",
        b'{"output": NaN}',
        b'{"output": 1e400}',
        b'{"output": "\\ud800"}',
        b'{"output": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
)
def test_a_body_that_is_not_json_is_refused_and_nothing_changes(
    engine: InProcessEngine, call: Call, manage_lease: Function, stored: Stored, text: bytes
) -> None:
    engine.start("counts", {})
    lease = claimed(call)
    head = f'{{"runId": "{lease["runId"]}", "leaseId": "{lease["leaseId"]}", "fencingToken": 1, '
    if text.startswith(b"{"):
        text = head.encode() + text[1:]
    before = stored()

    answer = manage_lease.client.post("/leases:complete", data=text)

    assert (answer.status_code, answer.get_json()["error"]["code"]) == (400, "invalid_request")
    assert stored() == before


@pytest.mark.parametrize(
    ("word", "field", "size"),
    [
        ("complete", "output", MAX_OUTPUT_BYTES),
        ("complete", "output", MAX_OUTPUT_BYTES + 1024 * 1024),
        ("checkpoint", "partialResults", MAX_OUTPUT_BYTES),
    ],
)
def test_what_is_too_large_is_a_413_and_nothing_changes(
    engine: InProcessEngine, call: Call, stored: Stored, word: str, field: str, size: int
) -> None:
    """One byte too many for a value, and then for a body."""
    engine.start("last", {})
    lease = claimed(call, "free")
    before = stored()

    answer = call(word, **lease, **(FURTHER[word] | {field: "x" * (size - 1)}))

    assert code_of(answer) == (413, "too_large")
    assert stored() == before


def test_the_largest_output_is_taken_and_given(engine: InProcessEngine, call: Call) -> None:
    engine.start("two", {})
    output = "x" * (16 * 1024 * 1024 - 2)

    done = call("complete", **claimed(call, "free"), output=output)

    assert done == (200, {"outcome": "handed_off"})
    assert call("claim", stepType="count", holder="vm-1")[1]["given"] == output


def test_wrong_methods_and_paths_are_told_what_is_right(manage_lease: Function) -> None:
    wrong_method = manage_lease.client.get("/leases:claim")
    wrong_path = manage_lease.post("/leases:clam", {})

    assert wrong_method.status_code == 405
    assert wrong_method.headers["Allow"] == "POST"
    assert wrong_method.get_json()["error"]["code"] == "method_not_allowed"
    assert code_of(wrong_path) == (404, "not_found")
    assert "/leases:claim, /leases:acquire" in wrong_path[1]["error"]["message"]


def test_a_queue_that_is_down_is_a_503_and_the_same_call_creates_the_task_later(
    engine: InProcessEngine, call: Call, manage_lease: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output is recorded by then; the task is owed until it is created."""
    engine.start("counts", {})
    lease = claimed(call)
    queue = manage_lease.provider.engine.tasks
    created: list[Any] = []

    def create(task: Any) -> None:
        created.append(task)
        if len(created) == 1:
            raise StoreUnavailableError(store="Cloud Tasks", problem="down")

    monkeypatch.setattr(queue, "create", create)
    first = call("complete", **lease, output={"n": 1})
    again = call("complete", **lease, output={"n": 1})

    assert code_of(first) == (503, "store_unavailable")
    assert again == (200, {"outcome": "handed_off"})
    assert created[0] == created[1]


def test_outputs_are_kept_as_canonical_text(engine: InProcessEngine, call: Call) -> None:
    run = engine.start("last", {})

    call("complete", **claimed(call, "free"), output={"b": 1.50, "a": [None, True]})

    kept = engine.show(run.run_id).steps["free"].kept_output
    assert kept == KeptValue(text='{"a":[null,true],"b":1.5}')
