"""What a handler was doing: the stacks that its process wrote, as a person reads them."""

from __future__ import annotations

import os
import re
import select
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from leasehold.domain.redaction import Redaction
from leasehold.worker.failures.tracebacks import Frame, frame_text, is_own

#: Of the text that a run keeps, in bytes.
MAX_LIVE_STACKS_BYTES: Final = 4096

_READ_BYTES: Final = 64 * 1024
_MAX_READS: Final = 4  # more than the pipe holds
_MAX_FRAMES: Final = 30
_LEFT_OUT: Final = "  [more left out]"

_HEADER: Final = re.compile(r"(Current thread|Thread|Task)\b.*\(most recent call first\):")
_FRAME: Final = re.compile(r' {2}File "(.+)", line (\d+) in (.+)')

_ENGINE: Final = f"{Path(__file__).parents[2]}{os.sep}"
_STDLIB: Final = f"{Path(os.__file__).parent}{os.sep}"
_IMPORTING: Final = ("<frozen importlib", f"{_STDLIB}importlib{os.sep}")
_THREADING: Final = f"{_STDLIB}threading.py"

#: What calls the handler; and the file and the function of the thread in which that happens.
_CHILD: Final = f"{_ENGINE}worker{os.sep}sandbox{os.sep}child{os.sep}"
_CALLER: Final = f"{_CHILD}soft_limit.py"
_MAIN: Final = f"{_CHILD}handler_process.py", "run"


@dataclass(slots=True)
class _Stack:
    """The calls of one thread or task, innermost first."""

    is_task: bool
    frames: list[Frame] = field(default_factory=list)

    @property
    def is_main(self) -> bool:
        """Whether it is the thread that runs the handler."""
        return any((frame.file, frame.function) == _MAIN for frame in self.frames)

    @property
    def heading(self) -> str:
        """The line above it."""
        own = "The thread of the handler" if self.is_main else "Another thread of the handler"
        return f"{'A task of the handler' if self.is_task else own} (most recent call last):"

    @property
    def of_handler(self) -> list[Frame]:
        """The calls that the handler made, or that were made in its own thread."""
        calls = [
            frame.file == _CALLER or (frame.file, frame.function) == _MAIN for frame in self.frames
        ]
        kept = self.frames[: calls.index(True)] if any(calls) else list(self.frames)
        while kept and kept[-1].file.startswith(("<", _ENGINE, _THREADING)):
            del kept[-1]
        return [frame for frame in kept if not frame.file.startswith(_IMPORTING)]


class Stacks:
    """Collects what the process of an attempt writes of its stacks.

    Args:
        pipe: the descriptor to read from; it does not block.
        own: the package of the handler: it is the user's, wherever it is installed.

    Attributes:
        is_over: whether nothing more will come.
    """

    def __init__(self, pipe: int, own: str = "") -> None:
        self.is_over = False
        self._pipe = pipe
        self._own = own
        self._text = bytearray()

    @property
    def has_any(self) -> bool:
        """Whether there are any."""
        return b"(most recent call first)" in self._text

    def apart(self) -> Stacks:
        """Return what collects others from the same process, and leaves these as they are."""
        return Stacks(self._pipe, self._own)

    def clear(self) -> None:
        """Forget what there is, also what was not read so far: other ones are wanted."""
        for _ in range(_MAX_READS):
            if not (self.wait(0.0) and self.read()):
                break
        self._text.clear()

    def wait(self, seconds: float) -> bool:
        """Wait until there is something to read; return whether there is."""
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def read(self) -> bool:
        """Take what was written; return whether more may come."""
        try:
            data = os.read(self._pipe, _READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        self._text += data[: max(0, 2 * _READ_BYTES - len(self._text))]
        self.is_over = not data
        return not self.is_over

    def text(self) -> str:
        """Return the handler's part of the stacks, its own thread first, in at most 4 KiB."""
        redaction = Redaction()
        texts: list[str] = []
        left = MAX_LIVE_STACKS_BYTES
        for heading, frames in self._ordered():
            text = _text_of(heading, frames, redaction, left)
            if not text:
                break
            left -= len(text.encode()) + 1
            texts.append(text)
        return "\n".join(texts)

    def origin(self) -> str | None:
        """Return where the handler was, as `file:line (function)`."""
        for _, frames in self._ordered():
            own = [frame for frame in frames if frame.is_own] or frames
            return own[0].origin
        return None

    def _ordered(self) -> list[tuple[str, list[Frame]]]:
        """Return the handler's part of each thread and task that has one, its own first.

        Where several do the same, which a task and the thread that runs it do, one says it.
        """
        stacks = list(_parsed(self._text.decode("utf-8", "replace"), self._own))
        main = [stack for stack in stacks if stack.is_main][:1]
        tasks = [stack for stack in stacks if stack.is_task]
        others = [stack for stack in stacks if not stack.is_task and not stack.is_main]
        if tasks and not any(frame.is_own for stack in main for frame in stack.of_handler):
            main = []  # it waits in its loop: what for, the tasks say
        told: list[tuple[str, list[Frame]]] = []
        for stack in [*main, *tasks, *others]:
            frames = stack.of_handler
            if frames and all(frames != earlier for _, earlier in told):
                told.append((stack.heading, frames))
        return told


def _parsed(text: str, own: str) -> Iterator[_Stack]:
    stack: _Stack | None = None
    for line in text.splitlines():
        if header := _HEADER.match(line):
            if stack is not None:
                yield stack
            stack = _Stack(is_task=header[1] == "Task")
        elif stack is not None and (found := _FRAME.fullmatch(line)):
            stack.frames.append(_frame(found[1], int(found[2][:9]), found[3], own))
    if stack is not None:
        yield stack


def _frame(file: str, line: int, function: str, own: str) -> Frame:
    path = _as_imported(file)
    return Frame(
        path=path,
        line=line,
        function=function[:200],
        is_own=is_own(file, path.removesuffix(".py").replace(os.sep, "."), own),
        place=(file, line),
        file=file,
    )


def _as_imported(file: str) -> str:
    """Return the file below the folder that its module is imported from."""
    roots = sorted((f"{root.rstrip(os.sep)}{os.sep}" for root in sys.path if root), key=len)
    found = next((root for root in reversed(roots) if file.startswith(root)), "")
    return file[len(found) :][-200:]


def _text_of(heading: str, frames: list[Frame], redaction: Redaction, left: int) -> str:
    """Return the calls, the most recent last; of many, these. Empty: there is no room for one."""
    left -= len(f"{heading}\n{_LEFT_OUT}\n")
    kept: list[str] = []
    for frame in frames[:_MAX_FRAMES]:
        text = frame_text(frame, redaction, "  ")
        left -= len(text.encode()) + 1
        if left < 0:
            break
        kept.append(text)
    if not kept:
        return ""
    if len(kept) < len(frames):
        kept.append(_LEFT_OUT)
    return "\n".join([heading, *reversed(kept)])
