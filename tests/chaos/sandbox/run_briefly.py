"""The entry of a fork server whose processes wait for a further attempt for a moment alone."""

from __future__ import annotations

from leasehold.worker.sandbox.child import handler_process
from leasehold.worker.sandbox.child.handler_process import load, run

__all__ = ["load", "run"]

handler_process.MAX_IDLE_S = handler_process.MEMORY_LOOK_EVERY_S = 0.1  # type: ignore[misc] # for this test
