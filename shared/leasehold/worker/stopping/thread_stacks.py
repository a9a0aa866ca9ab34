"""What a thread of this process does now: its calls in the user's code, without their variables."""

from __future__ import annotations

import asyncio
import sys
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from leasehold.domain.lifecycle.termination import MAX_STACKS_BYTES
from leasehold.domain.notes import ThreadStack
from leasehold.worker.failures.kept_text import cut

if TYPE_CHECKING:  # what finds secrets is imported when there is a stack to be shown
    from leasehold.worker.failures.tracebacks import Frame

_HEADING: Final = "The thread of the handler (most recent call last):"
_INDENT: Final = "  "

#: The first calls say how it got there, the last ones where it is.
_FIRST_FRAMES: Final = 10
_LAST_FRAMES: Final = 30
_MAX_ORIGIN_CHARS: Final = 400
#: A thread that recurses has many calls; the most recent say where it is.
_MAX_CALLS: Final = 2000


def stack_of(thread: int, handler: str) -> ThreadStack:
    """Return the calls of a thread from the user's code on; nothing where they cannot be known.

    Args:
        thread: its identifier.
        handler: the path of the handler, `module:function`: its package is the user's own code.
    """
    own = handler.partition(":")[0].partition(".")[0]
    try:
        from leasehold.worker.failures.tracebacks import frames_of_calls  # noqa: PLC0415 - see above

        frames = frames_of_calls(_calls_of(thread), own)
        at = next((frame.origin for frame in reversed(frames) if frame.is_own), None)
        return (
            ThreadStack()
            if at is None
            else ThreadStack(_text_of(frames), cut(at, _MAX_ORIGIN_CHARS))
        )
    except Exception:  # noqa: BLE001 - that it cannot be shown must not keep it from being ended
        return ThreadStack()


def _calls_of(thread: int) -> list[FrameType]:
    """Return the calls of a thread, and of the coroutine that it runs, the most recent last."""
    calls: list[FrameType] = []
    found = sys._current_frames().get(thread)  # noqa: SLF001 - there is no other way
    while found is not None and len(calls) < _MAX_CALLS:
        calls.append(found)
        found = found.f_back
    runner = next((call for call in calls if call.f_code is asyncio.Runner.run.__code__), None)
    task = None if runner is None else runner.f_locals.get("task")
    awaits = _awaits_of(task.get_coro()) if isinstance(task, asyncio.Task) else []
    return [*reversed(calls), *(call for call in awaits if call not in calls)]


def _awaits_of(coroutine: Any) -> list[FrameType]:
    """Return where a coroutine waits: its own call, that of what it awaits, and so on."""
    calls: list[FrameType] = []
    while coroutine is not None and len(calls) < _MAX_CALLS:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is not None:
            calls.append(frame)
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return calls


def _text_of(frames: list[Frame]) -> str:
    from leasehold.domain.redaction import Redaction  # noqa: PLC0415 - see above
    from leasehold.worker.failures.tracebacks import frame_text  # noqa: PLC0415

    redaction = Redaction()
    left_out = max(0, len(frames) - _FIRST_FRAMES - _LAST_FRAMES)
    shown = [frame_text(frame, redaction, _INDENT) for frame in frames[:_FIRST_FRAMES]]
    if left_out:
        shown.append(f"{_INDENT}[{left_out} frames left out]")
    shown += [frame_text(frame, redaction, _INDENT) for frame in frames[_FIRST_FRAMES + left_out :]]
    while sum(len(text.encode()) + 1 for text in [_HEADING, *shown]) > MAX_STACKS_BYTES:
        del shown[0]  # the last ones say most
    return "\n".join([_HEADING, *shown])
