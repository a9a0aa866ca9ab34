"""Whether a run fits the catalog in force: its steps, their handlers, and what they are given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, NoReturn

from leasehold.attempt.values import load
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.children import ITEMS_MISSING
from leasehold.domain.dispatch import dispatch_of
from leasehold.domain.lifecycle import Operation
from leasehold.domain.lifecycle.start import NewRun
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import NO_PLACE, Place, step_type_at
from leasehold.domain.status import BlockCode, RunStatus
from leasehold.errors import (
    ArtifactNotFoundError,
    CatalogMisfitError,
    DamagedFileError,
    HandlerNotFoundError,
    OutputGoneError,
)
from leasehold.registry.dispatch import REMOTE
from leasehold.registry.pipelines import NO_CATALOG, Catalog, PipelineEntry
from leasehold.services.check_chain import Places, misfit_at
from leasehold.services.engine import Engine
from leasehold.services.read_runs import RunFilter, matching_runs

LIMIT_CHANGED: Final = "limit_changed"

#: Where a run stands that has not ended.
LIVE: Final = tuple(status for status in RunStatus if status is not RunStatus.COMPLETED)

#: What a dispatch has frozen of the limits of its step, in words.
_LIMITS: Final[Mapping[str, str]] = {
    "timeout_ms": "agent timeout in ms",
    "deadline_s": "dispatch deadline in s",
    "max_retries": "retries",
    "heartbeat_s": "heartbeat in s",
    "cleanup_ms": "cleanup in ms",
    "memory_limit_bytes": "memory limit in bytes",
    "silence_limit_ms": "silence limit in ms",
    "schedule_to_start_s": "schedule to start in s",
    "remote": "remote",
}


class Problem(NamedTuple):
    """Why a step cannot run with the catalog in force.

    Args:
        code: with this a run would block.
        detail: what is wrong, in one line.
    """

    code: str
    detail: str


class Unknown(NamedTuple):
    """The step or pipeline of a place that the catalog in force lacks.

    Args:
        what: a step or a pipeline, with its name.
        known: those that it knows of that kind, in words.
    """

    what: str
    known: str


def unknown_at(catalog: Catalog, places: Places, name: str) -> Unknown | None:
    """Return the step or pipeline of a place that the catalog lacks; None: it knows all.

    A place that waits needs no step: it only has the queue of one beside it.
    """
    place = _place_at(places, name)
    if place.wait is not None:
        return None
    for step in (step_type_at(places, name) or name, *(place.parallel or ())):
        if step not in catalog.steps:
            return Unknown(f"step {step!r}", ", ".join(catalog.steps.keys()) or "none")
    if place.child and place.child not in catalog.pipelines:
        return _unknown_pipeline(catalog, place.child)
    return None


def _place_at(places: Places, name: str) -> Place:
    return NO_PLACE if places is None else places.get(name, NO_PLACE)


def _unknown_pipeline(catalog: Catalog, name: str) -> Unknown:
    return Unknown(f"pipeline {name!r}", ", ".join(catalog.pipelines.keys()) or "none")


def unknown_here(catalog: Catalog, run: Manifest) -> Unknown | None:
    """Return what the catalog lacks of the current place of a run.

    A child that has begun keeps its plan, and needs its pipeline no more.
    """
    unknown = unknown_at(catalog, run.places, run.position.step)
    return None if _has_child(run) and run.step_type in catalog.steps else unknown


def problem_at(
    engine: Engine, places: Places, name: str, look: Callable[[str], Problem | None]
) -> Problem | None:
    """Return why nothing could run at a place of a plan.

    Args:
        engine: the parts.
        places: the places of the plan with more than a plain step.
        name: the place.
        look: `problem_with_step` of the engine, or what has asked it before.
    """
    if unknown := unknown_at(engine.catalog, places, name):
        return _problem_of(unknown)
    place = _place_at(places, name)
    if place.wait is not None:  # no code runs there
        return None
    if place.child:
        child = engine.catalog.pipeline(place.child)
        found = (problem_at(engine, child.places, one, look) for one in child.plan)
        problem = next(filter(None, found), None)
        words = f"the pipeline {child.name!r}, of which it waits for a run, cannot run: "
        return problem and Problem(problem.code, f"{words}{problem.detail}")
    steps = place.parallel or (step_type_at(places, name),)
    return next(filter(None, map(look, steps)), None)


def _problem_of(unknown: Unknown) -> Problem:
    detail = f"the catalog knows no {unknown.what}; known: {unknown.known}"
    return Problem(BlockCode.STEP_UNKNOWN, detail)


def problem_with_step(engine: Engine, name: str) -> Problem | None:
    """Return why a step of the catalog could not be called; its handler and gates are imported."""
    step = engine.catalog.steps[name]
    try:
        if step.handler != REMOTE:
            engine.handlers.checks.check(step)
            engine.handlers.checks.check_entry_actions(step)
        for gate in engine.catalog.gates_of(name):
            engine.handlers.checks.check(gate)
    except HandlerNotFoundError as error:
        return Problem(BlockCode.HANDLER_UNAVAILABLE, error.message)
    return None


def problem_with_value(engine: Engine, places: Places, name: str, text: str) -> Problem | None:
    """Return why a place, whose steps can be called, cannot take this JSON text."""
    misfit = misfit_at(engine.catalog, engine.handlers.checks, places, name, text)
    if misfit is None:
        return None
    return Problem(
        BlockCode.INPUT_MISMATCH, f"what it is given does not fit {misfit.model}: {misfit.problem}"
    )


def check_retry(engine: Engine, run: Manifest) -> None:
    """Raise CatalogMisfitError where the catalog does not know the place: it would block again."""
    step = run.position.step
    if engine.catalog is not NO_CATALOG and (
        unknown := unknown_at(engine.catalog, run.places, step)
    ):
        _refuse(run, Operation.RETRY, step, _problem_of(unknown))


def check_approval(engine: Engine, run: Manifest, edited: str | None = None) -> None:
    """Raise CatalogMisfitError where the step behind an output could not take it.

    Behind a reviewer, its verdict says which step is next: that is for the run to find out.

    Args:
        engine: the parts.
        run: the run whose output waits for a decision.
        edited: the JSON text that a person puts in place of it; its own step has the model.
    """
    own = run.position.step
    output = run.steps[own].kept_output if edited is None else KeptValue(text=edited)
    if edited is not None and (unknown := unknown_at(engine.catalog, run.places, own)):
        _refuse(run, Operation.APPROVE, own, _problem_of(unknown))
    if output is None or run.next_step is None or own in run.looped_steps[-1:]:
        return
    _check(engine, run, Operation.APPROVE, (run.next_step,), output, places=run.places)


def pipeline_to_recreate(engine: Engine, run: Manifest) -> PipelineEntry:
    """Return the pipeline of a run, or raise CatalogMisfitError where the catalog lacks it."""
    entry = engine.catalog.pipelines.get(run.pipeline)
    if entry is None:
        problem = _problem_of(_unknown_pipeline(engine.catalog, run.pipeline))
        _refuse(run, Operation.RECREATE, run.position.step, problem)
    return entry


def check_recreation(
    engine: Engine, run: Manifest, new: NewRun, from_step: str, given: KeptValue
) -> None:
    """Raise CatalogMisfitError where a new run could not begin at a step.

    Args:
        engine: the parts.
        run: the run that is to be recreated.
        new: what the new one is started with.
        from_step: where it begins; one that is not in its plan is not looked at here.
        given: its input, for its first step; behind that, the outputs of the old run count.
    """
    plan = new.plan
    if from_step not in plan:
        return
    place = plan.index(from_step)
    value: KeptValue | None = given
    if place:
        before = run.steps.get(plan[place - 1])
        value = None if before is None else before.kept_output
    if value is not None:  # else the recreation says what is missing
        _check(engine, run, Operation.RECREATE, plan[place:], value, places=new.places)


def _check(
    engine: Engine,
    run: Manifest,
    operation: Operation,
    ahead: Sequence[str],
    value: KeptValue,
    *,
    places: Places,
) -> None:
    """Raise where a step cannot be called, or the first of them cannot take the value.

    Args:
        engine: the parts.
        run: the run.
        operation: what is asked for.
        ahead: the steps, in order.
        value: what the first is given.
        places: those of its plan with more than a plain step.
    """
    look = partial(problem_with_step, engine)
    problems = ((name, problem_at(engine, places, name, look)) for name in ahead)
    found = next(((name, problem) for name, problem in problems if problem), None)
    if found is None and _place_at(places, ahead[0]).wait is None:  # which takes anything
        problem = problem_with_value(engine, places, ahead[0], load(engine.artifacts, value))
        found = None if problem is None else (ahead[0], problem)
    if found is not None:
        _refuse(run, operation, *found)


def _refuse(run: Manifest, operation: Operation, step: str, problem: Problem) -> NoReturn:
    raise CatalogMisfitError(
        operation=operation.value,
        run_id=run.run_id,
        step=step,
        misfit=problem.code,
        problem=problem.detail.rstrip("."),
    )


class RunMisfit(NamedTuple):
    """A value of a live run that does not fit the catalog in force.

    Args:
        run_id: the run.
        step: the step that would be concerned.
        code: that of a `Problem`, or `limit_changed`, which keeps no run from going on.
        detail: what it is, in one line.
    """

    run_id: str
    step: str
    code: str
    detail: str


class GivenValue(NamedTuple):
    """A value that a run holds for one of its steps.

    Args:
        run: the run.
        source: the step whose output it is; None: it is the input of the run.
        kept: the value.
        taker: the step that is to take it.
    """

    run: Manifest
    source: str | None
    kept: KeptValue
    taker: str


class LiveRunCheck:
    """Compares live runs with the catalog in force; each step type is looked at once.

    Args:
        engine: has the catalog; its store need not be that of the runs.
        load_value: returns the text of a value; by default from the engine's own stores.
    """

    def __init__(
        self, engine: Engine, load_value: Callable[[GivenValue], str] | None = None
    ) -> None:
        self._engine = engine
        self._load = load_value or (lambda value: load(engine.artifacts, value.kept))
        self._problems: dict[str, Problem | None] = {}

    def misfits(self, run: Manifest) -> Iterator[RunMisfit]:
        """Yield what of a run does not fit.

        Raises:
            StoreUnavailableError: what it is given could not be read.
        """
        value = _next_value(run)
        for step in _steps_ahead(run):
            problem = self._problem_at(run, step)
            if problem is None and step == value.taker:
                problem = self._problem_with(value)
            if problem:
                yield RunMisfit(run.run_id, step, *problem)
        if run.wait_rule_at(value.taker) is not None:
            return
        if changes := self._changed_limits(run):
            yield RunMisfit(run.run_id, run.position.step, LIMIT_CHANGED, changes)

    def _problem_at(self, run: Manifest, step: str) -> Problem | None:
        if step == run.position.step and _has_child(run):
            unknown = unknown_here(self._engine.catalog, run)
            return unknown and _problem_of(unknown)
        return problem_at(self._engine, run.places, step, self._problem)

    def _problem(self, step: str) -> Problem | None:
        if step not in self._problems:
            self._problems[step] = problem_with_step(self._engine, step)
        return self._problems[step]

    def _problem_with(self, value: GivenValue) -> Problem | None:
        run = value.run
        if run.wait_rule_at(value.taker) is not None:
            return None  # it takes anything
        if _has_child(run):
            return None  # it has taken it
        try:
            text = self._load(value)
        except (ArtifactNotFoundError, DamagedFileError, OutputGoneError) as error:
            return Problem(BlockCode.INPUT_MISSING, f"what it is given is lost: {error.message}")
        return problem_with_value(self._engine, run.places, value.taker, text)

    def _changed_limits(self, run: Manifest) -> str:
        """Return how the limits of the current step differ from those it was dispatched with."""
        settings = self._engine.rules.settings_for(run.step_type)
        if settings is None:
            return ""
        frozen = run.position.dispatch
        now = dispatch_of(
            settings,
            step=frozen.step,
            generation=frozen.generation,
            trial=frozen.trial,
            not_before=frozen.not_before,
            nonce=frozen.nonce,
            max_retries=run.max_retries,
        )
        is_of_request = frozen.sources.get("dispatchDeadline") == "request"
        limits = (name for name in _LIMITS if not (is_of_request and name == "deadline_s"))
        pairs = ((name, getattr(frozen, name), getattr(now, name)) for name in limits)
        return "; ".join(
            f"{_LIMITS[name]} {was}, now {is_}" for name, was, is_ in pairs if was != is_
        )


def live_runs(engine: Engine) -> Iterator[Manifest]:
    """Yield the runs that have not ended, each once, read page by page."""
    seen: set[str] = set()
    for status in LIVE:
        for run in matching_runs(engine, RunFilter(status=status.value, dead_lettered=False)):
            if run.run_id not in seen:
                seen.add(run.run_id)  # it may have moved from one status to the next
                yield run


def _steps_ahead(run: Manifest) -> Sequence[str]:
    """Return the steps that may run yet: from the current one, or the first of its trials."""
    looped = run.looped_steps
    first = looped[0] if run.position.step in looped else run.position.step
    return run.plan[run.plan.index(first) :]


def _has_child(run: Manifest) -> bool:
    """Return whether the run of another pipeline has begun, and no retry is to begin another."""
    place = run.place_with_children
    if run.block is not None and run.block.code == ITEMS_MISSING:
        return False
    return run.position.children is not None and place is not None and bool(place.child)


def _next_value(run: Manifest) -> GivenValue:
    """Return what is taken next: an output that waits for a decision, or what the step is given."""
    place = run.plan.index(run.position.step)
    output = run.steps[run.position.step].kept_output
    if output is not None and run.next_step is not None:
        return GivenValue(run, run.position.step, output, run.next_step)
    before = run.plan[place - 1] if place else None
    source = before if before and run.steps[before].kept_output is not None else None
    return GivenValue(run, source, run.given, run.position.step)
