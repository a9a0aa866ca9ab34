"""The catalog of the storm for its own function, whose senders may end it."""

from __future__ import annotations

from typing import Final

from leasehold import CustomChannel, Registry
from tests.chaos.storm.catalog import CATALOG, NAMES

STEPS: Final = CATALOG.steps
PIPELINES: Final = CATALOG.pipelines
GATES: Final = CATALOG.gates
CHANNELS: Final = Registry(
    "channels",
    [CustomChannel(name=name, sender="tests.chaos.storm.sender:send_or_die") for name in NAMES],
)
