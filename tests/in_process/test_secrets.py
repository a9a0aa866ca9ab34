"""Each way out of a handler that the engine serves: a secret goes in, and is found nowhere."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from pathlib import Path

import pytest

from leasehold.in_process import InProcessEngine
from leasehold.logs.attempt import name_attempts_in_records
from leasehold.logs.for_cloud import JsonFormatter
from leasehold.logs.for_people import LineFormatter
from tests.builders import environ_of
from tests.cli.shell import Shell
from tests.in_process import leaking
from tests.in_process.leaking import CHANNELS, GATES, HANDLERS, ONLY_IN_A_PROCESS, OTHERS, TOLD

FORMS = [
    JsonFormatter(),
    LineFormatter(),
    LineFormatter(is_uniform=True),
    logging.Formatter("%(message)s %(api_key)s %(url)s", defaults={"api_key": "", "url": ""}),
]


@pytest.fixture
def written() -> Iterator[list[io.StringIO]]:
    """What is logged, in each form that a server or a program of the user's gives it."""
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
    "ways",
    [
        pytest.param(HANDLERS.keys() - ONLY_IN_A_PROCESS, id="inline"),
        pytest.param(HANDLERS.keys(), id="process", marks=pytest.mark.sandboxed),
    ],
)
def test_no_way_out_of_a_handler_has_a_secret_in_it(
    tmp_path: Path, written: list[io.StringIO], ways: Iterable[str]
) -> None:
    TOLD.clear()
    environ = environ_of(tmp_path)
    with InProcessEngine(
        leaking.STEPS, leaking.PIPELINES, GATES, channels=CHANNELS, environ=environ, workers=2
    ) as engine:
        runs = {way: engine.start(way.replace("_", "-"), {}).run_id for way in (*ways, *OTHERS)}
        ends = {way: engine.wait(run_id, 120).status for way, run_id in runs.items()}

    logs = {f"log {number}": one.getvalue() for number, one in enumerate(written)}
    kept = {
        path.name: path.read_bytes().decode("latin-1")
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    shown = dict(pages(runs.values(), Shell(tmp_path, environ)))
    assert leaks({**logs, **kept, **shown, "announcements": "\n".join(TOLD)}) == []
    assert set(ends.values()) == {"COMPLETED", "ERROR", "BLOCKED"}
    assert "FORGED" not in events(written[0].getvalue())
    everything = "".join([*logs.values(), *kept.values()])
    assert [one for one in SAID if one not in everything] == []


#: What is beside the secrets stays: nothing was merely dropped.
SAID = ["for ada", "[redacted]", "it ends here", "GATE_BLOCKED"]


def pages(runs: Iterable[str], shell: Shell) -> Iterator[tuple[str, str]]:
    """Yield what people see of the runs."""
    for words in (*product(("show", "trace", "why"), runs), ("runs",), ("deliveries",), ("audit",)):
        seen = shell.run(*words)
        yield " ".join(words), seen.stdout + seen.stderr


def leaks(places: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return which way leads to which place."""
    found = {
        (way, name)
        for name, text in places.items()
        for way in re.findall(r"hunter2-(\w+)-Zq8", text)
    }
    return sorted(found)


def events(log: str) -> list[str]:
    """Return the events in a log for Cloud Logging: entries that alerts count."""
    return [str(json.loads(line).get("event")) for line in log.splitlines()]
