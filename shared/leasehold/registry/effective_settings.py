"""The settings in force for a step type: environment, override, budget, entry, with sources."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, NamedTuple

from leasehold.budgets.proposal import BudgetSettings, Strategy
from leasehold.budgets.tail_probe import is_tail_probe
from leasehold.domain.budget import DERIVED, TAIL_PROBE, BudgetLimit
from leasehold.domain.delivery_rules import DeliveryRules
from leasehold.domain.dispatch import Rules, StepSettings
from leasehold.domain.override import OVERRIDE, StoredOverride, whole_milliseconds
from leasehold.domain.retry import Backoff
from leasehold.registry.dispatch import (
    REMOTE,
    StepDispatchEntry,
    budget_cap,
    deadline_cap,
    ladder_problem,
)
from leasehold.registry.pipelines import Catalog
from leasehold.registry.setting_texts import IN_PROCESS, as_refused
from leasehold.registry.settings import arguments_of

_ENTRY: Final = "entry"
_MAX_DIGITS: Final = 9


class _Limits(NamedTuple):
    """The two limits as one source gives them; None: it does not give this one."""

    timeout: timedelta | None
    deadline: timedelta | None


_NOTHING: Final = _Limits(None, None)


def effective_settings(
    entry: StepDispatchEntry,
    environ: Mapping[str, str],
    override: StoredOverride | None = None,
    budget: BudgetLimit | None = None,
    *,
    max_retries: int,
    backoff: Backoff = Backoff(),  # noqa: B008 - a frozen value
    heartbeat: timedelta | None = None,
    longest_heartbeat: timedelta = timedelta.max,
    on_platform: bool = False,
) -> StepSettings:
    """Resolve the settings of a step type as they are at this moment.

    A value that cannot be used, or that breaks the time ladder, is refused: one sentence in
    `refused`, and the next source applies.

    Args:
        entry: the registry entry.
        environ: the environment now.
        override: the step's override; one that is over does not count.
        budget: its derived limit, for a step that goes by it.
        max_retries: the threshold, for an entry without one.
        backoff: the waits, for what a retry policy leaves out.
        heartbeat: PIPELINE_HEARTBEAT_S where it is set; an entry without heartbeat stays without.
        longest_heartbeat: a third of PIPELINE_LEASE_TTL_S: a lease must outlast a lost renewal.
        on_platform: whether Cloud Tasks calls the steps.
    """
    refused: list[str] = []
    timeout_name, deadline_name = entry.env_overrides
    variables = _Limits(
        _whole(environ, timeout_name, timedelta(milliseconds=1), refused),
        _whole(environ, deadline_name, timedelta(seconds=1), refused),
    )
    # an entry that is beyond its platform is refused where a process begins
    longest = max(deadline_cap(entry, on_platform=on_platform), entry.dispatch_deadline)
    given = variables, _limits_of(override, refused), _derived(budget)
    kept = _on_the_ladder(entry, longest, given, refused)
    timeout, deadline = _first(kept, entry)
    sources = {
        "agentTimeout": _source(timeout_name, [one.timeout for one in kept]),
        "dispatchDeadline": _source(deadline_name, [one.deadline for one in kept]),
        "maxRetries": "threshold" if entry.max_retries is None else _ENTRY,
        "heartbeat": _ENTRY,
    }
    interval = entry.heartbeat_interval
    if interval is not None and heartbeat is not None:
        interval, sources["heartbeat"] = heartbeat, "PIPELINE_HEARTBEAT_S"
    elif interval is not None and interval > longest_heartbeat:
        interval, sources["heartbeat"] = longest_heartbeat, "PIPELINE_LEASE_TTL_S"
    if entry.retry is not None:
        sources["retry"] = _ENTRY
    settings = StepSettings(
        step_type=entry.step_type,
        agent_timeout=timeout,
        dispatch_deadline=deadline,
        max_retries=max_retries if entry.max_retries is None else entry.max_retries,
        retry=None if entry.retry is None else entry.retry.in_force(backoff),
        options=entry.frozen_options(),
        heartbeat=interval,
        queue=entry.queue_id,
        remote=entry.handler == REMOTE,
        schedule_to_start=entry.schedule_to_start,
        sources=sources,
        refused=tuple(refused),
    )
    if budget is None:
        return settings
    return _with_tail_probes(settings, budget_cap(entry, on_platform=on_platform))


def _with_tail_probes(settings: StepSettings, longest: timedelta) -> StepSettings:
    """Return the settings with those of the few attempts that show how long the longest take.

    Only a derived limit hides them: a person who set another one has the last word.
    """
    if set(map(settings.sources.get, ("agentTimeout", "dispatchDeadline"))) != {DERIVED}:
        return settings
    longest = max(longest, settings.dispatch_deadline)  # a person may have edited the budget
    sources = {"agentTimeout": TAIL_PROBE, "dispatchDeadline": TAIL_PROBE}
    tail = replace(
        settings,
        agent_timeout=longest - (settings.dispatch_deadline - settings.agent_timeout),
        dispatch_deadline=longest,
        sources={**settings.sources, **sources},
    )
    return replace(settings, tail=tail, is_tail=is_tail_probe)


def _derived(budget: BudgetLimit | None) -> _Limits:
    if budget is None:
        return _NOTHING
    deadline = timedelta(seconds=round(budget.total_s))
    return _Limits(whole_milliseconds(budget.timeout_s), deadline)


def _limits_of(override: StoredOverride | None, refused: list[str]) -> _Limits:
    """Return what an override gives while it lasts."""
    if override is None or override.is_over:
        return _NOTHING
    if override.override is None:
        refused.append(override.refused)
        return _NOTHING
    return _Limits(override.override.timeout, override.override.deadline)


def _source(variable: str, limits: Sequence[timedelta | None]) -> str:
    """Return where a limit comes from: the first of its sources that gives one."""
    for source, limit in zip((variable, OVERRIDE, DERIVED), limits, strict=True):
        if limit is not None:
            return source
    return _ENTRY


def _first(sources: Sequence[_Limits], entry: StepDispatchEntry) -> tuple[timedelta, timedelta]:
    """Return both limits: each from the first source that gives it, or the entry."""
    timeouts, deadlines = zip(*sources, strict=True)
    timeout = next(filter(None, timeouts), entry.agent_timeout)
    return timeout, next(filter(None, deadlines), entry.dispatch_deadline)


#: What each source gives, in order: variables, override, budget.
_Sources = tuple[_Limits, ...]


def _on_the_ladder(
    entry: StepDispatchEntry, longest: timedelta, given: _Sources, refused: list[str]
) -> _Sources:
    """Return what holds together with the entry: as much as can of the variables, then the rest.

    Rather than a variable, an override is dropped, and rather than that a budget; rather than both
    limits of a person, one. Both limits of a budget were derived together, and one is none.
    """
    problem = None
    *of_people, of_budget = given
    for kept in itertools.product(*map(_parts, of_people), (of_budget, _NOTHING)):
        broken = ladder_problem(*_first(kept, entry), longest)
        problem = problem or broken
        if broken is None:
            break
    if problem is not None:
        field, value, allowed = problem
        dropped = _dropped(entry, given, kept)
        refused.append(f"{dropped} refused: {field} would be {value}; allowed: {allowed}.")
    return kept


def _parts(limits: _Limits) -> tuple[_Limits, ...]:
    """Return the limits, then less and less of them."""
    timeout, deadline = limits
    return limits, _Limits(timeout, None), _Limits(None, deadline), _NOTHING


def _dropped(entry: StepDispatchEntry, given: _Sources, kept: _Sources) -> str:
    """Return the names of given values that do not hold; a source hides what is under it."""
    step = entry.step_type
    of_override = f"overrides/{step} timeoutS", f"overrides/{step} deadlineS"
    of_budget = f"budgets/{step} applied.timeoutS", f"budgets/{step} applied.totalS"
    names = [
        name
        for source, of_source in enumerate((entry.env_overrides, of_override, of_budget))
        for limit, name in enumerate(of_source)
        if given[source][limit] is not None
        and all(above[limit] is None for above in kept[: source + 1])
    ]
    return " and ".join(names)


def _whole(
    environ: Mapping[str, str], name: str, unit: timedelta, refused: list[str]
) -> timedelta | None:
    text = environ.get(name)
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS and int(text) > 0:
        return int(text) * unit
    words = "seconds" if unit == timedelta(seconds=1) else "milliseconds"
    refused.append(f"{name} refused: it is {as_refused(text)}; allowed: whole {words} above 0.")
    return None


# What transitions need to know: the thresholds in force, and the limits of each step type.


def rules_of(
    settings: Mapping[str, Any],
    catalog: Catalog,
    environ: Mapping[str, str],
    find_override: Callable[[str], StoredOverride | None],
    warn: Callable[[str], object],
    *,
    find_budget: Callable[[str], BudgetLimit | None] = lambda _: None,
) -> Rules:
    """Return the rules in force, with the limits of steps as they are at each dispatch.

    Args:
        settings: the settings, as read.
        catalog: the step types.
        environ: where the variables of their limits are looked up, at each dispatch.
        find_override: returns the override of a step type, as it is at each dispatch.
        warn: given a sentence on each limit that is refused, once.
        find_budget: returns the derived limit of a step type, likewise.
    """
    backoff = Backoff(**arguments_of(Backoff, settings))
    limits = _StepLimits(
        settings,
        catalog,
        environ,
        find_override=find_override,
        find_budget=find_budget,
        warn=warn,
        backoff=backoff,
    )
    return Rules(
        settings_for=limits.settings_for,
        on_platform=settings["LEASEHOLD_TASKS"] != IN_PROCESS,
        backoff=backoff,
        channels_for=catalog.channels_for,
        delivery=DeliveryRules(**arguments_of(DeliveryRules, settings)),
        **arguments_of(Rules, settings),
    )


#: What goes over an entry: the texts of its variables, its override, and its budget.
_Given = tuple[tuple[str | None, ...], StoredOverride | None, BudgetLimit | None]


class _StepLimits:
    """Resolves the settings of step types, anew only where a variable or override has changed."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        catalog: Catalog,
        environ: Mapping[str, str],
        *,
        find_override: Callable[[str], StoredOverride | None],
        find_budget: Callable[[str], BudgetLimit | None],
        warn: Callable[[str], object],
        backoff: Backoff,
    ) -> None:
        self._heartbeat = settings["PIPELINE_HEARTBEAT_S"]
        self._longest_heartbeat = settings["PIPELINE_LEASE_TTL_S"] / 3
        self._on_platform = settings["LEASEHOLD_TASKS"] != IN_PROCESS
        self._max_retries = settings["PIPELINE_MAX_RETRIES"]
        self._backoff = backoff
        self._steps = catalog.steps
        self._environ = environ
        self._find_override = find_override
        self._find_budget = find_budget
        strategy = settings["PIPELINE_LIMIT_STRATEGY"]
        self._by_budget = {
            step.step_type
            for step in catalog.steps
            if (step.limit_strategy or strategy) == Strategy.PHASE_DECOUPLED
        }
        self._own_tasks: frozenset[str] = settings["PIPELINE_OWN_TASKS"]
        self._warn = warn
        self._warned: set[str] = set()
        self._resolved: dict[str, tuple[_Given, StepSettings]] = {}

    def settings_for(self, step_type: str) -> StepSettings | None:
        """Return the settings of a step type at this moment; None: it is not known."""
        entry = self._steps.get(step_type)
        if entry is None:
            return None
        override = self._find_override(step_type)
        budget = self._find_budget(step_type) if step_type in self._by_budget else None
        given = (tuple(map(self._environ.get, entry.env_overrides)), override, budget)
        known = self._resolved.get(step_type)
        if known is None or known[0] != given:
            known = self._resolved[step_type] = (given, self._resolve(entry, override, budget))
        return known[1]

    def _resolve(
        self,
        entry: StepDispatchEntry,
        override: StoredOverride | None,
        budget: BudgetLimit | None,
    ) -> StepSettings:
        settings = effective_settings(
            entry,
            self._environ,
            override,
            budget,
            max_retries=self._max_retries,
            backoff=self._backoff,
            heartbeat=self._heartbeat,
            longest_heartbeat=self._longest_heartbeat,
            on_platform=self._on_platform,
        )
        for sentence in settings.refused:
            if sentence not in self._warned:
                self._warned.add(sentence)
                self._warn(sentence)
        has_own = entry.queue or self._own_tasks & {"all", entry.step_type, entry.queue_id}
        return replace(settings, own_task=True) if has_own else settings


def goes_by_budgets(catalog: Catalog, budgets: BudgetSettings) -> bool:
    """Return whether the limits of any step are its budget's."""
    strategies = {step.limit_strategy or budgets.strategy for step in catalog.steps}
    return Strategy.PHASE_DECOUPLED in strategies
