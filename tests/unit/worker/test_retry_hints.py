"""What an error says of its retries: none, or not before."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from leasehold.domain.manifest_parts import RetryRule
from leasehold.errors import AgentClientError, PermanentError
from leasehold.worker.failures import record_of
from leasehold.worker.outage import outage_in
from leasehold.worker.retry_hints import is_permanent, retry_after_of


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
    """Many libraries define their errors in a module of their own and offer them in another."""
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
    """Whoever asks what it is gets no answer."""

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
    assert not is_permanent(group, listing("KeyError"))


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
