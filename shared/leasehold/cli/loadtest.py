"""`leasehold loadtest`: what the phases of steps take while many runs are live at once."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import click

from leasehold.api.budgets import LimitReport
from leasehold.api.request_model import ResponseModel
from leasehold.budgets.proposal import BudgetProposal, Limit
from leasehold.cli.exit_codes import (
    DONE,
    INTERRUPTED,
    NOT_COMPLETED,
    TERMINATED,
    TerminatedError,
    end_on_sigterm,
)
from leasehold.cli.invocation import command_line, url_words
from leasehold.cli.opened import client_at
from leasehold.cli.options import GivenInput, SpanType, input_option, json_option, url_option
from leasehold.cli.stdout import Fact, Row, print_facts, print_json, print_table
from leasehold.cli.streams import note, warn
from leasehold.cli.watch import ServerLook
from leasehold.client.client import Client
from leasehold.client.load_test import (
    HELD,
    LABEL,
    Load,
    LoadLevel,
    PhaseFigures,
    budget_from,
    figures_of,
    put_load,
)
from leasehold.domain.manifest_parts import step_type_at
from leasehold.domain.printable import counted
from leasehold.errors import LeaseholdError, UnknownPipelineError
from leasehold.presentation.formatting import duration
from leasehold.services.request_bounds import MAX_PAGE_ITEMS

_MAX_DURATION: Final = timedelta(days=1)
_MAX_RUNS_PER_S: Final = 100.0
_MAX_LIVE_RUNS: Final = 256
_MAX_LEVELS: Final = 8
#: The first line of progress comes after this time, later ones after longer waits.
_FIRST_REPORT_S: Final = 1.0
_REPORT_EVERY_S: Final = 5.0
_REPORTS: Final = 20
#: Runs that are live at most, and attempts: a screen has 80 columns.
_PHASE_COLUMNS: Final = ("STEP", "PHASE", "RUNS", "N", "CUT", "P50 S", "P95 S", "P99 S", "MAX S")
_BUDGET_COLUMNS: Final = ("STEP", "RUNS", "N", "DEADLINE", "PROPOSED", "EXECUTION")


class RateType(click.ParamType[float]):
    """How many runs are started in a second."""

    name = "N"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number."""
        try:
            rate = float(value)
        except ValueError:
            rate = 0.0
        if not 0 < rate <= _MAX_RUNS_PER_S:  # NaN is neither
            allowed = f"a number above 0, up to {_MAX_RUNS_PER_S:g}"
            self.fail(f"{str(value)[:60]!r}; allowed: {allowed}.", param, ctx)
        return rate


class LevelsType(click.ParamType[tuple[int, ...]]):
    """How many runs are live at most: one number, or several that are tried one after another."""

    name = "N[,N...]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the numbers, in their order."""
        words = str(value).split(",")
        levels = tuple(int(word) for word in words if word.isascii() and word.isdecimal())
        is_good = len(levels) == len(words) == len(set(levels)) <= _MAX_LEVELS
        if not is_good or not all(0 < level <= _MAX_LIVE_RUNS for level in levels):
            allowed = f"1 to {_MAX_LIVE_RUNS}, or up to {_MAX_LEVELS} such numbers as 1,4,16"
            self.fail(f"{str(value)[:60]!r}; allowed: {allowed}.", param, ctx)
        return levels


@click.command()
@click.argument("pipeline")
@click.option(
    "--rate",
    type=RateType(),
    default="1",
    show_default=True,
    help="How many runs are started in a second at most.",
)
@click.option(
    "--concurrency",
    "levels",
    type=LevelsType(),
    default="4",
    show_default=True,
    help="How many runs are live at most; several are tried one after another.",
)
@click.option(
    "--duration",
    "span",
    type=SpanType(_MAX_DURATION, "1d"),
    default="1m",
    show_default=True,
    metavar="SPAN",
    help="How long runs are started, for each concurrency.",
)
@input_option("The input of the first step: JSON, @FILE, or @- for stdin.  [default: {}]", "{}")
@url_option
@json_option
def loadtest(
    *,
    pipeline: str,
    rate: float,
    levels: tuple[int, ...],
    span: timedelta,
    given: GivenInput,
    url: str | None,
    as_json: bool,
) -> int:
    """Start runs of PIPELINE at a rate, and show how long each phase of each step took.

    The runs are real, and so is their cost. `leasehold serve` or `leasehold dev` works on them:
    give its --url, because a server finds a run of its store only within a second. The command
    waits for all runs that it started. Ctrl-C ends it with the figures so far.

    Exits with 0 when all runs completed, 1 when some did not.

    \b
    Examples:
      leasehold loadtest summary --input @request.json --rate 2 --concurrency 8 --duration 2m
      leasehold loadtest summary --concurrency 1,4,16 --url http://127.0.0.1:8080
    """  # noqa: D301
    end_on_sigterm()
    load = Load(secrets.token_hex(4), pipeline, given.value, rate, span)
    done: list[LoadLevel] = []
    interrupt: KeyboardInterrupt | None = None
    known: Mapping[str, LimitReport] = {}
    with client_at(url) as client:
        steps = _steps_of(client, pipeline)
        try:
            for level in map(LoadLevel, levels):
                done.append(level)
                _put(client, load, level)
                if level.problem:
                    break
        except KeyboardInterrupt as caught:
            interrupt = caught
        known, now = _known(client, steps), client.connection.now()
    budgets = {
        (level.concurrency, step): budget_from(level, step, report, now)
        for level in done
        for step, report in known.items()
        if level.samples.get(step)
    }
    answer = _answer(load, done, budgets, is_interrupted=interrupt is not None)
    if as_json:
        print_json(answer)
    else:
        _print(answer)
    _note_ways_back(load, done, url)
    return _exit_code(done, interrupt)


