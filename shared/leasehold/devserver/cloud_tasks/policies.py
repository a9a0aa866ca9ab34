"""Who may use a queue: kept as it is given, and not enforced on one machine."""

from __future__ import annotations

import base64
from typing import Any

from leasehold.devserver.cloud_tasks.api_errors import ApiError


class Policies:
    """The policies of queues; the caller holds a lock."""

    def __init__(self) -> None:
        self._policies: dict[str, tuple[int, dict[str, Any]]] = {}  # with the number of its change

    def get(self, queue: str) -> dict[str, Any]:
        """Return the policy of a queue; one that nobody has set is empty."""
        change, policy = self._policies.get(queue, (0, {}))
        return {**policy, "etag": base64.b64encode(b"%d" % change).decode()}

    def set(self, queue: str, policy: dict[str, Any]) -> dict[str, Any]:
        """Replace the policy of a queue, unless it has changed since it was read."""
        kept = self.get(queue)["etag"]
        if policy.get("etag", kept) != kept:
            raise ApiError("ABORTED", "There were concurrent policy changes; read it again.")
        change, _ = self._policies.get(queue, (0, {}))
        self._policies[queue] = (change + 1, policy)
        return self.get(queue)
