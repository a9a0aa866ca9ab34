"""The way of a hint as data: which files of the package one attempt enters, and how often.

A task arrives at the function execute_step, its store is SQLite, the pipeline has three steps, and
all is warm. The step before was handed off by another call, and nothing is special about the run:
no channel, no trial, no checkpoint. The thread that is called is traced; with the sandbox the
child is traced as well, which a warm zygote has forked. What other threads do is left out: how
often they look depends on the time.

A file counts once a call enters it. A crossing is a call from a file of one folder of the package
to a file of another one, whatever stands between them.

`python -m bench.hint_trace --files` lists the files, with the calls that enter each of them.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, Final, NamedTuple

import flask

import leasehold
from bench.measuring import Figure, figure, report
from bench.traced_steps import FOLDER
from leasehold import PipelineEntry, Registry, StepDispatchEntry
from leasehold.services.start_run import StartRequest, start_run
from leasehold.web.engine_provider import EngineProvider
from leasehold.web.execute_step import answer_task

PACKAGE: Final = Path(leasehold.__file__).parent

STEPS: Final = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type=name,
            handler="bench.traced_steps:no_op",
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
        )
        for name in ("first", "second", "third")
    ],
)
PIPELINES: Final = Registry(
    "pipelines", [PipelineEntry(name="no-op", steps=("first", "second", "third"))]
)

_WARM: Final = 3  # runs before the one that is traced
_ZYGOTE_S: Final = 30.0

#: The files of a call and of its caller, relative to the package; empty: it is none of them.
Call = tuple[str, str]


class Trace(NamedTuple):
    """The calls of one attempt: in the worker's thread, and in its child if it has one."""

    worker: list[Call]
    child: list[Call]

    @property
    def calls(self) -> Counter[str]:
        """How many calls entered each file."""
        return Counter(file for file, _ in (*self.worker, *self.child))

    @property
    def files(self) -> int:
        """How many files were entered, in the worker or in the child."""
        return len(self.calls)

    @property
    def changes(self) -> int:
        """How many calls led from one file into another one."""
        return sum(file != caller for file, caller in (*self.worker, *self.child))

    @property
    def crossings(self) -> Counter[tuple[str, str]]:
        """How many calls led from one folder of the package into another one, in the worker."""
        pairs = ((_folder(caller), _folder(file)) for file, caller in self.worker if caller)
        return Counter(pair for pair in pairs if pair[0] != pair[1])

    def between(self, one: str, other: str) -> int:
        """Return how many calls crossed between two folders, either way."""
        return self.crossings[one, other] + self.crossings[other, one]


def trace_hint(folder: Path, isolation: str) -> Trace:
    """Return the calls of the attempt of a second step, once all is warm.

    Args:
        folder: for the store, the files, and what children note.
        isolation: `inline` or `process`.
    """
    with _provider(folder, isolation) as provider, _noted(folder) as traces:
        post = _poster(provider)
        for number in range(_WARM):
            run_id = _started(provider, number)
            for generation in (1, 2, 3):
                post(run_id, generation)
        until = time.monotonic() + _ZYGOTE_S
        while True:
            run_id = _started(provider, _WARM)
            post(run_id, 1)
            for trace in traces.glob("*.json"):
                trace.unlink()
            worker = _calls_of(partial(post, run_id, 2))
            child = [
                (_relative(file), _relative(caller or ""))
                for trace in traces.glob("*.json")
                for file, caller in json.loads(trace.read_text())
            ]
            if child or isolation == "inline":
                return Trace(worker, [call for call in child if call[0]])
            assert time.monotonic() < until, "no zygote was ever ready"


def _is_protocol(base: ast.expr) -> bool:
    return ast.unparse(base).partition("[")[0] in ("Protocol", "typing.Protocol")


def protocols(folder: Path = PACKAGE) -> int:
    """Return how many Protocols there are in what runs; what deploys has its own, and no hint."""
    texts = (
        file.read_text()
        for file in folder.rglob("*.py")
        if file.relative_to(folder).parts[0] != "deploy"
    )
    return sum(
        isinstance(node, ast.ClassDef) and any(map(_is_protocol, node.bases))
        for text in texts
        if "Protocol" in text  # one file in ten: to read code takes long
        for node in ast.walk(ast.parse(text))
    )


