"""Each metric finds the lines that functions log, by the real engine, and their labels."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from leasehold import (
    AgentClientError,
    GateEntry,
    GatePolicyFailure,
    LogChannel,
    PermanentError,
    PipelineEntry,
    Registry,
    SlackChannel,
    StepDispatchEntry,
    testing,
)
from leasehold.adapters.channels import ChannelOpener
from leasehold.bootstrap.boot import log_report, sender_of
from leasehold.deploy.resources.log_metrics import METRICS, LogMetric
from leasehold.logs.attempt import EVENTS_LOG
from leasehold.logs.stderr_log import JsonFormatter
from leasehold.registry.pipelines import Catalog
from leasehold.services.read_deliveries import deliveries_of_run
from leasehold.services.sweep import Report, SweepResult, line_of, sweep
from leasehold.testing import InProcessEngine

_TOKEN = re.compile(r'\s*(?:("(?:[^"\\]|\\.)*")|(AND|OR)\b|([()=>])|([\w.]+))')


def matches(text: str, entry: Mapping[str, Any]) -> bool:
    """Return whether an entry of the log is one that a filter finds."""
    return _Filter(text).value(entry)


class _Filter:
    """A filter that is read from left to right; what it does not know, it refuses."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        at = 0
        while at < len(text.rstrip()):
            found = _TOKEN.match(text, at)
            assert found is not None, f"not understood: {text[at:]!r}"
            self._tokens.append(found[0].strip())
            at = found.end()

    def value(self, entry: Mapping[str, Any]) -> bool:
        value = self._any(entry)
        assert not self._tokens, f"not understood: {self._tokens}"
        return value

    def _any(self, entry: Mapping[str, Any]) -> bool:
        value = self._all(entry)
        while self._skip("OR"):
            value = self._all(entry) or value
        return value

    def _all(self, entry: Mapping[str, Any]) -> bool:
        value = self._one(entry)
        while self._skip("AND"):
            value = self._one(entry) and value
        return value

    def _one(self, entry: Mapping[str, Any]) -> bool:
        if self._skip("("):
            value = self._any(entry)
            assert self._skip(")")
            return value
        found = _at(entry, self._tokens.pop(0))
        operator = self._tokens.pop(0)
        if operator == ">":
            bound = json.loads(self._tokens.pop(0))
            return isinstance(found, int | float) and found > bound
        assert operator == "="
        return found in self._values()

    def _values(self) -> list[Any]:
        if not self._skip("("):
            return [json.loads(self._tokens.pop(0))]
        values = [json.loads(self._tokens.pop(0))]
        while self._skip("OR"):
            values.append(json.loads(self._tokens.pop(0)))
        assert self._skip(")")
        return values

    def _skip(self, token: str) -> bool:
        if self._tokens[:1] != [token]:
            return False
        self._tokens.pop(0)
        return True


def _at(entry: Mapping[str, Any], path: str) -> Any:
    """Return the field of a path; None where there is none."""
    found: Any = entry
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


HERE = __name__


def work(ctx: Any, given: dict[str, Any]) -> str:
    """Do what the input says."""
    ctx.checkpoint(1, "half", phase="working")
    if given.get("fails") == "permanently":
        raise PermanentError("no such book")
    if given.get("fails") == "always":
        raise AgentClientError("busy")
    return "done"


def refuse(ctx: Any, _output: object) -> None:
    if ctx.given.get("fails") == "gate":
        raise GatePolicyFailure("quality", "it is too short", "write more")


CATALOG = Catalog(
    Registry(
        "dispatch",
        [
            StepDispatchEntry(
                step_type="write",
                handler=f"{HERE}:work",
                agent_timeout=timedelta(minutes=1),
                dispatch_deadline=timedelta(minutes=2),
                gates=("quality",),
            )
        ],
    ),
    Registry("pipelines", [PipelineEntry(name="books", steps=("write",))]),
    Registry("gates", [GateEntry(name="quality", check=f"{HERE}:refuse")]),
    Registry("channels", [SlackChannel(name="team", url_variable="TEAM_SLACK_URL")]),
)


