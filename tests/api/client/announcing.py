"""The catalog of these tests, with a channel."""

from __future__ import annotations

from leasehold import LogChannel, Registry
from tests.worlds.catalogs.client import GATES, PIPELINES, STEPS

__all__ = ["CHANNELS", "GATES", "PIPELINES", "STEPS"]

CHANNELS = Registry("channels", [LogChannel(name="log")])
