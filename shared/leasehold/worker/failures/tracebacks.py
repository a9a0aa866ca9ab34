"""The traceback that a run keeps of an error: bounded, without local variables and secrets.

What does not fit is left out in this order: frames of libraries, then the user's own frames from
the middle. A frame that a recursion passes again and again is shown a few times, and counted.
"""

from __future__ import annotations

import functools
import linecache
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pydantic_core

from leasehold.domain.redaction import Redaction
from leasehold.domain.secret_names import hides, spans_by_name
from leasehold.domain.secret_shapes import Span, shapes
from leasehold.frozen import dataclass
from leasehold.worker.failures.error_chain import ChainPart, traceback_in

# The frames of an error, and which of them are of the user's own code.


_STDLIB: Final = f"{Path(os.__file__).parent}{os.sep}"
_ENGINE: Final = f"{Path(__file__).parents[2]}{os.sep}"
_INSTALLED: Final = ("site-packages", "dist-packages")
#: What is in between, but says nothing: an import, and how a soft limit is raised.
_MACHINERY: Final = (
    "<frozen importlib",
    f"{_STDLIB}importlib{os.sep}",
    f"{_ENGINE}worker{os.sep}sandbox{os.sep}child{os.sep}soft_limit.py",
)

_MAX_NAME_CHARS: Final = 200
#: A larger file is not a source that a person wrote.
_MAX_SOURCE_BYTES: Final = 4 * 1024 * 1024
#: So many lines before one are looked at.
_MAX_LINES_BEFORE: Final = 2000


@dataclass(frozen=True, slots=True)
class Frame:
    """One call.

    Args:
        path: the file as its module is imported: `pipelines/review.py`; not where that lies.
        line: the number of the line.
        function: the name of the function.
        is_own: whether it is the user's code, and not that of a library.
        place: the same for each pass through this line.
        module: the variables of its module, for the source.
        source: the line itself, where no file has it.
    """

    path: str
    line: int
    function: str
    is_own: bool
    place: tuple[Any, int]
    file: str
    module: dict[str, Any] | None = None
    source: str | None = None

    @property
    def origin(self) -> str:
        """The frame as `file:line (function)`."""
        return f"{self.path.rpartition('/')[2]}:{self.line} ({self.function})"


def frames_of(error: BaseException, own: str) -> list[Frame]:
    """Return the calls from the user's code to where the error was raised.

    Args:
        error: the error.
        own: the package of the handler: it is the user's, wherever it is installed.
    """
    frames = list(_frames(error, own))
    of_user = next((n for n, frame in enumerate(frames) if not _is_of(frame, _ENGINE)), 0)
    return frames[of_user:]  # who called the handler says nothing about it


def frames_of_calls(calls: Iterable[FrameType], own: str) -> list[Frame]:
    """Return the calls from the user's code on; nothing where none of them is the user's.

    Args:
        calls: as Python has them, the most recent last.
        own: the package of the handler, as of `frames_of`.
    """
    frames = []
    for call in calls:
        if not call.f_code.co_filename.startswith(_MACHINERY):
            module = call.f_globals.get("__name__")
            name = module if isinstance(module, str) else ""
            frame = _frame(call.f_code, call.f_lineno or 0, name, own)
            frames.append(_with_module(frame, call.f_globals))
    of_user = next((n for n, frame in enumerate(frames) if frame.is_own), len(frames))
    return frames[of_user:]


def source_of(frame: Frame) -> str:
    """Return the line of the frame; nothing where it cannot be read."""
    if frame.source is not None:
        return frame.source.strip()
    if not frame.file.startswith("<"):
        try:
            found = os.stat(frame.file)  # noqa: PTH116 - it may be no path at all
        except (OSError, ValueError):
            pass  # it may lie in an archive
        else:
            # one without a size is not a source, and may have no end: /proc has such
            if not stat.S_ISREG(found.st_mode) or not 0 < found.st_size <= _MAX_SOURCE_BYTES:
                return ""
            linecache.checkcache(frame.file)
    try:
        return linecache.getline(frame.file, frame.line, frame.module).strip()
    except Exception:  # noqa: BLE001 - a loader of the user's may do anything
        return ""


