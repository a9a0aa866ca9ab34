"""Which folder is the store of artifacts: a mark in its root, and a document that names it.

A folder that is not mounted looks like a new one. The documents know better, so it is an outage,
which ends when the folder is back; copied, moved or restored it has its mark and is the store.
A bucket has no mark: its name is its identity, which no other bucket has while it is there, and it
is never empty by a mistake of the machine.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shlex
from collections.abc import Callable, Collection
from datetime import datetime
from pathlib import Path
from typing import Final, NoReturn

from leasehold.adapters.plain_files import make_folder, open_folder
from leasehold.domain.artifact_name import MARK
from leasehold.domain.stored import Document, Ref, Write
from leasehold.errors import StoreUnavailableError
from leasehold.ports.documents import Documents, Queries, Query

IDENTITY: Final = Ref("identities", "artifacts")

#: As `secrets.token_hex` makes them.
_IDENTITY: Final = re.compile(r"[0-9a-f]{16}")

_CALL_TIMEOUT_S: Final = 5.0
_KNOWN: Final = Query(IDENTITY.collection, limit=1, within=_CALL_TIMEOUT_S)
_ANY_RUN: Final = Query("runs", limit=1, fields=("status",), within=_CALL_TIMEOUT_S)

_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_TEXT: Final = (
    "This folder is the store of artifacts that the documents of Leasehold know by the name of "
    "this file. Keep it: without it the folder is taken for one that is not mounted.\n"
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
        documents: Queries,
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

        The first process that works on a store marks its folder, and notes that.

        Args:
            may_write: whether that may be done now.

        Returns:
            None: it has none, and nothing can be missing in it.

        Raises:
            StoreUnavailableError: it is not the folder that the documents know, or cannot be
                looked at.
        """
        note = self._note if may_write else None
        found = self._documents.query(_KNOWN)
        known = _identity_in(found[0].document) if found else None
        try:
            marks = {name.removeprefix(MARK) for name in self._names() if name.startswith(MARK)}
            if known is None and found and not marks:
                self._refuse(f"neither it nor the document {IDENTITY} says which store it is")
            if known is None:
                return None if note is None else self._begin(marks, note)
            if known not in marks:
                self._check_unmarked(known, marks)
                if note is None:
                    return None
                self._mark(known)
        except OSError as error:
            problem = f"{error.strerror or error} ({self._root})"
            raise StoreUnavailableError(store=str(self._root), problem=problem) from error
        return self._path(known)

    def _begin(self, marks: Collection[str], note: Documents) -> Path | None:
        """Note which folder is the store from now on; it is marked first, so no crash locks it."""
        mine = min(marks, default="") or self._mark(self._new)

        def decide(document: Document | None, now: datetime) -> Write[str]:
            if document is not None and (known := _identity_in(document)):
                return Write(known)
            return Write(mine, {"identity": mine, "since": now})

        if note.transact(IDENTITY, decide, within=_CALL_TIMEOUT_S).answer != mine:
            if mine not in marks:  # another process was faster
                self._path(mine).unlink(missing_ok=True)
            return self.find(may_write=True)
        return self._path(mine)

    def _check_unmarked(self, known: str, marks: Collection[str]) -> None:
        """Pass a folder without the mark where nothing can be missing: there is no run."""
        if marks:
            problem = "it is the folder of another store. Mount the right one"
        elif self._documents.query(_ANY_RUN):
            problem = "its mark is missing: it is not mounted, or it is lost. Mount it"
        else:
            return
        self._refuse(problem, known)

    def _refuse(self, problem: str, known: str | None = None) -> NoReturn:
        """Say what is wrong with the folder, and how it becomes the store."""
        identity = known or self._new
        root, mark = shlex.quote(str(self._root)), shlex.quote(str(self._path(identity)))
        here = f"if this is to be the store from now on, type `mkdir -p {root} && touch {mark}`"
        error = StoreUnavailableError(store=str(self._root), problem=f"{problem}; {here}")
        self._log(error.message)
        raise error

    def _path(self, identity: str) -> Path:
        return self._root / f"{MARK}{identity}"

    def _mark(self, identity: str) -> str:
        """Have the folder say who it is; return that."""
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
        return identity

    def _names(self) -> list[str]:
        try:
            return os.listdir(self._root)  # noqa: PTH208 - names alone
        except FileNotFoundError:
            return []


def _identity_in(document: Document) -> str | None:
    """Return the identity that the document names; None: it was damaged."""
    identity = document.get("identity")
    return identity if isinstance(identity, str) and _IDENTITY.fullmatch(identity) else None
