"""What the benchmarks share: a row of the report, and how it is written.

A figure is a ratio against a floor that was measured in the same run, round by round, because
the speed of a disk and of a machine changes from minute to minute.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Final

OUT: Final = Path(__file__).parent / "out"


@dataclass(frozen=True, slots=True)
class Figure:
    """One row: what was measured, the floor beside it, and whether the target holds.

    Args:
        name: what was measured.
        value: the median over the rounds.
        unit: of value and floor.
        floor: the median of what it is compared with.
        ratio: the median over the rounds of value to floor.
        target: what the ratio should be, in words: `>= 0.6`; or the value: `value <= 0.3`.
        holds: whether it is.
    """

    name: str
    value: float
    unit: str
    floor: float
    ratio: float
    target: str
    holds: bool


def figure(
    name: str,
    unit: str,
    rounds: Sequence[tuple[float, float]],
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    value_at_most: float | None = None,
) -> Figure:
    """Return the row of rounds of (value, floor); a target is for the ratio or for the value."""
    ratio = median(value / floor for value, floor in rounds)
    value = median(value for value, _ in rounds)
    holds = (at_least is None or ratio >= at_least) and (at_most is None or ratio <= at_most)
    target = _words(at_least, at_most)
    if value_at_most is not None:
        holds, target = holds and value <= value_at_most, f"value <= {value_at_most}"
    return Figure(
        name=name,
        value=round(value, 3),
        unit=unit,
        floor=round(median(floor for _, floor in rounds), 3),
        ratio=round(ratio, 3),
        target=target,
        holds=holds,
    )


def _words(at_least: float | None, at_most: float | None) -> str:
    if at_least is None and at_most is None:
        return "reported"
    if at_least == at_most:
        return f"= {at_least}"
    return f">= {at_least}" if at_least is not None else f"<= {at_most}"


def report(name: str, figures: Sequence[Figure]) -> None:
    """Print the table and write `bench/out/NAME.json`."""
    OUT.mkdir(exist_ok=True)
    rows = [asdict(row) for row in figures]
    (OUT / f"{name}.json").write_text(json.dumps(rows, indent=2) + "\n")
    columns = list(rows[0])
    print(f"\n### {name}\n")
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * len(columns))
    for row in rows:
        print("| " + " | ".join(str(value) for value in row.values()) + " |")
