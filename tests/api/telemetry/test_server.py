"""Telemetry of `leasehold serve`, a real process that SIGTERM ends."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.worlds.otlp import facts_of, otlp_receiver
from tests.worlds.servers import servers


@pytest.mark.sandboxed
@pytest.mark.parametrize("hangs", [False, True])
def test_a_server_sends_what_it_has_at_sigterm_and_waits_for_no_receiver_that_hangs(
    tmp_path: Path, hangs: bool
) -> None:
    settings = {
        "LEASEHOLD_CATALOG": "tests.api.telemetry.steps",
        "PIPELINE_MIN_BACKOFF_S": "0.01",
        "OTEL_BSP_SCHEDULE_DELAY": "600000",  # so that only the end sends it
        "OTEL_METRIC_EXPORT_INTERVAL": "600000",
    }
    with otlp_receiver(hangs=hangs) as receiver, servers(tmp_path) as begin:
        process, api = begin(OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url, **settings)
        api.ended(api.start({"text": "tulips"}, pipeline="letters"))
        assert receiver.requests == 0

        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)

        assert process.returncode == 0
        assert said.count("telemetry is not sent") == hangs
        if not hangs:
            names = [span.name for span in receiver.spans]
            assert names.count("step draft") == 2
            assert "run letters" in names
            causes = {facts_of(s)["cause"] for s in receiver.spans if s.name == "step send"}
            assert causes == {"completed"}
            assert receiver.counts("leasehold.announcements", "outcome") == {("announced",): 1}
