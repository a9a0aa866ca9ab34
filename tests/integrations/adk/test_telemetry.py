"""Runs are sent by the OpenTelemetry that the library needs, older than that of the gate."""

from __future__ import annotations

from pathlib import Path

from leasehold.domain.traceparent import own_trace
from tests.api.telemetry.test_sent import ran
from tests.worlds.otlp import otlp_receiver


def test_a_run_is_sent_as_one_trace(tmp_path: Path) -> None:
    with otlp_receiver() as receiver:
        run = ran(tmp_path, receiver)

    assert {span.trace_id.hex() for span in receiver.spans} == {own_trace(run).trace_id}
    assert {"run letters", "step draft", "step send"} <= {span.name for span in receiver.spans}
