"""Who may call a function, with tokens that are really signed; each refusal has a reason."""

from __future__ import annotations

import contextlib
import io
import logging
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from werkzeug import Request
from werkzeug.datastructures import Headers
from werkzeug.test import EnvironBuilder

from leasehold.errors import (
    CallerNotAllowedError,
    CertificatesUnavailableError,
    InvalidRequestError,
    LeaseholdError,
    SettingError,
)
from leasehold.registry.setting_texts import Right, rights
from leasehold.registry.settings import read_settings
from leasehold.testing import InProcessEngine
from leasehold.web.callers import CallerCheck, actor_of, check_right, page_rights
from leasehold.web.id_tokens import Certificates
from leasehold.web.loopback_guard import is_same_origin
from tests.worlds import tokens
from tests.worlds.functions import Function
from tests.worlds.tokens import ACCOUNT, AUDIENCE, CertificateServer, claims, removed, token
from tests.worlds.waiting import until

FAR = {"REMOTE_ADDR": "203.0.113.7"}
HASH_ADDRESS = "https://execute-step-abcdefghij-ew.a.run.app"
PERSON = "ann@example.com"
GCLOUD = "32555940559.apps.googleusercontent.com"
PROXY = "service-42@gcp-sa-iap.iam.gserviceaccount.com"
ALL = (
    *("execute_step", "serve_api", "manage_lease", "sweep_dead_letters", "derive_budgets"),
    "deliver_notification",
)


@pytest.fixture(scope="module")
def google() -> Iterator[tuple[CertificateServer, str]]:
    with tokens.certificate_server() as served:
        yield served


@pytest.fixture
def check(google: tuple[CertificateServer, str]) -> CallerCheck:
    """One of a function that is served beyond this machine, though not on Cloud Run."""
    return CallerCheck((ACCOUNT,), (AUDIENCE,), certificates=Certificates(google[1]))


@pytest.fixture
def on_cloud_run(check: CallerCheck) -> CallerCheck:
    return replace(check, service="execute-step")


def answer_of(check: CallerCheck, *values: str, **others: str) -> str:
    """Return the caller, or the error, of a request with this Authorization."""
    environ = {**FAR, **others}
    if values:
        environ["HTTP_AUTHORIZATION"] = ",".join(values)  # as WSGI joins headers of one name
    try:
        return check.caller_of(environ)
    except LeaseholdError as error:
        return str(error)


def bearer(check: CallerCheck, value: str) -> str:
    return answer_of(check, f"Bearer {value}")


# -- tokens with a signature -----------------------------------------------------------------------


def test_a_token_that_google_signed_is_believed(check: CallerCheck) -> None:
    assert bearer(check, token()) == ACCOUNT


SECOND = tokens.part(b"x" * 256)
HOSTILE = {
    "no signature": (f"{tokens.part({'alg': 'none'})}.{tokens.part(claims())}.", "not one of"),
    "none, with one": (token(alg="none"), "as Google signs"),
    "HS256 with the certificate": (
        tokens.symmetric(tokens.certificate("key-1")),
        "as Google signs",
    ),
    "a list of algorithms": (token(alg=["RS256"]), "as Google signs"),
    "ES256": (token(alg="ES256"), "as Google signs"),
    "a key of nobody": (token(kid="key-2"), "no key of Google's"),
    "no key": (token(kid=None), "as Google signs"),
    "a key that is a number": (token(kid=1), "as Google signs"),
    "signed by another key": (token(signed_by="key-2"), "signature of the token is wrong"),
    "a signature of nothing": (token().rpartition(".")[0] + "." + SECOND, "is wrong"),
    "claims of another token": (
        ".".join([token().split(".")[0], tokens.part(claims(sub="2")), token().split(".")[2]]),
        "is wrong",
    ),
    "removed off Cloud Run": (removed(), "has no signature"),
    "removed, and signed": (f"{token()}.{tokens.REMOVED}", "not one of"),
    "expired": (token(claims(exp=1_700_000_000)), "has expired"),
    "not yet": (token(claims(iat=4_000_000_000)), "not valid yet"),
    "not before": (token(claims(nbf=4_000_000_000)), "not valid yet"),
    "no end": (token(claims(exp=None)), "no time exp"),
    "an end that is text": (token(claims(exp="4000000000")), "no time exp"),
    "an end that is true": (token(claims(exp=True)), "no time exp"),
    "an end that is NaN": (token(claims(exp=float("nan"))), "cannot be read"),
    "an end beyond all": (token(claims(exp=10**400)), "no time exp"),
    "no beginning": (token(claims(iat=None)), "no time iat"),
    "another issuer": (token(claims(iss="https://accounts.google.com.evil.org")), "did not issue"),
    "an issuer that is a list": (token(claims(iss=["accounts.google.com"])), "did not issue"),
    "an email that is not verified": (token(claims(email_verified=False)), "has verified"),
    "verified, in a text": (token(claims(email_verified="true")), "has verified"),
    "no email": (token(claims(email=None)), "has verified"),
    "an email that is a list": (token(claims(email=[ACCOUNT])), "has verified"),
    "an email that moves the screen": (token(claims(email="\x1b[2J\u202e@x")), "has verified"),
    "an email that no trace can show": (token(claims(email="a" * 201)), "has verified"),
    "an empty email": (token(claims(email="")), "has verified"),
    "a list of audiences": (token(claims(aud=[AUDIENCE])), "one audience"),
    "no object": (token([1]), "cannot be read"),
    "no JSON": (token(b"{"), "cannot be read"),
    "no UTF-8": (token(b"\xff\xfe"), "cannot be read"),
    "deep": (token(b"[" * 3000), "cannot be read"),
    "not base64": ("a.b.c", "cannot be read"),
    "other letters": ("ä.ö.ü", "not one of"),
    "empty": ("", "not one of"),
    "blanks": ("a b c", "not one of"),
    "huge": ("a" * 100_000, "not one of"),
    "two parts": ("e30.e30", "not one of"),
    "a line break behind it": (token() + "\n", "not one of"),
}


