"""A store as a client opens it: when it is needed, and with a catalog only for what needs one."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from leasehold.bootstrap import Bundle, Hooks, Purpose, boot, log_report, store_exists
from leasehold.domain.override import StoredOverride
from leasehold.errors import (
    LeaseholdError,
    MissingCatalogError,
    MissingExtraError,
    SettingError,
    StoreUnavailableError,
    StoreVersionError,
)
from leasehold.frozen import dataclass
from leasehold.registry.pipelines import NO_CATALOG
from leasehold.services.engine import Engine
from leasehold.services.reporting import Facts
from leasehold.services.sweep import SWEEP_FINISHED


@dataclass(frozen=True, slots=True)
class _Unread:
    """The overrides of a store that cannot be opened."""

    problem: LeaseholdError

    def refresh(self) -> None:
        """Read nothing."""

    def find(self, _step_type: str) -> None:
        """Return that none is known."""

    def budget(self, _step_type: str) -> None:
        """Return that none is known."""

    def read(self) -> Sequence[StoredOverride]:
        """Raise why they cannot be read."""
        raise self.problem


class Store:
    """The engines of one store: to read it, and to change what is in it.

    A store that is not there is read as empty, and stays away until a run is started in it.
    This process runs nothing: a queue within it is another process's.

    Args:
        environ: the settings.
        warn: given each override and threshold that is refused, once.
    """

    def __init__(self, environ: Mapping[str, str], warn: Callable[[str], object]) -> None:
        self._environ = environ
        self._warn = warn
        self._lock = threading.RLock()
        self._reading: Bundle | None = None
        self._changing: Bundle | None = None
        self._looking: Bundle | None = None

    def is_there(self) -> bool:
        """Return whether there is a store."""
        return self._reading is not None or store_exists(self._environ)

    def to_read(self) -> Engine:
        """Return the engine that knows no catalog."""
        with self._lock:
            if self.is_there():
                return self.make()
            return self._boot(Purpose.PREVIEW, catalog=NO_CATALOG).engine

    def to_change(self) -> Engine:
        """Return the engine that knows the catalog of the settings; where no store is, a preview.

        A bus within this process sends nothing but by `deliver_due`.

        Raises:
            CatalogError, and the errors of the registries.
        """
        with self._lock:
            if not self.is_there():
                return self._boot(Purpose.PREVIEW).engine
            if self._changing is None:
                documents = self.make().documents
                self._changing = self._boot(
                    Purpose.CHANGE, warn=self._warn, documents=documents, announces_by_hand=True
                )
            return self._changing.engine

    def to_cancel(self) -> Engine:
        """Return the engine that cancels: it has to work without a catalog that can be used.

        The catalog says which channels get the announcement; where none does, the sweep's will.
        """
        try:
            return self.to_change()
        except LeaseholdError:
            return self.to_read()

    def to_explain(self) -> Engine:
        """Return the engine whose rules explain runs: those of the catalog, where there is one.

        Raises:
            CatalogError, and the errors of the registries: there is one that cannot be used.
        """
        with self._lock:
            if self.is_there():
                with contextlib.suppress(MissingCatalogError):
                    return self._to_look()
            return self.to_read()

    def to_report(self) -> Engine:
        """Return the engine that says what the catalog is, and what the store says of its limits.

        Without its store it says why no override is known.

        Raises:
            CatalogError, and the errors of the registries.
        """
        with self._lock:
            try:
                if self.is_there():
                    return self._to_look()
            except (SettingError, StoreUnavailableError, StoreVersionError, MissingExtraError) as e:
                preview = self._boot(Purpose.PREVIEW, warn=self._warn).engine
                return replace(preview, overrides=_Unread(e))
            return self._boot(Purpose.PREVIEW, warn=self._warn).engine

    def deliver_due(self) -> None:
        """Send what is due to channels, if this process is the only sender."""
        if self._changing is not None:
            self._changing.deliver_due()

    def make(self) -> Engine:
        """Open the store, which makes one that is not there; return the engine to read it."""
        with self._lock:
            if self._reading is None:
                self._reading = self._boot(Purpose.READ, catalog=NO_CATALOG)
            return self._reading.engine

    def close(self) -> None:
        """Close the store."""
        with self._lock:
            if self._reading is not None:
                self._reading.close()
            self._reading = self._changing = self._looking = None

    def _to_look(self) -> Engine:
        """Return the engine that reads the store and knows the catalog."""
        if self._looking is None:
            documents = self.make().documents
            self._looking = self._boot(Purpose.READ, warn=self._warn, documents=documents)
        return self._looking.engine

    def _boot(
        self, purpose: Purpose, *, warn: Callable[[str], object] = lambda _: None, **given: Any
    ) -> Bundle:
        hooks = Hooks(warn=warn, report=_report)
        return boot(self._environ, hooks=hooks, purpose=purpose, **given)


def _report(facts: Facts) -> None:
    """Log what happened; what a sweep came to, its caller is answered."""
    if facts["event"] != SWEEP_FINISHED:
        log_report(facts)
