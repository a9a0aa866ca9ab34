"""A function of the user gets announcements, and its errors say whether each was taken."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from leasehold import AgentClientError, CustomChannel, PermanentError
from leasehold.adapters.channels.bounded_call import BoundedCall
from leasehold.errors import (
    ChannelRefusedError,
    ChannelUnansweredError,
    ChannelUnavailableError,
)
from tests.worlds.deliveries import KEY, SHORT_S, TIMEOUT_S, delivery, opener

PLANTED = "sk-" + "planted7f3a" * 4

told: list[Mapping[str, Any]] = []
never = threading.Event()
at_last = threading.Event()
stayed: list[float] = []


def names_it(message: Mapping[str, Any], timeout: float) -> str:
    told.append({**message, "timeout": timeout})
    return "page-1\x1b"


async def waits_for_it(message: Mapping[str, Any], _seconds: float) -> None:
    told.append(message)


def refuses(message: Mapping[str, Any], timeout: float) -> None:
    raise PermanentError(f"the pager knows nobody; api_key={PLANTED}")


def is_busy(message: Mapping[str, Any], timeout: float) -> None:
    raise AgentClientError("busy", retry_after=30)


def raises(message: Mapping[str, Any], timeout: float) -> None:
    raise KeyError("x")


def leaves(message: Mapping[str, Any], timeout: float) -> None:
    raise SystemExit(1)


def hangs(message: Mapping[str, Any], timeout: float) -> None:
    told.append(message)
    never.wait(30)


def stays(message: Mapping[str, Any], timeout: float) -> None:
    stayed.append(timeout)
    at_last.wait(60)


def takes_one(message: Mapping[str, Any]) -> None:
    pass


def send(function: str, timeout: float = TIMEOUT_S) -> str | None:
    entry = CustomChannel(name=f"pager-{function}", sender=f"{__name__}:{function}")
    return opener()(entry).send(delivery(), timeout=timeout)


def test_it_gets_the_message_and_its_time() -> None:
    told.clear()

    assert send("names_it") == "page-1\\x1b"
    assert send("waits_for_it") is None

    assert [message["id"] for message in told] == [KEY, KEY]
    assert told[0]["type"] == "leasehold.run_blocked"
    assert told[0]["data"]["runId"] == "letters-1"
    assert 0 < told[0]["timeout"] <= TIMEOUT_S


def test_an_error_for_good_is_a_refusal_without_secrets() -> None:
    with pytest.raises(ChannelRefusedError, match="PermanentError: the pager knows nobody") as no:
        send("refuses")

    assert PLANTED not in no.value.message


def test_one_of_a_provider_says_that_it_was_not_taken() -> None:
    with pytest.raises(ChannelUnavailableError) as later:
        send("is_busy")

    assert type(later.value) is ChannelUnavailableError
    assert later.value.retry_after == timedelta(seconds=30)


@pytest.mark.parametrize(("function", "words"), [("raises", "KeyError"), ("leaves", "SystemExit")])
def test_any_other_error_has_an_unknown_result(function: str, words: str) -> None:
    with pytest.raises(ChannelUnansweredError, match=words):
        send(function)


def test_a_channel_that_never_returns_blocks_nothing() -> None:
    told.clear()
    for timeout in SHORT_S:
        with pytest.raises(ChannelUnavailableError, match="no answer within") as over:
            send("hangs", timeout)
        if told:
            break
    never.set()

    assert type(over.value) is ChannelUnansweredError


def test_what_begins_to_send_after_its_time_sends_nothing() -> None:
    """Another process has taken the delivery over by then."""
    go_on, ended = threading.Event(), threading.Event()
    sent: list[str] = []
    call = BoundedCall("late", 0.01)

    def send_late() -> None:
        try:
            go_on.wait(30)
            call.begin_sending()
            sent.append("it")
        finally:
            ended.set()

    with pytest.raises(ChannelUnavailableError, match="no answer within") as over:
        call.run(send_late)
    go_on.set()

    assert ended.wait(30)
    assert (type(over.value), sent) == (ChannelUnavailableError, [])


def test_those_that_never_return_are_no_more_than_a_few() -> None:
    """A process lives for months, and a provider that hangs is tried for a day."""
    stayed.clear()
    problem = ""
    while not problem.endswith("hang"):
        with pytest.raises(ChannelUnavailableError) as over:
            send("stays", 0.05)
        problem = over.value.details["problem"]
    at_last.set()

    assert (problem, len(stayed)) == ("4 sends to it hang", 4)


@pytest.mark.parametrize(
    ("function", "words"),
    [("nothing", "has no 'nothing'"), ("takes_one", "it must take two arguments, (message, tim")],
)
def test_one_that_is_not_there_may_come_with_the_next_deploy(function: str, words: str) -> None:
    with pytest.raises(ChannelUnavailableError) as missing:
        send(function)

    assert type(missing.value) is ChannelUnavailableError
    assert words in missing.value.message
