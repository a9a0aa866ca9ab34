"""The trace of a request, as Google's front ends name it, in what is logged meanwhile."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

from werkzeug import Request

from leasehold.logs.for_cloud import lines_of_request

AnyRequest = TypeVar("AnyRequest", bound=Request)
Opened = TypeVar("Opened")
Answered = TypeVar("Answered")


def names_trace(
    answer: Callable[[Opened, AnyRequest], Answered],
) -> Callable[[Opened, AnyRequest], Answered]:
    """Decorate `answer` so that what it logs names the trace of its request."""

    @functools.wraps(answer)
    def answer_with_trace(opened: Opened, request: AnyRequest) -> Answered:
        with lines_of_request(request.headers):
            return answer(opened, request)

    return answer_with_trace
