"""Outputs and files of a run over HTTP: whole, of this run alone, and never run by a browser."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from leasehold.domain.artifact_name import files_folder
from leasehold.services.engine import find_run
from leasehold.testing import InProcessEngine
from tests.api.in_process import gated
from tests.worlds.functions import Function

Answer = tuple[int, Any]


def code_of(answer: Answer) -> tuple[int, str]:
    return answer[0], answer[1]["error"]["code"]


def completed(engine: InProcessEngine, pipeline: str = "files") -> str:
    run_id = engine.start(pipeline, {"n": 4}).run_id
    engine.run_until_idle()
    return run_id


def put(engine: InProcessEngine, run_id: str, name: str, data: bytes) -> None:
    folder = files_folder(find_run(engine.engine, run_id).manifest)
    engine.engine.artifacts.put(f"{folder}/{name}", data)


# -- outputs ---------------------------------------------------------------------------------------


def test_an_output_is_the_json_that_it_is(serve_api: Function, engine: InProcessEngine) -> None:
    run_id = completed(engine, "three")

    assert serve_api.get(f"/runs/{run_id}/output") == (200, {"n": 7})
    assert serve_api.get(f"/runs/{run_id}/steps/add/output") == (200, {"n": 5})


def test_a_large_output_is_given_as_a_small_one(
    serve_api: Function, engine: InProcessEngine
) -> None:
    run_id = completed(engine, "large")

    shown = serve_api.get(f"/runs/{run_id}")[1]
    answer = serve_api.client.get(f"/runs/{run_id}/output")

    assert "outputRef" in shown["steps"]["large"]
    assert answer.get_json() == {"n": 4, "text": "é" * 40_000}
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_a_run_that_is_not_completed_says_so(
    serve_api: Function, engine: InProcessEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """Programs ask again and again, which is nothing for the log."""
    run_id = engine.start("three", {"n": 1}).run_id

    waiting = serve_api.get(f"/runs/{run_id}/output")
    step = serve_api.get(f"/runs/{run_id}/steps/add/output")
    serve_api.post(f"/runs/{run_id}:cancel")
    cancelled = serve_api.get(f"/runs/{run_id}/output")

    assert caplog.text == ""
    assert code_of(waiting) == (409, "run_unfinished")
    assert waiting[1]["error"]["message"] == (
        f"Run {run_id} has no result yet: it is PENDING at step add. Wait for it first."
    )
    assert code_of(step) == (409, "step_not_completed")
    assert code_of(cancelled) == (409, "run_not_completed")
    assert cancelled[1]["error"]["message"] == (
        f"Run {run_id} has no result: it is cancelled and PENDING at step add."
    )


def test_who_has_to_decide_sees_what_a_gate_holds_back(
    serve_api: Function, environ: dict[str, str]
) -> None:
    with InProcessEngine(
        gated.STEPS, gated.PIPELINES, gated.GATES, environ=environ, workers=0
    ) as engine:
        run_id = engine.start("letters", {"n": 1}).run_id
        engine.run_until_idle()

    refused = serve_api.get(f"/runs/{run_id}/output")

    assert code_of(refused) == (409, "run_unfinished")
    assert refused[1]["error"]["message"] == (
        f"Run {run_id} has no result yet: it is BLOCKED at step draft: GATE_POLICY_FAILURE: 2?. "
        f"Look again. What waits for a decision: `leasehold output {run_id} draft`."
    )
    assert serve_api.get(f"/runs/{run_id}/steps/draft/output") == (200, {"n": 2})


def test_an_output_that_is_gone_is_a_410_and_a_store_that_is_away_a_503(
    serve_api: Function, engine: InProcessEngine, tmp_path: Path
) -> None:
    """The first is known for certain, and the second passes."""
    run_id = completed(engine, "large")
    folder = tmp_path / "artifacts" / "runs" / run_id
    (kept,) = folder.glob("*/values/*")
    kept.unlink()

    gone = serve_api.get(f"/runs/{run_id}/output")
    shutil.rmtree(folder)
    away = serve_api.get(f"/runs/{run_id}/output")

    assert code_of(gone) == (410, "output_gone")
    assert f"values/{kept.name}' is not in" in gone[1]["error"]["message"]
    assert code_of(away) == (503, "store_unavailable")


# -- what is not there -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/runs/r-none/output", "unknown_run"),
        ("/runs/r-none/files", "unknown_run"),
        ("/runs/r-none/files/a", "unknown_run"),
        ("/runs/../output", "unknown_run"),
        ("/runs/RUN/steps/none/output", "unknown_step"),
        ("/runs/RUN/steps/a%00/output", "unknown_step"),
        ("/runs/RUN/files/none", "unknown_file"),
        ("/runs/RUN/files/notes", "unknown_file"),
        ("/runs/RUN/files/notes/one.txt/more", "unknown_file"),
    ],
)
def test_what_is_not_there_is_a_404(
    serve_api: Function, engine: InProcessEngine, path: str, code: str
) -> None:
    run_id = completed(engine)

    assert code_of(serve_api.get(path.replace("RUN", run_id))) == (404, code)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_files_cannot_be_written_here(
    serve_api: Function, engine: InProcessEngine, method: str
) -> None:
    run_id = completed(engine)

    answer = serve_api.client.open(f"/runs/{run_id}/files/notes/one.txt", method=method)

    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET")
    assert serve_api.client.get(f"/runs/{run_id}/files/notes/one.txt").data == b"one"


# -- files -----------------------------------------------------------------------------------------


def test_the_files_of_a_run_are_those_that_its_handlers_stored(
    serve_api: Function, engine: InProcessEngine
) -> None:
    """The values that the engine keeps beside them are not among them."""
    run_id = completed(engine, "large")
    put(engine, run_id, "b/c", b"12")
    put(engine, run_id, "a", b"")
    engine.engine.artifacts.put("runs/r-other/files/d", b"of another run")

    first = serve_api.get(f"/runs/{run_id}/files?limit=1")
    rest = serve_api.get(f"/runs/{run_id}/files?pageToken={first[1]['nextPageToken']}")

    assert first == (200, {"files": [{"name": "a", "size": 0}], "nextPageToken": "a"})
    assert rest == (200, {"files": [{"name": "b/c", "size": 2}], "nextPageToken": None})
    assert code_of(serve_api.get(f"/runs/{run_id}/files?limit=0")) == (400, "invalid_request")
    assert serve_api.get(f"/runs/{completed(engine, 'three')}/files")[1]["files"] == []


NAMES = (
    "a b",
    "a%2Fb",
    "a?b=c#d",
    "ä/日本.txt",
    "\u202efdp.exe",
    'quote".txt',
    "a:pause",
    "-o",
    "~",
    "<b>.html",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_given_byte_for_byte_and_never_as_a_page(
    serve_api: Function, engine: InProcessEngine, name: str
) -> None:
    """A stranger's page would act here with all rights of the person who opens it."""
    run_id = completed(engine)
    data = b"<script>alert(1)</script>" + bytes(range(256))
    put(engine, run_id, name, data)

    answer = serve_api.client.get(f"/runs/{run_id}/files/{quote(name)}")
    head = serve_api.client.head(f"/runs/{run_id}/files/{quote(name)}")

    assert (answer.status_code, answer.data) == (200, data)
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    disposition = answer.headers["Content-Disposition"]
    assert disposition.startswith("attachment; filename=")
    assert disposition.isascii()
    assert ("filename*=UTF-8''" in disposition) is not name.isascii()
    assert "sandbox" in answer.headers["Content-Security-Policy"]
    assert answer.headers["Content-Length"] == answer.headers["X-Leasehold-Size"] == "281"
    assert (head.status_code, head.data, head.headers["X-Leasehold-Size"]) == (200, b"", "281")


