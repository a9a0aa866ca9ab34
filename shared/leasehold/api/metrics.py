"""`/metrics`: the figures of a store as the text that Prometheus reads, in its version 0.0.4."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from leasehold.api.call_row import PlainText
from leasehold.services.count_runs import Figures

Series = Mapping[str, float]


def metrics_text(figures: Figures) -> PlainText:
    """Return the figures, a family of lines each."""
    counts = figures.counts
    states = {re.sub("([A-Z])", r"_\1", state).lower(): n for state, n in counts.states.items()}
    lines = [
        *_family("runs", "Runs by state, without the cancelled ones.", "state", states),
        *_family("dead_letters", "Runs that were given up.", "reason", counts.reasons),
        *_single(
            "oldest_due_alarm_seconds",
            "For how long the oldest alarm is due, and no sweep has attended to it.",
            figures.oldest_due_alarm_s,
        ),
        *_family(
            "unowned_runs",
            "Runs without an owner or an alarm that is attended: overdue ones by their alarms, "
            "those without an alarm among the newest.",
            "breach",
            figures.unowned,
        ),
        *_family(
            "attempts",
            "Attempts of the newest runs that left no output that counts.",
            "cause",
            figures.attempts,
        ),
        *_family("deliveries", "Announcements to channels.", "outcome", figures.deliveries),
        *_family(
            "spend_usd",
            "US dollars that the newest runs have spent.",
            "pipeline",
            {name: spend.usd for name, spend in figures.spend.items()},
        ),
        *_family(
            "spend_tokens",
            "Tokens that the newest runs have spent.",
            "pipeline",
            {name: spend.tokens for name, spend in figures.spend.items()},
        ),
        *_single("counted_up_to", "A count that is as high means so many, or more.", counts.most),
        *_single("newest_runs", "How many runs count as the newest.", figures.looked_at),
    ]
    return PlainText("".join(f"{line}\n" for line in lines))


def _family(name: str, says: str, label: str, series: Series) -> Iterator[str]:
    yield from _head(name, says)
    for key, value in series.items():
        yield f'leasehold_{name}{{{label}="{_escaped(key)}"}} {value:.15g}'


def _single(name: str, says: str, value: float) -> Iterator[str]:
    yield from _head(name, says)
    yield f"leasehold_{name} {value:.3f}" if value % 1 else f"leasehold_{name} {value:.0f}"


def _head(name: str, says: str) -> Iterator[str]:
    yield f"# HELP leasehold_{name} {says}"
    yield f"# TYPE leasehold_{name} gauge"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
