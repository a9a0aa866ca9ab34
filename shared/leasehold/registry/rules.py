"""What transitions need to know: the thresholds in force, and the limits of each step type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from leasehold.domain.dispatch import Rules, StepSettings
from leasehold.domain.retry import Backoff
from leasehold.registry.dispatch import StepDispatchEntry
from leasehold.registry.effective_settings import effective_settings
from leasehold.registry.pipelines import Catalog


def rules_of(
    settings: Mapping[str, Any],
    catalog: Catalog,
    environ: Mapping[str, str],
    warn: Callable[[str], object],
) -> Rules:
    """Return the rules in force, with the limits of steps as they are at each dispatch.

    Args:
        settings: the settings, as read.
        catalog: the step types.
        environ: where the overrides of their limits are looked up, at each dispatch.
        warn: given a sentence on each override that is refused, once.
    """
    backoff = Backoff(
        minimum=timedelta(seconds=settings["PIPELINE_MIN_BACKOFF_S"]),
        maximum=timedelta(seconds=settings["PIPELINE_MAX_BACKOFF_S"]),
        doublings=settings["PIPELINE_MAX_DOUBLINGS"],
    )
    limits = _StepLimits(settings, catalog, environ, warn, backoff)
    return Rules(
        settings_for=limits.settings_for,
        lease_ttl=limits.lease_ttl,
        grace=timedelta(seconds=settings["PIPELINE_DISPATCH_GRACE_S"]),
        max_interruptions=settings["PIPELINE_MAX_INTERRUPTIONS"],
        stuck_timeout=timedelta(milliseconds=settings["PIPELINE_STUCK_TIMEOUT_MS"]),
        recovery_window=timedelta(milliseconds=settings["PIPELINE_RECOVERY_WINDOW_MS"]),
        backoff=backoff,
    )


class _StepLimits:
    """Resolves the settings of step types, anew only where an override has changed."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        catalog: Catalog,
        environ: Mapping[str, str],
        warn: Callable[[str], object],
        backoff: Backoff,
    ) -> None:
        heartbeat = settings["PIPELINE_HEARTBEAT_S"]
        self.lease_ttl = timedelta(seconds=settings["PIPELINE_LEASE_TTL_S"])
        self._heartbeat = None if heartbeat is None else timedelta(seconds=heartbeat)
        self._max_retries = settings["PIPELINE_MAX_RETRIES"]
        self._backoff = backoff
        self._steps = catalog.steps
        self._environ = environ
        self._warn = warn
        self._warned: set[str] = set()
        self._resolved: dict[str, tuple[tuple[str | None, ...], StepSettings]] = {}

    def settings_for(self, step_type: str) -> StepSettings | None:
        """Return the settings of a step type at this moment; None: it is not known."""
        entry = self._steps.get(step_type)
        if entry is None:
            return None
        overrides = tuple(map(self._environ.get, entry.env_overrides))
        known = self._resolved.get(step_type)
        if known is None or known[0] != overrides:
            known = self._resolved[step_type] = (overrides, self._resolve(entry))
        return known[1]

    def _resolve(self, entry: StepDispatchEntry) -> StepSettings:
        settings = effective_settings(
            entry,
            self._environ,
            max_retries=self._max_retries,
            backoff=self._backoff,
            heartbeat=self._heartbeat,
            longest_heartbeat=self.lease_ttl / 3,
        )
        for sentence in settings.refused:
            if sentence not in self._warned:
                self._warned.add(sentence)
                self._warn(sentence)
        return settings
