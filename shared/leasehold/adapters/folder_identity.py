"""Which folder is the store of artifacts: a mark in its root, and a document that names it.

A folder that is not mounted looks like a new one. The documents know better, so it is an outage,
which ends when the folder is back; copied, moved or restored it has its mark and is the store.
A bucket has no mark: its name is its identity, which no other bucket has while it is there, and it
is never empty by a mistake of the machine.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from leasehold.adapters.compressed_files import SUFFIX
from leasehold.adapters.plain_files import make_folder, open_folder
from leasehold.domain.artifact_name import MARK
from leasehold.domain.document import Document, Ref, Write
from leasehold.errors import StoreUnavailableError
from leasehold.ports.documents import Documents, Query, ReadOnlyDocuments

#: One small document; it is no note that a process lives, and stands in no list.
IDENTITY: Final = Ref("workers", "artifacts")

#: Whether runs have files is seen by the newest of them.
_NEWEST: Final = Query(
    "runs", order_by="createdAt", descending=True, limit=50, fields=("inputRef", "steps")
)

_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_TEXT: Final = (
    "This folder is the store of artifacts that the documents of Leasehold know by the name of "
    "this file. Keep it: without it the folder may be taken for one that is not mounted.\n"
)


class FolderIdentity:
    """Compares a folder with what the documents know of it.

    Args:
        root: the folder.
        documents: the store that knows it.
        log: given a line where it is another one.
        note: the store again, where the folder may be marked; None: nothing is written.
    """

    def __init__(
        self,
        root: Path,
        documents: ReadOnlyDocuments,
        log: Callable[[str], object] = lambda _: None,
        *,
        note: Documents | None = None,
    ) -> None:
        self._root = root
        self._documents = documents
        self._log = log
        self._note = note
        self._new = secrets.token_hex(8)

    def find(self, may_write: bool = False) -> Path | None:
        """Return the mark by which the folder is known; it has it now.

        The first process that works on a store marks its folder, and notes that; so is a folder
        marked that lacks it and has files of the runs, as of an earlier version or of a backup.

        Args:
            may_write: whether that may be done now.

        Returns:
            None: it has none, and may be the store all the same.

        Raises:
            StoreUnavailableError: it is not the folder that the documents know, or cannot be
                looked at.
        """
        found = self._documents.get(IDENTITY)
        known = None if found is None else str(found.document.get("identity"))
        try:
            marks = {name.removeprefix(MARK) for name in self._names() if name.startswith(MARK)}
            if known is None:
                return self._begin(marks, self._note if may_write else None)
            if known not in marks:
                self._check_unmarked(known, marks)
                if self._note is None or not may_write:
                    return None
                self._mark(known)
        except OSError as error:
            problem = f"{error.strerror or error} ({self._root})"
            raise StoreUnavailableError(store=str(self._root), problem=problem) from error
        return self._root / f"{MARK}{known}"

    def _begin(self, marks: Collection[str], note: Documents | None) -> Path | None:
        """Note which folder is the store from now on; it is marked first, so no crash locks it."""
        if not marks and not self._has_files() and any(_files(self._documents)):
            here = f"if it is lost, type {self._marking(self._new)}"
            raise self._away(f"it is empty, and runs have files in it. Mount it; {here}")
        if note is None:
            return None
        mine = min(marks, default=self._new)
        if not marks:
            self._mark(mine)

        def decide(document: Document | None, now: datetime) -> Write[str]:
            if document is not None:
                return Write(str(document.get("identity")))
            return Write(mine, {"identity": mine, "since": now})

        if note.transact(IDENTITY, decide).answer != mine:  # another process was faster
            if mine not in marks:
                (self._root / f"{MARK}{mine}").unlink(missing_ok=True)
            return self.find(may_write=True)
        return self._root / f"{MARK}{mine}"

    def _check_unmarked(self, known: str, marks: Collection[str]) -> None:
        """Pass a folder without the mark where it is the store, as far as anybody can tell."""
        here = f"if this is to be the store from now on, type {self._marking(known)}"
        if marks:
            raise self._away(f"it is the folder of another store. Mount the right one; {here}")
        if self._has_files():
            named = list(_files(self._documents))
            if named and not any(map(self._has, named)):
                problem = "none of the files of the newest runs is in it"
                raise self._away(f"{problem}: it is another folder. Mount the right one; {here}")
        elif self._documents.query(Query("runs", limit=1, fields=("status",))):
            problem = "it is gone or empty, and was not before: it is not mounted, or it is lost"
            raise self._away(f"{problem}. Mount it; {here}")

    def _away(self, problem: str) -> StoreUnavailableError:
        error = StoreUnavailableError(store=str(self._root), problem=problem)
        self._log(error.message)
        return error

    def _marking(self, identity: str) -> str:
        root = shlex.quote(str(self._root))
        return f"`mkdir -p {root} && touch {root}/{MARK}{identity}`"

    def _mark(self, identity: str) -> None:
        """Have the folder say who it is."""
        make_folder(self._root)
        folder = open_folder(self._root, [])
        try:
            with contextlib.suppress(FileExistsError):
                handle = os.open(f"{MARK}{identity}", _NEW_FILE, 0o600, dir_fd=folder)
                with os.fdopen(handle, "w") as file:
                    file.write(_TEXT)
                    file.flush()
                    os.fsync(handle)
            os.fsync(folder)
        finally:
            os.close(folder)

    def _names(self) -> list[str]:
        try:
            return os.listdir(self._root)  # noqa: PTH208 - names alone
        except FileNotFoundError:
            return []

    def _has_files(self) -> bool:
        """Return whether it has anything of any run, or of whoever stores files beside them."""
        return any(not name.startswith(".") and name != "lost+found" for name in self._names())

    def _has(self, name: str) -> bool:
        plain = self._root / name
        return os.path.lexists(plain) or os.path.lexists(f"{plain}{SUFFIX}")


def _files(documents: ReadOnlyDocuments) -> Iterator[str]:
    """Yield the names of large values that the newest runs have in files."""
    for found in documents.query(_NEWEST):
        run = found.document
        steps = run.get("steps")
        records = steps.values() if isinstance(steps, dict) else ()
        refs: list[Any] = [run.get("inputRef")]
        refs += [record.get("outputRef") for record in records if isinstance(record, dict)]
        yield from (ref for ref in refs if isinstance(ref, str))