def _steps_of(client: Client, pipeline: str) -> list[str]:
    """Return the step types of the pipeline; UnknownPipelineError: there is no such one."""
    pipelines = {one.name: one for one in client.registry().pipelines}
    if pipeline not in pipelines:
        raise UnknownPipelineError(pipeline=pipeline, known=", ".join(pipelines))
    found = pipelines[pipeline]
    return list(dict.fromkeys(step_type_at(found.places, name) for name in found.steps))


def _put(client: Client, load: Load, level: LoadLevel) -> None:
    """Put the load of one level, and say how far it is from time to time."""
    servers, next_at = ServerLook(client), _FIRST_REPORT_S

    def report(level: LoadLevel, seconds: float) -> None:
        nonlocal next_at
        if level.live and not level.over:
            servers.look()
        if seconds >= next_at:
            next_at = seconds + max(_REPORT_EVERY_S, seconds / _REPORTS)
            note(_progress(level, load))

    put_load(client, load, level, report)


def _progress(level: LoadLevel, load: Load) -> str:
    passed, whole = duration(timedelta(seconds=level.starting_s)), duration(load.duration)
    counts = f"{level.started} started, {level.over} over, {len(level.live)} live"
    return f"concurrency {level.concurrency}: {passed} of {whole}, {counts}"


def _known(client: Client, steps: Sequence[str]) -> dict[str, LimitReport]:
    """Return the limits of the steps, as far as they can be read."""
    try:
        return {step: client.limit(step) for step in steps}
    except LeaseholdError as error:
        warn(f"no budget is derived: {error.message}")
        return {}


def _exit_code(done: Sequence[LoadLevel], interrupt: KeyboardInterrupt | None) -> int:
    if interrupt is not None:
        return TERMINATED if isinstance(interrupt, TerminatedError) else INTERRUPTED
    are_good = all(not one.problem and one.ends["completed"] == one.started for one in done)
    return DONE if are_good else NOT_COMPLETED


# The answer, for programs and for people.


class PhaseReport(ResponseModel):
    """The percentiles of a phase, in seconds."""

    step: str
    phase: str
    cold: bool
    attempts: int
    cut_off: int
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None
    max_s: float | None


class LimitSeconds(ResponseModel):
    """A limit, in seconds."""

    total_s: float
    execution_s: float


class BudgetReport(ResponseModel):
    """The limits that follow from the attempts of one concurrency alone."""

    step: str
    attempts: int
    declared: LimitSeconds
    proposed: LimitSeconds | None
    reasons: tuple[str, ...]


class LevelReport(ResponseModel):
    """One concurrency."""

    concurrency: int
    seconds: float
    started: int
    starts_a_second: float
    ended_a_minute: float
    ends: Mapping[str, int]
    live: int
    problem: str | None
    phases: list[PhaseReport]
    budgets: list[BudgetReport]


class LoadReport(ResponseModel):
    """The answer of `--json`; `label` finds the runs."""

    label: str
    pipeline: str
    rate: float
    interrupted: bool
    levels: list[LevelReport]


_Budgets = Mapping[tuple[int, str], BudgetProposal]


def _answer(
    load: Load, done: Sequence[LoadLevel], budgets: _Budgets, *, is_interrupted: bool
) -> LoadReport:
    return LoadReport(
        label=f"{LABEL}:{load.name}",
        pipeline=load.pipeline,
        rate=load.rate,
        interrupted=is_interrupted,
        levels=[_level(one, budgets) for one in done],
    )


