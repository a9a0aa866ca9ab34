"""The files of a run for coroutines: each call in a thread of its own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from leasehold.bounded_calls import in_thread
from leasehold.worker.attempt_calls import RunFiles


class AsyncFiles:
    """What `RunFiles` has for coroutines; a class that is one inherits it.

    Where the system has no thread for a call, it blocks the loop.
    """

    async def aput(self: RunFiles, name: str, data: bytes) -> str:
        """Do what `put` does, without blocking the handler's loop."""
        return await in_thread(partial(self.put, name, data))

    async def aget(self: RunFiles, name: str) -> bytes:
        """Do what `get` does, without blocking the handler's loop."""
        return await in_thread(partial(self.get, name))

    async def aexists(self: RunFiles, name: str) -> bool:
        """Do what `exists` does, without blocking the handler's loop."""
        return await in_thread(partial(self.exists, name))

    async def alist(self: RunFiles) -> Sequence[str]:
        """Do what `list` does, without blocking the handler's loop."""
        return await in_thread(self.list)
