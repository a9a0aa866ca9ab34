"""What any caller may send to the double: it answers 4xx, and holds and delivers nothing of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import urllib3

from leasehold.devserver.cloud_tasks import CloudTasksDouble
from tests.api.devserver.cloud_tasks.conftest import LOCATION, QUEUE
from tests.api.devserver.cloud_tasks.target import Target

JSON = {"Content-Type": "application/json"}
TASKS = f"/v2/{QUEUE}/tasks"
DIGITS = b"9" * 5_000
HERE = "http://127.0.0.1:1/"

Send = Callable[..., tuple[int, Any]]


@pytest.fixture
def send(url: str) -> Send:
    """Send a request as it is; return the status and the JSON of the answer."""

    def send(
        path: str, body: bytes = b"", method: str = "POST", headers: dict[str, str] = JSON
    ) -> tuple[int, Any]:
        answer = urllib3.request(method, url + path, body=body, headers=headers, retries=False)
        if answer.status >= 400:
            assert "\n" not in answer.json()["error"]["message"]
            assert len(answer.data) < 4_000
        return answer.status, answer.json()

    return send


BODIES = {
    "deep objects": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "deep lists": b"[" * 100_000,
    "900 objects": b'{"task":' * 900 + b"1" + b"}" * 900,
    "a number of 5,000 digits": DIGITS,
    "a field of 5,000 digits": b'{"task":' + DIGITS + b"}",
    "not a number": b'{"task":NaN}',
    "infinity": b'{"task":1e400}',
    "a mark of byte order": b"\xef\xbb\xbf{}",
    "UTF-16": '{"task":1}'.encode("utf-16"),
    "Latin-1": '{"é":1}'.encode("latin-1"),
    "a lone surrogate": rb'{"task":"\ud800"}',
    "a surrogate as a name": rb'{"\udfff":1}',
    "a name of a megabyte": b'{"' + b"x" * 1_000_000 + b'":1}',
    "nothing": b"",
    "NUL": b"\x00",
}


@pytest.mark.parametrize("path", [TASKS, f"/v2/{LOCATION}/queues", "/faults"])
def test_a_body_that_is_not_a_request_is_refused(send: Send, path: str) -> None:
    for name, body in BODIES.items():
        assert send(path, body)[0] == 400, name
        assert send("/faults", method="GET")[1] == {"ordered": [], "fired": []}, name


VALUES: list[bytes] = [
    *(b"-1", b"1e308", b"1e400", b"NaN", b"-0.0", b"true", b"null", b"[]", b"{}", b"[[[{}]]]"),
    *(rb'"\ud800"', rb'"\u0000"', b'"' + b"x" * 100_000 + b'"', DIGITS, DIGITS[:4_000], b'""'),
    *(b'"A==="', rb'"\u00e9"', b'"0001-01-01T00:00:00+23:59"', b'"9999-12-31T23:59:59-23:59"'),
    *(b'"999999999s"', b'"-999999999.999999999s"'),
]
FIELDS: dict[str, str] = {
    "name": '{"task": {"name": @, "httpRequest": {"url": "%s"}}}',
    "scheduleTime": '{"task": {"scheduleTime": @, "httpRequest": {"url": "%s"}}}',
    "dispatchDeadline": '{"task": {"dispatchDeadline": @, "httpRequest": {"url": "%s"}}}',
    "retryConfig": '{"task": {"retryConfig": @, "httpRequest": {"url": "%s"}}}',
    "maxAttempts": '{"task": {"retryConfig": {"maxAttempts": @}, "httpRequest": {"url": "%s"}}}',
    "maxBackoff": '{"task": {"retryConfig": {"maxBackoff": @}, "httpRequest": {"url": "%s"}}}',
    "httpRequest": '{"task": {"httpRequest": @}}',
    "url": '{"task": {"httpRequest": {"url": @}}}',
    "httpMethod": '{"task": {"httpRequest": {"url": "%s", "httpMethod": @}}}',
    "body": '{"task": {"httpRequest": {"url": "%s", "body": @}}}',
    "headers": '{"task": {"httpRequest": {"url": "%s", "headers": @}}}',
    "a header": '{"task": {"httpRequest": {"url": "%s", "headers": {"X-A": @}}}}',
    "oidcToken": '{"task": {"httpRequest": {"url": "%s", "oidcToken": @}}}',
    "audience": '{"task": {"httpRequest": {"url": "%s", "oidcToken": {"audience": @}}}}',
    "responseView": '{"responseView": @, "task": {"httpRequest": {"url": "%s"}}}',
    "unknown": '{"x": @, "task": {"httpRequest": {"url": "%s"}}}',
}


@pytest.mark.parametrize("form", FIELDS.values(), ids=FIELDS)
def test_a_field_with_any_value_fails_nothing(
    send: Send, double: CloudTasksDouble, form: str
) -> None:
    for value in VALUES:
        text = (form % HERE if "%s" in form else form).encode().replace(b"@", value)

        assert send(TASKS, text)[0] < 500, text[:200]


A_TASK = json.dumps({"task": {"httpRequest": {"url": HERE}}}).encode()


@pytest.mark.parametrize("name", ["kind", "count", "queue", "containing", "seconds", "x"])
def test_a_fault_with_any_value_fails_nothing(send: Send, name: str) -> None:
    """A surrogate in `containing` failed every task that came after it."""
    for value in VALUES:
        ordered = b'{"kind": "late", "' + name.encode() + b'": ' + value + b"}"
        status = send("/faults", ordered)[0]
        assert status < 500, ordered[:200]
        if status == 200:
            assert send(TASKS, A_TASK)[0] == 200, ordered[:200]
            send("/faults", method="DELETE")
    assert send("/faults", method="GET")[1]["ordered"] == []


@pytest.mark.parametrize(
    "path",
    [
        f"{TASKS}?responseView=" + "9" * 5_000,
        f"{TASKS}?responseView=%C2%B2",
        f"{TASKS}?pageSize=" + "9" * 5_000,
        f"{TASKS}?pageToken=%ed%a0%80",
        f"{TASKS}/%00",
        f"{TASKS}/" + "x" * 10_000,
        "/v2/projects/%0a/locations/l/queues/q",
        f"/v2/{LOCATION}/queues?" + "a=1&" * 10_000,
        f"/v2/{QUEUE}?updateMask=" + "a," * 10_000,
    ],
    ids=lambda path: path[-20:],
)
def test_an_odd_address_fails_nothing(send: Send, path: str) -> None:
    for method in ("GET", "POST", "PATCH", "DELETE", "PUT", "TRACE"):
        assert send(path, b"{}", method)[0] < 500, method


@pytest.mark.parametrize("size", ["-1", "x", "1e3", "+2", "0x10", " "])
def test_an_invalid_size_means_no_body(url: str, size: str) -> None:
    """The server of the double takes what it cannot read for none."""
    answer = urllib3.request("POST", url + TASKS, headers=JSON | {"Content-Length": size})

    assert answer.status == 400


def test_a_body_in_chunks_is_refused(url: str) -> None:
    """The official client sends none, and the reader of the server does not bear broken ones."""
    answer = urllib3.request("POST", url + TASKS, body=iter([b"{}"]), headers=JSON)

    assert answer.status == 400
    assert "Content-Length" in answer.json()["error"]["message"]


ELSEWHERE = [
    "http://example.com/",
    "http://10.0.0.1/",
    "http://169.254.169.254/computeMetadata/v1/",
    "http://metadata.google.internal/",
    "http://0.0.0.0:1/",
    "http://[::]:1/",
    "http://127.0.0.1.example.com/",
    "http://localhost.example.com/",
    "http://localhost:1@example.com/",
    "http://127.0.0.1@example.com/",
    "http://user:pass@127.0.0.1:1/",
    "http://127.0.0.1\\@example.com/",
    "http://example.com\\@127.0.0.1/",
    "http://example.com#@127.0.0.1/",
    "http://127.1:1/",
    "http://2130706433:1/",
    "http://0x7f.1:1/",
    "http://127.0.0.1:1 /x",
    "http://127.0.0.1:1/\r\nHost: example.com",
    "http://127.0.0.1:0/",
    "http://127.0.0.1:99999/",
    "http:///x",
    "http://",
    "//127.0.0.1:1/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:1/",
    "http://\u2488\u2461\u2462.0.0.1/",
    "http://[::ffff:10.0.0.1]/",
]


def test_a_task_that_leads_off_this_machine_is_refused(send: Send) -> None:
    for address in ELSEWHERE:
        body = json.dumps({"task": {"httpRequest": {"url": address}}}).encode()

        status, answer = send(TASKS, body)

        assert status == 400, address
        assert "HttpRequest.url" in answer["error"]["message"], address


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:1/", "http://localhost:1/", "http://[::1]:1/", "HTTP://LocalHost/"],
)
def test_a_task_of_this_machine_is_taken(send: Send, address: str) -> None:
    body = json.dumps({"task": {"httpRequest": {"url": address}}}).encode()

    assert send(TASKS, body)[0] == 200


def test_a_host_that_is_allowed_is_delivered_to() -> None:
    with CloudTasksDouble(targets=["Worker.internal"]) as double:
        url = double.start()
        body = {"task": {"httpRequest": {"url": "http://worker.internal:1/"}}}

        answer = urllib3.request("POST", url + TASKS, json=body)

    assert answer.status == 200


NOT_ITS_OWN = [
    *("Host", "Content-Length", "User-Agent", "Connection", "Keep-Alive", "TE", "Trailer"),
    *("Transfer-Encoding", "Upgrade", "Expect", "Proxy-Authorization", "Proxy-Connection"),
    *("X-CloudTasks-TaskName", "x-cloudtasks-queuename", "X-Google-Anything"),
    "X-AppEngine-QueueName",
]


def test_no_header_of_a_task_speaks_for_the_service_or_for_the_connection(
    send: Send, target: Target
) -> None:
    forged = dict.fromkeys(NOT_ITS_OWN, "forged")
    request = {"url": target.url, "headers": forged | {"X-Mine": "kept"}}
    send(TASKS, json.dumps({"task": {"httpRequest": request}}).encode())

    came = target.wait_for(1)[0].headers

    assert came["X-Mine"] == "kept"
    assert "forged" not in came.values()


def test_a_redirect_of_the_target_is_not_followed(send: Send, target: Target) -> None:
    """It would lead a task off this machine after all."""
    target.answer(302, Location=f"{target.url}/second")
    send(TASKS, json.dumps({"task": {"httpRequest": {"url": f"{target.url}/first"}}}).encode())

    assert {it.path for it in target.wait_for(2)} == {"/first"}


def test_a_body_that_is_too_large_is_dropped_and_answered(url: str) -> None:
    """The client still sends when the answer is decided."""
    size, block = 50 * 2**20, b" " * 2**16
    connection = urllib3.connection_from_url(url)
    answer = connection.urlopen(
        "POST",
        TASKS,
        body=(block for _ in range(size // len(block))),
        headers=JSON | {"Content-Length": str(size)},
        retries=False,
    )

    assert answer.status == 400
    assert "exceeds the limit" in answer.json()["error"]["message"]
