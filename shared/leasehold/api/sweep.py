"""What `sweep_dead_letters` answers: counts of what it found and did."""

from __future__ import annotations

from collections.abc import Mapping

from leasehold.api.response_model import ResponseModel


class SweepResponse(ResponseModel):
    """Runs, by what became of them; `services.sweep_result.SweepResult` says what each count is."""

    dead_lettered: int
    by_reason: Mapping[str, int]
    recovered: int
    redispatched: int
    still_queued: int
    unattended: int
    reannounced: int
    archived: int
    documents_read: int
    more: bool