@pytest.mark.parametrize(("sent", "why"), HOSTILE.values(), ids=HOSTILE)
def test_a_token_that_google_did_not_sign_is_not_believed(
    check: CallerCheck, sent: str, why: str
) -> None:
    answer = bearer(check, sent)

    assert answer.startswith("[unauthenticated] ")
    assert why in answer
    assert len(answer) < 200
    assert not sent[8:] or sent[8:] not in answer


ELSEWHERE = {
    "for another service": claims(aud="https://serve-api-123.europe-west1.run.app"),
    "for a part of the address": claims(aud=AUDIENCE[:-1]),
    "for more than the address": claims(aud=AUDIENCE + ".evil.org"),
    "in capitals": claims(aud=AUDIENCE.upper()),
    "for a path": claims(aud=AUDIENCE + "/"),
    "for its other address": claims(aud=HASH_ADDRESS),
    "for gcloud": claims(aud=GCLOUD),
    "for nobody": claims(aud=""),
    "of another account": claims(email="leasehold-events@project.iam.gserviceaccount.com"),
    "of another project": claims(email="leasehold-tasks@other.iam.gserviceaccount.com"),
    "in other capitals": claims(email=ACCOUNT.upper()),
    "of an email that begins so": claims(email=ACCOUNT + ".evil.org"),
    "of a list": claims(email=f"{ACCOUNT},x@y"),
}


@pytest.mark.parametrize("given", ELSEWHERE.values(), ids=ELSEWHERE)
def test_a_token_of_another_account_or_for_another_service_is_refused(
    check: CallerCheck, given: dict[str, Any]
) -> None:
    answer = bearer(check, token(given))

    assert answer.startswith("[caller_not_allowed] ")
    assert answer.isprintable()


def test_a_clock_may_be_off_by_less_than_a_minute(check: CallerCheck) -> None:
    now = claims()["iat"] + 10

    assert bearer(check, token(claims(exp=now - 30))) == ACCOUNT
    assert bearer(check, token(claims(iat=now + 30))) == ACCOUNT
    assert "expired" in bearer(check, token(claims(exp=now - 61)))
    assert "not valid yet" in bearer(check, token(claims(iat=now + 90)))


def test_iam_is_not_asked_of_a_token_that_has_its_signature(check: CallerCheck) -> None:
    """Any person may have Google sign a token of their account, for any audience."""
    by_iam = replace(check, accounts=("iam",))

    for each in (by_iam, replace(by_iam, service="execute-step")):
        assert "IAM was not asked" in bearer(each, token())


# -- tokens that Cloud Run has checked -------------------------------------------------------------


@pytest.mark.parametrize(
    "audience",
    [
        AUDIENCE,
        HASH_ADDRESS,
        f"{HASH_ADDRESS}/",
        f"{HASH_ADDRESS}?__GCP_CloudEventsMode=CE_PUBSUB_BINDING",
        f"{AUDIENCE}/?__GCP_CloudEventsMode=CUSTOM_PUBSUB_projects%2Fp%2Ftopics%2Ft",
        "https://europe-west1-project.cloudfunctions.net/execute-step",
    ],
)
def test_on_cloud_run_the_addresses_of_this_very_service_are_known(
    on_cloud_run: CallerCheck, audience: str
) -> None:
    by_address = replace(on_cloud_run, audiences=())

    assert bearer(by_address, removed(claims(aud=audience))) == ACCOUNT


