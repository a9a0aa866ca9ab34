"""The worker's end of the conversation with a child that says whatever it wants."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from leasehold.worker.sandbox import call_server
from leasehold.worker.sandbox.call_server import CallServer
from leasehold.worker.sandbox.wire.frames import Channel, GarbledError, encoded
from leasehold.worker.sandbox.wire.messages import Answer, GetCall, ProgressNote, PutCall
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


def test_a_file_that_is_too_large_to_cross_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever stored it: its length would be unknown or nonsense."""
    monkeypatch.setattr(call_server, "MAX_FILE", 3)
    calls: Any = _SlowCalls()
    desk = CallServer(calls, wake=lambda: None)

    desk.take(GetCall(call=1, name="abcd"), b"")

    answered: list[Any] = []
    until(lambda: answered.extend(desk.look()) or answered)
    assert answered[0][0].code == "too_large"
