"""The dispatch registry: what is known of each step type, before any environment."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from datetime import timedelta
from functools import partial
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from leasehold.domain.deadlines import MAX_DEADLINE, MIN_DEADLINE, PLATFORM_DEADLINE
from leasehold.domain.limit import Limit
from leasehold.domain.manifest_parts import DEFAULT_CLEANUP, ENTRY_OPTIONS, RetryRule
from leasehold.domain.retry import Backoff
from leasehold.domain.spend import Budget
from leasehold.errors import InvalidEntryError, PlatformLimitError
from leasehold.frozen import dataclass
from leasehold.registry.registry import FUNCTION_WORDS, UserFunction, path_of
from leasehold.registry.settings import SETTINGS

# The retry policy of a step: its waits, and the errors that no retry repairs.


_MAX_RETRY_WAIT: Final = timedelta(days=1)
_MAX_RETRY_FACTOR: Final = 100
_MAX_ERROR_NAMES: Final = 20
_MAX_ERROR_NAME_CHARS: Final = 200
_NAME: Final = re.compile(r"[\w.-]+(?::[\w.]+)?")
_NAMES: Final = (
    "a tuple of at most 20 classes of exceptions, their names ('ValueError', 'module:Class') "
    "or codes of errors ('rate_limited')"
)

_WAITS: Final = "a timedelta above 0, at most a day, or None"

#: Whether a value can be used, its field, the value, and what is allowed.
Check = tuple[bool, str, object, str]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How a step is retried. How often, its `max_retries` says.

    The waits are `first`, `first * factor`, `first * factor * factor`, and so on up to `max`.

    Args:
        first: the wait after the first failure; None: PIPELINE_MIN_BACKOFF_S.
        factor: how much longer each wait is than the one before; 1 to 100.
        max: no wait is longer; None: PIPELINE_MAX_BACKOFF_S, or `first` where that is longer.
        non_retryable: errors that give the run up at once, as PERMANENT_FAILURE: classes of
            exceptions, which stand for their subclasses too; their names, as `ValueError` or
            `module:Class`, so that a catalog imports no client library; or codes of errors.
    """

    first: timedelta | None = None
    factor: float = 2.0
    max: timedelta | None = None
    non_retryable: tuple[type[BaseException] | str, ...] = ()

    def checks(self) -> Iterator[Check]:
        """Yield each field with whether its value can be used, and what is allowed."""
        for field, wait in (("first", self.first), ("max", self.max)):
            fits = wait is None or (
                isinstance(wait, timedelta) and timedelta() < wait <= _MAX_RETRY_WAIT
            )
            yield fits, f"retry.{field}", _shown(wait), _WAITS
        allowed = f"a number from 1 to {_MAX_RETRY_FACTOR}"
        yield _is_factor(self.factor), "retry.factor", self.factor, allowed
        if isinstance(self.first, timedelta) and isinstance(self.max, timedelta):
            allowed = f"retry.first ({self.first}) or more"
            yield self.first <= self.max, "retry.max", str(self.max), allowed
        listed: Any = self.non_retryable
        is_list = isinstance(listed, tuple | list) and len(listed) <= _MAX_ERROR_NAMES
        yield is_list, "retry.non_retryable", listed, _NAMES
        for one in listed:
            yield _is_name(one), "retry.non_retryable", one, _NAMES

    def in_force(self, backoff: Backoff) -> RetryRule:
        """Return the policy as a dispatch keeps it.

        Args:
            backoff: the waits of steps without a policy: those hold that this one leaves out.
        """
        first = self.first or min(backoff.minimum, self.max or backoff.minimum)
        longest = self.max or max(first, backoff.maximum)
        return RetryRule(
            first_s=first.total_seconds(),
            factor=float(self.factor),
            max_s=longest.total_seconds(),
            non_retryable=tuple(map(_name, self.non_retryable)),
        )


def _name(listed: type[BaseException] | str) -> str:
    return listed if isinstance(listed, str) else f"{listed.__module__}:{listed.__qualname__}"


