"""The dispatch registry: what is known of each step type, before any environment."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

from leasehold.errors import InvalidEntryError

#: Cloud Tasks listens to an HTTP target for at least and at most this long.
MIN_DEADLINE: Final = timedelta(seconds=15)
MAX_DEADLINE: Final = timedelta(minutes=30)

#: Middle parts of the engine's own PIPELINE_… variables that a step's could be mistaken for.
ENGINE_VARIABLES: Final = frozenset({"PIPELINE_STUCK_TIMEOUT_MS"})

_STEP_TYPE: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,62}")
_HANDLER: Final = re.compile(r"[\w.]+:[A-Za-z_]\w*")
REMOTE: Final = "remote"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvOverrides:
    """The variables that override a step's limits."""

    timeout_ms: str
    deadline_s: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDispatchEntry:
    """A step type: its handler and its limits.

    Args:
        step_type: its name; the stem of its variables and queue.
        handler: `module:function`, resolved when the step runs; `remote` for workers elsewhere.
        agent_timeout: the hard limit of the handler.
        dispatch_deadline: after this Cloud Tasks stops listening; 15 s to 30 min, above
            `agent_timeout`.
        env_overrides: the two variables; by default `PIPELINE_{STEP}_TIMEOUT_MS` and
            `PIPELINE_{STEP}_DEADLINE_S`.
        heartbeat_interval: how often the lease is renewed; None: never.
        isolation: where the handler runs: `process`, a child that can be killed, or `inline`.
        cleanup_ttl: what is left between the soft limit and the hard one; at most half of it.
        max_retries: None: the threshold PIPELINE_MAX_RETRIES.
        queue: the queue of its tasks; by default the step type, with `-` for `_`.

    Raises:
        InvalidEntryError: a field has a value that cannot be used.
    """

    step_type: str
    handler: str
    agent_timeout: timedelta
    dispatch_deadline: timedelta
    env_overrides: EnvOverrides | None = None
    heartbeat_interval: timedelta | None = timedelta(seconds=10)
    isolation: Literal["process", "inline"] = "process"
    cleanup_ttl: timedelta = timedelta(seconds=5)
    max_retries: int | None = None
    queue: str | None = None

    def __post_init__(self) -> None:
        if not _STEP_TYPE.fullmatch(self.step_type):
            self._refuse("step_type", self.step_type, "a letter, then up to 62 of a-z A-Z 0-9 _ -")
        if self.handler != REMOTE and not _HANDLER.fullmatch(self.handler):
            self._refuse("handler", self.handler, "'module:function' or 'remote'")
        if self.isolation not in ("process", "inline"):
            self._refuse("isolation", self.isolation, "'process' or 'inline'")
        if self.max_retries is not None and self.max_retries < 0:
            self._refuse("max_retries", self.max_retries, "0 or more, or None")
        if self.heartbeat_interval is not None and self.heartbeat_interval <= timedelta():
            self._refuse("heartbeat_interval", str(self.heartbeat_interval), "above 0, or None")
        for name in (self.variables.timeout_ms, self.variables.deadline_s):
            if name in ENGINE_VARIABLES:
                allowed = f"a name whose variable is not {name}, which is the engine's own"
                self._refuse("step_type", self.step_type, allowed)
        problem = ladder_problem(self.agent_timeout, self.dispatch_deadline)
        if problem is not None:
            field, value, allowed = problem
            self._refuse(field, value, allowed)

    @property
    def key(self) -> str:
        """The name the row is found by."""
        return self.step_type

    @property
    def variables(self) -> EnvOverrides:
        """The variables that override the limits."""
        if self.env_overrides is not None:
            return self.env_overrides
        stem = f"PIPELINE_{self.step_type.upper().replace('-', '_')}"
        return EnvOverrides(timeout_ms=f"{stem}_TIMEOUT_MS", deadline_s=f"{stem}_DEADLINE_S")

    @property
    def queue_id(self) -> str:
        """The id of the queue, which allows no `_`."""
        return (self.queue or self.step_type).replace("_", "-")

    def _refuse(self, field: str, value: object, allowed: str) -> None:
        raise InvalidEntryError(
            registry="dispatch", key=self.step_type, field=field, value=value, allowed=allowed
        )


def ladder_problem(
    agent_timeout: timedelta, dispatch_deadline: timedelta
) -> tuple[str, str, str] | None:
    """Return field, value and what is allowed where the time ladder does not hold, or None.

    The ladder: soft limit < hard limit (agent timeout) < dispatch deadline, 15 s to 1800 s.
    """
    if agent_timeout <= timedelta():
        return "agent_timeout", str(agent_timeout), "above 0"
    if not MIN_DEADLINE <= dispatch_deadline <= MAX_DEADLINE:
        return "dispatch_deadline", str(dispatch_deadline), "15 s to 1800 s"
    if agent_timeout >= dispatch_deadline:
        allowed = f"below the dispatch deadline ({dispatch_deadline})"
        return "agent_timeout", str(agent_timeout), allowed
    return None


def soft_limit(agent_timeout: timedelta, cleanup_ttl: timedelta) -> timedelta:
    """Return when a handler is asked to finish: `cleanup_ttl` before the end, at most half."""
    return agent_timeout - min(cleanup_ttl, agent_timeout / 2)
