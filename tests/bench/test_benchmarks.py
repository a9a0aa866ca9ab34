"""The benchmarks run and report; what they measure here is too short to mean anything.

The gate checks exact figures, such as counts of reads and writes. That the others
run is looked at nightly: mypy finds in the gate what calls them wrongly.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import (
    agents,
    announcements,
    at_scale,
    bundle_steps,
    cold_start,
    durable_steps,
    firestore_steps,
    hint_trace,
    lease_cost,
    lists,
    long_steps,
    many_runs,
    measuring,
    phase_cost,
    recovery,
    sandbox,
    serve,
    slow_callers,
)
from leasehold.registry.function_table import FUNCTIONS
from tests.worlds.emulators import firestore_host, need_firestore

ROW = {"name", "value", "unit", "floor", "ratio", "target", "holds"}


def test_a_report_is_a_table_and_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measuring, "OUT", tmp_path / "out")

    measuring.report("x", [measuring.figure("x of y", "ms", [(2.0, 1.0)])])

    (row,) = json.loads((tmp_path / "out/x.json").read_text())
    assert set(row) == ROW
    assert "| x of y |" in capsys.readouterr().out


@pytest.mark.nightly
def test_the_cold_start_of_each_function_is_measured() -> None:
    (row,) = cold_start.measure(rounds=1, entries=["execute_step"])

    assert row.name == "cold start of execute_step"
    assert set(cold_start.NEEDS) == {
        "execute_step",
        "serve_api",
        "manage_lease",
        "sweep_dead_letters",
        "derive_budgets",
        "deliver_notification",
    }


@pytest.mark.nightly
def test_the_imports_of_a_users_modules_are_measured() -> None:
    rows = cold_start.measure_imports(rounds=1)

    assert [row.name for row in rows] == ["import leasehold", "import of what a catalog needs"]


def test_durable_steps_are_measured_alone_together_and_by_their_time() -> None:
    assert [row.name for row in durable_steps.measure(rounds=1, runs=32)] == [
        "durable steps, 1 run at once",
        "durable steps, 32 runs at once",
        "engine time of a step, one run alone",
        "CPU of a durable step, 1 run at once",
        "CPU of a durable step, 32 runs at once",
    ]


def test_the_cost_of_measuring_phases_is_that_of_a_step_with_and_without() -> None:
    (row,) = phase_cost.measure(rounds=1, runs=2)

    assert (row.unit, row.target) == ("us of CPU a step", "value <= 20")
    assert row.floor > 0


def test_the_way_of_a_hint_is_traced_in_the_worker_and_in_its_child() -> None:
    """Its counts are the same in every run, so the gate can check them."""
    rows = {row.name: row.value for row in hint_trace.measure()}

    assert rows["files of a hint, inline"] <= 44
    assert rows["files of a hint, process"] <= 70
    assert rows["calls of a hint, inline"] <= 338
    assert rows["calls between services and worker, inline"] <= 3
    assert rows["Protocols of what runs"] <= 27


def test_the_steps_of_a_server_are_measured_beside_the_engine_s() -> None:
    (row,) = serve.measure(rounds=1, runs=32)

    assert (row.unit, row.target) == ("steps/s", ">= 0.9")
    assert row.value > 0


@pytest.mark.nightly
def test_the_answers_of_a_server_are_measured_beside_slow_callers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slow_callers, "SILENT", 50)

    rows = slow_callers.measure(rounds=1, asked=20)

    assert [row.unit for row in rows] == ["s", "requests/s", "requests/s"]
    assert all(row.value > 0 for row in rows)


@pytest.mark.nightly
def test_durable_steps_are_measured_beside_another_checkout() -> None:
    here = Path(__file__).parents[2]

    rows = durable_steps.measure_beside(here, rounds=1, runs=32)

    assert [row.unit for row in rows] == ["steps/s", "steps/s", "ms", "ms"]
    assert all(row.floor > 0 for row in rows)


@pytest.mark.nightly
@pytest.mark.cold  # the CPU time of each function is found by its command line
def test_steps_through_the_bundle_are_measured_with_where_the_time_goes() -> None:
    rows = bundle_steps.measure(rounds=1, runs=16)

    assert [row.unit for row in rows] == ["steps/s", *["ms"] * (len(FUNCTIONS) + 1)]
    assert {"execute_step", "serve_api"} < {row.name.split()[2].rstrip(",") for row in rows}


def test_a_step_on_firestore_costs_one_read_and_two_writes() -> None:
    """What it costs is exact, however short the run: four RPCs, where the floor takes six."""
    need_firestore()

    rows = {row.name: row for row in firestore_steps.measure(rounds=1, runs=8, at_once=(4,))}

    assert rows["reads a step on Firestore"].value == 1
    assert rows["writes a step on Firestore"].value == 2
    assert rows["rpcs a step on Firestore"].value == 4
    assert rows["writes a channel at the end of a run on Firestore"].value == 1
    assert rows["looks for overrides in 10 s of a process"].value <= 1


@pytest.mark.nightly
def test_the_rest_of_a_step_is_measured_for_each_end_of_its_worker() -> None:
    rows = recovery.measure(samples=1, together=2, ttls={1: 1}, deaf=0)

    assert [row.name for row in rows if "p95" in row.name] == [
        "SIGKILL to entered again, p95 of 1",
        "SIGTERM: handler's end to release, p95 of 1",
        "SIGTERM to release, p95 of 1",
        "SIGKILL unnoticed, lease of 1 s, p95 of 2",
        "SIGKILL of an engine, lease of 1 s, p95 of 2",
    ]
    assert {row.unit for row in rows} == {"ms"}


@pytest.mark.nightly
def test_a_sandbox_is_measured_by_its_time_its_memory_and_how_late_it_ends() -> None:
    rows = sandbox.measure(rounds=1, steps=3, samples=1, grown=(5, 25))

    assert [row.name for row in rows if "worst" not in row.name] == [
        "what a warm sandbox adds to a step",
        "steps with reuse=100, and fresh",
        "hard limit to the end of the process, median of 1",
        "SIGTERM to the stop callback, median of 1",
        "memory of a child that imports nothing, median of 8",
        "memory of a worker and its processes after 25 steps, and after 5",
    ]
    assert {row.unit for row in rows} == {"ms", "/s", "MiB"}
    assert all(row.value > 0 for row in rows)


def test_a_heartbeat_costs_at_most_one_write_and_no_read() -> None:
    """What it costs is exact, however short the run; that it beats at all is seen as well."""
    rows = lease_cost.measure(heartbeats=6, interval=0.2)

    assert [(row.unit, row.target) for row in rows[:2]] == [("writes", "<= 1.0"), ("reads", "<= 0")]
    assert [row for row in rows if not row.holds] == []
    assert all(row.value > 0 for row in rows if row.unit == "writes")


def test_a_ratio_is_the_median_of_its_rounds() -> None:
    row = measuring.figure("x", "steps/s", [(10, 10), (30, 10), (20, 10)], at_least=2.5)

    assert (row.ratio, row.value, row.floor, row.target, row.holds) == (2, 20, 10, ">= 2.5", False)


def test_a_target_may_be_for_the_value_itself() -> None:
    row = measuring.figure("x", "ms", [(0.4, 0.1)], value_at_most=0.3)

    assert (row.ratio, row.target, row.holds) == (4, "value <= 0.3", False)


def test_neither_sweep_nor_list_reads_more_where_there_is_more() -> None:
    """The counts are exact, however few the runs; and a killed batch does nothing twice."""
    size = many_runs.Size(1040, 60, 60)
    rows = at_scale.on_sqlite(size, kills=(30,), backlog=150, waiting=150, checked=100)

    assert [row for row in rows if not row.holds] == []
    assert {row.value for row in rows if row.name.startswith("reads: page")} == {51}
    (reads,) = (row.value for row in rows if row.name.startswith("reads: sweep of 60 due"))
    assert 60 <= reads <= 76
    values = {row.name: row.value for row in rows}
    assert 100 <= values["reads: check of 100 live runs on SQLite"] <= 104
    assert values["recreated once of 60 dead in 1,040 on SQLite, batch killed 1 times"] == 60
    assert {
        f"{what}: sweep of a dead worker's run behind 150 that wait on SQLite"
        for what in ("recovered", "reads", "recovered after")
    } < set(values)


def test_the_pages_that_people_keep_open_read_little() -> None:
    """Counts are exact, however few the runs; times mean nothing here."""
    rows = lists.measure(400, 60, rounds=2)

    assert [row.name for row in rows if not row.holds and row.unit != "ms"] == []
    values = {row.name.removesuffix(" in 460 on SQLite"): row.value for row in rows}
    assert values["reads: overview of 50, no filter,"] <= 52
    assert values["reads: mark of a run"] == 1
    assert values["reads: mark of a page"] == 51
    assert len(rows) == 2 * (len(lists.PAGES) + 6)


def test_the_same_is_read_on_firestore() -> None:
    need_firestore()

    size = many_runs.Size(1040, 60, 52)
    rows = at_scale.on_firestore(firestore_host(), size, kills=(), waiting=150)

    assert [row for row in rows if not row.holds] == []
    assert [row.value for row in rows[:8]] == [51] * 8
    assert rows[9].value == 52
    assert [row.name.rpartition(" on ")[0] for row in rows[10:]] == [
        "recovered: sweep of a dead worker's run behind 150 that wait",
        "reads: sweep of a dead worker's run behind 150 that wait",
        "recovered after: sweep of a dead worker's run behind 150 that wait",
        "last of 40 recovered beside a locked run",
    ]


def test_long_steps_are_measured_on_every_store() -> None:
    """Counts are exact, however few; times mean nothing here."""
    need_firestore()

    rows = long_steps.measure(rounds=1, megabytes=0.1, count=12, kills=2)

    assert [row.name for row in rows if not row.holds and row.unit != "s"] == []
    assert {row.unit for row in rows} == {"iterations", "s", "bytes", "writes", "reads", "files"}


def test_what_announcements_cost_is_exact() -> None:
    """The storm itself is in tests/chaos/storm."""
    rows = announcements.costs("SQLite", runs=4)

    assert [row for row in rows if not row.holds] == []
    assert [row.value for row in rows[:5]] == [1, 2, 1, 1, 3]


def test_agents_that_are_killed_make_no_recorded_call_again() -> None:
    """Counts are exact, however few the calls; times mean nothing here."""
    need_firestore()

    rows = agents.measure(calls=60, kills=2, tools=10, tool_kills=1)

    assert [row.name for row in rows if not row.holds and row.unit not in ("s", "reads")] == []
    reads = [row.value for row in rows if row.unit == "reads"]
    assert reads == [60, 60]
