"""The command line as people call it: a process, in a folder with a catalog of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SHOP = Path(__file__).with_name("shop.py")
LEASEHOLD = (sys.executable, "-m", "leasehold")
DEADLINE_S = 20.0


@dataclass
class Shell:
    folder: Path
    settings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shutil.copy(SHOP, self.folder / "shop.py")
        names = ("PATH", "HOME", "PYTHONPATH")  # the last names the source that is under test
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

    def run(
        self, *words: str, stdin: str | None = None, **settings: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*LEASEHOLD, *words],
            cwd=self.folder,
            env=self.settings | settings,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    def begin(self, *words: str, **settings: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*LEASEHOLD, *words],
            cwd=self.folder,
            env=self.settings | settings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def json(self, *words: str) -> Any:
        done = self.run(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def story(self, run_id: str) -> list[str]:
        events = self.json("trace", run_id)["events"]
        return [f"{event['type']} {event['step'] or ''}".strip() for event in events]

    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


def until(holds: Callable[[], object]) -> None:
    """Wait until something holds; an hour-glass, not a guess."""
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.01)


def only_line(text: str) -> str:
    (line,) = text.splitlines()
    return line
