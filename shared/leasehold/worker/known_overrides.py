"""The limits set for steps as this process knows them: read when it dispatches, at most every 10 s.

Those are the overrides of people, and their pauses; and the derived budgets, where a step goes by
them.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from leasehold.domain.budget import (
    MAX_BUDGETS_READ,
    BudgetLimit,
    applied_limit,
    is_to_be_applied,
)
from leasehold.domain.override import MAX_OVERRIDES_READ, StoredOverride, stored_override
from leasehold.domain.step_pause import StepPause, is_pause, stored_pause
from leasehold.errors import StoreUnavailableError
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Documents, Query, Snapshot

#: How old what is known may be.
MAX_OVERRIDES_AGE_S: Final = 10.0

#: A read gives up after this long: a worker that ends has so much for its releases.
_READ_TIMEOUT_S: Final = 3.0

_ALL: Final = Query("overrides", limit=MAX_OVERRIDES_READ, within=_READ_TIMEOUT_S)
_BUDGETS: Final = Query(
    "budgets", limit=MAX_BUDGETS_READ, within=_READ_TIMEOUT_S, fields=("strategy", "applied")
)


class KnownOverrides:
    """The overrides port over a store of documents; many threads use it, and one of them reads.

    Args:
        documents: where they are.
        clock: measures how old they are.
        log: given a line when they cannot be read; once, until they can.
        reads_budgets: whether a step goes by its budget.

    Attributes:
        pauses: those of step types and of all, by their ids, as they were read last.
    """

    def __init__(
        self,
        documents: Documents,
        clock: Clock,
        log: Callable[[str], object],
        *,
        reads_budgets: bool = False,
    ) -> None:
        self.pauses: dict[str, StepPause] = {}
        self._documents = documents
        self._reads_budgets = reads_budgets
        self._budgets: Mapping[str, BudgetLimit] = {}
        self._unusable: set[str] = set()
        self._clock = clock
        self._log = log
        self._reading = threading.Lock()
        self._read_again_at = -math.inf
        self._is_away = False
        self._known: Mapping[str, _Known] = {}

    def refresh(self) -> None:
        """Read them, unless that was done less than 10 s ago; an outage is logged, and no more."""
        if self._clock.monotonic() < self._read_again_at:
            return
        with self._reading:
            if self._clock.monotonic() < self._read_again_at:  # another thread has read them
                return
            try:
                self._read()
            except StoreUnavailableError as error:
                if not self._is_away:
                    self._log(
                        "the overrides of step limits cannot be read; those that were read last "
                        f"({', '.join(self._known) or 'none'}) stay in force: {error.message}"
                    )
                self._is_away = True

    def find(self, step_type: str) -> StoredOverride | None:
        """Return that of a step type as it is known, by the store's time now."""
        known = self._known.get(step_type)
        return None if known is None else known.at(self._clock.monotonic())

    def budget(self, step_type: str) -> BudgetLimit | None:
        """Return the derived limit of a step type as it is known; None: there is none."""
        return self._budgets.get(step_type)

    def read(self) -> Sequence[StoredOverride]:
        """Read them at once, and return all, by their ids."""
        with self._reading:
            self._read()
        now = self._clock.monotonic()
        return [known.at(now) for known in self._known.values()]

    def _read(self) -> None:
        asked_at = self._clock.monotonic()
        try:
            found = self._documents.query(_ALL)
            self._known = {one.ref.id: _Known(one) for one in found if not is_pause(one.ref.id)}
            self._note_pauses([one for one in found if is_pause(one.ref.id)])
            if self._reads_budgets:
                self._budgets = self._read_budgets()
            self._is_away = False
        finally:  # a store that is away is not asked more often, either
            self._read_again_at = asked_at + MAX_OVERRIDES_AGE_S

    def _note_pauses(self, found: Sequence[Snapshot]) -> None:
        """Note the pauses, in the mapping that the rules have: one at a time, as others read it."""
        now = {one.ref.id: stored_pause(one.ref.id, one.document) for one in found}
        for id_ in self.pauses.keys() - now.keys():
            del self.pauses[id_]
        self.pauses.update(now)

    def _read_budgets(self) -> dict[str, BudgetLimit]:
        """Return the derived limits; of one that cannot be used, the last good one, and say so."""
        found, unusable = {}, set()
        for one in self._documents.query(_BUDGETS):
            if not is_to_be_applied(one.document):
                continue
            step = one.ref.id
            limit = applied_limit(one.document)
            if limit is None:
                unusable.add(step)
                limit = self._budgets.get(step)
                if step not in self._unusable:
                    holds = "the entry's limit holds" if limit is None else "the last one holds"
                    self._log(f"budgets/{step} has no limit that can be used; {holds}")
            if limit is not None:
                found[step] = limit
        self._unusable = unusable
        return found


class _Known:
    """An override as it was read, and the monotonic time at which it is over."""

    def __init__(self, found: Snapshot) -> None:
        self._stored = stored_override(found.ref.id, found.document, found.read_at)
        override, self._over_at = self._stored.override, math.inf
        if override is not None:
            left = (override.until - found.read_at).total_seconds()
            self._over_at = found.monotonic + left

    def at(self, monotonic: float) -> StoredOverride:
        """Return it as it is at that time."""
        if self._stored.is_over or monotonic < self._over_at:
            return self._stored
        return replace(self._stored, is_over=True)
