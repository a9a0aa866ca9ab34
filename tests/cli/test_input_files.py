"""Files that a run is started with are there before its first attempt, or nothing is."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from leasehold import Client, testing
from leasehold.client.http_calls import RunsApi
from leasehold.domain.artifact_name import MARK
from leasehold.domain.status import Outcome
from leasehold.errors import (
    ArtifactNameError,
    IdempotencyKeyReusedError,
    InvalidInputError,
    InvalidRequestError,
    TooLargeError,
)
from leasehold.ports.artifacts import Artifacts
from leasehold.services.start_run import StartRequest, start_run
from leasehold.testing import InProcessEngine
from tests.worlds.runs_api import runs_api
from tests.worlds.shell import LEASEHOLD, Shell, only_line
from tests.worlds.wrapped import Wrapped

SOURCE = """
from datetime import timedelta
from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry

def read(ctx: StepContext, given: dict[str, str]) -> str:
    return " ".join(ctx.artifacts.get(name).decode() for name in ctx.artifacts.list())

STEPS = Registry("dispatch", [StepDispatchEntry(step_type="read", handler="filed:read",
    agent_timeout=timedelta(seconds=30), dispatch_deadline=timedelta(seconds=60))])
PIPELINES = Registry("pipelines", [PipelineEntry(name="filed", steps=("read",))])
"""
FILES = {"a/one.txt": b"one", "two.txt": b"two"}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    (tmp_path / "filed.py").write_text(SOURCE)
    (tmp_path / "one.txt").write_text("one")
    (tmp_path / "other.txt").write_text("other")
    return Shell(tmp_path, {"LEASEHOLD_CATALOG": "filed"})


@pytest.fixture
def engine(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessEngine]:
    monkeypatch.syspath_prepend(shell.folder)
    with testing.engine("filed", shell.folder / "data") as engine:
        yield engine


def stored(folder: Path) -> list[str]:
    """Return the files of the artifact folder; the mark by which its store knows it is none."""
    files = (path for path in (folder / "data" / "artifacts").rglob("*") if path.is_file())
    return sorted(path.name for path in files if not path.name.startswith(MARK))


def start(*files: str, key: str = "k", options: tuple[str, ...] = ("--in-process",)) -> list[str]:
    given = [word for each in files for word in ("--file", each)]
    return ["start", "filed", "--idempotency-key", key, *given, *options]


@pytest.mark.parametrize("isolation", ["inline", ""])
def test_a_file_of_the_command_line_is_there_for_the_first_attempt(
    shell: Shell, isolation: str
) -> None:
    words = start(
        "a/first.txt=@one.txt", "second.txt=@other.txt", options=("--in-process", "--json")
    )

    done = shell.process(*LEASEHOLD, *words, LEASEHOLD_ISOLATION=isolation)

    assert json.loads(done.stdout)["output"] == "one other", done.stderr


def test_the_command_that_continues_a_run_has_its_files(shell: Shell) -> None:
    recorded = shell.run(*start("a.txt=@one.txt", options=()))
    again = shell.run(*start("a.txt=@one.txt"))
    other = shell.run(*start("a.txt=@other.txt"))
    none = shell.run(*start())

    assert "--file a.txt=@one.txt --in-process" in recorded.stderr
    assert again.returncode == 0, again.stderr
    for refused in (other, none):
        assert refused.returncode == 2
        assert "started with another set of files; use a new key" in only_line(refused.stderr)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("a.txt", "'a.txt' is not allowed; allowed: name=@path."),
        ("a.txt=@missing.txt", "No such file or directory"),
        ("a.txt=@large", "16777217 bytes; allowed: at most 16777216"),
        ("../a.txt=@one.txt", "it is not a relative path of plain parts"),
    ],
)
def test_a_file_that_cannot_be_given_starts_nothing(shell: Shell, given: str, words: str) -> None:
    """One that is too large, or has no end, is read no further than to know it."""
    with (shell.folder / "large").open("wb") as file:
        file.truncate(64 * 2**20)

    done = shell.run(*start(given))

    assert done.returncode == 2
    assert words in only_line(done.stderr)
    assert not (shell.folder / ".leasehold").exists()


def test_a_name_that_is_given_twice_is_refused_with_the_option_that_gives_it(shell: Shell) -> None:
    done = shell.run(*start("a.txt=@one.txt", "a.txt=@other.txt"))

    assert only_line(done.stderr).startswith("error: --file gives 'a.txt' twice; ")


@pytest.mark.parametrize("way", ["server", "store"])
def test_a_client_gives_files_over_each_way(
    engine: InProcessEngine, shell: Shell, way: str
) -> None:
    environ = {
        "LEASEHOLD_STORE": f"sqlite:///{shell.folder}/data/leasehold.db",
        "LEASEHOLD_ARTIFACTS": f"file://{shell.folder}/data/artifacts",
        "LEASEHOLD_CATALOG": "filed",
    }
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(runs_api(engine.engine)) if way == "server" else None
        client = stack.enter_context(Client(url, environ=environ))
        files: Any = {"a/one.txt": b"one", "b.txt": shell.folder / "other.txt"}
        run = client.start("filed", {}, idempotency_key="k", files=files)
        same = client.start("filed", {}, idempotency_key="k", files=files)
        with pytest.raises(IdempotencyKeyReusedError):
            client.start("filed", {}, idempotency_key="k", files={"a/one.txt": b"two"})

        assert same.run_id == run.run_id
        assert stored(shell.folder) == ["b.txt", "one.txt"]
    engine.adopt(run.run_id)
    engine.run_until_settled(run.run_id)
    assert engine.output(run.run_id) == "one other"


def test_over_http_files_are_base64_by_name(engine: InProcessEngine) -> None:
    with runs_api(engine.engine) as url:
        api = RunsApi(url)
        body = {
            "pipeline": "filed",
            "files": {"a.txt": base64.b64encode(b"x" * 2_000_000).decode()},
        }
        status, run = api.call("/runs", body)
        assert status == 201
        with pytest.raises(InvalidRequestError, match="bytes in base64"):
            api.call("/runs", {**body, "files": {"a": "?"}})

    (file,) = engine.show(run["runId"]).input_files
    assert file.name == "a.txt"


def test_what_is_refused_leaves_nothing_behind(engine: InProcessEngine, shell: Shell) -> None:
    for files, error in (
        ({"a": b"", "a/b": b""}, ArtifactNameError),
        ({f"{n}": b"" for n in range(17)}, InvalidRequestError),
        ({"large": b"x" * (16 * 1024 * 1024 + 1)}, TooLargeError),
        ({"a": "text"}, InvalidRequestError),
    ):
        with pytest.raises(error):
            engine.start("filed", {}, files=files)  # type: ignore[arg-type] # it is the test
    with pytest.raises(InvalidInputError):
        engine.start("filed", {"a": 1}, files=FILES)

    assert stored(shell.folder) == []


class Overtaken(Wrapped[Artifacts]):
    """Artifacts; as the first of them is stored, another caller starts a run of the same key."""

    def __init__(self, artifacts: Artifacts, overtake: Callable[[], object]) -> None:
        super().__init__(artifacts)
        self._overtake = [overtake]

    def put(self, name: str, data: bytes) -> str:
        if self._overtake:
            self._overtake.pop()()
        return self.inner.put(name, data)


@pytest.mark.parametrize("files", [FILES, {"two.txt": b"other"}])
def test_a_start_that_another_one_overtook_leaves_nothing_behind(
    engine: InProcessEngine, shell: Shell, files: dict[str, bytes]
) -> None:
    """The other one begins the run of the key between the look at it and the commit."""
    parts = engine.engine
    artifacts = Overtaken(
        parts.artifacts, lambda: engine.start("filed", {}, idempotency_key="k", files=FILES)
    )
    is_same = files == FILES
    with contextlib.nullcontext() if is_same else pytest.raises(IdempotencyKeyReusedError):
        change = start_run(
            replace(parts, artifacts=cast(Artifacts, artifacts)),
            StartRequest("filed", {}, "k", files=files),
        )
        assert change.outcome is Outcome.EXISTING

    assert stored(shell.folder) == ["one.txt", "two.txt"]


def test_a_run_that_is_made_of_another_one_has_its_files(engine: InProcessEngine) -> None:
    run = engine.start("filed", {}, files=FILES)
    engine.run_until_settled(run.run_id)

    new = engine.recreate(run.run_id)
    done = engine.run_until_settled(new.run_id)

    assert (done.status, engine.output(new.run_id)) == ("COMPLETED", "one two")
    assert done.input_files == engine.show(run.run_id).input_files
