"""What an error says of its retries: none, or not before."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from datetime import timedelta
from email.message import Message
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock
from urllib.error import HTTPError

import httpx2
import openai
import pytest
import requests

from leasehold.adapters.clock import SystemClock
from leasehold.domain.manifest_parts import RetryRule
from leasehold.errors import (
    AgentClientError,
    BodyEncodingError,
    CheckpointMisusedError,
    PermanentError,
)
from leasehold.worker.failures.error_chain import outage_in
from leasehold.worker.failures.failures import record_of
from leasehold.worker.failures.retry_hints import (
    is_mistake,
    is_permanent,
    is_rate_limited,
    retry_after_of,
)


class ClientError(Exception):
    """What a library raises."""


class QuotaError(ClientError):
    """A subclass of it."""


def listing(*names: str) -> RetryRule:
    return RetryRule(first_s=1, factor=2, max_s=8, non_retryable=names)


@pytest.mark.parametrize(
    "name",
    [
        "QuotaError",
        "ClientError",
        f"{__name__}:ClientError",
        f"{__name__}.QuotaError",
        "Exception",
        "builtins:Exception",
    ],
)
def test_an_error_is_listed_by_its_class_or_one_above_it(name: str) -> None:
    assert is_permanent(QuotaError(), listing(name))


def test_a_class_is_found_where_a_library_offers_it() -> None:
    """Many libraries define their errors in their own module and offer them in another."""
    error = json.JSONDecodeError("no", "{", 1)

    assert is_permanent(error, listing("json:JSONDecodeError"))
    assert is_permanent(error, listing("json.decoder:JSONDecodeError"))
    assert not is_permanent(error, listing("no_such_module:JSONDecodeError"))


def test_an_error_is_listed_by_its_code() -> None:
    assert is_permanent(AgentClientError("gone", code="gone"), listing("gone"))


def test_what_is_not_listed_is_retried() -> None:
    assert not is_permanent(ClientError(), listing("QuotaError", "other:ClientError", "gone"))
    assert not is_permanent(ClientError())
    assert is_permanent(PermanentError("no"))


class UnknowableError(Exception):
    """Reading it raises."""

    @property
    def __class__(self) -> Any:
        raise OSError


def test_an_error_that_cannot_be_looked_at_is_retried() -> None:
    assert not is_permanent(UnknowableError(), listing("UnknowableErrors"))
    assert outage_in(UnknowableError()) is None
    assert record_of(UnknowableError()).type == "UnknowableError"


def test_one_error_of_a_group_decides_for_all() -> None:
    """A task group raises what its tasks raised in one: it would be raised again."""
    group = ExceptionGroup("2 failed", [ValueError(), ExceptionGroup("1", [QuotaError()])])

    assert is_permanent(group, listing("ClientError"))
    assert is_permanent(ExceptionGroup("1 failed", [PermanentError("no")]))
    assert is_permanent(
        ExceptionGroup("1 failed", [BodyEncodingError(header="Content-Encoding", encoding="gzip")])
    )
    assert not is_permanent(group, listing("KeyError"))


def test_one_wrong_use_of_the_context_decides_for_a_group() -> None:
    """A task of the handler made it; no later attempt would make another."""
    mistake = CheckpointMisusedError(problem="two loops at once", remedy="Make one of them")

    assert is_mistake(ExceptionGroup("2 failed", [ValueError(), ExceptionGroup("1", [mistake])]))
    assert not is_mistake(ExceptionGroup("1 failed", [ValueError()]))


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        (7, 7.0),
        (0.5, 0.5),
        (timedelta(minutes=1), 60.0),
        ("30", 30.0),
        (10**400, None),
        (1e300, 86_400.0),
        (float("inf"), 86_400.0),
        (timedelta.max, 86_400.0),
        (float("nan"), None),
        (-1, None),
        (0, None),
        (timedelta(-1), None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
        (None, None),
        ([], None),
    ],
)
def test_a_time_that_can_be_waited_is_waited_and_no_other(
    asked: Any, seconds: float | None
) -> None:
    """What a provider sends is passed on as it is: it must never hide the error itself."""
    assert retry_after_of(AgentClientError("busy", retry_after=asked)) == seconds


def test_of_a_group_the_longest_time_counts() -> None:
    busy = [AgentClientError("busy", retry_after=wait) for wait in (3, 9, None)]

    assert retry_after_of(ExceptionGroup("3 failed", [*busy, ValueError()])) == 9


class ProviderError(Exception):
    """The error of a client library about an answer."""

    def __init__(self, headers: Any) -> None:
        super().__init__("busy")
        self.response = SimpleNamespace(headers=headers)


def caused_by(*errors: BaseException) -> BaseException:
    """Return the last of them, each caused by the one before."""
    for older, newer in itertools.pairwise(errors):
        newer.__cause__ = older
    return errors[-1]


def of_requests() -> Exception:
    answer = requests.Response()
    answer.status_code = 429
    answer.headers["Retry-After"] = "17"
    return requests.HTTPError("busy", response=answer)


def of_openai() -> Exception:
    request = httpx2.Request("POST", "https://api.example.com")
    answer = httpx2.Response(429, headers={"Retry-After": "17"}, request=request)
    return openai.RateLimitError("busy", response=answer, body=None)


def of_urllib() -> Exception:
    headers = Message()
    headers["Retry-After"] = "17"
    return HTTPError("https://api.example.com", 429, "busy", headers, None)


@pytest.mark.parametrize("made", [of_requests, of_openai, of_urllib])
def test_the_header_of_a_providers_answer_is_read(made: Callable[[], Exception]) -> None:
    assert retry_after_of(made()) == 17


@pytest.mark.parametrize("name", ["retry-after", "Retry-After", "RETRY-AFTER"])
def test_the_header_is_found_in_any_case(name: str) -> None:
    assert retry_after_of(ProviderError({name: "17"})) == 17
    assert retry_after_of(ProviderError({name: b"17"})) == 17


def test_the_nearest_of_the_chain_of_causes_counts() -> None:
    provider = ProviderError({"retry-after": "17"})

    assert retry_after_of(caused_by(provider, KeyError("no"), ValueError("no"))) == 17
    assert retry_after_of(caused_by(provider, AgentClientError("no"))) == 17
    assert retry_after_of(caused_by(provider, AgentClientError("no", retry_after=5))) == 5


def handling(answer: ProviderError, *, cut_off: bool) -> None:
    try:
        raise answer
    except ProviderError:
        if cut_off:
            raise ValueError("no") from None
        raise ValueError("no")  # noqa: B904 - what handlers do


@pytest.mark.parametrize(("cut_off", "seconds"), [(False, 17), (True, None)])
def test_what_was_being_handled_counts_unless_it_was_cut_off(
    cut_off: bool,
    seconds: float | None,
) -> None:
    with pytest.raises(ValueError, match="no") as caught:
        handling(ProviderError({"retry-after": "17"}), cut_off=cut_off)

    assert retry_after_of(caught.value) == seconds


def test_of_a_group_the_longest_of_the_chains_of_its_members_counts() -> None:
    chains = [
        caused_by(ProviderError({"retry-after": wait}), ValueError("no")) for wait in ("3", "9")
    ]
    group = ExceptionGroup("2 failed", [chains[0], ExceptionGroup("1", [chains[1]])])

    assert retry_after_of(caused_by(group, RuntimeError("all failed"))) == 9


def test_a_date_is_counted_from_that_of_the_answer() -> None:
    """How the clock of this machine is set says nothing of the provider's."""
    headers = {
        "Date": "Wed, 21 Oct 2015 07:27:00 GMT",
        "Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT",
    }

    assert retry_after_of(ProviderError(headers)) == 60


