"""An override in one line: whose it is, what it says, until when, and why."""

from __future__ import annotations

from leasehold.api.overrides import OverrideReport
from leasehold.domain.timestamps import moment_text


def override_line(override: OverrideReport) -> str:
    """Return the line; what the document does not say is left out."""
    limits = [
        f"{name} {seconds:g} s"
        for name, seconds in (("timeout", override.timeout_s), ("deadline", override.deadline_s))
        if seconds is not None
    ]
    parts = [
        f"override of {override.step_type}",
        f"by {override.set_by}" if override.set_by else "",
        ", ".join(limits),
        "" if override.until is None else f"until {moment_text(override.until)}",
    ]
    why = f": {override.why}" if override.why else ""
    return " ".join(filter(None, parts)) + why
