"""What people set for step types until a time, as methods of the client."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol

from leasehold.api.overrides import OverrideBody, OverrideChange, OverrideReport
from leasehold.client.source import Source
from leasehold.errors import UnknownKeyError
from leasehold.registry.dispatch import STEP_TYPE_WORDS, is_step_type
from leasehold.services.limits import MAX_NAME


class _Client(Protocol):
    """What these methods need of a client."""

    @property
    def actor(self) -> str: ...

    @property
    def source(self) -> Source: ...


class OverrideCalls:
    """Limits that go over those of a step's entry, and under its variables, until a time."""

    def overrides(self: _Client) -> list[OverrideReport]:
        """Return all of them, also those that are over or refused."""
        return self.source.overrides()

    def override(
        self: _Client,
        step: str,
        *,
        until: datetime | timedelta | str,
        why: str,
        timeout_s: float | None = None,
        deadline_s: int | None = None,
    ) -> OverrideChange:
        """Set the limits of a step until a time: in force at its next dispatch, retries included.

        They replace the whole of what was set for the step before; the answer has both.

        Args:
            step: the step type.
            until: when it ends by itself: a time, text as `2026-11-22T06:00:00Z`, or how long.
            why: the reason; shown to all who read it.
            timeout_s: seconds that its handler may run; None: as without.
            deadline_s: whole seconds that its queue listens to an attempt; None: as without.

        Raises:
            UnknownKeyError: there is no such step.
            InvalidRequestError: it would break the time ladder, or its time is past. Nothing was
                changed.
        """
        _check(step)
        if isinstance(until, timedelta):
            until = self.source.now() + until
        body = OverrideBody.model_validate(
            {
                "timeoutS": timeout_s,
                "deadlineS": deadline_s,
                "until": until.isoformat() if isinstance(until, datetime) else until,
                "why": why,
            }
        )
        return self.source.override(body.to_request(step, self.actor))

    def clear_override(self: _Client, step: str) -> OverrideChange:
        """Delete the override of a step, if there is one; the answer has it as `replaced`."""
        _check(step)
        return self.source.clear_override(step)


def _check(step: str) -> None:
    """Refuse what can be the name of no step: it would be another address."""
    if not is_step_type(step):
        raise UnknownKeyError(registry="dispatch", key=step[:MAX_NAME], known=STEP_TYPE_WORDS)