@pytest.mark.parametrize(
    "audience",
    [
        "https://serve-api-abcdefghij-ew.a.run.app",
        "https://my-execute-step-abcdefghij-ew.a.run.app",
        "https://execute-step-2-abcdefghij-ew.a.run.app",
        "https://execute-step.evil.org",
        "https://execute-step-abcdefghij-ew.a.run.app.evil.org",
        "https://evil.org/https://execute-step-abcdefghij-ew.a.run.app",
        "https://execute-step-abcdefghij-ew.a.run.app@evil.org",
        "https://execute-step-abcdefghij-ew.a.run.app\n",
        "https://execute-step-abcdefghij-ew.a.run.app/runs",
        "http://execute-step-123.europe-west1.run.app",
        "https://execute-step-abc.europe-west1.run.app",
        "https://execute-step-١٢٣.europe-west1.run.app",
        "https://europe-west1-project.cloudfunctions.net/serve-api",
        GCLOUD,
    ],
)
def test_no_other_service_is_taken_for_this_one(on_cloud_run: CallerCheck, audience: str) -> None:
    by_address = replace(on_cloud_run, audiences=())

    assert "its token is for" in bearer(by_address, removed(claims(aud=audience)))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (claims(exp=1_700_000_000), "expired"),
        (claims(iat=4_000_000_000), "not valid yet"),
        (claims(iss="evil"), "did not issue"),
        (claims(email_verified=False), "has verified"),
        (claims(email="mallory@evil.org"), "not one of LEASEHOLD_CALLERS"),
    ],
)
def test_what_a_token_claims_is_checked_though_cloud_run_has_checked_it(
    on_cloud_run: CallerCheck, given: dict[str, Any], why: str
) -> None:
    assert why in bearer(on_cloud_run, removed(given))


def test_a_signature_that_is_there_is_checked_on_cloud_run_too(on_cloud_run: CallerCheck) -> None:
    assert bearer(on_cloud_run, token()) == ACCOUNT
    assert "is wrong" in bearer(on_cloud_run, token(signed_by="key-2"))
    assert "its token is for" in bearer(on_cloud_run, token(claims(aud=HASH_ADDRESS)))


@pytest.mark.parametrize("mark", [tokens.REMOVED.lower(), f"{tokens.REMOVED}_", "SIGNATURE", "A"])
def test_only_the_mark_of_cloud_run_is_one(on_cloud_run: CallerCheck, mark: str) -> None:
    sent = f"{token().rpartition('.')[0]}.{mark}"

    assert "is wrong" in bearer(on_cloud_run, sent)


def test_whom_iam_lets_in_may_call_with_a_token_of_gcloud(on_cloud_run: CallerCheck) -> None:
    by_iam = replace(on_cloud_run, accounts=("iam",))
    robot = claims(aud=GCLOUD)

    assert bearer(by_iam, removed(claims(email=PERSON, aud=GCLOUD))) == PERSON
    assert "its token is for" in bearer(by_iam, removed(robot))


def test_of_two_headers_the_one_counts_that_cloud_run_has_checked(
    on_cloud_run: CallerCheck,
) -> None:
    other = claims(email="mallory@evil.org")

    def both(first: str, second: str) -> str:
        return answer_of(on_cloud_run, f"Bearer {second}", HTTP_X_SERVERLESS_AUTHORIZATION=first)

    assert both(f"Bearer {removed()}", removed(other)) == ACCOUNT
    assert "mallory" in both(f"Bearer {removed(other)}", removed())
    assert "[unauthenticated]" in both("", removed())
    assert "[unauthenticated]" in both("Basic x", removed())


@pytest.mark.parametrize("kind", [token, removed])
def test_two_headers_of_one_name_are_refused(on_cloud_run: CallerCheck, kind: Any) -> None:
    value = f"Bearer {kind()}"

    assert "[unauthenticated]" in answer_of(on_cloud_run, value, value)
    assert "[unauthenticated]" in answer_of(on_cloud_run, "Basic eDp5", value)


@pytest.mark.parametrize("scheme", ["bearer", "Bearer ", "BEARER", "Bearer\t", "Token", ""])
def test_only_a_bearer_is_one(on_cloud_run: CallerCheck, scheme: str) -> None:
    assert "[unauthenticated]" in answer_of(on_cloud_run, f"{scheme} {removed()}")


# -- without a token -------------------------------------------------------------------------------


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
def test_programs_of_this_machine_are_not_asked_for_one(check: CallerCheck, peer: str) -> None:
    assert answer_of(check, REMOTE_ADDR=peer) == ""
    assert answer_of(check, "Bearer x", REMOTE_ADDR=peer, HTTP_HOST="evil.org") == ""


