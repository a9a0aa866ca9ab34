"""Whether the durations of the last day differ from those before: the log-rank test.

Source: Mantel, "Evaluation of survival data and two new rank order statistics" (1966). The test
compares whole survival curves, of complete and censored durations alike.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import Final

from leasehold.budgets.kaplan_meier import ends
from leasehold.budgets.samples import Observation

#: Standard deviations; by chance one test in a thousand is beyond it.
DRIFT_Z: Final = 3.29
#: With fewer durations on either side there is no test.
FEWEST_COMPARED: Final = 20


def has_drifted(recent: Sequence[Observation], before: Sequence[Observation]) -> bool:
    """Return whether the recent durations are longer or shorter than chance explains."""
    if min(len(recent), len(before)) < FEWEST_COMPARED:
        return False
    return abs(log_rank_z(recent, before)) > DRIFT_Z


def log_rank_z(recent: Sequence[Observation], before: Sequence[Observation]) -> float:
    """Return the statistic of the test: above 0 where recent phases end earlier.

    Where d of the n phases at risk end, and a share s of those at risk is recent, d s recent ones
    should end by chance, with the variance d s (1 - s) (n - d) / (n - 1).
    """
    recent_ended = Counter(one.seconds for one in recent if not one.censored)
    recent_seconds = sorted(one.seconds for one in recent)
    surplus = variance = 0.0
    for seconds, ended, at_risk in ends([*recent, *before]):
        recent_at_risk = len(recent) - bisect_left(recent_seconds, seconds)
        share = recent_at_risk / at_risk
        surplus += recent_ended[seconds] - ended * share
        if at_risk > 1:
            variance += ended * share * (1 - share) * (at_risk - ended) / (at_risk - 1)
    return surplus / math.sqrt(variance) if variance > 0 else 0.0