def test_a_date_without_a_zone_is_of_utc() -> None:
    headers = {"Date": "Wed, 21 Oct 2015 07:27:00 GMT", "Retry-After": "Wed, 21 Oct 2015 07:28:00"}

    assert retry_after_of(ProviderError(headers)) == 60


def test_a_date_without_one_of_the_answer_is_counted_from_now() -> None:
    soon = format_datetime(SystemClock().now() + timedelta(minutes=10), usegmt=True)

    for error in (ProviderError({"retry-after": soon}), AgentClientError("no", retry_after=soon)):
        assert 500 < (retry_after_of(error) or 0) <= 600


class HostileHeaders:
    """Reading any attribute raises."""

    def get(self, name: str) -> Any:
        raise OSError(name)


class HostileError(Exception):
    """Its answer cannot be had."""

    @property
    def response(self) -> Any:
        raise OSError


@pytest.mark.parametrize(
    "headers",
    [
        None,
        7,
        [],
        {},
        HostileHeaders(),
        MagicMock(),
        {"retry-after": "soon"},
        {"retry-after": "9" * 999},
    ],
)
def test_headers_that_say_no_time_are_passed_over(headers: Any) -> None:
    """It must never hide the error itself; what lies behind it still counts."""
    behind = ProviderError({"retry-after": "17"})

    assert retry_after_of(ProviderError(headers)) is None
    assert retry_after_of(caused_by(behind, ProviderError(headers), HostileError())) == 17
    assert record_of(ProviderError(headers)).message == "busy"