@pytest.mark.parametrize(
    "peer", ["203.0.113.7", "10.0.0.1", "169.254.1.1", "0.0.0.1", "::", "", "localhost", "::2"]
)
def test_all_others_are(check: CallerCheck, peer: str) -> None:
    headers = {
        "HTTP_X_FORWARDED_FOR": "127.0.0.1",
        "HTTP_FORWARDED": "for=127.0.0.1",
        "HTTP_X_REAL_IP": "127.0.0.1",
        "HTTP_HOST": "127.0.0.1",
        "HTTP_X_CLOUDTASKS_QUEUENAME": "add",
    }

    assert "has no token" in answer_of(check, REMOTE_ADDR=peer, **headers)


def test_on_cloud_run_programs_of_this_machine_are_asked_too(on_cloud_run: CallerCheck) -> None:
    assert "has no token" in answer_of(on_cloud_run, REMOTE_ADDR="127.0.0.1")


# -- the certificates ------------------------------------------------------------------------------


def test_certificates_are_read_once(google: tuple[CertificateServer, str]) -> None:
    served, url = google
    certificates = Certificates(url)
    before = served.asked

    assert [certificates.of_key("key-1") == tokens.certificate("key-1") for _ in range(3)] == [
        True
    ] * 3
    assert [certificates.of_key("made-up-1"), certificates.of_key("made-up-2")] == [None, None]
    assert served.asked == before + 1


def test_a_new_key_is_looked_for(google: tuple[CertificateServer, str]) -> None:
    """Google changes its keys every few days."""
    served, url = google
    certificates = Certificates(url, pause_s=0)
    assert certificates.of_key("key-2") is None

    served.keys.append("key-2")
    try:
        assert certificates.of_key("key-2") == tokens.certificate("key-2")
    finally:
        served.keys.remove("key-2")


@pytest.mark.parametrize(
    ("status", "body"),
    [
        ("503 Away", b"{}"),
        ("200 OK", b"<html>"),
        ("200 OK", b"{}"),
        ("200 OK", b'{"error": "quota"}'),
        ("200 OK", b"x" * 300_000),
    ],
)
def test_known_certificates_are_used_while_no_others_come(status: str, body: bytes) -> None:
    with tokens.certificate_server() as (served, url):
        served.max_age = "max-age=0"
        check = CallerCheck((ACCOUNT,), (AUDIENCE,), certificates=Certificates(url, pause_s=0))
        assert bearer(check, token()) == ACCOUNT

        served.status, served.body = status, body

        assert bearer(check, token()) == ACCOUNT
        assert bearer(check, token(kid="key-2")).startswith("[certificates_unavailable] ")
        assert served.asked == 3


def test_a_caller_with_a_known_certificate_does_not_wait_for_new_ones() -> None:
    with tokens.certificate_server() as (served, url), ThreadPoolExecutor(2) as threads:
        served.max_age = "max-age=0"
        certificates = Certificates(url, pause_s=0)
        known = certificates.of_key("key-1")

        served.answers.clear()
        slow = threads.submit(certificates.of_key, "key-2")
        until(lambda: served.asked == 2)
        meanwhile = certificates.of_key("key-1")
        is_waiting = not slow.done()
        served.answers.set()

        assert known is not None
        assert meanwhile == known
        assert is_waiting
        assert slow.result() is None


