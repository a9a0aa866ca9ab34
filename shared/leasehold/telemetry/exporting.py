"""How telemetry leaves this process: by the official SDK, over OTLP and HTTP.

It delays nothing and loses no work: threads beside the work send everything, a caller that waits
for them waits for a bounded time, and a receiver that is away or hangs is one line in the log.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExportResult, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

from leasehold.bounded_calls import start_thread
from leasehold.ports.clock import Clock

#: A receiver that did not take it in time is not waited for again so long.
RECEIVER_REST_S: Final = 60.0

#: Who logs each batch that could not be sent: we say it once.
_NOISY: Final = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.exporter.otlp.proto.http.metric_exporter",
    "opentelemetry.exporter.otlp.common.http",
    "opentelemetry.sdk._shared_internal",
    "opentelemetry.sdk.metrics._internal.export",
    "urllib3.connectionpool",
)
_OURS: Final = threading.local()


class Receiver:
    """What is known of the receiver: whether it took what was sent last.

    Args:
        endpoint: where it is.
        log: is given the one line, and leaves out what it was given before.
    """

    def __init__(self, endpoint: str, log: Callable[[str], object]) -> None:
        self.is_away = False
        self._log = log
        self._host = urlsplit(endpoint).netloc.rpartition("@")[2]

    def send(self, send: Callable[..., Any], failure: Any, *given: Any, **options: Any) -> Any:
        """Return what a send comes to; what goes wrong with it is said once."""
        _OURS.is_sending = True
        try:
            result = send(*given, **options)
        except Exception:  # noqa: BLE001 - such as a proxy that answers nonsense
            result = failure
        finally:
            _OURS.is_sending = False
        self.is_away = result is failure
        if self.is_away:
            self.note_silence()
        return result

    def note_silence(self) -> None:
        """Say that telemetry is not sent."""
        self._log(
            f"telemetry is not sent: {self._host} (OTEL_EXPORTER_OTLP_ENDPOINT) does not take it; "
            f"the work goes on without"
        )


class _SpanExporter(OTLPSpanExporter):
    def __init__(self, receiver: Receiver, endpoint: str) -> None:
        super().__init__(endpoint)
        self._receiver = receiver

    def export(self, spans: Any) -> SpanExportResult:
        failure = SpanExportResult.FAILURE
        result: SpanExportResult = self._receiver.send(super().export, failure, spans)
        return result


class _MetricExporter(OTLPMetricExporter):
    def __init__(self, receiver: Receiver, endpoint: str) -> None:
        super().__init__(endpoint)
        self._receiver = receiver

    def export(self, *given: Any, **options: Any) -> MetricExportResult:
        failure, send = MetricExportResult.FAILURE, super().export
        result: MetricExportResult = self._receiver.send(send, failure, *given, **options)
        return result


class GivenIds(RandomIdGenerator):
    """Gives a span the ids that follow from the run, and any others where none are given."""

    def __init__(self) -> None:
        self._next = threading.local()

    def give(self, trace_id: str, span_id: str) -> None:
        """Have the next span that this thread begins get these ids; an empty one: any."""
        self._next.ids = trace_id, span_id

    def generate_trace_id(self) -> int:
        """Return the id of a trace that has no parent."""
        trace_id: str = getattr(self._next, "ids", ("", ""))[0]
        return int(trace_id, 16) if trace_id else super().generate_trace_id()

    def generate_span_id(self) -> int:
        """Return the id of the next span."""
        span_id: str = getattr(self._next, "ids", ("", ""))[1]
        self._next.ids = "", ""
        return int(span_id, 16) if span_id else super().generate_span_id()


class Exporting:
    """The providers of this engine, beside any that the program around it may have.

    What stands in OTEL_* beside the endpoint is the SDK's, and read by it: headers, timeout,
    interval, sampler, resource attributes.

    Args:
        endpoint: the address of the receiver, without a path.
        environ: what may name an address for one signal alone.
        resource: what says who sends.
        clock: the time of this machine.
        log: is given a line when nothing is sent; see `Receiver`.

    Attributes:
        has_news: whether something was noted since the last flush.
    """

    def __init__(
        self,
        endpoint: str,
        environ: Mapping[str, str],
        resource: Mapping[str, str],
        clock: Clock,
        log: Callable[[str], object],
    ) -> None:
        for name in _NOISY:
            logging.getLogger(name).addFilter(_is_not_ours)
        self._clock = clock
        self._receiver = Receiver(endpoint, log)
        self._rests_until = 0.0
        self._flushing: threading.Thread | None = None
        self.has_news = False
        self.ids = GivenIds()
        about = Resource.create(dict(resource))
        spans = _SpanExporter(self._receiver, _address(endpoint, environ, "traces"))
        self._tracers = TracerProvider(
            resource=about, id_generator=self.ids, shutdown_on_exit=False
        )
        self._tracers.add_span_processor(BatchSpanProcessor(spans))
        metrics = _MetricExporter(self._receiver, _address(endpoint, environ, "metrics"))
        reader = PeriodicExportingMetricReader(metrics)
        self._meters = MeterProvider([reader], resource=about, shutdown_on_exit=False)
        self.sampler = self._tracers.sampler
        self.tracer = self._tracers.get_tracer("leasehold")
        self.meter = self._meters.get_meter("leasehold")

    def flush(self, within_s: float) -> None:
        """Send what there is, and wait for that so long at most; not at all for one who is away."""
        now, under_way = self._clock.monotonic(), self._flushing
        if not self.has_news or now < self._rests_until:
            return
        if under_way is not None and under_way.is_alive():
            return
        self.has_news = False
        self._flushing = start_thread(self._flush, "telemetry-flush")
        self._wait(self._flushing, within_s, now)

    def close(self, within_s: float) -> None:
        """Send what there is and end all threads, as far as that takes no longer."""
        now = self._clock.monotonic()
        waits = 0.0 if now < self._rests_until else within_s
        self._wait(start_thread(self._close, "telemetry-close"), waits, now)

    def _wait(self, sending: threading.Thread | None, within_s: float, now: float) -> None:
        if sending is None:
            return
        sending.join(within_s)
        if self._receiver.is_away or (sending.is_alive() and within_s):
            self._rests_until = now + RECEIVER_REST_S
            self._receiver.note_silence()

    def _flush(self) -> None:
        with suppress(Exception):
            self._tracers.force_flush()
            self._meters.force_flush()

    def _close(self) -> None:
        with suppress(Exception):
            self._tracers.shutdown()
            self._meters.shutdown()


def _address(endpoint: str, environ: Mapping[str, str], signal: str) -> str:
    """Return where a signal is sent, as OTLP has it."""
    own = environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    return own or f"{endpoint.rstrip('/')}/v1/{signal}"


def _is_not_ours(_: logging.LogRecord) -> bool:
    """Return whether it is logged of another exporter, such as that of a program around us."""
    return not getattr(_OURS, "is_sending", False)