def test_a_large_file_is_sent_in_chunks(serve_api: Function, engine: InProcessEngine) -> None:
    """It is never in memory as a whole, and Google's servers take no such answer with a length."""
    run_id = completed(engine)
    size = 32 * 1024 * 1024
    put(engine, run_id, "large", b"x" * size)

    answer = serve_api.client.get(f"/runs/{run_id}/files/large")
    blocks = [len(block) for block in answer.response]
    answer.close()

    assert "Content-Length" not in answer.headers
    assert answer.headers["X-Leasehold-Size"] == str(size)
    assert (sum(blocks), max(blocks)) == (size, 1024 * 1024)


#: As they come in an address; most clients would not even send them.
LEADING_OUT = (
    "..%2F..%2Fr-other%2Ffiles%2Fsecret",
    "../../r-other/files/secret",
    "%2e%2e/%2e%2e/r-other/files/secret",
    "..%2Fvalues",
    "a/..%2f..%2f..%2fr-other/files/secret",
    "..%5C..%5Cr-other%5Cfiles%5Csecret",
    "a%00",
    "a%0D%0AX-Injected:%201",
    "%2Fetc/passwd",
    "a//b",
    ".",
    "a%FF",
    "x" * 2000,
)


@pytest.mark.parametrize("name", LEADING_OUT)
def test_no_name_leads_out_of_the_run(
    serve_api: Function, engine: InProcessEngine, name: str
) -> None:
    run_id = completed(engine)
    engine.engine.artifacts.put("runs/r-other/files/secret", b"of another run")

    answer = serve_api.client.get(f"/runs/{run_id}/files/{name}")

    assert answer.status_code in (400, 404)
    assert b"of another run" not in answer.data
    assert "X-Injected" not in answer.headers


def test_the_mark_of_another_run_opens_nothing_of_it(
    serve_api: Function, engine: InProcessEngine
) -> None:
    """A mark stands in addresses, so it may be known; the one of the run that is asked counts."""
    own, other = completed(engine), completed(engine)
    put(engine, other, "secret.txt", b"of the other")
    folder = files_folder(find_run(engine.engine, other).manifest)
    mark = folder.split("/")[2]

    for name in (
        "secret.txt",
        folder + "/secret.txt",
        f"{mark}/files/secret.txt",
        f"../../../{other}/{mark}/files/secret.txt",
        f"../../{mark}/files/secret.txt",
    ):
        for way in (name, quote(name, safe="")):
            status, answer = serve_api.get(f"/runs/{own}/files/{way}")
            assert status in (400, 404), way
            assert "of the other" not in str(answer)
    for token in (mark, folder, f"{folder}/", "../"):
        listed = serve_api.get(f"/runs/{own}/files?pageToken={quote(token, safe='')}")
        assert "secret.txt" not in str(listed)


def test_a_planted_link_is_no_file_of_the_run(
    serve_api: Function, engine: InProcessEngine, tmp_path: Path
) -> None:
    run_id = completed(engine)
    (tmp_path / "secret").write_text("secret")
    folder = tmp_path / "artifacts" / files_folder(find_run(engine.engine, run_id).manifest)
    (folder / "link").symlink_to(tmp_path / "secret")

    listed = serve_api.get(f"/runs/{run_id}/files")[1]["files"]

    assert [entry["name"] for entry in listed] == ["notes/one.txt"]
    assert code_of(serve_api.get(f"/runs/{run_id}/files/link")) == (404, "unknown_file")