def test_an_answer_whose_head_never_ends_blocks_only_briefly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each line of it comes in time, so that no timeout of a socket ends it."""
    monkeypatch.setattr("leasehold.web.id_tokens._MAX_FETCH_S", 0.3)
    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(5) as threads:
        threads.submit(_drip, listening, is_over)
        certificates = Certificates(f"http://127.0.0.1:{listening.getsockname()[1]}/")

        asking = [threads.submit(certificates.of_key, "key-1") for _ in range(4)]
        raised = [one.exception(30) for one in asking]
        is_over.set()

    assert [type(error) for error in raised] == [CertificatesUnavailableError] * 4


def _drip(listening: socket.socket, is_over: threading.Event) -> None:
    connection, _ = listening.accept()
    with connection:
        connection.sendall(b"HTTP/1.1 200 OK\r\nX-Drip: ")
        while not is_over.wait(0.05):
            connection.sendall(b"x")


# -- the functions, under the real framework -------------------------------------------------------


@pytest.fixture
def function(request: pytest.FixtureRequest, check: CallerCheck) -> Function:
    found: Function = request.getfixturevalue(request.param)
    found.provider.callers = check
    return found


@pytest.mark.parametrize("function", ALL, indirect=True)
@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 401, "unauthenticated"),
        ({"X-CloudTasks-QueueName": "add", "X-CloudScheduler": "true"}, 401, "unauthenticated"),
        ({"Authorization": "Bearer x.y.z"}, 401, "unauthenticated"),
        ({"Authorization": f"Bearer {token(claims(aud='x'))}"}, 403, "caller_not_allowed"),
    ],
)
def test_every_function_refuses_a_stranger_before_it_reads(
    function: Function,
    headers: dict[str, str],
    status: int,
    code: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    answer = function.client.post(
        "/runs", data=b"{not read", headers=headers, environ_base=FAR, content_type="text/plain"
    )

    assert (answer.status_code, answer.get_json()["error"]["code"]) == (status, code)
    assert answer.headers.get("WWW-Authenticate") == ("Bearer" if status == 401 else None)
    (line,) = [record for record in caplog.records if record.name == "leasehold.callers"]
    assert line.levelno == logging.WARNING
    assert "eyJ" not in line.getMessage()  # with which every token begins
    assert "eyJ" not in answer.text


@pytest.mark.parametrize("function", ALL, indirect=True)
def test_the_framework_answers_no_stranger_by_itself(function: Function) -> None:
    """Some paths never get to the function, and whatever is in a folder `static` is served."""
    for path in ("/robots.txt", "/favicon.ico", "/static/x", "/static/%2e%2e/main.py"):
        for method in ("GET", "HEAD", "OPTIONS", "POST", "TRACE"):
            answer = function.client.open(path, method=method, environ_base=FAR)

            assert answer.status_code == 401, (method, path)


@pytest.mark.parametrize("function", ALL, indirect=True)
def test_every_function_answers_who_may_call(function: Function) -> None:
    headers = {"Authorization": f"Bearer {token()}"}

    answer = function.client.post("/none", data=b"{}", headers=headers, environ_base=FAR)

    assert answer.status_code not in (401, 403, 500)


@pytest.mark.parametrize("function", ALL, indirect=True)
def test_an_outage_of_the_certificates_is_no_refusal(function: Function) -> None:
    """Never 429 or 503: Cloud Tasks would throttle the whole queue."""
    away = Certificates("http://127.0.0.1:9/certs")
    function.provider.callers = replace(function.provider.callers, certificates=away)
    headers = {"Authorization": f"Bearer {token()}"}

    answer = function.client.post("/", data=b"{}", headers=headers, environ_base=FAR)

    assert answer.status_code == 500
    assert answer.get_json()["error"]["code"] == "certificates_unavailable"


@pytest.mark.parametrize("function", ALL, indirect=True)
@pytest.mark.parametrize("path", ["/", "/robots.txt"])
def test_no_more_of_a_body_is_read_for_a_stranger_than_of_a_small_one(
    function: Function, path: str
) -> None:
    """The framework reads a whole body before and after it calls what answers."""

    class Body(io.BytesIO):
        sizes: ClassVar[list[int]] = []

        def readinto(self, buffer: Any) -> int:
            self.sizes.append(len(buffer))
            return super().readinto(buffer)

    body = Body(b"x" * 3_000_000)
    answer = function.client.post(path, input_stream=body, environ_base=FAR)

    assert answer.status_code == 401
    assert 0 < max(Body.sizes) <= 65_536
    assert sum(Body.sizes) < 2**21


# -- who asks, in the trace ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("account", "headers", "actor"),
    [
        (PERSON, {}, PERSON),
        (PERSON, {"X-Leasehold-Actor": PERSON}, PERSON),
        (PERSON, {"X-Leasehold-Actor": "the boss"}, f"the boss via {PERSON}"),
        (PERSON, {"X-Goog-Authenticated-User-Email": "accounts.google.com:boss@x.org"}, PERSON),
        (PROXY, {"X-Goog-Authenticated-User-Email": f"accounts.google.com:{PERSON}"}, PERSON),
        (
            PROXY,
            {
                "X-Goog-Authenticated-User-Email": f"accounts.google.com:{PERSON}",
                "X-Leasehold-Actor": "the boss",
            },
            f"the boss via {PERSON}",
        ),
        (PROXY, {}, PROXY),
        (f"x{PROXY}", {"X-Goog-Authenticated-User-Email": PERSON}, f"x{PROXY}"),
        (f"{PROXY}.io", {"X-Goog-Authenticated-User-Email": PERSON}, f"{PROXY}.io"),
    ],
)
def test_the_trace_names_the_account_that_was_checked(
    serve_api: Function,
    engine: InProcessEngine,
    on_cloud_run: CallerCheck,
    account: str,
    headers: dict[str, str],
    actor: str,
) -> None:
    serve_api.provider.callers = replace(on_cloud_run, accounts=("iam",))
    run_id = engine.start("three", {"n": 1}).run_id
    signed = {"Authorization": f"Bearer {removed(claims(email=account))}"}

    answer = serve_api.client.post(f"/runs/{run_id}:pause", headers=headers | signed)

    assert answer.status_code == 200
    assert engine.trace(run_id)[-1].model_dump()["actor"] == actor


@pytest.mark.parametrize("header", ["X-Leasehold-Actor", "X-Goog-Authenticated-User-Email"])
@pytest.mark.parametrize("name", ["a\x1b[31m", "\u202e", "x" * 1000])
def test_a_name_that_no_trace_can_show_is_refused(
    serve_api: Function, on_cloud_run: CallerCheck, header: str, name: str
) -> None:
    serve_api.provider.callers = replace(on_cloud_run, accounts=("iam",))
    sent = {header: name.encode().decode("latin-1")}
    signed = {"Authorization": f"Bearer {removed(claims(email=PROXY))}"}

    answer = serve_api.client.post("/runs/r-none:pause", headers=sent | signed)

    assert answer.status_code == 400
    assert answer.get_json()["error"]["details"]["field"] == header


def test_a_name_is_refused_that_leaves_no_room_for_the_account_that_was_checked() -> None:
    """A trace that cuts the line would show the name alone."""
    said = Headers({"X-Leasehold-Actor": "x" * 190})

    with pytest.raises(InvalidRequestError, match="printable characters"):
        actor_of(said, PERSON)


# -- what a caller may do --------------------------------------------------------------------------


RIGHTS = rights(f"{PERSON}=read, ops@example.com=read+cancel, {ACCOUNT}=read+change+cancel")
MAY_READ = f"{PERSON} may read, and this call takes the right to"
MAY_CANCEL = "ops@example.com may read and cancel, and this call takes the right to"
BATCH = {"filter": {"pipeline": "three"}, "limit": 1}


@pytest.mark.parametrize(
    ("account", "path", "body", "refused"),
    [
        (PERSON, "/runs", None, ""),
        (PERSON, "/runs/RUN:pause", {}, f"{MAY_READ} change"),
        (PERSON, "/runs/RUN:cancel", {}, f"{MAY_READ} cancel"),
        (PERSON, "/runs", {"pipeline": "three", "input": {"n": 1}}, f"{MAY_READ} change"),
        (PERSON, "/sweep", {}, f"{MAY_READ} change"),
        (PERSON, "/runs:batch", {"action": "cancel", **BATCH}, f"{MAY_READ} cancel"),
        ("ops@example.com", "/runs/RUN:cancel", {}, ""),
        ("ops@example.com", "/runs/RUN:pause", {}, f"{MAY_CANCEL} change"),
        ("ops@example.com", "/runs:batch", {"action": "cancel", **BATCH}, ""),
        ("ops@example.com", "/runs:batch", {"action": "pause", **BATCH}, f"{MAY_CANCEL} change"),
        (ACCOUNT, "/runs/RUN:pause", {}, ""),
        ("eve@example.com", "/runs", None, "eve@example.com may do nothing, and this call takes"),
        (PERSON.upper(), "/runs", None, "may do nothing"),
    ],
)
def test_a_caller_does_what_it_has_the_right_to(
    serve_api: Function,
    engine: InProcessEngine,
    on_cloud_run: CallerCheck,
    caplog: pytest.LogCaptureFixture,
    *,
    account: str,
    path: str,
    body: dict[str, Any] | None,
    refused: str,
) -> None:
    """The right stands in the row of a call; one that a batch takes depends on its action."""
    serve_api.provider.callers = replace(on_cloud_run, accounts=("iam",), rights=RIGHTS)
    run_id = engine.start("three", {"n": 1}).run_id
    before = engine.trace(run_id)
    signed = {"Authorization": f"Bearer {removed(claims(email=account))}"}

    answer = serve_api.client.open(
        path.replace("RUN", run_id),
        method="GET" if body is None else "POST",
        json=body,
        headers=signed,
    )

    assert answer.status_code == (403 if refused else 200), answer.text
    if refused:
        error = answer.get_json()["error"]
        assert error["code"] == "caller_not_allowed"
        assert refused in error["message"]
        assert refused in caplog.text
        assert engine.trace(run_id) == before


def test_an_unnamed_account_has_the_rights_of_all_others(
    serve_api: Function, on_cloud_run: CallerCheck
) -> None:
    """Behind Identity-Aware Proxy it is the person who is looked for, and not the proxy."""
    given = rights(f"*=read,{PERSON}=change")
    serve_api.provider.callers = replace(on_cloud_run, accounts=("iam",), rights=given)

    def status(account: str, path: str, person: str = "") -> int:
        headers = {"Authorization": f"Bearer {removed(claims(email=account))}"}
        headers |= {"X-Goog-Authenticated-User-Email": person} if person else {}
        method = "POST" if ":" in path else "GET"
        return serve_api.client.open(path, method=method, headers=headers).status_code

    assert status("eve@example.com", "/runs") == 200
    assert status("eve@example.com", "/runs/r-none:pause") == 403
    assert status("eve@example.com", "/runs/r-none:pause", PERSON) == 403
    assert status(PROXY, "/runs/r-none:pause", f"accounts.google.com:{PERSON}") == 404
    assert status(PROXY, "/runs", f"accounts.google.com:{PERSON}") == 403
    assert status(PROXY, "/runs") == 200


def test_a_remote_worker_needs_the_right_to_change(
    manage_lease: Function, on_cloud_run: CallerCheck
) -> None:
    given = rights(f"{PERSON}=read,{ACCOUNT}=change")
    manage_lease.provider.callers = replace(on_cloud_run, accounts=("iam",), rights=given)

    def status(account: str) -> int:
        signed = {"Authorization": f"Bearer {removed(claims(email=account))}"}
        body = {"runId": "r-none", "holder": "worker-1"}
        return manage_lease.client.post("/leases:acquire", json=body, headers=signed).status_code

    assert (status(PERSON), status(ACCOUNT)) == (403, 404)


def test_without_a_sign_in_on_this_machine_everything_may_be_done(
    serve_api: Function, check: CallerCheck
) -> None:
    serve_api.provider.callers = replace(check, rights=rights(f"{PERSON}=read"))

    assert serve_api.client.post("/runs/r-none:pause").status_code == 404


def test_no_path_that_only_ends_like_a_link_needs_no_token(on_cloud_run: CallerCheck) -> None:
    """A handler names the files of its run."""
    paths = (
        "/runs/r-1/signals/approval/link",
        "/runs/r-1/files/link",
        "/runs/r-1/signals/a/b/link",
    )
    requests = [Request(EnvironBuilder(path).get_environ() | FAR) for path in paths]

    refused = [on_cloud_run.refusal_of(request) for request in requests]

    assert [one and one.status_code for one in refused] == [None, 401, 401]


# -- pages: whose they are, and what a person may do by their forms --------------------------------


def signed_in(check: CallerCheck, headers: dict[str, str], account: str = PERSON) -> Request:
    """Return a request that the check has let in."""
    signed = {"Authorization": f"Bearer {removed(claims(email=account))}"}
    request = Request(EnvironBuilder(method="POST", headers=headers | signed).get_environ())
    assert check.refusal_of(request) is None
    return request


@pytest.mark.parametrize(
    ("text", "by_forms", "by_calls"),
    [
        ("*=read+change+cancel", {"read"}, {"read", "change", "cancel"}),
        ("*=operator", {"read", "change", "cancel"}, {"read", "change", "cancel"}),
        ("*=viewer", {"read"}, {"read"}),
        (f"*=viewer,{PERSON}=operator", *[{"read", "change", "cancel"}] * 2),
        (f"{PERSON}=read+cancel", *[{"read", "cancel"}] * 2),
        ("eve@example.com=operator", set(), set()),
    ],
)
def test_a_page_changes_nothing_until_a_person_has_a_role(
    on_cloud_run: CallerCheck, text: str, by_forms: set[str], by_calls: set[str]
) -> None:
    """A setting that says what it says by default gives no role; calls of programs go on."""
    check = replace(on_cloud_run, accounts=("iam",), rights=rights(text))
    request = signed_in(check, {})

    assert page_rights(request) == (PERSON, by_forms)
    for right in Right:
        for by_form, may in ((True, by_forms), (False, by_calls)):
            allowed = contextlib.nullcontext() if right in may else pytest.raises(LeaseholdError)
            with allowed:
                check_right(request, right, by_form=by_form)


def test_a_form_without_a_role_is_told_which_setting_gives_it(on_cloud_run: CallerCheck) -> None:
    request = signed_in(replace(on_cloud_run, accounts=("iam",)), {})

    with pytest.raises(CallerNotAllowedError, match=f"LEASEHOLD_RIGHTS gives it: {PERSON}=oper"):
        check_right(request, Right.CANCEL, by_form=True)


def test_behind_a_proxy_of_google_s_a_page_is_the_person_s(on_cloud_run: CallerCheck) -> None:
    given = rights(f"{PERSON}=operator,*=viewer")
    check = replace(on_cloud_run, accounts=("iam",), rights=given)
    named = {"X-Goog-Authenticated-User-Email": f"accounts.google.com:{PERSON}"}

    assert page_rights(signed_in(check, named, PROXY)) == (PERSON, set(Right))
    assert page_rights(signed_in(check, named, "eve@example.com")) == ("eve@example.com", {"read"})
    assert actor_of(signed_in(check, named, PROXY).headers, PROXY, by_form=True) == PERSON


def test_without_a_sign_in_a_page_may_do_everything_on_this_machine(check: CallerCheck) -> None:
    request = Request({**EnvironBuilder().get_environ(), "REMOTE_ADDR": "127.0.0.1"})
    assert check.refusal_of(request) is None

    assert page_rights(request) == ("", set(Right))
    assert actor_of(request.headers, by_form=True) == "dashboard"
    assert actor_of(request.headers) == "api"


FOREIGN_PAGES = {
    "a page": {"Origin": "https://evil.example"},
    "a page of no origin": {"Origin": "null"},
    "a page of a name with ours in it": {"Origin": "https://runs.example.com.evil.example"},
    "a page over http": {"Origin": "http://runs.example.com", "X-Forwarded-Proto": "https"},
    "a page of another port": {"Origin": "https://runs.example.com:8443"},
    "a request across sites": {"Sec-Fetch-Site": "cross-site"},
    "a request of the same site": {"Sec-Fetch-Site": "same-site"},
    "one that says both": {"Sec-Fetch-Site": "cross-site", "Origin": "https://runs.example.com"},
    "a form that is sent in a window": {
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "document",
    },
}


@pytest.mark.parametrize("function", ALL, indirect=True)
@pytest.mark.parametrize("headers", FOREIGN_PAGES.values(), ids=FOREIGN_PAGES)
def test_no_page_of_another_origin_calls_a_function_with_a_person_s_cookie(
    function: Function, headers: dict[str, str]
) -> None:
    """Identity-Aware Proxy signs in by a cookie, which a browser sends with any page's request."""
    signed = {"Authorization": f"Bearer {token()}", "Host": "runs.example.com"}

    answer = function.client.post(
        "/runs", data=b"{}", headers=signed | headers, environ_base=FAR, content_type="text/plain"
    )

    assert (answer.status_code, answer.get_json()["error"]["code"]) == (403, "foreign_origin")


