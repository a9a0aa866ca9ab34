"""Each way out of a handler that the engine serves: a secret goes in, and is found nowhere."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any

import pytest

from leasehold.api.call_row import CallRequest
from leasehold.domain.lifecycle import Operation
from leasehold.errors import InvalidRequestError, LeaseholdError
from leasehold.in_process import InProcessEngine
from leasehold.logs.attempt import name_attempts_in_records
from leasehold.logs.stderr_log import JsonFormatter, LineFormatter
from leasehold.remote_workers.calls import LEASE_CALLS
from leasehold.services.operate import OperationRequest, operate
from tests.api.in_process import leaking
from tests.api.in_process.leaking import (
    CHANNELS,
    GATES,
    HANDLERS,
    ONLY_IN_A_PROCESS,
    OTHERS,
    PEOPLE,
    REMOTE_WAYS,
    SHAPE,
    SHAPES,
    TOLD,
    UNRESOLVED,
    cut_words,
    words,
)
from tests.worlds.builders import environ_of
from tests.worlds.shell import Shell

FORMS = [
    JsonFormatter(),
    LineFormatter(),
    LineFormatter(is_uniform=True),
    logging.Formatter("%(message)s %(api_key)s %(url)s", defaults={"api_key": "", "url": ""}),
]


#: The ways that go out of a process by themselves, and one of each kind that its parent passes on.
IN_A_PROCESS = ONLY_IN_A_PROCESS | {
    *("log_of_a_value", "log_of_a_thread", "log_event", "log_facts", "log_traceback"),
    *("progress", "phase_of_a_failure", "raised_in_a_group", "raised_in_details"),
    *("exits", "misfit"),
}


@pytest.fixture
def written() -> Iterator[list[io.StringIO]]:
    """The log, in each form that a server or a program of the user gives it."""
    handlers = [logging.StreamHandler(io.StringIO()) for _ in FORMS]
    factory, level = logging.getLogRecordFactory(), logging.root.level
    name_attempts_in_records()
    for handler, form in zip(handlers, FORMS, strict=True):
        handler.setFormatter(form)
        logging.root.addHandler(handler)
    logging.root.setLevel(logging.DEBUG)
    yield [handler.stream for handler in handlers]
    for handler in handlers:
        logging.root.removeHandler(handler)
    logging.root.setLevel(level)
    logging.setLogRecordFactory(factory)


@pytest.mark.parametrize(
    ("ways", "shape", "pages_of_each"),
    [
        *[
            pytest.param(
                HANDLERS.keys() - ONLY_IN_A_PROCESS,
                shape,
                4 if shape == "named" else 0,
                id=shape,
                marks=() if shape == "address" else pytest.mark.nightly,
            )
            for shape in SHAPES
        ],
        pytest.param(
            HANDLERS.keys(),
            "named",
            1,
            id="each_in_a_process",
            marks=[pytest.mark.sandboxed, pytest.mark.nightly],
        ),
        pytest.param(IN_A_PROCESS, "named", 1, id="process", marks=pytest.mark.sandboxed),
    ],
)
def test_no_way_out_of_a_handler_has_a_secret_in_it(
    tmp_path: Path,
    written: list[io.StringIO],
    monkeypatch: pytest.MonkeyPatch,
    ways: Iterable[str],
    shape: str,
    pages_of_each: int,
) -> None:
    """Pages have what is kept, which is searched: the gate looks at one of them for each run."""
    TOLD.clear()
    monkeypatch.setenv(SHAPE, shape)
    environ = environ_of(tmp_path)
    with InProcessEngine(
        leaking.STEPS,
        leaking.PIPELINES,
        GATES,
        channels=CHANNELS,
        environ=environ,
        workers=2,
        allow_broken=True,
    ) as engine:
        runs = {way: engine.start(way.replace("_", "-"), {}).run_id for way in (*ways, *OTHERS)}
        ends = {way: engine.wait(run_id, 120).status for way, run_id in runs.items()}
        runs |= {way: work_remotely(engine, way) for way in REMOTE_WAYS}
        runs |= {way: cancel(engine, way) for way in PEOPLE}
        refusals = [refusal(engine, way) for way in UNRESOLVED]

    logs = {f"log {number}": one.getvalue() for number, one in enumerate(written)}
    kept = {
        path.name: path.read_bytes().decode("latin-1")
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    shown = dict(pages(runs, pages_of_each, Shell(tmp_path, environ)))
    answers = {"told": "\n".join(TOLD), "refusals": "\n".join(refusals)}
    found = leaks({**logs, **kept, **shown, **answers})
    assert [one for one in found if one[0] not in OUTPUTS] == []
    shows = {f"show {runs[way]} {option}" for way in OUTPUTS for option in ("", "--json")}
    assert {place for _, place in found} <= {"runs.db", "runs.db-wal", *shows}
    assert set(ends.values()) == {"COMPLETED", "ERROR", "BLOCKED"}
    assert "FORGED" not in events(written[0].getvalue())
    everything = "".join([*logs.values(), *kept.values()])
    assert [one for one in SAID if one not in everything] == []


def test_a_note_reaches_the_handler_as_it_is_and_the_trace_without_secrets(tmp_path: Path) -> None:
    with InProcessEngine(
        leaking.STEPS, leaking.PIPELINES, GATES, environ=environ_of(tmp_path), allow_broken=True
    ) as engine:
        run_id = engine.start("raised", {}).run_id
        engine.wait(run_id, 60)
        again = OperationRequest(Operation.RECREATE, "ada", words("reason"))
        run_id = operate(engine.engine, run_id, again).manifest.run_id
        reasons = [event.reason for event in engine.trace(run_id)]
        run_id = engine.start("refused", {}).run_id
        engine.wait(run_id, 60)
        retry = OperationRequest(Operation.RETRY, "ada", note=words("note"))
        run = operate(engine.engine, run_id, retry).manifest
        traced = str([event.model_extra for event in engine.trace(run_id)])

    assert "login failed: password=[redacted] for ada" in reasons
    assert run.position.note == words("note")
    assert "login failed: password=[redacted] for ada" in traced
    assert "hunter2" not in traced


@pytest.mark.parametrize("labels", [{"token": "hunter2-Zq8"}, {"db": "https://ada:hunter2@x"}])
def test_a_label_that_looks_like_a_secret_is_refused_and_not_repeated(
    tmp_path: Path, labels: Mapping[str, str]
) -> None:
    """A label that was cut would not be found by a filter."""
    with (
        InProcessEngine(
            leaking.STEPS, leaking.PIPELINES, GATES, environ=environ_of(tmp_path), allow_broken=True
        ) as engine,
        pytest.raises(InvalidRequestError, match="look like a secret") as refused,
    ):
        engine.start("phase", {}, labels=labels)

    assert "hunter2" not in str(refused.value)


#: Outputs are kept as they are; what is said of them is not.
OUTPUTS = ["misjudged"]

#: The pages of a run, in an order in which each four are one of each.
_PAGES = (
    *(("show", ""), ("trace", "--json"), ("why", ""), ("watch", "")),
    *(("show", "--json"), ("trace", ""), ("why", "--json"), ("watch", "")),
)

#: What is beside the secrets stays: nothing was merely dropped.
SAID = ["for ada", "[redacted]", "it ends here", "GATE_BLOCKED"]


def work_remotely(engine: InProcessEngine, way: str) -> str:
    """Have a remote worker say it; return the run."""
    run_id = engine.start(way.replace("_", "-"), {}).run_id
    call, said = REMOTE_WAYS[way]
    lease = ask(engine, "claim", {"stepType": way, "holder": "gpu-1"})
    held = {name: lease[name] for name in ("runId", "leaseId", "fencingToken")}
    text = cut_words(way, 200) if way.endswith("cut") else words(way)
    ask(engine, call, {**held, **said(text)})
    if call != "fail":
        ask(engine, "complete", {**held, "output": None})
    return run_id


def refusal(engine: InProcessEngine, way: str) -> str:
    """Return why no run of it can be started."""
    with pytest.raises(LeaseholdError) as refused:
        engine.start(way.replace("_", "-"), {})
    assert "login failed" in refused.value.message
    return str(refused.value)


def ask(engine: InProcessEngine, call: str, body: Mapping[str, Any]) -> Any:
    """Call the API of leases."""
    (row,) = (one for one in LEASE_CALLS if one.path == f"/leases:{call}")
    answer = row.answer(engine.engine, CallRequest(row.takes.read(dict(body))))
    return json.loads(answer.model_dump_json(by_alias=True))


def cancel(engine: InProcessEngine, way: str) -> str:
    """Have a person say it of a run; return the run."""
    run_id = engine.start(way.replace("_", "-"), {}).run_id
    operate(engine.engine, run_id, OperationRequest(Operation.CANCEL, "ada", words(way)))
    return run_id


def pages(runs: Mapping[str, str], count: int, shell: Shell) -> Iterator[tuple[str, str]]:
    """Yield what people see of the runs: of each so many pages in turn, in words and as JSON.

    And all of those whose outputs are kept as they are.
    """
    turns = cycle(_PAGES)
    of_each = [
        (page, run_id, option)
        for way, run_id in runs.items()
        for page, option in (_PAGES if way in OUTPUTS else islice(turns, count))
    ]
    of_all = product(("runs", "deliveries", "audit"), ("", "--json"))
    for said in (*of_each, *of_all):
        seen = shell.run(*filter(None, said))
        yield " ".join(said), seen.stdout + seen.stderr


def leaks(places: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return which way leads to which place."""
    found = {
        (way, name) for name, text in places.items() for way in re.findall(r"hunter2-(\w+)", text)
    }
    return sorted(found)


def events(log: str) -> list[str]:
    """Return the events in a log for Cloud Logging: entries that alerts count."""
    return [str(json.loads(line).get("event")) for line in log.splitlines()]
