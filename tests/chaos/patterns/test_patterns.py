"""Every pattern at once, while workers, sweeps, senders and pauses are killed at random.

Each item is recorded once and each join sees it once; no signal is lost or taken twice; there are
never more at once, or a minute, than a limit says; each time of a schedule starts one run.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.patterns.catalog import AT_ONCE, FAILS, PER_CALL, PER_MINUTE
from tests.chaos.patterns.processes import WORKERS
from tests.chaos.patterns.scenario import TICKS, Aftermath, Storm, survive
from tests.chaos.patterns.spans import most_at_once
from tests.worlds.emulators import need_firestore

SEED = int(os.environ.get("LEASEHOLD_STORM_SEED", "1"))


def check(after: Aftermath, storm: Storm) -> None:
    assert Counter(run.state for run in after.runs.values()) == {"COMPLETED": len(after.runs)}
    check_handed_on(after)
    check_lists(after, storm)
    check_signals(after)
    check_limits(after)
    check_ticks(after)
    repeated = (len(after.killed) + after.frozen + after.cut_off) * WORKERS
    paid = Counter((one["run"], one["step"]) for one in after.notes if one["event"] == "paid")
    assert len(paid) == 2 * storm.rounds
    assert paid.total() <= len(paid) + repeated
    assert len(after.begun("make")) <= storm.items * storm.rounds + repeated
    for name, runs in runs_by_pipeline(after).items():
        if name == "news":
            shortened = {one["run"] for one in after.begun("shorten")}
            assert len(shortened) == storm.rounds // 2
            assert shortened <= set(runs)


def check_handed_on(after: Aftermath) -> None:
    """All attempts at one place, and at one item of it, are given the same."""
    given: dict[tuple[str, ...], Any] = {}
    for one in after.notes:
        if one["event"] == "begin":
            place = (one["run"], one["step"], one["what"], str(numbers(one["given"])))
            assert given.setdefault(place, one["given"]) == one["given"], place


def numbers(given: Any) -> list[int]:
    """Return the items of what an attempt is given."""
    found = given if isinstance(given, list) else [given]
    return [one["number"] for one in found if isinstance(one, dict) and "number" in one]


def check_lists(after: Aftermath, storm: Storm) -> None:
    """Each join is given each item once, as an attempt at that item made it."""
    made = {one["token"]: one for one in after.notes if one["event"] == "begin"}
    runs = runs_by_pipeline(after)
    for name, step in (("orders", "join"), ("batches", "join"), ("tolerant", "gather")):
        assert len(runs[name]) == storm.rounds
        for run_id in runs[name]:
            joined = after.begun(step, run_id)
            assert joined
            failed = joined[0].get("failed", [])
            assert failed == [
                n for n in range(storm.items) if name == "tolerant" and n % FAILS == 1
            ]
            left = [n for n in range(storm.items) if n not in failed]
            for one in joined:
                assert numbers(one["given"]) == left, run_id
                for item in one["given"]:
                    token, _, at = item["token"].partition("-")
                    maker = made[token]["given"]
                    source = maker[int(at)] if at else maker
                    assert (source["key"], source["number"]) == (item["key"], item["number"])
    shipped = {one["given"]["key"]: one["run"] for one in after.begun("ship")}
    assert len(shipped) == len({one["run"] for one in after.begun("ship")}) == storm.rounds


def check_signals(after: Aftermath) -> None:
    """Each signal is taken by one wait."""
    runs = runs_by_pipeline(after)
    for run_id, run in runs["asking"].items():
        words = [
            {one["given"]["word"] for one in after.begun(it, run_id)} for it in ("ask", "ask-again")
        ]
        assert sorted(map(len, words)) == [1, 1]
        assert words[0] | words[1] == {f"{run.idempotency_key}-{it}" for it in ("first", "second")}
    for run_id, run in runs["orders"].items():
        assert {one["given"]["word"] for one in after.begun("split", run_id)} == {
            f"{run.idempotency_key}-yes"
        }


def check_limits(after: Aftermath) -> None:
    """Never more than the limit are at work at once, or begin in a minute."""
    assert 0 < most_at_once(after.spans("call")) <= AT_ONCE
    assert 0 < most_at_once(after.spans("line")) <= PER_CALL
    begun = sorted(one.begun for one in after.spans("rated"))
    assert all(sum(at <= it < at + 60 for it in begun) <= PER_MINUTE for at in begun)


def check_ticks(after: Aftermath) -> None:
    """Each time of the schedule has one run, and no run has none."""
    assert len(after.ticks) >= TICKS
    assert {
        at for at, run in after.ticks.items() if run is None or run.state != "COMPLETED"
    } == set()
    assert after.labelled == len(after.ticks)
    assert {one["run"] for one in after.begun("tick")} == {
        run.run_id for run in after.ticks.values() if run
    }


def runs_by_pipeline(after: Aftermath) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for run_id, run in after.runs.items():
        found[run.pipeline][run_id] = run
    return found


def test_in_a_storm_every_pattern_keeps_its_word(tmp_path: Path) -> None:
    storm = Storm("sqlite", rounds=2, kills=8, seed=SEED)

    after = survive(storm, tmp_path)

    check(after, storm)


def test_a_storm_in_which_nothing_moves_ends_and_says_what_waits(tmp_path: Path) -> None:
    storm = Storm("sqlite", rounds=1, kills=0, workers=0, calls=1, patience_s=1)

    with pytest.raises(pytest.fail.Exception, match=r"nothing moved for 1 s(.*\n)+.*\(orders\)"):
        survive(storm, tmp_path)


@pytest.mark.skipif(os.environ.get("LEASEHOLD_STORM") != "1", reason="minutes: make storm")
@pytest.mark.parametrize("kind", ["sqlite", "firestore"])
def test_and_in_a_long_storm_on_each_store(tmp_path: Path, kind: str) -> None:
    if kind == "firestore":
        need_firestore()
    storm = Storm(kind, rounds=12, kills=120, seed=SEED, items=20, workers=4, calls=5)

    after = survive(storm, tmp_path, print)

    counts = {step: len(after.begun(step)) for step in ("make", "attempt", "make-batch", "join")}
    most = {what: most_at_once(after.spans(what)) for what in ("call", "line")}
    print(f"{len(after.killed)} kills ({after.frozen} frozen), {len(after.runs)} runs, attempts")  # noqa: T201 - of the nightly
    print(f"{counts}, most at once {most}, {len(after.ticks)} times of the schedule")  # noqa: T201 - likewise
    check(after, storm)
    assert most_at_once(after.spans("call")) == AT_ONCE
