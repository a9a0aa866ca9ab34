"""The trace of a run, by its life and by its caller."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from leasehold.domain.effect import dispatch_task
from leasehold.domain.lifecycle import start
from leasehold.domain.manifest import Manifest
from leasehold.domain.stored import replace
from leasehold.domain.traceparent import Parent, own_trace, parent_in, trace_of_run
from tests.worlds.builders import new_run, rules_of, step_settings

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
NOW = datetime(2026, 3, 1, tzinfo=UTC)


def run(**fields: object) -> Manifest:
    return start(None, NOW, rules=rules_of(step_settings()), new=new_run(**fields)).manifest


@pytest.mark.parametrize(
    ("text", "parent"),
    [
        (f"00-{TRACE}-{SPAN}-01", Parent(TRACE, SPAN, is_sampled=True)),
        (f"00-{TRACE}-{SPAN}-02", Parent(TRACE, SPAN, is_sampled=False)),
        (f"01-{TRACE}-{SPAN}-01-later", Parent(TRACE, SPAN, is_sampled=True)),
        (f"00-{TRACE}-{SPAN}-01-later", None),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{SPAN}-01", None),
        (f"00-{TRACE}-{SPAN}-01\n", None),
        ("", None),
        (None, None),
    ],
)
def test_a_header_is_read_as_w3c_has_it(text: str | None, parent: Parent | None) -> None:
    assert parent_in(text) == parent


def test_the_own_trace_of_a_run_is_the_same_in_every_process() -> None:
    own = trace_of_run(run(), None)

    assert own == trace_of_run(run(), None) == own_trace(run())
    assert (own.parent_id, own.is_sampled) == ("", True)
    assert own != trace_of_run(run(nonce="another life"), None)


def test_a_run_that_keeps_its_own_trace_has_no_parent() -> None:
    own = own_trace(run())

    kept = trace_of_run(run(traceparent=own.traceparent), own.traceparent)

    assert kept == own


def test_a_task_of_a_joined_run_names_the_run_s_span_as_the_parent() -> None:
    joined = run(traceparent=f"00-{TRACE}-{SPAN}-01")

    assert dispatch_task(joined).traceparent == f"00-{TRACE}-{own_trace(joined).span_id}-01"
    assert dispatch_task(run()).traceparent == ""


def test_a_dispatch_of_an_older_version_has_none() -> None:
    joined = run(traceparent=f"00-{TRACE}-{SPAN}-01")
    position = joined.position
    older = replace(
        joined,
        position=replace(position, dispatch=replace(position.dispatch, traceparent=None)),
    )

    assert trace_of_run(older, older.traceparent) == own_trace(joined)
