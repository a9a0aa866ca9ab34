"""Telemetry of deployed functions: joined, linked with their lines, and sent before they rest."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.cloud.tasks_v2 import Task as WireTask

from leasehold.devserver.cloud_tasks import CloudTasksDouble
from leasehold.devserver.server import QUEUES
from leasehold.domain.delivery import Delivery
from leasehold.domain.effect import dispatch_task
from leasehold.domain.lifecycle import Operation
from leasehold.domain.traceparent import own_trace, span_of
from leasehold.ports.documents import Query
from leasehold.services.execute_step import Hint, arrive
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.read_runs import get_run
from leasehold.services.start_run import StartRequest, start_run
from leasehold.web.engine_provider import SHUTDOWN
from tests.api.devserver.cloud_tasks.conftest import official_client
from tests.api.functions.test_deliver_notification import of
from tests.worlds.functions import Function, function_of, one_store
from tests.worlds.otlp import OtlpReceiver, facts_of, otlp_receiver
from tests.worlds.waiting import until

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
START = {"pipeline": "letters", "input": {"text": "tulips"}}


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as receiver:
        yield receiver


@pytest.fixture(autouse=True)
def environ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, receiver: OtlpReceiver
) -> dict[str, str]:
    return one_store(
        tmp_path,
        monkeypatch,
        LEASEHOLD_CATALOG="tests.api.telemetry.steps",
        OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url,
        LEASEHOLD_EVENTS="http://127.0.0.1:9",
        PIPELINE_MIN_BACKOFF_S="0.001",
        GOOGLE_CLOUD_PROJECT="shop",
    )


@pytest.fixture
def serve_api() -> Iterator[Function]:
    yield from function_of("serve_api")


@pytest.fixture
def execute_step() -> Iterator[Function]:
    yield from function_of("execute_step")


def test_a_run_joins_the_trace_of_its_caller_in_every_dispatch(
    serve_api: Function, execute_step: Function, receiver: OtlpReceiver
) -> None:
    headers = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
    _, started = serve_api.post("/runs", START, headers=headers)
    for generation in (1, 2, 3):
        execute_step.post(json={"runId": started["runId"], "generation": generation})

    spans = receiver.spans  # each answer waited for them
    run = get_run(execute_step.provider.engine, started["runId"])
    root = next(span for span in spans if span.name == "run letters")
    assert run.status == "COMPLETED"
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    assert (root.parent_span_id.hex(), root.span_id.hex()) == (SPAN, own_trace(run).span_id)
    assert [facts_of(s)["cause"] for s in spans if s.name.startswith("step ")] == [
        "failed",
        "completed",
        "completed",
    ]
    assert run.position.dispatch.traceparent == f"00-{TRACE}-{SPAN}-01"


def test_a_run_of_a_caller_who_records_nothing_is_measured_and_not_traced(
    serve_api: Function, execute_step: Function, receiver: OtlpReceiver
) -> None:
    headers = {"traceparent": f"00-{TRACE}-{SPAN}-00"}
    _, started = serve_api.post("/runs", START, headers=headers)
    execute_step.post(json={"runId": started["runId"], "generation": 1})

    assert receiver.spans == []
    (point,) = receiver.points("agent.execution_seconds")
    assert list(point.raw.exemplars) == []


def test_a_malformed_traceparent_is_ignored(serve_api: Function, receiver: OtlpReceiver) -> None:
    status, started = serve_api.post("/runs", START, headers={"traceparent": "00-x"})

    run = get_run(serve_api.provider.engine, started["runId"])
    assert status == 201
    assert run.position.dispatch.traceparent == own_trace(run).traceparent


def test_the_log_lines_of_an_attempt_name_its_span(
    serve_api: Function,
    execute_step: Function,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    receiver: OtlpReceiver,
) -> None:
    level = logging.root.level
    _, started = serve_api.post("/runs", START)
    execute_step.post(json={"runId": started["runId"], "generation": 1})
    with monkeypatch.context() as patch:
        patch.setattr(logging.root, "handlers", [])  # those of pytest
        try:
            for function in function_of("execute_step"):
                function.post(json={"runId": started["runId"], "generation": 2})
        finally:
            logging.root.setLevel(level)

    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    (asked,) = [line for line in lines if line["message"] == "asked"]
    attempts = [span for span in receiver.spans if span.name == "step draft"]
    span = next(span for span in attempts if facts_of(span)["attempt"] == 2)
    assert {name: asked[name] for name in asked if "/" in name} == {
        "logging.googleapis.com/trace": f"projects/shop/traces/{span.trace_id.hex()}",
        "logging.googleapis.com/spanId": span.span_id.hex(),
        "logging.googleapis.com/trace_sampled": True,
    }


def test_cloud_tasks_gets_the_trace_in_a_header_of_the_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LEASEHOLD_TASKS", "cloud-tasks://p/l")
    monkeypatch.setenv("LEASEHOLD_FUNCTION_URL", "http://127.0.0.1:9")
    with CloudTasksDouble(QUEUES) as double:
        url = double.start()
        double.stop_deliveries()
        monkeypatch.setenv("CLOUD_TASKS_EMULATOR_URL", url)
        for serve_api in function_of("serve_api"):
            _, started = serve_api.post("/runs", START)
            run = get_run(serve_api.provider.engine, started["runId"])
            task = dispatch_task(run)
        with official_client(url) as client:
            name = f"projects/p/locations/l/queues/{task.queue}/tasks/{task.name}"
            full = WireTask.View.FULL
            kept = client.get_task(request={"name": name, "response_view": full})

    assert kept.http_request.headers["traceparent"] == own_trace(run).traceparent


def test_a_remote_worker_gets_the_span_of_its_attempt(
    serve_api: Function, receiver: OtlpReceiver
) -> None:
    headers = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
    serve_api.post("/runs", START | {"pipeline": "far"}, headers=headers)
    for manage_lease in function_of("manage_lease"):
        _, step = manage_lease.post("/leases:claim", {"stepType": "far", "holder": "vm-1"})
        lease = {name: step[name] for name in ("runId", "leaseId", "fencingToken")}
        manage_lease.post("/leases:complete", lease | {"output": '{"text": "tulips"}'})

    (attempt,) = [span for span in receiver.spans if span.name == "step far"]
    assert step["traceparent"] == f"00-{TRACE}-{attempt.span_id.hex()}-01"
    assert (attempt.trace_id.hex(), facts_of(attempt)["agent_id"]) == (TRACE, "far")
    assert "cold_start" not in facts_of(attempt)


def test_a_send_is_in_the_trace_of_the_run_that_it_tells_of(
    serve_api: Function, execute_step: Function, receiver: OtlpReceiver
) -> None:
    headers = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
    _, started = serve_api.post("/runs", START, headers=headers)
    for generation in (1, 2, 3):
        execute_step.post(json={"runId": started["runId"], "generation": generation})
    (found,) = execute_step.provider.engine.documents.query(Query("deliveries"))
    message = of(Delivery.model_validate(found.document))
    for deliver_notification in function_of("deliver_notification"):
        deliver_notification.client.post("/", json=message)

    spans = {span.name: span for span in receiver.spans}
    sent = spans["deliver desk"]
    assert sent.trace_id.hex() == TRACE
    assert sent.parent_span_id == spans["run letters"].span_id
    assert (facts_of(sent)["outcome"], facts_of(sent)["tries"]) == ("announced", 1)


def test_what_is_not_sent_yet_is_sent_at_sigterm(
    execute_step: Function, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")  # nothing else sends it in time
    engine = execute_step.provider.engine
    run = start_run(engine, StartRequest("letters", {"text": "tulips"})).manifest
    leased = arrive(engine, Hint(run.run_id, 1)).answer.manifest
    operate(engine, run.run_id, OperationRequest(Operation.CANCEL, actor="hanna"))

    SHUTDOWN.request()  # as the signal does, which would end this process

    spans = until(lambda: receiver.spans)
    cut = next(span for span in spans if span.name == "step draft")
    assert facts_of(cut)["cause"] == "cancelled"
    assert cut.span_id.hex() == span_of(leased.position.lease.lease_id)
    assert "hanna" not in receiver.texts
