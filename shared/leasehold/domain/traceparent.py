"""The trace of a run: one over all its dispatches, under ids that follow from its life.

Who knows a run knows its trace: so no write is added for it, and the span of an attempt has the
same id in the worker, in the sweep and in a log line. Only a `traceparent` that a caller gave, or
the decision to record, is stored with the run: in its dispatch, as each task carries it.
W3C Trace Context, https://www.w3.org/TR/trace-context/
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, NamedTuple

from leasehold.domain.artifact_name import RunLife

_FORM: Final = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})"
    r"(?P<further>-.*)?",
    re.ASCII,
)
_TRACE: Final = 32
_SPAN: Final = 16


class Parent(NamedTuple):
    """What a `traceparent` says.

    Args:
        trace_id: the trace, 32 hexadecimal digits.
        span_id: the span that is the parent, 16 hexadecimal digits.
        is_sampled: whether the trace is recorded.
    """

    trace_id: str
    span_id: str
    is_sampled: bool

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.is_sampled else '00'}"


class RunTrace(NamedTuple):
    """The trace of a run.

    Args:
        trace_id: the trace, 32 hexadecimal digits.
        span_id: the span of the run itself, 16 hexadecimal digits.
        is_sampled: whether it is recorded.
        parent_id: the span of the caller that began the run; empty: it gave none.
    """

    trace_id: str
    span_id: str
    is_sampled: bool = True
    parent_id: str = ""

    @property
    def traceparent(self) -> str:
        """What a task of the run carries: its work is a part of the run's span."""
        return str(Parent(self.trace_id, self.span_id, self.is_sampled))


def parent_in(text: str | None) -> Parent | None:
    """Return what a `traceparent` says; None: it is not one, and W3C has it ignored."""
    found = _FORM.fullmatch(text or "")
    if found is None or found["version"] == "ff" or (found["version"] == "00" and found["further"]):
        return None
    trace_id, span_id = found["trace"], found["span"]
    if not (trace_id.strip("0") and span_id.strip("0")):
        return None
    return Parent(trace_id, span_id, is_sampled=bool(int(found["flags"], 16) & 1))


def own_trace(run: RunLife) -> RunTrace:
    """Return the trace of a run that no caller gave another."""
    digest = _digest(f"{run.run_id}\n{run.life}")
    return RunTrace(digest[:_TRACE], digest[_TRACE : _TRACE + _SPAN])


def trace_of_run(run: RunLife, traceparent: str | None) -> RunTrace:
    """Return the trace of a run: that of its caller, or its own.

    Args:
        run: the run.
        traceparent: as its dispatch has it; None: it was begun with none.
    """
    own = own_trace(run)
    parent = parent_in(traceparent)
    if parent is None:
        return own
    caller = "" if parent.span_id == own.span_id else parent.span_id
    return RunTrace(parent.trace_id, own.span_id, parent.is_sampled, caller)


def attempt_traceparent(run: RunLife, traceparent: str | None, lease_id: str) -> str | None:
    """Return what the worker of an attempt passes on, as its span; None: the run has no trace."""
    if traceparent is None:
        return None
    trace = trace_of_run(run, traceparent)
    return str(Parent(trace.trace_id, span_of(lease_id), trace.is_sampled))


def span_of(name: str) -> str:
    """Return the id of the span of something that has a name no other has, such as a lease."""
    return _digest(name)[:_SPAN]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
