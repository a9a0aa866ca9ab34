"""Frames: whole messages from whatever pieces arrive, and nothing that is not one."""

from __future__ import annotations

import pytest

from leasehold.domain.status import Termination
from leasehold.worker.sandbox.wire.frames import (
    MAX_HEADER_BYTES,
    FrameReader,
    GarbledError,
    encoded,
)
from leasehold.worker.sandbox.wire.messages import (
    DeferredNote,
    FailedNote,
    ListCall,
    Message,
    ProgressNote,
    PutCall,
    Stop,
    from_child,
    from_worker,
)


def frame(message: Message, body: bytes = b"") -> bytes:
    return encoded(message, body) + body


def raw(header: bytes, body: int = 0) -> bytes:
    return len(header).to_bytes(4) + body.to_bytes(4) + header


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_frames_are_whole_however_they_arrive(piece: int) -> None:
    put, listing = PutCall(call=1, name="a"), ListCall(call=2)
    data = frame(put, b"\0" * 20) + frame(listing)
    reader = FrameReader(from_child)

    found = [one for at in range(0, len(data), piece) for one in reader.feed(data[at : at + piece])]

    assert found == [(put, b"\0" * 20), (listing, b"")]


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        raw(b"", 0),
        (MAX_HEADER_BYTES + 1).to_bytes(4) + bytes(4),
        raw(b"no json"),
        raw(b"[]"),
        raw(b'{"kind": "nothing"}'),
        raw(b'{"kind": "list"}x'),
        raw(b'{"kind": "list", "call": 1, "more": 1}'),
        raw(b'{"kind": "list", "call": "1"}'),
        raw(b'{"kind": "list", "call": 0}'),
        raw(b'{"kind": "progress", "fraction": NaN, "message": ""}'),
        raw(b'{"kind": "progress", "fraction": 2, "message": ""}'),
        raw(b'{"kind": "deferred", "reason": "cancelled", "detail": ""}'),
        raw(b'{"kind": "finished", "status": "FINE"}'),
        raw(b'{"kind": "list", "call": 1}', body=1),
        raw(b'{"kind": "put", "call": 1, "name": "a"}', body=2**32 - 1),
        frame(Stop(reason=Termination.CANCELLED)),
    ],
)
def test_what_a_child_cannot_say_is_refused(data: bytes) -> None:
    with pytest.raises(GarbledError):
        list(FrameReader(from_child).feed(data))


def test_each_message_crosses_as_it_is() -> None:
    for message in (
        ProgressNote(fraction=0.5, message="ü"),
        FailedNote(permanent=True, has_raised=False),
        DeferredNote.model_validate({"reason": Termination.STORE_UNAVAILABLE, "detail": "away"}),
    ):
        assert [one.message for one in FrameReader(from_child).feed(frame(message))] == [message]
    stop = Stop(reason=Termination.INSTANCE_SHUTDOWN)
    assert [one.message for one in FrameReader(from_worker).feed(frame(stop))] == [stop]
