"""The worker's end of the conversation with a child that says whatever it wants."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from leasehold.errors import InvalidRequestError
from leasehold.worker.sandbox import call_server
from leasehold.worker.sandbox.call_server import CallServer
from leasehold.worker.sandbox.wire.frames import Channel, GarbledError, encoded
from leasehold.worker.sandbox.wire.messages import (
    MAX_CALLS_AT_ONCE,
    Answer,
    CheckBudgetCall,
    CheckLeaseCall,
    GetCall,
    ProgressNote,
    PutCall,
)
from tests.worlds.waiting import until


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    """The worker's end, and the child's."""
    near, far = socket.socketpair()
    far.setblocking(False)
    with near, far:
        yield Channel(near), far


def flood(far: socket.socket, data: bytes) -> None:
    """Write as much as the socket takes."""
    try:
        while True:
            far.send(data)
    except BlockingIOError:
        return


@pytest.mark.parametrize("byte", [b"\0", b"\xff"])
def test_what_follows_nonsense_is_not_read(
    byte: bytes, ends: tuple[Channel, socket.socket]
) -> None:
    channel, far = ends
    flood(far, byte * 2**16)

    with pytest.raises(GarbledError):
        list(channel.received())

    assert channel.is_over
    assert list(channel.received()) == []


def test_a_child_that_never_stops_talking_is_heard_until_the_clock_is_looked_at(
    ends: tuple[Channel, socket.socket],
) -> None:
    channel, far = ends
    flood(far, encoded(ProgressNote(fraction=0.5, message="")))

    assert list(channel.received(until=time.monotonic() - 1)) == []
    assert next(channel.received()).message == ProgressNote(fraction=0.5, message="")


def test_a_child_that_takes_no_answers_is_not_heard_before_it_does(
    ends: tuple[Channel, socket.socket],
) -> None:
    """Else its calls could fill the memory of its worker with answers."""
    channel, far = ends

    channel.send(Answer(call=1), bytes(2**22))
    assert channel.is_behind

    while channel.has_unsent:
        far.recv(2**20)
        channel.flush()
    assert not channel.is_behind


class _SlowFiles:
    """Files, and a store that takes its time."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def put(self, name: str, data: bytes) -> str:
        self.go_on.wait(60)
        return f"{len(data)} bytes of {name}"

    def get(self, name: str) -> bytes:
        return name.encode()


class _SlowCalls:
    def __init__(self) -> None:
        self.files = _SlowFiles()


def test_a_child_that_sends_files_faster_than_they_are_stored_has_to_wait() -> None:
    calls: Any = _SlowCalls()
    desk = CallServer(calls, wake=lambda: None)

    desk.take(PutCall(call=1, name="a"), bytes(1))
    assert not desk.is_full
    desk.take(PutCall(call=2, name="b"), bytes(64 * 1024 * 1024))
    assert desk.is_full

    calls.files.go_on.set()
    answered: list[object] = []
    until(lambda: answered.extend(desk.look()) or len(answered) == 2)
    assert not desk.is_full


def test_words_of_an_error_are_cut_to_what_a_message_carries_and_its_code_stays() -> None:
    """A header has an end; what is longer would end the process in place of the call."""

    class Failing:
        def check_lease(self) -> None:
            raise InvalidRequestError(field="x" * 2**20, value="y", allowed="z")

        def check_budget(self) -> None:
            raise ValueError("x" * 2**20)

    calls: Any = Failing()
    desk = CallServer(calls, wake=lambda: None)

    desk.take(CheckLeaseCall(call=1), b"")
    desk.take(CheckBudgetCall(call=2), b"")

    answered: list[Any] = []
    until(lambda: answered.extend(desk.look()) or len(answered) == 2)
    known, other = sorted((message for message, _ in answered), key=lambda one: one.call)
    assert (known.code, len(known.message)) == ("invalid_request", 2000)
    assert (other.code, other.type, len(other.message)) == (None, "ValueError", 2000)


def test_a_child_with_more_calls_than_its_link_makes_is_none_of_ours() -> None:
    calls: Any = _SlowCalls()
    desk = CallServer(calls, wake=lambda: None)
    for number in range(1, MAX_CALLS_AT_ONCE + 1):
        desk.take(PutCall(call=number, name="a"), b"")

    with pytest.raises(GarbledError):
        desk.take(PutCall(call=MAX_CALLS_AT_ONCE + 1, name="a"), b"")

    calls.files.go_on.set()


def test_a_call_that_no_thread_can_be_had_for_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Any = _SlowCalls()
    desk = CallServer(calls, wake=lambda: None)
    with monkeypatch.context() as patch:
        patch.setattr(call_server, "start_thread", lambda *_: None)
        desk.take(GetCall(call=1, name="a"), b"")
        assert (desk.has_waiting, desk.look()) == (True, [])

    answered: list[Any] = []
    until(lambda: answered.extend(desk.look()) or answered)
    assert answered == [(Answer(call=1), b"a")]
    assert not desk.has_waiting


def test_a_conversation_is_at_rest_once_all_of_it_was_whole(
    ends: tuple[Channel, socket.socket],
) -> None:
    """Half a frame of one attempt would be the beginning of what the next one says."""
    channel, far = ends
    frame = encoded(ProgressNote(fraction=0.5, message=""))

    far.send(frame[:-1])
    assert list(channel.received()) == []
    assert not channel.is_at_rest

    far.send(frame[-1:])
    assert len(list(channel.received())) == 1
    assert channel.is_at_rest


def test_a_long_answer_arrives_whole_and_once(ends: tuple[Channel, socket.socket]) -> None:
    channel, far = ends
    message, body = Answer(call=1), bytes(range(256)) * 2**13
    arrived = bytearray()

    channel.send(message, body)
    for _ in range(200):  # more than it takes
        with suppress(BlockingIOError):
            arrived += far.recv(2**16)
        channel.flush()
    with suppress(BlockingIOError):
        while data := far.recv(2**16):
            arrived += data

    assert arrived == encoded(message, body) + body


def test_a_file_that_is_too_large_to_cross_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever stored it: its length would be unknown or nonsense."""
    monkeypatch.setattr(call_server, "MAX_FILE_BYTES", 3)
    calls: Any = _SlowCalls()
    desk = CallServer(calls, wake=lambda: None)

    desk.take(GetCall(call=1, name="abcd"), b"")

    answered: list[Any] = []
    until(lambda: answered.extend(desk.look()) or answered)
    assert answered[0][0].code == "too_large"