@pytest.mark.parametrize(
    ("headers", "is_own"),
    [
        ({}, False),
        ({"Origin": "https://runs.example.com"}, True),
        ({"Origin": "http://runs.example.com"}, True),
        ({"Origin": "https://RUNS.example.com"}, True),
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "http://127.0.0.1:8080"}, True),
        ({"Sec-Fetch-Site": "none"}, False),
        ({"Sec-Fetch-Site": "none", "Origin": "https://runs.example.com"}, False),
        ({"Origin": "https://us.example.com", "X-Forwarded-Host": "us.example.com"}, True),
        ({"Origin": "https://us.example.com", "X-Forwarded-Host": "us.example.com, inner"}, True),
        ({"Origin": "https://us.example.com", "X-Forwarded-Host": "evil.example"}, False),
        ({"Origin": "https://", "X-Forwarded-Host": ", "}, False),
        *((headers, False) for headers in FOREIGN_PAGES.values()),
    ],
)
def test_a_form_is_of_the_same_origin_only_if_its_browser_says_so(
    headers: dict[str, str], *, is_own: bool
) -> None:
    """A proxy of gcloud changes the host, and leaves what the browser says."""
    builder = EnvironBuilder(method="POST", headers={"Host": "runs.example.com"} | headers)

    assert is_same_origin(Request(builder.get_environ())) is is_own


