"""The smoke test says of each part whether it works, and comes to an end."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from google.cloud import scheduler_v1
from google.cloud.scheduler_v1 import Job

from leasehold import PipelineEntry, Registry, Wait
from leasehold.cli.deploy import smoke
from leasehold.cli.deploy.smoke import EMULATOR, Answer, ServiceCalls, Smoke, SmokeError
from leasehold.deploy.installation import Installation
from leasehold.devserver.loopback_server import LoopbackServer
from leasehold.google_clients.clients import EMULATOR as GOOGLE
from leasehold.registry.function_table import FUNCTIONS
from leasehold.testing import InProcessEngine
from tests.deploy.cloud import deploy
from tests.deploy.cloud_run import BY_TOKEN, CloudRun, cloud_run
from tests.deploy.google_server import GoogleServer
from tests.deploy.google_services.scheduler import Scheduler
from tests.worlds.builders import environ_of
from tests.worlds.bundles import Api
from tests.worlds.catalogs.sample import PIPELINES, STEPS
from tests.worlds.runs_api import runs_api

PLACE = Installation("shop-prod", "123456789012", "europe-west1")
OPTIONS = ("--project=shop-prod", "--project-number=123456789012", "--region=europe-west1")
RUN = ("--pipeline=three", '--input={"n": 1}')


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[InProcessEngine]:
    asks = PipelineEntry(name="asks", steps=("add", Wait("consent")))
    pipelines = Registry("pipelines", [*PIPELINES, asks])
    environ = environ_of(tmp_path)
    with InProcessEngine(STEPS, pipelines, environ=environ, workers=2) as engine:
        yield engine


@pytest.fixture
def run(engine: InProcessEngine) -> Iterator[CloudRun]:
    with runs_api(engine.engine) as api, cloud_run(api) as run:
        yield run


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Iterator[GoogleServer]:
    with GoogleServer() as server:
        monkeypatch.setenv(GOOGLE, server.address)
        yield server


def sweep_job(state: str = "ENABLED") -> Job:
    return Job(
        name=f"{PLACE.location}/jobs/leasehold-sweep",
        schedule="* * * * *",
        state=Job.State[state],
        http_target=scheduler_v1.HttpTarget(uri=PLACE.url_of(FUNCTIONS["sweep_dead_letters"])),
    )


def keep(google: GoogleServer, job: Job) -> None:
    google.service(Scheduler).jobs[job.name] = job


@pytest.fixture
def call(
    run: CloudRun,
    google: GoogleServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., tuple[int, list[str]]]:
    def call(*words: str) -> tuple[int, list[str]]:
        for name, value in {EMULATOR: run.url, **BY_TOKEN}.items():
            monkeypatch.setenv(name, value)
        code = deploy(["smoke", *OPTIONS, *words])
        return code, capsys.readouterr().out.splitlines()

    return call


def test_a_line_for_each_part_that_works(
    call: Callable[..., tuple[int, list[str]]], google: GoogleServer
) -> None:
    keep(google, sweep_job())

    code, lines = call(*RUN)

    assert code == 0, lines
    *strangers, job, api, completed = lines
    assert strangers == [
        f"ok      {f.service} refuses a call without a token (403)" for f in FUNCTIONS
    ]
    assert job == "ok      the sweep is called by leasehold-sweep, * * * * *"
    assert api.startswith("ok      the runs API answers at http://127.0.0.1:")
    assert " of three completed in " in completed
    assert google.writes() == []


def test_its_run_is_found_by_its_label_and_a_build_has_one(
    call: Callable[..., tuple[int, list[str]]], run: CloudRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEASEHOLD_BUILD", "b-1")

    call(*RUN)
    call(*RUN)

    (found,) = Api(run.api).call("/runs?label=smoke-test:b-1")["runs"]
    assert found["status"] == "COMPLETED"


def test_a_public_function_is_found(
    call: Callable[..., tuple[int, list[str]]], run: CloudRun
) -> None:
    run.public = {"execute-step"}

    code, lines = call()

    assert code == 1
    assert lines[0] == ("failed  execute-step answers without a sign-in (200), and must not.")


def test_a_sweep_that_nothing_calls_is_found(
    call: Callable[..., tuple[int, list[str]]], google: GoogleServer
) -> None:
    without = call()
    keep(google, sweep_job("PAUSED"))
    paused = call()

    assert without[0] == paused[0] == 1
    after = len(FUNCTIONS)
    assert without[1][after].startswith("failed  no job calls the sweep")
    assert paused[1][after].endswith("is PAUSED: no sweep comes.")


@pytest.mark.parametrize(("pipeline", "is_"), [("refuses", "ERROR: "), ("asks", "BLOCKED")])
def test_a_run_that_does_not_complete_is_reported_with_its_error(
    call: Callable[..., tuple[int, list[str]]], pipeline: str, is_: str
) -> None:
    code, lines = call(f"--pipeline={pipeline}", '--input={"n": 1}', "--timeout=20")

    assert code == 1
    assert lines[-1].startswith("failed  run r-")
    assert f" of {pipeline} is {is_}" in lines[-1]
    assert "look at it: leasehold why r-" in lines[-1]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--pipeline=nope",), "failed  no run is started: 404"),
        (("--pipeline=three", '--input={"m": 1}'), "failed  no run is started: 400"),
        ((), "skipped a run: --pipeline NAME --input JSON starts one."),
    ],
)
def test_what_cannot_be_started_is_one_line(
    call: Callable[..., tuple[int, list[str]]], words: tuple[str, ...], told: str
) -> None:
    _, lines = call(*words)

    assert lines[-1].startswith(told), lines


def test_who_may_call_takes_a_while_to_be_known(run: CloudRun) -> None:
    """A binding that was just made, and an instance that is starting."""
    run.not_yet = 3
    waits: list[float] = []

    found = smoke_of(run, waits.append).check_api()

    assert found.startswith("the runs API answers")
    assert len(waits) == 3


def test_a_function_that_has_to_refuse_strangers_itself_is_found(run: CloudRun) -> None:
    """It trusts a token that Cloud Run has checked; here any caller can send one that looks so."""
    run.unasked = {"execute-step"}
    smoke_test = smoke_of(run, lambda _: None)

    with pytest.raises(SmokeError, match=r"execute-step is reached .* \(401\): IAM lets every"):
        smoke_test.check_strangers(FUNCTIONS["execute_step"])

    assert "refuses" in smoke_test.check_strangers(FUNCTIONS["serve_api"])


def test_it_ends_where_every_caller_is_refused(run: CloudRun) -> None:
    run.not_yet = 1_000_000

    with pytest.raises(SmokeError, match=r"after 0\.05 s /health is answered 403"):
        smoke_of(run, lambda _: None, timeout_s=0.05).check_api()


def test_an_address_without_a_server_is_reported() -> None:
    with cloud_run() as gone:
        pass

    with pytest.raises(SmokeError, match="does not answer"):
        smoke_of(gone, lambda _: None, timeout_s=0.05).check_api()
    with pytest.raises(SmokeError, match="execute-step/ does not answer"):
        smoke_of(gone, lambda _: None).check_strangers(FUNCTIONS["execute_step"])


def test_something_else_at_the_address_is_found(run: CloudRun) -> None:
    with cloud_run(run.url + "/serve-api") as other:  # it lets nobody in either
        other.public = {"serve-api"}
        found = Smoke(
            ServiceCalls(PLACE, {EMULATOR: other.url, "LEASEHOLD_IDENTITY_TOKEN": "x"}), "b", 0.05
        )

        with pytest.raises(SmokeError, match=r"answered by something else: \{\}"):
            found.check_api()


def test_a_token_does_not_follow_to_where_its_service_sends_it(run: CloudRun) -> None:
    with cloud_run(run.api) as other:
        run.moved = other.url
        with pytest.raises(SmokeError, match="answered by something else: null"):
            smoke_of(run, lambda _: None).check_api()

    assert other.called == []


@pytest.mark.parametrize("text", ["<html>", '{"runId": null}', '{"runId": 1}'])
def test_an_answer_without_a_run_is_no_run(run: CloudRun, text: str) -> None:
    testing = smoke_of(run, lambda _: None)
    body = json.loads(text) if text.startswith("{") else None

    with pytest.raises(SmokeError, match="no run is started: 200"):
        testing._run_id(Answer(200, body))  # noqa: SLF001 - what a stranger answers


@pytest.mark.parametrize("body", [b"<html>", b"[" * 100_000, b"\xff"])
def test_an_answer_that_cannot_be_read_is_none(body: bytes) -> None:
    assert smoke._json_of(body) is None  # noqa: SLF001 - what a stranger answers


@pytest.mark.parametrize("answers", [b"\x00\x1b[31m\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: "])
def test_garbage_and_an_answer_that_never_ends_are_one_line_in_time(
    answers: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte of it comes in time, so that no timeout of a socket ends it."""
    monkeypatch.setattr("leasehold.cli.deploy.smoke._MIN_REQUEST_S", 0.2)
    is_over = threading.Event()

    def drip() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(answers)
            while answers.startswith(b"HTTP") and not is_over.wait(0.05):
                connection.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as threads:
        threads.submit(drip)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        calls = ServiceCalls(PLACE, {EMULATOR: url, **BY_TOKEN})
        with pytest.raises(SmokeError, match="does not answer") as failed:
            Smoke(calls, "b-1", 0.1).check_api()
        is_over.set()

    assert str(failed.value).isprintable()


