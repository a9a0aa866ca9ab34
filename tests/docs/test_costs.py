"""What the docs say of costs: the operations are counted again, and the arithmetic is right."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bench.run_costs import measure
from docs import costs
from docs.costs import COUNTED, IDLE_SWEEP, Kind
from docs.prices import ALTERNATIVES, PRICES, Price
from leasehold.cli.deploy.cloudbuild import substitutions
from leasehold.deploy.tables import DEFAULTS
from tests.worlds.emulators import need_firestore


def test_a_run_takes_what_the_docs_say() -> None:
    """If it takes more or less now, change `COUNTED` in docs/costs.py, and draw the docs."""
    need_firestore()

    assert [f"{row.name}: {row.value}" for row in measure() if not row.holds] == []


def test_the_tables_are_operations_times_prices() -> None:
    """By hand: 21 writes, 5 reads, 2 operations of tasks, 2 requests, 2 lines of 1 KiB."""
    firestore = 21 * 0.099 / 100_000 + 5 * 0.033 / 100_000
    others = 2 * 0.40 / 1e6 + 2 * 0.40 / 1e6 + 2 * 1024 * 0.50 / 2**30

    assert costs.usd_of(COUNTED["minutes"]) == pytest.approx(firestore + others)
    assert costs.usd_of(IDLE_SWEEP, Kind.READ) == pytest.approx(33 * 0.033 / 100_000)
    assert costs.compute_usd("execute_step", 60) == pytest.approx(60 * (0.000024 + 2 * 0.0000025))
    assert "| **all of them** | **$0.025** | **$0.0092** |" in costs.per_thousand_table()
    assert "| Temporal Cloud | $0.20 | 4 x $50.00 per million" in costs.alternatives_table()


def test_a_run_is_listed_with_its_compute_and_the_ceiling_with_its_figures() -> None:
    page = (Path(__file__).parents[2] / "docs" / "costs.md").read_text()
    whole = 1000 * (costs.usd_of(COUNTED["minutes"]) + costs.compute_usd("execute_step", 180))

    assert f"| **with compute** | **${whole:.2f}** |" in costs.per_thousand_table()
    writes = COUNTED["seconds"][Kind.WRITE]
    a_second = costs.runs_a_second()
    assert f"each of the {writes} writes" in page
    assert f"that is {a_second} runs a second, or {a_second * 3600:,} an hour" in page


def test_prices_are_those_of_the_region_that_a_build_takes_by_default() -> None:
    (region,) = [it.default for it in substitutions(DEFAULTS) if it.name == "_REGION"]
    page = (Path(__file__).parents[2] / "docs" / "costs.md").read_text()

    assert f"for `{region}`, the default of a build" in page


def test_the_hosted_comparison_has_the_compute_in_one_line() -> None:
    line = costs.in_one_line()

    assert "\n" not in line
    assert "cost $5.24 here: $5.22 of compute and $0.025 for all else" in line
    assert "others bill $0.030 to $0.20" in line


@pytest.mark.parametrize("price", [*PRICES, *(each.price for each in ALTERNATIVES)])
def test_each_price_has_its_source_and_date(price: Price) -> None:
    address = urlsplit(price.url)

    assert (address.scheme, bool(address.hostname)) == ("https", True)
    assert re.fullmatch(r"20\d\d(-\d\d-\d\d)?", price.date)
    assert price.evidence in ("vendor's page", "quoted")
    assert price.usd > 0
    assert price.free


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "$0"), (5.22, "$5.22"), (0.2, "$0.20"), (0.0354, "$0.035"), (0.00007276, "$0.000073")],
)
def test_amounts_have_cents_and_small_ones_two_digits(amount: float, text: str) -> None:
    assert costs._usd(amount) == text  # noqa: SLF001 - how all tables write it
