"""`leasehold explain-limit`: the durations behind a step's limit, and what another would do."""

from __future__ import annotations

import math
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

import click

from leasehold.api.budgets import LimitReport
from leasehold.api.limit_effects import IN_FORCE, PROPOSED, WHAT_IF, TriedLimit, limit_effects
from leasehold.api.registry import SettingInForce
from leasehold.api.request_model import ResponseModel
from leasehold.budgets.histogram import Bucket
from leasehold.budgets.phases import Phase
from leasehold.budgets.samples import AttemptSample, Outcome, count
from leasehold.budgets.what_if import thrown_away
from leasehold.cli.opened import client_at, on_this_store
from leasehold.cli.options import SpanType, json_option, url_option
from leasehold.cli.stdout import Row, print_block, print_facts, print_json, print_lines, print_table
from leasehold.cli.streams import note
from leasehold.domain.deadlines import MAX_DEADLINE
from leasehold.domain.printable import counted, one_line
from leasehold.domain.spend import usd_words
from leasehold.domain.timestamps import stamp
from leasehold.frozen import dataclass
from leasehold.presentation.formatting import StyledText, duration

#: So many characters are in a line at most.
_SCREEN: Final = 80
_COLUMNS: Final = ("LIMIT", "AFTER", "WOULD HAVE ENDED", "THROWN AWAY", "A HANG IS NOTICED")


class LimitEffect(ResponseModel):
    """The effect of a limit on the attempts, as `--json` has it."""

    limit: str
    seconds: float
    attempts: int
    ended: int
    lost_minutes: float
    lost_usd: float
    ended_sooner: int
    saved_minutes: float
    saved_usd: float
    unknown: int
    longer: Mapping[str, float | None]


class BucketReport(ResponseModel):
    """A bucket of the histogram: by phase how many ended by themselves, and were ended."""

    up_to_seconds: float
    complete: Mapping[str, int]
    censored: Mapping[str, int]


class LimitExplanation(LimitReport):
    """The answer of `--json`: that of the API, and what follows from it."""

    limits: list[LimitEffect]
    histogram: list[BucketReport]


@click.command("explain-limit")
@click.argument("step")
@click.option(
    "--what-if",
    "tried",
    type=SpanType(MAX_DEADLINE, "7d"),
    multiple=True,
    metavar="SPAN",
    help="A limit to try on the attempts of the window, as 5m; may be given several times.",
)
@url_option
@json_option
def explain_limit(
    *, step: str, tried: tuple[timedelta, ...], url: str | None, as_json: bool
) -> None:
    """Show how long attempts of STEP took, its limit, and the effect of another limit.

    Each phase has a histogram, with the limit in force, the limit that fits the attempts, and each
    --what-if. Nothing is changed. Runs that ended within the window count, 7 days unless
    `budget.window` says otherwise.

    \b
    Examples:
      leasehold explain-limit summarize
      leasehold explain-limit summarize --what-if 5m --what-if 20m
    """  # noqa: D301
    with client_at(url) as client:
        report = client.limit(step)
    effects = limit_effects(report, tried)
    if as_json:
        print_json(_explanation(report, effects.limits, effects.buckets))
    elif not effects.samples:
        note(_nothing(report, step, url))
    else:
        _print(report, effects.samples, effects.limits, effects.buckets)
        if effects.counted < len(effects.samples):
            note(_of_two_windows(effects.counted, len(effects.samples)))


def _explanation(
    report: LimitReport, limits: Sequence[TriedLimit], buckets: Sequence[Bucket]
) -> LimitExplanation:
    return LimitExplanation(
        **dict(report),
        limits=[_effect(one) for one in limits],
        histogram=[
            BucketReport(
                up_to_seconds=round(one.up_to_seconds, 3),
                complete={str(phase): found for phase, found in one.complete.items()},
                censored={str(phase): found for phase, found in one.censored.items()},
            )
            for one in buckets
        ],
    )


