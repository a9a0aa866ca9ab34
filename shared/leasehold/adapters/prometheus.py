"""The port of samples on a server with the query API of Prometheus.

A histogram counts attempts by buckets, so attempts are made up that fit the counts:

- Each took as long as the upper bound of its bucket: a limit may come out too long, and never too
  short. Beyond the last bound an attempt counts as one that was ended there (censored).
- Bootstraps and executions are counted apart, so the longest go together, and so on down.
- There are at most `MAX_SAMPLES`: of more, each bucket gets its share, rounded up from the
  longest on, so that what is rare and long stays.
- Three spans are asked for: the last hour, the rest of the last day, and the rest of the window.
  Within a span nothing is known of the order, so the attempts of each outcome are spread evenly: no
  attempts seem to have been clipped in a row unless nearly all of the span were.

An answer that cannot be true is refused: a bucket that has less than a smaller one, say.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import re
import socket
import ssl
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final
from urllib.parse import quote, urlsplit

from leasehold.bounded_calls import start_call
from leasehold.budgets.samples import MAX_ATTEMPT_S, AttemptSample, Outcome
from leasehold.domain.printable import one_line
from leasehold.errors import MetricsUnavailableError
from leasehold.frozen import dataclass
from leasehold.ports.clock import Clock

#: So many attempts of a step are made up.
MAX_SAMPLES: Final = 1000
#: So many bytes of an answer are read.
MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
#: So many series an answer may have: outcomes times bounds are some hundreds.
MAX_SERIES: Final = 5000
#: All questions about a step have so many seconds; a server that was silent is not asked again for
#: as long as the second one says.
STEP_PATIENCE_S: Final = 20.0
SILENT_SERVER_S: Final = 60.0

_MAX_BUCKET_ATTEMPTS: Final = 1e9
#: Each bucket's growth is estimated on its own: by so much one may have less than a smaller one.
_SHRINKS_BY: Final = 0.05
_SPANS: Final = (timedelta(0), timedelta(hours=1), timedelta(days=1))
#: A series that was scraped within this time before a span is not new in it.
_SEEN_BEFORE: Final = "1h"
_MAX_WORDS_CHARS: Final = 200

#: What an attempt counts as, by its label `outcome`, or else `cause`; others say nothing of how
#: long a step takes. The cause `failed` may be that its limit ended it, so it counts as ended.
_OUTCOMES: Final[Mapping[str, Outcome]] = {one.value: one for one in Outcome}
_CAUSES: Final[Mapping[str, Outcome]] = {
    "completed": Outcome.SUCCESS,
    "repeated": Outcome.SUCCESS,
    "failed": Outcome.INTERRUPTED,
    "expired": Outcome.INTERRUPTED,
    "interrupted": Outcome.INTERRUPTED,
    "cancelled": Outcome.INTERRUPTED,
}
_LABELS: Final = "le, outcome, cause, cold_start, cold"

#: An attempt's outcome, and whether it was cold.
_Kind = tuple[Outcome, bool]


@dataclass(frozen=True, slots=True)
class _Metric:
    """A histogram: its name, and the setting that has it."""

    name: str
    setting: str


@dataclass(frozen=True, slots=True)
class _Histogram:
    """How many durations each bucket has, by its upper bound, ascending; those beyond the last."""

    counts: dict[float, int]
    beyond: int

    @property
    def total(self) -> int:
        """How many there are in all."""
        return sum(self.counts.values()) + self.beyond


#: Those of a span, by what they count.
_Histograms = Mapping[_Kind, _Histogram]


class PrometheusSamples:
    """Asks a server for histograms of both phases.

    Args:
        address: of the server, before `/api/v1/query`.
        bootstrap: the name of the histogram of bootstraps, as `agent.bootstrap_seconds`.
        execution: likewise, of executions.
        window: how far back attempts count.
        clock: of this machine; its time of day is not used.
        token: returns what to sign in with; None: nothing.
        patience_s: how long all questions about a step may take.
    """

    def __init__(
        self,
        address: str,
        *,
        bootstrap: str,
        execution: str,
        window: timedelta,
        clock: Clock,
        token: Callable[[], str] | None = None,
        patience_s: float = STEP_PATIENCE_S,
    ) -> None:
        self._address = address
        self._bootstrap = _Metric(bootstrap, "PIPELINE_BUDGET_INIT_SOURCE")
        self._execution = _Metric(execution, "PIPELINE_BUDGET_EXEC_SOURCE")
        self._window = window
        self._clock = clock
        self._token = token
        self._patience_s = patience_s
        self._silent_until = -math.inf
        self._silence = ""

    def samples(self, step_type: str, since: datetime) -> Sequence[AttemptSample]:
        """Return attempts that fit the histograms of a step, of the window since then.

        Raises:
            MetricsUnavailableError: the server did not answer in time, has no attempts of the step,
                or says what cannot be true.
        """
        now, until_s = since + self._window, self._clock.monotonic() + self._patience_s
        spans = list(_spans(self._window))
        found = {
            metric: [self._histograms(metric, step_type, span, until_s) for span in spans]
            for metric in (self._execution, self._bootstrap)
        }
        for metric, histograms in found.items():
            if not any(one.total for span in histograms for one in span.values()):
                problem = f"no attempts of step {step_type} in {metric.name} ({metric.setting})"
                raise self._unavailable(problem)
        executions, bootstraps = found[self._execution], found[self._bootstrap]
        share = _share(executions, bootstraps)
        return [
            sample
            for span, took, began in zip(spans, executions, bootstraps, strict=True)
            for sample in _in_span(_paired(took, began, share, now), now - span[1], now - span[0])
        ]

    # --- one histogram ---

    def _histograms(
        self, metric: _Metric, step_type: str, span: tuple[timedelta, timedelta], until_s: float
    ) -> _Histograms:
        """Return what a span has."""
        answer = self._asked(_expression(metric.name, step_type, span), until_s)
        try:
            return _read(answer)
        except _RefusedError as error:
            problem = f"of step {step_type} {metric.name} has {error} ({metric.setting})"
            raise self._unavailable(problem) from None

    def _asked(self, expression: str, until_s: float) -> bytes:
        """Return the answer to a query; what hangs or trickles is over at its time."""
        now_s = self._clock.monotonic()
        if now_s < self._silent_until:
            raise self._unavailable(self._silence)
        exchange = _Exchange(self._address, expression, self._token)
        call = start_call(exchange.make, "metrics")
        try:
            if call is None:
                raise self._unavailable("this process can start no further thread")
            return self._body(call, max(0.001, until_s - now_s))
        finally:
            exchange.end()

    def _body(self, call: Future[tuple[int, bytes]], wait_s: float) -> bytes:
        try:
            status, body = call.result(wait_s)
        except TimeoutError:
            raise self._away(f"no answer within {self._patience_s:g} s") from None
        except Exception as error:  # noqa: BLE001 - of sockets, TLS, HTTP, and of what signs in
            raise self._away(_words(error)) from None
        if status != http.client.OK:
            raise self._away(f"it answered {status}{_reason(body)}")
        if len(body) > MAX_ANSWER_BYTES:
            raise self._unavailable(f"its answer is larger than {MAX_ANSWER_BYTES:,} bytes")
        return body

    def _away(self, problem: str) -> MetricsUnavailableError:
        """Return the error of a server that need not be asked about the next step."""
        self._silence = problem
        self._silent_until = self._clock.monotonic() + SILENT_SERVER_S
        return self._unavailable(problem)

    def _unavailable(self, problem: str) -> MetricsUnavailableError:
        return MetricsUnavailableError(source=self._address, problem=problem)


class _Exchange:
    """One GET: no redirect is followed, and no proxy asked, as it may carry a token."""

    def __init__(self, address: str, expression: str, token: Callable[[], str] | None) -> None:
        self._address = address
        self._query = quote(expression, safe="")
        self._token = token
        self._socket: socket.socket | None = None
        self._is_over = False

    def make(self) -> tuple[int, bytes]:
        """Return the status and the body, of which one byte more is read than may be."""
        parts = urlsplit(self._address)
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token()}"
        with contextlib.closing(kind(parts.netloc, timeout=STEP_PATIENCE_S)) as connection:
            connection.connect()
            self._socket = connection.sock.dup()  # ends it, whatever is wrapped around it
            if self._is_over:
                raise TimeoutError
            path = f"{parts.path}/api/v1/query?query={self._query}"
            connection.request("GET", path, headers=headers)
            with connection.getresponse() as answer:
                return answer.status, answer.read(MAX_ANSWER_BYTES + 1)

    def end(self) -> None:
        """End what is still under way."""
        self._is_over = True  # first: the socket may be made at this moment
        if (used := self._socket) is not None:
            with contextlib.suppress(OSError):  # the server has ended it already
                used.shutdown(socket.SHUT_RDWR)
            used.close()


# The question.


def _spans(window: timedelta) -> Iterator[tuple[timedelta, timedelta]]:
    """Yield how long ago each span ended and began."""
    for ended, began in zip(_SPANS, (*_SPANS[1:], window), strict=True):
        if ended < window:
            yield ended, min(began, window)


def _expression(name: str, step_type: str, span: tuple[timedelta, timedelta]) -> str:
    """Return the query of the attempts of a span, by all names that a histogram may have."""
    return " or ".join(
        f"sum by ({_LABELS}) ({_growth(one, step_type, span)})" for one in _names(name)
    )


def _names(name: str) -> Iterator[str]:
    """Yield the names of a histogram in Prometheus: without dots, with its unit, and as it is."""
    plain = re.sub(r"[^A-Za-z0-9_:]", "_", name)
    names = [plain, name] if plain.endswith("_seconds") else [plain, f"{plain}_seconds", name]
    yield from dict.fromkeys(f"{one}_bucket" for one in names)


def _growth(name: str, step_type: str, span: tuple[timedelta, timedelta]) -> str:
    """Return how much the buckets grew in a span.

    Prometheus does not count what a series begins with: the one cold start of a process that lives
    for an hour. So a series that is new in the span counts with all that it has.
    """
    ended, began = (int(one.total_seconds()) for one in span)
    series = f"{{__name__={json.dumps(name)},step_type={json.dumps(step_type)}}}"
    within = f"{series}[{began - ended}s]" + (f" offset {ended}s" if ended else "")
    before = f"last_over_time({series}[{_SEEN_BEFORE}] offset {began}s)"
    return f"(increase({within}) and {before}) or (max_over_time({within}) unless {before})"


# The answer.


class _RefusedError(Exception):
    """It has something that cannot be used; the words say what."""


def _read(body: bytes) -> _Histograms:
    found: dict[_Kind, dict[float, float]] = defaultdict(lambda: defaultdict(float))
    seen: set[str] = set()
    for one in _series(body):
        labels = one.get("metric") if isinstance(one, Mapping) else None
        if not isinstance(labels, Mapping):
            raise _RefusedError("a series without labels")
        if (name := json.dumps(labels, sort_keys=True)) in seen:
            raise _RefusedError("a series twice")
        seen.add(name)
        if (kind := _kind(labels)) is not None:
            found[kind][_bound(labels.get("le"))] += _count(one.get("value"))
    return {kind: _histogram(buckets) for kind, buckets in found.items()}


def _series(body: bytes) -> Sequence[Any]:
    try:
        document = json.loads(body)
        data = document["data"]
        kind, series = data["resultType"], data["result"]
    except (ValueError, RecursionError, LookupError, TypeError):
        raise _RefusedError("an answer that is not one of Prometheus") from None
    if document.get("status") != "success" or kind != "vector" or not isinstance(series, list):
        raise _RefusedError("an answer that is not a vector")
    if len(series) > MAX_SERIES:
        raise _RefusedError(f"more than {MAX_SERIES:,} series")
    return series


def _kind(labels: Mapping[str, Any]) -> _Kind | None:
    """Return what a series counts; None: attempts that say nothing."""
    outcome, cause = labels.get("outcome"), labels.get("cause")
    if outcome:
        known = _OUTCOMES.get(str(outcome))
    elif cause:
        known = _CAUSES.get(str(cause))
    else:
        known = Outcome.SUCCESS
    cold = labels.get("cold_start") or labels.get("cold")
    return None if known is None else (known, str(cold).lower() in {"true", "cold", "1"})


def _bound(text: object) -> float:
    bound = _number(text)
    if not bound > 0:  # nor a NaN
        raise _RefusedError(f"a bucket up to {one_line(repr(text), _MAX_WORDS_CHARS)}")
    return bound


def _count(value: object) -> float:
    text = value[1] if isinstance(value, list) and len(value) == 2 else None  # noqa: PLR2004 - a pair
    count = _number(text)
    if not 0 <= count <= _MAX_BUCKET_ATTEMPTS:
        raise _RefusedError(f"a bucket with {one_line(repr(text), _MAX_WORDS_CHARS)} attempts")
    return count


def _number(text: object) -> float:
    try:
        return float(text) if isinstance(text, str) else math.nan
    except ValueError:
        return math.nan


def _histogram(buckets: Mapping[float, float]) -> _Histogram:
    """Return what the buckets have; each of them was counted in all that are larger, too."""
    *bounds, last = sorted(buckets)
    if not bounds or last != math.inf:
        raise _RefusedError("buckets without a bound, or none up to +Inf")
    counts: dict[float, int] = {}
    highest = 0.0
    for bound in (*bounds, last):
        if buckets[bound] < highest - max(1.0, _SHRINKS_BY * highest):
            raise _RefusedError(
                f"{buckets[bound]:g} attempts up to {bound:g} s, and {highest:g} below"
            )
        longest = bound if bound < math.inf else bounds[-1]
        before, highest = round(highest), max(highest, buckets[bound])
        counts[bound] = round(highest) - before
        if counts[bound] and longest > MAX_ATTEMPT_S:
            raise _RefusedError(f"an attempt of {longest:g} s")
    return _Histogram(counts, beyond=counts.pop(math.inf))


# The attempts.


def _share(executions: Sequence[_Histograms], bootstraps: Sequence[_Histograms]) -> float:
    """Return which share of the attempts is made up, so that they are `MAX_SAMPLES` at most."""
    took = [one for span in executions for one in span.values()]
    began = [one for span in bootstraps for one in span.values()]
    counted = sum(one.total for one in took) + sum(one.beyond for one in began)
    most = max(1, counted, sum(one.total for one in began))
    return min(1.0, (MAX_SAMPLES - len(took) - len(began)) / most)


def _paired(
    took: _Histograms, began: _Histograms, share: float, now: datetime
) -> Iterator[AttemptSample]:
    """Yield the attempts of a span as if all had ended now."""
    for kind in {**took, **began}:
        outcome, is_cold = kind
        ended = Outcome.INTERRUPTED if outcome is Outcome.SUCCESS else outcome
        make = partial(AttemptSample, now, cold=is_cold)
        executions, longer = _durations(took.get(kind), share)
        bootstraps, later = _durations(began.get(kind), share)
        for bootstrap in later:
            yield make(ended, bootstrap, None)
        count = len(executions) + len(longer)
        for at, execution in enumerate((*executions, *longer)):
            bootstrap = _at_rank(bootstraps, at, count)
            yield make(outcome if at < len(executions) else ended, bootstrap, execution)


def _at_rank(ascending: Sequence[float], at: int, count: int) -> float:
    """Return the duration of the same rank as `at` of `count`; the longer one where it is none."""
    if not ascending:
        return 0.0
    return ascending[len(ascending) - 1 - (count - 1 - at) * len(ascending) // count]


def _durations(histogram: _Histogram | None, share: float) -> tuple[list[float], list[float]]:
    """Return a share of the durations, ascending, and of those beyond the last bound."""
    if histogram is None:
        return [], []
    seconds: list[float] = []
    counted, taken = histogram.beyond, _rounded_up(histogram.beyond * share)
    beyond = [max(histogram.counts)] * taken
    for bound in reversed(histogram.counts):
        counted += histogram.counts[bound]
        more = _rounded_up(counted * share) - taken
        seconds.extend([bound] * more)
        taken += more
    return seconds[::-1], beyond


def _rounded_up(number: float) -> int:
    return math.ceil(number - 1e-9)  # what is whole but for the last digits is whole


def _in_span(
    attempts: Iterable[AttemptSample], begin: datetime, end: datetime
) -> Iterator[AttemptSample]:
    """Yield attempts with ends: those of each outcome spread evenly over the span."""
    groups: dict[Outcome, list[AttemptSample]] = defaultdict(list)
    for one in attempts:
        groups[one.outcome].append(one)
    for group in groups.values():
        for at, one in enumerate(group):
            yield replace(one, ended_at=begin + (end - begin) * ((at + 0.5) / len(group)))


# What went wrong, in words of ours: an error's own may hold a token.


def _words(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, OSError) and error.strerror:
        return one_line(error.strerror, _MAX_WORDS_CHARS)
    return f"the exchange ended with {type(error).__name__}"


def _reason(body: bytes) -> str:
    """Return what a server says about an error, if it does so as Prometheus does."""
    try:
        reason = json.loads(body)["error"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return ""
    return f" ({one_line(reason, _MAX_WORDS_CHARS)})" if isinstance(reason, str) else ""


# Google's own server of metrics.


_GOOGLE: Final = "https://monitoring.googleapis.com"
_SCOPE: Final = "https://www.googleapis.com/auth/monitoring.read"


def is_of_google(address: str) -> bool:
    """Return whether an address is Google's, so that the account of this process signs in there."""
    return address == _GOOGLE or address.startswith(f"{_GOOGLE}/")


class GoogleToken:
    """Returns an access token of the account of this process, and keeps it while it is valid."""

    def __init__(self) -> None:
        self._credentials: Any = None

    def __call__(self) -> str:
        """Return the token.

        Raises:
            GoogleAuthError: there is no account, or no token for it.
        """
        import google.auth  # noqa: PLC0415 - of an extra
        from google.auth.transport.requests import Request  # noqa: PLC0415 - likewise

        if self._credentials is None:
            self._credentials, _ = google.auth.default(scopes=[_SCOPE])
        if not self._credentials.valid:
            self._credentials.refresh(Request())
        return str(self._credentials.token)