def test_a_link_of_another_page_leads_a_person_to_a_function(serve_api: Function) -> None:
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    page, frame = ({**followed, "Sec-Fetch-Dest": dest} for dest in ("document", "iframe"))

    assert serve_api.client.get("/runs", headers=page).status_code == 200
    assert serve_api.client.get("/runs", headers=frame).status_code == 403


@pytest.mark.parametrize(
    "text",
    [
        "ann@example.com",
        "ann@example.com=",
        "ann@example.com=write",
        "ann@example.com=operator+read",
        "ann@example.com=Operator",
        "ann@example.com=read,change",
        "ann@example.com=read,ann@example.com=change",
        "ann=read",
        "=read",
        "*",
        "",
        "ann@example.com=read;bob@example.com=change",
        "ann@example.com=read=change",
        "user:ann@example.com=read",
        "*@example.com=read",
    ],
)
def test_rights_that_cannot_be_read_start_no_function(text: str) -> None:
    with pytest.raises(SettingError, match="EMAIL=read"):
        read_settings({"LEASEHOLD_RIGHTS": text})


# -- the settings ----------------------------------------------------------------------------------


def test_the_settings_say_who_may_call(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("LEASEHOLD_CALLERS", f"{ACCOUNT}, other@project.iam.gserviceaccount.com")
    monkeypatch.setenv("LEASEHOLD_AUDIENCE", f"{AUDIENCE},https://runs.example.com")

    callers = request.getfixturevalue("execute_step").provider.callers

    assert callers.accounts == (ACCOUNT, "other@project.iam.gserviceaccount.com")
    assert callers.audiences == (AUDIENCE, "https://runs.example.com")
    assert callers.service == ""


def test_a_function_is_for_this_machine_alone_unless_it_is_said_who_may_call(
    execute_step: Function,
) -> None:
    headers = {"Authorization": f"Bearer {removed()}"}

    assert execute_step.client.post("/", json={}, environ_base=FAR).status_code == 401
    assert (
        execute_step.client.post("/", json={}, headers=headers, environ_base=FAR).status_code == 401
    )
    assert execute_step.client.post("/", json={}).status_code == 400
