"""A project on disk that `leasehold serve` runs, and that changes under it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.worlds.bundles import Api
from tests.worlds.ports import own_port
from tests.worlds.waiting import until

CATALOG = """
from datetime import timedelta
from leasehold import PipelineEntry, Registry, StepDispatchEntry

def entry(name, **limits):
    usable = {{"agent_timeout": timedelta(seconds=60), **limits}}
    return StepDispatchEntry(
        step_type=name,
        handler=f"app.{{name}}:handle",
        dispatch_deadline=timedelta(minutes=5),
        **usable,
    )

STEPS = Registry("dispatch", [{steps}])
PIPELINES = Registry("pipelines", [PipelineEntry(name="p", steps={names!r})])
"""

HOLDS = """
from pathlib import Path
def handle(ctx, given):
    Path("told").touch()
    while Path("hold").exists():
        ctx.wait_or_shutdown(0.05)
    return "a-{mark}"
"""

SAYS = """
import app.marks
def handle(ctx, given):
    from app.late import LATE
    return f"{{given}} {{app.marks.MARK}} {{LATE}} b-{mark}"
"""


@dataclass
class Project:
    """A folder with the package `app`, and the server that runs it."""

    folder: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    _started: list[subprocess.Popen[str]] = field(default_factory=list)

    def write(self, **modules: str) -> None:
        """Write modules of the package."""
        (self.folder / "app").mkdir(exist_ok=True)
        for name, text in modules.items():
            (self.folder / "app" / f"{name}.py").write_text(text)

    def of_steps(self, **steps: str) -> None:
        """Write a catalog with a pipeline `p` of these steps, each with its limits."""
        entries = ", ".join(f"entry({name!r}, {limits})" for name, limits in steps.items())
        self.write(catalog=CATALOG.format(steps=entries, names=tuple(steps)))

    def environ(self, **settings: str) -> dict[str, str]:
        """Return the environment of a command in the folder."""
        return {
            **{name: value for name, value in os.environ.items() if "LEASEHOLD" not in name},
            "LEASEHOLD_ISOLATION": os.environ["LEASEHOLD_ISOLATION"],  # as tests/conftest.py has it
            "LEASEHOLD_CATALOG": "app.catalog",
            "PIPELINE_MIN_BACKOFF_S": "0.2",
            **self.settings,
            **settings,
        }

    def command(self, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the folder to its end."""
        return subprocess.run(
            [sys.executable, "-m", "leasehold", *words],
            cwd=self.folder,
            env=self.environ(**settings),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def serve(self, *words: str, command: str = "serve", **settings: str) -> Api:
        """Start a server, and wait until it is ready."""
        port = own_port()
        with self._said.open("a") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "leasehold", command, "--port", str(port), *words],
                cwd=self.folder,
                env=self.environ(**settings),
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            )
        self._started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == f"ready http://127.0.0.1:{port}\n", self.said()
        return Api(f"http://127.0.0.1:{port}")

    def has_said(self, words: str) -> list[str]:
        """Wait until a line has these words; return all such lines."""
        return until(lambda: [line for line in self.said() if words in line], 60)

    def said(self) -> list[str]:
        """Return what all servers said until now."""
        return self._said.read_text().splitlines()

    @property
    def pids(self) -> list[int]:
        """The servers, in the order in which they were started."""
        return [process.pid for process in self._started]

    def close(self) -> None:
        """Kill what is left."""
        while self._started:
            process = self._started.pop()
            process.kill()
            process.communicate()

    @property
    def _said(self) -> Path:
        return self.folder / "said"
