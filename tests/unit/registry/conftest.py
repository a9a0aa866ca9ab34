"""Registry entries that can be used, to be spoilt by one field."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from leasehold.registry.dispatch import StepDispatchEntry


@pytest.fixture
def entry() -> Callable[..., StepDispatchEntry]:
    """A step of 10 and 15 minutes, with other values for the fields that are named."""

    def build(step_type: str = "extraction", **fields: Any) -> StepDispatchEntry:
        usable: dict[str, Any] = {
            "handler": "letters.steps:extract",
            "agent_timeout": timedelta(minutes=10),
            "dispatch_deadline": timedelta(minutes=15),
        }
        return StepDispatchEntry(step_type=step_type, **(usable | fields))

    return build
