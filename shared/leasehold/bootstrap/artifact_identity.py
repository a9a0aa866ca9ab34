"""Who the artifacts of a store are: its documents and the folder itself say the same.

A folder that is not mounted looks like a new one. The documents know better, so it is an outage,
which heals when the folder is back. A bucket has a name that no other one has, and needs none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from typing import Any, Final

from leasehold.adapters.folder import FolderArtifacts
from leasehold.domain.document import Document, Ref, Write
from leasehold.errors import ArtifactNameError, SettingError, StoreUnavailableError
from leasehold.ports.artifacts import Artifacts
from leasehold.ports.documents import Documents, Query

#: One small document; it is no note that a process lives, and stands in no list.
IDENTITY: Final = Ref("workers", "artifacts")

#: Whether runs have files is seen by the newest of them.
_NEWEST: Final = Query("runs", order_by="createdAt", descending=True, limit=50)


def identify(artifacts: Artifacts, documents: Documents, log: Callable[[str], object]) -> None:
    """Have a folder be the one that the documents know, or become it.

    Args:
        artifacts: the folder.
        documents: the store; where it is away, the next start looks again.
        log: given a line where the folder is not there.

    Raises:
        SettingError: it is the folder of another store.
    """
    if not isinstance(artifacts, FolderArtifacts):
        return
    try:
        found, known = artifacts.identities, _known(documents)
        if known is None and (found or _is_of(artifacts, documents)):
            known = _claim(artifacts, documents, min(found, default=None))
    except StoreUnavailableError as error:
        log(f"whose artifacts are in the folder is not known: {error.message}")
        return
    if known is None:  # the first write makes both
        artifacts.ask_before_beginning(partial(_begin, artifacts, documents))
        return
    if found and known not in found:
        allowed = f"the folder that says it is {known}; this one is of another store"
        raise SettingError(name="LEASEHOLD_ARTIFACTS", value=str(artifacts.root), allowed=allowed)
    artifacts.expect(known)
    if not artifacts.identities:
        log(f"{artifacts.root} is not mounted, or lost: what needs files waits until it is back")


def _known(documents: Documents) -> str | None:
    found = documents.get(IDENTITY)
    return None if found is None else str(found.document["identity"])


def _is_of(artifacts: FolderArtifacts, documents: Documents) -> bool:
    """Return whether a folder of an earlier version has files, and some that the runs know."""
    if not artifacts.is_there:
        return False
    named = list(_files(documents))
    return not named or any(map(partial(_has, artifacts), named))


def _has(artifacts: FolderArtifacts, name: str) -> bool:
    try:
        return artifacts.exists(name)
    except ArtifactNameError:  # somebody edited it
        return False


def _begin(artifacts: FolderArtifacts, documents: Documents, identity: str) -> str:
    """Return who an empty folder is to be; it is marked first, so that no crash locks it."""
    if known := _known(documents):
        return known
    if any(True for _ in _files(documents)):
        problem = f"{artifacts.root} is empty, and runs have files in it: mount it"
        raise StoreUnavailableError(store=str(artifacts.root), problem=problem)
    return _claim(artifacts, documents, identity)


def _claim(artifacts: FolderArtifacts, documents: Documents, identity: str | None) -> str:
    """Note who the folder is, unless another process was faster; return who it is."""
    mine = identity or artifacts.new_identity()
    artifacts.mark(mine)

    def decide(document: Document | None, _: datetime) -> Write[str]:
        if document is not None:
            return Write(str(document["identity"]))
        return Write(mine, {"identity": mine})

    return documents.transact(IDENTITY, decide).answer


def _files(documents: Documents) -> Iterator[str]:
    """Yield the names of large values that the newest runs have in files."""
    for found in documents.query(_NEWEST):
        run = found.document
        steps = run.get("steps")
        records = steps.values() if isinstance(steps, dict) else ()
        refs: list[Any] = [run.get("inputRef")]
        refs += [record.get("outputRef") for record in records if isinstance(record, dict)]
        yield from (ref for ref in refs if isinstance(ref, str))
