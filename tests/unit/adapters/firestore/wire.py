"""The wire to the emulator: it counts the RPCs, and loses those that a test names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
from google.cloud.firestore_v1.services.firestore import FirestoreClient
from google.cloud.firestore_v1.services.firestore.transports import FirestoreGrpcTransport


@dataclass(frozen=True)
class Place:
    """Where an emulator is, and a project in it."""

    host: str
    project: str


@dataclass
class Fault:
    """The fault of the next call of an RPC; without a code it is what happens before the call."""

    rpc: str
    code: grpc.StatusCode | None
    after: bool = False  # the store did what it was asked; only its answer is lost
    meanwhile: Callable[[], object] = lambda: None


class LostError(grpc.RpcError):
    """An RPC that failed, as the client sees it."""

    def __init__(self, code: grpc.StatusCode) -> None:
        super().__init__()
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return "lost on the wire"

    def result(self) -> None:
        raise self

    def trailing_metadata(self) -> tuple[()]:
        return ()


class Wire(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    """Stands between the official client and the emulator."""

    def __init__(self, host: str) -> None:
        self._host = host
        self.calls: list[str] = []
        self.headers: dict[str, str] = {}
        self.faults: list[Fault] = []

    def connect(self, _: str, __: str) -> Any:
        channel = grpc.intercept_channel(grpc.insecure_channel(self._host), self)
        return FirestoreClient(transport=FirestoreGrpcTransport(channel=channel))

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return self._pass(continuation, details, request)

    def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        return self._pass(continuation, details, request)

    def _pass(self, continuation: Any, details: Any, request: Any) -> Any:
        rpc = details.method.rpartition("/")[2]
        self.calls.append(rpc)
        self.headers = dict(details.metadata)
        fault = next((fault for fault in self.faults if fault.rpc == rpc), None)
        if fault is None:
            return continuation(details, request)
        self.faults.remove(fault)
        if fault.after:
            continuation(details, request).result()
        fault.meanwhile()
        if fault.code is None:
            return continuation(details, request)
        if fault.code is grpc.StatusCode.OK:
            return iter(())  # of what streams: nothing more comes
        raise LostError(fault.code)
