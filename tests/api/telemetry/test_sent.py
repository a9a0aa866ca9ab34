"""A run as a real receiver of OTLP gets it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leasehold import PipelineEntry, Registry, StepContext
from leasehold.domain.traceparent import own_trace
from leasehold.telemetry.observed import MAX_TOOL_SERIES
from leasehold.testing import FrozenClock, InProcessEngine
from tests.api.telemetry.steps import CHANNELS, GATES, PIPELINES, STEPS, WORD
from tests.worlds.builders import environ_of
from tests.worlds.otlp import OtlpReceiver, facts_of, otlp_receiver

HERE = "tests.api.telemetry.steps"
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have an engine wait at its end for what a busy machine sends late."""
    for name in ("_TELEMETRY_FLUSH_S", "_SETTLE_TIMEOUT_S"):
        monkeypatch.setattr(f"leasehold.in_process.engine.{name}", 120.0)


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as receiver:
        yield receiver


def opened(folder: Path, receiver: OtlpReceiver, **others: str) -> InProcessEngine:
    environ = environ_of(
        folder,
        OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url,
        DEPLOYMENT_ENV="staging",
        PIPELINE_MIN_BACKOFF_S="0.1",
        **others,
    )
    return InProcessEngine(STEPS, PIPELINES, GATES, CHANNELS, environ=environ, workers=2)


def ran(folder: Path, receiver: OtlpReceiver, text: str = "tulips") -> Any:
    """Run the letters to their end; return the run, and close the engine."""
    with opened(folder, receiver) as engine:
        return engine.wait(engine.start("letters", {"text": text}).run_id)


def test_a_run_is_one_trace_over_all_its_dispatches(tmp_path: Path, receiver: OtlpReceiver) -> None:
    run = ran(tmp_path, receiver)

    spans = receiver.spans
    own = own_trace(run)
    names = {span.name: span for span in spans}
    assert {span.trace_id.hex() for span in spans} == {own.trace_id}
    assert sorted(span.name for span in spans) == [
        "call ask",
        "deliver desk",
        "gate polite",
        "run letters",
        "step draft",
        "step draft",
        "step send",
    ]
    root = names["run letters"]
    assert (root.span_id.hex(), root.parent_span_id) == (own.span_id, b"")
    attempts = [span for span in spans if span.name.startswith("step ")]
    assert {span.parent_span_id for span in attempts} == {root.span_id}
    assert names["deliver desk"].parent_span_id == root.span_id
    drafted = next(s for s in attempts if facts_of(s).items() >= {"attempt": 2}.items())
    for name in ("gate polite", "call ask"):
        inner = names[name]
        assert inner.parent_span_id == drafted.span_id
        assert inner.start_time_unix_nano <= inner.end_time_unix_nano
    assert facts_of(names["gate polite"])["verdict"] == "passed"
    assert root.start_time_unix_nano <= drafted.start_time_unix_nano
    assert drafted.end_time_unix_nano <= root.end_time_unix_nano


def test_each_attempt_is_a_span_that_says_how_it_ended(
    tmp_path: Path, receiver: OtlpReceiver
) -> None:
    run = ran(tmp_path, receiver)

    spans = [s for s in receiver.spans if s.name == "step draft"]
    failed, drafted = sorted(spans, key=lambda span: facts_of(span)["attempt"])
    facts = facts_of(failed)
    for name in ("bootstrap_seconds", "execution_seconds"):
        assert facts.pop(name) >= 0
    assert facts == {
        "run_id": run.run_id,
        "pipeline": "letters",
        "step_type": "draft",
        "attempt": 1,
        "trial": 1,
        "generation": 1,
        "agent_id": f"{HERE}:draft",
        "cause": "failed",
        "cold_start": True,
        "first_tool": "",
        "error.type": "OSError",
    }
    assert failed.status.code == 2
    facts = facts_of(drafted)
    assert (facts["cause"], facts["cold_start"], facts["first_tool"]) == (
        "completed",
        False,
        "model",
    )
    assert facts["execution_seconds"] == run.steps["draft"].execution_seconds
    assert drafted.status.code == 0


def test_both_phases_are_histograms_whose_exemplars_name_the_attempts(
    tmp_path: Path, receiver: OtlpReceiver
) -> None:
    ran(tmp_path, receiver)

    attempts = {s.span_id: facts_of(s) for s in receiver.spans if s.name.startswith("step ")}
    for name, value in (
        ("agent.bootstrap_seconds", "bootstrap_seconds"),
        ("agent.execution_seconds", "execution_seconds"),
    ):
        metric = receiver.metric(name)
        assert (metric.unit, bool(metric.description)) == ("s", True)
        points = receiver.points(name)
        assert points[0].raw.explicit_bounds[-1] == 3600
        found = {(p.facts["step_type"], p.facts["cause"]): p.facts for p in points}
        assert found == {
            (step, cause): {
                "agent_id": f"{HERE}:{step}",
                "step_type": step,
                "first_tool": tool,
                "env": "staging",
                "cold_start": is_cold,
                "cause": cause,
                "outcome": "success" if cause == "completed" else cause,
            }
            for step, tool, is_cold, cause in (
                ("draft", "", True, "failed"),
                ("draft", "model", False, "completed"),
                ("send", "", False, "completed"),
            )
        }
        for point in points:
            (exemplar,) = point.raw.exemplars
            attempt = attempts[exemplar.span_id]
            assert attempt["cause"] == point.facts["cause"]
            assert exemplar.as_double == attempt[value] == point.raw.sum


