"""The answer of `sweep_dead_letters`: counts of the runs that a sweep looked at."""

from __future__ import annotations

from collections.abc import Mapping

from leasehold.api.response_model import ResponseModel


class SweepResponse(ResponseModel):
    """Counts; `services.sweep_result.SweepResult` says what each of them is."""

    dead_lettered: int
    by_reason: Mapping[str, int]
    recovered: int
    redispatched: int
    still_queued: int
    unattended: int
    reannounced: int
    archived: int
    purged: int
    documents_read: int
    more: bool
