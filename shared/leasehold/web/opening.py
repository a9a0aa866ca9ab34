"""The engine of a function: checked when the function is imported, opened when it is called.

gunicorn imports the function before it forks its workers; a connection or a thread made then
would be shared by all of them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from leasehold.bootstrap import Bundle, boot, load_catalog
from leasehold.registry.pipelines import Catalog
from leasehold.registry.settings import read_settings
from leasehold.services.engine import Engine


@dataclass(slots=True)
class Opening:
    """Opens the bundle of the environment once a process.

    Raises:
        SettingError, CatalogError, and the errors of the registries: the revision does not start.
    """

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    catalog: Catalog = field(init=False)
    _bundle: Bundle | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.catalog = load_catalog(read_settings(self.environ)["LEASEHOLD_CATALOG"])

    @property
    def engine(self) -> Engine:
        """The engine; the stores are opened at the first use in this process."""
        with self._lock:
            if self._bundle is None:
                self._bundle = boot(self.environ, catalog=self.catalog)
            return self._bundle.engine

    def close(self) -> None:
        """Close the stores, for tests; a function ends with its process."""
        if self._bundle is not None:
            self._bundle.close()
