"""Commands that are written down instead of being done, each as a program on its own PATH."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PROGRAM = """\
#!{python} -ISE
import json, os, sys
folder = {folder!r}
name = os.path.basename(sys.argv[0])
call = {{"argv": [name, *sys.argv[1:]], "cwd": os.getcwd(), "env": dict(os.environ)}}
with open(os.path.join(folder, "calls"), "a") as calls:
    calls.write(json.dumps(call) + "\\n")
words = " ".join(call["argv"])
with open(os.path.join(folder, "answers")) as answers:
    for begin, said, code in reversed(json.load(answers)):
        if words.startswith(begin):
            sys.stdout.write(said)
            sys.exit(code)
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
            program.write_text(_PROGRAM.format(python=sys.executable, folder=str(folder)))
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
        found = [_call(json.loads(line)) for line in self._calls.read_text().splitlines()]
        return [call for call in found if call.argv[: len(begin)] == begin]

    def forget(self) -> None:
        """Forget the calls; the orders stay."""
        self._calls.write_text("")

    def _write_orders(self) -> None:
        self._answers.write_text(json.dumps(self._orders))


def _call(read: dict[str, Any]) -> RecordedCall:
    argv: Sequence[str] = read["argv"]
    return RecordedCall(tuple(argv), read["cwd"], read["env"])
