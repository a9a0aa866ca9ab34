"""A retry policy: what is refused, and what it comes to where it says nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from leasehold.domain.retry import Backoff
from leasehold.errors import InvalidEntryError
from leasehold.registry.dispatch import RetryPolicy, StepDispatchEntry

Entry = Callable[..., StepDispatchEntry]
S = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (RetryPolicy(first=0 * S), "retry.first of 'extraction' in the dispatch registry is"),
        (RetryPolicy(first=-S), "allowed: a timedelta above 0, at most a day, or None"),
        (RetryPolicy(first=10), "retry.first of .* is 10; allowed: a timedelta"),  # type: ignore[arg-type]
        (RetryPolicy(max=timedelta(days=2)), "retry.max of .* at most a day"),
        (RetryPolicy(first=2 * S, max=S), r"retry.max .* allowed: retry.first \(0:00:02\) or more"),
        (RetryPolicy(factor=0.5), "retry.factor .* is 0.5; allowed: a number from 1 to 100"),
        (RetryPolicy(factor=float("nan")), "retry.factor .* is nan"),
        (RetryPolicy(factor=float("inf")), "retry.factor .* is inf"),
        (RetryPolicy(factor=True), "retry.factor .* is True"),
        (RetryPolicy(factor="2"), "retry.factor .* is '2'"),  # type: ignore[arg-type]
        (RetryPolicy(non_retryable="ValueError"), "retry.non_retryable .* allowed: a tuple"),  # type: ignore[arg-type]
        (RetryPolicy(non_retryable=(int,)), "retry.non_retryable .* is <class 'int'>"),  # type: ignore[arg-type]
        (RetryPolicy(non_retryable=(7,)), "retry.non_retryable .* is 7"),  # type: ignore[arg-type]
        (RetryPolicy(non_retryable=("a b",)), "retry.non_retryable .* is 'a b'"),
        (RetryPolicy(non_retryable=("e",) * 21), "at most 20"),
        ({"first": S}, "retry of .* allowed: a RetryPolicy, or None"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(entry: Entry, policy: Any, says: str) -> None:
    with pytest.raises(InvalidEntryError, match=says) as refused:
        entry(retry=policy)

    assert "\n" not in refused.value.message


def test_a_policy_comes_to_seconds_and_names() -> None:
    policy = RetryPolicy(S, 1.5, 9 * S, (KeyError, "httpx:HTTPStatusError", "rate_limited"))

    rule = policy.in_force(Backoff())

    assert (rule.first_s, rule.factor, rule.max_s) == (1.0, 1.5, 9.0)
    assert rule.non_retryable == ("builtins:KeyError", "httpx:HTTPStatusError", "rate_limited")


@pytest.mark.parametrize(
    ("policy", "first", "longest"),
    [
        (RetryPolicy(), 10.0, 300.0),
        (RetryPolicy(first=S), 1.0, 300.0),
        (RetryPolicy(first=600 * S), 600.0, 600.0),
        (RetryPolicy(max=4 * S), 4.0, 4.0),
    ],
)
def test_what_it_leaves_out_is_as_for_all_steps(
    policy: RetryPolicy, first: float, longest: float
) -> None:
    rule = policy.in_force(Backoff())

    assert (rule.first_s, rule.factor, rule.max_s) == (first, 2.0, longest)