def _effect(tried: TriedLimit) -> LimitEffect:
    found = tried.in_history
    return LimitEffect(
        limit=tried.name.replace(" ", "_"),
        seconds=found.limit_seconds,
        attempts=found.attempts,
        ended=found.ended,
        lost_minutes=round(found.lost_seconds / 60, 3),
        lost_usd=round(found.lost_usd, 6),
        ended_sooner=found.ended_sooner,
        saved_minutes=round(found.saved_seconds / 60, 3),
        saved_usd=round(found.saved_usd, 6),
        unknown=found.unknown,
        longer={str(phase): share for phase, share in tried.by_estimate.longer.items()},
    )


def _nothing(report: LimitReport, step: str, url: str | None) -> str:
    """Return that there is no attempt, and what to do."""
    window = duration(timedelta(seconds=report.settings.window_s))
    nothing = f"no attempt of step {step} ended in the last {window}"
    if report.samples_from != "ledger":
        nothing += f", as {_source(report.samples_from)} has it"
    elif url is None:
        nothing = on_this_store(nothing)
    limit = _setting(report.agent_timeout_s)
    return f"{nothing}; its handler has {limit}. Let runs end that have the step, and look again."


# Words for people.


def _of_two_windows(counted_ones: int, samples: int) -> str:
    """Return that a drift leaves the histogram fewer attempts than the table has."""
    return (
        f"durations changed: the histogram and its shares have the {counted_ones} attempts of the "
        f"last day, as the proposal does; the table has all {samples}"
    )


def _print(
    report: LimitReport,
    samples: Sequence[AttemptSample],
    limits: Sequence[TriedLimit],
    buckets: Sequence[Bucket],
) -> None:
    budget = report.budget
    timeout, deadline = _setting(report.agent_timeout_s), _setting(report.dispatch_deadline_s)
    print_facts(
        [
            ("step", f"{budget.step_type}, strategy {budget.strategy}"),
            (IN_FORCE, f"handler {timeout}, deadline {deadline}"),
            (PROPOSED, _proposal(report)),
            ("attempts", _attempts(samples, report.samples_from)),
            ("clipped", _clipped(samples)),
        ]
    )
    if buckets:
        click.echo()
        print_lines(_histogram(limits, buckets))
    click.echo()
    print_table(_COLUMNS, [_row(one, limits[0]) for one in limits])
    print_block("why", (line for reason in budget.reasons for line in _wrapped(one_line(reason))))
    if not buckets:
        note("there is no histogram: failed attempts say nothing of how long the step takes")
    if any(one.in_history.unknown for one in limits):
        note("an attempt that was clipped below a limit might have had a result under it")


def _setting(setting: SettingInForce) -> str:
    if setting.value is None or not math.isfinite(setting.value):
        return "no limit"
    return f"{setting.value:g} s ({setting.source})"


def _proposal(report: LimitReport) -> str:
    proposed = report.budget.proposed
    words = f"handler {round(proposed.timeout_s, 1):g} s, deadline {proposed.total_s:g} s"
    return f"{words}, only proposed" if report.budget.only_proposed else words


def _attempts(samples: Sequence[AttemptSample], source: str) -> str:
    """Return how many there were, who has measured them, since when, and how they ended."""
    found = count(samples, dropped=0)
    parts = (
        (found.successes, "with a result"),
        (found.clipped, "clipped"),
        (found.interrupted, "interrupted"),
        (found.failures, "failed"),
    )
    ends = ", ".join(f"{number} {words}" for number, words in parts if number)
    since = stamp(samples[0].ended_at)
    return f"{len(samples)} of {_source(source)} since {since}: {ends}; {found.cold} of them cold"


def _source(name: str) -> str:
    return "the ledger" if name == "ledger" else "PIPELINE_METRICS_SOURCE"


def _clipped(samples: Sequence[AttemptSample]) -> str:
    clipped = sum(one.outcome is Outcome.CLIPPED for one in samples)
    if not clipped:
        return "none"
    lost = _minutes(*thrown_away(samples))
    return f"{counted(clipped, 'attempt')}, which threw away {lost} of attempts"


