"""What `with_` may replace of a part of a manifest: for type checkers, who refuse the rest.

The updates of a manifest and of its steps hold parts, and stand beside these in `manifest.py`. A
test compares each update with the fields of its model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from pydantic import AwareDatetime

    from leasehold.domain.status import Outcome


class LeaseUpdate(TypedDict, total=False):
    """Fields of `Lease`."""

    lease_id: str
    holder: str
    acquired_at: AwareDatetime
    expires_at: AwareDatetime
    max_expires_at: AwareDatetime


class DispatchUpdate(TypedDict, total=False):
    """Fields of `Dispatch`."""

    generation: int
    step: str
    trial: int
    not_before: AwareDatetime
    timeout_ms: int
    deadline_s: int
    max_retries: int
    heartbeat_s: float | None
    queue: str
    sources: Mapping[str, str]
    nonce: str
    remote: bool
    schedule_to_start_s: int | None
    redispatched: int
    deferred: int
    seen_at: AwareDatetime | None
    enqueued: bool


class SettlementUpdate(TypedDict, total=False):
    """Fields of `Settlement`."""

    lease_id: str
    fencing_token: int | None
    outcome: Outcome


class ErrorRecordUpdate(TypedDict, total=False):
    """Fields of `ErrorRecord`."""

    type: str
    code: str
    message: str
    details: str | None
    validation_issues: tuple[Mapping[str, Any], ...]
    validation_issue_count: int
    origin: str | None
    permanent: bool
    step: str
    attempt: int
