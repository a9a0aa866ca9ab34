"""Telemetry costs no work: a receiver that hangs or is away, and none at all."""

from __future__ import annotations

import logging
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from leasehold.bootstrap import Bundle, boot
from leasehold.registry.pipelines import Catalog
from leasehold.services.execute_step import Hint, arrive, execute_step
from leasehold.services.start_run import StartRequest, start_run
from leasehold.services.sweep import sweep
from leasehold.testing import FrozenClock, InProcessEngine
from tests.api.telemetry.steps import CHANNELS, GATES, PIPELINES, STEPS
from tests.worlds.builders import environ_of
from tests.worlds.otlp import OtlpReceiver, facts_of, otlp_receiver
from tests.worlds.ports import own_port
from tests.worlds.waiting import until

CATALOG = Catalog(STEPS, PIPELINES, GATES, CHANNELS)


def not_sent(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [it for it in caplog.messages if it.startswith("telemetry")]


def run_against(folder: Path, url: str, runs: int = 3) -> list[str]:
    """Run letters while telemetry goes to this address; return how they ended."""
    environ = environ_of(folder, OTEL_EXPORTER_OTLP_ENDPOINT=url, PIPELINE_MIN_BACKOFF_S="0.01")
    with InProcessEngine(STEPS, PIPELINES, GATES, CHANNELS, environ=environ, workers=2) as engine:
        begun = [engine.start("letters", {"text": "tulips"}).run_id for _ in range(runs)]
        return [engine.wait(run_id, 60).status.value for run_id in begun]


def test_a_receiver_that_never_answers_delays_no_run_and_is_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with otlp_receiver(hangs=True) as receiver:
        ended = run_against(tmp_path, receiver.url)
        assert receiver.asked.wait(60)
        lines = until(lambda: not_sent(caplog))

    host = receiver.url.removeprefix("http://")
    assert ended == ["COMPLETED"] * 3
    assert lines == [
        (
            f"telemetry is not sent: {host} (OTEL_EXPORTER_OTLP_ENDPOINT) does not take it; "
            f"the work goes on without"
        )
    ]
    assert [record.name for record in caplog.records if "opentelemetry" in record.name] == []


def test_a_receiver_that_is_away_costs_no_run_and_is_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ended = run_against(tmp_path, f"http://ada:hunter2@127.0.0.1:{own_port()}")

    lines = until(lambda: not_sent(caplog))
    assert ended == ["COMPLETED"] * 3
    assert len(lines) == 1
    assert "hunter2" not in caplog.text


def test_a_receiver_that_is_away_is_not_waited_for_again_and_again(tmp_path: Path) -> None:
    """Each call of a function ends with a flush."""
    with otlp_receiver(hangs=True) as receiver, opened(tmp_path, receiver) as bundle:
        engine = bundle.engine
        for _ in range(3):
            run = start_run(engine, StartRequest("letters", {"text": "tulips"})).manifest
            execute_step(engine, Hint(run.run_id, 1))
            engine.telemetry.flush(0.01)

        assert receiver.asked.wait(60)
        assert receiver.requests == 1


class opened:  # noqa: N801 - as a context manager
    """A bundle with a clock of the test's, on a receiver."""

    def __init__(self, folder: Path, receiver: OtlpReceiver) -> None:
        environ = environ_of(folder, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
        self.clock = FrozenClock()
        self.bundle = boot(environ, catalog=CATALOG, clock=self.clock)

    def __enter__(self) -> Bundle:
        return self.bundle

    def __exit__(self, *_: object) -> None:
        self.bundle.close()


def test_a_lease_that_runs_out_is_counted_by_who_ends_it_and_by_who_lost_it(
    tmp_path: Path,
) -> None:
    with otlp_receiver() as receiver:
        world = opened(tmp_path, receiver)
        with world as bundle:
            engine = bundle.engine
            run = start_run(engine, StartRequest("letters", {"text": "tulips"})).manifest
            held = engine.leases.attempt_of(engine, arrive(engine, Hint(run.run_id, 1)))
            world.clock.advance(timedelta(seconds=40))
            sweep(engine)
            held.beat()

        (ended,) = [span for span in receiver.spans if span.name == "step draft"]
        assert facts_of(ended)["cause"] == "expired"
        assert facts_of(ended)["reason"] == "lease_expired"
        took_s = (ended.end_time_unix_nano - ended.start_time_unix_nano) / 1e9
        assert took_s == 30  # its lease, and not until someone looked
        assert receiver.counts("leasehold.attempts", "cause") == {("expired",): 1}
        assert receiver.counts("leasehold.lease_losses", "step_type") == {("draft",): 1}
        assert run.run_id not in str(receiver.series)


def test_a_run_that_is_given_up_is_counted_by_its_reason(tmp_path: Path) -> None:
    with otlp_receiver() as receiver:
        with opened(tmp_path, receiver) as bundle:
            run = start_run(bundle.engine, StartRequest("sinks", {"text": "tulips"})).manifest
            execute_step(bundle.engine, Hint(run.run_id, 1))

        (root,) = [span for span in receiver.spans if span.name == "run sinks"]
        assert (root.status.code, facts_of(root)["reason"]) == (2, "RETRIES_EXHAUSTED")
        assert receiver.counts("leasehold.dead_letters", "reason", "env") == {
            ("RETRIES_EXHAUSTED", "unknown"): 1
        }
        assert "no post today" not in receiver.texts
        assert run.run_id not in str(receiver.series)


def test_a_sampler_of_the_sdk_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    with otlp_receiver() as receiver:
        with opened(tmp_path, receiver) as bundle:
            run = start_run(bundle.engine, StartRequest("sinks", {"text": "tulips"})).manifest
            execute_step(bundle.engine, Hint(run.run_id, 1))

        assert receiver.spans == []
        assert receiver.counts("leasehold.attempts", "cause") == {("failed",): 1}


def test_a_run_joins_the_span_of_the_program_around_it(tmp_path: Path) -> None:
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - of the program

    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("shop")
    with otlp_receiver() as receiver:
        with opened(tmp_path, receiver) as bundle, tracer.start_as_current_span("order") as order:
            run = start_run(bundle.engine, StartRequest("sinks", {"text": "tulips"})).manifest
            execute_step(bundle.engine, Hint(run.run_id, 1))

        (root,) = [span for span in receiver.spans if span.name == "run sinks"]
        around = order.get_span_context()
        assert root.trace_id.hex() == format(around.trace_id, "032x")
        assert root.parent_span_id.hex() == format(around.span_id, "016x")


@pytest.mark.parametrize("address", ["collector:4317", "http://[::1", "http://collector:port"])
def test_a_malformed_address_is_refused_in_a_line_and_runs_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, address: str
) -> None:
    """One without its closing bracket ended the command."""
    with caplog.at_level(logging.WARNING):
        ended = run_against(tmp_path, address, runs=1)

    assert ended == ["COMPLETED"]
    assert caplog.messages[0] == (
        f"there is no telemetry: [bad_setting] OTEL_EXPORTER_OTLP_ENDPOINT is '{address}'; "
        "allowed: http://… or https://…."
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_METRIC_EXPORT_INTERVAL", "0"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "99999"),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "many"),
        ("OTEL_METRICS_EXEMPLAR_FILTER", "none_of_these"),
    ],
)
def test_a_variable_that_the_sdk_refuses_is_said_in_a_line_and_runs_go_on(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
) -> None:
    """Each ended the command, or kept the server from starting."""
    monkeypatch.setenv(name, value)

    with caplog.at_level(logging.WARNING):
        ended = run_against(tmp_path, "http://127.0.0.1:9", runs=1)

    assert ended == ["COMPLETED"]
    assert caplog.messages[0].startswith("there is no telemetry: its SDK raised ValueError: ")