def _level(level: LoadLevel, budgets: _Budgets) -> LevelReport:
    return LevelReport(
        concurrency=level.concurrency,
        seconds=round(level.seconds, 3),
        started=level.started,
        starts_a_second=_rounded(level.started, level.starting_s),
        ended_a_minute=_rounded(60 * level.over, level.seconds),
        ends=level.ends,
        live=len(level.live),
        problem=level.problem or None,
        phases=[_phase(one) for one in figures_of(level)],
        budgets=[
            _budget(step, budget)
            for (concurrency, step), budget in budgets.items()
            if concurrency == level.concurrency
        ],
    )


def _rounded(count: float, seconds: float) -> float:
    return round(count / seconds, 3) if seconds else 0.0


def _phase(figures: PhaseFigures) -> PhaseReport:
    return PhaseReport(
        step=figures.step,
        phase=figures.phase,
        cold=figures.cold,
        attempts=figures.complete,
        cut_off=figures.censored,
        p50_s=figures.p50,
        p95_s=figures.p95,
        p99_s=figures.p99,
        max_s=figures.longest,
    )


def _budget(step: str, budget: BudgetProposal) -> BudgetReport:
    is_known = budget.bootstrap is not None and budget.execution is not None
    return BudgetReport(
        step=step,
        attempts=budget.counts.learnt_from,
        declared=_seconds(budget.declared),
        proposed=_seconds(budget.proposed) if is_known else None,
        reasons=budget.reasons[1:],  # the first one says what is in force
    )


def _seconds(limit: Limit) -> LimitSeconds:
    return LimitSeconds(total_s=limit.total_seconds, execution_s=round(limit.execution_seconds, 3))


def _print(answer: LoadReport) -> None:
    for level in answer.levels:
        print_facts(_facts(level, answer))
        click.echo()
    phases = [(level, one) for level in answer.levels for one in level.phases]
    budgets = [(level, one) for level in answer.levels for one in level.budgets]
    if phases:
        phases.sort(key=lambda pair: (pair[1].step, pair[1].phase, not pair[1].cold))
        print_table(_PHASE_COLUMNS, [_phase_row(level, one) for level, one in phases])
        click.echo()
    if budgets:
        budgets.sort(key=lambda pair: pair[1].step)
        print_table(_BUDGET_COLUMNS, [_budget_row(level, one) for level, one in budgets])


def _facts(level: LevelReport, answer: LoadReport) -> Iterator[Fact]:
    ends = ", ".join(f"{count} {end}" for end, count in sorted(level.ends.items()))
    yield "concurrency", str(level.concurrency)
    yield "started", f"{level.started}, {level.starts_a_second:g} of {answer.rate:g} a second"
    yield "ended", f"{ends or 'none'}; {level.ended_a_minute:g} a minute"
    if level.live:
        yield "live", str(level.live)
    if level.problem:
        yield "cut short", level.problem


def _phase_row(level: LevelReport, one: PhaseReport) -> Row:
    figures = (one.p50_s, one.p95_s, one.p99_s, one.max_s)
    phase = f"{one.phase} {'cold' if one.cold else 'warm'}"
    counts = (str(level.concurrency), str(one.attempts), str(one.cut_off))
    return (one.step, phase, *counts, *map(_short, figures))


def _short(seconds: float | None) -> str:
    """Return seconds with three digits: a phase without a model call takes milliseconds."""
    return "" if seconds is None else f"{float(f'{seconds:.3g}'):g}"


def _budget_row(level: LevelReport, one: BudgetReport) -> Row:
    proposed = ("too few attempts", "")
    if one.proposed is not None:
        proposed = (f"{one.proposed.total_s:g} s", f"{one.proposed.execution_s:g} s")
    counts = (str(level.concurrency), str(one.attempts))
    return (one.step, *counts, f"{one.declared.total_s:g} s", *proposed)


def _note_ways_back(load: Load, done: Sequence[LoadLevel], url: str | None) -> None:
    """Say how the runs are found, ended and deleted."""
    label = ("--label", f"{LABEL}:{load.name}")
    live = sum(len(one.live) + one.ends.get(HELD, 0) for one in done)
    if live:
        words = ("batch", "cancel", *label, "--limit", str(MAX_PAGE_ITEMS), *url_words(url))
        note(f"not over yet: {counted(live, 'run')}; cancel with:", command_line(*words))
    note("these are the runs:", command_line("runs", *label, *url_words(url)))
    where = "" if url is None else ", where the store of the server is"
    note(f"delete them with{where}:", command_line("purge", "--older-than", "0s", *label))
