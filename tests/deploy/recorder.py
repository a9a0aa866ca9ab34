"""Commands that are written down instead of being done, each as a program on its own PATH."""

from __future__ import annotations

import shlex
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: For a shell, as a build makes fifty calls: a Python of each would take longer than the rest.
_PROGRAM: Final = """\
#!/bin/sh
words="${{0##*/}} $*"
{{
  printf '%s\\0' "$(($# + 1))" "${{0##*/}}" "$@" "$(pwd -P)"
  env -0
  printf '\\0'
}} >> {folder}/calls
. {folder}/answers
"""


@dataclass(frozen=True)
class RecordedCall:
    """A call that came: its words, the folder that it was made in, and its environment."""

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]

    def flag(self, name: str) -> str | None:
        """Return the value of a flag; empty: it has none; None: it is not there."""
        for word in self.argv:
            found, _, value = word.partition("=")
            if found == name:
                return value
        return None


class Recorder:
    """Records the calls of some commands.

    Args:
        folder: of its own; `bin` in it comes first on PATH.
        names: the commands.
    """

    def __init__(self, folder: Path, *names: str) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        self._calls, self._answers = folder / "calls", folder / "answers"
        self._calls.write_text("")
        self._orders: list[tuple[str, str, int]] = []
        self._write_orders()
        for name in names:
            program = self.bin / name
            program.write_text(_PROGRAM.format(folder=shlex.quote(str(folder))))
            program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def answer(self, begin: str, said: str) -> None:
        """Print a text, to calls that begin with these words."""
        self._orders.append((begin, said, 0))
        self._write_orders()

    def fail(self, begin: str, code: int = 1) -> None:
        """Exit with a code, for calls that begin with these words."""
        self._orders.append((begin, "", code))
        self._write_orders()

    def calls(self, *begin: str) -> list[RecordedCall]:
        """Return the calls that begin with these words, in order."""
        written = iter(self._calls.read_text().split("\0")[:-1])
        found = [_call(int(count), written) for count in written]
        return [call for call in found if call.argv[: len(begin)] == begin]

    def forget(self) -> None:
        """Forget the calls; the orders stay."""
        self._calls.write_text("")

    def _write_orders(self) -> None:
        """Write the cases of the shell: the first that fits is taken, and the last order counts."""
        cases = [
            f"{shlex.quote(begin)}*) printf %s {shlex.quote(said)}; exit {code} ;;\n"
            for begin, said, code in reversed(self._orders)
        ]
        self._answers.write_text(f'case "$words" in\n{"".join(cases)}esac\n')


def _call(count: int, written: Iterator[str]) -> RecordedCall:
    """Read a call: its words, its folder and its variables, up to an empty one."""
    argv = tuple(next(written) for _ in range(count))
    return RecordedCall(
        argv, next(written), dict(pair.split("=", 1) for pair in iter(lambda: next(written), ""))
    )
