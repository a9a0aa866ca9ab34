"""Signals to order, for a test that calls a handler itself."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from leasehold import SignalAwaitedError, WaitTimedOutError
from leasehold.errors import InvalidRequestError
from leasehold.testing import step_context
from tests.api.waits.approvals import Approval, ask


def test_a_handler_is_given_the_signal() -> None:
    with step_context(signals={"approval": Approval(approved=True)}) as ctx:
        assert ask(ctx, {}) == {"approved": True, "by": "someone"}


def test_a_wait_without_a_signal_ends_the_attempt() -> None:
    with step_context() as ctx, pytest.raises(SignalAwaitedError) as ended:
        ask(ctx, {"wait_s": 60, "otherwise": "fail"})

    assert (ended.value.name, ended.value.timeout_s, ended.value.otherwise) == (
        "approval",
        60.0,
        "fail",
    )
    assert ended.value.model == "tests.api.waits.approvals:Approval"


@pytest.mark.parametrize("otherwise", ["continue", "fail"])
def test_a_wait_whose_time_is_over(otherwise: str) -> None:
    with step_context(signals={"approval": None}) as ctx:
        if otherwise == "continue":
            assert ask(ctx, {"otherwise": otherwise}) is None
        else:
            with pytest.raises(WaitTimedOutError):
                ask(ctx, {"otherwise": otherwise})


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("name", {"name": "a b"}),
        ("name", {"name": ""}),
        ("timeout", {"timeout": timedelta()}),
        ("timeout", {"timeout": 60}),
        ("otherwise", {"otherwise": "explode"}),
    ],
)
def test_what_a_wait_may_not_be_is_refused_in_one_line(words: str, options: dict[str, Any]) -> None:
    with step_context() as ctx, pytest.raises(InvalidRequestError) as refused:
        ctx.wait_for(**{"name": "approval", **options})

    assert refused.value.message.startswith(f"{words} is ")
    assert "\n" not in refused.value.message
