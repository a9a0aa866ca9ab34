"""Who the artifacts of a store are: its documents and the folder itself say the same.

A folder that is not mounted looks like a new one. The documents know better, so it is an outage,
which heals when the folder is back. A bucket has a name that no other one has, and needs none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import Any, Final

from leasehold.adapters.folder import FolderArtifacts
from leasehold.domain.artifact_name import UNFINISHED
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
    artifacts.ask_before_beginning(partial(_begin, artifacts, documents))
    try:
        found, known = artifacts.identities, _known(documents)
        if known is None and (found or _is_unmarked(artifacts, documents)):
            known = _claim(artifacts, documents, min(found, default=None))
        elif known is not None and not found and _has_any(artifacts, _files(documents)):
            artifacts.mark(known)  # put back from a backup that has no empty folders, say
    except StoreUnavailableError as error:
        log(f"whose artifacts are in the folder is not known: {error.message}")
        return
    if known is None:
        return  # the first write makes both
    if found and known not in found:
        allowed = f"the folder that says it is {known}; this one is of another store"
        raise SettingError(name="LEASEHOLD_ARTIFACTS", value=str(artifacts.root), allowed=allowed)
    artifacts.expect(known)
    if not artifacts.identities:
        log(f"{artifacts.root} is not mounted, or lost: what needs files waits until it is back")


def _known(documents: Documents) -> str | None:
    found = documents.get(IDENTITY)
    return None if found is None else str(found.document["identity"])


def _is_unmarked(artifacts: FolderArtifacts, documents: Documents) -> bool:
    """Return whether a folder without a mark is the one of the runs, as an earlier version left it.

    It holds a file that they know, or they know none.
    """
    if not artifacts.is_there:
        return False
    named = list(_files(documents))
    return not named or _has_any(artifacts, named)


def _has_any(artifacts: FolderArtifacts, names: Iterable[str]) -> bool:
    return artifacts.is_there and any(map(partial(_has, artifacts), names))


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
        begin = f"mkdir -p {artifacts.root / UNFINISHED}"
        problem = f"it is empty, and runs have files in it: mount it; if they are lost, {begin}"
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