def named(ctx: StepContext, given: int) -> int:
    """Call the tool of this number first."""
    ctx.mark_bootstrap_complete(f"tool {given}")
    return given


def test_further_first_tools_than_a_hundred_share_one_series(
    tmp_path: Path, receiver: OtlpReceiver
) -> None:
    """A handler may name any number of them, and each series is kept and paid for."""
    step = replace(STEPS["send"], handler=named, isolation="inline")
    pipeline = PipelineEntry(name="named", steps=("send",))
    catalog = Registry("dispatch", [step]), Registry("pipelines", [pipeline])
    environ = environ_of(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
    with InProcessEngine(*catalog, environ=environ, clock=FrozenClock(), workers=0) as engine:
        for number in range(MAX_TOOL_SERIES + 2):
            engine.run_until_settled(engine.start("named", number).run_id)

    points = receiver.points("agent.bootstrap_seconds")
    counts = {point.facts["first_tool"]: point.raw.count for point in points}
    assert (len(counts), counts["tool 99"], counts["other"]) == (MAX_TOOL_SERIES + 1, 1, 2)


def test_spend_is_counted_once_by_step(tmp_path: Path, receiver: OtlpReceiver) -> None:
    ran(tmp_path, receiver)

    ((usd, facts),) = [(one.raw.as_double, one.facts) for one in receiver.points("leasehold.spend")]
    assert (usd, facts) == (0.25, {"step_type": "draft", "env": "staging"})
    assert receiver.counts("leasehold.tokens", "step_type", "env") == {("draft", "staging"): 1200}


@pytest.mark.sandboxed
def test_a_handler_in_its_own_process_needs_no_sdk(tmp_path: Path, receiver: OtlpReceiver) -> None:
    """Its worker makes the spans, that of a recorded call too, and it gets its span to pass on."""
    run = ran(tmp_path, receiver)

    spans = {span.name: span for span in receiver.spans}
    drafted = next(
        span
        for span in receiver.spans
        if span.name == "step draft" and facts_of(span)["cause"] == "completed"
    )
    assert spans["call ask"].parent_span_id == drafted.span_id
    assert facts_of(drafted)["first_tool"] == "model"
    passed_on = spans["step send"]
    ids = f"{passed_on.trace_id.hex()}-{passed_on.span_id.hex()}"
    assert json.loads(run.steps["send"].output) == {"text": f"00-{ids}-01"}
    assert spans.keys() == {
        "call ask",
        "deliver desk",
        "gate polite",
        "run letters",
        "step draft",
        "step send",
    }


def test_attempts_and_announcements_are_counted(tmp_path: Path, receiver: OtlpReceiver) -> None:
    ran(tmp_path, receiver)

    assert receiver.counts("leasehold.attempts", "step_type", "cause", "env") == {
        ("draft", "failed", "staging"): 1,
        ("draft", "completed", "staging"): 1,
        ("send", "completed", "staging"): 1,
    }
    assert receiver.counts("leasehold.announcements", "channel", "outcome", "env") == {
        ("desk", "announced", "staging"): 1
    }


def test_nothing_that_was_said_is_sent_and_no_series_has_a_run(
    tmp_path: Path, receiver: OtlpReceiver
) -> None:
    run = ran(tmp_path, receiver, "tulips")

    assert WORD not in receiver.texts
    assert run.run_id not in str(receiver.series)


def test_an_output_that_a_gate_refuses_blocks(tmp_path: Path, receiver: OtlpReceiver) -> None:
    with opened(tmp_path, receiver) as engine:
        engine.wait(engine.start("letters", {"text": "rude"}).run_id)

    causes = {facts_of(s)["cause"] for s in receiver.spans if s.name == "step draft"}
    gate = next(s for s in receiver.spans if s.name == "gate polite")
    assert causes == {"failed", "blocked"}
    assert facts_of(gate)["verdict"] == "refused"
    assert "rude" not in receiver.texts
    assert "Write it anew" not in receiver.texts


def test_the_sender_says_who_it_is(
    tmp_path: Path, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "team=letters")
    ran(tmp_path, receiver)

    who = receiver.resource
    assert len(who.pop("service.instance.id")) == 16
    assert {name: who[name] for name in who if not name.startswith("telemetry.")} == {
        "service.name": "leasehold",
        "deployment.environment.name": "staging",
        "team": "letters",
    }