def measure() -> list[Figure]:
    """Return the figures; the floor of each is its target, so a ratio up to 1 holds."""
    rows = []
    for isolation, files in (("inline", 45), ("process", 70)):
        with TemporaryDirectory() as folder:
            trace = trace_hint(Path(folder), isolation)
        crossings = trace.between("services", "worker")
        rows += [
            _row(f"files of a hint, {isolation}", "files", trace.files, files),
            _row(f"calls of a hint, {isolation}", "calls", sum(trace.calls.values())),
            _row(f"calls into another file, {isolation}", "calls", trace.changes),
            _row(f"calls into another folder, {isolation}", "calls", trace.crossings.total()),
            _row(f"calls between services and worker, {isolation}", "calls", crossings, 3),
        ]
    return [*rows, _row("Protocols of what runs", "classes", protocols(), 27)]


def _row(name: str, unit: str, value: int, at_most: int | None = None) -> Figure:
    floor = value if at_most is None else at_most
    return figure(name, unit, [(value, floor)], at_most=None if at_most is None else 1.0)


@contextmanager
def _provider(folder: Path, isolation: str) -> Iterator[EngineProvider]:
    provider = EngineProvider(
        {
            "LEASEHOLD_CATALOG": "bench.hint_trace",
            "LEASEHOLD_ISOLATION": "" if isolation == "process" else isolation,
            "LEASEHOLD_STORE": f"sqlite:///{folder / 'engine.db'}",
            "LEASEHOLD_ARTIFACTS": f"file://{folder / 'artifacts'}",
        }
    )
    try:
        yield provider
    finally:
        provider.close()


@contextmanager
def _noted(folder: Path) -> Iterator[Path]:
    """Have children note their calls in a folder, while inside."""
    traces = folder / "traces"
    traces.mkdir()
    os.environ[FOLDER] = str(traces)
    try:
        yield traces
    finally:
        del os.environ[FOLDER]


def _started(provider: EngineProvider, number: int) -> str:
    request = StartRequest("no-op", {"number": number})
    return start_run(provider.engine, request).manifest.run_id


def _poster(provider: EngineProvider) -> Callable[[str, int], None]:
    """Return what calls the function as the queue does."""
    app, peer = flask.Flask(__name__), {"REMOTE_ADDR": "127.0.0.1"}

    def post(run_id: str, generation: int) -> None:
        body = {"runId": run_id, "generation": generation}
        with app.test_request_context("/", method="POST", json=body, environ_base=peer):
            answer = answer_task(provider, flask.request)
        assert answer.status_code == 200, answer.get_data()  # noqa: PLR2004 - it was worked on

    return post


def _calls_of(call: Callable[[], object]) -> list[Call]:
    """Return the calls of the package that a call makes in this thread."""
    calls: list[Call] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and (file := _relative(frame.f_code.co_filename)):
            calls.append((file, _caller_of(frame)))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return calls


def _caller_of(frame: FrameType) -> str:
    """Return the file of the package that a call came from, whatever stands between them."""
    caller = frame.f_back
    while caller is not None:
        if file := _relative(caller.f_code.co_filename):
            return file
        caller = caller.f_back
    return ""


@cache
def _relative(file: str) -> str:
    """Return a file of the package, relative to it; empty: it is none."""
    path = Path(file)
    return str(path.relative_to(PACKAGE)) if path.is_relative_to(PACKAGE) else ""


def _folder(file: str) -> str:
    return file.partition("/")[0]


def list_files() -> None:
    """Print the files of each trace with the calls that entered them, and the crossings."""
    for isolation in ("inline", "process"):
        with TemporaryDirectory() as folder:
            trace = trace_hint(Path(folder), isolation)
        print(f"\n{isolation}: {trace.files} files")
        worker = Counter(file for file, _ in trace.worker)
        child = Counter(file for file, _ in trace.child)
        for file in sorted(trace.calls):
            print(f"  {worker[file]:4} {child[file]:4}  {file}")
        for (one, other), calls in sorted(trace.crossings.items()):
            print(f"  {calls:4}  {one} → {other}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", action="store_true", help="list the files, and the crossings")
    if parser.parse_args().files:
        list_files()
    else:
        report("hint_trace", measure())