def _is_name(listed: Any) -> bool:
    if isinstance(listed, type):
        return issubclass(listed, BaseException)
    is_text = isinstance(listed, str) and len(listed) <= _MAX_ERROR_NAME_CHARS
    return is_text and _NAME.fullmatch(listed) is not None


def _is_factor(factor: Any) -> bool:
    is_number = isinstance(factor, int | float) and not isinstance(factor, bool)
    return is_number and math.isfinite(factor) and 1 <= factor <= _MAX_RETRY_FACTOR


def _shown(value: object) -> object:
    return str(value) if isinstance(value, timedelta) else value


_TIMES_DECLARED: Final = 4

#: The engine's own variables: no step type may be overridden by one of them.
ENGINE_VARIABLES: Final = frozenset(SETTINGS.keys())

_STEP_TYPE: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,62}")
STEP_TYPE_WORDS: Final = "a letter, then up to 62 of a-z A-Z 0-9 _ -"
_HANDLER: Final = re.compile(r"[\w.]+:[A-Za-z_]\w*")
_QUEUE: Final = re.compile(r"[a-zA-Z0-9_-]{1,100}")
_QUEUE_WORDS: Final = "1 to 100 of a-z A-Z 0-9 _ -"
REMOTE: Final = "remote"

#: Python with Leasehold's part in it needs most of the least; the most fits into any store.
MIN_MEMORY_LIMIT_BYTES: Final = 64 * 1024**2
MAX_MEMORY_LIMIT_BYTES: Final = 1024**4
_MEMORY_WORDS: Final = "bytes, from 64 MiB (64 * 1024**2) to 1 TiB (1024**4), or None"

#: A worker listens to its handlers about this often.
_MIN_SILENCE: Final = timedelta(seconds=1)
_SILENCE_REMOTE_WORDS: Final = (
    "None: no worker here hears what a remote worker does between its calls"
)

_REUSE_WORDS: Final = "a whole number, 1 or more"
_REUSE_ALONE_WORDS: Final = (
    "1: only the process of a handler (isolation='process') can be used again"
)

_HEARTBEAT_WORDS: Final = (
    "a timedelta: without a heartbeat a dead worker is not noticed before the dispatch "
    f"deadline, and that is above {PLATFORM_DEADLINE.total_seconds():g} s"
)
_HANDLER_WORDS: Final = "'module:function' or 'remote'"
_MODULE_WORDS: Final = "a module (its own process has another __main__), or isolation='inline'"
_ACTIONS_WORDS: Final = "a tuple of 'module:function', each once"


class StepOption(NamedTuple):
    """The allowed values of an option of a step, and its other places.

    An option that is the same for all attempts of a step needs a row, and the code that uses it.
    One that an attempt keeps whatever is deployed meanwhile is a field of `Dispatch`, too, and one
    of its `ENTRY_OPTIONS`.

    Args:
        kind: what a value must be an instance of.
        allowed: what it may be, in words.
        usable: whether a value of this kind may be used; what depends on other options is checked
            in `StepDispatchEntry`.
        is_listed: whether the report of a step lists it among its `options`; the others have
            their own fields there.
        field: its name with the unit, in the report and in `Dispatch`; empty: its own name.
        plain: its value there.
    """

    kind: type | UnionType
    allowed: str
    usable: Callable[[Any], bool] = lambda _: True
    is_listed: bool = True
    field: str = ""
    plain: Callable[[Any], Any] = lambda value: value


_named: Final = partial(StepOption, is_listed=False)


def _milliseconds(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)


#: How the limits of a step are chosen: the values of `Strategy` in `budgets/proposal.py`, which no
#: catalog needs to import.
STRATEGIES: Final = ("fixed", "propose", "phase_decoupled")

