"""A route of the runs API, and the request that it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import flask
from werkzeug.datastructures import Headers

from leasehold.api.request_model import RequestModel
from leasehold.errors import InvalidRequestError, LeaseholdError
from leasehold.services.engine import Engine
from leasehold.web.actor import actor_of
from leasehold.web.engine_provider import EngineSource
from leasehold.web.request_body import json_body

Given = TypeVar("Given")


@dataclass(frozen=True, slots=True)
class Call(Generic[Given]):
    """One request: what was given with it, and what its address names."""

    provider: EngineSource
    headers: Headers
    given: Given
    caller: str = ""  # the email that was checked; empty: nobody signed in
    run_id: str = ""
    step: str = ""
    name: str = ""

    @property
    def actor(self) -> str:
        """Who asks, for the trace; raises InvalidRequestError."""
        return actor_of(self.headers, self.caller)

    @property
    def engine(self) -> Engine:
        """The engine; its stores are opened at the first use."""
        return self.provider.engine


@dataclass(frozen=True, slots=True)
class Route:
    """A method of a path: what answers it, what it takes and what it answers.

    Args:
        method: the method.
        path: as werkzeug writes it.
        answer: called with the request.
        takes: the body of a POST, the query of a GET; None: neither is looked at.
        gives: what is answered; errors are `ErrorResponse`.
        refuses: the errors of its own, for the docs; any route may refuse what it takes, and any
            store may be away.
    """

    method: str
    path: str
    answer: Callable[[Call[Any]], flask.Response]
    takes: type[RequestModel] | None
    gives: Any
    refuses: tuple[type[LeaseholdError], ...] = ()

    def given(self, request: flask.Request) -> RequestModel | None:
        """Return what was given with a request, or raise InvalidRequestError."""
        if self.takes is None:
            return None
        return self.takes.read(json_body(request) if self.method == "POST" else _query(request))


def _query(request: flask.Request) -> dict[str, str]:
    """Return the query; which of two values is meant, nobody knows."""
    for name, values in request.args.lists():
        if len(values) > 1:
            value = ", ".join(values)[:200]
            raise InvalidRequestError(field=name, value=value, allowed="one value")
    return request.args.to_dict()
