"""The first message to a new process: its task, and its worker's paths of modules and files."""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Final, Self

from leasehold.frozen import dataclass

_LENGTH: Final = struct.Struct("!I")


@dataclass(frozen=True, slots=True)
class Assignment:
    """The task of a new process.

    Args:
        handlers: the one that it is to call, or all that it is to load and then fork from.
        is_zygote: whether it forks others.
        load_s: how long a zygote may take to load its handlers, in seconds.
        path: the worker's sys.path.
        environ: what is different in the worker's environment since the process that forks was
            started; None: no longer there.
        cwd: the worker's working directory; None: it has been deleted.
    """

    handlers: list[str]
    is_zygote: bool
    load_s: float
    path: list[str]
    environ: dict[str, str | None]
    cwd: str | None

    @classmethod
    def of_this_process(
        cls,
        handlers: Sequence[str],
        baseline: Mapping[bytes, bytes],
        *,
        load_s: float | None = None,
    ) -> Self:
        """Return the assignment that makes a new process see what this one sees.

        Args:
            handlers: see the class.
            baseline: the environment in which the process that forks was started.
            load_s: that of a zygote; None: it is none.
        """
        path = [entry for entry in sys.path if isinstance(entry, str)]
        is_zygote, cwd = load_s is not None, working_directory()
        return cls(list(handlers), is_zygote, load_s or 0.0, path, _changed(baseline), cwd)

    def encode(self) -> bytes:
        """Return what `receive` reads."""
        text = json.dumps(asdict(self)).encode()
        return _LENGTH.pack(len(text)) + text

    @classmethod
    def receive(cls, call: socket.socket) -> Self | None:
        """Return the assignment that the worker sent; None: it was gone before."""
        length = _exactly(call, _LENGTH.size)
        text = _exactly(call, *_LENGTH.unpack(length)) if length else b""
        return cls(**json.loads(text)) if text else None

    def apply(self) -> None:
        """Make this process see what its worker sees."""
        if sys.path != self.path:
            sys.path[:] = self.path
        for name, value in self.environ.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if self.cwd is not None and self.cwd != working_directory():
            os.chdir(self.cwd)


def _changed(baseline: Mapping[bytes, bytes]) -> dict[str, str | None]:
    now = environment()
    if now == baseline:
        return {}
    names = {name for name in now.keys() | baseline.keys() if now.get(name) != baseline.get(name)}
    return {os.fsdecode(name): _decoded(now.get(name)) for name in names}


def _decoded(value: bytes | None) -> str | None:
    return None if value is None else os.fsdecode(value)


def environment() -> dict[bytes, bytes]:
    """Return the environment variables: what `os.environb` copies with some calls for each."""
    return dict(vars(os.environb)["_data"])


def working_directory() -> str | None:
    """Return the working directory of this process; None: it has been deleted."""
    try:
        return os.getcwd()  # noqa: PTH109 - no pathlib here
    except OSError:
        return None


def _exactly(call: socket.socket, count: int) -> bytes:
    """Return so many bytes, and none of what follows them; nothing: the other side is gone."""
    parts: list[bytes] = []
    while count > 0:
        part = call.recv(count)
        if not part:
            return b""
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