#: The options of a step, in the order in which they are checked.
OPTIONS: Final[Mapping[str, StepOption]] = {
    "step_type": _named(str, STEP_TYPE_WORDS),
    "handler": _named(str, _HANDLER_WORDS),
    "agent_timeout": _named(timedelta, "a timedelta"),
    "dispatch_deadline": _named(timedelta, "a timedelta"),
    "heartbeat_interval": _named(timedelta | None, "a timedelta, or None"),
    "isolation": _named(str, "'process' or 'inline'", lambda where: where in ("process", "inline")),
    "cleanup_ttl": _named(timedelta, "a timedelta", field="cleanup_ms", plain=_milliseconds),
    "memory_limit": _named(
        int | None,
        _MEMORY_WORDS,
        lambda limit: limit is None or MIN_MEMORY_LIMIT_BYTES <= limit <= MAX_MEMORY_LIMIT_BYTES,
        field="memory_limit_bytes",
    ),
    "silence_limit": StepOption(
        timedelta | None,
        "a timedelta, or None",
        field="silence_limit_ms",
        plain=lambda limit: None if limit is None else _milliseconds(limit),
    ),
    "reuse": _named(int, _REUSE_WORDS, lambda reuse: reuse >= 1),
    "max_retries": _named(int | None, "a whole number, 0 or more, or None"),
    "retry": _named(RetryPolicy | None, "a RetryPolicy, or None"),
    "schedule_to_start": StepOption(
        timedelta, "a timedelta", field="schedule_to_start_s", plain=timedelta.total_seconds
    ),
    "output": StepOption(
        str,
        "'module:Model', or nothing",
        lambda path: not path or _HANDLER.fullmatch(path) is not None,
    ),
    "budget": StepOption(Budget | None, "a Budget, or None", plain=lambda it: it and it.as_limit()),
    "gates": StepOption(tuple | list, "a tuple of names of gates"),
    "limits": StepOption(
        tuple | list, "a tuple of Limits", plain=lambda limits: [asdict(one) for one in limits]
    ),
    "entry_actions": StepOption(tuple | list, _ACTIONS_WORDS),
    "limit_strategy": StepOption(
        str | None,
        "'fixed', 'propose' or 'phase_decoupled', or None",
        lambda name: name is None or name in STRATEGIES,
    ),
    "queue": _named(str, _QUEUE_WORDS, lambda name: not name or _QUEUE.fullmatch(name) is not None),
}
_FROZEN: Final = tuple(
    (name, option.field or name, option.plain)
    for name, option in OPTIONS.items()
    if (option.field or name) in ENTRY_OPTIONS
)


class EnvOverrides(NamedTuple):
    """The variables of the environment that override a step's limits.

    Args:
        timeout_ms: the name of the one with its `agent_timeout`, in milliseconds.
        deadline_s: the name of the one with its `dispatch_deadline`, in seconds.
    """

    timeout_ms: str
    deadline_s: str


_BY_STEP_TYPE: Final = EnvOverrides("", "")