def lines_before(frame: Frame) -> Sequence[str]:
    """Return lines before that of a frame whose source was read; nothing where there are none."""
    if frame.source is not None:
        return ()
    try:
        lines = linecache.getlines(frame.file, frame.module)
    except Exception:  # noqa: BLE001 - a loader of the user's may do anything
        return ()
    return lines[max(0, frame.line - 1 - _MAX_LINES_BEFORE) : max(0, frame.line - 1)]


def _frames(error: BaseException, own: str) -> Iterator[Frame]:
    found = traceback_in(error)
    made = functools.cache(_frame)
    while found is not None:
        code = found.tb_frame.f_code
        if not code.co_filename.startswith(_MACHINERY):
            module = found.tb_frame.f_globals
            name = module.get("__name__")
            frame = made(code, found.tb_lineno or 0, name if isinstance(name, str) else "", own)
            yield frame if frame.module is module else _with_module(frame, module)
        found = found.tb_next
    if isinstance(error, SyntaxError) and (frame_of_source := _unparsed(error)):
        yield frame_of_source


def _frame(code: Any, line: int, module: str, own: str) -> Frame:
    file = code.co_filename
    return Frame(
        path=_path(file, module),
        line=line,
        function=code.co_name[:_MAX_NAME_CHARS],
        is_own=is_own(file, module, own),
        place=(code, line),
        file=file,
    )


def _with_module(frame: Frame, module: dict[str, Any]) -> Frame:
    return Frame(
        frame.path, frame.line, frame.function, frame.is_own, frame.place, frame.file, module
    )


def _unparsed(error: SyntaxError) -> Frame | None:
    """Return the line with the syntax error, as if it had been called."""
    file, line, source = error.filename, error.lineno, error.text
    if not isinstance(file, str) or not isinstance(line, int):
        return None
    return Frame(
        path=_path(file, ""),
        line=line,
        function="<module>",
        is_own=is_own(file, "", ""),
        place=(file, line),
        file=file,
        source=source if isinstance(source, str) else "",
    )


def _path(file: str, module: str) -> str:
    """Return the end of the path that the name of the module has, too."""
    if file.startswith("<"):
        return file[:_MAX_NAME_CHARS]
    parts = file.replace("\\", "/").split("/")
    count = 1 if module == "__main__" else module.count(".") + 1 + (parts[-1] == "__init__.py")
    return "/".join(parts[-count:])[-_MAX_NAME_CHARS:]


def is_own(file: str, module: str, own: str) -> bool:
    """Return whether code is the user's: of the handler's package, or of no library."""
    if own and module.partition(".")[0] == own:
        return True
    if file.startswith(("<", _STDLIB, _ENGINE)):
        return False
    return not any(part in _INSTALLED for part in file.replace("\\", "/").split("/"))


def _is_of(frame: Frame, folder: str) -> bool:
    return frame.file.startswith(folder)


#: Of UTF-8, and of JSON text.
MAX_TRACEBACK_BYTES: Final = 8 * 1024
#: How many errors are kept, with their causes and groups.
MAX_ERRORS: Final = 20
#: With less room than this a traceback says nothing.
_MIN_TRACEBACK_BYTES: Final = 200

#: Of the passes through one line, so many of the first and of the last are shown.
_SHOWN_PASSES: Final = 3
_MAX_SOURCE_CHARS: Final = 200
_MAX_SOURCE_SEARCHED_CHARS: Final = 2000
_INDENT: Final = "  "
_MAX_REPORT_SEARCHED_CHARS: Final = 64 * 1024
_LEFT_OUT: Final = "[lines left out]"
_ALONE: Final = "[other exceptions left out]"

#: The words of an error, cut at a number of bytes.
Words = Callable[[BaseException, int], str]


@dataclass(slots=True)
class _Stack:
    """The frames of one part, and the texts of those that fit."""

    part: ChainPart
    words: str
    frames: list[Frame]
    repeated: set[int] = field(default_factory=set)
    texts: dict[int, str] = field(default_factory=dict)


