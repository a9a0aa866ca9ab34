"""The pipeline registry, and the catalog that holds both it and the step types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, Final, NamedTuple, NoReturn

from leasehold.domain.announcement import AnnouncedEvent
from leasehold.domain.limit import Limit
from leasehold.domain.manifest_parts import NO_PLACE, Place, TrialRule, step_type_at
from leasehold.domain.skips import skip_problem
from leasehold.domain.spend import Budget, SpendLimit
from leasehold.errors import InvalidEntryError, UnknownPipelineError
from leasehold.frozen import dataclass
from leasehold.registry.channels import NO_CHANNELS, ChannelEntry
from leasehold.registry.dispatch import REMOTE, StepDispatchEntry
from leasehold.registry.gates import NO_GATES, GateEntry
from leasehold.registry.plan import (
    Child,
    Entry,
    PlanEntry,
    Problem,
    Step,
    Wait,
    entry_of,
    placed,
)
from leasehold.registry.registry import Registry
from leasehold.registry.schedules import NO_SCHEDULES, ScheduleEntry, schedule_problems

# Trials: one step of a pipeline writes, a later one reviews, until the reviewer is content.


#: A run keeps what each step did in each trial; this many fit into its document.
_MAX_TRIALS: Final = 100
_MAX_STEPS_OF_TRIALS: Final = 200


@dataclass(frozen=True, slots=True)
class TrialPolicy:
    """The steps from `author` to `reviewer` run again until the reviewer's output is `settled`.

    The reviewer's output has the fields `settled` (whether no further trial is wanted), `score`
    (a number: of trials that did not settle, the highest counts) and `findings` (a list, which the
    next trial's author finds in `ctx.findings`). Another trial begins only where the author's
    output has the status SUCCESS.

    Args:
        author: the step that each trial begins with.
        reviewer: a later step of the pipeline, which each trial ends with.
        max_trials: how many trials there are at most, the first included; 1 to 100.
    """

    author: str
    reviewer: str
    max_trials: int

    def problems(self, steps: tuple[str, ...]) -> Iterator[Problem]:
        """Yield what keeps a pipeline of these steps from having these trials."""
        author, reviewer, count = self.author, self.reviewer, self.max_trials
        known = "a step of the pipeline: " + ", ".join(steps)
        places = []
        for option, step in (("author", author), ("reviewer", reviewer)):
            if isinstance(step, str) and step in steps:
                places.append(steps.index(step))
            else:
                yield f"trials.{option}", step, known
        if not _is_count(count):
            yield "trials.max_trials", count, f"a whole number from 1 to {_MAX_TRIALS}"
        if len(places) == 2:  # noqa: PLR2004 - author and reviewer
            yield from self._problems_of_loop(*places)

    def _problems_of_loop(self, first: int, last: int) -> Iterator[Problem]:
        if first == last:
            allowed = f"a step after {self.author!r}: no step reviews itself"
            yield "trials.reviewer", self.reviewer, allowed
        elif first > last:
            yield "trials.reviewer", self.reviewer, f"a step after the author, {self.author!r}"
        repeated = last - first + 1
        if (
            first < last
            and _is_count(self.max_trials)
            and repeated * self.max_trials > _MAX_STEPS_OF_TRIALS
        ):
            fitting = _MAX_STEPS_OF_TRIALS // repeated
            allowed = f"at most {fitting}, where a trial has {repeated} steps"
            yield "trials.max_trials", self.max_trials, allowed

    def looped(self, plan: tuple[str, ...]) -> tuple[str, ...]:
        """Return the steps of a plan that each trial runs."""
        return plan[plan.index(self.author) : plan.index(self.reviewer) + 1]

    def as_rule(self) -> TrialRule:
        """Return the trials as a run keeps them."""
        return TrialRule(author=self.author, reviewer=self.reviewer, max_trials=self.max_trials)


def _is_count(value: Any) -> bool:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return is_whole and 1 <= value <= _MAX_TRIALS


_SUMMARY: Final = re.compile(r"(?:[\w.]+:[A-Za-z_]\w*)?")


class SummaryFunction(NamedTuple):
    """The function of a pipeline that summarises the output of a run, as a runner reads it.

    Args:
        pipeline: its pipeline.
        handler: its path.
    """

    pipeline: str
    handler: str

    @property
    def step_type(self) -> str:
        """The name of what it is of."""
        return f"pipeline {self.pipeline}"


_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,63}")

_OTHER_NAME: Final = (
    "another name, which is not a step type: a worker that does not know names would run that step"
)

#: How much of an unknown name its error repeats; callers may give any text.
_MAX_QUOTED_CHARS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineEntry:
    """A pipeline: its steps, in the order they run.

    Args:
        name: what it is started by.
        steps: the step types, in order; a `Step` in place of one says under which name it runs.
        trials: which of its steps run again until a reviewer is content; None: none.
        summary: the path `module:function` of what summarises the output of a run that completes,
            for its announcements; empty: those have the engine's sentence. It is called as a gate
            is, `(ctx: GateContext, output: Model) -> str`.
        budget: how much a run may spend before it blocks, unless its start says otherwise; None:
            any amount.

    Raises:
        InvalidEntryError: a name that is not plain, no steps, two of one name, or trials that do
            not go with the steps; a summary that is not a path, or a budget that is not above 0.
    """

    name: str
    steps: tuple[PlanEntry, ...]
    trials: TrialPolicy | None = None
    summary: str = ""
    budget: Budget | None = None
    #: The names of its places, in order: what a run of it has as its plan.
    plan: tuple[str, ...] = field(init=False, repr=False, compare=False)
    #: What runs at a place, by its name, if that is not a plain step; None: each is one.
    places: Mapping[str, Place] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            self._refuse("name", self.name, "1 to 63 of a-z A-Z 0-9 _ -")
        if not isinstance(self.steps, tuple | list):  # a string would be a step for each letter
            self._refuse("steps", self.steps, "a tuple of step types")
        self._lay_out()
        self._check_trials()
        self._check_skips()
        self._check_budget()
        if not isinstance(self.summary, str) or not _SUMMARY.fullmatch(self.summary):
            self._refuse("summary", self.summary, "'module:function', or nothing")

    def _lay_out(self) -> None:
        """Check the entries, and note what a run keeps of them."""
        entries = []
        for given in self.steps:
            entry = entry_of(given)
            if entry is None:
                self._refuse("steps", given, "the names of step types, or entries such as a Step")
            for problem in entry.problems():
                self._refuse(*problem)
            entries.append(entry)
        plan = tuple(entry.name for entry in entries)
        if not plan:
            self._refuse("steps", self.steps, "at least one step")
        for name in (name for at, name in enumerate(plan) if name in plan[:at]):
            allowed = f"each name once; {name!r} is there twice: Step({name!r}, name=…) names one"
            self._refuse("steps", plan, allowed)
        places = placed(entries)
        if no_step := [name for name, place in places.items() if not place.step_type]:
            self._refuse("steps", plan, f"a step beside {no_step[0]!r}: nothing runs otherwise")
        steps = tuple(entry.name if entry == Step(entry.name) else entry for entry in entries)
        object.__setattr__(self, "steps", steps)
        object.__setattr__(self, "plan", plan)
        object.__setattr__(self, "places", places or None)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Its steps as entries, in order."""
        return tuple(entry for given in self.steps if (entry := entry_of(given)))

    @property
    def step_types(self) -> tuple[str, ...]:
        """The step types that it runs, each once."""
        return tuple(dict.fromkeys(kind for entry in self.entries for kind in entry.step_types))

    @property
    def skips(self) -> Mapping[str, tuple[str, ...]]:
        """The places that skip, each with those that it may skip to."""
        return {entry.name: entry.skips_to for entry in self.steps if isinstance(entry, Step)}

    def skips_of(self, name: str) -> tuple[str, ...]:
        """Return where the step at a place may skip to."""
        return self.skips.get(name, ())

    def wait_at(self, name: str) -> Wait | None:
        """Return the entry that waits at a place; None: none does."""
        waits = (entry for entry in self.steps if isinstance(entry, Wait))
        return next((entry for entry in waits if entry.name == name), None)

    def step_type_of(self, name: str) -> str:
        """Return the type of the step at a place; empty: no single step runs there."""
        return step_type_at(self.places, name)

    @property
    def summary_function(self) -> SummaryFunction:
        """The function that summarises the output of a run."""
        return SummaryFunction(self.name, self.summary)

    @property
    def key(self) -> str:
        """The name the row is found by."""
        return self.name

    @property
    def trial_rule(self) -> TrialRule | None:
        """Its trials as a run keeps them."""
        return None if self.trials is None else self.trials.as_rule()

    @property
    def spend_limit(self) -> SpendLimit | None:
        """Its budget as a run keeps it."""
        return None if self.budget is None else self.budget.as_limit()

    def _check_trials(self) -> None:
        if self.trials is None:
            return
        if not isinstance(self.trials, TrialPolicy):
            self._refuse("trials", self.trials, "a TrialPolicy, or None")
        for problem in self.trials.problems(self.plan):
            self._refuse(*problem)
        for name in (self.trials.author, self.trials.reviewer):
            if self.wait_at(name) is not None:
                self._refuse("trials", name, "a step: a Wait neither writes nor reviews")
        first, last = map(self.plan.index, (self.trials.author, self.trials.reviewer))
        for name in self.plan[first : last + 1]:
            if (self.places or {}).get(name, NO_PLACE).has_children:
                self._refuse("trials", name, "steps alone: no Each, Parallel or Child is repeated")

    def _check_skips(self) -> None:
        looped = self.trials.looped(self.plan) if self.trials else ()
        for name, targets in self.skips.items():
            for target in targets:
                if allowed := skip_problem(self.plan, looped, name, target):
                    self._refuse(f"skips_to of step {name!r}", target, allowed)

    def _check_budget(self) -> None:
        if self.budget is None:
            return
        if not isinstance(self.budget, Budget):
            self._refuse("budget", self.budget, "a Budget, or None")
        for problem in self.budget.problems():
            self._refuse(*problem)

    def _refuse(self, field: str, value: object, allowed: str) -> NoReturn:
        raise InvalidEntryError(
            registry="pipelines", key=self.name, field=field, value=value, allowed=allowed
        )


@dataclass(frozen=True, slots=True)
class Catalog:
    """What this bundle runs: the registries of a catalog's module, as one value.

    Args:
        steps: the step types.
        pipelines: the pipelines; each names its steps.
        gates: the gates that steps name.
        channels: where announcements of pipelines go.
        schedules: when runs of pipelines begin.

    Raises:
        InvalidEntryError: a pipeline, step or channel names an entry that is not there. Or two
            step types share a variable, or a registry holds entries of another class.
    """

    steps: Registry[StepDispatchEntry]
    pipelines: Registry[PipelineEntry]
    gates: Registry[GateEntry] = NO_GATES
    channels: Registry[ChannelEntry] = NO_CHANNELS
    schedules: Registry[ScheduleEntry] = NO_SCHEDULES

    def __post_init__(self) -> None:
        for problem in catalog_problems(
            self.steps, self.pipelines, self.gates, self.channels, self.schedules
        ):
            raise problem

    @property
    def queues(self) -> dict[str, tuple[str, ...]]:
        """The step types by the id of their queue; remote steps have none."""
        queues: dict[str, tuple[str, ...]] = {}
        for step in self.steps:
            if step.handler != REMOTE:
                queues[step.queue_id] = (*queues.get(step.queue_id, ()), step.step_type)
        return queues

    @property
    def channel_variables(self) -> tuple[str, ...]:
        """The variables that channels name, each once: secrets, where functions run."""
        names = (name for channel in self.channels for name in channel.variables)
        return tuple(dict.fromkeys(names))

    @property
    def channel_topics(self) -> tuple[str, ...]:
        """The topics that channels publish to, each once: `projects/PROJECT/topics/TOPIC`."""
        topics = (topic for channel in self.channels for topic in channel.topics)
        return tuple(dict.fromkeys(topics))

    def channels_for(self, pipeline: str, event: AnnouncedEvent) -> tuple[str, ...] | None:
        """Return the channels that get an event of runs of a pipeline; None: not known."""
        if self is NO_CATALOG:
            return None
        return tuple(entry.name for entry in self.channels if entry.wants(pipeline, event))

    def names_of(self, step_type: str) -> tuple[str, ...]:
        """Return the names of the places at which a step type runs, its own first."""
        entries = (entry for pipeline in self.pipelines for entry in pipeline.entries)
        names = (entry.name for entry in entries if entry.step_types == (step_type,))
        return tuple(dict.fromkeys((step_type, *names)))

    @property
    def place_names(self) -> tuple[str, ...]:
        """The names of all places of its pipelines, and of all its step types."""
        plans = (name for pipeline in self.pipelines for name in pipeline.plan)
        return tuple(dict.fromkeys((*self.steps.keys(), *plans)))

    def gates_of(self, step_type: str) -> list[GateEntry]:
        """Return the gates that the output of a step must pass, in order."""
        return [self.gates[name] for name in self.steps[step_type].gates]

    def pipeline(self, name: str) -> PipelineEntry:
        """Return the pipeline, or raise UnknownPipelineError that names the known ones."""
        entry = self.pipelines.get(name)
        if entry is None:
            known = ", ".join(self.pipelines.keys()) or "none"
            raise UnknownPipelineError(pipeline=name[:_MAX_QUOTED_CHARS], known=known)
        return entry


def catalog_problems(
    steps: Registry[StepDispatchEntry],
    pipelines: Registry[PipelineEntry],
    gates: Registry[GateEntry],
    channels: Registry[ChannelEntry],
    schedules: Registry[ScheduleEntry] = NO_SCHEDULES,
) -> Iterator[InvalidEntryError]:
    """Yield all that keeps registries from being a catalog."""
    classes = [
        *_of_class(gates, "gates", GateEntry),
        *_of_class(steps, "dispatch", StepDispatchEntry),
        *_of_class(pipelines, "pipelines", PipelineEntry),
        *_of_class(channels, "channels", ChannelEntry),
        *_of_class(schedules, "schedules", ScheduleEntry),
    ]
    yield from classes
    if classes:
        return  # the rest looks into the entries
    for pipeline in pipelines:
        yield from _place_problems(pipeline, steps)
    yield from _child_problems(pipelines)
    known = ", ".join(gates.keys()) or "none: the catalog has no GATES"
    owners: dict[str, str] = {}
    for entry in steps:
        for gate in entry.gates:
            if gate not in gates:
                yield _problem("dispatch", entry.key, "gates", gate, known)
        for name in entry.env_overrides:
            if owners.setdefault(name, entry.key) != entry.key:
                allowed = f"a name whose variable {name} is not that of {owners[name]!r}"
                yield _problem("dispatch", entry.key, "step_type", entry.key, allowed)
    yield from _limit_problems(steps)
    yield from _channel_problems(channels, pipelines)
    yield from schedule_problems(schedules, pipelines)


def _place_problems(
    pipeline: PipelineEntry, steps: Registry[StepDispatchEntry]
) -> Iterator[InvalidEntryError]:
    known = "steps of the dispatch registry: " + ", ".join(steps.keys())
    for entry in pipeline.entries:
        for step in entry.step_types:
            if step not in steps:
                yield _problem("pipelines", pipeline.name, "steps", step, known)
        if entry.name in steps and entry.step_types != (entry.name,):
            yield _problem("pipelines", pipeline.name, "steps", entry.name, _OTHER_NAME)
    for name, place in (pipeline.places or {}).items():
        at = steps.get(place.step_type)
        if place.has_children and at is not None and at.handler == REMOTE:
            allowed = f"a step that is not remote: the place {name!r} has its queue"
            yield _problem("pipelines", pipeline.name, "steps", place.step_type, allowed)


def _child_problems(pipelines: Registry[PipelineEntry]) -> Iterator[InvalidEntryError]:
    """Yield what is wrong with pipelines that wait for runs of others."""
    known = "pipelines of the catalog: " + ", ".join(pipelines.keys())
    children = {
        one.name: [entry.pipeline for entry in one.entries if isinstance(entry, Child)]
        for one in pipelines
    }
    for name, waited_for in children.items():
        for child in waited_for:
            if child not in children:
                yield _problem("pipelines", name, "steps", child, known)
        if name in _below(name, children):
            allowed = "pipelines that do not wait for a run of themselves"
            yield _problem("pipelines", name, "steps", f"Child in {name}", allowed)


def _below(name: str, children: dict[str, list[str]]) -> set[str]:
    found: set[str] = set()
    ahead = list(children[name])
    while ahead:
        child = ahead.pop()
        if child not in found:
            found.add(child)
            ahead.extend(children.get(child, ()))
    return found


def _limit_problems(steps: Registry[StepDispatchEntry]) -> Iterator[InvalidEntryError]:
    """Yield where two steps share a limit, and say something else of it."""
    found: dict[str, tuple[str, Limit]] = {}
    for entry in steps:
        for limit in entry.limits:
            step, first = found.setdefault(limit.key, (entry.key, limit))
            if first.shared != limit.shared:
                said = "at_once={}, per_minute={}, adaptive={}"
                allowed = f"what step {step!r} says of that key: {said.format(*first.shared)}"
                value = f"{limit.key}: {said.format(*limit.shared)}"
                yield _problem("dispatch", entry.key, "limits", value, allowed)


def _channel_problems(
    channels: Registry[ChannelEntry], pipelines: Registry[PipelineEntry]
) -> Iterator[InvalidEntryError]:
    known = "pipelines of the catalog: " + ", ".join(pipelines.keys())
    for channel in channels:
        for name in channel.pipelines:
            if name not in pipelines:
                yield _problem("channels", channel.name, "pipelines", name, known)


def _of_class(entries: Registry[Any], name: str, allowed: type) -> Iterator[InvalidEntryError]:
    for entry in entries:
        if not isinstance(entry, allowed):
            yield _problem(name, entry.key, "class", type(entry).__name__, allowed.__name__)


def _problem(registry: str, key: str, field: str, value: object, allowed: str) -> InvalidEntryError:
    return InvalidEntryError(registry=registry, key=key, field=field, value=value, allowed=allowed)


#: For callers that only read runs, or make operations without a step type.
NO_CATALOG: Final = Catalog(steps=Registry("dispatch", []), pipelines=Registry("pipelines", []))