@pytest.mark.parametrize("text", ["{", "a\x1b[31m", "[" * 100_000, '{"n": NaN}'])
def test_input_that_is_not_json_is_one_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = deploy(["smoke", *OPTIONS, "--pipeline=add", f"--input={text}"])

    said = capsys.readouterr()
    assert code == 2
    assert said.err.startswith("error: --input is")
    assert said.err.count("\n") == 1
    assert len(said.err) < 500


def test_a_text_that_is_not_a_token_is_reported_and_not_repeated(run: CloudRun) -> None:
    environ = {EMULATOR: run.url, "LEASEHOLD_IDENTITY_TOKEN": "ERROR: log in\nX-Other: header"}

    with pytest.raises(SmokeError, match="LEASEHOLD_IDENTITY_TOKEN is not a token") as refused:
        Smoke(ServiceCalls(PLACE, environ), "b-1", 60).check_api()

    assert "log in" not in str(refused.value)
    assert run.called == []


def test_a_token_without_an_email_is_reported_before_any_call(run: CloudRun) -> None:
    """The metadata server makes such a token by default; the API refuses it."""
    without, with_it = (
        ".".join(
            base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
            for part in ({"alg": "RS256"}, claims, "signature")
        )
        for claims in ({"sub": "1"}, {"sub": "1", "email": "ann@example.com"})
    )

    for token, told in ((without, r"names no e-mail.*--include-email"), (with_it, "is answered")):
        environ = {EMULATOR: run.url, "LEASEHOLD_IDENTITY_TOKEN": token}
        with pytest.raises(SmokeError, match=told):
            Smoke(ServiceCalls(PLACE, environ), "b-1", 0.05, lambda _: None).check_api()


