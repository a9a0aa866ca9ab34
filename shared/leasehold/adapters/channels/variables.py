"""Variables of channels: read at each use, so that a secret can be changed while a process runs."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import Final

from leasehold.errors import ChannelUnavailableError
from leasehold.registry.channels import FILE_SUFFIX

#: No address, secret or password is longer, in bytes.
_MAX_SECRET_BYTES: Final = 16_384


class Variables:
    """Reads variables, or the files that they name; no error has a value in it.

    Args:
        environ: the environment, as it is at each read.
        channel: whose variables they are.
    """

    def __init__(self, environ: Mapping[str, str], channel: str) -> None:
        self._environ = environ
        self._channel = channel

    def read(self, name: str) -> str:
        """Return the value of a variable, without what is blank around it.

        Raises:
            ChannelUnavailableError: it is not set, or the file cannot be read.
        """
        text = self._environ.get(name, "").strip()
        if text:
            return text
        file_name = name + FILE_SUFFIX
        path = self._environ.get(file_name, "")
        if not path:
            either = f"set it, or {file_name} to the path of a file that holds it"
            raise self._unusable(f"{name} is not set; {either}")
        text = self._read_file(file_name, path).strip()
        if not text:
            raise self._unusable(f"the file that {file_name} names is empty")
        return text

    def _read_file(self, name: str, path: str) -> str:
        """Return what a file holds; its path is not shown, as it may be the secret by mistake."""
        what = f"the file that {name} names"
        try:
            with open(path, "rb", opener=_at_once) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise self._unusable(f"{what} is no plain file")
                content = file.read(_MAX_SECRET_BYTES + 1)
            if len(content) > _MAX_SECRET_BYTES:
                raise self._unusable(f"{what} is longer than {_MAX_SECRET_BYTES} bytes")
            return content.decode()
        except OSError as error:
            raise self._unusable(f"{what} cannot be read: {error.strerror}") from None
        except ValueError:  # nor is a path that no system takes
            raise self._unusable(f"{what} is not UTF-8 text") from None

    def _unusable(self, problem: str) -> ChannelUnavailableError:
        return ChannelUnavailableError(channel=self._channel, problem=problem)


def _at_once(path: str, flags: int) -> int:
    """Open a file; who opens a pipe otherwise waits for its other end."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