#: Where a handler runs: in a child that can be killed, or in its worker's own thread.
Isolation = Literal["process", "inline"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDispatchEntry:
    """A step type: its handler and its limits.

    Args:
        step_type: its name; the stem of its variables and queue.
        handler: the function, or its path `module:function`, which is resolved when the step runs;
            `remote` for remote workers. An entry keeps the path.
        agent_timeout: the hard limit of the handler.
        dispatch_deadline: an attempt that still runs then has failed; 15 s to 7 days, above
            `agent_timeout`. Cloud Tasks listens for at most 30 min; above that a step needs a
            heartbeat, and runs on `leasehold serve`, in process, or on remote workers.
        env_overrides: the two variables; by default `PIPELINE_{STEP}_TIMEOUT_MS` and
            `PIPELINE_{STEP}_DEADLINE_S`.
        heartbeat_interval: how often the lease is renewed; None: never.
        isolation: where the handler runs: `process`, a child that can be killed, or `inline`.
        cleanup_ttl: what is left between the soft limit and the hard one; at most half of it.
        memory_limit: how many bytes the handler's process may use, its own children included; None:
            as many as there are.
        silence_limit: how long the handler may say nothing: without progress, checkpoint, call of
            `ctx`, log line or printed text for that time its attempt has failed; 1 s or more, below
            `agent_timeout`. None: there is no limit.
        reuse: how many attempts of the step a process may serve, one after the other, as long as
            each ends well and leaves nothing behind; 1: each attempt has a fresh process.
        max_retries: None: the threshold PIPELINE_MAX_RETRIES.
        retry: its waits between attempts, and the errors that no retry repairs; None: the waits of
            all steps.
        queue: the queue of its tasks; by default the step type, with `-` for `_`.
        schedule_to_start: how long a remote step may wait to be claimed before the run is given
            up as NEVER_STARTED; whole seconds.
        budget: how much the step may spend in a run, over all its attempts and trials, before the
            run blocks; None: as much as the run.
        limits: how many of its attempts there may be at once, or a minute, under a key.
        gates: the gates that its output must pass, in order; names of the gate registry.
        entry_actions: functions `(ctx, given)`, as `module:function`, that are called in this order
            before the handler, in each attempt and under its limits.
        limit_strategy: how its limits are chosen: `fixed`, `propose` or `phase_decoupled`; None: as
            PIPELINE_LIMIT_STRATEGY says.
        output: the model of a remote step's output, `module:Model`; other steps say it in their
            handler's annotation.

    Raises:
        InvalidEntryError: a field has a value that cannot be used.
    """

    step_type: str
    handler: str
    agent_timeout: timedelta
    dispatch_deadline: timedelta
    env_overrides: EnvOverrides = _BY_STEP_TYPE
    heartbeat_interval: timedelta | None = timedelta(seconds=10)
    isolation: Isolation = "process"
    cleanup_ttl: timedelta = DEFAULT_CLEANUP
    memory_limit: int | None = None
    silence_limit: timedelta | None = None
    reuse: int = 1
    max_retries: int | None = None
    retry: RetryPolicy | None = None
    queue: str = ""
    schedule_to_start: timedelta = timedelta(hours=1)
    output: str = ""
    budget: Budget | None = None
    limits: tuple[Limit, ...] = ()
    gates: tuple[str, ...] = ()
    entry_actions: tuple[str, ...] = ()
    limit_strategy: str | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            step_type: str,
            handler: str | UserFunction,
            agent_timeout: timedelta,
            dispatch_deadline: timedelta,
            env_overrides: EnvOverrides = ...,
            heartbeat_interval: timedelta | None = ...,
            isolation: Isolation = ...,
            cleanup_ttl: timedelta = ...,
            memory_limit: int | None = ...,
            silence_limit: timedelta | None = ...,
            reuse: int = ...,
            max_retries: int | None = ...,
            retry: RetryPolicy | None = ...,
            queue: str = ...,
            schedule_to_start: timedelta = ...,
            output: str = ...,
            budget: Budget | None = ...,
            limits: tuple[Limit, ...] = ...,
            gates: tuple[str, ...] = ...,
            entry_actions: tuple[str, ...] = ...,
            limit_strategy: str | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "handler", path_of(self.handler))
        except ValueError as error:
            self._refuse("handler", str(error), f"{FUNCTION_WORDS}, or {_HANDLER_WORDS}")
        self._check_classes()
        object.__setattr__(self, "env_overrides", self._variables())
        object.__setattr__(self, "limits", tuple(self.limits))
        object.__setattr__(self, "gates", tuple(self.gates))
        object.__setattr__(self, "entry_actions", tuple(self.entry_actions))
        for usable, field, value, allowed in self._checks():
            if not usable:
                self._refuse(field, value, allowed)
        if problem := ladder_problem(self.agent_timeout, self.dispatch_deadline):
            self._refuse(*problem)

    @property
    def key(self) -> str:
        """The name the row is found by."""
        return self.step_type

    @property
    def queue_id(self) -> str:
        """The id of the queue, which allows no `_`."""
        return (self.queue or self.step_type).replace("_", "-")

    def frozen_options(self) -> dict[str, Any]:
        """Return what each dispatch freezes of the entry as it is, by the fields of `Dispatch`."""
        return {field: plain(getattr(self, name)) for name, field, plain in _FROZEN}

    def listed_options(self) -> dict[str, Any]:
        """Return the options that a report lists and that are not left at their defaults."""
        defaults = {one.name: one.default for one in fields(self)}
        return {
            option.field or name: option.plain(getattr(self, name))
            for name, option in OPTIONS.items()
            if option.is_listed and getattr(self, name) != defaults[name]
        }

    def _check_classes(self) -> None:
        for name, option in OPTIONS.items():
            value = getattr(self, name)
            is_kind = isinstance(value, option.kind) and not isinstance(value, bool)
            if not is_kind or not option.usable(value):
                self._refuse(name, value, option.allowed)
        names = self.env_overrides
        if not isinstance(names, tuple) or [type(name) for name in names] != [str, str]:
            self._refuse("env_overrides", names, "EnvOverrides, the names of two variables")

    def _variables(self) -> EnvOverrides:
        stem = f"PIPELINE_{self.step_type.upper().replace('-', '_')}"
        timeout_ms, deadline_s = self.env_overrides
        return EnvOverrides(timeout_ms or f"{stem}_TIMEOUT_MS", deadline_s or f"{stem}_DEADLINE_S")

    def _checks(self) -> Iterator[tuple[bool, str, object, str]]:
        """Yield whether a field can be used, its name, its value, and what is allowed."""
        name, heartbeat, retries = self.step_type, self.heartbeat_interval, self.max_retries
        of_handler = self.handler == REMOTE or _HANDLER.fullmatch(self.handler) is not None
        yield _STEP_TYPE.fullmatch(name) is not None, "step_type", name, STEP_TYPE_WORDS
        yield of_handler, "handler", self.handler, _HANDLER_WORDS
        yield not self._is_of_program(self.handler), "handler", self.handler, _MODULE_WORDS
        yield retries is None or retries >= 0, "max_retries", retries, "0 or more, or None"
        beats = heartbeat is None or heartbeat > timedelta()
        yield beats, "heartbeat_interval", str(heartbeat), "above 0, or None"
        is_noticed = heartbeat is not None or self.dispatch_deadline <= PLATFORM_DEADLINE
        yield is_noticed, "heartbeat_interval", heartbeat, _HEARTBEAT_WORDS
        yield self.cleanup_ttl > timedelta(), "cleanup_ttl", str(self.cleanup_ttl), "above 0"
        limit = self.memory_limit
        has_process = self.isolation == "process" and self.handler != REMOTE
        can_hold = limit is None or has_process
        alone = "None: only a handler in its own process (isolation='process') is held to it"
        yield can_hold, "memory_limit", limit, alone
        yield from self._silence_checks()
        yield self.reuse == 1 or has_process, "reuse", self.reuse, _REUSE_ALONE_WORDS
        waits = self.schedule_to_start >= timedelta(seconds=1)
        yield waits, "schedule_to_start", str(self.schedule_to_start), "1 s or more"
        yield from self._entry_action_checks()
        if self.retry is not None:
            yield from self.retry.checks()
        if self.limits:
            yield from self._limit_checks()
        if self.budget is not None:
            yield from ((False, *problem) for problem in self.budget.problems())
        for variable in self.env_overrides:
            allowed = f"a name whose variable is not {variable}, which is the engine's own"
            yield variable not in ENGINE_VARIABLES, "step_type", name, allowed
        timeout_ms, deadline_s = self.env_overrides
        yield timeout_ms != deadline_s, "env_overrides", timeout_ms, "one variable for each limit"

    def _silence_checks(self) -> Iterator[Check]:
        if (limit := self.silence_limit) is None:
            return
        yield self.handler != REMOTE, "silence_limit", str(limit), _SILENCE_REMOTE_WORDS
        fits = _MIN_SILENCE <= limit < self.agent_timeout
        allowed = f"1 s or more, and below the agent timeout ({self.agent_timeout})"
        yield fits, "silence_limit", str(limit), allowed

    def _entry_action_checks(self) -> Iterator[tuple[bool, str, object, str]]:
        actions = self.entry_actions
        for action in actions:
            is_path = isinstance(action, str) and _HANDLER.fullmatch(action) is not None
            yield is_path, "entry_actions", action, _ACTIONS_WORDS
            yield actions.count(action) == 1, "entry_actions", action, _ACTIONS_WORDS
            yield not self._is_of_program(action), "entry_actions", action, _MODULE_WORDS
        is_here = self.handler != REMOTE or not actions
        yield is_here, "entry_actions", actions, "(): a remote worker does all of its step itself"

    def _limit_checks(self) -> Iterator[Check]:
        for limit in self.limits:
            yield isinstance(limit, Limit), "limits", limit, "Limit(KEY, at_once=…, per_minute=…)"
            yield from ((False, *problem) for problem in limit.problems())
        for key in (limit.key for limit in self.limits):
            is_alone = [limit.key for limit in self.limits].count(key) == 1
            yield is_alone, "limits", key, "each key once: a Limit takes at_once and per_minute"
        is_here = self.handler != REMOTE
        yield is_here, "limits", self.limits[0].key, "(): a remote worker takes no slots"

    def _is_of_program(self, path: str) -> bool:
        """Return whether a function is in the program itself, which a new process cannot import."""
        return self.isolation == "process" and path.startswith("__main__:")

    def _refuse(self, field: str, value: object, allowed: str) -> None:
        raise InvalidEntryError(
            registry="dispatch", key=self.step_type, field=field, value=value, allowed=allowed
        )


