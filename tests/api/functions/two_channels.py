"""A catalog whose runs are announced to two channels."""

from __future__ import annotations

from leasehold import LogChannel, Registry
from tests.worlds.catalogs.sample import PIPELINES, STEPS

__all__ = ["CHANNELS", "PIPELINES", "STEPS"]

CHANNELS = Registry("channels", [LogChannel(name="log"), LogChannel(name="audit")])