_UNSET = """
import sys
from leasehold.testing import InProcessEngine
from tests.api.telemetry.steps import GATES, PIPELINES, STEPS
with InProcessEngine(STEPS, PIPELINES, GATES, workers=0) as engine:
    engine.start("sinks", {"text": "tulips"})
    engine.run_until_idle()
ours = ("opentelemetry", "leasehold.telemetry")
print([name for name in sys.modules if name.startswith(ours)])
"""


@pytest.mark.cold
def test_nothing_of_it_is_imported_where_it_is_off(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _UNSET],
        env={"PATH": "", "PYTHONPATH": ".", **environ_of(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "[]\n"


def test_without_the_extra_it_says_what_to_install(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "meta_path", [_Hidden(), *sys.meta_path])
    for name in [it for it in sys.modules if it.startswith("opentelemetry.exporter")]:
        monkeypatch.delitem(sys.modules, name)

    ended = run_against(tmp_path, "http://127.0.0.1:9", runs=1)

    assert ended == ["COMPLETED"]
    (line,) = [it for it in caplog.messages if it.startswith("there is no telemetry")]
    assert "[otel]" in line


class _Hidden:
    def find_spec(self, name: str, *_: object) -> None:
        if name == "opentelemetry.exporter.otlp.proto.http":
            raise ModuleNotFoundError(name)
