"""What transitions need to know: the thresholds in force, and the limits of each step type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from leasehold.domain.delivery_rules import DeliveryRules
from leasehold.domain.dispatch import Rules, StepSettings
from leasehold.domain.override import StoredOverride
from leasehold.domain.retry import Backoff
from leasehold.registry.dispatch import StepDispatchEntry
from leasehold.registry.effective_settings import effective_settings
from leasehold.registry.pipelines import Catalog
from leasehold.registry.setting_texts import IN_PROCESS


def rules_of(
    settings: Mapping[str, Any],
    catalog: Catalog,
    environ: Mapping[str, str],
    find_override: Callable[[str], StoredOverride | None],
    warn: Callable[[str], object],
) -> Rules:
    """Return the rules in force, with the limits of steps as they are at each dispatch.

    Args:
        settings: the settings, as read.
        catalog: the step types.
        environ: where the variables of their limits are looked up, at each dispatch.
        find_override: returns the override of a step type, as it is at each dispatch.
        warn: given a sentence on each limit that is refused, once.
    """
    backoff = Backoff(
        minimum=timedelta(seconds=settings["PIPELINE_MIN_BACKOFF_S"]),
        maximum=timedelta(seconds=settings["PIPELINE_MAX_BACKOFF_S"]),
        doublings=settings["PIPELINE_MAX_DOUBLINGS"],
    )
    limits = _StepLimits(
        settings, catalog, environ, find_override=find_override, warn=warn, backoff=backoff
    )
    return Rules(
        settings_for=limits.settings_for,
        lease_ttl=limits.lease_ttl,
        grace=timedelta(seconds=settings["PIPELINE_DISPATCH_GRACE_S"]),
        on_platform=settings["LEASEHOLD_TASKS"] != IN_PROCESS,
        max_failures=settings["PIPELINE_MAX_FAILURES"],
        max_interruptions=settings["PIPELINE_MAX_INTERRUPTIONS"],
        stuck_timeout=timedelta(milliseconds=settings["PIPELINE_STUCK_TIMEOUT_MS"]),
        recovery_window=timedelta(milliseconds=settings["PIPELINE_RECOVERY_WINDOW_MS"]),
        backoff=backoff,
        channels_for=catalog.channels_for,
        delivery=_delivery_rules(settings),
    )


def _delivery_rules(settings: Mapping[str, Any]) -> DeliveryRules:
    def seconds(name: str) -> timedelta:
        return timedelta(seconds=settings[f"PIPELINE_{name}_S"])

    return DeliveryRules(
        tries=settings["PIPELINE_DELIVERY_TRIES"],
        first_wait=seconds("DELIVERY_WAIT"),
        longest_wait=seconds("DELIVERY_MAX_WAIT"),
        timeout=seconds("DELIVERY_TIMEOUT"),
        call_time=seconds("DELIVERY_CALL"),
        give_up_after=seconds("DELIVERY_GIVE_UP"),
        channel_failures=settings["PIPELINE_CHANNEL_FAILURES"],
        channel_rest=seconds("CHANNEL_REST"),
    )


#: What goes over an entry: the texts of its variables, and its override.
_Given = tuple[tuple[str | None, ...], StoredOverride | None]


class _StepLimits:
    """Resolves the settings of step types, anew only where a variable or override has changed."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        catalog: Catalog,
        environ: Mapping[str, str],
        *,
        find_override: Callable[[str], StoredOverride | None],
        warn: Callable[[str], object],
        backoff: Backoff,
    ) -> None:
        heartbeat = settings["PIPELINE_HEARTBEAT_S"]
        self.lease_ttl = timedelta(seconds=settings["PIPELINE_LEASE_TTL_S"])
        self._heartbeat = None if heartbeat is None else timedelta(seconds=heartbeat)
        self._on_platform = settings["LEASEHOLD_TASKS"] != IN_PROCESS
        self._max_retries = settings["PIPELINE_MAX_RETRIES"]
        self._backoff = backoff
        self._steps = catalog.steps
        self._environ = environ
        self._find_override = find_override
        self._warn = warn
        self._warned: set[str] = set()
        self._resolved: dict[str, tuple[_Given, StepSettings]] = {}

    def settings_for(self, step_type: str) -> StepSettings | None:
        """Return the settings of a step type at this moment; None: it is not known."""
        entry = self._steps.get(step_type)
        if entry is None:
            return None
        override = self._find_override(step_type)
        given = (tuple(map(self._environ.get, entry.env_overrides)), override)
        known = self._resolved.get(step_type)
        if known is None or known[0] != given:
            known = self._resolved[step_type] = (given, self._resolve(entry, override))
        return known[1]

    def _resolve(self, entry: StepDispatchEntry, override: StoredOverride | None) -> StepSettings:
        settings = effective_settings(
            entry,
            self._environ,
            override,
            max_retries=self._max_retries,
            backoff=self._backoff,
            heartbeat=self._heartbeat,
            longest_heartbeat=self.lease_ttl / 3,
            on_platform=self._on_platform,
        )
        for sentence in settings.refused:
            if sentence not in self._warned:
                self._warned.add(sentence)
                self._warn(sentence)
        return settings
