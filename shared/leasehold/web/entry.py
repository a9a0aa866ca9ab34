"""What every function does around the answer to a request: one decorator, and the same for events.

In this order: what is logged meanwhile names the trace of the request; who may not call gets no
further, before a body is read; an error is answered, and never a traceback; and what is left of the
body is dropped.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol, TypeVar

import flask
from werkzeug import Request

from leasehold.logs.for_cloud import lines_of_request
from leasehold.web.exchange import drop_rest, guarded


class Callers(Protocol):
    """Says who may call."""

    def refusal_of(self, request: Request) -> flask.Response | None:
        """Return the answer to a request that may not come in; None: it may."""
        ...


class HasCallers(Protocol):
    """What a function answers with: it knows who may call."""

    @property
    def callers(self) -> Callers | None:
        """Who may call; None: everybody."""
        ...


AnyRequest = TypeVar("AnyRequest", bound=Request)
Opened = TypeVar("Opened", bound=HasCallers)


def entry(
    answer: Callable[[Opened, AnyRequest], flask.Response],
) -> Callable[[Opened, AnyRequest], flask.Response]:
    """Decorate what answers the requests to a function."""

    @functools.wraps(answer)
    def answer_entered(opened: Opened, request: AnyRequest) -> flask.Response:
        with entered(opened, request) as refused:
            try:
                return refused or guarded(partial(answer, opened, request))
            finally:
                drop_rest(request)

    return answer_entered


@contextmanager
def entered(opened: HasCallers, request: Request) -> Iterator[flask.Response | None]:
    """Log with the trace of a request meanwhile; give the answer to one whose caller may not."""
    with lines_of_request(request.headers.get):
        yield None if opened.callers is None else opened.callers.refusal_of(request)


def check_every_request(opened: HasCallers) -> None:
    """Have the framework ask who calls before it does anything else with a request.

    It answers some paths itself, and reads an event whole before it calls the function. Without
    an application nobody serves: the function is only imported.
    """

    def refused() -> flask.Response | None:
        with entered(opened, flask.request) as refused:
            return refused

    if flask.has_app_context():
        flask.current_app.before_request(refused)