def test_chains_and_groups_without_end_are_followed_for_a_while() -> None:
    error = ValueError("0")
    error.__cause__ = other = ValueError("1")
    other.__cause__ = error
    deep: Exception = ProviderError({"retry-after": "17"})
    for _ in range(2000):
        deep = caused_by(ExceptionGroup("outer", [deep]), ValueError("no"))  # type: ignore[assignment]

    assert retry_after_of(error) is None
    assert retry_after_of(deep) is None


def _raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    error.__cause__ = cause
    return error


_BUSY = openai.RateLimitError(
    "busy",
    response=httpx2.Response(429, request=httpx2.Request("POST", "https://api.test")),
    body=None,
)
_DOWN = openai.InternalServerError(
    "down",
    response=httpx2.Response(500, request=httpx2.Request("POST", "https://api.test")),
    body=None,
)


def _told_by_its_answer(status: int) -> BaseException:
    answer = requests.Response()
    answer.status_code = status
    return requests.HTTPError("no", response=answer)


def _too_deep() -> BaseException:
    """Return groups in causes of members of groups: in the end, none is looked at."""
    error: BaseException = ValueError("a mistake")
    for _ in range(6):
        error = _raised(ValueError("no"), ExceptionGroup("some", [error]))  # type: ignore[list-item]
    return error


@pytest.mark.parametrize(
    ("error", "is_limit"),
    [
        (_BUSY, True),
        (_raised(ValueError("no answer"), _BUSY), True),
        (AgentClientError("busy", code="rate_limited"), True),
        (_raised(AgentClientError("busy", code="busy"), _BUSY), True),
        (HTTPError("https://api.test", 429, "busy", Message(), None), True),
        (_told_by_its_answer(429), True),
        (_told_by_its_answer(503), False),
        (_too_deep(), False),
        (ExceptionGroup("both", [_BUSY, AgentClientError("busy", code="rate_limited")]), True),
        (ExceptionGroup("one of them", [_BUSY, ValueError("a mistake")]), False),
        (_DOWN, False),
        (AgentClientError("busy"), False),
        (ValueError("429"), False),
    ],
)
def test_a_rate_limit_is_known_by_its_status_or_its_code(
    error: BaseException, is_limit: bool
) -> None:
    """A mistake beside it would be made again, however long it waits."""
    assert is_rate_limited(error) is is_limit


def test_an_error_that_cannot_be_read_is_no_rate_limit() -> None:
    assert not is_rate_limited(UnknowableError())
