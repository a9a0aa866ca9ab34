"""The frames of an error, and which of them are of the user's own code."""

from __future__ import annotations

import functools
import linecache
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

from leasehold.worker.failures.error_chain import traceback_in

_STDLIB: Final = f"{Path(os.__file__).parent}{os.sep}"
_ENGINE: Final = f"{Path(__file__).parents[2]}{os.sep}"
_INSTALLED: Final = ("site-packages", "dist-packages")
#: What is in between, but says nothing: an import, and how a soft limit is raised.
_MACHINERY: Final = (
    "<frozen importlib",
    f"{_STDLIB}importlib{os.sep}",
    f"{_ENGINE}worker{os.sep}sandbox{os.sep}child{os.sep}soft_limit.py",
)

_MAX_NAME: Final = 200
#: A larger file is no source that someone wrote.
_MAX_SOURCE_BYTES: Final = 4 * 1024 * 1024
#: So many lines before one are looked at.
_MAX_BEFORE: Final = 2000


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
            # one without a size is none that someone wrote, and may have no end: /proc has such
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
    return lines[max(0, frame.line - 1 - _MAX_BEFORE) : max(0, frame.line - 1)]


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
        function=code.co_name[:_MAX_NAME],
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
        return file[:_MAX_NAME]
    parts = file.replace("\\", "/").split("/")
    count = 1 if module == "__main__" else module.count(".") + 1 + (parts[-1] == "__init__.py")
    return "/".join(parts[-count:])[-_MAX_NAME:]


def is_own(file: str, module: str, own: str) -> bool:
    """Return whether code is the user's: of the handler's package, or of no library."""
    if own and module.partition(".")[0] == own:
        return True
    if file.startswith(("<", _STDLIB, _ENGINE)):
        return False
    return not any(part in _INSTALLED for part in file.replace("\\", "/").split("/"))


def _is_of(frame: Frame, folder: str) -> bool:
    return frame.file.startswith(folder)