def test_an_identity_token_in_the_place_of_the_secret_of_serve_is_said_and_not_sent(
    run: CloudRun,
) -> None:
    """It had that place before, and a secret of `serve` is none of Google's business."""
    environ = {EMULATOR: run.url, "LEASEHOLD_TOKEN": "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln"}

    with pytest.raises(SmokeError, match="set LEASEHOLD_IDENTITY_TOKEN in its place"):
        Smoke(ServiceCalls(PLACE, environ), "b-1", 60).check_api()

    assert run.called == []


class Metadata:
    """The metadata server: a token has an e-mail only where `format=full` asks for it."""

    def __call__(self, environ: Any, start_response: Callable[..., Any]) -> list[bytes]:
        headers = [("Metadata-Flavor", "Google"), ("Content-Type", "text/plain")]
        if not environ["PATH_INFO"].endswith("/identity"):
            start_response("200 OK", [headers[0], ("Content-Type", "application/json")])
            return [b'{"email": "vm@far.example", "scopes": []}']
        asked = parse_qs(environ["QUERY_STRING"])
        email = {"email": "vm@far.example"} if asked.get("format") == ["full"] else {}
        claims = {"aud": asked.get("audience", [""])[0], "exp": 4102444800, "iat": 1, **email}
        parts = [base64.urlsafe_b64encode(json.dumps(one).encode()) for one in ({}, claims, "")]
        start_response("200 OK", headers)
        return [b".".join(part.rstrip(b"=") for part in parts)]


def test_the_token_of_a_build_has_its_email(run: CloudRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its own process: Google's library reads the address when it is imported."""
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    server = LoopbackServer(Metadata(), "metadata")
    host = server.start().removeprefix("http://")
    code = (
        "from leasehold.deploy.installation import Installation; "
        "from leasehold.cli.deploy.smoke import ServiceCalls; "
        "calls = ServiceCalls(Installation('shop-prod', '123456789012', 'europe-west1'), {}); "
        "print(calls._token)"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "GCE_METADATA_HOST": host, "GCE_METADATA_IP": host},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    finally:
        server.stop()

    assert done.returncode == 0, done.stderr
    payload = done.stdout.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert claims["email"] == "vm@far.example"
    assert claims["aud"] == "https://serve-api-123456789012.europe-west1.run.app"


def smoke_of(run: CloudRun, pause: Callable[[float], Any], timeout_s: float = 60) -> Smoke:
    return Smoke(ServiceCalls(PLACE, {EMULATOR: run.url, **BY_TOKEN}), "b-1", timeout_s, pause)
