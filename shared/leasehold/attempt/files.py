"""The files of one run, as its handler has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from leasehold.bounded_calls import in_thread
from leasehold.domain.artifact_name import RunLife, files_folder
from leasehold.ports.artifacts import Artifacts

T = TypeVar("T")


class RunFiles:
    """The files of one run. They are not fenced: the last writer wins.

    Each call raises StoreUnavailableError where the store is away. A handler that lets it pass, as
    it is or as its own cause error, is not blamed for it: the attempt is deferred.

    What coroutines call is made in a thread; where the system has none, it blocks the loop.
    """

    def put(self, name: str, data: bytes) -> str:
        """Store a file whole or not at all, in place of an earlier file; return its address."""
        raise NotImplementedError

    def get(self, name: str) -> bytes:
        """Return a file, or raise ArtifactNotFoundError."""
        raise NotImplementedError

    def exists(self, name: str) -> bool:
        """Return whether the run has the file."""
        raise NotImplementedError

    def list(self) -> Sequence[str]:
        """Return the names of the run's files, sorted."""
        raise NotImplementedError

    async def aput(self, name: str, data: bytes) -> str:
        """Do what `put` does, without blocking the handler's loop."""
        return await in_thread(partial(self.put, name, data))

    async def aget(self, name: str) -> bytes:
        """Do what `get` does, without blocking the handler's loop."""
        return await in_thread(partial(self.get, name))

    async def aexists(self, name: str) -> bool:
        """Do what `exists` does, without blocking the handler's loop."""
        return await in_thread(partial(self.exists, name))

    async def alist(self) -> Sequence[str]:
        """Do what `list` does, without blocking the handler's loop."""
        return await in_thread(self.list)


def _once(call: Callable[[], T]) -> T:
    return call()


class RunArtifacts(RunFiles):
    """The files of one run, for a process that reaches the store.

    Args:
        artifacts: the store.
        run: the run.
        ask: makes a call, and again where the store is away; once, unless given.
        note_file: called before a file is stored.
    """

    def __init__(
        self,
        artifacts: Artifacts,
        run: RunLife,
        ask: Callable[[Callable[[], Any]], Any] = _once,
        note_file: Callable[[], None] = lambda: None,
    ) -> None:
        self._artifacts = artifacts
        self._folder = files_folder(run)
        self._ask = ask
        self._note_file = note_file

    def put(self, name: str, data: bytes) -> str:
        """Store a file whole or not at all, in place of an earlier file; return its address."""
        self._note_file()
        address: str = self._ask(lambda: self._artifacts.put(f"{self._folder}/{name}", data))
        return address

    def get(self, name: str) -> bytes:
        """Return a file, or raise ArtifactNotFoundError."""
        data: bytes = self._ask(lambda: self._artifacts.get(f"{self._folder}/{name}"))
        return data

    def exists(self, name: str) -> bool:
        """Return whether the run has the file."""
        return bool(self._ask(lambda: self._artifacts.exists(f"{self._folder}/{name}")))

    def list(self) -> Sequence[str]:
        """Return the names of the run's files, sorted."""
        start = len(self._folder) + 1
        names: Sequence[str] = self._ask(lambda: self._artifacts.list(self._folder))
        return [name[start:] for name in names]
