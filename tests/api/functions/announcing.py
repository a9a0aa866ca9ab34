"""The sample, with a channel."""

from __future__ import annotations

from leasehold.registry.channels import LogChannel
from leasehold.registry.registry import Registry
from tests.worlds.catalogs.sample import PIPELINES, STEPS

__all__ = ["CHANNELS", "PIPELINES", "STEPS"]

CHANNELS = Registry("channels", [LogChannel(name="log")])
