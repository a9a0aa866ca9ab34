"""The engine in one process: worker threads, a local queue, and the timer."""

from leasehold.in_process.engine import InProcessEngine

__all__ = ["InProcessEngine"]
