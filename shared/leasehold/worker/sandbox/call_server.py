"""The calls of a child, answered by the attempt that the worker holds for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, Final

import pydantic_core

from leasehold.attempt.calls import AttemptCalls
from leasehold.attempt.files import RunFiles
from leasehold.bounded_calls import start_thread
from leasehold.domain.recorded_calls import Intent, MadeCall
from leasehold.domain.spend import spend_of
from leasehold.errors import LeaseholdError, TooLargeError
from leasehold.worker.failures.failures import safe_text
from leasehold.worker.failures.kept_text import cut
from leasehold.worker.sandbox.wire.frames import GarbledError
from leasehold.worker.sandbox.wire.messages import (
    MAX_CALLS_AT_ONCE,
    MAX_FILE_BYTES,
    Answer,
    Call,
    CheckBudgetCall,
    CheckLeaseCall,
    CheckpointCall,
    ExistsCall,
    FindingsCall,
    FindResultCall,
    ForgetIntentCall,
    FreeLimitCall,
    GetCall,
    KeptCheckpointCall,
    ListCall,
    Message,
    OutputCall,
    PutCall,
    RecordResultCall,
    Refusal,
    RejectCall,
    SignalCall,
    StatusCall,
    TakeLimitCall,
)

_MAX_WORDS_CHARS: Final = 2000

#: With more bytes of files and results than this at hand, the next call waits in the socket.
_MAX_BYTES_AT_HAND: Final = 64 * 1024 * 1024

#: A message, and its body.
Reply = tuple[Message, bytes]


class CallServer:
    """Answers calls, each in its own thread: a store that hangs keeps no clock from running.

    A call that no thread can be had for waits for the next look.

    Args:
        calls: what answers.
        wake: called from any thread when there is an answer.
    """

    def __init__(self, calls: AttemptCalls, wake: Callable[[], object]) -> None:
        self._calls = calls
        self._wake = wake
        self._waiting: deque[tuple[Call, bytes]] = deque()
        self._under_way = 0
        self._at_hand = 0
        self._replies: SimpleQueue[tuple[Reply, int]] = SimpleQueue()

    @property
    def has_waiting(self) -> bool:
        """Whether a call waits for a thread."""
        return bool(self._waiting)

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way that was not answered."""
        return self._under_way > 0

    @property
    def is_full(self) -> bool:
        """Whether no further call is to be taken before one is answered."""
        return self._at_hand > _MAX_BYTES_AT_HAND

    def take(self, call: Call, body: bytes) -> None:
        """Take a call.

        Raises:
            GarbledError: the child has more calls under way than its link would make.
        """
        self._under_way += 1
        if self._under_way > MAX_CALLS_AT_ONCE:
            raise GarbledError(f"it made more than {MAX_CALLS_AT_ONCE} calls at once")
        self._at_hand += len(body)
        self._waiting.append((call, body))
        self._begin()

    def look(self) -> list[Reply]:
        """Begin what waits; return the answers that are there."""
        self._begin()
        replies = []
        while not self._replies.empty():
            reply, size = self._replies.get()
            replies.append(reply)
            self._at_hand -= size
        self._under_way -= len(replies)
        return replies

    def _begin(self) -> None:
        while self._waiting:
            call, body = self._waiting[0]
            if start_thread(partial(self._answer, call, body), "handler-call") is None:
                return
            self._waiting.popleft()

    def _answer(self, call: Call, body: bytes) -> None:
        try:
            value, text = _made(self._calls, call, body)
            reply: Reply = Answer(call=call.call, value=value), text
        except BaseException as error:  # noqa: BLE001 - it is raised where the call is made
            reply = _refusal(call.call, error), b""
        self._replies.put((reply, len(body)))
        self._wake()


def _made(calls: AttemptCalls, call: Call, body: bytes) -> tuple[Any, bytes]:
    """Make a call; return the value and the body of its answer."""
    value: Any = None
    text = b""
    match call:
        case SignalCall(name=name):
            if found := calls.find_signal(name):
                value, text = found.is_missed, found.text.encode()
        case TakeLimitCall(name=name):
            value = calls.take_limit(name)
        case FreeLimitCall(name=name, retry_after_s=wait):
            calls.free_limit(name, wait)
        case OutputCall(step_type=step_type):
            text = calls.output_of(step_type).encode()
        case StatusCall(step_type=step_type):
            value = calls.status_of(step_type)
        case FindingsCall():
            text = calls.findings().encode()
        case PutCall() | GetCall() | ExistsCall() | ListCall():
            value, text = _made_on_files(calls.files, call, body)
        case _:
            value, text = _made_on_kept(calls, call, body)
    return value, text


def _made_on_kept(calls: AttemptCalls, call: Call, body: bytes) -> tuple[Any, bytes]:
    """Make a call on what the step keeps for later attempts; return as `_made`."""
    value: Any = None
    text = b""
    match call:
        case CheckLeaseCall():
            calls.check_lease()
        case CheckBudgetCall():
            calls.check_budget()
        case KeptCheckpointCall():
            if kept := calls.kept_checkpoint():
                value, text = [kept.phase, kept.iteration_count], kept.results.encode()
        case CheckpointCall(iteration_count=count, phase=phase):
            calls.checkpoint(count, phase, body.decode())
        case RejectCall(why=why):
            calls.reject_checkpoint(safe_text(why, _MAX_WORDS_CHARS))
        case FindResultCall(key=key, type=type_, request=request, on_unknown=unknown):
            intent = None if unknown == "repeat" else Intent(unknown, call.arguments, call.keep)
            found = calls.recorded_result(key, type_, request, intent)
            value, text = found is not None, (found or "").encode()
        case ForgetIntentCall(key=key):
            calls.forget_intent(key)
        case RecordResultCall(key=key, type=type_, keep=keep, request=request) as record:
            result, spend = body.decode(), spend_of(record.tokens, record.usd)
            stored = calls.record_result(MadeCall(key, type_, result, keep, request, spend))
            value, text = stored != result, b"" if stored == result else stored.encode()
    return value, text


def _made_on_files(files: RunFiles, call: Call, body: bytes) -> tuple[Any, bytes]:
    """Make a call on the files of the run; return as `_made`."""
    value: Any = None
    text = b""
    match call:
        case PutCall(name=name):
            value = files.put(name, body)
        case GetCall(name=name):
            text = files.get(name)
            if len(text) > MAX_FILE_BYTES:  # by any attempt; the child would take it for nonsense
                raise TooLargeError(what=f"file {name}", size=len(text), limit=MAX_FILE_BYTES)
        case ExistsCall(name=name):
            value = files.exists(name)
        case ListCall():
            text = "".join(f"{name}\0" for name in files.list()).encode()
    return value, text


def _refusal(call: int, error: BaseException) -> Refusal:
    known = error if isinstance(error, LeaseholdError) else None
    return Refusal(
        call=call,
        type=type(error).__name__,
        code=None if known is None else known.code,
        message=cut(str(error) if known is None else known.message, _MAX_WORDS_CHARS),
        details={} if known is None else _plain(known.details),
    )


def _plain(details: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = pydantic_core.to_jsonable_python(details, fallback=str)
    return plain
