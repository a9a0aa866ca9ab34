"""A route of the runs API, and the request that it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import flask
from werkzeug.datastructures import Headers

from leasehold.api.request_model import RequestModel, fields_of
from leasehold.errors import InvalidRequestError, LeaseholdError
from leasehold.services.engine import Engine
from leasehold.web.actor import actor_of
from leasehold.web.engine_provider import EngineSource
from leasehold.web.request_body import BODY_BYTES, json_body

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
        limit: the most bytes of a body.
    """

    method: str
    path: str
    answer: Callable[[Call[Any]], flask.Response]
    takes: type[RequestModel] | None
    gives: Any
    refuses: tuple[type[LeaseholdError], ...] = ()
    limit: int = BODY_BYTES

    def given(self, request: flask.Request) -> RequestModel | None:
        """Return what was given with a request, or raise InvalidRequestError."""
        if self.takes is None:
            return None
        if self.method == "POST":
            return self.takes.read(json_body(request, self.limit))
        return self.takes.read(_query(request, self.takes))


def _query(request: flask.Request, takes: type[RequestModel]) -> dict[str, str | list[str]]:
    """Return the query; which of two values is meant, nobody knows, but where both may be."""
    repeatable = {name for name, field in fields_of(takes).items() if field.takes_several}
    query: dict[str, str | list[str]] = {}
    for name, values in request.args.lists():
        if len(values) > 1 and name not in repeatable:
            value = ", ".join(values)[:200]
            raise InvalidRequestError(field=name, value=value, allowed="one value")
        query[name] = values if len(values) > 1 else values[0]
    return query