def traceback_of(
    parts: list[ChainPart], words: Words, redaction: Redaction, *, own: str, room: int
) -> str | None:
    """Return the traceback of an error and those it came from; None: there is no room for one.

    Args:
        parts: the errors, oldest first.
        words: what each of them says.
        redaction: knows the secrets of the error.
        own: the package of the handler.
        room: how many bytes it may take, as JSON text.
    """
    room = min(room, MAX_TRACEBACK_BYTES)
    if room < _MIN_TRACEBACK_BYTES:
        return None
    stacks = [_stack(part, words, own, room // (2 * len(parts))) for part in parts]
    left = room - sum(_size(line) for stack in stacks for line in _lines(stack))
    kept: list[tuple[_Stack, int]] = []
    for stack, number in _by_rank(stacks):
        text = frame_text(stack.frames[number], redaction, _INDENT * (stack.part.depth + 1))
        left -= sum(map(_size, text.split("\n")))
        if left < 0:
            break
        stack.texts[number] = text
        kept.append((stack, number))
    text = _joined(stacks)
    while _size(text) > room and kept:  # words on what is left out take room, too
        stack, number = kept.pop()
        del stack.texts[number]
        text = _joined(stacks)
    if _size(text) <= room:
        return text
    alone = [ChainPart(part.error, words=_ALONE) for part in parts if _is_newest(part)]
    if len(alone) == len(parts):
        return None
    return traceback_of(alone, words, redaction, own=own, room=room)


def origin_of(parts: list[ChainPart], own: str) -> str | None:
    """Return the deepest frame in the user's code as `file:line (function)`.

    An error that never was in the user's code has the origin of what it came from; one of no
    user's code at all, where it was raised.
    """
    deepest = None
    for part in sorted(parts, key=lambda part: part.age):
        frames = [] if part.error is None else frames_of(part.error, own)
        deepest = deepest or (frames[-1] if frames else None)
        if found := next((frame for frame in reversed(frames) if frame.is_own), None):
            return found.origin
    return deepest.origin if deepest else None


def _is_newest(part: ChainPart) -> bool:
    return part.error is not None and part.age == 0


def reported_traceback(text: str, redaction: Redaction, room: int) -> str | None:
    """Return the traceback of another language: its first and its last lines, as many as fit."""
    if len(text) > _MAX_REPORT_SEARCHED_CHARS:
        half = _MAX_REPORT_SEARCHED_CHARS // 2
        text = f"{text[:half]}\n{_LEFT_OUT}\n{text[-half:]}"
    text = _stored(text.rstrip())
    lines = redaction.without(text, shapes(text)).splitlines()
    left = min(room, MAX_TRACEBACK_BYTES) - _size(_LEFT_OUT)
    head: list[str] = []
    tail: list[str] = []
    while len(head) + len(tail) < len(lines):
        from_end = len(tail) <= 2 * len(head)  # what was raised stands at one end or the other
        line = redaction.text(lines[-len(tail) - 1] if from_end else lines[len(head)])
        left -= _size(line)
        if left < 0:
            head.append(_LEFT_OUT)
            break
        (tail if from_end else head).append(line)
    kept = [*head, *reversed(tail)]
    return "\n".join(kept) or None


def _stack(part: ChainPart, words: Words, own: str, room: int) -> _Stack:
    if part.error is None:
        return _Stack(part, "", [])
    stack = _Stack(part, words(part.error, room), frames_of(part.error, own))
    passes = Counter(frame.place for frame in stack.frames)
    seen: Counter[object] = Counter()
    for number, frame in enumerate(stack.frames):
        seen[frame.place] += 1
        if _SHOWN_PASSES < seen[frame.place] <= passes[frame.place] - _SHOWN_PASSES:
            stack.repeated.add(number)
    return stack


def _by_rank(stacks: list[_Stack]) -> Iterator[tuple[_Stack, int]]:
    """Yield the frames from the one that says most to the one that says least.

    The user's own come first; of those the last, the first, the last but one, and so on.
    """
    ranked = []
    for stack in stacks:
        left = [n for n in range(len(stack.frames)) if n not in stack.repeated]
        for is_own in (True, False):
            numbers = [n for n in left if stack.frames[n].is_own is is_own]
            for place, number in enumerate(numbers):
                rank = min(2 * (len(numbers) - 1 - place), 2 * place + 1)
                ranked.append((not is_own, rank, stack.part.age, number, stack))
    for *_, number, stack in sorted(ranked, key=lambda entry: entry[:4]):
        yield stack, number


def frame_text(frame: Frame, redaction: Redaction, indent: str) -> str:
    """Return where a call is, and the line itself where it is the user's, without its secrets."""
    where = redaction.text(f'File "{frame.path}", line {frame.line}, in {frame.function}')
    text = f"{indent}{where}"
    if not frame.is_own:
        return _stored(text)
    line = source_of(frame)[:_MAX_SOURCE_SEARCHED_CHARS]
    source = redacted_source(line, redaction, lines_before(frame)) if line else ""
    if len(source) > _MAX_SOURCE_CHARS:
        source = f"{source[: _MAX_SOURCE_CHARS - 1]}…"
    return _stored(f"{text}\n{indent}{_INDENT}{source}" if source else text)


def _joined(stacks: list[_Stack]) -> str:
    return "\n".join(line for stack in stacks for line in _lines(stack))


def _lines(stack: _Stack) -> Iterator[str]:
    indent = _INDENT * stack.part.depth
    if stack.part.words:
        if stack.part.error is not None:
            yield ""
        yield indent + stack.part.words
        if stack.part.error is not None:
            yield ""
    if stack.texts:
        yield f"{indent}Traceback (most recent call last):"
    yield from _frame_lines(stack, indent + _INDENT)
    yield from (indent + line for line in stack.words.split("\n") if stack.words)


def _frame_lines(stack: _Stack, indent: str) -> Iterator[str]:
    """Yield the frames that are shown; where some of the user's own are not, how many."""
    left_out = 0
    libraries = 0
    for number, frame in enumerate(stack.frames):
        if number in stack.texts:
            if left_out:
                yield f"{indent}[{left_out} frames left out]"
            left_out = 0
            yield from stack.texts[number].split("\n")
        elif frame.is_own or number in stack.repeated:
            left_out += 1
        else:
            libraries += 1
    if left_out:
        yield f"{indent}[{left_out} frames left out]"
    if libraries:
        yield f"{indent}[{libraries} frames of libraries left out]"


def _size(text: str) -> int:
    """Return how many bytes a line takes as JSON text; the quotes stand for its end."""
    return len(pydantic_core.to_json(text))


def _stored(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


# Secrets in a line of source code: what stands there as text is cut, and the code stays.


_LITERAL: Final = re.compile(
    r"""(?P<prefix>[rbfuRBFU]{0,2})(?:"(?:[^"\\]|\\.)*+(?:"|\Z)|'(?:[^'\\]|\\.)*+(?:'|\Z))"""
    r"|(?<![\w.])\d[\d_]{3,}+(?![\w.])"
)
#: The name of what follows: a variable and its annotation, an argument, a key, or a call.
_NAMED: Final = re.compile(
    r"""(?P<name>[\w.-]+)"""
    r"""(?:["']\s{0,3},|["']?\]?\s{0,3}(?::[\w.\[\], |]{1,60})?(?::=|[=!]=|[=:(]))"""
    r"""\s{0,3}[\[({]?\s{0,3}\Z"""
)
_BEFORE_CHARS: Final = 120  # characters before a literal

#: What begins and ends a text of several lines.
_MARKS: Final = ('"""', "'''")


def redacted_source(line: str, redaction: Redaction, before: Sequence[str] = ()) -> str:
    """Return the line without the secrets that stand in it as texts or numbers.

    Args:
        line: the line.
        redaction: knows the secrets of the error.
        before: the lines before it: a name may stand there, or the text begin that it is part of.
    """
    spans = _spans_of_text(line) if _is_within_text(before) else _spans(line, before)
    return redaction.without(line, [*shapes(line), *spans])


def _is_within_text(before: Sequence[str]) -> bool:
    """Return whether a text of several lines has begun, and not ended."""
    return any(sum(line.count(mark) for line in before) % 2 for mark in _MARKS)


def _spans_of_text(line: str) -> Iterator[Span]:
    """Yield the secrets of a line that is text, but for the expressions within it."""
    return (span for span in spans_by_name(line) if line[span[0]] != "{")


def _spans(line: str, before: Sequence[str]) -> Iterator[Span]:
    named_before = before[-1].rstrip()[-_BEFORE_CHARS:] + " " if before else ""
    text, at = named_before + line, len(named_before)
    for found in _LITERAL.finditer(text, at):
        start_of_literal = found.start() - at
        named = _NAMED.search(text, max(0, found.start() - _BEFORE_CHARS), found.start())
        if named and hides(named["name"], found[0]):
            yield start_of_literal, found.end() - at
            continue
        for start, end in spans_by_name(found[0]):
            is_expression = "f" in (found["prefix"] or "").lower() and found[0][start] == "{"
            if not is_expression:
                yield start_of_literal + start, start_of_literal + end
