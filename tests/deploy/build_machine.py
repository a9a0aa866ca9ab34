"""Cloud Build on this machine: the steps of a build, one after the other, in a copy of the source.

Programs are real but for those of the recorder. A step that fails ends the build, as there.
Some run in this process: a fresh one would spend most of its time on Google's clients.
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pathspec import GitIgnoreSpec

from tests.deploy.cloud import leasehold

ROOT = Path(__file__).parents[2]
#: What of a project `leasehold deploy` reads.
SOURCE = (
    *("pipelines", "deployment.py", "cloudbuild.gate.yaml"),
    *("requirements.txt", "constraints.txt", "hashes.txt"),
)

_SUBSTITUTION = re.compile(r"\$\$|\$\{(\w+)\}|\$([A-Z_][A-Z0-9_]*)")
_STEP_S = 300

Done = subprocess.CompletedProcess[str]


def copy_source(folder: Path) -> Path:
    """Copy what a build is given; its packages are those of this test."""
    folder.mkdir(parents=True)
    left_out = upload_rules()
    for name in SOURCE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=_ignored(left_out))
        else:
            shutil.copy(ROOT / name, folder / name)
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


def upload_rules() -> GitIgnoreSpec:
    """Return what `gcloud builds submit` leaves out of what it uploads.

    Without a file of ours gcloud makes one, which leaves out each .gitignore and .gcloudignore.
    """
    return GitIgnoreSpec.from_lines((ROOT / ".gcloudignore").read_text().splitlines())


def _ignored(left_out: GitIgnoreSpec) -> Callable[[str, list[str]], list[str]]:
    def ignored(folder: str, names: list[str]) -> list[str]:
        place = Path(folder).relative_to(ROOT)
        folders = {name: "/" if Path(folder, name).is_dir() else "" for name in names}
        return [
            name for name, end in folders.items() if left_out.match_file(f"{place / name}{end}")
        ]

    return ignored


@dataclass
class BuildMachine:
    """Runs builds.

    Args:
        workspace: the copy of the source.
        environ: of each step, below its own variables.
        in_process: the commands of `leasehold deploy` that are called here, in place of a process.
        after: called after each step that was done, with its id.

    Attributes:
        done: what came of each step that was begun, by its id.
    """

    workspace: Path
    environ: Mapping[str, str]
    in_process: Collection[str] = ()
    after: Callable[[str], object] = lambda _: None
    done: dict[str, Done] = field(default_factory=dict)

    def run(
        self, build: dict[str, Any], *, already: Collection[str] = (), **substitutions: str
    ) -> bool:
        """Run a build; return whether each step was done.

        Args:
            build: what to run.
            already: the steps that are taken for done.
            substitutions: what is chosen, and what Cloud Build knows.
        """
        self.done.clear()
        values = {
            "BUILD_ID": "b-1",
            "LOCATION": "europe-west1",
            **build["substitutions"],
            **substitutions,
        }
        for step in build["steps"]:
            if step["id"] in already:
                continue
            waits_for = [name for name in step["waitFor"] if name not in {"-", *already}]
            assert all(name in self.done for name in waits_for)  # done, or it may have failed
            done = self._run_step(_substituted(step, values))
            self.done[step["id"]] = done
            if done.returncode and not step.get("allowFailure"):
                return False
            self.after(step["id"])
        return True

    def _run_step(self, step: dict[str, Any]) -> Done:
        own = dict(variable.split("=", 1) for variable in step.get("env", []))
        environ = {**self.environ, **own}
        if step["args"][0] == "deploy" and step["args"][1] in self.in_process:
            return deploy_here(step["args"][1:], self.workspace, environ)
        return subprocess.run(
            [step["entrypoint"], *step["args"]],
            cwd=self.workspace,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_STEP_S,
            check=False,
        )


def deploy_here(words: Sequence[str], folder: Path, environ: Mapping[str, str]) -> Done:
    """Call `leasehold deploy WORDS` in this process, as one that is started in a folder."""
    return leasehold_here(["deploy", *words], folder, environ)


def leasehold_here(words: Sequence[str], folder: Path, environ: Mapping[str, str]) -> Done:
    """Call `leasehold WORDS` in this process, as one that is started in a folder."""
    said, problems = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(folder),
        patch.dict("os.environ", environ, clear=True),
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(problems),
    ):
        code = leasehold(words)
    return Done(words, code, said.getvalue(), problems.getvalue())


def _substituted(value: Any, values: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _substituted(inner, values) for key, inner in value.items()}
    if isinstance(value, list):
        return [_substituted(inner, values) for inner in value]
    if isinstance(value, str):
        return _SUBSTITUTION.sub(lambda found: _value_of(found, values), value)
    return value


def _value_of(found: re.Match[str], values: Mapping[str, str]) -> str:
    return "$" if found[0] == "$$" else values[found[1] or found[2]]
