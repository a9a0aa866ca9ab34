"""The command line as people call it, in a folder with its own catalog.

`run` and `on_terminal` call it in this process, which takes a hundredth of the time. `process` and
`begin` start a real one: for what only a process has, as signals, pipes and its own terminal.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import logging
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import leasehold
from leasehold.cli import main
from leasehold.worker.handler import handlers
from tests.worlds.catalogs import shop

#: What `python -m leasehold` has as its first argument.
MAIN = str(Path(leasehold.__file__).with_name("__main__.py"))
SHOP = Path(shop.__file__)
LEASEHOLD = (sys.executable, "-m", "leasehold")
DEADLINE_S = 60.0

TERMINAL = {"TERM": "xterm-256color", "COLUMNS": "120"}

Done = subprocess.CompletedProcess[str]


@dataclass
class Shell:
    folder: Path
    settings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shutil.copy(SHOP, self.folder / "shop.py")
        names = ("PATH", "HOME", "PYTHONPATH", "LEASEHOLD_ISOLATION")  # the source under test, too
        outside = {name: os.environ[name] for name in names if name in os.environ}
        self.settings = {
            **outside,
            "LEASEHOLD_CATALOG": "shop",
            "PIPELINE_MIN_BACKOFF_S": "0.2",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUTF8": "1",
            **self.settings,
        }

    def importing(self, folder: Path) -> None:
        """Let the commands import what is in the folder, before anything else."""
        known = self.settings.get("PYTHONPATH")
        self.settings["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder), known)))

    # -- in this process ---------------------------------------------------------------------------

    def run(self, *words: str, stdin: str = "", **settings: str) -> Done:
        """Call the command, with streams that are not a terminal."""
        stdout, stderr = io.StringIO(), io.StringIO()
        with self._as_a_process(words, settings, stdin, stdout, stderr):
            code = _exit_code_of_main()
        return Done(words, code, stdout.getvalue(), stderr.getvalue())

    def run_without_stdout(self, *words: str) -> Done:
        """Call the command as Python has it whose stdout is closed."""
        stderr = io.StringIO()
        with self._as_a_process(words, {}, "", None, stderr):
            code = _exit_code_of_main()
        return Done(words, code, "", stderr.getvalue())

    def on_terminal(self, *words: str, **settings: str) -> str:
        """Return what a terminal is sent that is stdout and stderr."""
        screen = Screen()
        with self._as_a_process(words, TERMINAL | settings, "", screen, screen):
            _exit_code_of_main()
        return screen.getvalue()

    def json(self, *words: str) -> Any:
        done = self.run(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def story(self, run_id: str) -> list[str]:
        events = self.json("trace", run_id)["events"]
        return [f"{event['type']} {event['step'] or ''}".strip() for event in events]

    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    @contextlib.contextmanager
    def _as_a_process(
        self,
        words: tuple[str, ...],
        settings: dict[str, str],
        stdin: str,
        stdout: io.StringIO | None,
        stderr: io.StringIO,
    ) -> Iterator[None]:
        """Give the command all that a process has of its own, and take it away in the end."""
        environ = self.settings | settings
        paths = [str(self.folder), *environ.get("PYTHONPATH", "").split(os.pathsep)]
        with (
            pytest.MonkeyPatch.context() as patch,
            _own_signals(),
            _own_log_level(),
            _own_environment(),
            self._own_modules(),
        ):
            for name in [name for name in os.environ if name not in environ]:
                patch.delenv(name)
            for name, value in environ.items():
                patch.setenv(name, value)
            patch.chdir(self.folder)
            patch.setattr(sys, "argv", [MAIN, *words])
            patch.setattr(sys, "path", [*filter(None, paths), *sys.path])
            patch.setattr(sys, "dont_write_bytecode", True)
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
            patch.setattr(sys, "stdout", stdout)
            patch.setattr(sys, "stderr", stderr)
            patch.setattr(logging.root, "handlers", [])  # those of pytest
            patch.setattr(logging.lastResort, "formatter", None)
            yield

    @contextlib.contextmanager
    def _own_modules(self) -> Iterator[None]:
        """Import catalogs and handlers anew, as they are in the folder now."""
        known = set(sys.modules)
        importlib.invalidate_caches()
        for cached in vars(handlers).values():
            if hasattr(cached, "cache_clear"):
                cached.cache_clear()
        try:
            yield
        finally:
            for name in set(sys.modules) - known:
                if self._is_of_test(sys.modules[name]):
                    del sys.modules[name]

    def _is_of_test(self, module: ModuleType) -> bool:
        """Return whether a module lies where pytest has tests make their folders."""
        places = [*getattr(module, "__path__", ()), getattr(module, "__file__", None) or ""]
        return any(Path(place).is_relative_to(self.folder.parent) for place in places)

    # -- as a process of its own -------------------------------------------------------------------

    def process(self, *command: str, stdin: str | None = None, **settings: str) -> Done:
        """Run a whole command line, as `LEASEHOLD` and its words."""
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.settings | settings,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    def begin(
        self, *words: str, program: tuple[str, ...] = LEASEHOLD, **settings: str
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*program, *words],
            cwd=self.folder,
            env=self.settings | settings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def on_real_terminal(self, *words: str, **settings: str) -> str:
        """Return what a real terminal is sent."""
        return self.interrupted_on_real_terminal(*words, at=None, **settings)[1]

    def interrupted_on_real_terminal(
        self, *words: str, at: str | None, **settings: str
    ) -> tuple[int, str]:
        """Return the exit code, and what a real terminal is sent; with `at`, Ctrl-C comes then."""
        terminal, end = pty.openpty()
        process = subprocess.Popen(
            [*LEASEHOLD, *words],
            cwd=self.folder,
            env=self.settings | TERMINAL | settings,
            stdin=end,
            stdout=end,
            stderr=end,
        )
        os.close(end)
        sent, is_told = b"", at is None
        while part := _read(terminal):
            sent += part
            if at is not None and not is_told and at.encode() in sent:
                is_told = True
                process.send_signal(signal.SIGINT)
        os.close(terminal)
        return process.wait(timeout=DEADLINE_S), sent.decode()


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def without_controls(sent: str) -> str:
    """Return what a terminal was sent without its control sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sent)


def only_line(text: str) -> str:
    (line,) = text.splitlines()
    return line


def _exit_code_of_main() -> int:
    with pytest.raises(SystemExit) as end:
        main()
    assert isinstance(end.value.code, int)
    return end.value.code


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _own_log_level() -> Iterator[None]:
    kept = logging.root.level
    try:
        yield
    finally:
        logging.root.setLevel(kept)


@contextlib.contextmanager
def _own_environment() -> Iterator[None]:
    """Take away what the command has set, as it does with what files of settings say."""
    kept = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other end is closed
        return b""
