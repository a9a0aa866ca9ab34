"""Attempts by the histograms of a server: of one that answers, and of those that do not."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.factory import open_samples
from leasehold.adapters.prometheus import (
    MAX_ANSWER_BYTES,
    MAX_SAMPLES,
    MAX_SERIES,
    PrometheusSamples,
    is_of_google,
)
from leasehold.budgets.limits import clips_in_a_row
from leasehold.budgets.proposal import BudgetSettings, Limit, LimitInForce
from leasehold.budgets.samples import AttemptSample, Outcome, believable
from leasehold.errors import MetricsUnavailableError
from leasehold.registry.settings import read_settings
from leasehold.testing import FrozenClock
from tests.worlds.loopback_http import LoopbackHttp
from tests.worlds.ports import own_port

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
WINDOW = timedelta(days=7)
#: Returns the series of a query: its metric, and how many hours ago its span ended.
Answers = Callable[[str, int], list[Any]]


def series(labels: Mapping[str, str], **counts: object) -> list[Any]:
    """Return series as Prometheus answers them: cumulative counts by bounds, `s60=3, inf=4`."""
    return [
        {
            "metric": {"le": "+Inf" if le == "inf" else le.removeprefix("s")} | dict(labels),
            "value": [1.0, str(count)],
        }
        for le, count in counts.items()
    ]


def vector(found: object) -> bytes:
    data = {"resultType": "vector", "result": found}
    return json.dumps({"status": "success", "data": data}).encode()


class Server(LoopbackHttp):
    """Answers each query; `behave` does so in place of it."""

    def __init__(self, answers: Answers = lambda *_: []) -> None:
        self.answers = answers
        self.behave: Callable[[BaseHTTPRequestHandler], None] | None = None
        self.queries: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        super().__init__(self._answer)

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        url = urlsplit(request.path)
        assert url.path == "/prefix/api/v1/query"
        (query,) = parse_qs(url.query)["query"]
        self.queries.append(query)
        self.headers.append(dict(request.headers))
        with contextlib.suppress(OSError):  # the client has gone
            if self.behave is not None:
                self.behave(request)
                return
            name = "execution" if "execution" in query else "bootstrap"
            ended = re.search(r"s\] offset (\d+)s\)", query)
            write(request, 200, vector(self.answers(name, int(ended[1]) // 3600 if ended else 0)))


def write(request: BaseHTTPRequestHandler, status: int, body: bytes, **headers: str) -> None:
    request.send_response(status)
    for name, value in headers.items():
        request.send_header(name, value)
    request.end_headers()
    request.wfile.write(body)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def source(address: str, **options: Any) -> PrometheusSamples:
    return PrometheusSamples(
        f"{address}/prefix",
        bootstrap="agent.bootstrap_seconds",
        execution="agent.execution_seconds",
        **{"window": WINDOW, "clock": SystemClock()} | options,
    )


def samples_of(server: Server, **options: Any) -> list[AttemptSample]:
    found = list(source(server.url, **options).samples("draft", NOW - WINDOW))
    assert len(believable(found, NOW)) == len(found)
    return found


def newest(name: str, hours: int, execution: list[Any], bootstrap: list[Any]) -> list[Any]:
    """Return the series of the last hour; nothing was before."""
    if hours:
        return []
    return execution if name == "execution" else bootstrap


# What attempts are made up of.


def test_an_attempt_took_as_long_as_its_bucket_reaches(server: Server) -> None:
    server.answers = lambda name, hours: newest(
        name, hours, series({}, s30=1, s60=3, inf=4), series({}, s2=3, s5=4, inf=4)
    )

    found = samples_of(server)

    assert [
        (one.bootstrap_seconds, one.execution_seconds, one.outcome)
        for one in sorted(found, key=lambda one: one.total_seconds)
    ] == [
        (2.0, 30.0, Outcome.SUCCESS),
        (2.0, 60.0, Outcome.SUCCESS),
        (2.0, 60.0, Outcome.SUCCESS),
        (5.0, 60.0, Outcome.INTERRUPTED),  # beyond the last bound: it took longer
    ]


def test_a_bootstrap_beyond_the_last_bound_took_longer(server: Server) -> None:
    server.answers = lambda name, hours: newest(
        name, hours, series({}, s60=2, inf=2), series({}, s2=1, inf=2)
    )

    found = samples_of(server)

    assert Counter((one.outcome, one.execution_seconds) for one in found) == {
        (Outcome.SUCCESS, 60.0): 2,
        (Outcome.INTERRUPTED, None): 1,
    }


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, (Outcome.SUCCESS, False)),
        ({"cause": "completed", "cold_start": "true"}, (Outcome.SUCCESS, True)),
        ({"cause": "completed", "cold_start": "false"}, (Outcome.SUCCESS, False)),
        ({"cause": "repeated"}, (Outcome.SUCCESS, False)),
        ({"cause": "expired"}, (Outcome.INTERRUPTED, False)),
        ({"cause": "cancelled"}, (Outcome.INTERRUPTED, False)),
        ({"cause": "failed"}, (Outcome.INTERRUPTED, False)),  # perhaps by its limit
        ({"cause": "failed", "outcome": "failed"}, (Outcome.FAILED, False)),
        ({"cause": "failed", "outcome": "clipped"}, (Outcome.CLIPPED, False)),
        ({"outcome": "success", "cold": "cold"}, (Outcome.SUCCESS, True)),
        ({"cause": "deferred"}, None),  # an outage says nothing of the step
        ({"cause": "another"}, None),
    ],
)
def test_the_labels_say_how_an_attempt_ended(
    server: Server, labels: dict[str, str], expected: tuple[Outcome, bool] | None
) -> None:
    ended = series(labels, s60=1, inf=1)
    known = series({}, s10=1, inf=1)
    server.answers = lambda name, hours: newest(name, hours, ended, ended) if expected else known

    found = samples_of(server)

    if expected is None:
        server.answers = lambda name, hours: [*known, *newest(name, hours, ended, ended)]
        assert len(samples_of(server)) == len(found)
    else:
        assert [(one.outcome, one.cold) for one in found] == [expected]


def test_each_span_has_its_attempts(server: Server) -> None:
    counts = {0: 2, 1: 3, 24: 5}
    server.answers = lambda _, hours: series({}, s60=counts[hours], inf=counts[hours])

    ages = Counter(
        next(span for span in (1, 24, 168) if NOW - one.ended_at < timedelta(hours=span))
        for one in samples_of(server)
    )

    assert ages == {1: 2, 24: 3, 168: 5}
    assert len(server.queries) == 6
    assert 'step_type="draft"' in server.queries[0]
    assert '__name__="agent_execution_seconds_bucket"' in server.queries[0]
    assert '__name__="agent.execution_seconds_bucket"' in server.queries[0]


def test_a_window_of_a_day_has_two_spans(server: Server) -> None:
    server.answers = lambda *_: series({}, s60=1, inf=1)

    source(server.url, window=timedelta(days=1)).samples("draft", NOW - timedelta(days=1))

    assert len(server.queries) == 4


def test_a_name_without_its_unit_is_found_with_it(server: Server) -> None:
    server.answers = lambda *_: series({}, s60=1, inf=1)
    by_name = PrometheusSamples(
        f"{server.url}/prefix",
        bootstrap="shop.bootstrap",
        execution="shop.execution",
        window=WINDOW,
        clock=SystemClock(),
    )

    assert by_name.samples("draft", NOW - WINDOW)
    names = re.findall(r'sum by \([^)]*\) \(\(increase\(\{__name__="([^"]+)"', server.queries[0])
    assert names == [
        "shop_execution_bucket",
        "shop_execution_seconds_bucket",
        "shop.execution_bucket",
    ]


def test_of_many_attempts_a_thousand_are_made_up_and_the_longest_stays(server: Server) -> None:
    many = series({"cause": "completed"}, s60=900_000, s90=999_999, s120=1_000_000, inf=1_000_000)
    ended = series({"cause": "expired"}, s60=0, s90=0, s120=1, inf=1)
    server.answers = lambda name, hours: newest(name, hours, [*many, *ended], many)

    found = samples_of(server)

    by_time = Counter((one.outcome.value, one.execution_seconds) for one in found)
    assert len(found) <= MAX_SAMPLES
    assert by_time["success", 120.0] == by_time["interrupted", 120.0] == 1
    assert by_time["success", 90.0] == pytest.approx(100, abs=2)
    assert by_time["success", 60.0] == pytest.approx(900, abs=6)


def test_more_bootstraps_than_executions_make_no_more_attempts(server: Server) -> None:
    server.answers = lambda name, hours: newest(
        name, hours, series({}, s60=5, inf=5), series({}, s60=0, inf=900_000_000)
    )

    assert len(samples_of(server)) <= MAX_SAMPLES


@pytest.mark.parametrize(("clipped", "is_doubled"), [(6, False), (20, False), (200, True)])
def test_attempts_seem_clipped_in_a_row_only_where_nearly_all_were(
    server: Server, clipped: int, is_doubled: bool
) -> None:
    """The order within a bucket is not known: the longest at the end would double the limit."""
    ended = series({"outcome": "clipped"}, s600=clipped, inf=clipped)
    done = series({"outcome": "success"}, s60=20, inf=20)
    server.answers = lambda name, hours: newest(
        name,
        hours,
        [*ended, *done],
        series({"outcome": "clipped"}, s1=clipped, inf=clipped)
        + series({"outcome": "success"}, s1=20, inf=20),
    )

    found = believable(samples_of(server), NOW)

    current = LimitInForce(Limit(600, 590), since=NOW)
    assert clips_in_a_row(found, current, BudgetSettings()) is is_doubled


# Servers that do not answer, and answers that cannot be true.


def _hang(request: BaseHTTPRequestHandler) -> None:
    request.rfile.read()  # until the client ends it


def _drip_headers(request: BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        request.wfile.write(b"X-More: 1\r\n" if threading.Event().wait(0.02) else b"X: 1\r\n")


def _drip_body(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.end_headers()
    while not threading.Event().wait(0.02):
        request.wfile.write(b" ")


def _huge(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.send_header("Content-Length", str(2**30))
    request.end_headers()
    for _ in range(2**14):
        request.wfile.write(b" " * 2**16)


def _gone(request: BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"HTTP/1.1 200")
    request.close_connection = True


def _answering(status: int, body: bytes, **headers: str) -> Callable[..., None]:
    return lambda request: write(request, status, body, **headers)


def _series(*found: list[Any]) -> Callable[..., None]:
    return _answering(200, vector([one for some in found for one in some]))


_MATRIX = b'{"status": "success", "data": {"resultType": "matrix", "result": []}}'
_YEAR = series({}, s60=1, s31536000=2, inf=2)

HOSTILE: list[tuple[str, Callable[..., None], str]] = [
    ("hangs", _hang, "no answer within 0.5 s"),
    ("headers", _drip_headers, "no answer within 0.5 s|the exchange ended with HTTPException"),
    ("drips", _drip_body, "no answer within 0.5 s"),
    ("huge", _huge, f"its answer is larger than {MAX_ANSWER_BYTES:,} bytes"),
    ("gone", _gone, "has an answer that is not one of Prometheus"),
    ("500", _answering(500, b"<html>oh\n</html>"), r"it answered 500"),
    ("400", _answering(400, b'{"error": "bad\\nquery"}'), r"it answered 400 \(bad query\)"),
    ("redirect", _answering(301, b"", Location="http://127.0.0.1:1/"), "it answered 301"),
    ("html", _answering(200, b"<html>"), "has an answer that is not one of Prometheus"),
    ("deep", _answering(200, b"[" * 100_000), "has an answer that is not one of Prometheus"),
    ("list", _answering(200, b"[1]"), "has an answer that is not one of Prometheus"),
    ("matrix", _answering(200, _MATRIX), "has an answer that is not a vector"),
    ("text", _answering(200, vector("many")), "has an answer that is not a vector"),
    ("many", _answering(200, vector([{}] * (MAX_SERIES + 1))), "has more than 5,000 series"),
    ("naked", _answering(200, vector([{"value": [1, "2"]}])), "has a series without labels"),
    ("twice", _series(series({}, s60=5, inf=5), series({}, s60=5, inf=5)), "has a series twice"),
    ("nothing", _series(), "no attempts of step draft in agent.execution_seconds"),
    ("zeros", _series(series({}, s60=0, inf=0)), "no attempts of step draft"),
    ("negative", _series(series({}, s60=-1, inf=1)), "has a bucket with '-1' attempts"),
    ("nan", _series(series({}, s60="NaN", inf=1)), "has a bucket with 'NaN' attempts"),
    ("infinite", _series(series({}, s60=1, inf="+Inf")), r"has a bucket with '\+Inf' attempts"),
    ("billions", _series(series({}, s60=1, inf="1e30")), "has a bucket with '1e30' attempts"),
    ("word", _series(series({}, s60="six\x1b[2J")), r"has a bucket with .* attempts"),
    ("year", _series(_YEAR), r"has an attempt of 3.1536e\+07 s"),
    ("shrinks", _series(series({}, s60=90, s120=20, inf=90)), "has 20 attempts up to 120 s, and"),
    ("no end", _series(series({}, s60=1, s120=2)), r"buckets without a bound, or none up to \+Inf"),
    ("no bound", _series(series({}, inf=2)), "buckets without a bound"),
    ("odd bound", _series(series({}, sNaN=1, inf=2)), "has a bucket up to 'NaN'"),
    ("below 0", _series(series({"le": "-5"}, inf=2)), "has a bucket up to '-5'"),
]


@pytest.mark.parametrize(
    ("behave", "problem"), [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE]
)
def test_what_cannot_be_true_is_refused_in_one_line_that_names_the_source(
    server: Server, behave: Callable[..., None], problem: str
) -> None:
    server.behave = behave
    patience_s = 0.5 if "0.5 s" in problem else 20.0  # a busy machine answers late, and wrong

    with pytest.raises(MetricsUnavailableError, match=problem) as caught:
        source(server.url, patience_s=patience_s).samples("draft", NOW - WINDOW)

    line = caught.value.message
    assert line.startswith(f"the metrics source {server.url}/prefix cannot be used: ")
    assert line.endswith("; the last limits stay in force.")
    assert line.isprintable()
    assert len(line) < 500


@pytest.mark.parametrize(
    "address",
    [f"http://127.0.0.1:{own_port()}", "http://h:x", "http://[::"],
    ids=["nothing listens", "no port", "no host"],
)
def test_a_server_that_is_away_is_refused_likewise(address: str) -> None:
    with pytest.raises(MetricsUnavailableError, match="cannot be used: "):
        source(address).samples("draft", NOW - WINDOW)


def test_a_server_that_was_away_is_not_asked_about_each_step(server: Server) -> None:
    server.behave = _answering(503, b"")
    clock = FrozenClock()
    asked = source(server.url, clock=clock)

    for step in ("draft", "review", "publish"):
        with pytest.raises(MetricsUnavailableError, match="it answered 503"):
            asked.samples(step, NOW - WINDOW)
    assert len(server.queries) == 1

    clock.advance(timedelta(seconds=61))
    server.behave = None
    server.answers = lambda *_: series({}, s60=1, inf=1)
    assert asked.samples("draft", NOW - WINDOW)


def test_a_lie_about_one_step_costs_no_other_its_limits(server: Server) -> None:
    asked = source(server.url)
    server.answers = lambda *_: series({}, s60=-1, inf=1)
    with pytest.raises(MetricsUnavailableError):
        asked.samples("draft", NOW - WINDOW)

    server.answers = lambda *_: series({}, s60=1, inf=1)

    assert asked.samples("review", NOW - WINDOW)


# Who signs in.


def test_a_token_is_sent_and_its_problem_is_not_told(server: Server) -> None:
    server.answers = lambda *_: series({}, s60=1, inf=1)
    source(server.url, token=lambda: "t-123").samples("draft", NOW - WINDOW)

    assert {one["Authorization"] for one in server.headers} == {"Bearer t-123"}

    def refused() -> str:
        raise RuntimeError("secret of the account")

    with pytest.raises(MetricsUnavailableError, match="ended with RuntimeError") as caught:
        source(server.url, token=refused).samples("draft", NOW - WINDOW)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://monitoring.googleapis.com/v1/projects/p/location/global/prometheus", True),
        ("http://monitoring.googleapis.com/v1/projects/p", False),
        ("https://monitoring.googleapis.com.example.com/v1", False),
        ("https://prometheus.example.com", False),
    ],
)
def test_the_account_signs_in_at_google_alone(address: str, expected: bool) -> None:
    assert is_of_google(address) is expected


def test_the_settings_choose_the_source() -> None:
    clock = SystemClock()
    by_server = {"PIPELINE_METRICS_SOURCE": "http://127.0.0.1:9090"}

    assert open_samples(read_settings({}), clock, WINDOW) is None
    samples = open_samples(read_settings(by_server), clock, WINDOW)
    assert isinstance(getattr(samples, "__self__", None), PrometheusSamples)
