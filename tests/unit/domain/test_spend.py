"""Spend is counted once, however often it is written, and whatever ends an attempt."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.manifest import Manifest
from leasehold.domain.notes import Notes
from leasehold.domain.spend import (
    NOTHING,
    Spend,
    checked_spend,
    spend_of,
    total_of,
    usd_words,
)
from leasehold.errors import InvalidRequestError
from tests.unit.domain.runs import Runs

DOLLAR = Spend(tokens=1000, usd=1.0)


def renewed(runs: Runs, run: Manifest, *, at: float = 1, **notes: Any) -> Manifest:
    fence = runs.fence(run)
    return lifecycle.renew(
        run, runs.at(at), rules=runs.rules, fence=fence, notes=Notes(**notes)
    ).manifest


# -- amounts -----------------------------------------------------------------------------------


def test_many_small_amounts_do_not_drift() -> None:
    """Added as floats alone, they make 0.00099999999977 dollars."""
    total = total_of(spend_of(1, 0.0000001) for _ in range(10_000))

    assert total == Spend(tokens=10_000, usd=0.001)


@pytest.mark.parametrize(
    ("tokens", "usd", "expected"),
    [
        (0, 0, NOTHING),
        (12, 0.5, Spend(tokens=12, usd=0.5)),
        (0, 3, Spend(usd=3.0)),
        (0, Decimal("0.0000000016"), Spend(usd=0.000000002)),
    ],
)
def test_amounts_are_taken_as_they_come(tokens: object, usd: object, expected: Spend) -> None:
    assert checked_spend(tokens, usd) == expected


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("tokens", value) for value in (-1, 1.5, float("nan"), "12", None, True, 10**13)),
        *(("usd", value) for value in (-0.01, float("nan"), float("inf"), "1", None, True, 1e7)),
        ("usd", Decimal("sNaN")),
        ("usd", 10**400),
    ],
)
def test_any_other_value_is_refused_in_one_line(field: str, value: object) -> None:
    with pytest.raises(InvalidRequestError, match=f"^.*{field} is .*; allowed: .* from 0 to") as no:
        checked_spend(**{"tokens": 0, "usd": 0.0, field: value})

    assert "\n" not in str(no.value)


@pytest.mark.parametrize(
    ("spend", "words"),
    [
        (NOTHING, "nothing"),
        (Spend(usd=1.236), "1.24 USD"),
        (Spend(usd=1234.5, tokens=310_400), "1,234.50 USD, 310k tokens"),
        (Spend(usd=0.0123, tokens=950), "0.012 USD, 950 tokens"),
        (Spend(tokens=9_530), "9.5k tokens"),
        (Spend(tokens=1_200_000, usd=0.00000035), "0.00000035 USD, 1.2M tokens"),
    ],
)
def test_an_amount_is_shown_with_the_digits_that_say_something(spend: Spend, words: str) -> None:
    assert spend.words == words


def test_no_dollars_are_shown_as_such() -> None:
    assert usd_words(0) == "0.00 USD"


# -- counted once ------------------------------------------------------------------------------


def test_a_write_that_is_repeated_counts_what_was_spent_once(runs: Runs) -> None:
    """The answer to the first one may have been lost."""
    run = runs.leased()

    for _ in range(3):
        run = renewed(runs, run, spent=DOLLAR, recorded_spend=DOLLAR)

    assert run.steps["draft"].spend == Spend(tokens=2000, usd=2.0)


def test_each_attempt_adds_to_what_those_before_have_spent(runs: Runs) -> None:
    run = renewed(runs, runs.leased(), spent=DOLLAR)
    failed = lifecycle.fail(
        run,
        runs.at(2),
        rules=runs.rules,
        fence=runs.fence(run),
        error=runs.error(),
        notes=Notes(spent=Spend(tokens=1500, usd=1.0)),
    ).manifest

    again = renewed(runs, runs.leased(failed, at=60, lease_id="lease-2"), at=61, spent=DOLLAR)

    assert failed.steps["draft"].spend == Spend(tokens=1500, usd=1.0)
    assert again.steps["draft"].spend == Spend(tokens=2500, usd=2.0)


def test_what_a_killed_attempt_recorded_and_did_not_count_the_next_one_counts(runs: Runs) -> None:
    """A result is recorded beside the run, whose own document follows with the next write."""
    killed = renewed(runs, runs.leased(), recorded_spend=DOLLAR)
    lease = killed.position.lease
    assert lease is not None
    expired = lifecycle.expire(killed, runs.at(40), rules=runs.rules, lease_id=lease.lease_id)

    again = runs.leased(expired.manifest, at=41, lease_id="lease-2")
    counted = renewed(runs, again, at=42, recorded_spend=Spend(tokens=3000, usd=3.0))
    fewer = renewed(runs, counted, at=43, recorded_spend=DOLLAR)  # some results are gone

    assert counted.steps["draft"].spend == Spend(tokens=3000, usd=3.0)
    assert fewer.steps["draft"].spend == Spend(tokens=3000, usd=3.0)


def test_the_last_write_of_a_step_keeps_its_spend_and_the_next_step_has_its_own(
    runs: Runs,
) -> None:
    run = runs.leased()
    done = lifecycle.complete(
        run,
        runs.at(5),
        rules=runs.rules,
        fence=runs.fence(run),
        output=KeptValue(text='"Dear Ada"'),
        notes=Notes(spent=DOLLAR, recorded_spend=DOLLAR, spared=DOLLAR),
    ).manifest

    sent = renewed(runs, runs.leased(done, at=6, lease_id="lease-2"), at=7, recorded_spend=DOLLAR)

    assert (done.steps["draft"].spend, done.steps["draft"].spared) == (
        Spend(tokens=2000, usd=2.0),
        DOLLAR,
    )
    assert sent.steps["send"].spend == DOLLAR


def test_a_step_that_spends_nothing_keeps_nothing_of_it(runs: Runs) -> None:
    run = renewed(runs, runs.leased(), spent=NOTHING)

    assert run.steps["draft"].spend is None
    assert run.position.lease is not None
    assert run.position.lease.spent is None
