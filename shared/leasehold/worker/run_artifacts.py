"""The files of one run, in the store of artifacts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from leasehold.domain.life import RunLife, files_folder
from leasehold.ports.artifacts import Artifacts
from leasehold.worker.async_files import AsyncFiles

T = TypeVar("T")


def _once(call: Callable[[], T]) -> T:
    return call()


class RunArtifacts(AsyncFiles):
    """The files of one run (`attempt_calls.RunFiles`), for whoever reaches the store.

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
        """Store a file whole or not at all, in place of what was there; return its address."""
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
