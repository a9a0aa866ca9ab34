"""A page of the docs, typed into a terminal from top to bottom, and what the terminal then shows.

A `console` block has commands, each behind `$ `, and below each what it prints. A `python` block
whose first line is `# NAME` is a file, and a `diff` block a change of one. `…` stands for any
text, and a line `…` for any number of lines; ids, times and widths do not matter.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.worlds.ports import own_port
from tests.worlds.waiting import until

_BLOCKS = re.compile(r"^```(console|python|diff)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CONTROL = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")
_WHATEVER = (
    (re.compile(r"\br-[0-9a-f]{16}\b"), "RUN"),
    (re.compile(r"\b(?:\d{4}-\d\d-\d\dT)?\d\d:\d\d:\d\d(?:\.\d+)?Z"), "TIME"),
    (re.compile(r"\+?\b\d+(?:\.\d+)? ?(?:ms|s|min)\b(?: ago)?"), "AGO"),
    (re.compile(r"[ \t]+"), " "),
)
_WIDTH = 120
_END = "typed-page-end"


@dataclass(frozen=True)
class Typed:
    """A command of a page, and the lines that the page shows below it."""

    command: str
    shown: list[str]


@dataclass(frozen=True)
class Saved:
    """A file of a page: its whole text, or how it is changed."""

    name: str
    text: str = ""
    change: tuple[str, str] = ("", "")

    def save(self, folder: Path) -> None:
        """Write the file, or change the one place of it that the page names."""
        file = folder / self.name
        old, new = self.change
        if not old:
            file.write_text(self.text)
            return
        text = file.read_text()
        assert text.count(old) == 1, f"{self.name} has {text.count(old)} places like {old!r}"
        file.write_text(text.replace(old, new))


def steps_of(page: str) -> Iterator[Typed | Saved]:
    """Yield the actions of a reader of a page."""
    for kind, text in _BLOCKS.findall(page):
        if kind == "console":
            for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                command, *shown = part.splitlines()
                yield Typed(command, shown)
            continue
        name, _, rest = text.partition("\n")
        assert name.startswith("# "), f"a {kind} block that begins with {name!r} has no file"
        if kind == "python":
            yield Saved(name[2:], text)
        else:
            yield Saved(name[2:], change=(_side(rest, "-"), _side(rest, "+")))


def _side(diff: str, sign: str) -> str:
    return "".join(f"{line[1:]}\n" for line in diff.splitlines() if line[:1] in {"", " ", sign})


def fits(shown: list[str], screen: list[str]) -> bool:
    """Return whether a terminal shows what a page says it shows."""
    lines = ["(?:.*\n)*" if line == "…" else f"{_any(_plain(line))}\n" for line in shown]
    return re.fullmatch("".join(lines), "".join(f"{_plain(line)}\n" for line in screen)) is not None


def _any(line: str) -> str:
    return ".*".join(map(re.escape, line.split("…")))


def _plain(line: str) -> str:
    for pattern, word in _WHATEVER:
        line = pattern.sub(word, line)
    return line.rstrip()


def screen_of(sent: str) -> list[str]:
    """Return the lines that a terminal shows which was sent that: of a drawing, its last state."""
    lines, row, column = [""], 0, 0
    for numbers, letter, move, text in _CONTROL.findall(sent):
        if text:
            kept = lines[row].ljust(column)
            lines[row] = kept[:column] + text + kept[column + len(text) :]
            column += len(text)
        elif move == "\r":
            column = 0
        elif move:
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif letter == "A":
            row = max(0, row - int(numbers or 1))
        elif letter == "K":
            lines[row] = "" if numbers == "2" else lines[row][:column]
    while lines and not lines[-1].strip():
        lines.pop()
    return [line.rstrip() for line in lines]


def typed(page: str, terminal: Terminal, folder: Path) -> Iterator[str]:
    """Follow a page; yield each command that printed something else, with what it printed.

    Args:
        page: its text; 8080 in it is a port that is free now.
        terminal: where its commands are typed.
        folder: where its files are saved.
    """
    for step in steps_of(page.replace("8080", str(own_port()))):
        if isinstance(step, Saved):
            step.save(folder)
        elif not fits(step.shown, screen := terminal.type(step.command)):
            yield "\n".join([f"$ {step.command}", *screen])


@dataclass
class Terminal:
    """A shell in a folder, whose commands find a terminal; `close` ends it and its servers."""

    folder: Path
    environ: Mapping[str, str]
    _sent: bytearray = field(default_factory=bytearray)
    _count: int = 0

    def __post_init__(self) -> None:
        self._terminal, end = pty.openpty()
        self._shell = subprocess.Popen(
            ["/bin/sh"],
            cwd=self.folder,
            env={**self.environ, "TERM": "xterm", "COLUMNS": str(_WIDTH), "NO_COLOR": "1"},
            stdin=subprocess.PIPE,
            stdout=end,
            stderr=end,
            start_new_session=True,
        )
        os.close(end)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def type(self, command: str, within: float = 120) -> list[str]:
        """Type a command; return the lines that the terminal shows of it."""
        self._count += 1
        end = f"{_END}-{self._count}\r\n".encode()
        begin = len(self._sent)
        line = f"{{ {command}\n}} < /dev/null\nprintf '{_END}-%s\\n' {self._count}\n"
        assert self._shell.stdin is not None
        self._shell.stdin.write(line.encode())
        self._shell.stdin.flush()
        try:
            until(lambda: end in self._sent[begin:], within)
        except AssertionError as error:
            error.add_note(
                f"typed: {command}\nshown: {screen_of(bytes(self._sent[begin:]).decode())}"
            )
            raise
        return screen_of(bytes(self._sent[begin:]).partition(end)[0].decode())

    def close(self) -> None:
        """End the shell, and what it left in the background."""
        os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait(30)
        assert self._shell.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._shell.stdin.close()
        self._reader.join(30)
        os.close(self._terminal)

    def _read(self) -> None:
        try:
            while part := os.read(self._terminal, 65536):
                self._sent += part
        except OSError:  # the other end is closed
            return
