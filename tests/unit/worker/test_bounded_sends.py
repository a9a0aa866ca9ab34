"""A send comes back in time, and what a provider says can be kept and shown."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest

from leasehold.errors import (
    ChannelRefusedError,
    ChannelUnansweredError,
    ChannelUnavailableError,
    StoreUnavailableError,
)
from leasehold.worker.bounded_sends import BoundedSends

LONG = 60.0
SHORT = 0.01


@pytest.fixture
def go_on() -> Iterator[Event]:
    go_on = Event()
    yield go_on
    go_on.set()


def raising(error: BaseException) -> Any:
    def send() -> object:
        raise error

    return send


def test_what_a_provider_calls_the_message_is_kept_as_one_bounded_text() -> None:
    sends = BoundedSends()

    assert sends.run("pager", lambda: "m-1", timeout=LONG) == "m-1"
    assert sends.run("pager", lambda: None, timeout=LONG) is None
    assert sends.run("pager", lambda: 17, timeout=LONG) == "17"
    odd = sends.run("pager", lambda: "\x1b[31m" + "x" * 10_000, timeout=LONG)
    assert odd is not None
    assert len(odd) <= 200
    assert "\x1b" not in odd


def test_a_send_that_hangs_is_left_behind(go_on: Event) -> None:
    with pytest.raises(ChannelUnansweredError, match="did not come back"):
        BoundedSends(grace_s=0).run("pager", go_on.wait, timeout=SHORT)


def test_a_channel_that_hangs_again_and_again_delays_no_other(go_on: Event) -> None:
    sends = BoundedSends(most_late=2, grace_s=0)
    for _ in range(2):
        with pytest.raises(ChannelUnansweredError):
            sends.run("pager", go_on.wait, timeout=SHORT)

    with pytest.raises(ChannelUnavailableError, match="2 sends to it hang") as refused:
        sends.run("pager", lambda: "m-1", timeout=LONG)

    assert not isinstance(refused.value, ChannelUnansweredError)  # nothing was sent
    assert sends.run("chat", lambda: "m-1", timeout=LONG) == "m-1"


def test_an_error_of_the_port_keeps_its_class_and_its_facts() -> None:
    sends = BoundedSends()
    error = ChannelUnavailableError(channel="?", problem="429", retry_after_s=7)

    with pytest.raises(ChannelUnavailableError) as raised:
        sends.run("pager", raising(error), timeout=LONG)
    with pytest.raises(ChannelRefusedError):
        sends.run(
            "pager", raising(ChannelRefusedError(channel="pager", problem="404")), timeout=LONG
        )

    assert raised.value.retry_after is not None
    assert raised.value.retry_after.total_seconds() == 7
    assert raised.value.details["channel"] == "pager"


@pytest.mark.parametrize("error", [ValueError("boom"), SystemExit(3), KeyboardInterrupt()])
def test_after_any_other_error_it_is_unknown_whether_it_was_sent(error: BaseException) -> None:
    with pytest.raises(ChannelUnansweredError, match=type(error).__name__):
        BoundedSends().run("pager", raising(error), timeout=LONG)


def test_secrets_and_what_steers_a_terminal_are_cut_out_of_errors() -> None:
    words = "\x1b[2J\nAuthorization: Bearer abcdefghijklmnop\r\n" + "x" * 50_000
    error = ChannelUnavailableError(channel="pager", problem=words)

    with pytest.raises(ChannelUnavailableError) as raised:
        BoundedSends().run("pager", raising(error), timeout=LONG)

    message = raised.value.message
    assert "abcdefghijklmnop" not in message
    assert message.isprintable()
    assert len(message) < 500


def test_without_a_thread_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    sent: list[int] = []

    with pytest.raises(StoreUnavailableError):
        BoundedSends().run("pager", lambda: sent.append(1), timeout=LONG)

    assert not sent


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -1, 10**30, "soon", None])
def test_an_invalid_wait_is_not_believed(odd: Any) -> None:
    error = ChannelUnavailableError(channel="pager", problem="429", retry_after_s=odd)

    with pytest.raises(ChannelUnavailableError) as raised:
        BoundedSends().run("pager", raising(error), timeout=LONG)

    assert raised.value.retry_after is None


def test_a_class_of_the_users_own_comes_out_as_the_ports() -> None:
    class GoneError(ChannelRefusedError):
        def __init__(self) -> None:
            super().__init__(channel="?", problem="410")

    with pytest.raises(ChannelRefusedError, match="410") as raised:
        BoundedSends().run("pager", raising(GoneError()), timeout=LONG)

    assert type(raised.value) is ChannelRefusedError


@pytest.mark.parametrize(
    "words",
    [
        "HTTPSConnectionPool(host='hooks.example'): retries exceeded with url: /a/planted (by …)",
        "404 Client Error: Not Found for url: https://hooks.example/services/planted",
        "https://hooks.example/bot1:planted/send?x=planted: broken",
        "HTTP Error for <https://hooks.example?planted>",
    ],
)
def test_no_address_is_kept_of_an_error_of_a_library(words: str) -> None:
    """A webhook's address is its secret, and the usual clients have it in their errors."""
    with pytest.raises(ChannelUnansweredError) as failed:
        BoundedSends().run("pager", raising(OSError(words)), timeout=LONG)

    assert "planted" not in f"{failed.value!r} {failed.value.details}"
    assert "hooks.example" in failed.value.message or "[not shown]" in failed.value.message
