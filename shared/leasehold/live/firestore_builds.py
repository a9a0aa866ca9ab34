"""What Firestore is doing in the background, and since when, as far as it tells."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from leasehold.live.clients import ONE_TRY


def begun_at(client: Any, database: str) -> Mapping[str, datetime]:
    """Return since when each index is built and each field is changed, by their full names.

    It only adds to what is known otherwise: what cannot be asked is not there.

    Args:
        client: `GoogleClients.firestore_admin`.
        database: the full name of the database.
    """
    from google.cloud.firestore_admin_v1 import (  # noqa: PLC0415 - with the client
        FieldOperationMetadata,
        IndexOperationMetadata,
    )

    subjects = {"IndexOperationMetadata": "index", "FieldOperationMetadata": "field"}
    kinds = {kind.__name__: kind for kind in (IndexOperationMetadata, FieldOperationMetadata)}
    found: dict[str, datetime] = {}
    try:
        for operation in client.list_operations({"name": database}, **ONE_TRY).operations:
            kind = kinds.get(operation.metadata.type_url.rpartition(".")[2])
            if operation.done or kind is None:
                continue
            metadata = kind.deserialize(operation.metadata.value)
            if metadata.start_time is not None:
                found[getattr(metadata, subjects[kind.__name__])] = metadata.start_time
    except Exception:  # noqa: BLE001 - it may be refused to who may see the indexes
        return found
    return found