def is_step_type(name: str) -> bool:
    """Return whether a step may have that name."""
    return _STEP_TYPE.fullmatch(name) is not None


def deadline_cap(entry: StepDispatchEntry, *, on_platform: bool) -> timedelta:
    """Return the longest dispatch deadline that a step may have.

    Args:
        entry: the step; no queue waits for a remote worker.
        on_platform: whether Cloud Tasks calls the steps.
    """
    is_called = on_platform and entry.handler != REMOTE
    return PLATFORM_DEADLINE if is_called or entry.heartbeat_interval is None else MAX_DEADLINE


def budget_cap(entry: StepDispatchEntry, *, on_platform: bool) -> timedelta:
    """Return the longest limit that may be derived for a step, and that its tail probes have.

    30 minutes, or four times what its entry says; never more than the step may have at all. Where
    no platform sets an end, a hang in a tail probe would else be noticed after days.
    """
    longest = max(PLATFORM_DEADLINE, _TIMES_DECLARED * entry.dispatch_deadline)
    return max(min(deadline_cap(entry, on_platform=on_platform), longest), entry.dispatch_deadline)


def check_platform(steps: Iterable[StepDispatchEntry]) -> None:
    """Refuse steps that Cloud Tasks cannot wait for, with PlatformLimitError."""
    found = [
        f"{entry.step_type} ({entry.dispatch_deadline})"
        for entry in steps
        if entry.dispatch_deadline > deadline_cap(entry, on_platform=True)
    ]
    if found:
        raise PlatformLimitError(
            steps=", ".join(found), most_s=round(PLATFORM_DEADLINE.total_seconds())
        )


def ladder_problem(
    agent_timeout: timedelta, dispatch_deadline: timedelta, longest: timedelta = MAX_DEADLINE
) -> tuple[str, str, str] | None:
    """Return field, value and what is allowed where the time ladder does not hold, or None.

    The ladder: soft limit < hard limit (agent timeout) < dispatch deadline, 15 s to `longest`.
    """
    if agent_timeout <= timedelta():
        return "agent_timeout", str(agent_timeout), "above 0"
    if not MIN_DEADLINE <= dispatch_deadline <= longest:
        return "dispatch_deadline", str(dispatch_deadline), f"15 s to {longest.total_seconds():g} s"
    if agent_timeout >= dispatch_deadline:
        allowed = f"below the dispatch deadline ({dispatch_deadline})"
        return "agent_timeout", str(agent_timeout), allowed
    return None
