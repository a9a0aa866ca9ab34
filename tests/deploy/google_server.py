"""Google's gRPC APIs on this machine: one server that real clients talk to, and that records.

It has the methods that the installed clients call, with their own messages, as
`google_services.service` reads them off the clients. The methods are in
`google_services/`, a file for each service, which keeps state as the service does; all others are
UNIMPLEMENTED. Pub/Sub is its real emulator behind this server, which lacks only the policies of
topics and subscriptions.

`with GoogleServer() as server:` in a test; `python -m tests.deploy.google_server` in a shell, where
it prints what to set and then a line for each call, until Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final, Self

import grpc
from grpc_status import rpc_status

from leasehold.google_clients.clients import EMULATOR
from tests.deploy.google_services.all import all_services
from tests.deploy.google_services.pubsub import PubSubEmulator
from tests.deploy.google_services.refusals import Refusal, unavailable, unimplemented
from tests.deploy.google_services.service import Method, Service
from tests.deploy.google_services.world import World

_READS: Final = ("Get", "List", "Query", "Search", "Test", "Lookup")
_LONGEST_HANG_S: Final = 60.0


@dataclass(frozen=True)
class Call:
    """One call that arrived.

    Args:
        method: `google.cloud.scheduler.v1.CloudScheduler/CreateJob`.
        request: its message, of the client's own class.
    """

    method: str
    request: Any

    @property
    def is_write(self) -> bool:
        return not self.method.rpartition("/")[2].startswith(_READS)

    def __str__(self) -> str:
        service, _, name = self.method.rpartition("/")
        return f"{service.rpartition('.')[2]}/{name} {_subject(self.request)}".strip()


@dataclass
class Order:
    """The faults of the next calls of some methods, in place of an answer.

    Args:
        pattern: how the method ends, with `*` for anything: `CloudScheduler/*`.
        act: `refuse`, `lose` the answer to what was done, or `hang`.
        times: how many calls; None: all.
    """

    pattern: str
    act: str
    refusal: Refusal
    times: int | None = None

    def takes(self, method: str) -> bool:
        """Return whether a call is one of them; it is used up then."""
        if self.times == 0 or not fnmatchcase(method, f"*{self.pattern}"):
            return False
        if self.times is not None:
            self.times -= 1
        return True


@dataclass
class GoogleServer:
    """The server, from `start` until `stop`.

    Args:
        world: what exists.
        pubsub: the address of the Pub/Sub emulator; empty: there is no Pub/Sub.
        on_call: called with each call.
        port: 0: one that is free.

    Attributes:
        address: host and port, for LEASEHOLD_GOOGLE_EMULATOR.
        calls: all that arrived, in order.
    """

    world: World = field(default_factory=World)
    pubsub: str = ""
    on_call: Callable[[Call], object] = lambda _: None
    port: int = 0
    address: str = ""
    calls: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._orders: list[Order] = []
        self._hanging: list[threading.Event] = []
        self._services = {service.name: service for service in all_services(self.world)}
        self._emulator = PubSubEmulator(self.pubsub) if self.pubsub else None
        self._server = grpc.server(ThreadPoolExecutor(16), handlers=[_Router(self)])

    # -- in a test -----------------------------------------------------------------------------

    def service(self, kind: type[Service]) -> Any:
        """Return the one service of that kind, to look into what it keeps."""
        return next(one for one in self._services.values() if isinstance(one, kind))

    def writes(self) -> list[str]:
        """Return each call that changes something, as `CloudScheduler/CreateJob NAME`."""
        return [str(call) for call in self.calls if call.is_write]

    def called(self, pattern: str) -> list[Any]:
        """Return the requests of the calls of a method, in order."""
        return [call.request for call in self.calls if fnmatchcase(call.method, f"*{pattern}")]

    def refuse(self, pattern: str, refusal: Refusal, times: int | None = None) -> None:
        """Refuse calls of a method; see `Order`."""
        self._orders.append(Order(pattern, "refuse", refusal, times))

    def lose_answer(self, pattern: str, times: int | None = 1) -> None:
        """Do what is called for, and let the caller never hear of it."""
        self._orders.append(Order(pattern, "lose", unavailable("the connection was lost"), times))

    def hang(self, pattern: str, times: int | None = None) -> None:
        """Never answer."""
        self._orders.append(Order(pattern, "hang", unavailable("it hung"), times))

    def forget(self) -> None:
        """Forget the calls and the orders; what exists stays."""
        self.calls.clear()
        self._orders.clear()
        self._end_hanging()

    # -- its life ------------------------------------------------------------------------------

    def start(self) -> Self:
        bound = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        self.address = f"127.0.0.1:{bound}"
        self._server.start()
        return self

    def _end_hanging(self) -> None:
        while self._hanging:
            self._hanging.pop().set()

    def stop(self) -> None:
        self._end_hanging()
        self._server.stop(grace=None).wait(_LONGEST_HANG_S)
        if self._emulator:
            self._emulator.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- a call --------------------------------------------------------------------------------

    def route(self, path: str) -> grpc.RpcMethodHandler | None:
        """Return what answers the calls of a path; None: there is no such method."""
        service_name, _, _ = path.removeprefix("/").rpartition("/")
        if self._emulator and (method := self._emulator.methods.get(path)):
            return self._forwarded(path, method)
        service = self._services.get(service_name)
        if service is None or (method := service.methods().get(path)) is None:
            return None
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self._answer(service, method, request, context),
            request_deserializer=method.read,
            response_serializer=method.write,
        )

    def _answer(
        self, service: Service, method: Method, request: Any, context: grpc.ServicerContext
    ) -> Any:
        self._record(Call(method.path.removeprefix("/"), request))
        order = self._order(method.path)
        self._before(order, context)
        try:
            with self.world.lock:
                answer = service.answer(method, request)
        except Refusal as refusal:
            _refuse(refusal, context)
        except NotImplementedError:
            _refuse(unimplemented(method.path), context)
        if order is not None:
            _refuse(order.refusal, context)
        return answer

    def _forwarded(self, path: str, method: Method) -> grpc.RpcMethodHandler:
        def forward(body: bytes, context: grpc.ServicerContext) -> bytes:
            self._record(Call(path.removeprefix("/"), method.read(body)))
            order = self._order(path)
            self._before(order, context)
            assert self._emulator is not None
            answer = self._emulator.forward(path, body, context)
            if order is not None:
                _refuse(order.refusal, context)
            return answer

        return grpc.unary_unary_rpc_method_handler(forward)

    def _record(self, call: Call) -> None:
        with self.world.lock:
            self.calls.append(call)
        self.on_call(call)

    def _order(self, path: str) -> Order | None:
        with self.world.lock:
            return next((order for order in self._orders if order.takes(path)), None)

    def _before(self, order: Order | None, context: grpc.ServicerContext) -> None:
        """Do what is to be done in place of the call."""
        if order is None or order.act == "lose":
            return
        if order.act == "hang":
            gone = threading.Event()  # the caller, or the patience of the test
            self._hanging.append(gone)
            if context.add_callback(gone.set):
                gone.wait(_LONGEST_HANG_S)
        _refuse(order.refusal, context)


class _Router(grpc.GenericRpcHandler):
    def __init__(self, server: GoogleServer) -> None:
        self._server = server

    def service(self, handler_call_details: Any) -> grpc.RpcMethodHandler | None:
        return self._server.route(handler_call_details.method)


def _refuse(refusal: Refusal, context: grpc.ServicerContext) -> Any:
    context.abort_with_status(rpc_status.to_status(refusal.status()))


def _subject(request: Any) -> str:
    """Return what a request is about: its name or the like."""
    for name in ("name", "resource", "topic", "subscription", "parent", "project"):
        value = getattr(request, name, "")
        if isinstance(value, str) and value:
            return value
    for name in ("job", "database", "service_account"):
        if inner := getattr(getattr(request, name, None), "name", ""):
            return str(inner)
    return ""


def main() -> None:
    """Serve until Ctrl-C, and print each call."""
    words = argparse.ArgumentParser("python -m tests.deploy.google_server", description=__doc__)
    words.add_argument("--port", type=int, default=0)
    words.add_argument("--pubsub", default="", help="HOST:PORT of the Pub/Sub emulator")
    words.add_argument("--project", default="shop-prod")
    options = words.parse_args()
    world = World(project=options.project)
    shown: Mapping[str, Any] = {"on_call": lambda call: print(call, flush=True)}  # noqa: T201
    with GoogleServer(world, options.pubsub, **shown, port=options.port) as server:
        print(f"export {EMULATOR}={server.address}", flush=True)  # noqa: T201
        threading.Event().wait()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
