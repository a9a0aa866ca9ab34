"""The benchmarks run and report; what they measure here is too short to mean anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import durable_steps, measuring


def test_the_benchmark_of_durable_steps_writes_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measuring, "OUT", tmp_path / "out")

    measuring.report("durable_steps", durable_steps.measure(rounds=1, runs=32))

    rows = json.loads((tmp_path / "out/durable_steps.json").read_text())
    assert [row["name"] for row in rows] == [
        "durable steps, 1 run at once",
        "durable steps, 32 runs at once",
        "engine time of a step, one run alone",
    ]
    assert set(rows[0]) == {"name", "value", "unit", "floor", "ratio", "target", "holds"}
    assert "| durable steps, 1 run at once |" in capsys.readouterr().out


def test_a_ratio_is_the_median_of_its_rounds() -> None:
    row = measuring.figure("x", "steps/s", [(10, 10), (30, 10), (20, 10)], at_least=2.5)

    assert (row.ratio, row.value, row.floor, row.target, row.holds) == (2, 20, 10, ">= 2.5", False)
