"""The port of samples: what knows how long the attempts of a step took."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

#: Returns the attempts of a step type since then; LeaseholdError: they cannot be had.
SampleSource = Callable[[str, datetime], Sequence[object]]
