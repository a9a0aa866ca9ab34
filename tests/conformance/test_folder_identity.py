"""That a folder is the store of artifacts, as either store of documents knows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasehold.adapters.folder_identity import IDENTITY, FolderIdentity
from leasehold.bootstrap import boot, load_catalog
from leasehold.domain.stored import Ref, Write
from leasehold.errors import StoreUnavailableError
from leasehold.ports.documents import Documents


def test_a_folder_is_known_by_the_mark_that_it_was_begun_with(
    documents: Documents, ref: Ref, tmp_path: Path
) -> None:
    documents.transact(ref, lambda _, __: Write(None, {"status": "PENDING"}))
    begun, other = tmp_path / "begun", tmp_path / "other"
    identity = FolderIdentity(begun, documents, note=documents)

    looked = (identity.find(), begun.exists(), documents.get(IDENTITY))
    mark = identity.find(may_write=True)

    assert looked == (None, False, None)
    assert mark is not None
    assert [*begun.iterdir()] == [mark]
    assert FolderIdentity(begun, documents).find() == mark
    for folder in (other, tmp_path):
        with pytest.raises(StoreUnavailableError, match="it is not mounted, or it is lost"):
            FolderIdentity(folder, documents, note=documents).find(may_write=True)
    assert not other.exists()
    (tmp_path / ".store-1").touch()
    with pytest.raises(StoreUnavailableError, match="the folder of another store"):
        FolderIdentity(tmp_path, documents, note=documents).find(may_write=True)


def test_a_bucket_is_known_by_its_name(documents: Documents) -> None:
    environ = {"LEASEHOLD_ARTIFACTS": "gs://bucket/prefix"}
    bundle = boot(
        environ, catalog=load_catalog("tests.worlds.catalogs.sample"), documents=documents
    )
    bundle.engine.leases.close()

    assert documents.get(IDENTITY) is None


@pytest.mark.parametrize("spoiled", [{}, {"identity": None}, {"identity": "a/../../x"}])
def test_a_folder_with_a_mark_is_noted_where_the_document_was_damaged(
    documents: Documents, ref: Ref, tmp_path: Path, spoiled: dict[str, object]
) -> None:
    documents.transact(ref, lambda _, __: Write(None, {"status": "PENDING"}))
    mark = FolderIdentity(tmp_path / "own", documents, note=documents).find(may_write=True)
    assert mark is not None
    documents.transact(IDENTITY, lambda _, __: Write(None, spoiled))

    with pytest.raises(StoreUnavailableError, match="neither it nor the document identities/art"):
        FolderIdentity(tmp_path / "other", documents, note=documents).find(may_write=True)
    again = FolderIdentity(tmp_path / "own", documents, note=documents).find(may_write=True)

    assert again == mark
    assert FolderIdentity(tmp_path / "own", documents).find() == mark
    assert not (tmp_path / "other").exists()
