"""The port of samples: what knows how long the attempts of a step took."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol


class SampleSource(Protocol):
    """Where the durations of attempts come from."""

    def samples(self, step_type: str, since: datetime) -> Sequence[object]:
        """Return the attempts of a step since then; LeaseholdError: they cannot be had."""
        ...
