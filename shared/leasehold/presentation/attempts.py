"""The attempts of a run as bars on one line of time, on which idle time takes next to no room."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final, NamedTuple

from leasehold.domain.manifest import Manifest
from leasehold.domain.printable import counted, one_line
from leasehold.domain.spend import Spend
from leasehold.domain.trace import TraceEvent, TraceType
from leasehold.frozen import dataclass
from leasehold.presentation.formatting import duration

#: The width of the line of time, in units of its drawing.
LINE_UNITS: Final = 1000
#: A run that goes on for weeks has more attempts: a line of time shows the latest.
MAX_BARS: Final = 100
#: The share of the line that a pause takes at most, and an attempt at least.
_MAX_PAUSE_SHARE: Final = 0.02
_MIN_ATTEMPT_SHARE: Final = 0.004

_MAX_WORDS_CHARS: Final = 300
_ENDS: Final = {
    TraceType.STEP_COMPLETED: "completed",
    TraceType.STEP_ERROR: "failed",
    TraceType.STEP_TERMINATED: "cut short",
    TraceType.STEP_CONTINUED: "continued later",
}


class DrawnCall(NamedTuple):
    """A recorded call, as far as it is drawn."""

    step: str
    trial: int
    key: str
    at: datetime | None
    spend: Spend | None


class CallTick(NamedTuple):
    """A recorded call on the line of time: where it ended, and what it is, in words."""

    x: float
    words: str


@dataclass(frozen=True, slots=True)
class AttemptBar:
    """One attempt.

    Args:
        step: of the run.
        trial: its trial, from 1.
        attempt: its number within step and trial, from 1.
        end: how it ended: `completed`, `failed`, `cut short`, `continued later`; or `running`.
        why: the reason, in words; empty: it needs none.
        began: when its worker got it; None: an earlier version did not measure it.
        ended: when it ended, or the time of the drawing while it runs.
        bootstrap: how long it took up to its first tool call.
        execution: how long it took from there on.
        is_cold: whether it was the first attempt of its process; None: not known.
        first_tool: what ended its bootstrap; empty: it named none.
        holder: who had its lease; empty: not known.
        resumed: what it did not have to repeat, in words; empty: nothing was kept for it.
        x: where its bar begins on the line of time.
        bootstrap_width: how much of the line its bootstrap takes; `execution_width` likewise.
        calls: those that it recorded.
    """

    step: str
    trial: int
    attempt: int
    end: str
    why: str
    began: datetime | None
    ended: datetime
    bootstrap: timedelta
    execution: timedelta
    is_cold: bool | None = None
    first_tool: str = ""
    holder: str = ""
    resumed: str = ""
    x: float = 0.0
    bootstrap_width: float = 0.0
    execution_width: float = 0.0
    calls: tuple[CallTick, ...] = ()

    @property
    def words(self) -> str:
        """The whole of it in a sentence, for who does not see the bar."""
        took = duration(self.bootstrap + self.execution)
        parts = [f"attempt {self.attempt} of step {self.step} {self.end} after {took}"]
        if self.end == "running":
            parts = [f"attempt {self.attempt} of step {self.step} runs for {took}"]
        if self.is_cold is not None:
            parts.append("cold start" if self.is_cold else "warm start")
        parts.append(f"{duration(self.bootstrap)} bootstrap, {duration(self.execution)} work")
        return ", ".join([*parts, *filter(None, (self.resumed, self.why))])


def attempt_bars(
    run: Manifest,
    events: Iterable[TraceEvent],
    now: datetime,
    calls: Sequence[DrawnCall] = (),
) -> list[AttemptBar]:
    """Return the latest attempts of a run, the oldest first, placed on the line of time.

    Args:
        run: the run.
        events: its timeline.
        now: the store's time.
        calls: recorded calls of the step that it is at.
    """
    bars = _placed([*_ended(events), *_running(run, now)][-MAX_BARS:])
    return [_with_calls(bar, calls) for bar in bars] if calls else bars


def _with_calls(bar: AttemptBar, calls: Sequence[DrawnCall]) -> AttemptBar:
    """Return a bar with the calls that it recorded, and how many it was spared."""
    began, took = bar.began, (bar.bootstrap + bar.execution).total_seconds()
    if began is None:
        return bar
    own = [one for one in calls if (one.step, one.trial) == (bar.step, bar.trial) and one.at]
    scale = (bar.bootstrap_width + bar.execution_width) / took if took else 0.0
    ticks = []
    for one in own:
        if one.at is not None and began <= one.at <= bar.ended:
            spent = "" if one.spend is None else f": {one.spend.words}"
            x = round(bar.x + (one.at - began).total_seconds() * scale, 1)
            ticks.append(CallTick(x, one_line(f"call {one.key}{spent}", _MAX_WORDS_CHARS)))
    spared = sum(one.at is not None and one.at < began for one in own)
    words = counted(spared, "recorded call") if spared else ""
    resumed = ", ".join(filter(None, (bar.resumed, words)))
    return replace(bar, calls=tuple(ticks), resumed=resumed)


def _ended(events: Iterable[TraceEvent]) -> Iterator[AttemptBar]:
    resumed = ""
    for event in events:
        if event.type is TraceType.CHECKPOINT_RESUMED:
            resumed = _resumed(event)
        if event.type not in _ENDS or event.step is None:
            continue
        facts = event.model_extra or {}
        bootstrap = _seconds(facts.get("bootstrapSeconds"))
        execution = _seconds(facts.get("executionSeconds"))
        is_measured = facts.get("bootstrapSeconds") is not None
        why = ": ".join(filter(None, (event.reason, event.detail)))
        yield AttemptBar(
            step=event.step,
            trial=event.trial or 1,
            attempt=event.attempt or 1,
            end=_ENDS[TraceType(event.type)],
            why="" if event.type is TraceType.STEP_COMPLETED else one_line(why, _MAX_WORDS_CHARS),
            began=event.at - bootstrap - execution if is_measured else None,
            ended=event.at,
            bootstrap=bootstrap,
            execution=execution,
            is_cold=_flag(facts.get("coldStart")),
            first_tool=one_line(str(facts.get("firstTool") or ""), _MAX_WORDS_CHARS),
            holder=one_line(str(facts.get("holder") or ""), _MAX_WORDS_CHARS),
            resumed=resumed,
        )
        resumed = ""


def _running(run: Manifest, now: datetime) -> Iterator[AttemptBar]:
    """Yield the attempt that has the lease, if one has."""
    at = run.position
    if at.lease is None:
        return
    record, began = run.steps[at.step], at.lease.acquired_at
    passed = max(now - began, timedelta(0))
    bootstrap = min(_seconds(record.bootstrap_seconds), passed)
    kept, is_resumed = at.checkpoint, at.checkpoint is not None and at.checkpoint.saved_at < began
    yield AttemptBar(
        step=at.step,
        trial=at.trial,
        attempt=at.attempt,
        end="running",
        why="",
        began=began,
        ended=max(now, began),
        bootstrap=bootstrap,
        execution=passed - bootstrap,
        is_cold=record.cold_start,
        first_tool=one_line(record.first_tool or "", _MAX_WORDS_CHARS),
        holder=one_line(at.lease.holder, _MAX_WORDS_CHARS),
        resumed=f"resumed from checkpoint {kept.iteration_count}" if kept and is_resumed else "",
    )


def _resumed(event: TraceEvent) -> str:
    facts = event.model_extra or {}
    count, phase = facts.get("iterationCount"), facts.get("phase")
    of_phase = f" of {one_line(str(phase), _MAX_WORDS_CHARS)}" if phase else ""
    return "" if count is None else f"resumed from checkpoint {count}{of_phase}"


def _placed(bars: Sequence[AttemptBar]) -> list[AttemptBar]:
    """Return the bars with their places: pauses between attempts are shortened."""
    if not bars:
        return []
    lengths = [max((bar.bootstrap + bar.execution).total_seconds(), 0.0) for bar in bars]
    whole = sum(lengths) or 1.0
    pauses = [0.0]
    for last, bar in pairwise(bars):
        pause = 0.0 if bar.began is None else (bar.began - last.ended).total_seconds()
        pauses.append(min(max(pause, 0.0), whole * _MAX_PAUSE_SHARE))
    drawn = [max(length, whole * _MIN_ATTEMPT_SHARE) for length in lengths]
    scale = LINE_UNITS / (sum(drawn) + sum(pauses))
    placed, x = [], 0.0
    for bar, length, took, pause in zip(bars, drawn, lengths, pauses, strict=True):
        x += pause * scale
        share = bar.bootstrap.total_seconds() / took if took else 0.0
        width = length * scale
        placed.append(
            replace(
                bar,
                x=round(x, 1),
                bootstrap_width=round(width * share, 1),
                execution_width=round(width * (1 - share), 1),
            )
        )
        x += width
    return placed


def _seconds(value: Any) -> timedelta:
    """Return a span that an event tells of; a server that is asked may say anything."""
    if isinstance(value, int | float) and 0 <= value < timedelta.max.total_seconds() / 1000:
        return timedelta(seconds=value)
    return timedelta(0)


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None
