"""What a server says before it begins: what its catalog names, and cannot be called."""

from __future__ import annotations

import contextlib
import os
import sys

from leasehold.bootstrap import load_catalog
from leasehold.registry.settings import read_settings
from leasehold.static_check import line_of, unresolved
from leasehold.worker.handlers import imports_within


def unresolved_lines() -> list[str]:
    """Return a line for each thing that does not resolve; all handlers are imported, each in time.

    Raises:
        SettingError, CatalogError, and the errors of the registries.
    """
    settings = read_settings(os.environ, lambda _: None)
    name = settings["LEASEHOLD_CATALOG"]
    with contextlib.redirect_stdout(sys.stderr):  # what modules print while they are imported
        catalog = load_catalog(name)
        with imports_within(settings["PIPELINE_IMPORT_TIMEOUT_S"]):
            return [line_of(one) for one in unresolved(catalog, name)]