def _row(tried: TriedLimit, first: TriedLimit) -> Row:
    """Return what a limit would have done to each attempt, beside the one in force."""
    found = tried.in_history
    limit = duration(timedelta(seconds=tried.seconds))
    later = timedelta(seconds=abs(tried.seconds - first.seconds))
    noticed = f"after {limit}"
    if later:
        noticed = f"{duration(later)} {'sooner' if tried.seconds < first.seconds else 'later'}"
    return (
        StyledText(tried.name, "cyan" if tried.name == WHAT_IF else ""),
        limit,
        f"{found.ended} of {found.attempts}",
        _minutes(found.lost_seconds, found.lost_usd),
        noticed,
    )


def _wrapped(sentence: str) -> list[str]:
    indent = "  "
    return textwrap.wrap(sentence, _SCREEN, initial_indent=indent, subsequent_indent=2 * indent)


def _minutes(seconds: float, usd: float) -> str:
    """Return a time, with its money where handlers say what they spend."""
    minutes = f"{seconds / 60:.1f} min"
    return f"{minutes}, {usd_words(usd)}" if usd else minutes


# The histogram: a line for each bucket, and for each limit where it lies.

_LABEL: Final = 11
_COLUMN_CHARS: Final = 19
_BAR: Final = 12
_HEADS: Final = {
    Phase.BOOTSTRAP: "bootstrap",
    Phase.EXECUTION: "execution",
    Phase.TOTAL: "whole attempt",
}


@dataclass(frozen=True, slots=True)
class _Ink:
    """The characters that the histogram is drawn with."""

    complete: str
    censored: str
    rule: str


_BLOCKS: Final = _Ink("█", "░", "─")
_ASCII: Final = _Ink("#", ">", "-")


def _histogram(limits: Sequence[TriedLimit], buckets: Sequence[Bucket]) -> Iterator[str]:
    """Yield the lines; each phase has its own scale."""
    ink = _ink()
    most = {
        phase: max(one.complete[phase] + one.censored[phase] for one in buckets) for phase in Phase
    }
    heads = "".join(_HEADS[phase].ljust(_COLUMN_CHARS) for phase in Phase)
    yield f"{'up to':>{_LABEL}}  {heads}".rstrip()
    left = sorted(limits, key=lambda one: one.seconds)
    for bucket in buckets:
        while left and left[0].seconds < bucket.up_to_seconds:
            yield _rule(left.pop(0), ink)
        bars = "".join(
            _bar(bucket, phase, most[phase], ink).ljust(_COLUMN_CHARS) for phase in Phase
        )
        yield f"{_label(bucket.up_to_seconds)}  {bars}".rstrip()
    yield from (_rule(one, ink) for one in left)
    yield f"{ink.complete} ended by itself   {ink.censored} was ended, would have taken longer"


def _ink() -> _Ink:
    try:
        "█░─".encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return _ASCII
    return _BLOCKS


def _label(seconds: float) -> str:
    return duration(timedelta(seconds=seconds)).rjust(_LABEL)


def _bar(bucket: Bucket, phase: Phase, most: int, ink: _Ink) -> str:
    """Return the bar of a phase and its count; at least one character of each kind there is."""
    kinds = ((bucket.complete[phase], ink.complete), (bucket.censored[phase], ink.censored))
    total = sum(number for number, _ in kinds)
    if not total:
        return ""
    bars = "".join(
        character * max(1, round((_BAR - 1) * number / most))
        for number, character in kinds
        if number
    )
    return f"{bars} {total}"


def _rule(tried: TriedLimit, ink: _Ink) -> str:
    """Return the line of a limit, with the share of each phase that takes longer."""
    shares = "".join(
        f"{ink.rule} {_share(tried.by_estimate.longer[phase])} ".ljust(_COLUMN_CHARS, ink.rule)
        for phase in Phase
    )
    return f"{_label(tried.seconds)}  {shares} {tried.name}"


def _share(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:.1f} % longer"