class CloudLog(logging.Handler):
    """The log of a function as Cloud Logging has it: each line of JSON is taken apart."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self.entries: list[Mapping[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        payload = json.loads(self.format(record))
        severity = payload.pop("severity")
        resource = {"type": "cloud_run_revision"}
        self.entries.append({"resource": resource, "severity": severity, "jsonPayload": payload})

    def found_by(self, metric: LogMetric) -> list[Mapping[str, Any]]:
        """Return the payloads that a metric counts."""
        return [each["jsonPayload"] for each in self.entries if matches(metric.filter, each)]


@pytest.fixture
def log() -> Iterator[CloudLog]:
    handler, logger = CloudLog(), logging.getLogger(EVENTS_LOG)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(before)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[InProcessEngine]:
    assert sys.modules[HERE]
    with testing.engine(CATALOG, tmp_path) as engine:
        yield engine


def labelled(metric: LogMetric, payload: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(payload[label] for label in metric.labels)


def test_runs_that_are_given_up_are_counted_by_reason(
    engine: InProcessEngine, log: CloudLog
) -> None:
    for fails in ("permanently", "always", "not"):
        run = engine.start("books", {"fails": fails})
        engine.run_until_settled(run.run_id)

    metric = METRICS["dead-letters"]
    assert [labelled(metric, each) for each in log.found_by(metric)] == [
        ("PERMANENT_FAILURE", "books"),
        ("RETRIES_EXHAUSTED", "books"),
    ]


def test_attempts_that_are_cut_short_are_counted_by_reason(
    engine: InProcessEngine, log: CloudLog
) -> None:
    engine.faults.kill_at_checkpoint("write", n=1)
    run = engine.start("books", {})
    engine.run_until_settled(run.run_id)

    metric = METRICS["terminated-attempts"]
    assert [labelled(metric, each) for each in log.found_by(metric)] == [
        ("lease_expired", "books", "write")
    ]


def test_blocked_runs_are_counted_by_check(engine: InProcessEngine, log: CloudLog) -> None:
    run = engine.start("books", {"fails": "gate"})
    engine.run_until_settled(run.run_id)

    metric = METRICS["blocked-runs"]
    assert [labelled(metric, each) for each in log.found_by(metric)] == [("books", "quality")]


def test_announcements_are_counted_by_how_they_end(engine: InProcessEngine, log: CloudLog) -> None:
    engine.run_until_announced(engine.run("books", {}).run_id)
    engine.faults.channel_refuses("team")
    engine.run_until_announced(engine.run("books", {}).run_id)
    engine.faults.kill_before_record("team")
    engine.run_until_announced(engine.run("books", {}).run_id)

    ends, delays = METRICS["announcements"], METRICS["announcement-delays"]
    assert [labelled(ends, each) for each in log.found_by(ends)] == [
        ("team", "ANNOUNCEMENT_SENT"),
        ("team", "ANNOUNCEMENT_GIVEN_UP"),
        ("team", "ANNOUNCEMENT_UNKNOWN"),
        ("team", "ANNOUNCEMENT_SENT"),
    ]
    assert [labelled(delays, each) for each in log.found_by(delays)] == [("team",)] * 3
    assert all(isinstance(each[delays.value], int | float) for each in log.found_by(delays))


def test_a_sweep_tells_how_long_the_oldest_waits_and_what_it_left(
    engine: InProcessEngine, log: CloudLog
) -> None:
    sweep(engine.engine, report=Report.ALWAYS)
    left = replace(SweepResult("sweep-1"), unattended=1, oldest_pending_s=7)
    unfinished = replace(SweepResult("sweep-2"), more=True)
    for result in (left, unfinished):
        log_report(line_of(result))

    pending, incomplete = METRICS["oldest-pending"], METRICS["unfinished-sweeps"]
    assert [each[pending.value] for each in log.found_by(pending)] == [0, 7, 0]
    assert [each["sweepJobId"] for each in log.found_by(incomplete)] == ["sweep-1", "sweep-2"]


def test_lines_of_others_do_not_count() -> None:
    line = {"event": "STEP_DEAD_LETTERED", "reason": "NEVER_STARTED", "pipeline": "books"}
    entry = {"resource": {"type": "gce_instance"}, "jsonPayload": line}

    assert not matches(METRICS["dead-letters"].filter, entry)


def test_a_filter_that_uses_more_than_is_tested_is_refused() -> None:
    with pytest.raises(AssertionError, match="not understood"):
        matches('jsonPayload.event=~"STEP.*"', {})


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_its_name_and_labels_are_ones_that_cloud_logging_takes(metric: LogMetric) -> None:
    assert len(metric.id) <= 100
    assert all(label.isidentifier() for label in metric.labels)
    assert len(metric.labels) <= 10


def test_what_a_channel_logs_of_a_blocked_run_is_no_wrong_deploy(
    tmp_path: Path, log: CloudLog
) -> None:
    """Its line says RUN_BLOCKED as well, of what a gate has blocked, too."""
    logging_channel = Registry("channels", [LogChannel(name="log")])
    with testing.engine(replace(CATALOG, channels=logging_channel), tmp_path) as engine:
        run_id = engine.start("books", {"fails": "gate"}).run_id
        run = engine.run_until_settled(run_id)
        (delivery,) = deliveries_of_run(engine.engine, run)
        opener = ChannelOpener({}, engine.engine.clock, log_report, sender_of)
        opener(LogChannel(name="log")).send(delivery, timeout=1)

    assert "RUN_BLOCKED" in [each["jsonPayload"]["event"] for each in log.entries]
    assert log.found_by(METRICS["wrong-deploys"]) == []
