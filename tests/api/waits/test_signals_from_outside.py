"""Signals over HTTP and on the command line: one answer, and one line for each mistake."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leasehold.testing import InProcessEngine
from tests.worlds.functions import Function, function_of, one_store
from tests.worlds.shell import Shell

YES = {"approved": True, "by": "ada"}


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    return one_store(tmp_path, monkeypatch, LEASEHOLD_CATALOG="tests.api.waits.approvals")


@pytest.fixture
def engine(environ: dict[str, str]) -> Iterator[InProcessEngine]:
    with InProcessEngine(environ=environ, workers=0) as engine:
        yield engine


@pytest.fixture
def serve_api(engine: InProcessEngine) -> Iterator[Function]:
    assert engine
    yield from function_of("serve_api")


@pytest.fixture
def waiting(engine: InProcessEngine) -> str:
    run_id = engine.start("approved", {}).run_id
    engine.run_until_idle()
    return run_id


def post(serve_api: Function, run_id: str, name: str, **body: Any) -> tuple[int, Any]:
    return serve_api.post(
        f"/runs/{run_id}/signals/{name}", body, headers={"X-Leasehold-Actor": "ada"}
    )


def test_a_signal_over_http_has_the_run_go_on(
    serve_api: Function, engine: InProcessEngine, waiting: str
) -> None:
    status, answer = post(serve_api, waiting, "approval", value=YES, id="n-1")
    again = post(serve_api, waiting, "approval", value=YES, id="n-1")
    engine.adopt(waiting)
    engine.run_until_idle()

    assert (status, answer["outcome"], answer["id"]) == (200, "signalled", "n-1")
    assert answer["run"]["status"] == "PENDING"
    assert (again[0], again[1]["outcome"]) == (200, "signal_known")
    assert engine.output(waiting) == {"published": YES}
    events = serve_api.get(f"/runs/{waiting}/trace")[1]["events"]
    (received,) = (one for one in events if one["type"] == "signal_received")
    assert (received["reason"], received["actor"], received["signalId"]) == (
        "approval",
        "ada",
        "n-1",
    )


@pytest.mark.parametrize(
    ("name", "body", "status", "code"),
    [
        ("aproval", {"value": YES}, 404, "unknown_signal"),
        ("a b", {"value": YES}, 400, "invalid_request"),
        ("approval", {"value": {"approved": 7}}, 400, "invalid_signal"),
        ("approval", {}, 400, "invalid_request"),
        ("approval", {"value": YES, "id": "a/b"}, 400, "invalid_request"),
        ("approval", {"value": YES, "idd": "x"}, 400, "invalid_request"),
    ],
)
def test_each_mistake_is_refused_in_one_line(
    serve_api: Function, waiting: str, name: str, body: dict[str, Any], status: int, code: str
) -> None:
    before = serve_api.get(f"/runs/{waiting}")[1]

    got, answer = post(serve_api, waiting, name, **body)

    assert (got, answer["error"]["code"]) == (status, code)
    assert "\n" not in answer["error"]["message"]
    assert serve_api.get(f"/runs/{waiting}")[1] == before


def test_a_run_that_is_over_answers_409_with_what_it_waits_for(
    serve_api: Function, waiting: str
) -> None:
    serve_api.post(f"/runs/{waiting}:cancel")

    status, answer = post(serve_api, waiting, "approval", value=YES)

    assert (status, answer["error"]["code"]) == (409, "signal_not_awaited")
    assert "waits for nothing any more: it is cancelled" in answer["error"]["message"]


def test_no_get_sends_a_signal(serve_api: Function, waiting: str) -> None:
    answer = serve_api.client.get(f"/runs/{waiting}/signals/approval")

    assert answer.status_code == 405


PAGE = {"Accept": "text/html", "Host": "localhost"}


def form_of(html: str, name: str) -> dict[str, str]:
    """Return the hidden fields of a form of a page."""
    form = html.partition(f'<form id="{name}"')[2].partition("</form>")[0]
    fields = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form)
    return dict(fields)


def test_the_page_of_a_run_that_waits_has_a_form_for_the_signal(
    serve_api: Function, engine: InProcessEngine, waiting: str
) -> None:
    page = serve_api.client.get(f"/runs/{waiting}", headers=PAGE)
    fields = form_of(page.get_data(as_text=True), "act-signal")
    sent = serve_api.client.post(
        f"/runs/{waiting}/signals/approval",
        data={**fields, "value": json.dumps(YES)},
        headers={**PAGE, "Origin": "http://localhost"},
    )
    engine.adopt(waiting)
    engine.run_until_idle()

    assert set(fields) == {"formToken", "id"}
    assert (sent.status_code, sent.headers["Location"]) == (303, f"/runs/{waiting}")
    assert engine.output(waiting) == {"published": YES}
    assert "act-signal" not in serve_api.client.get(f"/runs/{waiting}", headers=PAGE).text


def test_the_command_sends_a_signal(
    tmp_path: Path, environ: dict[str, str], engine: InProcessEngine, waiting: str
) -> None:
    shell = Shell(tmp_path, environ)
    sent = shell.run("signal", waiting, "approval", "--json", json.dumps(YES), "--id", "n-1")
    engine.adopt(waiting)
    engine.run_until_idle()

    assert (sent.returncode, sent.stdout) == (0, f"run {waiting} PENDING\n")
    assert "The run goes on with the signal approval." in sent.stderr
    assert engine.output(waiting) == {"published": YES}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("aproval", "{}", "waits for a signal 'aproval'"),
        ("approval", "{", "JSON"),
        ("approval", '{"approved": 7}', "does not fit the signal 'approval'"),
        ("approval --id ", json.dumps(YES), "id is ''; allowed"),  # a variable that is not set
    ],
)
def test_the_command_refuses_bad_input_in_one_line(
    tmp_path: Path, environ: dict[str, str], waiting: str, name: str, value: str, words: str
) -> None:
    done = Shell(tmp_path, environ).run("signal", waiting, *name.split(" "), "--json", value)

    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_signal_that_nothing_waits_for_is_seen_by_who_looks_at_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong name is kept where no code spells names out, and the run waits on."""
    environ = one_store(tmp_path, monkeypatch, LEASEHOLD_CATALOG="tests.api.waits.numbered")
    with InProcessEngine(environ=environ, workers=0) as engine:
        run_id = engine.start("numbered", {}).run_id
        engine.run_until_idle()
    shell = Shell(tmp_path, environ)
    before = shell.run("why", run_id).stdout

    sent = shell.run("signal", run_id, "anwser-1", "--json", "1")

    assert sent.returncode == 0
    assert "nothing has waited for" not in before
    why, shown = shell.run("why", run_id).stdout, shell.run("show", run_id).stdout
    assert "it keeps signals that nothing has waited for: 'anwser-1'" in why
    assert "signals kept: 'anwser-1': nothing has waited for them so far" in shown
