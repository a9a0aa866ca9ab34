"""A service of the local server, with the methods that a client calls.

The packages of Google's clients have no definitions of services. But each has a transport whose
properties are the methods: the annotation has both messages, and a channel is asked for the path.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import grpc
from google.protobuf.empty_pb2 import Empty

from tests.deploy.google_services.refusals import invalid
from tests.deploy.google_services.world import World


@dataclass(frozen=True)
class Method:
    """A method of a service, with its messages.

    Args:
        path: `/google.cloud.scheduler.v1.CloudScheduler/CreateJob`.
        name: `create_job`.
        request: the class of its message, of proto-plus or of protobuf.
        response: likewise.
    """

    path: str
    name: str
    request: Any
    response: Any

    def read(self, body: bytes) -> Any:
        of = self.request
        return of.deserialize(body) if hasattr(of, "deserialize") else of.FromString(body)

    def write(self, answer: Any) -> bytes:
        of = type(answer)
        return (
            of.serialize(answer)
            if hasattr(of, "deserialize")
            else bytes(answer.SerializeToString())
        )


class Service:
    """A service: a method of the class for each of its own, by the client's name of it.

    Each gets the message and returns one; it raises a `Refusal`.
    """

    #: Its full name, as it is in paths.
    name: ClassVar[str]
    #: The client's transports that call it.
    transports: ClassVar[tuple[type[Any], ...]]

    def __init__(self, world: World) -> None:
        self.world = world

    @classmethod
    @functools.cache
    def methods(cls) -> Mapping[str, Method]:
        """Return the methods that clients call, by their paths."""
        found = {}
        for transport in cls.transports:
            found |= methods_of(transport)
        return {path: method for path, method in found.items() if f"/{cls.name}/" in path}

    def answer(self, method: Method, request: Any) -> Any:
        """Return the answer to a call."""
        answer: Callable[[Any], Any] | None = getattr(self, method.name, None)
        if answer is None:
            raise NotImplementedError
        return answer(request)

    def check_location(self, parent: str) -> None:
        """Refuse a project or region that there is not."""
        _, project, _, region, *_ = [*parent.split("/"), "", "", ""]
        if project and region not in self.world.regions:
            raise invalid(
                f"Location '{region}' is not a valid location. "
                "Use ListLocations to list valid locations."
            )


def copy_of(message: Any) -> Any:
    """Return a copy, so that changing an answer does not change the store."""
    copy = type(message)()
    if hasattr(type(message), "deserialize"):
        type(message).pb(copy).CopyFrom(type(message).pb(message))
    else:
        copy.CopyFrom(message)
    return copy


def masked(stored: Any, new: Any, paths: typing.Iterable[str]) -> Any:
    """Return what is stored with the fields of a mask from the new one, top level alone."""
    changed = copy_of(stored)
    for path in paths:
        setattr(changed, path.partition(".")[0], getattr(new, path.partition(".")[0]))
    return changed


@functools.cache
def methods_of(transport: type[Any]) -> Mapping[str, Method]:
    """Return the methods that a client's transport calls, by their paths."""
    channel = _PathChannel()
    made = transport(channel=channel)
    made._logged_channel, made._stubs = channel, {}  # noqa: SLF001 - they would hide the paths
    found = {}
    for name, member in vars(transport).items():
        if not isinstance(member, property) or member.fget is None:
            continue
        takes = typing.get_args(typing.get_type_hints(member.fget).get("return"))
        if not takes or not isinstance(takes[0], list):
            continue
        channel.paths.clear()
        getattr(made, name)
        for path in channel.paths:
            response = takes[1] if takes[1] is not type(None) else Empty
            found[path] = Method(path, name, takes[0][0], response)
    return found


class _PathChannel(grpc.Channel):
    """A channel that only notes what is asked of it."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def unary_unary(self, method: str, *_: Any, **__: Any) -> Any:
        self.paths.append(method)
        return lambda *_, **__: None

    def unary_stream(self, *_: Any, **__: Any) -> Any:
        return lambda *_, **__: None

    stream_unary = stream_stream = unary_stream

    def subscribe(self, *_: Any, **__: Any) -> None: ...

    def unsubscribe(self, *_: Any, **__: Any) -> None: ...

    def close(self) -> None: ...

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None: ...
