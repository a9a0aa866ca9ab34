"""The update mask of a queue: which of its settings a PATCH changes."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any, Final

from leasehold.devserver.cloud_tasks.limits import QueueSettings, RateLimits, RetryConfig
from leasehold.devserver.cloud_tasks.refusals import invalid

_PARTS: Final = {"retryConfig": ("retry", RetryConfig), "rateLimits": ("rate", RateLimits)}


def masked(old: QueueSettings, new: QueueSettings, mask: str) -> QueueSettings:
    """Return the old settings with what the mask names from the new ones; no mask: all.

    Raises:
        RefusedError: the mask names something that is no setting, or cannot be set.
    """
    paths = [path for path in mask.split(",") if path and path != "name"]
    if not paths:
        return new
    for path in paths:
        old = _one(old, new, path)
    return old


def _one(old: QueueSettings, new: QueueSettings, path: str) -> QueueSettings:
    part, _, leaf = path.partition(".")
    if part not in _PARTS:
        raise invalid(f"Invalid update_mask: '{path}' cannot be updated.")
    name, kind = _PARTS[part]
    taken: Any = getattr(new, name)
    if leaf:
        field = re.sub("([A-Z])", r"_\1", leaf).lower()
        if field not in {known.name for known in fields(kind)}:
            raise invalid(f"Invalid update_mask: '{path}' cannot be updated.")
        taken = replace(getattr(old, name), **{field: getattr(taken, field)})
    changed: QueueSettings = replace(old, **{name: taken})
    return changed
