"""A real receiver of OTLP over HTTP: what it got, as the official protobufs read it."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_REQUESTS: dict[str, Any] = {
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
}


class Point(NamedTuple):
    """A point of a series: its attributes, and what the protobuf has."""

    facts: dict[str, Any]
    raw: Any


class OtlpReceiver:
    """What came so far.

    Attributes:
        url: for OTEL_EXPORTER_OTLP_ENDPOINT.
        requests: how many there were.
        hangs: whether no request is answered; those that wait end with the receiver.
        headers: of the last request.
    """

    def __init__(self) -> None:
        self.url = ""
        self.requests = 0
        self.hangs = False
        self.headers: dict[str, str] = {}
        self.over = threading.Event()
        self.asked = threading.Event()
        self._got: list[tuple[str, Any]] = []

    def take(self, path: str, body: bytes) -> None:
        request = _REQUESTS[path]()
        request.ParseFromString(body)
        self._got.append((path, request))

    @property
    def texts(self) -> str:
        """All that came, as text."""
        return "".join(str(request) for _, request in self._got)

    @property
    def spans(self) -> list[Any]:
        """All spans, in the order in which they came."""
        return [
            span
            for path, request in self._got
            if path == "/v1/traces"
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def resource(self) -> dict[str, Any]:
        """The sender of the last traces."""
        of_traces = [request for path, request in self._got if path == "/v1/traces"]
        return facts_of(of_traces[-1].resource_spans[0].resource)

    def metric(self, name: str) -> Any:
        """A metric, as it came last; its points are sums since the start."""
        return [metric for metric in self._metrics if metric.name == name][-1]

    @property
    def _metrics(self) -> list[Any]:
        return [
            metric
            for path, request in self._got
            if path == "/v1/metrics"
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ]

    @property
    def series(self) -> list[dict[str, Any]]:
        """The attributes of each series of all metrics."""
        names = {metric.name for metric in self._metrics}
        return [point.facts for name in sorted(names) for point in self.points(name)]

    def points(self, name: str) -> list[Point]:
        """The points of a metric, as they came last."""
        metric = self.metric(name)
        data = metric.histogram if metric.HasField("histogram") else metric.sum
        return [Point(facts_of(point), point) for point in data.data_points]

    def counts(self, name: str, *facts: str) -> dict[tuple[Any, ...], int]:
        """The count of each series of a counter, by these of its attributes."""
        found = self.points(name)
        return {tuple(p.facts[fact] for fact in facts): p.raw.as_int for p in found}


def facts_of(described: Any) -> dict[str, Any]:
    """The attributes of a span, a point or a resource."""
    return {
        fact.key: getattr(fact.value, fact.value.WhichOneof("value"))
        for fact in described.attributes
    }


@contextmanager
def otlp_receiver(*, hangs: bool = False) -> Iterator[OtlpReceiver]:
    """Listen on a port of this machine."""
    receiver = OtlpReceiver()
    receiver.hangs = hangs

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            receiver.requests += 1
            receiver.headers = dict(self.headers)
            receiver.asked.set()
            if receiver.hangs:
                receiver.over.wait()
                return
            receiver.take(self.path, body)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:  # a caller that is gone
            pass

    server = Server(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.over.set()
        server.shutdown()
        server.server_close()
        thread.join()
