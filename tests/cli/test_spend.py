"""The cost of runs, and the budgets that they block at, on the command line and over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.worlds.catalogs import spending
from tests.worlds.shell import Shell, only_line

pytestmark = pytest.mark.catalog(spending)


@pytest.fixture
def shop(shell: Shell) -> Shell:
    """A shell in whose catalog a run of three amounts of 1.5 dollars and 1000 tokens."""
    shell.settings["LEASEHOLD_CATALOG"] = spending.__name__
    return shell


def start(shop: Shell, *words: str, times: int = 3) -> Any:
    given = f'{{"paid": "{shop.folder}/paid", "times": {times}}}'
    return shop.json("start", "inline", "--input", given, "--in-process", *words)


def test_a_run_blocks_over_its_budget_and_a_higher_one_has_it_go_on(shop: Shell) -> None:
    done = shop.run(
        *("start", "inline", "--input", f'{{"paid": "{shop.folder}/paid", "times": 3}}'),
        *("--in-process", "--budget", "usd=2", "--budget", "tokens=90000", "--json"),
    )
    run = shop.json("runs")["runs"][0]
    blocked = run["runId"]

    waits = shop.run("why", blocked)
    why = waits.stdout
    too_low = shop.run("resume", blocked)
    shown = shop.run("show", blocked).stdout
    listed = shop.run("runs").stdout
    resumed = shop.run("resume", blocked, "--budget", "usd=20", "--reason", "worth it")

    assert done.returncode == 1
    assert (run["status"], run["blockCode"]) == ("BLOCKED", "budget_exceeded")
    assert run["spend"] == {"tokens": 2000, "usd": 3.0}
    finding = "The run has spent 3.00 USD, 2k tokens of its budget of 2.00 USD, 90k tokens"
    assert "waits for a person to decide on step spends-inline (resume or cancel): " in why
    assert f"{finding}. Give it more, such as `leasehold resume RUN --budget usd=6`" in why
    assert f"resume {blocked} --budget usd=6\n" in waits.stderr
    assert too_low.returncode == 2
    assert only_line(too_low.stderr) == (
        f"error: Run {blocked} cannot go on: {finding}. Give it more, such as "
        f"`leasehold resume {blocked} --budget usd=6` (`budget` over HTTP)."
    )
    assert "3.00 USD, 2k tokens of its budget of 2.00 USD, 90k tokens" in shown
    assert "SPENT" in shown
    assert "3.00 USD, 2k tokens" in listed
    assert (resumed.returncode, shop.json("show", blocked)["budget"]) == (
        0,
        {"usd": 20.0, "tokens": 90000},
    )


def test_the_result_of_a_run_has_its_cost(shop: Shell) -> None:
    given = f'{{"paid": "{shop.folder}/paid", "times": 2}}'
    done = shop.run("start", "inline", "--input", given, "--in-process")

    assert ", cost 3.00 USD, 2k tokens" in done.stdout
    assert shop.run("runs").stdout.splitlines()[0].endswith("SPENT")


def test_a_run_that_spends_nothing_shows_nothing_of_it(shop: Shell) -> None:
    start(shop, times=0)

    assert "SPENT" not in shop.run("runs").stdout
    assert "spent" not in shop.run("show", shop.json("runs")["runs"][0]["runId"]).stdout.lower()


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ("usd", "'usd'; allowed: usd=AMOUNT, tokens=NUMBER."),
        ("eur=5", "'eur=5'; allowed: usd=AMOUNT, tokens=NUMBER."),
        ("usd=much", "'usd=much' has no number; allowed: usd=AMOUNT, tokens=NUMBER."),
        ("tokens=1.5", "'tokens=1.5' has no number; allowed: usd=AMOUNT, tokens=NUMBER."),
        ("usd=0", "usd is 0.0; allowed: a number of dollars above 0, at most 1,000,000."),
        ("usd=nan", "usd is nan; allowed: a number of dollars above 0, at most 1,000,000."),
        ("usd=-5", "usd is -5.0; allowed: a number of dollars above 0, at most 1,000,000."),
        ("tokens=-5", "tokens is -5; allowed: a whole number of tokens above 0, at most "),
    ],
)
def test_any_other_budget_is_refused_before_anything_is_started(
    shop: Shell, budget: str, words: str
) -> None:
    refused = shop.run("start", "inline", "--budget", budget, "--in-process")

    assert refused.returncode == 2
    assert words in refused.stderr
    assert not (shop.folder / ".leasehold").exists()


@pytest.mark.parametrize("at", ["pipeline", "step"])
@pytest.mark.parametrize("budget", ["Budget(usd=0)", "Budget(tokens='many')", "Budget()", "5"])
def test_a_catalog_with_such_a_budget_is_refused_in_one_line(
    shell: Shell, at: str, budget: str
) -> None:
    places = {"pipeline": "", "step": "", at: f", budget={budget}"}
    (shell.folder / "catalog_of_budgets.py").write_text(
        "from datetime import timedelta\n"
        "from leasehold import Budget, PipelineEntry, Registry, StepDispatchEntry\n"
        "def work(ctx, given): return given\n"
        "STEPS = Registry('dispatch', [StepDispatchEntry(step_type='work', handler=work,\n"
        "    agent_timeout=timedelta(minutes=1), dispatch_deadline=timedelta(minutes=2)"
        f"{places['step']})])\n"
        "PIPELINES = Registry('pipelines', [PipelineEntry(name='works', steps=('work',)"
        f"{places['pipeline']})])\n"
    )
    shell.settings["LEASEHOLD_CATALOG"] = "catalog_of_budgets"

    refused = shell.run("check")

    assert refused.returncode != 0
    (line,) = [line for line in (refused.stdout + refused.stderr).splitlines() if "budget" in line]
    assert "allowed: " in line


def test_a_server_takes_a_budget_with_a_start_and_with_a_resume(shop: Shell, server: str) -> None:
    given = f'{{"paid": "{shop.folder}/paid", "times": 2}}'
    started = shop.json("start", "inline", "--input", given, "--budget", "usd=1", "--url", server)
    shop.run("pause", started["runId"], "--url", server)
    resumed = shop.run("resume", started["runId"], "--budget", "tokens=50", "--url", server)
    run = shop.json("show", started["runId"], "--url", server)

    assert resumed.returncode == 0, resumed.stderr
    assert run["budget"] == {"usd": 1.0, "tokens": 50}
