"""The engine in this process: worker threads, a queue rebuilt from the manifests, many runs."""

from leasehold.in_process.engine import InProcessEngine

__all__ = ["InProcessEngine"]
