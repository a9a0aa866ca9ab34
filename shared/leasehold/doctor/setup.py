"""What the doctor looks at: the environment, its settings as far as they hold, and the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leasehold.registry.channels import ChannelEntry
from leasehold.registry.dispatch import StepDispatchEntry
from leasehold.registry.function_table import FUNCTIONS
from leasehold.registry.functions import FunctionTable
from leasehold.registry.pipelines import NO_CATALOG, Catalog
from leasehold.registry.settings import SETTINGS


@dataclass(frozen=True, slots=True)
class Setup:
    """One machine as it is set up.

    Args:
        environ: the environment; its values are never shown as a whole.
        settings: the value of each setting; the default, where it is refused.
        catalog: what is run; an empty one, where it cannot be loaded.
        functions: what is deployed, as `deployment.py` has it, or else the package.
        folder: the working folder.
    """

    environ: Mapping[str, str] = field(repr=False)
    settings: Mapping[str, Any] = field(repr=False)
    catalog: Catalog = NO_CATALOG
    functions: FunctionTable = FUNCTIONS
    folder: Path = field(default_factory=Path.cwd)

    @property
    def steps(self) -> tuple[StepDispatchEntry, ...]:
        """The step types."""
        return tuple(self.catalog.steps)

    @property
    def channels(self) -> tuple[ChannelEntry, ...]:
        """The channels."""
        return tuple(self.catalog.channels)

    @property
    def store(self) -> str:
        """The address of the store."""
        return str(self.settings["LEASEHOLD_STORE"])

    @property
    def uses_google_tasks(self) -> bool:
        """Whether tasks are Google's to deliver, and not a local server's."""
        is_queue = self.settings["LEASEHOLD_TASKS"] != "in-process"
        return is_queue and self.settings["CLOUD_TASKS_EMULATOR_URL"] is None


def lenient_settings(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the value of each setting; `check` reports those that are refused."""
    values: dict[str, Any] = {}
    for entry in SETTINGS:
        try:
            values[entry.name] = entry.read(environ.get(entry.name, entry.default))
        except ValueError:
            values[entry.name] = entry.read(entry.default)
    return values
